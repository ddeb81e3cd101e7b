//! Recurrent operators against their equations, written as plain loops in double precision.

use super::AttrValue;
use super::testing::{Value, run, value};
use crate::dtype::DType;

/// Reproducible numbers between -1 and 1.
fn numbers(shape: &[usize], seed: u32) -> Value {
    let mut s = seed.wrapping_mul(2_654_435_761).wrapping_add(99);
    let mut next = || {
        s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from((f64::from(s >> 8) / f64::from(1 << 23) - 1.0) as f32)
    };
    let data: Vec<f64> = (0..shape.iter().product()).map(|_| next()).collect();
    value(DType::F32, shape, &data)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Lstm,
    Gru(bool),
    Rnn,
}

struct Case {
    kind: Kind,
    steps: usize,
    batch: usize,
    inputs: usize,
    hidden: usize,
    /// `true`: from the end to the start.
    directions: Vec<bool>,
    lengths: Option<Vec<usize>>,
    clip: Option<f64>,
    input_forget: bool,
    batch_first: bool,
    full: bool,
}

impl Case {
    fn new(kind: Kind, hidden: usize) -> Case {
        Case {
            kind,
            steps: 3,
            batch: 2,
            inputs: 3,
            hidden,
            directions: vec![false],
            lengths: None,
            clip: None,
            input_forget: false,
            batch_first: false,
            full: true,
        }
    }

    fn gates(&self) -> usize {
        match self.kind {
            Kind::Lstm => 4,
            Kind::Gru(_) => 3,
            Kind::Rnn => 1,
        }
    }

    /// Operands with the batch as second axis, in the order of the operator.
    fn operands(&self) -> Vec<Option<Value>> {
        let (d, g, h, n) = (self.directions.len(), self.gates(), self.hidden, self.batch);
        let optional = |v: Value| Some(v).filter(|_| self.full);
        let lengths =
            self.lengths.as_ref().map(|l| value(DType::I32, &[n], &l.iter().map(|x| *x as f64).collect::<Vec<_>>()));
        let mut all = vec![
            Some(numbers(&[self.steps, n, self.inputs], 1)),
            Some(numbers(&[d, g * h, self.inputs], 2)),
            Some(numbers(&[d, g * h, h], 3)),
            optional(numbers(&[d, 2 * g * h], 4)),
            lengths,
            optional(numbers(&[d, n, h], 5)),
        ];
        if self.kind == Kind::Lstm {
            all.push(optional(numbers(&[d, n, h], 6)));
            all.push(optional(numbers(&[d, 3 * h], 7)));
        }
        all
    }

    /// Sequence, last hidden state, last cell state.
    fn expected(&self) -> [Vec<f64>; 3] {
        let o = self.operands();
        let (d, h, n, t) = (self.directions.len(), self.hidden, self.batch, self.steps);
        let part = |k: usize, at: usize| o.get(k).and_then(|v| v.as_ref()).map_or(0.0, |v| v.data[at]);
        let (mut y, mut yh, mut yc) = (vec![0.0; t * d * n * h], vec![0.0; d * n * h], vec![0.0; d * n * h]);
        for (dir, reverse) in self.directions.iter().enumerate() {
            for b in 0..n {
                let at = (dir * n + b) * h;
                let mut state: Vec<f64> = (0..h).map(|u| part(5, at + u)).collect();
                let mut cell: Vec<f64> = (0..h).map(|u| part(6, at + u)).collect();
                let length = self.lengths.as_ref().map_or(t, |l| l[b]);
                for s in 0..length {
                    let time = if *reverse { length - 1 - s } else { s };
                    let (new_state, new_cell) = self.step(&part, dir, b, time, &state, &cell);
                    (state, cell) = (new_state, new_cell);
                    y[((time * d + dir) * n + b) * h..][..h].copy_from_slice(&state);
                }
                if length > 0 {
                    yh[at..at + h].copy_from_slice(&state);
                    yc[at..at + h].copy_from_slice(&cell);
                }
            }
        }
        [y, yh, yc]
    }

    fn step(
        &self,
        part: &dyn Fn(usize, usize) -> f64,
        dir: usize,
        b: usize,
        time: usize,
        state: &[f64],
        cell: &[f64],
    ) -> (Vec<f64>, Vec<f64>) {
        let (g, h, n) = (self.gates(), self.hidden, self.batch);
        let clipped = |x: f64| self.clip.map_or(x, |c| x.clamp(-c, c));
        let input = |gate: usize, u: usize| {
            let row = dir * g * h + gate * h + u;
            (0..self.inputs)
                .map(|i| part(0, (time * n + b) * self.inputs + i) * part(1, row * self.inputs + i))
                .sum::<f64>()
        };
        let recurrent = |gate: usize, u: usize, state: &[f64]| {
            let row = dir * g * h + gate * h + u;
            (0..h).map(|k| state[k] * part(2, row * h + k)).sum::<f64>()
        };
        let bias = |half: usize, gate: usize, u: usize| part(3, dir * 2 * g * h + (half * g + gate) * h + u);
        let sum =
            |gate: usize, u: usize| input(gate, u) + recurrent(gate, u, state) + bias(0, gate, u) + bias(1, gate, u);
        let peephole = |gate: usize, u: usize| part(7, (dir * 3 + gate) * h + u);
        let (mut new_state, mut new_cell) = (vec![0.0; h], cell.to_vec());
        for u in 0..h {
            match self.kind {
                Kind::Rnn => new_state[u] = clipped(sum(0, u)).tanh(),
                Kind::Lstm => {
                    let i = sigmoid(clipped(sum(0, u) + peephole(0, u) * cell[u]));
                    let f = sigmoid(clipped(sum(2, u) + peephole(2, u) * cell[u]));
                    let f = if self.input_forget { 1.0 - i } else { f };
                    let c = clipped(sum(3, u)).tanh();
                    new_cell[u] = f * cell[u] + i * c;
                    let o = sigmoid(clipped(sum(1, u) + peephole(1, u) * new_cell[u]));
                    new_state[u] = o * new_cell[u].tanh();
                }
                Kind::Gru(linear) => {
                    let z = sigmoid(clipped(sum(0, u)));
                    let r = |u: usize| sigmoid(clipped(sum(1, u)));
                    let fresh = if linear {
                        input(2, u) + r(u) * (recurrent(2, u, state) + bias(1, 2, u)) + bias(0, 2, u)
                    } else {
                        let reset: Vec<f64> = (0..h).map(|k| r(k) * state[k]).collect();
                        input(2, u) + recurrent(2, u, &reset) + bias(0, 2, u) + bias(1, 2, u)
                    };
                    new_state[u] = (1.0 - z) * clipped(fresh).tanh() + z * state[u];
                }
            }
        }
        (new_state, new_cell)
    }

    fn check(&self) {
        let mut attrs = vec![("hidden_size", AttrValue::Int(self.hidden as i64))];
        let direction = match self.directions.as_slice() {
            [false] => "forward",
            [true] => "reverse",
            _ => "bidirectional",
        };
        attrs.push(("direction", AttrValue::Str(direction.into())));
        if let Some(c) = self.clip {
            attrs.push(("clip", AttrValue::Float(c as f32)));
        }
        let op = match self.kind {
            Kind::Lstm => "LSTM",
            Kind::Gru(linear) => {
                attrs.push(("linear_before_reset", AttrValue::Int(linear.into())));
                "GRU"
            }
            Kind::Rnn => "RNN",
        };
        if self.input_forget {
            attrs.push(("input_forget", AttrValue::Int(1)));
        }
        let mut operands = self.operands();
        if self.batch_first {
            attrs.push(("layout", AttrValue::Int(1)));
            for k in [0, 5, 6] {
                if let Some(Some(v)) = operands.get_mut(k) {
                    *v = swapped(v, 0, 1);
                }
            }
        }
        let outputs = if self.kind == Kind::Lstm { 3 } else { 2 };
        let got = run(op, 14, &operands, &attrs, outputs).unwrap_or_else(|e| panic!("{op}: {e:?}"));
        let want = self.expected();
        for (k, (got, want)) in got.iter().zip(&want).enumerate() {
            let got = match (self.batch_first, k) {
                (false, _) => got.clone(),
                // From [batch, step, direction, hidden] to [step, direction, batch, hidden].
                (true, 0) => swapped(&swapped(got, 0, 1), 1, 2),
                (true, _) => swapped(got, 0, 1),
            };
            assert_eq!(got.data.len(), want.len());
            for (i, (a, b)) in got.data.iter().zip(want).enumerate() {
                assert!((a - b).abs() < 2e-6, "{op}, output {k}, element {i}: {a} instead of {b}");
            }
        }
    }
}

/// A tensor with two axes exchanged.
fn swapped(v: &Value, p: usize, q: usize) -> Value {
    let mut shape = v.shape.clone();
    shape.swap(p, q);
    let stride = |shape: &[usize], d: usize| shape[d + 1..].iter().product::<usize>();
    let data = (0..v.data.len()).map(|flat| {
        let mut index: Vec<usize> = (0..shape.len()).map(|d| flat / stride(&shape, d) % shape[d]).collect();
        index.swap(p, q);
        v.data[index.iter().enumerate().map(|(d, i)| i * stride(&v.shape, d)).sum::<usize>()]
    });
    let data: Vec<f64> = data.collect();
    value(v.dtype, &shape, &data)
}

#[test]
fn lstm_follows_its_equations() {
    // 13 units: a whole block of eight lanes and then four and one.
    for hidden in [1, 5, 13] {
        Case::new(Kind::Lstm, hidden).check();
    }
    Case { full: false, ..Case::new(Kind::Lstm, 4) }.check();
    Case { input_forget: true, clip: Some(0.4), ..Case::new(Kind::Lstm, 3) }.check();
}

#[test]
fn gru_applies_the_reset_gate_before_or_after_the_product() {
    for linear in [false, true] {
        Case::new(Kind::Gru(linear), 9).check();
        Case { full: false, clip: Some(0.3), ..Case::new(Kind::Gru(linear), 2) }.check();
    }
}

#[test]
fn simple_recurrence_follows_its_equation() {
    Case::new(Kind::Rnn, 19).check();
    Case { full: false, ..Case::new(Kind::Rnn, 2) }.check();
}

#[test]
fn sequences_shorter_than_the_longest_keep_their_state_and_give_zeros() {
    for kind in [Kind::Lstm, Kind::Gru(false), Kind::Gru(true), Kind::Rnn] {
        for directions in [vec![false], vec![true], vec![false, true]] {
            Case { directions, lengths: Some(vec![1, 3]), ..Case::new(kind, 3) }.check();
        }
    }
    Case { lengths: Some(vec![0, 2]), ..Case::new(Kind::Lstm, 2) }.check();
}

#[test]
fn batch_first_layout_changes_where_values_lie_and_nothing_else() {
    for kind in [Kind::Lstm, Kind::Gru(false), Kind::Rnn] {
        let directions = vec![false, true];
        Case { directions, batch_first: true, lengths: Some(vec![3, 2]), ..Case::new(kind, 3) }.check();
    }
}

#[test]
fn activations_take_their_parameters_in_order() {
    let x = value(DType::F32, &[1, 1, 1], &[0.75]);
    let w = value(DType::F32, &[2, 1, 1], &[1.0, -1.0]);
    let r = value(DType::F32, &[2, 1, 1], &[0.0, 0.0]);
    let names = |a: &str, b: &str| AttrValue::Strs(vec![a.into(), b.into()]);
    let attrs = [
        ("direction", AttrValue::Str("bidirectional".into())),
        ("activations", names("ThresholdedRelu", "affine")),
        ("activation_alpha", AttrValue::Floats(vec![0.5, 2.0])),
        ("activation_beta", AttrValue::Floats(vec![0.25])),
    ];
    let y = run("RNN", 14, &[x.clone(), w.clone(), r.clone()].map(Some), &attrs, 2).expect("legal").remove(0);
    assert_eq!(y.data, [0.75, -1.25]);
    let attrs = [attrs[0].clone(), ("activations", names("Relu", "LeakyRelu"))];
    let y = run("RNN", 14, &[x, w, r].map(Some), &attrs, 2).expect("legal").remove(0);
    assert_eq!(y.data, [0.75, f64::from(0.01f32 * -0.75)]);
}

#[test]
fn wrong_shapes_and_names_are_refused() {
    let case = Case::new(Kind::Lstm, 2);
    let name = [("activations", AttrValue::Strs(vec!["Tanh".into(), "Tanh".into(), "Gelu".into()]))];
    assert!(run("LSTM", 14, &case.operands(), &name, 1).is_err());
    let few = [("activations", AttrValue::Strs(vec!["Tanh".into()]))];
    assert!(run("LSTM", 14, &case.operands(), &few, 1).is_err());
    let mut operands = case.operands();
    operands[2] = Some(numbers(&[1, 8, 3], 1));
    assert!(run("LSTM", 14, &operands, &[], 1).is_err());
    let direction = [("direction", AttrValue::Str("sideways".into()))];
    assert!(run("LSTM", 14, &case.operands(), &direction, 1).is_err());
}
