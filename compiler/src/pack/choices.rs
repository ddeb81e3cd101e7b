//! Which of several schedules each contraction is made with, for searches that measure them.

use super::{lower_contraction, lower_unit};
use crate::fuse::Unit;
use crate::kernel::ir::Kernel;
use crate::lower::{LoweredKernel, contract};
use crate::te::Program;
use graphmend_targets::Cpu;
use std::collections::BTreeMap;

/// Numbers of schedules by the key of the contraction; those that are not named have the one that the estimates recommend, which is
/// number 0.
pub type Choices = BTreeMap<String, usize>;

/// A kernel whose schedule can be chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tunable {
    /// What it computes for which processor, as a digest: the same in every model.
    pub key: String,
    /// Number of the kernel in the file.
    pub kernel: u32,
    /// Schedules to choose from.
    pub choices: usize,
}

/// The kernels met so far, by digest of their text.
#[derive(Default)]
pub(super) struct Found(BTreeMap<String, (String, usize)>);

impl Found {
    /// Lowers a unit with the schedule that is chosen for it.
    pub(super) fn lower(&mut self, p: &Program, cpu: &Cpu, u: &Unit, choices: &Choices) -> LoweredKernel {
        let Unit::Contract(of) = u else { return lower_unit(p, cpu, u) };
        let first = lower_unit(p, cpu, u);
        let Some(c) = contract::recognise(p, of.sum) else { return first };
        let count = contract::choices(p, cpu, &c, of);
        if count < 2 {
            return first;
        }
        let key = digest(&first.kernel, &format!("{cpu:?}"));
        let choice = choices.get(&key).copied().filter(|n| *n < count).unwrap_or(0);
        let chosen = if choice == 0 { first } else { lower_contraction(p, cpu, of, choice).unwrap_or(first) };
        self.0.insert(digest(&chosen.kernel, ""), (key, count));
        chosen
    }

    /// Which of the planned kernels they are.
    pub(super) fn tunables(&self, kernels: &[Kernel]) -> Vec<Tunable> {
        let numbered = kernels.iter().enumerate();
        let found = numbered.filter_map(|(n, kernel)| {
            let (key, choices) = self.0.get(&digest(kernel, ""))?;
            Some(Tunable { key: key.clone(), kernel: n as u32, choices: *choices })
        });
        found.collect()
    }
}

/// A digest of what a kernel computes, whatever its name, and of `more`.
fn digest(kernel: &Kernel, more: &str) -> String {
    let nameless = Kernel { name: String::new(), ..kernel.clone() };
    let mut h = blake3::Hasher::new();
    h.update(nameless.to_string().as_bytes());
    h.update(more.as_bytes());
    h.finalize().to_hex()[..32].to_owned()
}
