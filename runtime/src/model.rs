//! A model in memory: verified sections of one variant, ready for sessions.

use core::mem::transmute;

use graphmend_cache_format::abi::KernelFn;
use graphmend_cache_format::check::check_plan;
use graphmend_cache_format::file::{ALL_VARIANTS, File, HEADER, Index, SectionKind, verify_leaf};
use graphmend_cache_format::plan::{Kernel, Kernels, Plan, Space, Step};
use graphmend_cache_format::tensors::{Tensor, Tensors};
use graphmend_cache_format::{ARENA_ALIGN, CODE_ALIGN, Digest, FormatError, LEAF};
#[cfg(feature = "interp")]
use graphmend_kernel::interp::Program;

use crate::Error;
#[cfg(feature = "interp")]
use crate::Programs;
use crate::select::{Host, is_interpreted, select};
use crate::spread::lane_bytes;
use crate::state::{Layout, set, test};

/// Why a file is believed to come from whom it should. Digests alone only show damage: whoever changes a file can make
/// its digests right again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// The file whose root digest is this one. The digest covers every byte.
    Pinned(Digest),
    /// Any undamaged file. Its code runs with all rights of this program: the caller knows where it comes from.
    Unsigned,
}

/// When weights are compared with their digests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WeightCheck {
    /// Each block of 64 KiB before its first use; a run touches no other blocks.
    #[default]
    OnUse,
    /// All when the model is opened.
    Eager,
    /// Never: the storage is trusted (flash that is checked at boot, a read-only signed image).
    Skip,
}

/// Where the machine code of kernels is.
#[derive(Clone, Copy, Debug)]
pub enum Code<'a> {
    /// A verified copy of the CODE section, or the section itself, in executable memory.
    Memory(&'a [u8]),
    /// Functions that are linked into the program, by number of the kernel.
    Functions(&'a [KernelFn]),
    /// Kernels that are interpreted, by number.
    #[cfg(feature = "interp")]
    Interpreted(&'a [Program]),
}

/// A variant of a file, verified and checked. Cheap to copy; everything is borrowed.
///
/// # What has been verified
///
/// Header, tables, interface, plan, kernel table and code: their digests, and by
/// [`check_plan`] every number and constant range in them. Weights: as [`WeightCheck`] says.
#[derive(Clone, Copy, Debug)]
pub struct ModelRef<'a> {
    pub(crate) tensors: Tensors<'a>,
    pub(crate) plan: Plan<'a>,
    pub(crate) kernels: Kernels<'a>,
    pub(crate) weights: &'a [u8],
    /// Bytes of weights that are not in memory.
    pub(crate) absent: usize,
    /// Digests of the weights, if they are still to be verified on use, and what does it.
    pub(crate) leaves: Option<(&'a [u8], Verify)>,
    pub(crate) code: Code<'a>,
    pub(crate) layout: Layout,
    variant: u16,
}

/// Verifies weights: [`verify_weights`]. A pointer, so that it is only linked where models are opened that want it.
pub(crate) type Verify = fn(&[u8], &[u8], &mut [i64], (usize, usize)) -> Result<(), FormatError>;

/// Verifies the blocks that `bytes` weights from `offset` on lie in, but those that are marked, and marks them.
fn verify_weights(
    weights: &[u8],
    leaves: &[u8],
    marks: &mut [i64],
    (offset, bytes): (usize, usize),
) -> Result<(), FormatError> {
    for leaf in offset / LEAF..(offset + bytes).div_ceil(LEAF) {
        if !test(marks, leaf) {
            verify_leaf(weights, leaves, leaf)?;
            set(marks, leaf);
        }
    }
    Ok(())
}

/// The verified sections that a [`ModelRef`] is made of.
pub(crate) struct Parts<'a> {
    pub(crate) tensors: &'a [u8],
    pub(crate) plan: &'a [u8],
    pub(crate) kernels: &'a [u8],
    pub(crate) weights: &'a [u8],
    pub(crate) absent: usize,
    pub(crate) leaves: Option<&'a [u8]>,
    pub(crate) code: Code<'a>,
    pub(crate) variant: u16,
}

/// Sections of a file whose weights are not in memory, each read and compared with its digest by the caller.
#[derive(Clone, Copy, Debug)]
pub struct Sections<'a> {
    /// TENSORS.
    pub tensors: &'a [u8],
    /// PLAN of the variant.
    pub plan: &'a [u8],
    /// KERNELS of the variant.
    pub kernels: &'a [u8],
    /// Length of WEIGHTS.
    pub weights_bytes: usize,
    /// Number of the variant.
    pub variant: u16,
}

/// Bytes of a file, from its first [`HEAD`] bytes: for a file that lies in flash, where only its start is known.
///
/// # Errors
/// What is no cache file.
pub fn file_bytes(head: &[u8]) -> Result<usize, Error> {
    usize::try_from(Index::file_bytes(head)?).map_err(|_| Error::TooLarge)
}

/// Bytes of a file that say how long it is.
pub const HEAD: usize = HEADER;

impl<'a> ModelRef<'a> {
    /// Verifies a file that lies in memory and takes its best variant for `host`.
    ///
    /// With `functions`, kernels are these (by number) and the file's code is not used. Without, the code is run where
    /// it lies: from executable flash, or an executable mapping. On 32-bit Arm such code is Thumb.
    ///
    /// # Safety
    ///
    /// - `bytes` does not change while any copy of the result exists.
    /// - With `functions`, they are the kernels that the file was written with, in its order. Without, the CODE section
    ///   of the chosen variant is executable where it lies.
    /// - With [`Trust::Unsigned`], the file was written by the GraphMend compiler: its machine code is called.
    pub unsafe fn from_bytes(
        bytes: &'a [u8],
        trust: Trust,
        host: Host,
        weights: WeightCheck,
        functions: Option<&'a [KernelFn]>,
    ) -> Result<ModelRef<'a>, Error> {
        let file = File::parse(bytes)?;
        check_trust(&file.index().header().root, trust)?;
        let variant = select(file.index(), host)?;
        file.index().verify_gaps(bytes)?;
        let portable = file.index().variant(variant).is_none_or(is_interpreted);
        let code = match functions {
            Some(functions) => Code::Functions(functions),
            None if portable => return Err(Error::NoInterpreter),
            None => Code::Memory(optional(file.verified(SectionKind::Code, variant))?),
        };
        ModelRef::of(&file, weights, variant, code)
    }

    /// A variant of a file whose header is verified.
    fn of(file: &File<'a>, weights: WeightCheck, variant: u16, code: Code<'a>) -> Result<ModelRef<'a>, Error> {
        let section = file.index().section(SectionKind::Weights, ALL_VARIANTS);
        if let (Some(section), WeightCheck::Eager) = (section, weights) {
            file.verify_section(&section)?;
        }
        let leaves = optional(file.verified(SectionKind::Leaves, ALL_VARIANTS))?;
        ModelRef::from_parts(Parts {
            tensors: file.verified(SectionKind::Tensors, ALL_VARIANTS)?,
            plan: file.verified(SectionKind::Plan, variant)?,
            kernels: file.verified(SectionKind::Kernels, variant)?,
            weights: section.map_or(&[], |s| file.data(&s)),
            absent: 0,
            leaves: (weights == WeightCheck::OnUse).then_some(leaves),
            code,
            variant,
        })
    }

    /// Takes a file's best variant for `host` without looking at digests or records: for an image that was verified as a whole.
    /// Firmware that opens models in this way alone is linked without the code that verifies.
    ///
    /// # Safety
    ///
    /// The file is as the GraphMend compiler wrote it, to the byte. Also what [`ModelRef::from_bytes`] asks for.
    pub unsafe fn from_trusted_bytes(
        bytes: &'a [u8],
        host: Host,
        functions: Option<&'a [KernelFn]>,
    ) -> Result<ModelRef<'a>, Error> {
        let index = Index::parse_trusted(bytes, bytes.len() as u64)?;
        let variant = select(&index, host)?;
        if functions.is_none() && index.variant(variant).is_none_or(is_interpreted) {
            return Err(Error::NoInterpreter);
        }
        let data =
            |kind, variant| index.trusted_range(kind, variant).and_then(|range| bytes.get(range)).unwrap_or_default();
        let plan = Plan::parse(data(SectionKind::Plan, variant))?;
        let tensors = Tensors::parse_trusted(data(SectionKind::Tensors, ALL_VARIANTS))?;
        Ok(ModelRef {
            tensors,
            plan,
            kernels: Kernels::parse(data(SectionKind::Kernels, variant))?,
            weights: data(SectionKind::Weights, ALL_VARIANTS),
            absent: 0,
            leaves: None,
            code: functions.map_or(Code::Memory(data(SectionKind::Code, variant)), Code::Functions),
            layout: Layout::new(&plan, &tensors, 0, 0)?,
            variant,
        })
    }

    /// Makes a model of sections. Its weights are read in each run, by [`Session::run_streamed`](crate::Session::run_streamed).
    ///
    /// # Safety
    ///
    /// The sections do not change while any copy of the result exists. `code` is the variant's code in executable memory at a
    /// multiple of [`CODE_ALIGN`], or the kernels that the file was written with, in its order.
    pub unsafe fn from_sections(sections: Sections<'a>, code: Code<'a>) -> Result<ModelRef<'a>, Error> {
        let Sections { tensors, plan, kernels, weights_bytes, variant } = sections;
        let absent = weights_bytes;
        ModelRef::from_parts(Parts { tensors, plan, kernels, weights: &[], absent, leaves: None, code, variant })
    }

    /// Verifies a file that lies in memory and takes its variant without machine code, whose kernels are `programs`, made of the
    /// same file. Nothing in it is executed, so that nobody needs to vouch for it.
    ///
    /// # Errors
    /// A file that is damaged or invalid.
    #[cfg(feature = "interp")]
    pub fn interpreted(
        bytes: &'a [u8],
        trust: Trust,
        weights: WeightCheck,
        programs: &'a Programs,
    ) -> Result<ModelRef<'a>, Error> {
        let file = File::parse(bytes)?;
        check_trust(&file.index().header().root, trust)?;
        file.index().verify_gaps(bytes)?;
        ModelRef::of(&file, weights, programs.variant, Code::Interpreted(&programs.list))
    }

    /// Checks verified sections against each other.
    pub(crate) fn from_parts(parts: Parts<'a>) -> Result<ModelRef<'a>, Error> {
        let tensors = Tensors::parse(parts.tensors)?;
        let plan = Plan::parse(parts.plan)?;
        let kernels = Kernels::parse(parts.kernels)?;
        let code_bytes = match parts.code {
            Code::Memory(code) => code.len() as u64,
            // Their code need not be in the file; where it is said to be does not matter.
            Code::Functions(_) => u64::MAX,
            #[cfg(feature = "interp")]
            Code::Interpreted(_) => u64::MAX,
        };
        check_plan(&plan, &tensors, &kernels, parts.weights.len().max(parts.absent) as u64, code_bytes)?;
        for kernel in 0..kernels.count() {
            let there = match parts.code {
                Code::Memory(_) => kernels.get(kernel).is_some_and(|k| k.code_bytes > 0),
                Code::Functions(f) => (kernel as usize) < f.len(),
                #[cfg(feature = "interp")]
                Code::Interpreted(programs) => (kernel as usize) < programs.len(),
            };
            if !there {
                return Err(Error::NoCode { kernel });
            }
        }
        if let Code::Memory(code) = parts.code
            && !code.is_empty()
            && !code.as_ptr().addr().is_multiple_of(CODE_ALIGN)
        {
            return Err(Error::CodeMisaligned);
        }
        usize::try_from(plan.arena_bytes).map_err(|_| Error::TooLarge)?;
        let leaves = parts.leaves.map_or(0, |l| l.len() / 32);
        #[cfg(feature = "interp")]
        let lanes = match parts.code {
            Code::Interpreted(programs) => {
                crate::interp::check(programs, &plan)?;
                programs.iter().map(Program::slots).max().unwrap_or(0)
            }
            _ => 0,
        };
        #[cfg(not(feature = "interp"))]
        let lanes = 0;
        let layout = Layout::new(&plan, &tensors, leaves, lanes)?;
        let Parts { weights, absent, code, variant, .. } = parts;
        let leaves = parts.leaves.map(|l| (l, verify_weights as Verify));
        Ok(ModelRef { tensors, plan, kernels, weights, absent, leaves, code, layout, variant })
    }

    /// Where the weights begin, and their length. If they are absent, at an address that nobody follows but with their alignment.
    pub(crate) fn weights(&self) -> (*mut u8, usize) {
        match self.absent {
            // Never written: see `Machine::writable`.
            0 => (self.weights.as_ptr().cast_mut(), self.weights.len()),
            len => (core::ptr::without_provenance_mut(ARENA_ALIGN), len),
        }
    }

    /// Bytes of arena that every run needs. Models whose sizes are only known at run time may ask for more.
    pub fn arena_bytes(&self) -> usize {
        // Fits: checked when the model was made.
        self.plan.arena_bytes as usize
    }

    /// Words of state that a session needs.
    pub fn state_words(&self) -> usize {
        self.layout.total
    }

    /// Bytes of work space that a thread beside the calling one needs for any call whose sizes the plan knows; see
    /// [`Job::lane`](crate::Job::lane).
    pub fn lane_bytes(&self) -> usize {
        let plan = &self.plan;
        let known = |buffer: u32| plan.const_val(plan.buffer(buffer)?.bytes?).and_then(|n| usize::try_from(n).ok());
        let needed = (0..plan.instrs).filter_map(|i| match plan.step(i)? {
            Step::Dispatch { kernel, first_binding, tiles: Some(_), .. } => {
                let bufs = self.kernels.get(kernel)?.bufs;
                let works = (0..bufs).filter_map(|i| plan.binding(first_binding + i)).filter(|b| b.work);
                Some(lane_bytes(bufs, works.filter_map(|b| known(b.buf))))
            }
            _ => None,
        });
        needed.max().unwrap_or(0)
    }

    /// Bytes of window that [`Session::run_streamed`](crate::Session::run_streamed) needs for any step whose sizes the plan knows.
    pub fn window_bytes(&self) -> usize {
        let plan = &self.plan;
        let weights = |buffer: u32| {
            let buffer = plan.buffer(buffer).filter(|b| b.space == Space::Weights)?;
            usize::try_from(plan.const_val(buffer.bytes?)?).ok()
        };
        let one = |buffer: u32| weights(buffer).unwrap_or(0);
        let up = |bytes: usize| bytes.checked_next_multiple_of(ARENA_ALIGN).unwrap_or(usize::MAX);
        let needed = (0..plan.instrs).filter_map(|i| match plan.step(i)? {
            Step::Dispatch { kernel, first_binding, .. } => {
                let bindings = (0..self.kernels.get(kernel)?.bufs).filter_map(|i| plan.binding(first_binding + i));
                let sizes = bindings.filter(|b| !b.written).filter_map(|b| weights(b.buf));
                Some(sizes.fold(0usize, |sum, bytes| up(sum).saturating_add(bytes)))
            }
            Step::LoadInt { buf, .. } => Some(one(buf)),
            Step::Copy { src, .. } => Some(one(src)),
            _ => None,
        });
        needed.max().unwrap_or(0)
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> impl Iterator<Item = Tensor<'a>> + use<'a> {
        let tensors = self.tensors;
        (0..tensors.inputs()).filter_map(move |i| tensors.input(i))
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> impl Iterator<Item = Tensor<'a>> + use<'a> {
        let tensors = self.tensors;
        (0..tensors.outputs()).filter_map(move |i| tensors.output(i))
    }

    /// Number of the variant in the file.
    pub fn variant(&self) -> u16 {
        self.variant
    }

    /// The text of [`Error::Check`]'s message.
    pub fn message(&self, index: u32) -> Option<&'a str> {
        self.plan.message(index)
    }

    /// The function of a kernel; nothing for one that is interpreted.
    pub(crate) fn entry(&self, index: u32, kernel: &Kernel) -> Option<KernelFn> {
        Some(match self.code {
            Code::Functions(functions) => *functions.get(index as usize)?,
            #[cfg(feature = "interp")]
            Code::Interpreted(_) => return None,
            Code::Memory(code) => {
                let from = usize::try_from(kernel.code_offset).ok()?;
                let code = code.get(from..from.checked_add(kernel.code_bytes as usize)?)?;
                if code.is_empty() {
                    return None;
                }
                // The low bit of an address chooses Thumb.
                let entry = if cfg!(target_arch = "arm") { code.as_ptr().wrapping_add(1) } else { code.as_ptr() };
                // SAFETY: the bytes are a kernel's verified code for this CPU in executable memory: whoever made the
                // model promised it (`from_bytes`), or made the memory (`Model`). Data and function pointers have one
                // size and form on all supported targets.
                unsafe { transmute::<*const u8, KernelFn>(entry) }
            }
        })
    }
}

/// Compares a root digest with what is trusted.
pub(crate) fn check_trust(root: &Digest, trust: Trust) -> Result<(), Error> {
    match trust {
        Trust::Pinned(digest) if digest != *root => Err(Error::NotPinned),
        Trust::Pinned(_) | Trust::Unsigned => Ok(()),
    }
}

/// Nothing for a section that a file need not have.
fn optional(section: Result<&[u8], FormatError>) -> Result<&[u8], FormatError> {
    match section {
        Err(FormatError::Missing(_)) => Ok(&[]),
        other => other,
    }
}
