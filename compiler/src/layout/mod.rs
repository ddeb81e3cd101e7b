//! In which order the axes of each tensor lie in memory, chosen for the whole program.
//!
//! A tensor is a function of its index, so another order of its axes costs nothing where it is made and read: shape, index
//! variables and the indices of loads change places. [`votes`]: contractions with constant weights ask for channels last,
//! where the weights fill whole vectors and an element of the input multiplies them. [`spread`]: what is read together with
//! such a tensor, element by element or through windows, lies likewise, and so do views that join or split axes which lie
//! together. [`apply`] rewrites.
//!
//! The model's inputs and outputs, constants, what hand-written kernels read and write and what control flow passes on
//! keep the order of their axes. A view that would need another one is a view of a copy.

mod apply;
mod left;
mod order;
mod spread;
#[cfg(test)]
mod tests;
mod votes;

pub use left::left;

use crate::fuse::uses;
use crate::te::Program;
use graphmend_targets::Cpu;

/// Whether orders are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// As suits the processor.
    #[default]
    Auto,
    /// All tensors lie in the order of their axes.
    Keep,
    /// As contractions ask for, on every processor.
    ChannelsLast,
}

impl core::str::FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Layout, String> {
        match text {
            "auto" => Ok(Layout::Auto),
            "keep" => Ok(Layout::Keep),
            "channels-last" => Ok(Layout::ChannelsLast),
            _ => Err(format!("there is no layout '{text}', but auto, keep, channels-last")),
        }
    }
}

/// Chooses orders and rewrites `p`.
pub fn arrange(p: &mut Program, layout: Layout, cpu: &Cpu) {
    let wanted = match layout {
        Layout::Auto => cpu.vector_bits >= 128,
        Layout::Keep => false,
        Layout::ChannelsLast => true,
    };
    if !wanted {
        return;
    }
    let orders = spread::choose(p);
    if !orders.is_empty() {
        let whole = uses::find(p).whole;
        apply::apply(p, orders, &whole);
    }
}
