//! Sampling at positions given as data.

use super::interpolate::{Kernel, working_type};
use super::operand::{Operand, need_float};
use super::sizes::{dims, input_count, int_list, invalid, unsupported};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, Func1, OpResult, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "GridSample", grid_sample), ("", "AffineGrid", affine_grid)];

/// What is seen beyond the borders.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// Positions along one axis of size `d`, and how elements beyond its ends are read.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) d: Int,
    pub(super) padding: Padding,
    pub(super) align_corners: bool,
}

impl Side {
    /// The ends that positions are reflected at.
    fn ends(&self, float: DType) -> (Expr, Expr) {
        let edge = if self.align_corners { 0.0 } else { 0.5 };
        let c = expr::constant_f64(float, edge);
        (-c, size(float, self.d - 1) + c)
    }

    /// A normalized position (-1 to 1) as one in elements.
    fn unnormalized(&self, n: Expr) -> Expr {
        let c = |v| expr::constant_f64(n.dtype(), v);
        if self.align_corners {
            (n + c(1.0)) / c(2.0) * size(n.dtype(), self.d - 1)
        } else {
            ((n + c(1.0)) * size(n.dtype(), self.d) - c(1.0)) / c(2.0)
        }
    }

    /// A position brought within the borders as the padding says.
    fn within(&self, x: Expr) -> Expr {
        let (low, high) = self.ends(x.dtype());
        match self.padding {
            Padding::Zeros => x,
            Padding::Border => {
                let zero = expr::constant_f64(x.dtype(), 0.0);
                let clamped = x.max_(zero).min_(size(x.dtype(), self.d - 1));
                expr::select(x.lt_(low) | x.gt_(high), clamped, x)
            }
            Padding::Reflection => reflected(x, low, high),
        }
    }

    /// Whether element `i` (`I64`) is read, and where.
    fn element(&self, i: Expr) -> (Expr, Int) {
        let (zero, last) = (expr::int(Int::new(0)), expr::int(self.d - 1));
        let clamp = |i: Expr| expr::as_int(i.max_(zero).min_(last));
        match self.padding {
            Padding::Zeros => (i.ge_(zero) & i.le_(last), clamp(i)),
            Padding::Border => (expr::boolean(true), clamp(i)),
            Padding::Reflection => {
                let (low, high) = self.ends(DType::F64);
                let there = reflected(expr::cast(DType::F64, i), low, high);
                (expr::boolean(true), clamp(expr::cast(DType::I64, there)))
            }
        }
    }
}

fn size(float: DType, d: Int) -> Expr {
    expr::cast(float, expr::int(d))
}

/// `x` reflected at `low` and `high` until it lies between them.
fn reflected(x: Expr, low: Expr, high: Expr) -> Expr {
    let c = |v| expr::constant_f64(x.dtype(), v);
    let range = high - low;
    let below = x.lt_(low);
    let beyond = expr::select(below, low - x, x - high);
    // One element alone reflects onto itself.
    let single = range.le_(c(0.0));
    let times = expr::un(Func1::Trunc, beyond / expr::select(single, c(1.0), range));
    let rest = expr::select(single, c(0.0), beyond - times * range);
    let odd = (times - c(2.0) * (times / c(2.0)).floor()).ne_(c(0.0));
    // An even number of full widths leaves the end that was crossed as the mirror.
    let from_low = expr::select(below, !odd, odd);
    let inside = x.ge_(low) & x.le_(high);
    expr::select(inside, x, expr::select(from_low, low + rest, high - rest))
}

/// The weighted sum of the elements around the position whose components are `x`, one a side. `at` gives an element;
/// positions have been brought within the borders.
pub(super) fn sample(to: DType, sides: &[Side], x: &[Expr], kernel: Kernel, at: &dyn Fn(&[Int]) -> Expr) -> Expr {
    fn go(
        to: DType,
        sides: &[Side],
        x: &[Expr],
        kernel: Kernel,
        at: &dyn Fn(&[Int]) -> Expr,
        hit: Expr,
        index: &[Int],
    ) -> Expr {
        let ([side, sides @ ..], [x, rest @ ..]) = (sides, x) else {
            return expr::select(hit, expr::cast(to, at(index)), expr::constant_f64(to, 0.0));
        };
        let low = x.floor();
        let part = *x - low;
        let base = expr::cast(DType::I64, low);
        let mut sum: Option<Expr> = None;
        for k in 1 - kernel.reach()..=kernel.reach() {
            let (inside, i) = side.element(base + expr::int(Int::new(k)));
            let w = kernel.weight(expr::constant_f64(x.dtype(), k as f64) - part);
            let term = expr::cast(to, w) * go(to, sides, rest, kernel, at, hit & inside, &[index, &[i]].concat());
            sum = Some(sum.map_or(term, |s| s + term));
        }
        sum.unwrap_or_else(|| expr::constant_f64(to, 0.0))
    }
    go(to, sides, x, kernel, at, expr::boolean(true), &[])
}

fn grid_sample(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 2)?;
    let (x, grid) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(1)?));
    need_float(grid.dtype)?;
    let spatial = x.rank().saturating_sub(2);
    if spatial == 0 || grid.rank() != x.rank() {
        return invalid(format!("X has {} axes and grid {}", x.rank(), grid.rank()));
    }
    cx.require_equal(x.shape[0], grid.shape[0], "batches of X and grid")?;
    cx.require_equal(grid.shape[spatial + 1], Int::from(spatial), "numbers of a grid position")?;
    let mode = call.string("mode", if call.version < 20 { "bilinear" } else { "linear" }.into())?;
    let kernel = match mode.as_str() {
        "nearest" => None,
        "linear" | "bilinear" => Some(Kernel::Linear),
        "cubic" | "bicubic" => Some(Kernel::Cubic(-0.75)),
        other => return unsupported(format!("mode '{other}'")),
    };
    if spatial > 3 || (spatial > 2 && matches!(kernel, Some(Kernel::Cubic(_)))) {
        return unsupported(format!("mode '{mode}' with {spatial} spatial axes"));
    }
    let padding = match call.string("padding_mode", "zeros".into())?.as_str() {
        "zeros" => Padding::Zeros,
        "border" => Padding::Border,
        "reflection" => Padding::Reflection,
        other => return unsupported(format!("padding_mode '{other}'")),
    };
    let align_corners = call.int("align_corners", 0)? != 0;
    let sides: Vec<Side> = x.shape[2..].iter().map(|d| Side { d: *d, padding, align_corners }).collect();

    // Positions in elements, outermost axis first, shared by all channels.
    let float = grid.dtype.compute();
    let places: Vec<Operand> = (0..spatial)
        .map(|k| {
            let t = cx.map(float, grid.shape[..=spatial].to_vec(), |i| {
                let n = grid.at(&[i, &[Int::from(spatial - 1 - k)]].concat());
                let x = sides[k].unnormalized(n);
                match kernel {
                    None => sides[k].within(expr::un(Func1::Round, x)),
                    // As PyTorch and onnxruntime do it: neighbours are brought within the borders, not the position. ONNX's
                    // reference moves the position, too.
                    Some(Kernel::Cubic(_)) if padding == Padding::Border => x,
                    Some(_) => sides[k].within(x),
                }
            });
            Operand::of(cx, t)
        })
        .collect();
    let out = [&x.shape[..2], &grid.shape[1..=spatial]].concat();
    let to = working_type(x.dtype);
    Ok(vec![cx.map(x.dtype, out, |i| {
        let place = [&i[..1], &i[2..]].concat();
        let at: Vec<Expr> = places.iter().map(|p| p.at(&place)).collect();
        let element = |index: &[Int]| x.at(&[&i[..2], index].concat());
        match kernel {
            Some(kernel) => super::interpolate::rounded(x.dtype, sample(to, &sides, &at, kernel, &element)),
            None => {
                let mut hit = expr::boolean(true);
                let mut index = vec![];
                for (side, p) in sides.iter().zip(&at) {
                    let (inside, i) = side.element(expr::cast(DType::I64, *p));
                    hit = hit & inside;
                    index.push(i);
                }
                expr::select(hit, element(&index), expr::constant_f64(x.dtype, 0.0))
            }
        }
    })])
}

fn affine_grid(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 2)?;
    let theta = Operand::of(cx, call.input(0)?);
    need_float(theta.dtype)?;
    let sizes = int_list(cx, call.input(1)?, "size")?;
    let spatial = sizes.len().saturating_sub(2);
    if !(2..=3).contains(&spatial) || theta.rank() != 3 {
        return invalid(format!("size has {} numbers and theta {} axes", sizes.len(), theta.rank()));
    }
    cx.require_equal(theta.shape[0], sizes[0], "batches of theta and size")?;
    cx.require_equal(theta.shape[1], Int::from(spatial), "rows of theta")?;
    cx.require_equal(theta.shape[2], Int::from(spatial + 1), "columns of theta")?;
    let align_corners = call.int("align_corners", 0)? != 0;
    let dims = dims(cx, &sizes[2..])?;
    let out = [&theta.shape[..1], dims.as_slice(), &[Int::from(spatial)]].concat();
    let c = |v| expr::constant_f64(DType::F64, v);
    Ok(vec![cx.map(theta.dtype, out, |i| {
        let row = i[spatial + 1];
        let matrix = |k: usize| expr::cast(DType::F64, theta.at(&[i[0], row, Int::from(k)]));
        let mut sum = matrix(spatial);
        // The innermost axis is the first coordinate.
        for k in 0..spatial {
            let axis = spatial - 1 - k;
            let (place, d) = (i[1 + axis], dims[axis]);
            let along = if align_corners {
                // A single position lies at the start.
                let steps = size(DType::F64, (d - 1).max(1));
                size(DType::F64, place * 2) / steps - c(1.0)
            } else {
                size(DType::F64, place * 2 + 1) / size(DType::F64, d) - c(1.0)
            };
            sum = sum + matrix(k) * along;
        }
        expr::cast(theta.dtype.compute(), sum)
    })])
}
