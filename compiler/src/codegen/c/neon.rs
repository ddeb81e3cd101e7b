//! Vectors of `f32` on 32-bit Arm with NEON, as instructions.
//!
//! GCC takes apart what the language does with such vectors there, since the unit rounds subnormal numbers to zero, and so do
//! some of the functions of its `arm_neon.h`. So each operation is written as the one instruction that it is: the numbers are
//! those of other processors, but that subnormal ones are zeros.

use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Cmp, UnOp};

/// Lanes of a vector register.
pub(super) const LANES: u16 = 4;

/// The value of `v` of type `ty` that an instruction writes; `from` are its operands.
fn instruction(ty: &str, name: &str, from: &[&str]) -> String {
    let places: String = (1..=from.len()).map(|i| format!(", %q{i}")).collect();
    let operands: Vec<String> = from.iter().map(|x| format!("\"w\"({x})")).collect();
    format!("    {ty} v;\n    __asm__(\"{name} %q0{places}\" : \"=w\"(v) : {});\n    return v;\n", operands.join(", "))
}

/// An instruction that changes its first operand.
fn update(ty: &str, name: &str, first: &str, from: [&str; 2]) -> String {
    let [x, y] = from;
    format!(
        "    {ty} v = {first};\n    __asm__(\"{name} %q0, %q1, %q2\" : \"+w\"(v) : \"w\"({x}), \"w\"({y}));\n    return v;\n"
    )
}

/// An operation on `vx` and `vy`, but for division, which there is no instruction for.
pub(super) fn bin(op: BinOp, ty: &str) -> Option<String> {
    let name = match op {
        BinOp::Add => "vadd.f32",
        BinOp::Sub => "vsub.f32",
        BinOp::Mul => "vmul.f32",
        // NaN if one is.
        BinOp::Min => "vmin.f32",
        BinOp::Max => "vmax.f32",
        _ => return None,
    };
    Some(instruction(ty, name, &["vx", "vy"]))
}

/// A comparison of `vx` and `vy`; what differs is what is not equal.
pub(super) fn cmp(op: Cmp, mask: &str) -> String {
    match op {
        Cmp::Eq => instruction(mask, "vceq.f32", &["vx", "vy"]),
        Cmp::Ne => instruction(mask, "vceq.f32", &["vx", "vy"]).replace("return v;", "return ~v;"),
        Cmp::Lt => instruction(mask, "vcgt.f32", &["vy", "vx"]),
        Cmp::Le => instruction(mask, "vcge.f32", &["vy", "vx"]),
        Cmp::Gt => instruction(mask, "vcgt.f32", &["vx", "vy"]),
        Cmp::Ge => instruction(mask, "vcge.f32", &["vx", "vy"]),
    }
}

/// `vx * vy + vz`, rounded once where there is an instruction for that.
pub(super) fn fma(ty: &str) -> String {
    let (fused, plain) = (update(ty, "vfma.f32", "vz", ["vx", "vy"]), update(ty, "vmla.f32", "vz", ["vx", "vy"]));
    format!("#if GM_FMA\n{fused}#else\n{plain}#endif\n")
}

/// `vy` where the mask `vx` is set, else `vz`; for all types of 32-bit lanes.
pub(super) fn select(ty: &str) -> String {
    let choice = update("gm_mask4", "vbsl", "vx", ["vy", "vz"]);
    if ty == "gm_mask4" { choice } else { choice.replace("return v;", &format!("return ({ty})v;")) }
}

/// Conversions of lanes as [`Op::Cast`](crate::kernel::ir::Op::Cast) has them: from floats truncated, within the range, NaN to 0.
/// Four bytes are a word on their way.
pub(super) fn cast(to: DType, from: DType, ty: &str) -> Option<String> {
    let single = match (to, from) {
        (DType::F32, DType::I32) => "vcvt.f32.s32",
        (DType::F32, DType::U32) => "vcvt.f32.u32",
        (DType::I32, DType::F32) => "vcvt.s32.f32",
        (DType::U32, DType::F32) => "vcvt.u32.f32",
        _ => return bytes(to, from, ty),
    };
    Some(instruction(ty, single, &["vx"]))
}

/// Conversions from and to bytes.
fn bytes(to: DType, from: DType, ty: &str) -> Option<String> {
    let is_byte = |t: DType| matches!(t, DType::I8 | DType::U8);
    let sign = |t: DType| if t == DType::I8 { 's' } else { 'u' };
    if is_byte(from) && matches!(to, DType::F32 | DType::I32 | DType::U32) {
        let s = sign(from);
        let last = if to == DType::F32 { format!("\\n\\tvcvt.f32.{s}32 %q0, %q0") } else { String::new() };
        return Some(format!(
            "    {ty} v;
    uint32_t word;
    gm_copy(&word, &vx, sizeof word);
    __asm__(\"vmov.32 %e0[0], %1\\n\\tvmovl.{s}8 %q0, %e0\\n\\tvmovl.{s}16 %q0, %e0{last}\" : \"=w\"(v) : \"r\"(word));
    return v;
"
        ));
    }
    if !is_byte(to) {
        return None;
    }
    let s = sign(to);
    let steps = match from {
        DType::F32 => {
            format!("vcvt.{s}32.f32 %q1, %q2\\n\\tvqmovn.{s}32 %e1, %q1\\n\\tvqmovn.{s}16 %e1, %q1")
        }
        DType::I32 | DType::U32 => "vmovn.i32 %e1, %q2\\n\\tvmovn.i16 %e1, %q1".to_owned(),
        _ => return None,
    };
    Some(format!(
        "    {ty} v;
    gm_u32x4 part;
    uint32_t word;
    __asm__(\"{steps}\\n\\tvmov.32 %0, %e1[0]\" : \"=r\"(word), \"=w\"(part) : \"w\"(vx));
    gm_copy(&v, &word, sizeof v);
    return v;
"
    ))
}

/// Rounding to integers, as the scalar helper does it, choices made by masks.
pub(super) fn rounding(op: UnOp) -> String {
    let adjust = |compare: &str, with: &str| {
        format!(
            "    __asm__(\"vcgt.f32 %q0, {compare}\" : \"=w\"(m) : \"w\"(v), \"w\"({with}));
    __asm__(\"{} %q0, %q0, %q1\" : \"+w\"(v) : \"w\"(m & 0x3f800000));\n",
            if op == UnOp::Ceil { "vadd.f32" } else { "vsub.f32" }
        )
    };
    let sign = "    v = (gm_f32x4)(((gm_u32x4)v & 0x7fffffffu) | ((gm_u32x4)vx & 0x80000000u));\n";
    let steps = match op {
        UnOp::Floor => format!("{sign}{}", adjust("%q1, %q2", "vx")),
        UnOp::Ceil => format!("{sign}{}", adjust("%q2, %q1", "vx")),
        UnOp::Trunc => adjust("%q1, %q2", "a"),
        _ => String::new(),
    };
    format!(
        "    const gm_f32x4 large = {{8388608.0f, 8388608.0f, 8388608.0f, 8388608.0f}};
    const gm_f32x4 a = (gm_f32x4)((gm_u32x4)vx & 0x7fffffffu);
    gm_f32x4 v;
    gm_mask4 m;
    __asm__(\"vadd.f32 %q0, %q1, %q2\\n\\tvsub.f32 %q0, %q0, %q2\" : \"=&w\"(v) : \"w\"(a), \"w\"(large));
{steps}{sign}    __asm__(\"vcgt.f32 %q0, %q1, %q2\" : \"=w\"(m) : \"w\"(large), \"w\"(a));
    return (gm_f32x4)((m & (gm_mask4)v) | (~m & (gm_mask4)vx));
"
    )
}
