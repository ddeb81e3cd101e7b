//! Scalar expressions to kernel IR, for one element or for several consecutive ones along a lane variable.

use super::math;
use super::{Binding, LoweredKernel};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{self, Access, BinOp, Buf, BufParam, Reg, UnOp};
use crate::sym::{Atom, Int, VarId, linear_in};
use crate::te::cx::flatten;
use crate::te::{Expr, Func1, Func2, Node, Program, TensorId, expr};
use std::collections::HashMap;
use std::sync::Arc;

/// A kernel under construction: the builder and what its parameters stand for.
pub struct Emit<'a> {
    /// The kernel's statements.
    pub b: Builder,
    /// The program whose tensors are loaded.
    pub program: &'a Program,
    /// What each buffer parameter is bound to.
    pub bindings: Vec<Binding>,
    /// What each scalar parameter is.
    pub scalars: Vec<Int>,
    /// Values of the loop indices that are open; for the lane variable, of lane 0.
    pub vars: HashMap<VarId, Reg>,
    /// The variable along which lanes lie, and their number.
    pub lane: Option<(VarId, u16)>,
    /// Values of tensors that live in registers: reductions of the enclosing loops.
    pub locals: HashMap<TensorId, Reg>,
    /// Accumulators of the fold being emitted.
    pub accs: Vec<Reg>,
    memo: Vec<HashMap<Expr, Reg>>,
}

impl<'a> Emit<'a> {
    /// Starts a kernel.
    pub fn new(program: &'a Program, name: &str, tiled: bool) -> Emit<'a> {
        Emit {
            b: Builder::new(name, vec![], 0, tiled),
            program,
            bindings: vec![],
            scalars: vec![],
            vars: HashMap::new(),
            lane: None,
            locals: HashMap::new(),
            accs: vec![],
            memo: vec![HashMap::new()],
        }
    }

    /// Ends it. `tiles` is the number of work units of a tiled kernel.
    pub fn finish(self, tiles: Option<Int>) -> LoweredKernel {
        LoweredKernel { kernel: self.b.finish(), bindings: self.bindings, scalars: self.scalars, tiles }
    }

    /// Lanes of the values being emitted.
    pub fn lanes(&self) -> u16 {
        self.lane.map_or(1, |(_, n)| n)
    }

    /// Forgets the values of expressions emitted so far. To be called when a loop is entered or left, or when the lane
    /// variable, a local or an accumulator changes: values are shared only within one straight piece of code.
    pub fn forget(&mut self) {
        self.memo = vec![HashMap::new()];
    }

    /// Tells the value of an expression.
    pub fn know(&mut self, e: Expr, value: Reg) {
        self.memo.last_mut().map(|m| m.insert(e, value));
    }

    /// The buffer parameter of the memory that holds a tensor, added when it is first used. A kernel may read from the memory
    /// that it writes: other elements.
    pub fn tensor_buf(&mut self, t: TensorId, access: Access) -> Buf {
        let t = self.program.memory(t);
        let dtype = self.program.tensor(t).dtype;
        self.buf(Binding::Tensor(t), dtype, access)
    }

    /// A buffer parameter for data that only this kernel uses, laid out in the order in which it is read.
    pub fn packed_buf(&mut self, dtype: DType, bytes: Arc<Vec<u8>>) -> Buf {
        self.buf(Binding::Packed(dtype, bytes), dtype, Access::Read)
    }

    /// A buffer parameter for work space of `count` elements.
    pub fn scratch_buf(&mut self, dtype: DType, count: Int) -> Buf {
        // Never shared: two requests are two buffers.
        self.bindings.push(Binding::Scratch(dtype, count));
        self.b.add_buf(BufParam { dtype, access: Access::Write })
    }

    fn buf(&mut self, binding: Binding, dtype: DType, access: Access) -> Buf {
        if let Some(k) = self.bindings.iter().position(|x| *x == binding) {
            if access == Access::Write {
                self.b.let_write(Buf(k as u32));
            }
            return Buf(k as u32);
        }
        self.bindings.push(binding);
        self.b.add_buf(BufParam { dtype, access })
    }

    /// An index expression as an `i64`, at lane 0.
    pub fn int(&mut self, i: Int) -> Reg {
        if let Some(c) = i.as_const() {
            return self.b.i64(c);
        }
        if self.is_invariant(i) {
            let k = self.scalars.iter().position(|s| *s == i).unwrap_or_else(|| {
                self.scalars.push(i);
                self.b.add_scalar() as usize
            });
            return self.b.scalar(k as u32);
        }
        // Terms without loop indices first, as one scalar; then terms by the depth of their loops, so that partial
        // sums are hoisted.
        let mut invariant = Int::new(0);
        let mut parts: Vec<(u32, Reg)> = vec![];
        for (c, atoms) in i.terms() {
            let term = atoms.iter().fold(Int::new(c), |t, a| t * atom_int(*a));
            if self.is_invariant(term) {
                invariant = invariant + term;
                continue;
            }
            let mut factor = Int::new(c);
            let mut regs = vec![];
            for a in atoms {
                if self.is_invariant(atom_int(a)) {
                    factor = factor * atom_int(a);
                } else {
                    regs.push(self.atom(a));
                }
            }
            let mut product = regs[0];
            for r in &regs[1..] {
                product = self.b.mul(product, *r);
            }
            let factor = self.int(factor);
            product = self.b.mul(product, factor);
            let order = regs.iter().map(|r| r.0).max().unwrap_or(0);
            parts.push((order, product));
        }
        parts.sort_by_key(|(o, _)| *o);
        let mut sum = self.int(invariant);
        for (_, p) in parts {
            sum = self.b.add(sum, p);
        }
        sum
    }

    /// Free of loop indices and data: the plan can compute it once.
    fn is_invariant(&self, i: Int) -> bool {
        !crate::sym::any_atom(i, &mut |a| match a {
            Atom::Data(_) => true,
            Atom::Var(v) => self.vars.contains_key(&v),
            _ => false,
        })
    }

    fn atom(&mut self, a: Atom) -> Reg {
        match a {
            Atom::Var(v) => match self.vars.get(&v) {
                Some(r) => *r,
                None => self.int(Int::var(v)),
            },
            Atom::Div(x, d) => {
                let (xr, dr) = (self.int(x), self.int(d));
                let q = self.b.div(xr, dr);
                if x.bounds().lo.is_some_and(|l| l >= 0) && d.bounds().lo.is_some_and(|l| l >= 0) {
                    return q;
                }
                // Floor: one less where the remainder is not zero and the signs differ.
                let r = self.b.rem(xr, dr);
                let zero = self.b.i64(0);
                let inexact = self.b.cmp(ir::Cmp::Ne, r, zero);
                let mixed = self.b.bin(BinOp::Xor, r, dr);
                let mixed = self.b.cmp(ir::Cmp::Lt, mixed, zero);
                let adjust = self.b.and(inexact, mixed);
                let one = self.b.i64(1);
                let less = self.b.sub(q, one);
                self.b.select(adjust, less, q)
            }
            Atom::Rem(x, d) => {
                let (xr, dr) = (self.int(x), self.int(d));
                let r = self.b.rem(xr, dr);
                if x.bounds().lo.is_some_and(|l| l >= 0) && d.bounds().lo.is_some_and(|l| l >= 0) {
                    return r;
                }
                let zero = self.b.i64(0);
                let inexact = self.b.cmp(ir::Cmp::Ne, r, zero);
                let mixed = self.b.bin(BinOp::Xor, r, dr);
                let mixed = self.b.cmp(ir::Cmp::Lt, mixed, zero);
                let adjust = self.b.and(inexact, mixed);
                let more = self.b.add(r, dr);
                self.b.select(adjust, more, r)
            }
            Atom::Min(x, y) => {
                let (x, y) = (self.int(x), self.int(y));
                self.b.min(x, y)
            }
            Atom::Max(x, y) => {
                let (x, y) = (self.int(x), self.int(y));
                self.b.max(x, y)
            }
            Atom::IfLt(a, b, x, y) => {
                let (a, b, x, y) = (self.int(a), self.int(b), self.int(x), self.int(y));
                let c = self.b.cmp(ir::Cmp::Lt, a, b);
                self.b.select(c, x, y)
            }
            Atom::IfEq(a, b, x, y) => {
                let (a, b, x, y) = (self.int(a), self.int(b), self.int(x), self.int(y));
                let c = self.b.cmp(ir::Cmp::Eq, a, b);
                self.b.select(c, x, y)
            }
            Atom::Data(e) => {
                let lane = self.lane.take();
                let saved = std::mem::replace(&mut self.memo, vec![HashMap::new()]);
                let r = self.expr(e);
                self.memo = saved;
                self.lane = lane;
                r
            }
        }
    }

    /// An index expression at lane `k`.
    fn int_at_lane(&mut self, i: Int, k: u16) -> Reg {
        match self.lane {
            Some((v, _)) if k > 0 => {
                let moved = crate::sym::subst(i, &|x| (x == v).then(|| Int::var(v) + i64::from(k)));
                self.int(moved)
            }
            _ => self.int(i),
        }
    }

    /// The change of `i` from lane to lane, if it is a constant.
    pub fn lane_stride(&self, i: Int) -> Option<i64> {
        let Some((v, _)) = self.lane else { return Some(0) };
        linear_in(i, v)?.0.as_const()
    }

    /// An expression's value: a scalar, or one value a lane.
    pub fn expr(&mut self, e: Expr) -> Reg {
        if let Some(r) = self.memo.iter().rev().find_map(|m| m.get(&e)) {
            return *r;
        }
        let r = self.compute(e);
        if let Some(m) = self.memo.last_mut() {
            m.insert(e, r);
        }
        r
    }

    /// An expression of constants and accumulators with `lanes` lanes each.
    pub fn expr_lanes(&mut self, e: Expr, lanes: u16) -> Reg {
        // No index depends on this variable, so the lanes are all alike but for the accumulators.
        let lane = VarId::index("lane", Int::from(usize::from(lanes)));
        self.lane = (lanes > 1).then_some((lane, lanes));
        let r = self.expr(e);
        self.lane = None;
        r
    }

    fn compute(&mut self, e: Expr) -> Reg {
        let lanes = self.lanes();
        match e.node() {
            Node::Const(imm) => self.b.const_of(imm, lanes),
            Node::Int(i) => self.int_lanes(i),
            Node::Load(t, index) => self.load(t, &index),
            Node::Acc(k) => self.accs[k as usize],
            Node::Un(f, a) => {
                let a = self.expr(a);
                un(&mut self.b, f, a)
            }
            Node::Bin(f, a, b) => {
                // a*b + c contracts to one rounding: the same on every target that has it, and never less exact.
                let (a, b) = (self.expr(a), self.expr(b));
                bin(&mut self.b, f, a, b)
            }
            Node::Cmp(c, a, b) => {
                let (a, b) = (self.expr(a), self.expr(b));
                self.b.cmp(c, a, b)
            }
            Node::Select(c, x, y) => self.select(c, x, y),
            Node::Cast(to, a) => {
                let a = self.expr(a);
                self.b.cast(to, a)
            }
            Node::Bitcast(to, a) => {
                let a = self.expr(a);
                self.b.bitcast(to, a)
            }
        }
    }

    fn int_lanes(&mut self, i: Int) -> Reg {
        let lanes = self.lanes();
        match self.lane_stride(i) {
            Some(0) => {
                let r = self.int(i);
                self.b.splat(r, lanes)
            }
            Some(s) => {
                let base = self.int(i);
                let base = self.b.splat(base, lanes);
                let iota = self.b.iota(DType::I64, lanes);
                let step = self.b.i64(s);
                let step = self.b.splat(step, lanes);
                let offsets = self.b.mul(iota, step);
                self.b.add(base, offsets)
            }
            None => {
                let first = self.int(i);
                let mut v = self.b.splat(first, lanes);
                for k in 1..lanes {
                    let r = self.int_at_lane(i, k);
                    v = self.b.insert(v, k, r);
                }
                v
            }
        }
    }

    fn load(&mut self, t: TensorId, index: &[Int]) -> Reg {
        if let Some(r) = self.locals.get(&t) {
            let (r, lanes) = (*r, self.lanes());
            return if self.b.ty(r).lanes == lanes { r } else { self.b.splat(r, lanes) };
        }
        let tensor = self.program.tensor(t);
        if tensor.shape.iter().any(|d| d.as_const() == Some(0)) {
            // It has no element: a choice around the load leads elsewhere, perhaps after both sides are computed.
            let ty = ir::Type::vector(tensor.dtype.compute(), self.lanes());
            return match ty.elem {
                DType::Bool => {
                    let no = self.b.bool(false);
                    self.b.splat(no, ty.lanes)
                }
                elem if elem.is_float() => self.b.float(ty, 0.0),
                _ => self.b.int(ty, 0),
            };
        }
        let shape = &tensor.shape;
        // Loads come either by axes or already as row-major positions.
        let flat = if index.len() == 1 && shape.len() != 1 { index[0] } else { flatten(shape, index) };
        let buf = self.tensor_buf(t, Access::Read);
        self.load_flat(buf, flat)
    }

    /// Loads at a row-major position that varies with the lanes as it may.
    pub fn load_flat(&mut self, buf: Buf, flat: Int) -> Reg {
        let lanes = self.lanes();
        match self.lane_stride(flat) {
            Some(0) => {
                let i = self.int(flat);
                let r = self.b.load(buf, i, 0, 1);
                self.b.splat(r, lanes)
            }
            Some(1) => {
                let i = self.int(flat);
                self.b.load(buf, i, 0, lanes)
            }
            stride => {
                let first = self.int(flat);
                let r = self.b.load(buf, first, 0, 1);
                let mut v = self.b.splat(r, lanes);
                for k in 1..lanes {
                    let r = match stride {
                        Some(s) => self.b.load(buf, first, s * i64::from(k), 1),
                        None => {
                            let i = self.int_at_lane(flat, k);
                            self.b.load(buf, i, 0, 1)
                        }
                    };
                    v = self.b.insert(v, k, r);
                }
                v
            }
        }
    }

    /// A choice: a branch where the condition is one for all lanes and a side costs something or must not be computed, else
    /// both sides.
    fn select(&mut self, c: Expr, x: Expr, y: Expr) -> Reg {
        let cheap = |e: Expr| matches!(e.node(), Node::Const(_) | Node::Int(_) | Node::Acc(_));
        let lanes = self.lanes();
        let branches = match lanes {
            1 => !(cheap(x) && cheap(y) || [x, y].iter().all(|e| self.memo_has(*e) || compared(c, *e))),
            _ => (guards(x) || guards(y)) && self.is_uniform(c),
        };
        if !branches {
            let (cond, x, y) = (self.expr(c), self.expr(x), self.expr(y));
            return self.b.select(cond, x, y);
        }
        let cond = if lanes == 1 { self.expr(c) } else { self.uniform(c) };
        let v = self.b.var(ir::Type { elem: x.dtype(), lanes });
        self.b.begin_if(cond);
        self.branch(v, x);
        self.b.begin_else();
        self.branch(v, y);
        self.b.end();
        self.b.get(v)
    }

    /// Is a condition the same in all lanes?
    fn is_uniform(&self, c: Expr) -> bool {
        let mut vars = std::collections::BTreeSet::new();
        expr::collect_vars(c, &mut vars);
        let local = |t: &TensorId| self.locals.get(t).is_some_and(|r| self.b.ty(*r).lanes > 1);
        self.lane.is_none_or(|(v, _)| !vars.contains(&v)) && !expr::loads(c).iter().any(|(t, _)| local(t))
    }

    /// The one value of an expression that is the same in all lanes.
    fn uniform(&mut self, e: Expr) -> Reg {
        let lane = self.lane.take();
        let memo = std::mem::replace(&mut self.memo, vec![HashMap::new()]);
        let r = self.expr(e);
        self.memo = memo;
        self.lane = lane;
        r
    }

    fn branch(&mut self, v: ir::Var, e: Expr) {
        self.memo.push(HashMap::new());
        let r = self.expr(e);
        self.b.set(v, r);
        self.memo.pop();
    }

    fn memo_has(&self, e: Expr) -> bool {
        self.memo.iter().any(|m| m.contains_key(&e))
    }

    /// Stores the value(s) at a row-major position.
    pub fn store_flat(&mut self, buf: Buf, flat: Int, value: Reg) {
        let lanes = self.b.ty(value).lanes;
        if lanes == 1 || self.lane_stride(flat) == Some(1) {
            let i = self.int(flat);
            self.b.store(buf, i, 0, value);
            return;
        }
        for k in 0..lanes {
            let i = self.int_at_lane(flat, k);
            let r = self.b.extract(value, k);
            self.b.store(buf, i, 0, r);
        }
    }
}

/// Is it compared by the condition, and so computed anyway?
fn compared(c: Expr, e: Expr) -> bool {
    matches!(c.node(), Node::Cmp(_, a, b) if a == e || b == e)
}

/// Is it, or is in it, a load that a choice around it may guard? Such loads are clamped; every other one is proved to be in
/// range.
pub(super) fn guards(e: Expr) -> bool {
    let clamped = |a: &Atom| matches!(a, Atom::Max(..) | Atom::Min(..));
    let any = |i: &Int| i.terms().iter().any(|(_, atoms)| atoms.iter().any(clamped));
    expr::loads(e).iter().any(|(_, index)| index.iter().any(any))
}

/// An atom as an index expression.
pub(crate) fn atom_int(a: Atom) -> Int {
    match a {
        Atom::Var(v) => Int::var(v),
        Atom::Div(x, y) => x.div(y),
        Atom::Rem(x, y) => x.rem(y),
        Atom::Min(x, y) => x.min(y),
        Atom::Max(x, y) => x.max(y),
        Atom::IfLt(a, b, x, y) => a.if_lt(b, x, y),
        Atom::IfEq(a, b, x, y) => a.if_eq(b, x, y),
        Atom::Data(e) => crate::sym::data(e),
    }
}

/// One-operand function in kernel IR.
pub fn un(b: &mut Builder, f: Func1, a: Reg) -> Reg {
    let op = match f {
        Func1::Neg => UnOp::Neg,
        Func1::Abs => UnOp::Abs,
        Func1::Not => UnOp::Not,
        Func1::Sqrt => UnOp::Sqrt,
        Func1::Floor => UnOp::Floor,
        Func1::Ceil => UnOp::Ceil,
        Func1::Trunc => UnOp::Trunc,
        Func1::Round => UnOp::Round,
        Func1::Popcnt => UnOp::Popcnt,
        _ => return math::un(b, f, a),
    };
    b.un(op, a)
}

/// Two-operand function in kernel IR.
pub fn bin(b: &mut Builder, f: Func2, x: Reg, y: Reg) -> Reg {
    let op = match f {
        Func2::Add => BinOp::Add,
        Func2::Sub => BinOp::Sub,
        Func2::Mul => BinOp::Mul,
        Func2::Div => BinOp::Div,
        Func2::Rem if b.ty(x).elem.is_float() => return math::bin(b, f, x, y),
        Func2::Rem => BinOp::Rem,
        Func2::Min => BinOp::Min,
        Func2::Max => BinOp::Max,
        Func2::And => BinOp::And,
        Func2::Or => BinOp::Or,
        Func2::Xor => BinOp::Xor,
        Func2::Shl => BinOp::Shl,
        Func2::Shr => BinOp::Shr,
        Func2::Pow | Func2::Atan2 => return math::bin(b, f, x, y),
    };
    b.bin(op, x, y)
}

/// Expressions of a nest, with every load's index made one row-major position that is proved to lie within the tensor
/// or is clamped to it: no kernel reads outside of its buffers, whatever the data.
pub fn linearize(program: &Program, e: Expr, keep: &dyn Fn(TensorId) -> bool) -> Expr {
    expr::map_loads(e, &mut |t, index, _| {
        let tensor = program.tensor(t);
        if keep(t) || (index.len() == 1 && tensor.shape.len() != 1) {
            return None;
        }
        let zero = Int::new(0);
        let safe = tensor.shape.iter().zip(index).all(|(d, i)| zero.le(*i) == Some(true) && i.lt(*d) == Some(true));
        let flat = if safe {
            flatten(&tensor.shape, index)
        } else {
            let clamped: Vec<Int> = tensor.shape.iter().zip(index).map(|(d, i)| i.min(*d - 1).max(0)).collect();
            flatten(&tensor.shape, &clamped)
        };
        Some(expr::load(t, tensor.dtype, vec![flat]))
    })
}
