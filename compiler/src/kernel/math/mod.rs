//! Math functions as kernel IR, for scalars and vectors of any lane count.
//!
//! Each function takes and gives a register of an `F32` or `F64` type (half types compute in `F32`) and panics on any
//! other, as the builder does. They are straight-line code without branches, except [`fmod`], and treat infinities, NaN
//! and zeros as C's `libm` does. None needs a fused multiply-add to be as exact as stated: where it matters, products are
//! exact without it.
//!
//! Largest errors over dense sweeps, with and without fused multiply-add, as the tests assert them. For `F32` in units in
//! the last place from the true value, for `F64` in units from the rounded one:
//!
//! | function | `F32` | `F64` | remarks |
//! |---|---|---|---|
//! | `exp`, `exp2` | 1.1 | 1 | results below 2^-125 (2^-1021) are 0 |
//! | `expm1` | 1.5 | 2 | |
//! | `log` | 0.8 | 1 | |
//! | `log1p` | 1.4 | 1 | |
//! | `sin`, `cos` | 0.51 | 1 | for magnitudes below 8·10^8; beyond, only bounded by 1 |
//! | `tan` | 0.51 | 2 | as `sin`, but not bounded |
//! | `asin`, `acos` | 1.5 | 1 | |
//! | `atan` | 1.7 | 1 | |
//! | `atan2` | 1.8 | 2 | |
//! | `sinh`, `cosh` | 1.5 | 2 | |
//! | `tanh` | 5.1 | 3 | 3.6 with fused multiply-add |
//! | `asinh`, `atanh` | 1.8 | 1 | |
//! | `acosh` | 2.1 | 1 | |
//! | `erf` | 5.1 | 1 | 4.2 with fused multiply-add |
//! | `pow` | 0.51 | 1 | `F64`: 2 near overflow; results below 2^-1021 are 0 |
//! | `fmod` | 0 | 0 | contains a loop |
//! | `sigmoid`, `silu` | 1.9 | 2 | |
//! | `softplus` | 1.5 | 2 | |
//! | `mish` | 5.1 | 4 | |
//! | `gelu`, `gelu_tanh` | 3 | 3 | units of the argument's last place |

mod arc;
mod coeffs;
mod erf;
mod exp;
mod fmod;
mod hyper;
mod log;
mod neural;
mod parts;
mod pow;
#[cfg(test)]
mod tests;
mod trig;

pub use arc::{acos, asin, atan, atan2};
pub use erf::erf;
pub use exp::{exp, exp2, expm1};
pub use fmod::fmod;
pub use hyper::{acosh, asinh, atanh, cosh, sinh, tanh};
pub use log::{log, log1p};
pub use neural::{gelu, gelu_tanh, mish, sigmoid, silu, softplus};
pub use pow::pow;
pub use trig::{cos, sin, sin_cos, tan};
