//! The data types of a tensor program.

use super::cx::flatten;
use super::expr::Expr;
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Reg};
use crate::sym::{Int, VarId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A tensor of a [`Program`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TensorId(pub u32);

/// How a reduction combines; the neutral element is 0, 1, the lowest, the highest value of the type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ReduceKind {
    /// Sum, in any order.
    Sum,
    /// Product, in any order.
    Prod,
    /// Maximum (NaN wins).
    Max,
    /// Minimum (NaN wins).
    Min,
}

/// A kernel written by hand in kernel IR.
#[derive(Clone)]
pub struct Custom {
    /// Name for people.
    pub name: String,
    /// Tensors read.
    pub inputs: Vec<TensorId>,
    /// Types and shapes of the tensors written.
    pub outputs: Vec<(DType, Vec<Int>)>,
    /// Work space, never read before it is written: types and element counts.
    pub scratch: Vec<(DType, Int)>,
    /// Writes the body. Output elements start undefined.
    pub generate: Arc<dyn Fn(&mut KernelCx<'_>) + Send + Sync>,
}

/// What the writer of a [`Custom`] kernel works with.
pub struct KernelCx<'a> {
    /// Builder of the kernel's body.
    pub b: &'a mut Builder,
    /// Buffers of the inputs, row-major and contiguous.
    pub inputs: Vec<Buf>,
    /// Buffers of the outputs.
    pub outputs: Vec<Buf>,
    /// Buffers of the work space.
    pub scratch: Vec<Buf>,
    /// Gives the run-time value of an index expression free of loop indices, as `i64`.
    pub int: &'a mut dyn FnMut(&mut Builder, Int) -> Reg,
    /// Emits a scalar expression without loads (activation functions), given registers for its accumulators.
    pub expr: &'a mut dyn FnMut(&mut Builder, Expr, &[Reg]) -> Reg,
}

impl KernelCx<'_> {
    /// The run-time value of `i`.
    pub fn int(&mut self, i: impl Into<Int>) -> Reg {
        (self.int)(self.b, i.into())
    }
}

/// How a tensor's elements are given.
#[derive(Clone)]
pub enum Def {
    /// The model's input with this number.
    Input(usize),
    /// Constant, row-major little-endian bytes.
    Const(Arc<Vec<u8>>),
    /// The element at `vars` is `body`.
    Map {
        /// One index variable an axis.
        vars: Vec<VarId>,
        /// The element.
        body: Expr,
    },
    /// The element at `vars` is `body` combined over all `rvars`.
    Reduce {
        /// One index variable an axis.
        vars: Vec<VarId>,
        /// Reduced index variables, outermost first.
        rvars: Vec<VarId>,
        /// How.
        kind: ReduceKind,
        /// What.
        body: Expr,
    },
    /// A sequential fold over all `rvars` in row-major order, with several accumulators: `acc = init`, then
    /// `acc = step(acc)` for each index, then the element is `result(acc)`.
    Fold {
        /// One index variable an axis.
        vars: Vec<VarId>,
        /// Folded index variables, outermost first.
        rvars: Vec<VarId>,
        /// Start values (may depend on `vars`).
        init: Vec<Expr>,
        /// New values from `Acc(k)`, `vars` and `rvars`, all computed before any is assigned.
        step: Vec<Expr>,
        /// Element from `Acc(k)` and `vars`.
        result: Expr,
    },
    /// The same elements in the same order; only the shape differs.
    View(TensorId),
    /// Output number `.1` of a hand-written kernel.
    Custom(Arc<Custom>, usize),
    /// Assigned by control flow: a result of an `If`, what a loop carries.
    Slot,
    /// Written part by part by a loop, with room for this many elements: a scan output.
    Parts(Int),
    /// Put together in place: tensors that live in this one, and for the rest boxes given by expressions.
    Assembled {
        /// Those that have this tensor as their home.
        lodgers: Vec<TensorId>,
        /// All elements that no lodger holds.
        pieces: Vec<Piece>,
    },
}

/// A box of an assembled tensor.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Index of its first element.
    pub start: Vec<Int>,
    /// One index variable an axis, from 0 to the box's size.
    pub vars: Vec<VarId>,
    /// The element at `start + vars`; free of variables with one value.
    pub body: Expr,
}

impl Piece {
    /// The index within the whole. Variables with one value are left out of it.
    pub fn index(&self) -> Vec<Int> {
        let at = |(s, v): (&Int, &VarId)| if v.extent() == Some(Int::new(1)) { *s } else { *s + Int::var(*v) };
        self.start.iter().zip(&self.vars).map(at).collect()
    }
}

/// Where a tensor lies that has no memory of its own: its element at `i` is the home's at `offset + i`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Home {
    /// The tensor that it is a part of.
    pub tensor: TensorId,
    /// Index of its first element there.
    pub offset: Vec<Int>,
}

/// A tensor: type, shape and definition. Stored row-major, contiguous, unless it has a home.
#[derive(Clone)]
pub struct Tensor {
    /// Name for people: the ONNX value, or that of the node that made it.
    pub name: String,
    /// The ONNX node it comes from.
    pub node: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<Int>,
    /// Elements.
    pub def: Def,
}

/// A condition that must hold at run time; otherwise the run ends with an error.
#[derive(Clone, Debug)]
pub enum Check {
    /// Both equal.
    Equal(Int, Int, String),
    /// The first at most the second.
    AtMost(Int, Int, String),
}

/// A step of a block, in order of execution.
#[derive(Clone)]
pub enum Step {
    /// Defines a tensor.
    Define(TensorId),
    /// Checks a condition.
    Check(Check),
    /// Runs one of two blocks.
    If {
        /// Not zero: `then`.
        cond: Int,
        /// First block.
        then: Block,
        /// Its results.
        then_results: Vec<TensorId>,
        /// Second block.
        other: Block,
        /// Its results.
        other_results: Vec<TensorId>,
        /// The `Slot` tensors that hold the results of whichever block ran.
        results: Vec<TensorId>,
        /// Symbols of the results' shapes with their values in each block.
        dims: Vec<(VarId, Int, Int)>,
    },
    /// Runs a block again and again.
    Loop(Box<Loop>),
}

/// A loop. A trip is made while there are fewer than `most`, and while the condition, `start` before the first trip and
/// `go_on` after each, is not zero.
#[derive(Clone)]
pub struct Loop {
    /// Number of the trip, from 0.
    pub trip: VarId,
    /// Most trips.
    pub most: Option<Int>,
    /// Condition before the first trip; nothing if it always holds.
    pub start: Option<Int>,
    /// Condition after a trip, computed by the body; nothing if it always holds.
    pub go_on: Option<Int>,
    /// What a trip does.
    pub body: Block,
    /// Tensors passed from trip to trip.
    pub carried: Vec<Carried>,
    /// Tensors of which each trip gives one part.
    pub scans: Vec<Scan>,
    /// Symbols of the carried shapes.
    pub dims: Vec<CarriedDim>,
    /// Trips that were made, for what follows; nothing if these are always `most`.
    pub count: Option<VarId>,
}

/// A tensor that a loop carries.
#[derive(Clone)]
pub struct Carried {
    /// What it is during a trip: a `Slot`.
    pub current: TensorId,
    /// What it is before the first trip.
    pub init: TensorId,
    /// What it is after a trip: a tensor that the body defines, no other's memory; or one from outside of the loop.
    pub next: TensorId,
    /// What it is after the loop: a `Slot`.
    pub result: TensorId,
}

/// A scan output.
#[derive(Clone)]
pub struct Scan {
    /// What a trip gives. Its shape is the same in all trips.
    pub element: TensorId,
    /// All of them, along a new first axis: a `Parts`.
    pub result: TensorId,
}

/// A dimension of a carried tensor that may change from trip to trip.
#[derive(Clone)]
pub struct CarriedDim {
    /// During a trip.
    pub current: VarId,
    /// Before the first trip.
    pub init: Int,
    /// After a trip.
    pub next: Int,
    /// After the loop.
    pub result: VarId,
}

/// A list of steps.
#[derive(Clone, Default)]
pub struct Block {
    /// In order of execution.
    pub steps: Vec<Step>,
}

/// Factors of a constant `f32` tensor: element `k` (row-major) is `values[k] * scales[k]`.
#[derive(Debug)]
pub struct Codes {
    /// Integers of magnitude at most 255.
    pub values: Vec<i16>,
    /// Scales.
    pub scales: Vec<f32>,
}

/// A whole model as tensor expressions.
#[derive(Clone, Default)]
pub struct Program {
    /// All tensors.
    pub tensors: Vec<Tensor>,
    /// The steps.
    pub main: Block,
    /// Inputs, in order.
    pub inputs: Vec<TensorId>,
    /// Outputs, in order.
    pub outputs: Vec<TensorId>,
    /// Names of inputs and outputs as in the model.
    pub input_names: Vec<String>,
    /// Names of the outputs.
    pub output_names: Vec<String>,
    /// Symbols that are a dimension of an input: input number and axis.
    pub dim_vars: BTreeMap<VarId, (usize, usize)>,
    /// Symbols read from data: an element of an integer tensor.
    pub data_vars: BTreeMap<VarId, (TensorId, i64)>,
    /// Tensors that are computed into a part of another one. No expression loads them: it loads the home.
    pub homes: BTreeMap<TensorId, Home>,
    /// Constants that contractions read as integers and scales.
    pub codes: BTreeMap<TensorId, Arc<Codes>>,
}

impl Program {
    /// The tensor `id`.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    /// The tensor in whose memory the element of `t` at `index` lies, and its index there.
    pub fn place(&self, t: TensorId, index: &[Int]) -> (TensorId, Vec<Int>) {
        match self.homes.get(&t) {
            Some(home) => {
                let index: Vec<Int> = index.iter().zip(&home.offset).map(|(i, o)| *i + *o).collect();
                self.place(home.tensor, &index)
            }
            None => (t, index.to_vec()),
        }
    }

    /// The tensor in whose memory `t` lies; views are not seen through.
    pub fn memory(&self, t: TensorId) -> TensorId {
        self.homes.get(&t).map_or(t, |home| self.memory(home.tensor))
    }

    /// Row-major position, in the memory that holds it, of the element of `t` at `index`.
    pub fn position(&self, t: TensorId, index: &[Int]) -> Int {
        let (memory, index) = self.place(t, index);
        flatten(&self.tensor(memory).shape, &index)
    }
}
