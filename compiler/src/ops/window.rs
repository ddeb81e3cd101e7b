//! Sliding windows: the attributes that convolutions and pools share, and padding.

use super::Call;
use super::scalar::{and, within};
use crate::sym::Int;
use crate::te::{Cx, Expr, OpError, OpResult, TensorId, expr};

/// A window that slides over the spatial axes (all but the first two).
pub(super) struct Window {
    /// Cells along each axis.
    pub(super) kernel: Vec<Int>,
    /// Steps between windows.
    pub(super) strides: Vec<i64>,
    /// Steps between cells.
    pub(super) dilations: Vec<i64>,
    /// Padding before each axis.
    pub(super) begin: Vec<Int>,
    /// Padding after each axis.
    pub(super) end: Vec<Int>,
    /// Sizes of the input's spatial axes.
    pub(super) input: Vec<Int>,
    /// Numbers of windows.
    pub(super) output: Vec<Int>,
    /// The last windows may hang over the padded input's end.
    pub(super) overhang: bool,
}

/// How padding is chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AutoPad {
    /// By attribute `pads`.
    Explicit,
    /// So that an output is as large as its input over the stride, odd padding at the end.
    SameUpper,
    /// The same, odd padding at the start.
    SameLower,
    /// None.
    Valid,
}

/// Attribute `auto_pad`.
pub(super) fn auto_pad(call: &Call) -> OpResult<AutoPad> {
    match call.string("auto_pad", "NOTSET".into())?.as_str() {
        "NOTSET" | "" => Ok(AutoPad::Explicit),
        "SAME_UPPER" => Ok(AutoPad::SameUpper),
        "SAME_LOWER" => Ok(AutoPad::SameLower),
        "VALID" => Ok(AutoPad::Valid),
        other => Err(OpError::Invalid(format!("unknown value '{other}' of attribute 'auto_pad'"))),
    }
}

/// An attribute with a number for each of `axes` spatial axes, each at least `least`.
pub(super) fn per_axis(call: &Call, name: &str, axes: usize, default: i64, least: i64) -> OpResult<Vec<i64>> {
    let v = call.ints(name, vec![default; axes])?;
    if v.len() != axes {
        return Err(OpError::Invalid(format!("attribute '{name}' has {} numbers; {axes} are needed", v.len())));
    }
    match v.iter().find(|x| **x < least || **x > i64::from(i32::MAX)) {
        Some(x) => Err(OpError::Invalid(format!("attribute '{name}' holds {x}; it must be at least {least}"))),
        None => Ok(v),
    }
}

/// The spatial dimensions of a tensor that has at least one.
pub(super) fn spatial(cx: &Cx, x: TensorId) -> OpResult<Vec<Int>> {
    let shape = cx.shape(x);
    if shape.len() < 3 {
        return Err(OpError::Invalid(format!(
            "the input has rank {}; at least one spatial axis is needed",
            shape.len()
        )));
    }
    Ok(shape[2..].to_vec())
}

impl Window {
    /// Reads the attributes; `ceil` rounds the number of windows up.
    pub(super) fn of(cx: &mut Cx, call: &Call, input: Vec<Int>, kernel: Vec<Int>, ceil: bool) -> OpResult<Window> {
        let axes = input.len();
        if kernel.len() != axes {
            return Err(OpError::Invalid(format!("the kernel has {} axes, the input {axes}", kernel.len())));
        }
        let strides = per_axis(call, "strides", axes, 1, 1)?;
        let dilations = per_axis(call, "dilations", axes, 1, 1)?;
        let pads = per_axis(call, "pads", 2 * axes, 0, 0)?;
        let mode = auto_pad(call)?;
        let overhang = ceil && mode == AutoPad::Explicit;
        let mut w = Window { kernel, strides, dilations, begin: vec![], end: vec![], input, output: vec![], overhang };
        for d in 0..axes {
            let (size, stride, reach) = (w.input[d], w.strides[d], w.reach(d));
            let (begin, end) = match mode {
                AutoPad::Explicit => (Int::new(pads[d]), Int::new(pads[axes + d])),
                AutoPad::Valid => (Int::new(0), Int::new(0)),
                AutoPad::SameUpper | AutoPad::SameLower => {
                    let total = ((size.ceil_div(stride) - 1) * stride + reach - size).max(0);
                    let less = total.div(2);
                    if mode == AutoPad::SameUpper { (less, total - less) } else { (total - less, less) }
                }
            };
            let output = if matches!(mode, AutoPad::SameUpper | AutoPad::SameLower) {
                size.ceil_div(stride)
            } else {
                cx.require_at_most(reach, size + begin + end, "the kernel is larger than the padded input")?;
                let room = size + begin + end - reach;
                if overhang {
                    // The last window may hang over the end, but not start behind the input.
                    let last = room.ceil_div(stride);
                    (last * stride).if_lt(size + begin, last + 1, last)
                } else {
                    room.div(stride) + 1
                }
            };
            w.begin.push(begin);
            w.end.push(end);
            w.output.push(output);
        }
        Ok(w)
    }

    /// Number of spatial axes.
    pub(super) fn axes(&self) -> usize {
        self.input.len()
    }

    /// Cells from the first to the last of a window along axis `d`.
    pub(super) fn reach(&self, d: usize) -> Int {
        (self.kernel[d] - 1) * self.dilations[d] + 1
    }

    /// Position within the padded input, for the window at `out` and its cell `k`.
    pub(super) fn at(&self, d: usize, out: Int, k: Int) -> Int {
        out * self.strides[d] + k * self.dilations[d]
    }

    /// Size of the padded input along axis `d`, as far as windows reach. Where windows leave out part of the end it is kept:
    /// an unpadded input then needs no copy.
    pub(super) fn padded(&self, d: usize) -> Int {
        let all = self.input[d] + self.begin[d] + self.end[d];
        if !self.overhang {
            return all;
        }
        ((self.output[d] - 1) * self.strides[d] + self.reach(d)).max(all)
    }

    /// The input with padding `fill` around its spatial axes; itself if there is none.
    pub(super) fn pad(&self, cx: &mut Cx, x: TensorId, fill: Expr) -> TensorId {
        let sizes: Vec<Int> = (0..self.axes()).map(|d| self.padded(d)).collect();
        if self.is_inside() {
            return x;
        }
        let shape: Vec<Int> = cx.shape(x)[..2].iter().copied().chain(sizes).collect();
        let dtype = cx.dtype(x);
        cx.map(dtype, shape, |i| {
            let mut at = i.to_vec();
            let mut inside = expr::boolean(true);
            for d in 0..self.axes() {
                at[2 + d] = i[2 + d] - self.begin[d];
                inside = and(inside, within(at[2 + d], 0, self.input[d]));
            }
            expr::select(inside, expr::load(x, dtype, at), fill)
        })
    }

    /// How many cells of the window at `out` lie on the input along axis `d`, or on the padded input.
    pub(super) fn cells(&self, d: usize, out: Int, padding_counts: bool) -> Int {
        let start = out * self.strides[d] - self.begin[d];
        let (lo, hi) =
            if padding_counts { (-self.begin[d], self.input[d] + self.end[d]) } else { (Int::new(0), self.input[d]) };
        let first = (lo - start).ceil_div(self.dilations[d]).max(0);
        let behind = (hi - start).ceil_div(self.dilations[d]).min(self.kernel[d]);
        behind - first
    }

    /// Does every cell of every window lie on the input?
    pub(super) fn is_inside(&self) -> bool {
        let zero = Int::new(0);
        (0..self.axes()).all(|d| self.begin[d] == zero && self.end[d] == zero && self.padded(d) == self.input[d])
    }
}
