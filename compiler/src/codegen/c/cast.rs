//! Conversions of scalars as C expressions.

use super::helpers::Helpers;
use super::literal::scalar_type;
use crate::dtype::DType;

impl Helpers {
    /// `x` of type `from` converted to `to`, as `Op::Cast` defines it.
    pub(super) fn cast(&mut self, to: DType, from: DType, x: &str) -> String {
        match to {
            DType::F16 | DType::BF16 => {
                let single = match from {
                    DType::F64 => format!("{}({x})", self.round_to_odd()),
                    _ => x.to_owned(),
                };
                let (narrow, widen) = (self.half_of(to), self.of_half(to));
                format!("{widen}({narrow}({single}))")
            }
            DType::Bool if from == DType::Bool => x.to_owned(),
            DType::Bool => format!("{x} != 0"),
            _ if to == from => x.to_owned(),
            _ if from.is_float() && to.is_int() => format!("{}({x})", self.saturate(to, from)),
            _ => format!("({}){x}", scalar_type(to)),
        }
    }

    /// The bits of `x` as another type of the same size.
    pub(super) fn bitcast(&mut self, to: DType, from: DType, x: &str) -> String {
        match (to.is_float(), from.is_float()) {
            _ if to == from => x.to_owned(),
            (true, true) => x.to_owned(),
            (true, false) => format!("{}({x})", self.of_bits(to)),
            (false, true) => format!("({}){}({x})", scalar_type(to), self.bits_of(from)),
            (false, false) => format!("({}){x}", scalar_type(to)),
        }
    }

    /// An element in memory as a register.
    pub(super) fn loaded(&mut self, stored: DType, x: &str) -> String {
        match stored {
            DType::Bool => format!("{x} != 0"),
            DType::F16 | DType::BF16 => format!("{}({x})", self.of_half(stored)),
            _ => x.to_owned(),
        }
    }

    /// A register as an element in memory.
    pub(super) fn stored(&mut self, stored: DType, x: &str) -> String {
        match stored {
            DType::F16 | DType::BF16 => format!("{}({x})", self.half_of(stored)),
            _ => x.to_owned(),
        }
    }
}
