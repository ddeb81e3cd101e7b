//! The axes that an operator reduces over, known or read at run time.

use super::Call;
use crate::sym::Int;
use crate::te::{Cx, OpError, OpResult, TensorId};

/// Which axes are reduced.
#[derive(Clone, Debug)]
pub(super) enum Axes {
    /// For each axis: is it?
    Known(Vec<bool>),
    /// For each axis 1 or 0 as a run-time value, and how many are 1.
    Read(Vec<Int>, usize),
}

impl Axes {
    /// All of these axes (`-rank..rank`).
    pub(super) fn known(cx: &Cx, axes: &[i64], rank: usize) -> OpResult<Axes> {
        let mut reduced = vec![false; rank];
        for a in axes {
            reduced[cx.axis(*a, rank)?] = true;
        }
        Ok(Axes::Known(reduced))
    }

    /// All axes from `first` on.
    pub(super) fn from(first: usize, rank: usize) -> Axes {
        Axes::Known((0..rank).map(|k| k >= first).collect())
    }

    /// Axes as the Reduce operators get them: as second operand or, in older versions, as attribute. None or no axes at
    /// all mean every axis, or with `noop_with_empty_axes` none.
    pub(super) fn of_call(cx: &mut Cx, call: &Call, rank: usize) -> OpResult<Axes> {
        let empty = Axes::Known(vec![call.int("noop_with_empty_axes", 0)? == 0; rank]);
        if let Some(t) = call.opt(1) {
            if cx.rank(t) != 1 {
                return Err(OpError::Invalid(format!("axes of rank {}, a vector is needed", cx.rank(t))));
            }
            let values = cx.ints_or_read(t)?;
            let constant: Option<Vec<i64>> = values.iter().map(|v| v.as_const()).collect();
            return match constant {
                Some(v) if v.is_empty() => Ok(empty),
                Some(v) => Axes::known(cx, &v, rank),
                None => Axes::read(cx, &values, rank),
            };
        }
        match call.opt_ints("axes")? {
            Some(v) if !v.is_empty() => Axes::known(cx, &v, rank),
            _ => Ok(empty),
        }
    }

    fn read(cx: &mut Cx, values: &[Int], rank: usize) -> OpResult<Axes> {
        if values.len() > rank {
            return Err(OpError::Invalid(format!("{} axes of a tensor of rank {rank}", values.len())));
        }
        let mut flags = vec![Int::new(0); rank];
        for v in values {
            cx.require_at_most(*v, Int::from(rank) - 1, "axis out of range")?;
            cx.require_at_most(-Int::from(rank), *v, "axis out of range")?;
            let v = v.if_lt(0, *v + Int::from(rank), *v);
            for (k, flag) in flags.iter_mut().enumerate() {
                *flag = v.if_eq(Int::from(k), 1, *flag);
            }
        }
        // Fewer are set where one is given twice.
        let count = flags.iter().fold(Int::new(0), |n, f| n + *f);
        cx.require_equal(count, Int::from(values.len()), "axes must differ")?;
        Ok(Axes::Read(flags, values.len()))
    }
}

/// The index space of a reduction over some axes of a tensor.
#[derive(Clone, Debug)]
pub(super) struct Space {
    /// Shape of the result before [`Space::finish`].
    pub(super) shape: Vec<Int>,
    /// Extents of the reduced indices.
    pub(super) over: Vec<Int>,
    axes: Axes,
    keep: bool,
    full: Vec<Int>,
}

impl Space {
    /// Reduction of a tensor of shape `full`; with `keep`, reduced axes remain with size 1.
    pub(super) fn new(full: &[Int], axes: &Axes, keep: bool) -> Space {
        let (shape, over) = match axes {
            Axes::Known(reduced) => {
                let each = || full.iter().zip(reduced);
                let one = Int::new(1);
                let shape = each().filter(|(_, r)| keep || !**r).map(|(d, r)| if *r { one } else { *d }).collect();
                (shape, each().filter(|(_, r)| **r).map(|(d, _)| *d).collect())
            }
            Axes::Read(flags, _) => {
                let each = || full.iter().zip(flags);
                (each().map(|(d, f)| f.if_eq(1, 1, *d)).collect(), each().map(|(d, f)| f.if_eq(1, *d, 1)).collect())
            }
        };
        Space { shape, over, axes: axes.clone(), keep, full: full.to_vec() }
    }

    /// The operand's index for an index of the result and one of the reduced space.
    pub(super) fn index(&self, i: &[Int], r: &[Int]) -> Vec<Int> {
        match &self.axes {
            Axes::Known(reduced) => {
                let (mut i, mut r) = (i.iter(), r.iter());
                let mut next = |reduced: bool| {
                    let kept = if self.keep || !reduced { i.next() } else { None };
                    if reduced { r.next().copied() } else { kept.copied() }.unwrap_or(Int::new(0))
                };
                reduced.iter().map(|f| next(*f)).collect()
            }
            Axes::Read(..) => i.iter().zip(r).map(|(a, b)| *a + *b).collect(),
        }
    }

    /// Index of a result for an index of the operand (`keep` only, known axes).
    pub(super) fn result_index(&self, full: &[Int]) -> Vec<Int> {
        match &self.axes {
            Axes::Known(reduced) => full.iter().zip(reduced).map(|(i, r)| if *r { Int::new(0) } else { *i }).collect(),
            Axes::Read(flags, _) => full.iter().zip(flags).map(|(i, f)| f.if_eq(1, 0, *i)).collect(),
        }
    }

    /// Number of elements that each result combines.
    pub(super) fn count(&self) -> Int {
        Int::product(&self.over)
    }

    /// Drops the reduced axes where they are known at run time only.
    pub(super) fn finish(&self, cx: &mut Cx, t: TensorId) -> TensorId {
        let Axes::Read(flags, count) = &self.axes else { return t };
        if self.keep {
            return t;
        }
        let out = self.full.len() - count;
        let mut shape = vec![Int::new(0); out];
        let mut place = Int::new(0);
        for (d, f) in self.full.iter().zip(flags) {
            for (j, s) in shape.iter_mut().enumerate() {
                let here = place.if_eq(Int::from(j), *d, *s);
                *s = f.if_eq(1, *s, here);
            }
            place = place + f.if_eq(1, 0, 1);
        }
        cx.view(t, shape)
    }
}
