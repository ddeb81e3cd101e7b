//! Resizing by interpolation.
//!
//! Each resized axis gets two small tables, the positions and the weights of the input elements that an output position
//! is made of; they are constants if sizes and scales are. Scales are kept as ratios of integers wherever they are known,
//! so that an exact tie between two pixels is seen as one.

use super::interpolate::{Kernel, Taps, combine, freeze, number};
use super::operand::{Operand, need_number};
use super::sizes::{dim, dims, int_list, invalid, norm_axes, unsupported};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpResult, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "Resize", resize), ("", "Upsample", upsample)];

/// A scale along one axis.
#[derive(Clone, Copy)]
enum Scale {
    /// A ratio of two positive integers.
    Ratio(Int, Int),
    /// Known only at run time, as `F64`.
    Number(Expr),
}

/// Where an output position lies in the input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapping {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    CropAndResize,
}

/// Which of the two pixels beside a position is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nearest {
    RoundDown,
    RoundUp,
    Floor,
    Ceil,
}

enum Mode {
    Nearest(Nearest),
    Smooth(Kernel),
}

/// One axis that changes.
struct Axis {
    axis: usize,
    input: Int,
    output: Int,
    scale: Scale,
    /// Start and end of the region of interest, as `F64`.
    roi: Option<(Expr, Expr)>,
}

struct Options {
    mode: Mode,
    mapping: Mapping,
    antialias: bool,
    exclude_outside: bool,
    extrapolation: f64,
}

fn upsample(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    let mode = match call.string("mode", "nearest".into())?.as_str() {
        "nearest" => Mode::Nearest(Nearest::Floor),
        "linear" | "bilinear" => Mode::Smooth(Kernel::Linear),
        other => return unsupported(format!("mode '{other}'")),
    };
    let scales = if call.version < 7 {
        let (Some(h), Some(w)) = (call.opt_float("height_scale")?, call.opt_float("width_scale")?) else {
            return invalid("attributes 'height_scale' and 'width_scale' are needed");
        };
        if x.rank() != 4 {
            return invalid(format!("the input must have 4 axes, not {}", x.rank()));
        }
        [1.0, 1.0, h, w].iter().map(|s| ratio(f64::from(*s))).collect::<OpResult<Vec<_>>>()?
    } else if call.version < 9 {
        let Some(scales) = call.opt_floats("scales")? else { return invalid("attribute 'scales' is missing") };
        scales.iter().map(|s| ratio(f64::from(*s))).collect::<OpResult<Vec<_>>>()?
    } else {
        scales_operand(cx, call.input(1)?, x.rank())?
    };
    let options =
        Options { mode, mapping: Mapping::Asymmetric, antialias: false, exclude_outside: false, extrapolation: 0.0 };
    let all: Vec<usize> = (0..x.rank()).collect();
    let axes = by_scales(cx, &x, &all, &scales)?;
    Ok(vec![resized(cx, &x, axes, &options)?])
}

fn resize(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_number(x.dtype)?;
    let rank = x.rank();
    let mode = call.string("mode", "nearest".into())?;
    if call.version < 11 {
        return upsample(cx, call);
    }
    let mode = match mode.as_str() {
        "nearest" => Mode::Nearest(match call.string("nearest_mode", "round_prefer_floor".into())?.as_str() {
            "round_prefer_floor" => Nearest::RoundDown,
            "round_prefer_ceil" => Nearest::RoundUp,
            "floor" => Nearest::Floor,
            "ceil" => Nearest::Ceil,
            other => return unsupported(format!("nearest_mode '{other}'")),
        }),
        "linear" => Mode::Smooth(Kernel::Linear),
        "cubic" => Mode::Smooth(Kernel::Cubic(call.float("cubic_coeff_a", -0.75)?.into())),
        other => return unsupported(format!("mode '{other}'")),
    };
    let mapping = match call.string("coordinate_transformation_mode", "half_pixel".into())?.as_str() {
        "half_pixel" => Mapping::HalfPixel,
        "half_pixel_symmetric" => Mapping::HalfPixelSymmetric,
        "pytorch_half_pixel" => Mapping::PytorchHalfPixel,
        "align_corners" => Mapping::AlignCorners,
        "asymmetric" => Mapping::Asymmetric,
        "tf_crop_and_resize" => Mapping::CropAndResize,
        other => return unsupported(format!("coordinate_transformation_mode '{other}'")),
    };
    let options = Options {
        mode,
        mapping,
        antialias: call.version >= 18 && call.int("antialias", 0)? != 0,
        exclude_outside: call.int("exclude_outside", 0)? != 0,
        extrapolation: call.float("extrapolation_value", 0.0)?.into(),
    };
    let axes = call.ints("axes", (0..rank as i64).collect())?;
    let axes: Vec<Int> = axes.into_iter().map(Int::new).collect();
    let axes = norm_axes(cx, &axes, rank)?;
    let axes: Vec<usize> = axes.iter().filter_map(|a| a.as_const()).map(|a| a as usize).collect();

    // Before opset 13 an operand that does not apply is given as an empty tensor.
    let given = |cx: &Cx, k: usize| call.opt(k).filter(|t| cx.numel(*t) != Int::new(0));
    let mut changed = match (given(cx, 2), given(cx, 3)) {
        (Some(_), Some(_)) => return invalid("both scales and sizes are given"),
        (None, None) => return invalid("neither scales nor sizes are given"),
        (Some(t), None) => {
            let scales = scales_operand(cx, t, axes.len())?;
            by_scales(cx, &x, &axes, &scales)?
        }
        (None, Some(t)) => {
            let sizes = int_list(cx, t, "sizes")?;
            let policy = call.string("keep_aspect_ratio_policy", "stretch".into())?;
            let sizes = dims(cx, &sizes)?;
            by_sizes(&x, &axes, &sizes, &policy)?
        }
    };
    if mapping == Mapping::CropAndResize {
        let Some(t) = given(cx, 1) else { return invalid("tf_crop_and_resize needs roi") };
        let roi = Operand::of(cx, t);
        if roi.rank() != 1 {
            return invalid("roi must be a list");
        }
        cx.require_equal(roi.shape[0], Int::from(2 * axes.len()), "numbers in roi")?;
        for a in &mut changed {
            let k = axes.iter().position(|axis| *axis == a.axis).unwrap_or(0);
            let at = |k: usize| expr::cast(DType::F64, roi.at(&[Int::from(k)]));
            a.roi = Some((at(k), at(k + axes.len())));
        }
    }
    Ok(vec![resized(cx, &x, changed, &options)?])
}

/// A positive float as a ratio of integers, exactly.
fn ratio(scale: f64) -> OpResult<Scale> {
    let usable = scale.is_finite() && scale > 1e-6 && scale < 1e6;
    if !usable {
        return invalid(format!("scale {scale}"));
    }
    let (mut num, mut den) = (scale, 1i64);
    // Scales are `f32`: at most 24 significant bits, so this ends.
    while num.fract() != 0.0 && den < 1 << 50 {
        num *= 2.0;
        den *= 2;
    }
    Ok(Scale::Ratio(Int::new(num as i64), Int::new(den)))
}

/// The scales in an operand, one for each of `axes` axes.
fn scales_operand(cx: &mut Cx, t: TensorId, axes: usize) -> OpResult<Vec<Scale>> {
    let x = Operand::of(cx, t);
    if x.rank() != 1 || !x.dtype.is_float() {
        return invalid("scales must be a list of floats");
    }
    cx.require_equal(x.shape[0], Int::from(axes), "number of scales")?;
    match cx.const_floats(t) {
        Some(scales) => scales.into_iter().map(ratio).collect(),
        None => Ok((0..axes).map(|k| Scale::Number(expr::cast(DType::F64, x.at(&[Int::from(k)])))).collect()),
    }
}

/// Products of numerators of scales up to this one with sizes up to 2^13 are exact in single precision.
const EXACT: i64 = 1 << 11;

fn by_scales(cx: &mut Cx, x: &Operand, axes: &[usize], scales: &[Scale]) -> OpResult<Vec<Axis>> {
    if axes.len() != scales.len() {
        return invalid(format!("{} scales for {} axes", scales.len(), axes.len()));
    }
    let mut out = vec![];
    for (axis, scale) in axes.iter().zip(scales) {
        let input = x.shape[*axis];
        // As in onnxruntime the product is rounded to single precision: 0.7 of 10 are 7, though 0.7 is a little less there.
        let (ratio, scaled) = match scale {
            Scale::Number(scale) => (None, *scale),
            Scale::Ratio(num, den) => (num.as_const().zip(den.as_const()), number(*num) / number(*den)),
        };
        let output = match (ratio, input.as_const()) {
            (Some((num, den)), Some(n)) => {
                let scale = (num as f64 / den as f64) as f32;
                Int::new((n as f32 * scale).floor() as i64)
            }
            (Some((num, den)), None) if num <= EXACT => (input * num).div(den),
            _ => {
                let size = (number(input).to(DType::F32) * scaled.to(DType::F32)).floor();
                let size = cx.map(DType::I64, vec![], |_| expr::cast(DType::I64, size));
                let size = cx.read(size, 0, "size", None, None);
                dim(cx, size)?
            }
        };
        out.push(Axis { axis: *axis, input, output, scale: *scale, roi: None });
    }
    Ok(out)
}

fn by_sizes(x: &Operand, axes: &[usize], sizes: &[Int], policy: &str) -> OpResult<Vec<Axis>> {
    if axes.len() != sizes.len() {
        return invalid(format!("{} sizes for {} axes", sizes.len(), axes.len()));
    }
    let larger = match policy {
        "stretch" => None,
        "not_larger" => Some(false),
        "not_smaller" => Some(true),
        other => return unsupported(format!("keep_aspect_ratio_policy '{other}'")),
    };
    let ratios: Vec<(Int, Int)> = axes.iter().zip(sizes).map(|(axis, s)| (*s, x.shape[*axis])).collect();
    // One scale for all axes: the smallest or the largest of them.
    let common = larger.and_then(|larger| {
        ratios.iter().copied().reduce(|(n, d), (n2, d2)| {
            let (ours, theirs) = (n * d2, n2 * d);
            let pick = |a: Int, b: Int| if larger { ours.if_lt(theirs, b, a) } else { theirs.if_lt(ours, b, a) };
            (pick(n, n2), pick(d, d2))
        })
    });
    let each = axes.iter().zip(&ratios).map(|(axis, (size, input))| {
        let ((num, den), output) = match common {
            // Rounded, halves up.
            Some((n, d)) => ((n, d), (n * *input * 2 + d).div(d * 2)),
            None => ((*size, *input), *size),
        };
        Axis { axis: *axis, input: *input, output, scale: Scale::Ratio(num, den), roi: None }
    });
    Ok(each.collect())
}

/// Common factors of a ratio taken out, where they are seen.
fn reduced(num: Int, den: Int) -> (Int, Int) {
    if let (Some(n), Some(d)) = (num.as_const(), den.as_const())
        && n > 0
        && d > 0
    {
        let (mut a, mut b) = (n, d);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        return (Int::new(n / a), Int::new(d / a));
    }
    for c in 1..=16 {
        if num == den * c {
            return (Int::new(c), Int::new(1));
        }
        if den == num * c {
            return (Int::new(1), Int::new(c));
        }
    }
    (num, den)
}

impl Axis {
    fn is_identity(&self) -> bool {
        let one = match self.scale {
            Scale::Ratio(n, d) => n == d,
            Scale::Number(_) => false,
        };
        one && self.input == self.output && self.roi.is_none()
    }

    /// The input position of output position `y`, as `F64`.
    fn position(&self, mapping: Mapping, y: Int) -> Expr {
        let (input, output) = (number(self.input), number(self.output));
        let (half, one) = (constant(0.5), constant(1.0));
        // `v / scale` for twice `v` an integer, with one rounding if the scale is a ratio.
        let over = |twice: Int| match self.scale {
            Scale::Ratio(n, d) => number(twice * d) / number(n * 2),
            Scale::Number(s) => number(twice) * half / s,
        };
        let half_pixel = || over(y * 2 + 1) - half;
        // The output's width before it was cut to an integer.
        let width = match self.scale {
            Scale::Ratio(n, d) => number(self.input * n) / number(d),
            Scale::Number(s) => input * s,
        };
        let single = width.eq_(one);
        match mapping {
            Mapping::HalfPixel => half_pixel(),
            Mapping::PytorchHalfPixel => expr::select(single, constant(-0.5), half_pixel()),
            Mapping::HalfPixelSymmetric => {
                let offset = input * half * (one - output / width);
                offset + half_pixel()
            }
            Mapping::Asymmetric => over(y * 2),
            Mapping::AlignCorners => {
                let many = number(y * (self.input - 1)) / (width - one);
                expr::select(single, constant(0.0), many)
            }
            Mapping::CropAndResize => {
                let (start, end) = self.roi.unwrap_or((constant(0.0), one));
                let last = number(self.input - 1);
                let centre = (end - start) * last * half;
                let along = number(y) * (end - start) * last / (width - one);
                expr::select(single, centre, along) + start * last
            }
        }
    }

    /// The nearest input position by integers alone, if the scale is a ratio.
    fn nearest(&self, mapping: Mapping, how: Nearest, y: Int) -> Option<Int> {
        let Scale::Ratio(n, d) = self.scale else { return None };
        let (n, d) = reduced(n, d);
        if n.bounds().lo.is_none_or(|l| l < 1) {
            return None;
        }
        // The position is num / den.
        let (num, den) = match mapping {
            Mapping::HalfPixel => ((y * 2 + 1) * d - n, n * 2),
            Mapping::Asymmetric => (y * d, n),
            _ => return None,
        };
        let at = match how {
            Nearest::Floor => num.div(den),
            Nearest::Ceil => -((-num).div(den)),
            Nearest::RoundDown => -((den - num * 2).div(den * 2)),
            Nearest::RoundUp => (num * 2 + den).div(den * 2),
        };
        Some(at.max(0).min(self.input - 1))
    }
}

fn constant(v: f64) -> Expr {
    expr::constant_f64(DType::F64, v)
}

fn resized(cx: &mut Cx, x: &Operand, axes: Vec<Axis>, options: &Options) -> OpResult<TensorId> {
    let axes: Vec<Axis> = axes.into_iter().filter(|a| !a.is_identity()).collect();
    let mut shape = x.shape.clone();
    for a in &axes {
        if a.output.as_const().is_some_and(|c| c < 0) || a.input.as_const() == Some(0) {
            return invalid(format!("axis {} of {} elements resized to {}", a.axis, a.input, a.output));
        }
        shape[a.axis] = a.output;
    }
    if axes.is_empty() {
        return Ok(x.id);
    }
    match &options.mode {
        Mode::Nearest(how) => nearest(cx, x, shape, &axes, *how, options),
        Mode::Smooth(kernel) => smooth(cx, x, &axes, *kernel, options),
    }
}

fn nearest(
    cx: &mut Cx,
    x: &Operand,
    shape: Vec<Int>,
    axes: &[Axis],
    how: Nearest,
    options: &Options,
) -> OpResult<TensorId> {
    let mut tables = vec![];
    let mut outside = vec![];
    for a in axes {
        let direct = a.nearest(options.mapping, how, Int::new(0)).is_some();
        tables.push(if direct { None } else { Some(nearest_table(cx, a, how, options.mapping)) });
        outside.push(outside_table(cx, a, options.mapping));
    }
    Ok(cx.map(x.dtype, shape, |i| {
        let mut index = i.to_vec();
        let mut out = expr::boolean(false);
        for ((a, table), outside) in axes.iter().zip(&tables).zip(&outside) {
            let y = i[a.axis];
            index[a.axis] = match table {
                Some(t) => expr::as_int(t.at(&[y])),
                None => a.nearest(options.mapping, how, y).unwrap_or(y),
            };
            if let Some(t) = outside {
                out = out | t.at(&[y]);
            }
        }
        expr::select(out, expr::constant_f64(x.dtype, options.extrapolation), x.at(&index))
    }))
}

/// The nearest input position of each output position.
fn nearest_table(cx: &mut Cx, a: &Axis, how: Nearest, mapping: Mapping) -> Operand {
    let t = cx.map(DType::I64, vec![a.output], |i| {
        let x = a.position(mapping, i[0]);
        let low = x.floor();
        let (rest, half) = (x - low, constant(0.5));
        let up = match how {
            Nearest::Floor => expr::boolean(false),
            Nearest::Ceil => rest.gt_(constant(0.0)),
            Nearest::RoundDown => rest.gt_(half),
            Nearest::RoundUp => rest.ge_(half),
        };
        let at = expr::select(up, low + constant(1.0), low);
        clamped(expr::cast(DType::I64, at), a.input)
    });
    let t = freeze(cx, t);
    Operand::of(cx, t)
}

fn clamped(i: Expr, size: Int) -> Expr {
    i.min_(expr::int(size - 1)).max_(expr::int(Int::new(0)))
}

/// Which output positions lie outside of the input, where that matters.
fn outside_table(cx: &mut Cx, a: &Axis, mapping: Mapping) -> Option<Operand> {
    if mapping != Mapping::CropAndResize {
        return None;
    }
    let t = cx.map(DType::Bool, vec![a.output], |i| {
        let x = a.position(mapping, i[0]);
        x.lt_(constant(0.0)) | x.gt_(number(a.input - 1))
    });
    let t = freeze(cx, t);
    Some(Operand::of(cx, t))
}

fn smooth(cx: &mut Cx, x: &Operand, axes: &[Axis], kernel: Kernel, options: &Options) -> OpResult<TensorId> {
    let mut taps = vec![];
    let mut outside = vec![];
    for a in axes {
        // Shrinking with antialias stretches the kernel over 1 / scale times as many elements.
        let (stretch, half) =
            if options.antialias { stretched(cx, a, kernel) } else { (None, Int::new(kernel.reach())) };
        let position = |y: Int| a.position(options.mapping, y);
        let normalize = options.exclude_outside || options.antialias;
        taps.push(Taps::new(
            cx,
            x.dtype,
            (a.axis, a.input, a.output),
            kernel,
            position,
            stretch,
            half,
            options.exclude_outside,
            normalize,
        ));
        outside.extend(outside_table(cx, a, options.mapping).map(|t| (a.axis, t)));
    }
    let y = combine(cx, x, &taps, outside.is_empty());
    if outside.is_empty() {
        return Ok(y);
    }
    let y = Operand::of(cx, y);
    Ok(cx.map(x.dtype, y.shape.clone(), |i| {
        let out = outside.iter().fold(expr::boolean(false), |any, (axis, t)| any | t.at(&[i[*axis]]));
        let inside = super::interpolate::rounded(x.dtype, y.at(i));
        expr::select(out, expr::constant_f64(x.dtype, options.extrapolation), inside)
    }))
}

/// The factor by which kernel arguments shrink, and how far the stretched kernel reaches.
fn stretched(cx: &mut Cx, a: &Axis, kernel: Kernel) -> (Option<Expr>, Int) {
    let reach = kernel.reach();
    match a.scale {
        Scale::Ratio(n, d) => {
            let (n, d) = reduced(n, d);
            // Nothing is stretched when the axis grows.
            let (n, d) = (n.min(d), d);
            (Some(number(n) / number(d)), (d * reach).ceil_div(n))
        }
        Scale::Number(s) => {
            let s = s.min_(constant(1.0));
            let half = (constant(reach as f64) / s).ceil();
            let half = cx.map(DType::I64, vec![], |_| expr::cast(DType::I64, half));
            (Some(s), cx.read(half, 0, "reach", Some(1), None))
        }
    }
}
