//! GraphMend on [`embedded_hal`]: models that lie in a flash chip behind SPI, and a pin that shows when a run goes on.
//!
//! - [`NorFlash`] reads a serial NOR flash by the commands that all of them know.
//! - [`FlashFile`] is a packed file in it: its tables and sections are read into lent memory and compared with their digests;
//!   the whole can be verified through a buffer of any size.
//! - [`FlashWeights`] gives a run its weights, so that only those of one step are in memory at a time.
//! - [`RunPin`] raises a pin while a model runs.
//!
//! Nothing here allocates, waits for time or is `unsafe`. Kernels are functions that are linked into the firmware, or the file's
//! code, read into executable memory ([`Loaded::code`]): code in a flash chip that is not mapped cannot be called.
//!
//! ```
//! use embedded_hal::spi::SpiDevice;
//! use graphmend_embedded_hal::{Error, FlashFile, FlashWeights, NorFlash};
//! use graphmend_runtime::{Code, Host, KernelFn, ModelRef, Session, TensorRef, Trust};
//! # use graphmend_targets::Features;
//!
//! fn run<S: SpiDevice>(spi: S, kernels: &[KernelFn], x: &[i8], y: &mut [u8]) -> Result<(), Error<S::Error>> {
//!     static FEATURES: Features = Features::NONE; // what the kernels were built for
//!     let mut tables = [0; 8192]; // header, tables, plan, digests
//!     let mut file = FlashFile::new(NorFlash::new(spi)?, 0x10_0000);
//!     let loaded = file.load(&mut tables, Trust::Unsigned, Host::with_features(FEATURES))?;
//!     // SAFETY: these are the kernels that the file was packed with.
//!     let model = unsafe { ModelRef::from_sections(loaded.sections, Code::Functions(kernels)) }?;
//!
//!     let (mut arena, mut state) = (Memory([0; 16384]), [0; 512]);
//!     let (mut window, mut marks) = (Memory([0; 8192]), [0; 16]);
//!     let mut weights = FlashWeights::new(&mut file, &loaded, &mut marks)?;
//!     let mut session = Session::new(model, &mut arena.0, &mut state)?;
//!     session.run_streamed(&[TensorRef::new(x, &[1, 32])], &mut weights, &mut window.0)?;
//!     y.copy_from_slice(session.output(0)?.bytes);
//!     Ok(())
//! }
//!
//! #[repr(align(64))]
//! struct Memory<const N: usize>([u8; N]);
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod error;
mod file;
mod flash;
mod pin;
mod weights;

pub use error::Error;
pub use file::{FlashFile, Loaded};
pub use flash::{Id, NorFlash, ReadCommand};
pub use pin::{PinError, RunPin};
pub use weights::FlashWeights;
