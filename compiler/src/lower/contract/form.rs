//! The normal form of a contraction: flat affine positions over as few index variables as possible.

use super::Contraction;
use super::few_bits::FewBits;
use super::source::{self, Source};
use crate::dtype::DType;
use crate::fuse::Contract;
use crate::lower::emit;
use crate::sym::{Int, VarId, free_vars, linear_in, reads_data, subst};
use crate::te::cx::flatten;
use crate::te::{Expr, Node, Program, TensorId, expr};
use std::sync::Arc;

/// One factor of the product.
#[derive(Clone)]
pub(super) struct Operand {
    /// The tensor that holds it.
    pub tensor: TensorId,
    /// Row-major position of the element: affine in the variables.
    pub flat: Int,
    /// Its elements, where they are constant.
    pub data: Option<Source>,
    /// Type of an element in memory.
    pub dtype: DType,
}

/// `out[flat] = epilogue(Σ ops[0] * ops[1])`.
#[derive(Clone)]
pub(super) struct Form {
    /// Output indices, outermost first; none has extent 1.
    pub vars: Vec<VarId>,
    /// Reduced indices, outermost first; none has extent 1.
    pub ks: Vec<VarId>,
    /// The factors.
    pub ops: [Operand; 2],
    /// Row-major position of the output element in the memory that holds it.
    pub out: Int,
    /// The element stored, with loads at row-major positions; a load of the sum stands for the sum.
    pub epilogue: Expr,
    /// For products of bytes summed in 32-bit integers: how many of them a sum in `F32` holds exactly.
    pub exact: Option<i64>,
    /// For products of bytes that are summed four at a time.
    pub fours: Option<Fours>,
    /// The number of the constant operand whose terms lie together, those of each output element apart from the others'.
    pub laid: Option<usize>,
    /// Weights of few bits.
    pub few: Option<FewBits>,
    /// An index that is joined to no other.
    apart: Option<VarId>,
}

/// The innermost reduced index counts groups of four terms, the last of which may have fewer; see [`Form::by_fours`].
#[derive(Clone, Debug)]
pub(super) struct Fours {
    /// That index.
    pub k: VarId,
    /// The operand of which groups lie together in memory: the broadcast operand.
    pub b: usize,
    /// How far apart the terms of a group lie in each operand.
    pub steps: [Int; 2],
    /// Terms of the last group.
    pub last: i64,
    /// Products are of words: each group of the vector operand is a word of its even and one of its odd terms, in 16 bits
    /// each, and the unsigned bytes of the other one are taken apart likewise.
    pub pairs: bool,
}

/// The coefficient of `v` in an affine position; `None` if it is not affine in `v`.
pub(super) fn coef(flat: Int, v: VarId) -> Option<Int> {
    linear_in(flat, v).map(|(c, _)| c)
}

/// Whether `flat` changes with `v`.
pub(super) fn varies(flat: Int, v: VarId) -> bool {
    free_vars(flat).contains(&v)
}

/// Number of iterations.
pub(super) fn extent(v: VarId) -> Int {
    v.extent().unwrap_or(Int::new(1))
}

/// Is it an index that is always 0? Symbols that are not indices have no extent.
fn is_unit(v: VarId) -> bool {
    v.extent() == Some(Int::new(1))
}

/// Affine in all of `vars` with coefficients that no index variable changes, and free of data.
fn affine(flat: Int, vars: &[VarId]) -> bool {
    let steady = |i: Int| vars.iter().all(|v| !varies(i, *v));
    !reads_data(flat) && vars.iter().all(|v| coef(flat, *v).is_some_and(steady))
}

impl Form {
    /// The form of `c`, which is the sum of `of`, with index `apart` joined to no other; `None` if an index is not affine or not
    /// proved to be in range.
    pub(super) fn of(program: &Program, c: &Contraction, of: &Contract, apart: Option<VarId>) -> Option<Form> {
        let Contract { sum, position: out, epilogue, .. } = *of;
        let index: Vec<Int> = c.vars.iter().map(|v| Int::var(*v)).collect();
        let space: Vec<Int> = c.vars.iter().map(|v| extent(*v)).collect();
        let flat = flatten(&space, &index);
        // An index along an axis of size 1 may be written as 0.
        let plain = |i: Int| subst(i, &|v| is_unit(v).then(|| Int::new(0)));
        let same = |a: &[Int], b: &[Int]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| plain(*a) == plain(*b));
        let at_sum = |t: TensorId, i: &[Int]| t != sum || same(i, &index) || same(i, &[flat]);
        if !affine(out, &c.vars) || !expr::loads(epilogue).iter().all(|(t, i)| at_sum(*t, i)) {
            return None;
        }
        let mut form = Form {
            vars: c.vars.clone(),
            ks: c.rvars.clone(),
            ops: operands(program, c)?,
            out,
            epilogue: emit::linearize(program, epilogue, &|t| t == sum),
            exact: None,
            fours: None,
            laid: None,
            few: None,
            apart,
        };
        if c.dtype == DType::I32 {
            let most = |t: TensorId| if program.tensor(t).dtype == DType::U8 { 255 } else { 128 };
            form.exact = Some((1 << 24) / (most(c.lhs.0) * most(c.rhs.0)));
        }
        form.drop_units();
        form.order_terms();
        while form.join_some(sum) {}
        form.few = FewBits::of(&form, program);
        Some(form)
    }

    fn replace(&mut self, f: &dyn Fn(VarId) -> Option<Int>) {
        for op in &mut self.ops {
            op.flat = subst(op.flat, f);
            if let Some(data) = &mut op.data {
                data.flat = subst(data.flat, f);
            }
        }
        self.out = subst(self.out, f);
        self.epilogue = expr::subst_vars(self.epilogue, f);
    }

    fn drop_units(&mut self) {
        self.replace(&|v| is_unit(v).then(|| Int::new(0)));
        self.vars.retain(|v| !is_unit(*v));
        self.ks.retain(|v| !is_unit(*v));
    }

    /// Orders the reduced indices as the elements of an operand that is read as it lies: the sum is the same in any order.
    fn order_terms(&mut self) {
        let Some(op) = self.ops.iter().find(|op| op.data.is_none()) else { return };
        // A step that is not known is that of an axis outside of others.
        let step = |k: VarId| coef(op.flat, k).and_then(|c| c.as_const()).map_or(i64::MAX, i64::abs);
        let mut steps: Vec<(i64, VarId)> = self.ks.iter().map(|k| (step(*k), *k)).collect();
        steps.sort_by_key(|(step, _)| core::cmp::Reverse(*step));
        self.ks = steps.into_iter().map(|(_, k)| k).collect();
    }

    /// Words of each column that a term of the vector operand takes.
    pub(super) fn words(&self) -> i64 {
        1 + i64::from(self.fours.as_ref().is_some_and(|f| f.pairs))
    }

    /// Number of terms, where it is known.
    pub(super) fn terms(&self) -> Option<i64> {
        Int::product(&self.ks.iter().map(|k| extent(*k)).collect::<Vec<_>>()).as_const()
    }

    /// How many steps of the outermost reduced index may be summed before the sum is put away as an integer; nothing if
    /// all. `Err` if not even one may.
    pub(super) fn block(&self) -> Result<Option<i64>, ()> {
        let Some(exact) = self.exact else { return Ok(None) };
        if self.terms().is_some_and(|n| n <= exact) {
            return Ok(None);
        }
        let inner = Int::product(&self.ks.iter().skip(1).map(|k| extent(*k)).collect::<Vec<_>>());
        match inner.as_const() {
            Some(n) if n <= exact => Ok(Some(exact / n.max(1))),
            _ => Err(()),
        }
    }

    /// The same sum with four products of bytes at a time, of an unsigned and a signed operand. Groups of four terms of
    /// operand `b` lie together in memory; those of the other are constant or are laid out so first. `None` if there are no
    /// such groups.
    pub(super) fn by_fours(&self, b: usize, pairs: bool, sum: TensorId) -> Option<Form> {
        let signs = [self.ops[0].dtype, self.ops[1].dtype];
        if pairs && self.ops[b].dtype != DType::U8 {
            return None;
        }
        if self.exact.is_none()
            || self.ops[b].data.is_some()
            || !signs.contains(&DType::U8)
            || !signs.contains(&DType::I8)
        {
            return None;
        }
        let mut form = self.clone();
        form.ops[1 - b] = self.in_order(1 - b)?;
        while form.join_some(sum) {}
        let together = |k: &&VarId| coef(form.ops[b].flat, **k) == Some(Int::new(1));
        let k = *form.ks.iter().rev().find(together)?;
        let n = extent(k);
        let last = match n.as_const() {
            Some(n) if n >= 4 => n - (n - 1) / 4 * 4,
            _ if n.rem(4) == Int::new(0) => 4,
            _ => return None,
        };
        let four = VarId::index("four", n.ceil_div(4));
        form.ks.retain(|x| *x != k);
        form.ks.push(four);
        let steps = [coef(form.ops[0].flat, k)?, coef(form.ops[1].flat, k)?];
        form.fours = Some(Fours { k: four, b, steps, last, pairs });
        form.exact = None;
        form.replace(&|x| (x == k).then(|| Int::var(four) * 4));
        Some(form)
    }

    /// The same sum with the constant operand's terms together in memory, as those of the other one are, so that vectors can run
    /// along them. `None` if neither is constant, or the other one's terms are apart.
    pub(super) fn along_terms(&self, sum: TensorId) -> Option<Form> {
        let constant = self.ops.iter().position(|op| op.data.is_some())?;
        let other = &self.ops[1 - constant];
        let together = self.ks.last().is_some_and(|k| coef(other.flat, *k) == Some(Int::new(1)));
        if other.data.is_some() || !together || self.exact.is_some() || self.fours.is_some() || self.few.is_some() {
            return None;
        }
        let mut form = self.clone();
        form.ops[constant] = self.in_order(constant)?;
        form.laid = Some(constant);
        while form.join_some(sum) {}
        Some(form)
    }

    /// An operand whose elements, if they are constant, lie in the order of the indices: those of the terms innermost.
    fn in_order(&self, op: usize) -> Option<Operand> {
        let op = &self.ops[op];
        let Some(data) = &op.data else { return Some(op.clone()) };
        let reader = data.reader()?;
        let own = |x: &&VarId| varies(data.flat, **x);
        let outer: Vec<VarId> = self.vars.iter().filter(own).copied().collect();
        let offsets = |axes: &[VarId]| super::pack::offsets(axes, &|v| reader.step(v));
        let (firsts, terms) = (offsets(&outer)?, offsets(&self.ks)?);
        let mut bytes = vec![];
        for at in firsts {
            terms.iter().for_each(|term| reader.append(reader.base() + at + term, &mut bytes));
        }
        let axes = [outer, self.ks.clone()].concat();
        let sizes: Vec<Int> = axes.iter().map(|v| extent(*v)).collect();
        let flat = flatten(&sizes, &axes.iter().map(|v| Int::var(*v)).collect::<Vec<_>>());
        let data = Source { bytes: Arc::new(bytes), flat, ..data.clone() };
        Some(Operand { flat, data: Some(data), ..op.clone() })
    }

    /// Joins two adjacent indices that every position goes through as through one; false when there are none.
    fn join_some(&mut self, sum: TensorId) -> bool {
        let mut others = vec![self.ops[0].flat, self.ops[1].flat, self.out];
        others.extend(self.apart.map(Int::var));
        for e in expr::nodes(self.epilogue) {
            match e.node() {
                Node::Int(i) => others.push(i),
                Node::Load(t, index) if t != sum => others.extend(index),
                _ => {}
            }
        }
        let find = |list: &[VarId]| {
            (1..list.len()).find(|k| {
                let (outer, inner) = (list[k - 1], list[*k]);
                others.iter().all(|i| joins(*i, outer, inner))
            })
        };
        let (in_vars, at) = match (find(&self.vars), find(&self.ks)) {
            (Some(k), _) => (true, k),
            (None, Some(k)) => (false, k),
            (None, None) => return false,
        };
        let list = if in_vars { &mut self.vars } else { &mut self.ks };
        let (outer, inner) = (list[at - 1], list[at]);
        let joined = VarId::index("j", extent(outer) * extent(inner));
        list.splice(at - 1..=at, [joined]);
        self.replace(&|v| match v {
            v if v == outer => Some(Int::new(0)),
            v if v == inner => Some(Int::var(joined)),
            _ => None,
        });
        true
    }
}

/// The factors of `c`; `None` if an index is not affine or not proved to be in range.
pub(super) fn operands(program: &Program, c: &Contraction) -> Option<[Operand; 2]> {
    let all: Vec<VarId> = c.vars.iter().chain(&c.rvars).copied().collect();
    let operand = |(t, index): &(TensorId, Vec<Int>)| {
        let shape = &program.tensor(*t).shape;
        let inside = |(i, d): (&Int, &Int)| super::range::within(*i, *d);
        if index.len() != shape.len() || !index.iter().zip(shape).all(inside) {
            return None;
        }
        // Data may be affine where the tensor that holds it in another order is not.
        if let Some(data) = source::resolve(program, *t, index).filter(|s| affine(s.flat, &all)) {
            return Some(Operand { tensor: data.tensor, flat: data.flat, dtype: data.dtype, data: Some(data) });
        }
        let flat = flatten(shape, index);
        let dtype = program.tensor(*t).dtype;
        affine(flat, &all).then_some(Operand { tensor: *t, flat, data: None, dtype })
    };
    Some([operand(&c.lhs)?, operand(&c.rhs)?])
}

/// Is `i` a function of `outer * extent(inner) + inner`?
fn joins(i: Int, outer: VarId, inner: VarId) -> bool {
    match (linear_in(i, outer), linear_in(i, inner)) {
        (Some((o, _)), Some((n, _))) => o == n * extent(inner) && !varies(n, outer) && !varies(n, inner),
        _ => false,
    }
}

/// Element types that the generated kernels compute in.
pub(super) fn computes(dtype: DType) -> bool {
    matches!(dtype.compute(), DType::F32 | DType::F64)
}

/// The type in which products of elements of `dtype` are summed: bytes in `F32`, exactly.
pub(super) fn inner(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}
