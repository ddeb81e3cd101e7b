//! Weights of few bits, lowered for every kind of processor and run in the interpreter.

use super::tests::{check, values};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Codes, Cx, ReduceKind, expr};
use std::sync::Arc;

/// `[m, k] x [k, n]`, or with the weights as `[n, k]`, which are integers of `span` values a block of `block` terms.
fn product(
    m: usize,
    (k, n): (usize, usize),
    turned: bool,
    open: bool,
    span: i16,
    block: usize,
    lowest: fn(usize) -> i16,
) {
    let mut cx = Cx::new();
    let a = values(m * k, 1);
    let place = |t: usize, c: usize| if turned { c * k + t } else { t * n + c };
    let (mut codes, mut scales) = (vec![0; k * n], vec![0.0; k * n]);
    for c in 0..n {
        for t in 0..k {
            codes[place(t, c)] = lowest(c + t / block) + ((c * 7 + t * 5) as i16) % span;
            scales[place(t, c)] = [0.5, 1.0, 2.0][(c + t / block) % 3];
        }
    }
    let w: Vec<f32> = codes.iter().zip(&scales).map(|(v, s)| f32::from(*v) * s).collect();
    let rows = if open { Int::symbol("m", Some(0), None) } else { Int::from(m) };
    let ta = cx.input("a", DType::F32, vec![rows, Int::from(k)]);
    let tb = cx.constant_f32(&if turned { [n, k] } else { [k, n] }, &w);
    cx.program.codes.insert(tb, Arc::new(Codes { values: codes, scales }));
    let sum = cx.reduce(ReduceKind::Sum, DType::F32, vec![rows, Int::from(n)], &[Int::from(k)], |i, r| {
        let y = if turned { vec![i[1], r[0]] } else { vec![r[0], i[1]] };
        expr::load(ta, DType::F32, vec![i[0], r[0]]) * expr::load(tb, DType::F32, y)
    });
    assert!(super::reads_codes(&cx.program, sum));
    let mut expected = vec![0.0; m * n];
    for i in 0..m {
        for c in 0..n {
            expected[i * n + c] = (0..k).map(|t| a[i * k + t] * w[place(t, c)]).sum::<f32>();
        }
    }
    let dims = rows.as_var().map(|v| (v, m as i64)).into_iter().collect();
    check(&cx, sum, sum, &|_| a.clone(), &dims, &expected);
}

#[test]
fn weights_of_two_four_and_eight_bits_are_multiplied_as_the_floats_that_they_stand_for() {
    for span in [4, 16, 256] {
        product(1, (64, 48), false, false, span, 32, |_| -3);
        product(3, (72, 21), true, true, span, 16, |b| b as i16 % 5 - 4);
    }
}

#[test]
fn blocks_may_end_with_the_terms_and_many_rows_share_what_was_unpacked() {
    product(5, (100, 19), false, true, 16, 64, |_| 0);
    product(64, (77, 70), true, false, 16, 128, |_| -8);
    product(40, (34, 33), true, false, 200, 32, |_| -128);
}
