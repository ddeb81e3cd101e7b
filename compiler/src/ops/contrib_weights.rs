//! Weights in blocks of few bits each: `MatMulNBits`, `MatMulBnb4`, `GatherBlockQuantized`.

use super::contract::product;
use super::contrib::apply;
use super::narrow::{decode, elem, integer_range};
use super::operand::{Operand, need_float};
use super::sizes::guard_index;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::graph::ElemType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpError, OpResult, expr};

const MS: &str = "com.microsoft";

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    (MS, "MatMulNBits", matmul_nbits),
    (MS, "MatMulBnb4", matmul_bnb4),
    (MS, "GatherBlockQuantized", gather_block_quantized),
];

/// An attribute that must be a positive number.
fn needed(call: &Call, name: &str) -> OpResult<i64> {
    match call.opt_int(name)? {
        Some(v) if (1..1 << 32).contains(&v) => Ok(v),
        _ => Err(OpError::Invalid(format!("attribute '{name}' is missing or not positive"))),
    }
}

/// Requires that `o` has `n` elements.
fn require_count(cx: &mut Cx, o: &Operand, n: i64, what: &str) -> OpResult<()> {
    let all = Int::product(&o.shape);
    cx.require_equal(all, Int::new(n), &format!("elements of {what}"))
}

/// The same elements under another shape.
fn flat(cx: &mut Cx, o: &Operand, shape: &[i64]) -> Operand {
    let t = cx.view(o.id, shape.iter().map(|d| Int::new(*d)).collect());
    Operand::of(cx, t)
}

/// Element `k` of numbers of `bits` bits packed into bytes from the lowest bit on, where `byte` gives a byte of the row.
pub(super) fn unpacked(bits: i64, k: Int, byte: &dyn Fn(Int) -> Expr) -> Expr {
    let per = 8 / bits;
    let b = byte(k.div(per)).to(DType::I32);
    let shift = expr::int(k.rem(per) * bits).to(DType::I32);
    expr::bin(crate::te::Func2::Shr, b, shift) & expr::constant_i64(DType::I32, (1 << bits) - 1)
}

fn matmul_nbits(cx: &mut Cx, call: &Call) -> OpResult {
    let [a, b, scales] = [call.input(0)?, call.input(1)?, call.input(2)?].map(|t| Operand::of(cx, t));
    need_float(a.dtype)?;
    let (n, k, block, bits) =
        (needed(call, "N")?, needed(call, "K")?, needed(call, "block_size")?, call.int("bits", 4)?);
    if ![2, 4, 8].contains(&bits) || block % (8 / bits) != 0 {
        return Err(OpError::Unsupported(format!("{bits} bits in blocks of {block}")));
    }
    let blocks = (k + block - 1) / block;
    let bytes = block * bits / 8;
    if b.dtype != DType::U8 {
        return Err(OpError::Invalid(format!("the weights have element type {}, not uint8", b.dtype)));
    }
    require_count(cx, &b, n * blocks * bytes, "the weights")?;
    require_count(cx, &scales, n * blocks, "the scales")?;
    let b = flat(cx, &b, &[n, blocks * bytes]);
    let scales = flat(cx, &scales, &[n, blocks]);
    let row = (blocks * bits + 7) / 8;
    let zeros = match call.opt(3) {
        None => None,
        Some(t) => {
            let o = Operand::of(cx, t);
            let each = if o.dtype == DType::U8 { row } else { blocks };
            require_count(cx, &o, n * each, "the zero points")?;
            Some(flat(cx, &o, &[n, each]))
        }
    };
    // The block that gives scale and zero point of a row, where it is not the one that holds it.
    let groups = match call.opt(4) {
        None => None,
        Some(t) => {
            let o = Operand::of(cx, t);
            if o.rank() != 1 || !o.dtype.is_int() {
                return Err(OpError::Invalid("g_idx must be a list of integers".into()));
            }
            // onnxruntime's own tools pad it to whole blocks.
            cx.require_at_most(Int::new(k), o.shape[0], "rows against the length of g_idx")?;
            Some(o)
        }
    };
    // A block's numbers are packed by themselves, but blocks fill whole bytes.
    let wide = a.dtype.compute();
    let weights = cx.map(a.dtype, vec![Int::new(k), Int::new(n)], |i| {
        let column = i[1];
        let place = i[0].div(block);
        let q = unpacked(bits, i[0].rem(block), &|byte| b.at(&[column, place * bytes + byte]));
        let group = groups.as_ref().map_or(place, |g| guard_index(expr::as_int(g.at(&[i[0]])), Int::new(blocks)));
        let zero = match &zeros {
            None => expr::constant_f64(wide, f64::from(1 << (bits - 1))),
            Some(z) if z.dtype == DType::U8 => unpacked(bits, group, &|byte| z.at(&[column, byte])).to(wide),
            Some(z) => z.at(&[column, group]).to(wide),
        };
        (q.to(wide) - zero) * scales.at(&[column, group]).to(wide)
    });
    let y = product(cx, a.id, weights, a.dtype, a.dtype)?;
    match call.opt(5) {
        Some(bias) => Ok(vec![apply(cx, "Add", &[Some(y), Some(bias)], &[])?]),
        None => Ok(vec![y]),
    }
}

/// The sixteen values of a four-bit float of bitsandbytes: sign, exponent and mantissa in no standard order.
const FP4: [f32; 16] = [
    0.0,
    0.005_208_333_3,
    0.666_666_7,
    1.0,
    0.333_333_34,
    0.5,
    0.166_666_67,
    0.25,
    0.0,
    -0.005_208_333_3,
    -0.666_666_7,
    -1.0,
    -0.333_333_34,
    -0.5,
    -0.166_666_67,
    -0.25,
];

/// The sixteen quantiles of a normal distribution of bitsandbytes.
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// Weights of four bits by a table of values, the first of two in the upper half of a byte; scales are the largest
/// magnitudes of runs of `block_size` numbers of the whole matrix, which is `[N, K]`.
fn matmul_bnb4(cx: &mut Cx, call: &Call) -> OpResult {
    let [a, b, largest] = [call.input(0)?, call.input(1)?, call.input(2)?].map(|t| Operand::of(cx, t));
    need_float(a.dtype)?;
    let (n, k, block) = (needed(call, "N")?, needed(call, "K")?, needed(call, "block_size")?);
    let values = match call.opt_int("quant_type")? {
        Some(0) => &FP4,
        Some(1) => &NF4,
        other => return Err(OpError::Invalid(format!("attribute 'quant_type' is {other:?}, neither 0 nor 1"))),
    };
    if b.dtype != DType::U8 {
        return Err(OpError::Invalid(format!("the weights have element type {}, not uint8", b.dtype)));
    }
    let bytes = (n * k + 1) / 2;
    let blocks = (n * k + block - 1) / block;
    require_count(cx, &b, bytes, "the weights")?;
    require_count(cx, &largest, blocks, "the scales")?;
    let (b, largest) = (flat(cx, &b, &[bytes]), flat(cx, &largest, &[blocks]));
    let values = cx.constant_f32(&[16], values);
    let values = Operand::of(cx, values);
    let wide = a.dtype.compute();
    let turned = call.int("transB", 1)? != 0;
    let shape = if turned { vec![Int::new(k), Int::new(n)] } else { vec![Int::new(n), Int::new(k)] };
    let weights = cx.map(a.dtype, shape, |i| {
        let (row, column) = if turned { (i[1], i[0]) } else { (i[0], i[1]) };
        let at = row * k + column;
        // The upper half comes first.
        let half = Int::new(1) - at.rem(2);
        let code = unpacked(4, half + at.div(2) * 2, &|byte| b.at(&[byte]));
        let value = values.at(&[guard_index(expr::as_int(code.to(DType::I64)), Int::new(16))]);
        value.to(wide) * largest.at(&[at.div(block)]).to(wide)
    });
    Ok(vec![product(cx, a.id, weights, a.dtype, a.dtype)?])
}

/// `Gather` of numbers quantised in blocks along one axis, made floats. Numbers of less than eight bits in bytes are packed
/// along the last axis. An index outside of its axis gives zeros.
fn gather_block_quantized(cx: &mut Cx, call: &Call) -> OpResult {
    let [data, indices, scales] = [call.input(0)?, call.input(1)?, call.input(2)?].map(|t| Operand::of(cx, t));
    let from = elem(cx, data.id);
    let rank = data.rank();
    need_float(scales.dtype)?;
    if rank == 0 || scales.rank() != rank || !indices.dtype.is_int() {
        return Err(OpError::Invalid("data and scales must have the same axes, and indices be integers".into()));
    }
    let packed = from == ElemType::Plain(DType::U8);
    let bits = call.int("bits", 4)?;
    let per = match (from, bits) {
        (ElemType::Plain(DType::U8), 2 | 4 | 8) => 8 / bits,
        (ElemType::U4 | ElemType::I4, 4) => 1,
        (ElemType::Plain(DType::U8) | ElemType::U4 | ElemType::I4, _) => {
            return Err(OpError::Unsupported(format!("attribute 'bits' = {bits} with data of type {from}")));
        }
        _ if from.dtype().is_none() && integer_range(from).is_none() => 1,
        _ => return Err(OpError::Unsupported(format!("data of type {from}"))),
    };
    let integer = integer_range(from).is_some();
    let axis = cx.axis(call.int("gather_axis", 0)?, rank)?;
    let along = cx.axis(call.int("quantize_axis", 1)?, rank)?;
    if packed && axis != 0 {
        return Err(OpError::Invalid(format!("gather_axis = {axis} of packed bytes")));
    }
    let mut shape = data.shape.clone();
    shape[rank - 1] = shape[rank - 1] * per;
    let block = match call.int("block_size", 128)? {
        0 if !integer => shape[along],
        n if n > 0 => Int::new(n),
        n => return Err(OpError::Invalid(format!("attribute 'block_size' is {n}"))),
    };
    for (k, (s, d)) in scales.shape.iter().zip(&shape).enumerate() {
        let want = if k == along { d.ceil_div(block) } else { *d };
        let alone = !integer && *s == Int::new(1);
        if !alone {
            cx.require_equal(*s, want, "shape of the scales")?;
        }
    }
    let zeros = match call.opt(3) {
        None => None,
        Some(t) if integer && elem(cx, t) == from => {
            let z = Operand::of(cx, t);
            if z.rank() != rank {
                return Err(OpError::Invalid(format!("zero points of rank {} for rank {rank}", z.rank())));
            }
            for (k, (s, d)) in z.shape.iter().zip(&scales.shape).enumerate() {
                let want = if k == rank - 1 { d.ceil_div(per) } else { *d };
                cx.require_equal(*s, want, "shape of the zero points")?;
            }
            Some(z)
        }
        Some(t) => return Err(OpError::Invalid(format!("zero points of type {} for {from}", elem(cx, t)))),
    };
    let picked = indices.rank();
    let out = [&shape[..axis], &indices.shape, &shape[axis + 1..]].concat();
    let to = scales.dtype;
    let (wide, size) = (DType::F32, shape[axis]);
    // An element of integers that may be packed along the last axis.
    let element = |o: &Operand, at: &[Int]| -> Expr {
        if per == 1 {
            return o.at(at);
        }
        let (last, head) = (at[rank - 1], &at[..rank - 1]);
        unpacked(bits, last, &|byte| o.at(&[head, &[byte]].concat()))
    };
    let y = cx.map(to, out, |i| {
        let raw = expr::as_int(indices.at(&i[axis..axis + picked]).to(DType::I64));
        let index = raw.if_lt(0, raw + size, raw);
        let inside = super::scalar::within(index, 0, size);
        let index = index.max(0).min(size - 1);
        let at = [&i[..axis], &[index], &i[axis + picked..]].concat();
        let mut group = at.clone();
        group[along] = at[along].div(block);
        let value = if integer {
            let v = element(&data, &at).to(DType::I32);
            match &zeros {
                Some(z) => v - element(z, &group).to(DType::I32),
                None if packed => v - expr::constant_i64(DType::I32, 1 << (bits - 1)),
                None => v,
            }
        } else {
            decode(from, data.at(&at))
        };
        let v = value.to(wide) * scales.spread(&group).to(wide);
        super::operand::convert(inside.then(v, v.num(0.0)), to)
    });
    Ok(vec![y])
}
