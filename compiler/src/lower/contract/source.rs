//! Constant operands: where their elements come from, and their order in the kernel.

use crate::dtype::DType;
use crate::sym::{Int, VarId, free_vars, linear_in, subst};
use crate::te::cx::{flatten, reindex};
use crate::te::{Def, Node, Program, TensorId};
use half::{bf16, f16};
use std::sync::Arc;

/// Elements of a constant tensor, at affine positions.
#[derive(Clone)]
pub(super) struct Source {
    /// The constant tensor.
    pub tensor: TensorId,
    /// The tensor's bytes, little-endian.
    pub bytes: Arc<Vec<u8>>,
    /// Its element type.
    pub dtype: DType,
    /// Position of an element as a function of the contraction's indices.
    pub flat: Int,
}

/// The constant behind `t[index]`, seen through views and pure movement.
pub(super) fn resolve(program: &Program, t: TensorId, index: &[Int]) -> Option<Source> {
    let (mut t, mut index) = (t, index.to_vec());
    let dtype = program.tensor(t).dtype;
    // Definitions come before their uses, so this ends.
    loop {
        let tensor = program.tensor(t);
        if tensor.dtype != dtype {
            return None;
        }
        match &tensor.def {
            Def::Const(bytes) => {
                return Some(Source { tensor: t, bytes: bytes.clone(), dtype, flat: flatten(&tensor.shape, &index) });
            }
            Def::View(base) => {
                let root = viewed(program, *base);
                let of = program.tensor(root);
                if let Def::Const(bytes) = &of.def {
                    // The same position, which as an index into the constant's shape may be affine no more.
                    let flat = flatten(&tensor.shape, &index);
                    return (of.dtype == dtype).then(|| Source { tensor: root, bytes: bytes.clone(), dtype, flat });
                }
                index = reindex(&tensor.shape, &of.shape, &index);
                t = root;
            }
            Def::Map { vars, body } => {
                let Node::Load(from, at) = body.node() else { return None };
                let put = |v: VarId| vars.iter().position(|x| *x == v).map(|k| index[k]);
                index = at.iter().map(|i| subst(*i, &put)).collect();
                t = from;
            }
            _ => return None,
        }
    }
}

/// What a view shows, through further views.
fn viewed(program: &Program, mut t: TensorId) -> TensorId {
    while let Def::View(base) = program.tensor(t).def {
        t = base;
    }
    t
}

/// A constant read at given values of the indices.
pub(super) struct Reader<'a> {
    source: &'a Source,
    base: i64,
    steps: Vec<(VarId, i64)>,
}

impl Source {
    /// Prepares reading; `None` unless all coefficients are constants and the elements that the extents of the indices
    /// reach exist.
    pub(super) fn reader(&self) -> Option<Reader<'_>> {
        let mut rest = self.flat;
        let mut steps = vec![];
        for v in free_vars(self.flat) {
            let (step, left) = linear_in(rest, v)?;
            steps.push((v, step.as_const()?));
            rest = left;
        }
        let base = rest.as_const()?;
        let (mut least, mut most) = (base, base);
        for (v, step) in &steps {
            let way = v.extent()?.as_const()?.checked_sub(1)?.checked_mul(*step)?;
            least = least.checked_add(way.min(0))?;
            most = most.checked_add(way.max(0))?;
        }
        let count = (self.bytes.len() / self.dtype.size()) as i64;
        (least >= 0 && most < count).then_some(Reader { source: self, base, steps })
    }
}

impl Reader<'_> {
    /// Distance between elements whose `v` differs by one.
    pub(super) fn step(&self, v: VarId) -> i64 {
        self.steps.iter().find(|(x, _)| *x == v).map_or(0, |(_, s)| *s)
    }

    /// Position of the element where all indices are zero.
    pub(super) fn base(&self) -> i64 {
        self.base
    }

    /// Appends the element at a position; half types become `F32`.
    pub(super) fn append(&self, at: i64, out: &mut Vec<u8>) {
        let size = self.source.dtype.size();
        let at = at as usize * size;
        let bytes = &self.source.bytes[at..at + size];
        match self.source.dtype {
            DType::F16 => out.extend(f16::from_le_bytes([bytes[0], bytes[1]]).to_f32().to_le_bytes()),
            DType::BF16 => out.extend(bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32().to_le_bytes()),
            _ => out.extend(bytes),
        }
    }
}
