//! Activations that take many instructions, after the sums of matrix products and convolutions.

use super::tests::{cpus, position, run, values};
use super::*;
use crate::te::{Cx, expr};

/// `x / (1 + e^-x)`.
fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// Indices of both operands, for an element and a term.
type Reads<'a> = &'a dyn Fn(&[Int], &[Int]) -> (Vec<Int>, Vec<Int>);

/// A reduction of `sizes` elements over `terms`, whose operands `at` reads, and SiLU of its sums with a residual added after, in every
/// schedule for every processor.
fn check(sizes: &[i64], terms: &[i64], image: &[i64], weights: &[i64], at: Reads<'_>) {
    let ints = |n: &[i64]| n.iter().map(|n| Int::new(*n)).collect::<Vec<Int>>();
    let count = |n: &[i64]| n.iter().product::<i64>() as usize;
    let mut cx = Cx::new();
    let x = cx.input("x", DType::F32, ints(image));
    let residual = cx.input("residual", DType::F32, ints(sizes));
    let scaled = |v: Vec<f32>, by: f32| v.into_iter().map(|v| v * by).collect::<Vec<f32>>();
    let (vx, vw) = (values(count(image), 3), scaled(values(count(weights), 5), 0.03));
    let vr = values(count(sizes), 7);
    let shape: Vec<usize> = weights.iter().map(|n| *n as usize).collect();
    let w = cx.constant_f32(&shape, &vw);
    let sum = cx.reduce(ReduceKind::Sum, DType::F32, ints(sizes), &ints(terms), |i, r| {
        let (xi, wi) = at(i, r);
        expr::load(x, DType::F32, xi) * expr::load(w, DType::F32, wi)
    });
    let out = cx.map(DType::F32, ints(sizes), |i| {
        let s = expr::load(sum, DType::F32, i.to_vec());
        let one = s.num(1.0);
        s * (one / (one + (-s).exp())) + expr::load(residual, DType::F32, i.to_vec())
    });
    let place = |shape: &[i64], index: &[Int]| {
        let at = index.iter().map(|i| i.as_const().expect("a number"));
        shape.iter().zip(at).fold(0, |p, (n, i)| p * n + i) as usize
    };
    let points = |n: &[i64]| {
        let mut all = vec![vec![]];
        for n in n {
            all =
                all.iter().flat_map(|p: &Vec<Int>| (0..*n).map(|k| [p.as_slice(), &[Int::new(k)]].concat())).collect();
        }
        all
    };
    let all = points(terms);
    let expected: Vec<f64> = points(sizes)
        .iter()
        .enumerate()
        .map(|(k, i)| {
            let term = |r: &Vec<Int>| {
                let (xi, wi) = at(i, r);
                f64::from(vx[place(image, &xi)]) * f64::from(vw[place(weights, &wi)])
            };
            silu(all.iter().map(term).sum()) + f64::from(vr[k])
        })
        .collect();
    let c = recognise(&cx.program, sum).expect("a contraction");
    let Def::Map { vars, body } = &cx.program.tensor(out).def else { unreachable!("a map was made") };
    let epilogue = expr::subst_vars(*body, &|v| vars.iter().position(|x| *x == v).map(|k| Int::var(c.vars[k])));
    let of = Contract { sum, out, epilogue, position: position(&c) };
    for cpu in &cpus() {
        for choice in 0..choices(&cx.program, cpu, &c, &of) {
            let kernel = lower(&cx.program, cpu, &c, &of, choice).expect("a schedule");
            let tensors = |t: TensorId| match t {
                t if t == x => vx.clone(),
                t if t == w => vw.clone(),
                _ => vr.clone(),
            };
            let got = run(&cx.program, &kernel, &tensors, out, expected.len(), &vec![]);
            for (k, (got, want)) in got.iter().zip(&expected).enumerate() {
                let off = (f64::from(*got) - want).abs();
                let name = cpu.name;
                assert!(off <= 2e-4 * want.abs().max(1.0), "{got}, not {want}, at {k} by choice {choice} on {name}");
            }
        }
    }
}

#[test]
fn activations_follow_matrix_products_of_all_shapes() {
    for [m, k, n] in [[1, 40, 33], [2, 7, 3], [29, 24, 40], [33, 17, 16], [64, 8, 5], [9, 5, 1]] {
        check(&[m, n], &[k], &[m, k], &[k, n], &|i, r| (vec![i[0], r[0]], vec![r[0], i[1]]));
    }
}

#[test]
fn activations_follow_convolutions_with_channels_first_and_last() {
    for [h, w, inputs, outputs, size, step] in
        [[5, 7, 4, 20, 3, 1], [13, 10, 8, 40, 3, 1], [9, 8, 3, 17, 3, 2], [6, 11, 12, 33, 1, 1]]
    {
        let (y, z) = ((h - 1) * step + size, (w - 1) * step + size);
        let weights = [outputs, size, size, inputs];
        check(&[h, w, outputs], &[size, size, inputs], &[y, z, inputs], &weights, &|i, r| {
            (vec![i[0] * step + r[0], i[1] * step + r[1], r[2]], vec![i[2], r[0], r[1], r[2]])
        });
        check(&[outputs, h, w], &[inputs, size, size], &[inputs, y, z], &weights, &|i, r| {
            (vec![r[0], i[1] * step + r[1], i[2] * step + r[2]], vec![i[0], r[1], r[2], r[0]])
        });
    }
}

#[test]
fn activations_follow_depthwise_convolutions() {
    for [h, w, channels] in [[5, 6, 20], [8, 9, 48]] {
        check(&[h, w, channels], &[3, 3], &[h + 2, w + 2, channels], &[3, 3, channels], &|i, r| {
            (vec![i[0] + r[0], i[1] + r[1], i[2]], vec![r[0], r[1], i[2]])
        });
    }
}
