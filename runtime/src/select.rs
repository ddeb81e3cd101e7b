//! Which variant of a file runs here, and whether one does.

use graphmend_cache_format::abi;
use graphmend_cache_format::file::{Index, Variant};
use graphmend_targets::{Arch, Features};

use crate::Error;

/// The machine that code shall run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its instruction set; nothing if it is none that GraphMend knows.
    pub arch: Option<Arch>,
    /// What its CPU can do.
    pub features: Features,
}

impl Host {
    /// A machine with the instruction set of this program and these features. Firmware states what its CPU has.
    pub const fn with_features(features: Features) -> Host {
        Host { arch: Arch::of_this_program(), features }
    }

    /// This machine, by asking its CPU or operating system.
    #[cfg(feature = "std")]
    pub fn detect() -> Host {
        Host::with_features(graphmend_targets::native_features())
    }
}

/// The best variant for a machine: of those with its instruction set whose features it has, the one of highest rank
/// (the first of equals). One whose kernels are interpreted is taken only where there is no other. If there is none, the error says what the variant that comes nearest is built for.
pub fn select(index: &Index<'_>, host: Host) -> Result<u16, Error> {
    let mut best: Option<(u16, (bool, u32))> = None;
    let mut nearest = (u32::MAX, Error::NoSuchVariant);
    let mut i = 0;
    while let Some(v) = index.variant(i) {
        match fits(v, host) {
            Ok(()) => {
                let rank = (!is_interpreted(v), v.rank);
                if best.is_none_or(|(_, before)| rank > before) {
                    best = Some((i, rank));
                }
            }
            Err(e) => {
                let far = distance(e);
                if far < nearest.0 {
                    nearest = (far, e);
                }
            }
        }
        i += 1;
    }
    best.map(|(i, _)| i).ok_or(nearest.1)
}

/// Whether a variant has kernels that are interpreted instead of machine code.
pub(crate) fn is_interpreted(variant: Variant) -> bool {
    variant.arch == Arch::Portable.id()
}

/// Whether a variant runs on a machine.
pub(crate) fn fits(variant: Variant, host: Host) -> Result<(), Error> {
    if is_interpreted(variant) {
        return if cfg!(feature = "interp") { Ok(()) } else { Err(Error::NoInterpreter) };
    }
    let Some(arch) = host.arch.filter(|a| a.id() == variant.arch) else {
        return Err(Error::WrongArch { built_for: arch_of(variant), here: host.arch });
    };
    if variant.abi != abi::id::OF_THIS_PROGRAM {
        return Err(Error::WrongAbi);
    }
    let missing = host.features.missing(Features(variant.features));
    if missing.is_empty() { Ok(()) } else { Err(Error::MissingFeatures { arch, missing }) }
}

/// How far a variant is from running, by why it does not.
fn distance(error: Error) -> u32 {
    match error {
        Error::MissingFeatures { missing, .. } => missing.0.count_ones(),
        Error::WrongAbi => 100,
        _ => 101,
    }
}

/// A variant's instruction set, if this version knows it.
pub fn arch_of(variant: Variant) -> Option<Arch> {
    Arch::from_id(variant.arch)
}
