//! Recurrent operators: `LSTM`, `GRU`, `RNN`, and `DynamicQuantizeLSTM` of onnxruntime.
//!
//! The products of all inputs with the input weights are one contraction over the whole sequence, with the bias added by a
//! map. What must run step by step, the products with the hidden state and the cell itself, is one kernel (`recurrent_kernel`)
//! over recurrent weights that a map has laid out in the order in which the kernel reads them.
//!
//! Where weights are bytes, the input of the whole sequence becomes bytes at once, and the state in each step (`recurrent_bytes`).

use super::contract::same_type;
use super::contrib::dynamic;
use super::operand::Operand;
use super::recurrent_activation::{Activation, activations};
use super::recurrent_bytes::{Bytes, Quantised};
use super::recurrent_kernel::{Cell, Inputs, Recurrence, generate};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpError, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "LSTM", |cx, call| recurrent(cx, call, Cell::Lstm { input_forget: false, peepholes: None })),
    ("", "GRU", |cx, call| recurrent(cx, call, Cell::Gru { linear_before_reset: false })),
    ("", "RNN", |cx, call| recurrent(cx, call, Cell::Rnn)),
    ("com.microsoft", "DynamicQuantizeLSTM", |cx, call| {
        recurrent(cx, call, Cell::Lstm { input_forget: false, peepholes: None })
    }),
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
    /// Of input and recurrent weights that are bytes, with the gates as their last axis.
    codes: Option<[Code; 2]>,
}

/// Scales and zero points of weights: one for each direction, or one for each of its columns.
struct Code {
    scale: Operand,
    zero: Operand,
}

impl Code {
    /// Operands number `k` and `k + 1`.
    fn of(cx: &mut Cx, call: &Call, k: usize, weights: TensorId, d: Int, what: &str) -> OpResult<Code> {
        let dtype = cx.dtype(weights);
        if !matches!(dtype, DType::I8 | DType::U8) {
            return Err(OpError::Invalid(format!("{what} have element type {dtype}; int8 or uint8 is needed")));
        }
        let code = Code { scale: Operand::of(cx, call.input(k)?), zero: Operand::of(cx, call.input(k + 1)?) };
        if code.scale.dtype != DType::F32 || code.zero.dtype != dtype {
            return Err(OpError::Invalid(format!("scales or zero points of {what} have another element type")));
        }
        let columns = *cx.shape(weights).last().unwrap_or(&Int::new(0));
        for o in [&code.scale, &code.zero] {
            let shape = if o.rank() == 2 { vec![d, columns] } else { vec![d] };
            expect(cx, o.id, &shape, &format!("scales or zero points of {what}"))?;
        }
        Ok(code)
    }
}

/// The element of a direction's column.
fn of_column(o: &Operand, d: Int, column: Int) -> Expr {
    if o.rank() == 2 { o.at(&[d, column]) } else { o.at(&[d]) }
}

fn recurrent(cx: &mut Cx, call: &Call, kind: Cell) -> OpResult {
    let lstm = matches!(kind, Cell::Lstm { .. });
    let quantised = call.domain == "com.microsoft";
    let mut o = Operands {
        x: call.input(0)?,
        w: call.input(1)?,
        r: call.input(2)?,
        bias: call.opt(3),
        lengths: call.opt(4),
        initial_h: call.opt(5),
        initial_c: call.opt(6).filter(|_| lstm),
        peepholes: call.opt(7).filter(|_| lstm),
        codes: None,
    };
    let weights = [Some(o.w), Some(o.r)].map(|w| w.filter(|_| !quantised));
    let numbers = [Some(o.x), weights[0], weights[1], o.bias, o.initial_h, o.initial_c, o.peepholes];
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
    let (&[first, second, inputs], &[_, rows, last]) = (cx.shape(o.x).as_slice(), cx.shape(o.r).as_slice()) else {
        return Err(OpError::Invalid("input and recurrent weights must have three axes".into()));
    };
    let hidden = if quantised { rows } else { last };
    let (steps, batch) = if batch_first { (second, first) } else { (first, second) };
    if let Some(given) = call.opt_int("hidden_size")? {
        cx.require_equal(Int::new(given), hidden, "attribute 'hidden_size' against the recurrent weights")?;
    }
    let d = Int::new(directions as i64);
    let state = if batch_first { [batch, d, hidden] } else { [d, batch, hidden] };
    let of_weights = |rows| if quantised { [d, rows, hidden * gates] } else { [d, hidden * gates, rows] };
    expect(cx, o.w, &of_weights(inputs), "input weights")?;
    expect(cx, o.r, &of_weights(hidden), "recurrent weights")?;
    if quantised {
        if dtype != DType::F32 {
            return Err(OpError::Invalid(format!("element type {dtype}, f32 is needed")));
        }
        let codes = [(8, o.w, "input weights"), (10, o.r, "recurrent weights")];
        let [w, r] = codes.map(|(k, weights, what)| Code::of(cx, call, k, weights, d, what));
        o.codes = Some([w?, r?]);
    }
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
    let shape = vec![spec.steps, spec.batch, d * columns];
    let products = match &o.codes {
        None => products(cx, o, &spec, inputs, dtype),
        Some([code, _]) => products_of_bytes(cx, o, &spec, inputs, code)?,
    };
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

    let lanes = Int::new(spec.lanes().into());
    let blocks = hidden.ceil_div(lanes);
    // Recurrent weights as [direction, block, state, gate, lane].
    let packed = match &o.codes {
        None => cx.map(wide, vec![d, blocks, hidden, Int::new(gates), lanes], |i| {
            let unit = i[1] * lanes + i[4];
            let weight = expr::load(o.r, dtype, vec![i[0], i[3] * hidden + unit, i[2]]);
            expr::int(unit).lt_(expr::int(hidden)).then(weight, weight.num(0.0))
        }),
        Some([_, code]) => packed_bytes(cx, o.r, code, &spec),
    };

    let mut operands = vec![projected, packed];
    if let Some([_, code]) = &o.codes {
        let [sums, zeros, scales] = of_columns(cx, o.r, code);
        operands.extend([sums, zeros, scales]);
        spec.inputs.quantised = Some(Quantised { sums: 2, zeros: 3, scales: 4 });
    }
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
    let mut scratch = vec![(wide, cells * 2), (wide, cells), (wide, cells)];
    if o.codes.is_some() {
        scratch.extend(Bytes::scratch(spec.batch, hidden));
    }
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

/// The products of all inputs with the input weights, `[step, batch, direction * gate * hidden]`.
fn products(cx: &mut Cx, o: &Operands, spec: &Recurrence, inputs: Int, dtype: DType) -> TensorId {
    let wide = dtype.compute();
    let rows = spec.hidden * spec.cell.gates() * Int::from(spec.reverse.len());
    let w = cx.view(o.w, vec![rows, inputs]);
    let batch_first = spec.batch_first;
    cx.reduce(ReduceKind::Sum, wide, vec![spec.steps, spec.batch, rows], &[inputs], |i, r| {
        let at = if batch_first { vec![i[1], i[0], r[0]] } else { vec![i[0], i[1], r[0]] };
        expr::load(o.x, dtype, at) * expr::load(w, dtype, vec![i[2], r[0]])
    })
}

/// [`products`] of inputs made bytes with weights that are bytes. As in onnxruntime, steps that no sequence has do not count
/// for the range of the inputs, while those of ended sequences do.
fn products_of_bytes(cx: &mut Cx, o: &Operands, spec: &Recurrence, inputs: Int, code: &Code) -> OpResult<TensorId> {
    let mut x = Operand::of(cx, o.x);
    if let Some(lengths) = o.lengths {
        let lengths = Operand::of(cx, lengths);
        let most = cx.reduce(ReduceKind::Max, lengths.dtype, vec![], &[spec.batch], |_, r| lengths.at(&[r[0]]));
        let most = Operand::of(cx, most).at(&[]).to(DType::I64);
        let seen = cx.map(DType::F32, x.shape.clone(), |i| {
            let v = x.at(i);
            expr::int(i[0]).lt_(most).then(v, v.num(0.0))
        });
        x = Operand::of(cx, seen);
    }
    let [q, scale, zero] = dynamic(cx, x.id)?.map(|t| Operand::of(cx, t));
    let (d, columns) = (Int::from(spec.reverse.len()), spec.hidden * spec.cell.gates());
    let w = Operand::of(cx, o.w);
    let sums = cx.reduce(ReduceKind::Sum, DType::I32, vec![spec.steps, spec.batch, d, columns], &[inputs], |i, r| {
        let own = q.at(&[i[0], i[1], r[0]]).to(DType::I32) - zero.at(&[]).to(DType::I32);
        let weight = w.at(&[i[2], r[0], i[3]]).to(DType::I32);
        own * (weight - of_column(&code.zero, i[2], i[3]).to(DType::I32))
    });
    let real = cx.map(DType::F32, vec![spec.steps, spec.batch, d, columns], |i| {
        let scale = scale.at(&[]) * of_column(&code.scale, i[2], i[3]);
        expr::load(sums, DType::I32, i.to_vec()).to(DType::F32) * scale
    });
    Ok(cx.view(real, vec![spec.steps, spec.batch, d * columns]))
}

/// Recurrent weights as signed bytes `[direction, block, four states, gate, lane, state]`.
fn packed_bytes(cx: &mut Cx, weights: TensorId, code: &Code, spec: &Recurrence) -> TensorId {
    let (gates, hidden) = (Int::new(spec.cell.gates()), spec.hidden);
    let lanes = Int::new(spec.lanes().into());
    let d = Int::from(spec.reverse.len());
    let dtype = code.zero.dtype;
    let shape = vec![d, hidden.ceil_div(lanes), hidden.ceil_div(4), gates, lanes, Int::new(4)];
    cx.map(DType::I8, shape, |i| {
        let (unit, state) = (i[1] * lanes + i[4], i[2] * 4 + i[5]);
        let weight = signed(expr::load(weights, dtype, vec![i[0], state, i[3] * hidden + unit]), dtype);
        let within = expr::int(unit).lt_(expr::int(hidden)) & expr::int(state).lt_(expr::int(hidden));
        within.then(weight.to(DType::I8), expr::constant_i64(DType::I8, 0))
    })
}

/// For each column of recurrent weights: the sum of the weights less the zero point, the zero point as that of signed bytes,
/// the scale.
fn of_columns(cx: &mut Cx, weights: TensorId, code: &Code) -> [TensorId; 3] {
    let w = Operand::of(cx, weights);
    let (d, states, columns) = (w.shape[0], w.shape[1], w.shape[2]);
    let dtype = w.dtype;
    let sums = cx.reduce(ReduceKind::Sum, DType::I32, vec![d, columns], &[states], |i, r| {
        w.at(&[i[0], r[0], i[1]]).to(DType::I32) - of_column(&code.zero, i[0], i[1]).to(DType::I32)
    });
    let zeros = cx.map(DType::I32, vec![d, columns], |i| signed(of_column(&code.zero, i[0], i[1]), dtype));
    let scales = cx.map(DType::F32, vec![d, columns], |i| of_column(&code.scale, i[0], i[1]));
    [sums, zeros, scales]
}

/// A byte as a signed one, by moving unsigned ones; in 32 bits.
fn signed(byte: Expr, dtype: DType) -> Expr {
    let byte = byte.to(DType::I32);
    if dtype == DType::U8 { byte - byte.num(128.0) } else { byte }
}
