//! Who reads which tensor.

use crate::sym::{Int, VarId, free_vars};
use crate::te::{Block, Check, Def, Expr, Program, Step, TensorId, expr};
use std::collections::{BTreeMap, BTreeSet};

/// What is needed.
pub struct Uses {
    /// Tensors that must lie in memory: outputs, operands of hand-written kernels, data read into symbols, results of
    /// branches, what lives in another tensor.
    pub whole: BTreeSet<TensorId>,
    /// For each needed tensor, the needed tensors whose expressions load it.
    pub readers: BTreeMap<TensorId, BTreeSet<TensorId>>,
    /// All tensors that are needed.
    pub live: BTreeSet<TensorId>,
    /// Tensors defined within a loop, with the number of the innermost one.
    pub in_loop: BTreeMap<TensorId, usize>,
}

/// All scalar expressions of a definition.
pub fn exprs(def: &Def) -> Vec<Expr> {
    match def {
        Def::Map { body, .. } | Def::Reduce { body, .. } => vec![*body],
        Def::Fold { init, step, result, .. } => init.iter().chain(step).chain([result]).copied().collect(),
        Def::Assembled { pieces, .. } => pieces.iter().map(|p| p.body).collect(),
        _ => vec![],
    }
}

/// Walks back from what the program gives.
pub fn find(p: &Program) -> Uses {
    let mut u =
        Uses { whole: BTreeSet::new(), readers: BTreeMap::new(), live: BTreeSet::new(), in_loop: BTreeMap::new() };
    note_loops(&p.main, 0, &mut 0, &mut u.in_loop);
    let mut todo: Vec<TensorId> = vec![];
    let mut vars: BTreeSet<VarId> = BTreeSet::new();
    for t in &p.outputs {
        u.whole.insert(*t);
        todo.push(*t);
    }
    roots(&p.main, &mut u, &mut todo, &mut vars);
    let mut seen_vars: BTreeSet<VarId> = BTreeSet::new();
    loop {
        while let Some(v) = vars.pop_first() {
            if seen_vars.insert(v)
                && let Some((t, _)) = p.data_vars.get(&v)
            {
                u.whole.insert(*t);
                todo.push(*t);
            }
        }
        let Some(t) = todo.pop() else { break };
        if !u.live.insert(t) {
            continue;
        }
        let tensor = p.tensor(t);
        tensor.shape.iter().for_each(|d| vars.extend(free_vars(*d)));
        for e in exprs(&tensor.def) {
            expr::collect_vars(e, &mut vars);
            for (src, _) in expr::loads(e) {
                u.readers.entry(src).or_default().insert(t);
                todo.push(src);
            }
        }
        match &tensor.def {
            Def::View(base) => {
                u.readers.entry(*base).or_default().insert(t);
                todo.push(*base);
            }
            Def::Map { vars: v, .. } | Def::Reduce { vars: v, .. } | Def::Fold { vars: v, .. } => {
                extents(v, &mut vars);
                if let Def::Reduce { rvars, .. } | Def::Fold { rvars, .. } = &tensor.def {
                    extents(rvars, &mut vars);
                }
            }
            Def::Custom(c, _) => {
                for src in &c.inputs {
                    u.whole.insert(*src);
                    u.readers.entry(*src).or_default().insert(t);
                    todo.push(*src);
                }
                for (_, shape) in &c.outputs {
                    shape.iter().for_each(|d| vars.extend(free_vars(*d)));
                }
                c.scratch.iter().for_each(|(_, n)| vars.extend(free_vars(*n)));
            }
            Def::Parts(room) => vars.extend(free_vars(*room)),
            Def::Assembled { lodgers, pieces } => {
                for src in lodgers {
                    u.whole.insert(*src);
                    u.readers.entry(*src).or_default().insert(t);
                    todo.push(*src);
                }
                for piece in pieces {
                    piece.start.iter().for_each(|i| vars.extend(free_vars(*i)));
                    extents(&piece.vars, &mut vars);
                }
            }
            Def::Input(_) | Def::Const(_) | Def::Slot => {}
        }
    }
    u
}

fn extents(of: &[VarId], vars: &mut BTreeSet<VarId>) {
    for e in of.iter().filter_map(|v| v.extent()) {
        vars.extend(free_vars(e));
    }
}

/// Number of the block in which each tensor is defined.
pub(super) fn blocks(p: &Program) -> BTreeMap<TensorId, usize> {
    fn go(b: &Block, next: &mut usize, out: &mut BTreeMap<TensorId, usize>) {
        let me = *next;
        *next += 1;
        for step in &b.steps {
            match step {
                Step::Define(t) => {
                    out.insert(*t, me);
                }
                Step::Check(_) => {}
                Step::If { then, other, .. } => {
                    go(then, next, out);
                    go(other, next, out);
                }
                Step::Loop(l) => go(&l.body, next, out),
            }
        }
    }
    let mut out = BTreeMap::new();
    go(&p.main, &mut 0, &mut out);
    out
}

fn note_loops(b: &Block, inside: usize, count: &mut usize, out: &mut BTreeMap<TensorId, usize>) {
    for step in &b.steps {
        match step {
            Step::Define(t) if inside > 0 => {
                out.insert(*t, inside);
            }
            Step::Define(_) | Step::Check(_) => {}
            Step::If { then, other, .. } => {
                note_loops(then, inside, count, out);
                note_loops(other, inside, count, out);
            }
            Step::Loop(l) => {
                *count += 1;
                note_loops(&l.body, *count, count, out);
            }
        }
    }
}

/// Checks, branches and loops are always needed.
fn roots(b: &Block, u: &mut Uses, todo: &mut Vec<TensorId>, vars: &mut BTreeSet<VarId>) {
    let ints = |i: &Int, vars: &mut BTreeSet<VarId>| vars.extend(free_vars(*i));
    for step in &b.steps {
        match step {
            Step::Define(_) => {}
            Step::Check(Check::Equal(a, b, _) | Check::AtMost(a, b, _)) => {
                ints(a, vars);
                ints(b, vars);
            }
            Step::If { cond, then, then_results, other, other_results, dims, .. } => {
                ints(cond, vars);
                for (_, a, b) in dims {
                    ints(a, vars);
                    ints(b, vars);
                }
                for t in then_results.iter().chain(other_results) {
                    u.whole.insert(*t);
                    todo.push(*t);
                }
                roots(then, u, todo, vars);
                roots(other, u, todo, vars);
            }
            Step::Loop(l) => {
                l.most.iter().chain(&l.start).chain(&l.go_on).for_each(|i| ints(i, vars));
                for d in &l.dims {
                    ints(&d.init, vars);
                    ints(&d.next, vars);
                }
                let carried = l.carried.iter().flat_map(|c| [c.current, c.init, c.next, c.result]);
                for t in carried.chain(l.scans.iter().flat_map(|s| [s.element, s.result])) {
                    u.whole.insert(t);
                    todo.push(t);
                }
                roots(&l.body, u, todo, vars);
            }
        }
    }
}
