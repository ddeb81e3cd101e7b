//! Tensors that are written in place into the tensor of which they are a part.
//!
//! A padded or joined tensor is made of boxes that show other tensors as they are, and of the rest: a border, copies. A
//! tensor that is shown whole needs no memory and no copy of its own: it *lives* in the larger one, its *home*. The unit
//! that computes it stores there, and whoever reads it reads the home. Only the rest is left to be computed by a kernel of
//! its own.
//!
//! Only tensors that would be stored anyway move in, or those that the unit of a sum can store: else nothing is saved.

use super::boxes::{self, Leaf};
use super::uses::{self, Uses, exprs};
use super::{inline, same};
use crate::sym::{Int, VarId, free_vars};
use crate::te::{Def, Expr, Home, Node, Piece, Program, TensorId, expr};
use std::collections::{BTreeMap, BTreeSet};

/// Rewrites the program: tensors that can be put together in place are.
pub fn find(mut p: Program) -> Program {
    let mut uses = uses::find(&p);
    let (mut inlined, mut stored, _) = inline::inline(p.clone(), &uses);
    if same::merge(&mut p, &stored, &uses.whole) {
        uses = uses::find(&p);
        (inlined, stored, _) = inline::inline(p.clone(), &uses);
    }
    let mut f = Finder {
        stored: &stored,
        inlined: &inlined,
        uses: &uses,
        constant: constants(&p, &uses),
        blocks: uses::blocks(&p),
        out: p,
    };
    let read: BTreeSet<TensorId> = f.out.data_vars.values().map(|(t, _)| *t).collect();
    for t in inline::defined(&f.out) {
        if stored.contains(&t) && !read.contains(&t) {
            f.assemble(t);
        }
    }
    f.move_loads();
    f.out
}

struct Finder<'a> {
    /// Tensors that have memory without homes, and the program as it is inlined then.
    stored: &'a BTreeSet<TensorId>,
    inlined: &'a Program,
    uses: &'a Uses,
    /// Tensors that depend on constants alone.
    constant: BTreeSet<TensorId>,
    /// Number of the block in which each tensor is defined.
    blocks: BTreeMap<TensorId, usize>,
    out: Program,
}

/// A tensor shown whole, at an offset.
struct Lodger {
    tensor: TensorId,
    offset: Vec<Int>,
}

impl Finder<'_> {
    /// Makes `t` an assembled tensor, if there are tensors that can live in it.
    fn assemble(&mut self, t: TensorId) {
        let Def::Map { vars, body } = self.out.tensor(t).def.clone() else { return };
        let shape = self.out.tensor(t).shape.clone();
        let body = self.see_through(body, 0);
        if !matches!(body.node(), Node::Select(..)) {
            return;
        }
        let Some(leaves) = boxes::leaves(&vars, &shape, body) else { return };
        let mut lodgers: Vec<Lodger> = vec![];
        for leaf in &leaves {
            let Some((source, offset)) = leaf.shows(&vars, &shape) else { continue };
            let known = lodgers.iter().any(|l| l.tensor == source);
            if !known && self.shown_whole(source, &offset, &leaves, &vars, &shape) && self.may_live(source, t, &offset)
            {
                lodgers.push(Lodger { tensor: source, offset });
            }
        }
        if lodgers.is_empty() {
            return;
        }
        let held = |leaf: &&Leaf| {
            let shown = leaf.shows(&vars, &shape);
            !shown.is_some_and(|(s, o)| lodgers.iter().any(|l| l.tensor == s && l.offset == o))
        };
        let pieces: Vec<Piece> = leaves.iter().filter(held).map(|leaf| leaf.piece(&vars)).collect();
        let ids = lodgers.iter().map(|l| l.tensor).collect();
        for l in lodgers {
            self.out.homes.insert(l.tensor, Home { tensor: t, offset: l.offset });
        }
        self.out.tensors[t.0 as usize].def = Def::Assembled { lodgers: ids, pieces };
    }

    /// Puts movement that disappears into its users into `e`, so that what it moves is seen.
    fn see_through(&self, e: Expr, depth: usize) -> Expr {
        if depth > 8 {
            return e;
        }
        let mut changed = false;
        let seen = expr::map_loads(e, &mut |t, index, _| {
            if self.stored.contains(&t) {
                return None;
            }
            let tensor = self.out.tensor(t);
            let Def::Map { vars, body } = &tensor.def else { return None };
            if !inline::is_movement(*body) {
                return None;
            }
            changed = true;
            let e = expr::subst_vars(*body, &|v| vars.iter().position(|x| *x == v).map(|k| index[k]));
            Some(if tensor.dtype.is_float() { expr::cast(tensor.dtype, e) } else { e })
        });
        if changed { self.see_through(seen, depth + 1) } else { seen }
    }

    /// Do the boxes that show `source` at `offset` make up the whole of it?
    fn shown_whole(&self, source: TensorId, offset: &[Int], leaves: &[Leaf], vars: &[VarId], shape: &[Int]) -> bool {
        let size = &self.out.tensor(source).shape;
        let mut shown = Int::new(0);
        for leaf in leaves {
            if leaf.shows(vars, shape).is_some_and(|(s, o)| s == source && o == offset) {
                let inside = leaf
                    .range
                    .iter()
                    .zip(offset)
                    .zip(size)
                    .all(|(((lo, hi), o), d)| o.le(*lo) == Some(true) && hi.le(*o + *d) == Some(true));
                if !inside {
                    return false;
                }
                shown = shown + leaf.volume();
            }
        }
        shown.eq_proof(Int::product(size)) == Some(true)
    }

    /// May `t` live in `home`?
    fn may_live(&self, t: TensorId, home: TensorId, offset: &[Int]) -> bool {
        let p = &self.out;
        let computed =
            matches!(p.tensor(t).def, Def::Map { .. } | Def::Reduce { .. } | Def::Fold { .. } | Def::Assembled { .. });
        let views = self.uses.readers.get(&t).into_iter().flatten().any(|r| matches!(p.tensor(*r).def, Def::View(_)));
        computed
            && !views
            && p.tensor(t).dtype == p.tensor(home).dtype
            && !self.uses.whole.contains(&t)
            && !p.homes.contains_key(&t)
            && !self.constant.contains(&t)
            && self.blocks.get(&t) == self.blocks.get(&home)
            && (self.stored.contains(&t) || self.follows_sum(t))
            && self.is_known(t, home, offset)
    }

    /// Would the unit that computes a sum store `t`?
    fn follows_sum(&self, t: TensorId) -> bool {
        let is_sum = |s: TensorId| matches!(self.inlined.tensor(s).def, Def::Reduce { .. } | Def::Fold { .. });
        exprs(&self.inlined.tensor(t).def)
            .into_iter()
            .flat_map(expr::loads)
            .any(|(s, _)| is_sum(s) || matches!(self.inlined.tensor(s).def, Def::View(base) if is_sum(base)))
    }

    /// Is the size of `home`, and where `t` lies in it, known when `t` and those who live in it are computed?
    fn is_known(&self, t: TensorId, home: TensorId, offset: &[Int]) -> bool {
        let p = &self.out;
        let own: BTreeSet<VarId> = p.tensor(t).shape.iter().flat_map(|d| free_vars(*d)).collect();
        let known = |i: &Int| free_vars(*i).iter().all(|v| p.dim_vars.contains_key(v) || own.contains(v));
        let lodgers = match &p.tensor(t).def {
            Def::Assembled { lodgers, .. } => lodgers.as_slice(),
            _ => &[],
        };
        p.tensor(home).shape.iter().chain(offset).all(known) && lodgers.iter().all(|l| self.is_known(*l, home, offset))
    }

    /// Loads of what has a home become loads of the home.
    fn move_loads(&mut self) {
        if self.out.homes.is_empty() {
            return;
        }
        let places = self.out.clone();
        let put = |e: Expr| {
            expr::map_loads(e, &mut |t, index, dtype| {
                places.homes.contains_key(&t).then(|| {
                    let (home, index) = places.place(t, index);
                    expr::load_as(home, dtype, index)
                })
            })
        };
        for t in &self.uses.live {
            super::rewrite(&mut self.out.tensors[t.0 as usize].def, &put);
        }
    }
}

/// Tensors that depend on constants alone.
fn constants(p: &Program, uses: &Uses) -> BTreeSet<TensorId> {
    let mut out = BTreeSet::new();
    for t in inline::defined(p).into_iter().filter(|t| uses.live.contains(t)) {
        let def = &p.tensor(t).def;
        let constant = match def {
            Def::Const(_) => true,
            Def::View(base) => out.contains(base),
            Def::Map { .. } | Def::Reduce { .. } | Def::Fold { .. } => {
                exprs(def).into_iter().flat_map(expr::loads).all(|(s, _)| out.contains(&s))
            }
            _ => false,
        };
        if constant {
            out.insert(t);
        }
    }
    out
}
