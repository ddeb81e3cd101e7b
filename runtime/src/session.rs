//! Sessions: a model and the memory that its runs use.

use graphmend_cache_format::ARENA_ALIGN;

use crate::machine::Machine;
use crate::state::{Layout, Place};
use crate::tensor::aligned;
use crate::window::{Bring, Window};
use crate::{Error, ModelRef, Spread, TensorRef, TensorView, WeightSource};

/// Sees the kernel calls of a run, for profiles. Both methods do nothing unless overridden.
pub trait Observe {
    /// Before instruction `step` calls `kernel`.
    fn before(&mut self, step: u32, kernel: u32) {
        let _ = (step, kernel);
    }

    /// After it.
    fn after(&mut self, step: u32, kernel: u32) {
        let _ = (step, kernel);
    }
}

/// Sees nothing.
impl Observe for () {}

/// A model with lent memory. Runs one at a time and allocates nothing.
///
/// ```
/// # use graphmend_runtime::{Error, ModelRef, Session, TensorRef};
/// fn classify(model: ModelRef<'_>, arena: &mut [u8], state: &mut [i64], image: &[f32]) -> Result<usize, Error> {
///     let mut session = Session::new(model, arena, state)?;
///     session.run(&[TensorRef::new(image, &[1, 3, 224, 224])])?;
///     let scores = session.output(0)?.as_f32()?;
///     Ok((0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0))
/// }
/// ```
#[derive(Debug)]
pub struct Session<'s> {
    model: ModelRef<'s>,
    arena: &'s mut [u8],
    state: &'s mut [i64],
    step_limit: u64,
    spread: Option<&'s dyn Spread>,
}

impl<'s> Session<'s> {
    /// Takes memory: `arena` of at least [`ModelRef::arena_bytes`], starting at a multiple of [`ARENA_ALIGN`], and
    /// `state` of at least [`ModelRef::state_words`]. What they hold does not matter.
    pub fn new(model: ModelRef<'s>, arena: &'s mut [u8], state: &'s mut [i64]) -> Result<Session<'s>, Error> {
        check_memory(&model, arena, state)?;
        state.get_mut(0..1).ok_or(Error::Changed)?.fill(0);
        state.get_mut(model.layout.marks()).ok_or(Error::Changed)?.fill(0);
        Ok(Session { model, arena, state, step_limit: u64::MAX, spread: None })
    }

    /// Continues with memory that an earlier session of the same model had, and nobody has changed since.
    #[cfg(feature = "alloc")]
    pub(crate) fn resume(model: ModelRef<'s>, arena: &'s mut [u8], state: &'s mut [i64]) -> Result<Session<'s>, Error> {
        check_memory(&model, arena, state)?;
        Ok(Session { model, arena, state, step_limit: u64::MAX, spread: None })
    }

    /// Ends runs that take more backward jumps than this with [`Error::StepLimit`].
    pub fn set_step_limit(&mut self, limit: u64) {
        self.step_limit = limit;
    }

    /// Has `spread` share the work of each kernel call that can be shared. Without, a run takes one thread. Results are the
    /// same to the bit.
    pub fn set_spread(&mut self, spread: &'s dyn Spread) {
        self.spread = Some(spread);
    }

    /// The model.
    pub fn model(&self) -> ModelRef<'s> {
        self.model
    }

    /// Runs the model. On success the outputs can be asked for until the next run.
    pub fn run(&mut self, inputs: &[TensorRef<'_>]) -> Result<(), Error> {
        self.run_observed(inputs, &mut ())
    }

    /// Runs the model and tells `observer` of each kernel call.
    pub fn run_observed(&mut self, inputs: &[TensorRef<'_>], observer: &mut impl Observe) -> Result<(), Error> {
        self.start(inputs, None, observer)
    }

    /// Runs a model whose weights are not in memory: each step reads what it needs of `weights` into `window`, which starts at a
    /// multiple of [`ARENA_ALIGN`]. [`ModelRef::window_bytes`] says how large it must be.
    pub fn run_streamed(
        &mut self,
        inputs: &[TensorRef<'_>],
        weights: &mut dyn WeightSource,
        window: &mut [u8],
    ) -> Result<(), Error> {
        self.start(inputs, Some(&mut Window::new(weights, window)?), &mut ())
    }

    fn start(
        &mut self,
        inputs: &[TensorRef<'_>],
        window: Option<&mut dyn Bring>,
        observer: &mut impl Observe,
    ) -> Result<(), Error> {
        // An earlier run's outputs are gone even if this one does not start.
        *self.state.first_mut().ok_or(Error::Changed)? = 0;
        check_inputs(&self.model, inputs)?;
        let mut machine = Machine {
            model: self.model,
            arena: self.arena.as_mut_ptr(),
            arena_len: self.arena.len(),
            words: self.model.layout.split(self.state).ok_or(Error::Changed)?,
            inputs,
            step_limit: self.step_limit,
            spread: self.spread,
            window,
            at: 0,
            changed: false,
            status: 0,
            failure: None,
        };
        machine.run(observer)
    }

    /// An output of the last run.
    pub fn output(&self, index: usize) -> Result<TensorView<'_>, Error> {
        output(self.model, self.arena, self.state, index)
    }
}

fn check_memory(model: &ModelRef<'_>, arena: &[u8], state: &[i64]) -> Result<(), Error> {
    if arena.len() < model.arena_bytes() {
        return Err(Error::ArenaTooSmall { needed: model.arena_bytes() });
    }
    if !arena.as_ptr().addr().is_multiple_of(ARENA_ALIGN) {
        return Err(Error::ArenaMisaligned);
    }
    if state.len() < model.state_words() {
        return Err(Error::StateTooSmall { needed: model.state_words() });
    }
    Ok(())
}

/// An output of the run that left this memory.
pub(crate) fn output<'a>(
    model: ModelRef<'a>,
    arena: &'a [u8],
    state: &'a [i64],
    index: usize,
) -> Result<TensorView<'a>, Error> {
    let Layout { outputs, dims, .. } = model.layout;
    let number = u32::try_from(index).map_err(|_| Error::NoOutput)?;
    let tensor = model.tensors.declared_output(number).ok_or(Error::NoOutput)?;
    if state.first() != Some(&1) {
        return Err(Error::NoOutput);
    }
    let at = outputs + index * 3;
    let Some(&[place, offset, bytes]) = state.get(at..at + 3) else {
        return Err(Error::Changed);
    };
    let memory = match Place::from_word(place) {
        Place::ARENA => arena,
        Place::WEIGHTS if model.absent > 0 => return Err(Error::WeightsAbsent),
        Place::WEIGHTS => model.weights,
        _ => return Err(Error::Changed),
    };
    let before: usize = (0..number).filter_map(|i| model.tensors.declared_output(i)).map(|t| t.rank).sum();
    let from = dims + before;
    let shape = state.get(from..from + tensor.rank).ok_or(Error::Changed)?;
    let (offset, bytes) = (offset as usize, bytes as usize);
    let bytes = offset.checked_add(bytes).and_then(|end| memory.get(offset..end)).ok_or(Error::Changed)?;
    Ok(TensorView { dtype: tensor.dtype, shape, bytes })
}

/// Compares inputs with their declarations.
fn check_inputs(model: &ModelRef<'_>, inputs: &[TensorRef<'_>]) -> Result<(), Error> {
    if inputs.len() != model.tensors.inputs() as usize {
        return Err(Error::InputCount { expected: model.tensors.inputs(), got: inputs.len() });
    }
    for (input, given) in (0u32..).zip(inputs) {
        let declared = model.tensors.declared_input(input).ok_or(Error::Changed)?;
        if given.dtype != declared.dtype {
            return Err(Error::InputType { input, expected: declared.dtype, got: given.dtype });
        }
        if given.shape.len() != declared.rank {
            return Err(Error::InputRank { input, expected: declared.rank, got: given.shape.len() });
        }
        let mut expected = given.dtype.size();
        for (axis, &got) in (0u32..).zip(given.shape) {
            let dim = declared.bounds(axis as usize).ok_or(Error::Changed)?;
            if i64::try_from(got).is_ok_and(|n| n < dim.lo || n > dim.hi) || i64::try_from(got).is_err() {
                return Err(Error::InputDim { input, axis, lo: dim.lo, hi: dim.hi, got });
            }
            if let Some((first_input, first_axis)) = dim.same {
                let first = inputs.get(first_input as usize).and_then(|t| t.shape.get(first_axis as usize));
                let first = *first.ok_or(Error::Changed)?;
                if got != first {
                    return Err(Error::InputSymbol { input, axis, first_input, first_axis, expected: first, got });
                }
            }
            // Sizes beside a 0 are not limited by memory: the product is 0 however large it was before.
            expected = expected.saturating_mul(got);
        }
        if given.bytes.len() != expected {
            return Err(Error::InputBytes { input, expected, got: given.bytes.len() });
        }
        if !given.bytes.is_empty() && !aligned(given.dtype, given.bytes.as_ptr().addr()) {
            return Err(Error::InputMisaligned { input });
        }
    }
    Ok(())
}
