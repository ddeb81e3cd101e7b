//! x
use super::builder::Builder;
use super::ir::Reg;
macro_rules! s { ($($n:ident),*) => { $( /// x
pub fn $n(_b: &mut Builder, _x: Reg) -> Reg { todo!() } )* } }
s!(exp, expm1, log, log1p, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh, erf);
macro_rules! s2 { ($($n:ident),*) => { $( /// x
pub fn $n(_b: &mut Builder, _x: Reg, _y: Reg) -> Reg { todo!() } )* } }
s2!(pow, atan2, fmod);
