//! Machine code against the meaning of the kernel IR.

mod c;
mod control;
mod emulated;
mod host;
mod lanes;
mod lanewise;
mod random;
mod shape;
mod values;
