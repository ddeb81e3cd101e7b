//! Sequences, optionals and strings that a model takes or gives: tensors at the packed file's border, and a note of what they stand for.

use super::forms::Form;
use super::ragged::ROW;
use super::{Container, Mender, Ragged};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{DimDecl, ElemType, Module, Node, OutputDecl, Region, ValueId, ValueType};
use graphmend_cache_format::meta::Border;

impl Mender<'_> {
    /// Puts tensors in the place of inputs that are none.
    pub(super) fn take_in(&mut self, module: &mut Module) {
        let mut inputs = vec![];
        for id in std::mem::take(&mut module.main.inputs) {
            let value = module.value(id).clone();
            let mut made = vec![];
            let border = self.declared(module, &value.name, &value.ty, Some(id), &mut made);
            match border {
                Some((border, whole)) if border != Border::Tensor => {
                    self.replace.replace(id, whole);
                    module.borders.inputs.push((value.name, border));
                    inputs.extend(made);
                }
                // A type that is not supported is named by the expansion.
                _ => {
                    let text = value.ty.elem() == Some(ElemType::String);
                    let border = if text { Border::Text } else { Border::Tensor };
                    module.borders.inputs.push((value.name, border));
                    inputs.push(id);
                }
            }
        }
        module.main.inputs = inputs;
    }

    /// Tensors for a value of a declared type, added to `made`; `own` stands for a tensor itself. Nothing for a type that
    /// tensors cannot hold.
    fn declared(
        &mut self,
        module: &mut Module,
        name: &str,
        ty: &ValueType,
        own: Option<ValueId>,
        made: &mut Vec<ValueId>,
    ) -> Option<(Border, ValueId)> {
        let tensor = |module: &mut Module, name: String, elem: ElemType, dims: Vec<DimDecl>| {
            module.add_value(name, ValueType::Tensor { elem, shape: Some(dims) })
        };
        Some(match ty {
            ValueType::Tensor { elem, shape } => {
                crate::ops::stored(*elem)?;
                let id = match own {
                    Some(id) => id,
                    None => tensor(module, name.into(), *elem, shape.clone()?),
                };
                made.push(id);
                (Border::Tensor, id)
            }
            ValueType::Sequence(of) => {
                let ValueType::Tensor { elem, shape } = &**of else { return None };
                crate::ops::stored(*elem)?;
                let fixed = |d: &DimDecl| matches!(d, DimDecl::Fixed(_));
                let (border, container) = match shape {
                    Some(dims) if dims.iter().all(fixed) && !dims.is_empty() => {
                        let dims = [&[DimDecl::Unknown][..], dims].concat();
                        let whole = tensor(module, name.into(), *elem, dims);
                        made.push(whole);
                        (Border::Stack, Container::Stack(whole))
                    }
                    _ => {
                        let data = tensor(module, format!("{name}.data"), *elem, vec![DimDecl::Unknown]);
                        let row = DimDecl::Fixed(ROW as u64);
                        let rows =
                            tensor(module, format!("{name}.rows"), DType::I64.into(), vec![DimDecl::Unknown, row]);
                        made.extend([data, rows]);
                        // An empty shape is what writers without shapes write.
                        let rank = shape.as_ref().map(Vec::len).filter(|rank| *rank > 0);
                        (Border::Ragged, Container::Ragged(Ragged { data, rows, rank }))
                    }
                };
                let id = module.add_value("", ValueType::Unknown);
                self.containers.insert(id, container);
                (border, id)
            }
            ValueType::Optional(of) => {
                let present = tensor(module, format!("{name}.present"), DType::Bool.into(), vec![]);
                made.push(present);
                let content = self.declared(module, name, of, None, made);
                let id = module.add_value("", ValueType::Unknown);
                let (border, content) = content.unzip();
                self.containers.insert(id, Container::Maybe { present, content });
                (Border::Maybe(border.map(Box::new)), id)
            }
            _ => return None,
        })
    }

    /// Puts tensors in the place of results that are none.
    ///
    /// # Errors
    /// A sequence or optional whose length or content is not known.
    pub(super) fn give_out(&mut self, module: &mut Module, region: &mut Region) -> Result<()> {
        let (mut outputs, mut decls) = (vec![], vec![]);
        let given = std::mem::take(&mut region.outputs);
        for (id, decl) in given.into_iter().zip(std::mem::take(&mut module.outputs)) {
            let is_tensor = matches!(decl.ty, ValueType::Tensor { .. } | ValueType::Unknown);
            if !self.containers.contains_key(&id) && (is_tensor || !self.facts.values.contains_key(&id)) {
                let tensor = self.facts.values.get(&id);
                let text = tensor.is_some_and(|t| self.facts.cx.narrow.get(t) == Some(&ElemType::String));
                let border = if text { Border::Text } else { Border::Tensor };
                module.borders.outputs.push((decl.name.clone(), border));
                outputs.push(id);
                decls.push(decl);
                continue;
            }
            let form = match (self.form(id), &decl.ty) {
                // A plain value where the model declares an optional.
                (
                    Some(form @ (Form::Tensor(_) | Form::List(_) | Form::Stack(_) | Form::Ragged(..))),
                    ValueType::Optional(_),
                ) => Some(Form::Present(Box::new(form))),
                (form, _) => form,
            };
            let node = Node { name: decl.name.clone(), version: self.newest(module), ..Node::default() };
            let inner = match &form {
                Some(Form::Present(_)) if !matches!(self.containers.get(&id), Some(Container::Optional(_))) => {
                    let whole = module.add_value("", ValueType::Unknown);
                    self.containers.insert(whole, Container::Optional(Some(id)));
                    whole
                }
                _ => id,
            };
            if form.as_ref().is_some_and(Form::has_strings) {
                let (name, ty) = (&decl.name, &decl.ty);
                return Err(Error::unsupported(
                    "",
                    "",
                    format!("output '{name}' of type {ty}: strings in sequences and optionals are not given out"),
                ));
            }
            let parts = match &form {
                Some(form) => self.parts(module, &node, inner, form, region),
                None => None,
            };
            let (Some(form), Some(parts)) = (form, parts) else {
                let (name, ty) = (&decl.name, &decl.ty);
                return Err(Error::unsupported(
                    "",
                    "",
                    format!("output '{name}' of type {ty}, whose content is not known, is not supported"),
                ));
            };
            let mut names = vec![];
            let border = border_of(&decl.name, &form, &mut names);
            for (name, part) in names.into_iter().zip(parts) {
                decls.push(OutputDecl { name, ty: ValueType::Unknown });
                outputs.push(part);
            }
            module.borders.outputs.push((decl.name, border));
        }
        region.outputs = outputs;
        module.outputs = decls;
        Ok(())
    }

    fn newest(&self, module: &Module) -> i64 {
        module.opsets.get(crate::graph::ONNX_DOMAIN).copied().unwrap_or(1)
    }
}

/// What the border notes of a form, and the names of its tensors.
fn border_of(name: &str, form: &Form, names: &mut Vec<String>) -> Border {
    match form {
        Form::Tensor(_) => {
            names.push(name.into());
            Border::Tensor
        }
        Form::List(members) => {
            names.extend((0..members.len()).map(|k| format!("{name}.{k}")));
            Border::List(members.len() as u32)
        }
        Form::Stack(_) => {
            names.push(name.into());
            Border::Stack
        }
        Form::Ragged(..) => {
            names.extend([format!("{name}.data"), format!("{name}.rows")]);
            Border::Ragged
        }
        Form::Absent => Border::Absent,
        Form::Present(of) => border_of(name, of, names),
        Form::Maybe(of) => {
            names.push(format!("{name}.present"));
            Border::Maybe(of.as_ref().map(|of| Box::new(border_of(name, of, names))))
        }
    }
}
