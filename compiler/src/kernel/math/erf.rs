//! The error function.

use super::coeffs::{ERF_F32_DEN, ERF_F32_NUM, ERF_F64_FAR, ERF_F64_NEAR};
use super::exp::scaled;
use super::parts::Float;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Reg};
use core::f64::consts::FRAC_2_SQRT_PI;

/// Error function.
pub fn erf(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    if f.single() {
        // Beyond this bound the nearest `f32` is 1.
        let x = f.at_most(x, 3.93);
        let x = f.at_least(x, -3.93);
        let z = f.mul(x, x);
        let (num, den) = (f.poly(z, &ERF_F32_NUM), f.poly(z, &ERF_F32_DEN));
        let num = f.mul(x, num);
        let y = f.div(num, den);
        let y = f.at_most(y, 1.0);
        return f.at_least(y, -1.0);
    }
    let (a, sign) = f.split_sign(x);
    let z = f.mul(a, a);
    let p = f.poly(z, &ERF_F64_NEAR);
    let zp = f.mul(z, p);
    let rest = f.mul(a, zp);
    let near = f.fmac(a, FRAC_2_SQRT_PI, rest);
    // 1 - e^(-a²) G; from 6 on it is 1.
    let limited = f.at_most(a, 6.0);
    let (num, den) = (f.addc(limited, -2.0), f.addc(limited, 2.0));
    let t = f.div(num, den);
    let g = f.poly(t, &ERF_F64_FAR);
    let square = f.mul(limited, limited);
    let minus = f.b.neg(square);
    let e = scaled(f, minus, 0);
    let eg = f.mul(e, g);
    let far = f.csub(1.0, eg);
    let small = f.cmpc(Cmp::Lt, a, 1.0);
    let y = f.select(small, near, far);
    f.flip_sign(y, sign)
}
