//! Processors as GraphMend sees them: instruction sets, the features that kernels may need, presets for boards and
//! cores, and detection of the machine that the program runs on.
//!
//! The crate is `no_std` and allocates nothing. Feature bits and architecture ids are stored in cache files: both are
//! only ever added to, never renumbered.
//!
//! ```
//! use graphmend_targets as targets;
//! let pi4 = targets::lookup("rpi4").unwrap();
//! let needed = targets::Features::parse(pi4.arch, "neon+dotprod").unwrap();
//! assert!(!pi4.features.contains(needed));
//! assert_eq!(pi4.features.missing(needed).display(pi4.arch).to_string(), "dotprod");
//! ```
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

mod arch;
mod cflags;
mod cpu;
#[cfg(feature = "std")]
mod detect;
pub mod features;
mod names;
mod presets;

pub use arch::Arch;
pub use cflags::{c_compilers, c_flags};
pub use cpu::Cpu;
#[cfg(feature = "std")]
pub use detect::{native, native_features};
pub use features::{FeatureDisplay, Features, UnknownFeature};
pub use names::{Suggestions, suggestions};
pub use presets::{aliases, lookup, presets};
