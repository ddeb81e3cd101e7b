//! Sequences and optionals as plain tensors, wherever one must pass a border: into a branch's result, from trip to trip of a
//! loop, into the model or out of it.
//!
//! A [`Form`] says how many tensors stand for a value and what they are. Where two ways meet, their forms are joined.

use super::{Container, Mender};
use crate::dtype::DType;
use crate::graph::{ElemType, Module, Node, Region, TensorData, ValueId, ValueType};
use crate::sym::Int;

/// Type and shape of a tensor.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Member {
    pub(super) elem: ElemType,
    pub(super) dims: Vec<Int>,
}

/// How a value is held in tensors.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Form {
    /// A tensor is itself.
    Tensor(Member),
    /// A sequence of known length: one tensor for each member.
    List(Vec<Member>),
    /// A sequence whose members have this shape: one tensor, the members along its first axis.
    Stack(Member),
    /// A sequence of tensors of any shape, see [`super::ragged`]; the rank that all members have, if they have one.
    Ragged(ElemType, Option<usize>),
    /// No value.
    Absent,
    /// An optional that has a value.
    Present(Box<Form>),
    /// Whether there is a value, then the value, as far as its type says how it is held.
    Maybe(Option<Box<Form>>),
}

impl Form {
    /// How many tensors.
    pub(super) fn len(&self) -> usize {
        match self {
            Form::Tensor(_) | Form::Stack(_) => 1,
            Form::List(members) => members.len(),
            Form::Ragged(..) => 2,
            Form::Absent => 0,
            Form::Present(of) => of.len(),
            Form::Maybe(of) => 1 + of.as_ref().map_or(0, |of| of.len()),
        }
    }

    /// Are there strings in it?
    pub(super) fn has_strings(&self) -> bool {
        let text = |m: &Member| m.elem == ElemType::String;
        match self {
            Form::Tensor(m) | Form::Stack(m) => text(m),
            Form::List(members) => members.iter().any(text),
            Form::Ragged(elem, _) => *elem == ElemType::String,
            Form::Absent => false,
            Form::Present(of) => of.has_strings(),
            Form::Maybe(of) => of.as_ref().is_some_and(|of| of.has_strings()),
        }
    }

    /// Are they held in the same way? Sizes of single tensors may differ.
    pub(super) fn is_like(&self, other: &Form) -> bool {
        match (self, other) {
            (Form::Tensor(a), Form::Tensor(b)) => a.is_like(b),
            (Form::List(a), Form::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_like(b)),
            (Form::Present(a), Form::Present(b)) => a.is_like(b),
            (Form::Maybe(Some(a)), Form::Maybe(Some(b))) => a.is_like(b),
            _ => self == other,
        }
    }

    /// A form that holds both. Nothing if they are of different types.
    pub(super) fn join(&self, other: &Form) -> Option<Form> {
        if self.is_like(other) {
            return Some(self.clone());
        }
        Some(match (self, other) {
            (Form::Tensor(_), _) | (_, Form::Tensor(_)) => match (self, other) {
                (Form::Present(of) | Form::Maybe(Some(of)), plain)
                | (plain, Form::Present(of) | Form::Maybe(Some(of))) => Form::Maybe(Some(Box::new(of.join(plain)?))),
                (Form::Absent | Form::Maybe(None), plain) | (plain, Form::Absent | Form::Maybe(None)) => {
                    Form::Maybe(Some(Box::new(plain.clone())))
                }
                _ => return None,
            },
            (Form::Absent, Form::Present(of) | Form::Maybe(Some(of)))
            | (Form::Present(of) | Form::Maybe(Some(of)), Form::Absent) => Form::Maybe(Some(of.clone())),
            (Form::Present(a) | Form::Maybe(Some(a)), Form::Present(b) | Form::Maybe(Some(b))) => {
                Form::Maybe(Some(Box::new(a.join(b)?)))
            }
            (Form::Maybe(None), _) | (_, Form::Maybe(None)) => Form::Maybe(None),
            (Form::Present(of) | Form::Maybe(Some(of)), plain) | (plain, Form::Present(of) | Form::Maybe(Some(of))) => {
                Form::Maybe(Some(Box::new(of.join(plain)?)))
            }
            (Form::Absent, plain) | (plain, Form::Absent) => Form::Maybe(Some(Box::new(plain.clone()))),
            (a, b) => join_sequences(a, b)?,
        })
    }

    /// The members that it is known to have, and whether there may be others than these.
    fn members(&self) -> Vec<&Member> {
        match self {
            Form::List(members) => members.iter().collect(),
            Form::Stack(member) => vec![member],
            _ => vec![],
        }
    }
}

impl Member {
    fn is_like(&self, other: &Member) -> bool {
        self.elem == other.elem && self.dims.len() == other.dims.len()
    }
}

/// The form of sequences of different length.
fn join_sequences(a: &Form, b: &Form) -> Option<Form> {
    let members: Vec<&Member> = a.members().into_iter().chain(b.members()).collect();
    let is_ragged = |f: &Form| matches!(f, Form::Ragged(..));
    let first = members.first().copied();
    let may_be_empty = [a, b].iter().any(|f| matches!(f, Form::List(m) if m.is_empty()));
    let fixed = |m: &Member| m.dims.iter().all(|d| d.as_const().is_some());
    if let Some(first) = first
        && !is_ragged(a)
        && !is_ragged(b)
        && members.iter().all(|m| *m == first)
        && (!may_be_empty || fixed(first))
    {
        return Some(Form::Stack(first.clone()));
    }
    let elem = match (a, b) {
        (Form::Ragged(elem, _), _) | (_, Form::Ragged(elem, _)) => *elem,
        _ => first?.elem,
    };
    let mut ranks: Vec<Option<usize>> = members.iter().map(|m| Some(m.dims.len())).collect();
    for f in [a, b] {
        if let Form::Ragged(other, rank) = f {
            if *other != elem {
                return None;
            }
            ranks.push(*rank);
        }
    }
    if members.iter().any(|m| m.elem != elem) {
        return None;
    }
    let rank = ranks.first().copied().flatten().filter(|r| ranks.iter().all(|x| *x == Some(*r)));
    Some(Form::Ragged(elem, rank))
}

impl Mender<'_> {
    /// Type and shape of a tensor, if it is one.
    pub(super) fn member(&self, id: ValueId) -> Option<Member> {
        let t = *self.facts.values.get(&id)?;
        if self.facts.poisoned.contains(&id) {
            return None;
        }
        let elem = self.facts.cx.narrow.get(&t).copied().unwrap_or_else(|| self.facts.cx.dtype(t).into());
        Some(Member { elem, dims: self.facts.shape_of(t) })
    }

    /// The form that a value has.
    pub(super) fn form(&self, id: ValueId) -> Option<Form> {
        Some(match self.containers.get(&id) {
            None => Form::Tensor(self.member(id)?),
            Some(Container::Sequence(members)) => {
                Form::List(members.iter().map(|m| self.member(*m)).collect::<Option<_>>()?)
            }
            Some(Container::Stack(whole)) => {
                let mut member = self.member(*whole)?;
                member.dims.remove(0);
                Form::Stack(member)
            }
            Some(Container::Ragged(r)) => Form::Ragged(self.member(r.data)?.elem, r.rank),
            Some(Container::Optional(None)) => Form::Absent,
            Some(Container::Optional(Some(of))) => Form::Present(Box::new(self.form(*of)?)),
            Some(Container::Maybe { content, .. }) => Form::Maybe(content.and_then(|c| self.form(c)).map(Box::new)),
        })
    }

    /// The tensors that hold a value in a form. Nothing if it does not fit.
    pub(super) fn parts(
        &mut self,
        module: &mut Module,
        node: &Node,
        id: ValueId,
        form: &Form,
        out: &mut Region,
    ) -> Option<Vec<ValueId>> {
        let container = self.containers.get(&id).cloned();
        Some(match (form, container) {
            (Form::Tensor(_), None) => vec![id],
            (Form::List(wanted), Some(Container::Sequence(members))) if wanted.len() == members.len() => members,
            (Form::Stack(member), Some(Container::Sequence(members))) if members.is_empty() => {
                let none = no_members(member)?;
                vec![self.constant(module, none, out)]
            }
            (Form::Stack(_), Some(Container::Sequence(_) | Container::Stack(_))) => {
                vec![self.stack_of(module, node, id, out)?]
            }
            (Form::Ragged(elem, _), Some(_)) => {
                let r = self.ragged_of(module, node, id, *elem, out)?;
                vec![r.data, r.rows]
            }
            (Form::Absent, Some(Container::Optional(None))) => vec![],
            (Form::Present(form), Some(Container::Optional(Some(of)))) => self.parts(module, node, of, form, out)?,
            (Form::Maybe(form), Some(Container::Optional(content))) => {
                let there = self.constant(module, TensorData::scalar_bool(content.is_some()), out);
                let mut parts = vec![there];
                match (form, content) {
                    (None, _) => {}
                    (Some(form), Some(of)) => parts.extend(self.parts(module, node, of, form, out)?),
                    (Some(form), None) => parts.extend(self.nothing(module, form, out)?),
                }
                parts
            }
            (Form::Maybe(form), Some(Container::Maybe { present, content })) => {
                let mut parts = vec![present];
                if let Some(form) = form {
                    parts.extend(self.parts(module, node, content?, form, out)?);
                }
                parts
            }
            // A plain value where an optional may stand.
            (Form::Maybe(form), _) => {
                let mut parts = vec![self.constant(module, TensorData::scalar_bool(true), out)];
                if let Some(form) = form {
                    parts.extend(self.parts(module, node, id, form, out)?);
                }
                parts
            }
            _ => return None,
        })
    }

    /// Tensors in the place of a value that is not there.
    fn nothing(&mut self, module: &mut Module, form: &Form, out: &mut Region) -> Option<Vec<ValueId>> {
        let mut zeros = |m: &Member, lead: Option<usize>| {
            let dims = m.dims.iter().map(|d| d.as_const().and_then(|n| usize::try_from(n).ok()).unwrap_or(0));
            let dims: Vec<usize> = lead.into_iter().chain(dims).collect();
            Some(self.constant(module, TensorData::blank(m.elem, dims)?, out))
        };
        Some(match form {
            Form::Tensor(member) => vec![zeros(member, None)?],
            Form::List(members) => members.iter().map(|m| zeros(m, None)).collect::<Option<_>>()?,
            Form::Stack(member) => vec![zeros(member, Some(0))?],
            Form::Ragged(elem, _) => {
                let r = self.empty_ragged(module, *elem, out)?;
                vec![r.data, r.rows]
            }
            Form::Absent => vec![],
            Form::Present(of) => self.nothing(module, of, out)?,
            Form::Maybe(of) => {
                let mut parts = vec![self.constant(module, TensorData::scalar_bool(false), out)];
                if let Some(of) = of {
                    parts.extend(self.nothing(module, of, out)?);
                }
                parts
            }
        })
    }

    /// The value that tensors hold.
    pub(super) fn whole(&mut self, module: &mut Module, form: &Form, parts: &[ValueId]) -> ValueId {
        let container = match form {
            Form::Tensor(_) => return parts[0],
            Form::List(_) => Container::Sequence(parts.to_vec()),
            Form::Stack(_) => Container::Stack(parts[0]),
            Form::Ragged(_, rank) => Container::Ragged(super::Ragged { data: parts[0], rows: parts[1], rank: *rank }),
            Form::Absent => Container::Optional(None),
            Form::Present(of) => Container::Optional(Some(self.whole(module, of, parts))),
            Form::Maybe(of) => {
                let content = of.as_ref().map(|of| self.whole(module, of, &parts[1..]));
                Container::Maybe { present: parts[0], content }
            }
        };
        let id = module.add_value("", ValueType::Unknown);
        self.containers.insert(id, container);
        id
    }

    /// A fresh value for each tensor of a form.
    pub(super) fn fresh(&self, module: &mut Module, form: &Form) -> Vec<ValueId> {
        (0..form.len()).map(|_| module.add_value("", ValueType::Unknown)).collect()
    }
}

/// A tensor without members, each of this type and shape. Nothing if a dimension is open.
fn no_members(member: &Member) -> Option<TensorData> {
    let mut dims = vec![0];
    for d in &member.dims {
        dims.push(usize::try_from(d.as_const()?).ok()?);
    }
    TensorData::blank(member.elem, dims)
}

/// The number type of sizes.
pub(super) const SIZES: DType = DType::I64;
