//! The builder's methods for loops and branches.

use super::{Builder, Kind, Scope, closed};
use crate::dtype::DType;
use crate::kernel::ir::{Reg, Stmt, Type};
use crate::kernel::types::{cond_type, index_type};

impl Builder {
    /// `for i in (lo..hi).step_by(step) { body(i) }`.
    pub fn for_(&mut self, lo: Reg, hi: Reg, step: i64, body: impl FnOnce(&mut Builder, Reg)) {
        let i = self.begin_for(lo, hi, step);
        body(self, i);
        self.end();
    }

    /// `if cond { then } else { other }`.
    pub fn if_(&mut self, cond: Reg, then: impl FnOnce(&mut Builder), other: impl FnOnce(&mut Builder)) {
        self.begin_if(cond);
        then(self);
        self.begin_else();
        other(self);
        self.end();
    }

    /// `while head() { body() }`. Registers of the head are visible in the body.
    pub fn while_(&mut self, head: impl FnOnce(&mut Builder) -> Reg, body: impl FnOnce(&mut Builder)) {
        self.begin_while();
        let cond = head(self);
        self.begin_body(cond);
        body(self);
        self.end();
    }

    /// Opens a counted loop and gives its variable; [`Builder::end`] closes it. A loop that is known to run once becomes
    /// its body (the variable is then `lo`), and one that is known not to run is dropped.
    pub fn begin_for(&mut self, lo: Reg, hi: Reg, step: i64) -> Reg {
        if let Err(error) = index_type(self.ty(lo)).and_then(|()| index_type(self.ty(hi))) {
            panic!("kernel {}: for: {error}", self.name);
        }
        if step < 1 {
            panic!("kernel {}: for with step {step}", self.name);
        }
        if let (Some(first), Some(bound)) = (self.const_i64(lo), self.const_i64(hi)) {
            if first >= bound {
                self.open(Kind::Never);
                return lo;
            }
            if first.checked_add(step).is_none_or(|second| second >= bound) {
                self.open(Kind::Once);
                return lo;
            }
        }
        // The scope needs the register and the register the scope; the register stands for itself until then.
        self.open(Kind::Root);
        let ivar = self.new_reg(Type::scalar(DType::I64), None, self.scopes.len() - 1);
        self.top().kind = Kind::For { ivar, lo, hi, step };
        ivar
    }

    /// Opens the first branch of an `if`; then [`Builder::begin_else`] (or not) and [`Builder::end`].
    pub fn begin_if(&mut self, cond: Reg) {
        self.check_cond(cond);
        self.open(Kind::Then { cond });
    }

    /// Closes the first branch and opens the second.
    pub fn begin_else(&mut self) {
        match self.close() {
            Scope { kind: Kind::Then { cond }, stmts, .. } => self.open(Kind::Else { cond, then: closed(stmts) }),
            _ => panic!("kernel {}: else without if", self.name),
        }
    }

    /// Opens the head of a while loop; compute the condition, then [`Builder::begin_body`].
    pub fn begin_while(&mut self) {
        self.open(Kind::Head);
    }

    /// Ends the head of a while loop and opens its body, which [`Builder::end`] closes.
    pub fn begin_body(&mut self, cond: Reg) {
        self.check_cond(cond);
        if !matches!(self.top().kind, Kind::Head) {
            panic!("kernel {}: body of a while loop without a head", self.name);
        }
        self.open(Kind::Body { cond });
    }

    /// Closes the innermost loop or branch.
    pub fn end(&mut self) {
        let scope = self.close();
        let stmts = closed(scope.stmts);
        match scope.kind {
            Kind::Root | Kind::Head => panic!("kernel {}: end without a matching begin", self.name),
            Kind::Never => {}
            Kind::Once => self.top().stmts.extend(stmts),
            Kind::For { ivar, lo, hi, step } => self.push(Stmt::For { ivar, lo, hi, step, body: stmts }),
            Kind::Then { cond } => self.end_if(cond, stmts, Vec::new()),
            Kind::Else { cond, then } => self.end_if(cond, then, stmts),
            Kind::Body { cond } => {
                let head = closed(self.close().stmts);
                self.push(Stmt::While { head, cond, body: stmts });
            }
        }
    }

    fn end_if(&mut self, cond: Reg, then: Vec<Stmt>, other: Vec<Stmt>) {
        match self.const_i64(cond) {
            Some(0) => self.top().stmts.extend(other),
            Some(_) => self.top().stmts.extend(then),
            None => self.push(Stmt::If { cond, then, other }),
        }
    }

    fn close(&mut self) -> Scope {
        if self.scopes.len() < 2 {
            panic!("kernel {}: end without a matching begin", self.name);
        }
        match self.scopes.pop() {
            Some(scope) => scope,
            None => unreachable!("counted above"),
        }
    }

    fn check_cond(&self, cond: Reg) {
        if let Err(error) = cond_type(self.ty(cond)) {
            panic!("kernel {}: {error}", self.name);
        }
    }
}
