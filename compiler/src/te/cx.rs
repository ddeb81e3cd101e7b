//! Building a tensor program: what the expansion of an operator works with.

use super::expr::{self, Expr};
use super::known;
use super::program::{Block, Check, Custom, Def, KernelCx, Program, ReduceKind, Step, Tensor, TensorId};
use crate::dtype::DType;
use crate::graph::ElemType;
use crate::sym::{Int, VarId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Why an operator could not be expanded. The caller adds node, operator and domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpError {
    /// Legal ONNX that is not supported: what is missing.
    Unsupported(String),
    /// The model breaks the operator's specification: how.
    Invalid(String),
}

/// Result of an expansion.
pub type OpResult<T = Vec<TensorId>> = Result<T, OpError>;

/// A program under construction.
#[derive(Clone, Default)]
pub struct Cx {
    /// What has been built.
    pub program: Program,
    /// Name of the ONNX node being expanded.
    pub node: String,
    /// Tensors of bytes that stand for elements of a narrower type.
    pub narrow: BTreeMap<TensorId, ElemType>,
    blocks: Vec<Block>,
    pub(super) elements: HashMap<(TensorId, Vec<i64>), Expr>,
    reads: BTreeMap<(TensorId, i64), Int>,
    /// Tensors of indices that have been checked against axes of these sizes.
    checked: Vec<(TensorId, Vec<Int>)>,
}

impl Cx {
    /// An empty program.
    pub fn new() -> Cx {
        Cx::default()
    }

    fn push(&mut self, step: Step) {
        match self.blocks.last_mut() {
            Some(b) => b.steps.push(step),
            None => self.program.main.steps.push(step),
        }
    }

    /// Opens a nested block (a branch); what is built goes there until [`Cx::end_block`].
    pub fn begin_block(&mut self) {
        self.blocks.push(Block::default());
    }

    /// Closes the innermost nested block.
    pub fn end_block(&mut self) -> Block {
        // Data read inside may not be used outside, where the block may not have run.
        self.reads.clear();
        self.checked.clear();
        self.blocks.pop().unwrap_or_default()
    }

    /// Appends a finished `If` or loop.
    pub fn push_control(&mut self, step: Step) {
        self.push(step);
    }

    /// Defines a tensor.
    pub fn define(&mut self, dtype: DType, shape: Vec<Int>, def: Def) -> TensorId {
        let id = TensorId(self.program.tensors.len() as u32);
        let node = self.node.clone();
        self.program.tensors.push(Tensor { name: node.clone(), node, dtype, shape, def });
        self.push(Step::Define(id));
        id
    }

    /// Element type of `t`.
    pub fn dtype(&self, t: TensorId) -> DType {
        self.program.tensor(t).dtype
    }

    /// Dimensions of `t`.
    pub fn shape(&self, t: TensorId) -> Vec<Int> {
        self.program.tensor(t).shape.clone()
    }

    /// Number of axes of `t`.
    pub fn rank(&self, t: TensorId) -> usize {
        self.program.tensor(t).shape.len()
    }

    /// Number of elements of `t`.
    pub fn numel(&self, t: TensorId) -> Int {
        Int::product(&self.program.tensor(t).shape)
    }

    /// A model input. `shape` holds symbols made by the caller, who also registers them in `program.dim_vars`.
    pub fn input(&mut self, name: &str, dtype: DType, shape: Vec<Int>) -> TensorId {
        let k = self.program.inputs.len();
        let id = self.define(dtype, shape, Def::Input(k));
        self.program.tensors[id.0 as usize].name = name.into();
        self.program.inputs.push(id);
        self.program.input_names.push(name.into());
        id
    }

    /// A constant from row-major little-endian bytes.
    pub fn constant(&mut self, dtype: DType, shape: &[usize], bytes: Vec<u8>) -> TensorId {
        self.constant_shared(dtype, shape.iter().map(|d| Int::from(*d)).collect(), Arc::new(bytes))
    }

    /// A constant whose bytes are shared.
    pub fn constant_shared(&mut self, dtype: DType, shape: Vec<Int>, bytes: Arc<Vec<u8>>) -> TensorId {
        self.define(dtype, shape, Def::Const(bytes))
    }

    /// An `f32` constant.
    pub fn constant_f32(&mut self, shape: &[usize], values: &[f32]) -> TensorId {
        self.constant(DType::F32, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// An `i64` constant.
    pub fn constant_i64(&mut self, shape: &[usize], values: &[i64]) -> TensorId {
        self.constant(DType::I64, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A tensor of index expressions (a shape, a size).
    pub fn from_ints(&mut self, dtype: DType, shape: &[usize], values: &[Int]) -> TensorId {
        let shape: Vec<Int> = shape.iter().map(|d| Int::from(*d)).collect();
        let values = values.to_vec();
        self.map(dtype, shape.clone(), |i| {
            let flat = flatten(&shape, i);
            let mut e = expr::constant_i64(dtype, 0);
            for (k, v) in values.iter().enumerate().rev() {
                let hit = expr::cmp(crate::kernel::ir::Cmp::Eq, expr::int(flat), expr::int(Int::from(k)));
                let v = expr::cast(dtype, expr::int(*v));
                e = if k + 1 == values.len() { v } else { expr::select(hit, v, e) };
            }
            e
        })
    }

    /// A load of `t` at `index`.
    pub fn load(&self, t: TensorId, index: &[Int]) -> Expr {
        let tensor = self.program.tensor(t);
        debug_assert_eq!(tensor.shape.len(), index.len(), "rank of load");
        expr::load(t, tensor.dtype, index.to_vec())
    }

    /// A load of `t` broadcast (numpy rules) to an output of which `index` is the index.
    pub fn load_broadcast(&self, t: TensorId, index: &[Int]) -> Expr {
        let tensor = self.program.tensor(t);
        let skip = index.len() - tensor.shape.len();
        let index = tensor.shape.iter().zip(&index[skip..]).map(|(d, i)| broadcast_index(*d, *i)).collect();
        expr::load(t, tensor.dtype, index)
    }

    /// The tensor whose element at each index is `f(index)`; half types round when stored.
    pub fn map(&mut self, dtype: DType, shape: Vec<Int>, f: impl FnOnce(&[Int]) -> Expr) -> TensorId {
        let vars = index_vars("i", &shape);
        let body = f(&index_of(&vars));
        debug_assert_eq!(body.dtype(), dtype.compute(), "map body of {}: {body}", self.node);
        self.define(dtype, shape, Def::Map { vars, body })
    }

    /// Reduction over an index space of shape `over`: `f(index, reduced index)`.
    pub fn reduce(
        &mut self,
        kind: ReduceKind,
        dtype: DType,
        shape: Vec<Int>,
        over: &[Int],
        f: impl FnOnce(&[Int], &[Int]) -> Expr,
    ) -> TensorId {
        let (vars, rvars) = (index_vars("i", &shape), index_vars("r", over));
        let body = f(&index_of(&vars), &index_of(&rvars));
        debug_assert_eq!(body.dtype(), dtype.compute(), "reduction body of {}: {body}", self.node);
        self.define(dtype, shape, Def::Reduce { vars, rvars, kind, body })
    }

    /// Sequential fold; see [`Def::Fold`]. `f(index, reduced index)` gives `(init, step, result)`.
    pub fn fold(
        &mut self,
        dtype: DType,
        shape: Vec<Int>,
        over: &[Int],
        f: impl FnOnce(&[Int], &[Int]) -> (Vec<Expr>, Vec<Expr>, Expr),
    ) -> TensorId {
        let (vars, rvars) = (index_vars("i", &shape), index_vars("r", over));
        let (init, step, result) = f(&index_of(&vars), &index_of(&rvars));
        debug_assert_eq!(result.dtype(), dtype.compute(), "fold of {}", self.node);
        self.define(dtype, shape, Def::Fold { vars, rvars, init, step, result })
    }

    /// The same elements in row-major order under another shape; the caller has checked that the counts agree.
    pub fn view(&mut self, t: TensorId, shape: Vec<Int>) -> TensorId {
        if self.program.tensor(t).shape == shape {
            return t;
        }
        // A view of a view is a view of the base.
        let base = match self.program.tensor(t).def {
            Def::View(base) => base,
            _ => t,
        };
        self.define(self.dtype(t), shape, Def::View(base))
    }

    /// A hand-written kernel; gives one tensor for each of `outputs`.
    pub fn custom(
        &mut self,
        name: &str,
        inputs: &[TensorId],
        outputs: Vec<(DType, Vec<Int>)>,
        scratch: Vec<(DType, Int)>,
        generate: impl Fn(&mut KernelCx<'_>) + Send + Sync + 'static,
    ) -> Vec<TensorId> {
        let custom = Arc::new(Custom {
            name: name.into(),
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            scratch,
            generate: Arc::new(generate),
        });
        let each = outputs.into_iter().enumerate();
        let made: Vec<TensorId> =
            each.map(|(k, (dtype, shape))| self.define(dtype, shape, Def::Custom(custom.clone(), k))).collect();
        super::constant::fold(self, &custom, &made);
        made
    }

    /// A symbol whose value at run time is element `at` (row-major) of the integer or bool tensor `t`, promised by the
    /// caller to lie within `lo..=hi` where given.
    pub fn read(&mut self, t: TensorId, at: i64, name: &str, lo: Option<i64>, hi: Option<i64>) -> Int {
        if let Some(known) = self.reads.get(&(t, at)) {
            return *known;
        }
        let symbol = Int::symbol(name, lo, hi);
        if let Some(var) = symbol.as_var() {
            self.program.data_vars.insert(var, (t, at));
        }
        self.reads.insert((t, at), symbol);
        symbol
    }

    /// Is this the first time that `t` is to be checked as indices into axes of these sizes?
    pub fn is_first_check(&mut self, t: TensorId, dims: &[Int]) -> bool {
        let known = self.checked.iter().any(|(of, sizes)| *of == t && sizes == dims);
        if !known {
            self.checked.push((t, dims.to_vec()));
        }
        !known
    }

    /// The elements of a small integer tensor as index expressions, if all are known without running the model.
    pub fn ints(&mut self, t: TensorId) -> Option<Vec<Int>> {
        known::ints(self, t)
    }

    /// The elements of a small integer tensor: known ones as they are, others as symbols read at run time.
    pub fn ints_or_read(&mut self, t: TensorId) -> OpResult<Vec<Int>> {
        known::ints_or_read(self, t)
    }

    /// The elements of an integer tensor, if all are constants.
    pub fn const_ints(&mut self, t: TensorId) -> Option<Vec<i64>> {
        self.ints(t)?.iter().map(|i| i.as_const()).collect()
    }

    /// The elements of a number tensor (any type), if all are constants and there are at most 2^16.
    pub fn const_floats(&mut self, t: TensorId) -> Option<Vec<f64>> {
        known::floats(self, t)
    }

    /// Requires `a == b`: an error now if it can't be, nothing if it is proved, else a check at run time.
    pub fn require_equal(&mut self, a: Int, b: Int, what: &str) -> OpResult<()> {
        match a.eq_proof(b) {
            Some(true) => {}
            Some(false) => return Err(OpError::Invalid(format!("{what}: {a} is not equal to {b}"))),
            None => self.push(Step::Check(Check::Equal(a, b, format!("{}: {what}", self.node)))),
        }
        Ok(())
    }

    /// Requires `a <= b`; see [`Cx::require_equal`].
    pub fn require_at_most(&mut self, a: Int, b: Int, what: &str) -> OpResult<()> {
        match a.le(b) {
            Some(true) => {}
            Some(false) => return Err(OpError::Invalid(format!("{what}: {a} is greater than {b}"))),
            None => self.push(Step::Check(Check::AtMost(a, b, format!("{}: {what}", self.node)))),
        }
        Ok(())
    }

    /// The shape that `shapes` broadcast to by numpy's rules; dimensions that may or may not be 1 are checked at run time.
    pub fn broadcast(&mut self, shapes: &[Vec<Int>]) -> OpResult<Vec<Int>> {
        let rank = shapes.iter().map(Vec::len).max().unwrap_or(0);
        let mut out = vec![];
        for axis in 0..rank {
            let mut dim = Int::new(1);
            for s in shapes {
                let Some(d) = (axis + s.len()).checked_sub(rank).map(|k| s[k]) else { continue };
                dim = self.broadcast_dim(dim, d)?;
            }
            out.push(dim);
        }
        Ok(out)
    }

    fn broadcast_dim(&mut self, a: Int, b: Int) -> OpResult<Int> {
        let one = Int::new(1);
        let not_one = |d: Int| d.eq_proof(one) == Some(false);
        if a == b || b == one {
            return Ok(a);
        }
        if a == one {
            return Ok(b);
        }
        match (not_one(a), not_one(b)) {
            (true, true) => {
                self.require_equal(a, b, "dimensions do not broadcast")?;
                Ok(if a.as_const().is_some() { a } else { b })
            }
            (true, false) => {
                self.require_equal(b.if_eq(1, a, b), a, "dimensions do not broadcast")?;
                Ok(a)
            }
            (false, true) => {
                self.require_equal(a.if_eq(1, b, a), b, "dimensions do not broadcast")?;
                Ok(b)
            }
            (false, false) => {
                let out = a.if_eq(1, b, a);
                self.require_equal(b.if_eq(1, out, b), out, "dimensions do not broadcast")?;
                Ok(out)
            }
        }
    }

    /// Resolves an axis attribute: `-rank..rank` to `0..rank`.
    pub fn axis(&self, axis: i64, rank: usize) -> OpResult<usize> {
        let r = rank as i64;
        if axis < -r || axis >= r {
            return Err(OpError::Invalid(format!("axis {axis} is outside of {}..{r}", -r)));
        }
        Ok(if axis < 0 { axis + r } else { axis } as usize)
    }
}

/// The index along an axis of size `d` for the broadcast index `i`.
pub fn broadcast_index(d: Int, i: Int) -> Int {
    if d == Int::new(1) {
        return Int::new(0);
    }
    let extent = i.as_var().and_then(|v| v.extent());
    if extent == Some(d) || i.lt(d) == Some(true) { i } else { i.min(d - 1) }
}

/// Fresh loop indices, one for each dimension.
pub fn index_vars(name: &str, shape: &[Int]) -> Vec<VarId> {
    shape.iter().enumerate().map(|(k, d)| VarId::index(&format!("{name}{k}"), *d)).collect()
}

/// The values of loop indices; 0 for one that runs over a single value.
pub fn index_of(vars: &[VarId]) -> Vec<Int> {
    vars.iter().map(|v| if v.extent() == Some(Int::new(1)) { Int::new(0) } else { Int::var(*v) }).collect()
}

/// The row-major position of `index` within `shape`.
pub fn flatten(shape: &[Int], index: &[Int]) -> Int {
    shape.iter().zip(index).fold(Int::new(0), |flat, (d, i)| flat * *d + *i)
}

/// The index within `shape` of the row-major position `flat`.
pub fn unflatten(shape: &[Int], flat: Int) -> Vec<Int> {
    let mut inner = Int::new(1);
    let mut out: Vec<Int> = shape
        .iter()
        .enumerate()
        .rev()
        .map(|(k, d)| {
            let q = flat.div(inner);
            inner = inner * *d;
            if *d == Int::new(1) {
                Int::new(0)
            } else if k == 0 {
                q
            } else {
                q.rem(*d)
            }
        })
        .collect();
    out.reverse();
    out
}

/// The index within shape `to` of the element at `index` within shape `from`, where both hold the same elements in the same
/// order. Axes at both ends that the shapes share keep their index.
pub fn reindex(from: &[Int], to: &[Int], index: &[Int]) -> Vec<Int> {
    let shared = |pairs: &mut dyn Iterator<Item = (&Int, &Int)>| pairs.take_while(|(a, b)| a == b).count();
    let head = shared(&mut from.iter().zip(to));
    if head == from.len() && head == to.len() {
        return index.to_vec();
    }
    let tail = shared(&mut from[head..].iter().rev().zip(to[head..].iter().rev()));
    let (from_end, to_end) = (from.len() - tail, to.len() - tail);
    let flat = flatten(&from[head..from_end], &index[head..from_end]);
    let middle = unflatten(&to[head..to_end], flat);
    index[..head].iter().copied().chain(middle).chain(index[from_end..].iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_shapes_share_keep_their_index_whatever_their_size_is() {
        let (n, w) = (Int::symbol("n", None, None), Int::symbol("w", None, None));
        let from = [n, Int::new(2), Int::new(3), w];
        let to = [n, Int::new(6), w];
        let index: Vec<Int> = from.iter().map(|d| Int::index("i", *d)).collect();
        let joined = reindex(&from, &to, &index);
        assert_eq!(joined, [index[0], index[1] * 3 + index[2], index[3]]);
        assert_eq!(reindex(&to, &from, &joined), index);
        assert_eq!(reindex(&from, &from, &index), index);
    }

    #[test]
    fn a_change_of_shape_keeps_the_position() {
        let dims = |d: &[i64]| d.iter().map(|v| Int::new(*v)).collect::<Vec<_>>();
        for (from, to) in [
            (vec![2, 3, 4], vec![6, 4]),
            (vec![2, 3, 4], vec![2, 2, 6]),
            (vec![4], vec![1, 4, 1]),
            (vec![1, 1], vec![]),
            (vec![4, 4], vec![4, 2, 2]),
        ] {
            let (from, to) = (dims(&from), dims(&to));
            for flat in 0..Int::product(&from).as_const().unwrap_or(0) {
                let index = unflatten(&from, Int::new(flat));
                assert_eq!(flatten(&to, &reindex(&from, &to, &index)), Int::new(flat));
            }
        }
    }
}
