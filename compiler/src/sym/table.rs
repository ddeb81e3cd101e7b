//! The thread's table of polynomials, atoms and variables.

use super::Int;
use crate::te::Expr;
use std::cell::RefCell;
use std::collections::HashMap;

/// A variable of the algebra.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct VarId(pub u32);

/// What is known of a variable.
#[derive(Clone, Debug)]
pub struct VarInfo {
    /// Name for text forms.
    pub name: String,
    /// Least value, where known.
    pub lo: Option<i64>,
    /// Greatest value, where known.
    pub hi: Option<i64>,
    /// For a loop index: it runs over `0..extent`.
    pub extent: Option<Int>,
}

impl VarId {
    /// A fresh variable.
    pub fn new(info: VarInfo) -> VarId {
        with(|t| {
            t.vars.push(info);
            VarId(t.vars.len() as u32 - 1)
        })
    }

    /// A fresh loop index over `0..extent`.
    pub fn index(name: &str, extent: Int) -> VarId {
        let hi = extent.bounds().hi.map(|h| h - 1);
        VarId::new(VarInfo { name: name.into(), lo: Some(0), hi, extent: Some(extent) })
    }

    /// Number of iterations of a loop index.
    pub fn extent(self) -> Option<Int> {
        with(|t| t.vars[self.0 as usize].extent)
    }
}

impl core::fmt::Display for VarId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = with(|t| t.vars[self.0 as usize].name.clone());
        write!(f, "{name}.{}", self.0)
    }
}

/// What is known of `var`.
pub fn var_info(var: VarId) -> VarInfo {
    with(|t| t.vars[var.0 as usize].clone())
}

/// A factor of a term.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Atom {
    /// A variable.
    Var(VarId),
    /// Floor division.
    Div(Int, Int),
    /// Remainder of floor division.
    Rem(Int, Int),
    /// Minimum.
    Min(Int, Int),
    /// Maximum.
    Max(Int, Int),
    /// `if a < b { x } else { y }`.
    IfLt(Int, Int, Int, Int),
    /// `if a == b { x } else { y }`.
    IfEq(Int, Int, Int, Int),
    /// An integer computed from tensor data (an index that a Gather reads).
    Data(Expr),
}

/// Handle of an interned atom.
pub(super) type AtomId = u32;

/// Sorted monomials with non-zero coefficients; the empty monomial is the constant.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Poly {
    pub(super) terms: Vec<(Vec<AtomId>, i64)>,
}

impl Poly {
    pub(super) fn constant(v: i64) -> Poly {
        Poly { terms: if v == 0 { vec![] } else { vec![(vec![], v)] } }
    }

    pub(super) fn atom(a: AtomId) -> Poly {
        Poly { terms: vec![(vec![a], 1)] }
    }

    pub(super) fn as_const(&self) -> Option<i64> {
        match self.terms.as_slice() {
            [] => Some(0),
            [(m, c)] if m.is_empty() => Some(*c),
            _ => None,
        }
    }

    pub(super) fn as_atom(&self) -> Option<AtomId> {
        match self.terms.as_slice() {
            [(m, 1)] if m.len() == 1 => Some(m[0]),
            _ => None,
        }
    }

    pub(super) fn from_terms(mut terms: Vec<(Vec<AtomId>, i64)>) -> Poly {
        terms.sort_by(|a, b| a.0.cmp(&b.0));
        let mut out: Vec<(Vec<AtomId>, i64)> = Vec::with_capacity(terms.len());
        for (m, c) in terms {
            match out.last_mut() {
                Some((last, lc)) if *last == m => *lc = lc.saturating_add(c),
                _ => out.push((m, c)),
            }
        }
        out.retain(|(_, c)| *c != 0);
        Poly { terms: out }
    }
}

#[derive(Default)]
pub(super) struct Table {
    polys: Vec<Poly>,
    poly_ids: HashMap<Poly, u32>,
    atoms: Vec<Atom>,
    atom_ids: HashMap<Atom, AtomId>,
    vars: Vec<VarInfo>,
    /// Intervals found before: what is known of a variable never changes.
    pub(super) bounds: HashMap<Int, super::Bounds>,
    /// Proofs found before that a number is at least 0, or never.
    pub(super) signs: HashMap<Int, Option<bool>>,
}

impl Table {
    pub(super) fn intern(&mut self, p: Poly) -> Int {
        if let Some(id) = self.poly_ids.get(&p) {
            return Int(*id);
        }
        let id = self.polys.len() as u32;
        self.polys.push(p.clone());
        self.poly_ids.insert(p, id);
        Int(id)
    }

    pub(super) fn atom(&mut self, a: Atom) -> AtomId {
        if let Some(id) = self.atom_ids.get(&a) {
            return *id;
        }
        let id = self.atoms.len() as u32;
        self.atoms.push(a);
        self.atom_ids.insert(a, id);
        id
    }

    pub(super) fn poly(&self, i: Int) -> &Poly {
        &self.polys[i.0 as usize]
    }

    pub(super) fn atom_at(&self, a: AtomId) -> &Atom {
        &self.atoms[a as usize]
    }
}

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
}

/// Runs `f` on the table. `f` must not call back into the algebra.
pub(super) fn with<R>(f: impl FnOnce(&mut Table) -> R) -> R {
    TABLE.with(|t| f(&mut t.borrow_mut()))
}

/// Empties the thread's table: every [`Int`] and [`VarId`] made before is void. Called between compilations.
pub fn reset() {
    with(|t| *t = Table::default());
}
