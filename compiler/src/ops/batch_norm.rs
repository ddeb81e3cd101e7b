//! Batch, instance and group normalisation: statistics for each channel or group of channels.

use super::axes::{Axes, Space};
use super::moments::{inverse_root, moments};
use super::operand::{Operand, convert, need_float, onnx_type};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, OpError, OpResult, TensorId};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("", "BatchNormalization", batch), ("", "InstanceNormalization", instance), ("", "GroupNormalization", group)];

fn invalid<T>(message: String) -> OpResult<T> {
    Err(OpError::Invalid(message))
}

/// A parameter with one element for each channel.
fn channel_operand(cx: &mut Cx, t: TensorId, channels: Int, what: &str) -> OpResult<Operand> {
    let p = Operand::of(cx, t);
    need_float(p.dtype)?;
    let [n] = p.shape[..] else { return invalid(format!("{what} of rank {}, a vector is needed", p.rank())) };
    cx.require_equal(n, channels, &format!("length of {what}"))?;
    Ok(p)
}

/// `scale`, `B`, mean and variance of [`batch`], with the way an element's index selects theirs.
struct Stats {
    /// One statistic for each channel; otherwise (before version 9) one for each position within a sample.
    spatial: bool,
    rank: usize,
}

impl Stats {
    fn index(&self, i: &[Int]) -> Vec<Int> {
        match (self.spatial, self.rank) {
            // A vector is N samples of one channel.
            (true, 1) => vec![Int::new(0)],
            (true, _) => vec![i[1]],
            (false, _) => i[1..].to_vec(),
        }
    }

    fn shape(&self, x: &Operand) -> Vec<Int> {
        match (self.spatial, self.rank) {
            (true, 1) => vec![Int::new(1)],
            (true, _) => vec![x.shape[1]],
            (false, _) => x.shape[1..].to_vec(),
        }
    }
}

/// Before version 14 nothing but the use of further outputs says that the statistics are those of the batch, unless
/// `is_test` (before version 7) says that they are not.
fn trains(call: &Call) -> OpResult<bool> {
    if call.version >= 14 {
        return Ok(call.int("training_mode", 0)? != 0);
    }
    let is_test = call.version < 7 && call.int("is_test", 0)? != 0;
    Ok(!is_test && (1..5).any(|k| call.wants(k)))
}

fn batch(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    if x.rank() == 0 {
        return invalid("a scalar has no channels".into());
    }
    let epsilon = call.float("epsilon", 1e-5)?;
    let stats = Stats { spatial: call.version >= 9 || call.int("spatial", 1)? != 0, rank: x.rank() };
    let shape = stats.shape(&x);
    let mut params = vec![];
    for (k, what) in ["scale", "B", "mean", "var"].iter().enumerate() {
        let p = Operand::of(cx, call.input(k + 1)?);
        need_float(p.dtype)?;
        if p.rank() != shape.len() {
            return invalid(format!("{what} of rank {}, {} is needed", p.rank(), shape.len()));
        }
        for (a, b) in p.shape.iter().zip(&shape) {
            cx.require_equal(*a, *b, &format!("shape of {what}"))?;
        }
        params.push(p);
    }
    let [scale, bias, mean, var] = &params[..] else { return invalid("five operands are needed".into()) };
    let t = x.compute();
    if !trains(call)? {
        return Ok(vec![apply(cx, &x, &stats, [scale, bias, mean, var], epsilon)]);
    }
    let axes: Vec<bool> =
        (0..x.rank()).map(|k| if stats.spatial { k != 1 || stats.rank == 1 } else { k == 0 }).collect();
    let space = Space::new(&x.shape, &Axes::Known(axes), false);
    let (batch_mean, batch_var) = moments(cx, &x, &space, t);
    let batch_shape = |cx: &mut Cx, p: &Operand| {
        let id = cx.view(p.id, shape.clone());
        Operand::of(cx, id)
    };
    let (batch_mean, batch_var) = (batch_shape(cx, &batch_mean), batch_shape(cx, &batch_var));
    let y = apply(cx, &x, &stats, [scale, bias, &batch_mean, &batch_var], epsilon);
    let momentum = f64::from(call.float("momentum", 0.9)?);
    let mut out = vec![y];
    for (old, new) in [(mean, &batch_mean), (var, &batch_var)] {
        out.push(cx.map(old.dtype, shape.clone(), |i| {
            let (old_value, new_value) = (old.at(i).to(t), new.at(i));
            let mixed = old_value * old_value.num(momentum) + new_value * old_value.num(1.0 - momentum);
            convert(mixed, old.dtype)
        }));
    }
    if call.version < 14 {
        for new in [&batch_mean, &batch_var] {
            out.push(cx.map(x.dtype, shape.clone(), |i| new.at(i)));
        }
    }
    Ok(out)
}

/// `x * factor + offset`: both are known before the run where the statistics are constants.
fn apply(cx: &mut Cx, x: &Operand, stats: &Stats, params: [&Operand; 4], epsilon: f32) -> TensorId {
    let [scale, bias, mean, var] = params;
    let (t, shape) = (x.compute(), stats.shape(x));
    let factor = cx.map(t, shape.clone(), |i| {
        let v = var.at(i).to(t);
        scale.at(i).to(t) / (v + v.num(f64::from(epsilon))).sqrt()
    });
    let factor = Operand::of(cx, factor);
    let offset = cx.map(t, shape, |i| bias.at(i).to(t) - mean.at(i).to(t) * factor.at(i));
    let offset = Operand::of(cx, offset);
    cx.map(x.dtype, x.shape.clone(), |i| {
        let c = stats.index(i);
        x.at(i) * factor.at(&c) + offset.at(&c)
    })
}

fn instance(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    if x.rank() < 3 {
        return invalid(format!("input of rank {}, at least 3 is needed", x.rank()));
    }
    let scale = channel_operand(cx, call.input(1)?, x.shape[1], "scale")?;
    let bias = channel_operand(cx, call.input(2)?, x.shape[1], "B")?;
    let t = x.compute();
    let space = Space::new(&x.shape, &Axes::from(2, x.rank()), false);
    let (mean, var) = moments(cx, &x, &space, t);
    let inv = inverse_root(cx, &var, call.float("epsilon", 1e-5)?);
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
        let (n, c) = (&i[..2], [i[1]]);
        (x.at(i) - mean.at(n)) * (inv.at(n) * scale.at(&c).to(t)) + bias.at(&c).to(t)
    })])
}

/// Scale and bias are one for each group in version 18 and one for each channel since version 21.
fn group(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    if x.rank() < 2 {
        return invalid(format!("input of rank {}, at least 2 is needed", x.rank()));
    }
    let groups = call.int("num_groups", 0)?;
    if groups < 1 {
        return invalid(format!("num_groups = {groups}"));
    }
    let groups = Int::new(groups);
    let channels = x.shape[1];
    let size = channels.div(groups);
    cx.require_equal(size * groups, channels, "num_groups must divide the channels")?;
    let each = call.version < 21;
    let params = if each { groups } else { channels };
    let scale = channel_operand(cx, call.input(1)?, params, "scale")?;
    let bias = channel_operand(cx, call.input(2)?, params, "bias")?;
    let t = stash(call, x.dtype)?;
    let rest = Int::product(&x.shape[2..]) * size;
    let rows = cx.view(x.id, vec![x.shape[0], groups, rest]);
    let rows = Operand::of(cx, rows);
    let space = Space::new(&rows.shape, &Axes::from(2, 3), false);
    let (mean, var) = moments(cx, &rows, &space, t);
    let inv = inverse_root(cx, &var, call.float("epsilon", 1e-5)?);
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
        let g = i[1].div(size);
        let (n, p) = ([i[0], g], [if each { g } else { i[1] }]);
        let unit = (x.at(i).to(t) - mean.at(&n)) * inv.at(&n);
        convert(unit * scale.at(&p).to(t) + bias.at(&p).to(t), x.dtype)
    })])
}

/// Type of the statistics: what `stash_type` asks for (by default `f32`), or the operand's own where that is wider.
pub(super) fn stash(call: &Call, own: DType) -> OpResult<DType> {
    let asked = onnx_type(call.int("stash_type", 1)?)?;
    need_float(asked)?;
    Ok(if own == DType::F64 { own } else { asked.compute() })
}
