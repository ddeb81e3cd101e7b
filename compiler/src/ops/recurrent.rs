//! Recurrent operators: `LSTM`, `GRU`, `RNN`.
//!
//! The products of all inputs with the input weights are one contraction over the whole sequence, with the bias added by a
//! map. What must run step by step, the products with the hidden state and the cell itself, is one kernel (`recurrent_kernel`)
//! over recurrent weights that a map has laid out in the order in which the kernel reads them.

use super::contract::same_type;
use super::recurrent_activation::{Activation, activations};
use super::recurrent_kernel::{Cell, Inputs, Recurrence, generate};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, OpError, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "LSTM", |cx, call| recurrent(cx, call, Cell::Lstm { input_forget: false, peepholes: None })),
    ("", "GRU", |cx, call| recurrent(cx, call, Cell::Gru { linear_before_reset: false })),
    ("", "RNN", |cx, call| recurrent(cx, call, Cell::Rnn)),
];

/// Optional operands after the recurrent weights.
struct Operands {
    x: TensorId,
    w: TensorId,
    r: TensorId,
    bias: Option<TensorId>,
    lengths: Option<TensorId>,
    initial_h: Option<TensorId>,
    initial_c: Option<TensorId>,
    peepholes: Option<TensorId>,
}

fn recurrent(cx: &mut Cx, call: &Call, kind: Cell) -> OpResult {
    let lstm = matches!(kind, Cell::Lstm { .. });
    let o = Operands {
        x: call.input(0)?,
        w: call.input(1)?,
        r: call.input(2)?,
        bias: call.opt(3),
        lengths: call.opt(4),
        initial_h: call.opt(5),
        initial_c: call.opt(6).filter(|_| lstm),
        peepholes: call.opt(7).filter(|_| lstm),
    };
    let numbers = [Some(o.x), Some(o.w), Some(o.r), o.bias, o.initial_h, o.initial_c, o.peepholes];
    let dtype = same_type(cx, &numbers.into_iter().flatten().collect::<Vec<_>>())?;
    if !dtype.is_float() {
        return Err(OpError::Invalid(format!("element type {dtype}, floats are needed")));
    }
    let (directions, reverse) = match call.string("direction", "forward".into())?.to_ascii_lowercase().as_str() {
        "forward" => (1, vec![false]),
        "reverse" => (1, vec![true]),
        "bidirectional" => (2, vec![false, true]),
        other => return Err(OpError::Invalid(format!("attribute 'direction' is '{other}'"))),
    };
    let batch_first = match call.int("layout", 0)? {
        0 => false,
        1 => true,
        other => return Err(OpError::Invalid(format!("attribute 'layout' is {other}, neither 0 nor 1"))),
    };
    let gates = kind.gates();
    let (&[first, second, inputs], &[_, _, hidden]) = (cx.shape(o.x).as_slice(), cx.shape(o.r).as_slice()) else {
        return Err(OpError::Invalid("input and recurrent weights must have three axes".into()));
    };
    let (steps, batch) = if batch_first { (second, first) } else { (first, second) };
    if let Some(given) = call.opt_int("hidden_size")? {
        cx.require_equal(Int::new(given), hidden, "attribute 'hidden_size' against the recurrent weights")?;
    }
    let d = Int::new(directions as i64);
    let state = if batch_first { [batch, d, hidden] } else { [d, batch, hidden] };
    expect(cx, o.w, &[d, hidden * gates, inputs], "input weights")?;
    expect(cx, o.r, &[d, hidden * gates, hidden], "recurrent weights")?;
    for (t, shape, what) in [
        (o.bias, vec![d, hidden * (2 * gates)], "bias"),
        (o.lengths, vec![batch], "sequence lengths"),
        (o.initial_h, state.to_vec(), "initial hidden state"),
        (o.initial_c, state.to_vec(), "initial cell state"),
        (o.peepholes, vec![d, hidden * 3], "peephole weights"),
    ] {
        if let Some(t) = t {
            expect(cx, t, &shape, what)?;
        }
    }
    if o.lengths.is_some_and(|t| !cx.dtype(t).is_int()) {
        return Err(OpError::Invalid("sequence lengths must be integers".into()));
    }

    let cell = match kind {
        Cell::Lstm { .. } => {
            Cell::Lstm { input_forget: call.int("input_forget", 0)? != 0, peepholes: o.peepholes.map(|_| 0) }
        }
        Cell::Gru { .. } => Cell::Gru { linear_before_reset: call.int("linear_before_reset", 0)? != 0 },
        Cell::Rnn => Cell::Rnn,
    };
    let defaults: &[Activation] = match cell {
        Cell::Lstm { .. } => &[Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
        Cell::Gru { .. } => &[Activation::Sigmoid, Activation::Tanh],
        Cell::Rnn => &[Activation::Tanh],
    };
    let spec = Recurrence {
        cell,
        reverse,
        activations: activations(call, directions, defaults)?,
        clip: call.opt_float("clip")?.filter(|c| *c > 0.0).map(f64::from),
        dtype: dtype.compute(),
        steps,
        batch,
        hidden,
        batch_first,
        wants: [call.wants(0), call.wants(1), lstm && call.wants(2)],
        inputs: Inputs::default(),
    };
    build(cx, &o, spec, inputs, dtype)
}

/// Checks the shape of an operand.
fn expect(cx: &mut Cx, t: TensorId, shape: &[Int], what: &str) -> OpResult<()> {
    let own = cx.shape(t);
    if own.len() != shape.len() {
        return Err(OpError::Invalid(format!("{what}: rank {} instead of {}", own.len(), shape.len())));
    }
    for (a, b) in own.iter().zip(shape) {
        cx.require_equal(*a, *b, what)?;
    }
    Ok(())
}

fn build(cx: &mut Cx, o: &Operands, mut spec: Recurrence, inputs: Int, dtype: DType) -> OpResult {
    let wide = dtype.compute();
    let (gates, hidden) = (spec.cell.gates(), spec.hidden);
    let d = Int::from(spec.reverse.len());
    let columns = hidden * gates;

    // All input products, as [step, batch, direction * gate * hidden].
    let w = cx.view(o.w, vec![d * columns, inputs]);
    let batch_first = spec.batch_first;
    let shape = vec![spec.steps, spec.batch, d * columns];
    let products = cx.reduce(ReduceKind::Sum, wide, shape.clone(), &[inputs], |i, r| {
        let at = if batch_first { vec![i[1], i[0], r[0]] } else { vec![i[0], i[1], r[0]] };
        expr::load(o.x, dtype, at) * expr::load(w, dtype, vec![i[2], r[0]])
    });
    let linear = matches!(spec.cell, Cell::Gru { linear_before_reset: true });
    let projected = match o.bias {
        None => products,
        Some(bias) => {
            // Both biases as one vector; in the linear form of the GRU the second one of the last gate comes later.
            let both = cx.map(wide, vec![d, columns], |i| {
                let first = expr::load(bias, dtype, vec![i[0], i[1]]);
                let second = expr::load(bias, dtype, vec![i[0], columns + i[1]]);
                if linear {
                    let early = expr::int(i[1]).lt_(expr::int(hidden * 2));
                    early.then(first + second, first)
                } else {
                    first + second
                }
            });
            let both = cx.view(both, vec![d * columns]);
            cx.map(wide, shape, |i| expr::load(products, wide, i.to_vec()) + expr::load(both, wide, vec![i[2]]))
        }
    };

    // Recurrent weights as [direction, block, state, gate, lane].
    let lanes = Int::new(spec.lanes().into());
    let blocks = hidden.ceil_div(lanes);
    let packed = cx.map(wide, vec![d, blocks, hidden, Int::new(gates), lanes], |i| {
        let unit = i[1] * lanes + i[4];
        let weight = expr::load(o.r, dtype, vec![i[0], i[3] * hidden + unit, i[2]]);
        expr::int(unit).lt_(expr::int(hidden)).then(weight, weight.num(0.0))
    });

    let mut operands = vec![projected, packed];
    let mut place = |t: Option<TensorId>| {
        t.map(|t| {
            operands.push(t);
            operands.len() - 1
        })
    };
    spec.inputs.lengths = place(o.lengths);
    spec.inputs.initial_h = place(o.initial_h);
    spec.inputs.initial_c = place(o.initial_c);
    spec.inputs.late_bias = place(o.bias.filter(|_| linear));
    let peepholes = place(o.peepholes);
    if let Cell::Lstm { peepholes: at, .. } = &mut spec.cell {
        *at = peepholes;
    }

    let sequence = match spec.batch_first {
        false => vec![spec.steps, d, spec.batch, hidden],
        true => vec![spec.batch, spec.steps, d, hidden],
    };
    let state = if spec.batch_first { vec![spec.batch, d, hidden] } else { vec![d, spec.batch, hidden] };
    let shapes = [sequence, state.clone(), state];
    let mut outputs = vec![];
    for (k, shape) in shapes.iter().enumerate() {
        if spec.wants[k] {
            outputs.push((dtype, shape.clone()));
        }
    }
    if outputs.is_empty() {
        return Err(OpError::Invalid("no output is used".into()));
    }
    let cells = spec.batch * hidden;
    // Hidden state before and after a step, cell state, reset hidden state.
    let scratch = vec![(wide, cells * 2), (wide, cells), (wide, cells)];
    let wants = spec.wants;
    let made = cx.custom(spec.cell.name(), &operands, outputs, scratch, move |k| generate(k, &spec));
    // An output that nobody uses still needs a tensor in its place.
    let mut made = made.into_iter();
    let last = wants.iter().rposition(|w| *w).unwrap_or(0);
    let mut out = vec![];
    for (used, shape) in wants.iter().zip(shapes).take(last + 1) {
        let own = if *used { made.next() } else { None };
        out.push(match own {
            Some(t) => t,
            None => cx.map(dtype, shape, |_| expr::constant_f64(wide, 0.0)),
        });
    }
    Ok(out)
}
