//! Scalar expressions over index variables and tensor loads, hash-consed in a table of the current thread.

use crate::dtype::DType;
use crate::kernel::ir::{Cmp, Imm};
use crate::sym::{Int, VarId};
use crate::te::program::TensorId;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

/// A scalar expression: a handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Expr(pub(crate) u32);

/// One-operand functions. On floats unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the C functions of the same names")]
pub enum Func1 {
    /// Negation; ints wrap.
    Neg,
    /// Absolute value; ints wrap.
    Abs,
    /// Logical not (bool) or bitwise not (ints).
    Not,
    Sqrt,
    Floor,
    Ceil,
    Trunc,
    /// To nearest, ties to even.
    Round,
    Exp,
    Expm1,
    Log,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    /// Number of one bits (ints).
    Popcnt,
}

/// Two-operand functions on operands of one type, with the meaning of the kernel IR's `BinOp`s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "named after the kernel IR's operations")]
pub enum Func2 {
    Add,
    Sub,
    Mul,
    /// Ints truncate toward zero; by zero gives 0.
    Div,
    /// C remainder (sign of the dividend), `fmod` for floats.
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    /// C `pow` (floats).
    Pow,
    /// C `atan2` (floats).
    Atan2,
}

/// What an expression is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Node {
    /// A constant. Half types are held as `F32` constants.
    Const(Imm),
    /// An index expression, as `I64`.
    Int(Int),
    /// An element of a tensor, in the tensor's compute type.
    Load(TensorId, Vec<Int>),
    /// One operand.
    Un(Func1, Expr),
    /// Two operands of one type.
    Bin(Func2, Expr, Expr),
    /// Comparison, giving `Bool`.
    Cmp(Cmp, Expr, Expr),
    /// `cond ? a : b`; only the taken side's loads need be in bounds.
    Select(Expr, Expr, Expr),
    /// Conversion as the kernel IR's `Cast` (half types as target round and give `F32`).
    Cast(DType, Expr),
    /// The same bits as another type of the same size.
    Bitcast(DType, Expr),
    /// Accumulator of a fold.
    Acc(u32),
}

#[derive(Default)]
struct Table {
    nodes: Vec<(Node, DType)>,
    ids: HashMap<(Node, DType), u32>,
}

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
}

/// Empties the thread's table; every [`Expr`] made before is void.
pub fn reset() {
    TABLE.with(|t| *t.borrow_mut() = Table::default());
}

fn intern(node: Node, dtype: DType) -> Expr {
    TABLE.with(|t| {
        let t = &mut *t.borrow_mut();
        let key = (node, dtype);
        if let Some(id) = t.ids.get(&key) {
            return Expr(*id);
        }
        let id = t.nodes.len() as u32;
        t.nodes.push(key.clone());
        t.ids.insert(key, id);
        Expr(id)
    })
}

impl Expr {
    /// What it is.
    pub fn node(self) -> Node {
        TABLE.with(|t| t.borrow().nodes[self.0 as usize].0.clone())
    }

    /// Its type (never a half type).
    pub fn dtype(self) -> DType {
        TABLE.with(|t| t.borrow().nodes[self.0 as usize].1)
    }

    /// The bits of a constant.
    pub fn as_const(self) -> Option<Imm> {
        match self.node() {
            Node::Const(imm) => Some(imm),
            Node::Int(i) => i.as_const().map(|v| Imm { elem: DType::I64, bits: v as u64 }),
            _ => None,
        }
    }

    /// The value of a `Bool` constant.
    pub fn as_bool(self) -> Option<bool> {
        self.as_const().filter(|c| c.elem == DType::Bool).map(|c| c.bits != 0)
    }
}

/// A constant from bits.
pub fn imm(elem: DType, bits: u64) -> Expr {
    match elem {
        DType::I64 => int(Int::new(bits as i64)),
        DType::F16 => constant_f64(DType::F32, half::f16::from_bits(bits as u16).to_f64()),
        DType::BF16 => constant_f64(DType::F32, half::bf16::from_bits(bits as u16).to_f64()),
        _ => intern(Node::Const(Imm { elem, bits }), elem),
    }
}

/// A number as a constant of `dtype` (ints saturate; half types become `F32` rounded to their precision).
pub fn constant_f64(dtype: DType, v: f64) -> Expr {
    let bits = match dtype {
        DType::Bool => u64::from(v != 0.0),
        DType::I8 => u64::from(v as i8 as u8),
        DType::I16 => u64::from(v as i16 as u16),
        DType::I32 => u64::from(v as i32 as u32),
        DType::I64 => v as i64 as u64,
        DType::U8 => u64::from(v as u8),
        DType::U16 => u64::from(v as u16),
        DType::U32 => u64::from(v as u32),
        DType::U64 => v as u64,
        DType::F16 => return constant_f64(DType::F32, half::f16::from_f64(v).to_f64()),
        DType::BF16 => return constant_f64(DType::F32, half::bf16::from_f64(v).to_f64()),
        DType::F32 => u64::from((v as f32).to_bits()),
        DType::F64 => v.to_bits(),
    };
    imm(dtype, bits)
}

/// An integer as a constant of `dtype`, wrapping.
pub fn constant_i64(dtype: DType, v: i64) -> Expr {
    if dtype.is_float() {
        return constant_f64(dtype, v as f64);
    }
    let mask = if dtype.size() == 8 { u64::MAX } else { (1 << (8 * dtype.size())) - 1 };
    imm(dtype, if dtype == DType::Bool { u64::from(v != 0) } else { v as u64 & mask })
}

/// A truth value.
pub fn boolean(v: bool) -> Expr {
    imm(DType::Bool, u64::from(v))
}

/// An index expression as an `I64`.
pub fn int(i: Int) -> Expr {
    intern(Node::Int(i), DType::I64)
}

/// An element of a tensor whose stored type is `stored`.
pub fn load(tensor: TensorId, stored: DType, index: Vec<Int>) -> Expr {
    intern(Node::Load(tensor, index), stored.compute())
}

/// A load whose value has compute type `dtype`.
pub fn load_as(tensor: TensorId, dtype: DType, index: Vec<Int>) -> Expr {
    intern(Node::Load(tensor, index), dtype)
}

/// Accumulator `k` of type `dtype` inside of a fold.
pub fn acc(k: u32, dtype: DType) -> Expr {
    intern(Node::Acc(k), dtype.compute())
}

/// One-operand function.
pub fn un(f: Func1, a: Expr) -> Expr {
    if let (Func1::Not, Some(v)) = (f, a.as_bool()) {
        return boolean(!v);
    }
    if let (Func1::Neg, Node::Int(i)) = (f, a.node()) {
        return int(-i);
    }
    if let Some(v) = crate::te::known::fold_un(f, a) {
        return v;
    }
    intern(Node::Un(f, a), a.dtype())
}

/// Two-operand function; both operands must have one type.
pub fn bin(f: Func2, a: Expr, b: Expr) -> Expr {
    debug_assert_eq!(a.dtype(), b.dtype(), "operands of {f:?} differ in type: {a} and {b}");
    if let (Node::Int(x), Node::Int(y)) = (a.node(), b.node()) {
        // Symbolic integers do not wrap, elements do.
        if let Some(v) = crate::te::known::fold_bin(f, a, b) {
            return v;
        }
        let natural = x.bounds().lo.is_some_and(|l| l >= 0) && y.bounds().lo.is_some_and(|l| l >= 1);
        match f {
            Func2::Add => return int(x + y),
            Func2::Sub => return int(x - y),
            Func2::Mul => return int(x * y),
            Func2::Min => return int(x.min(y)),
            Func2::Max => return int(x.max(y)),
            Func2::Div if natural => return int(x.div(y)),
            Func2::Rem if natural => return int(x.rem(y)),
            _ => {}
        }
    }
    if a.dtype() == DType::Bool {
        match (f, a.as_bool(), b.as_bool()) {
            (Func2::And, Some(true), _) | (Func2::Or, Some(false), _) => return b,
            (Func2::And, _, Some(true)) | (Func2::Or, _, Some(false)) => return a,
            (Func2::And, Some(false), _) | (Func2::And, _, Some(false)) => return boolean(false),
            (Func2::Or, Some(true), _) | (Func2::Or, _, Some(true)) => return boolean(true),
            _ => {}
        }
    }
    if let Some(v) = crate::te::known::fold_bin(f, a, b) {
        return v;
    }
    intern(Node::Bin(f, a, b), a.dtype())
}

/// Comparison; decided where the order of index expressions is proved.
pub fn cmp(c: Cmp, a: Expr, b: Expr) -> Expr {
    debug_assert_eq!(a.dtype(), b.dtype(), "operands of {c:?} differ in type: {a} and {b}");
    if let (Node::Int(x), Node::Int(y)) = (a.node(), b.node()) {
        let proof = match c {
            Cmp::Eq => x.eq_proof(y),
            Cmp::Ne => x.eq_proof(y).map(|v| !v),
            Cmp::Lt => x.lt(y),
            Cmp::Le => x.le(y),
            Cmp::Gt => y.lt(x),
            Cmp::Ge => y.le(x),
        };
        if let Some(v) = proof {
            return boolean(v);
        }
    }
    if let Some(v) = crate::te::known::fold_cmp(c, a, b) {
        return v;
    }
    intern(Node::Cmp(c, a, b), DType::Bool)
}

/// `cond ? a : b`.
pub fn select(cond: Expr, a: Expr, b: Expr) -> Expr {
    debug_assert_eq!(a.dtype(), b.dtype(), "sides of a select differ in type: {a} and {b}");
    match cond.as_bool() {
        Some(true) => a,
        Some(false) => b,
        None if a == b => a,
        None => intern(Node::Select(cond, a, b), a.dtype()),
    }
}

/// Conversion to `to`.
pub fn cast(to: DType, a: Expr) -> Expr {
    if a.dtype() == to {
        return a;
    }
    if let Some(v) = crate::te::known::fold_cast(to, a) {
        return v;
    }
    if to == DType::I64
        && let Node::Cast(DType::I32, inner) = a.node()
        && inner.dtype() == DType::I64
        && let Node::Int(i) = inner.node()
        && i.bounds().lo.is_some_and(|l| l >= i64::from(i32::MIN))
        && i.bounds().hi.is_some_and(|h| h <= i64::from(i32::MAX))
    {
        return inner;
    }
    intern(Node::Cast(to, a), to.compute())
}

/// The same bits as type `to` of the same size.
pub fn bitcast(to: DType, a: Expr) -> Expr {
    if a.dtype() == to {
        return a;
    }
    intern(Node::Bitcast(to, a), to)
}

/// An expression of any integer type as an index expression; data becomes a `Data` atom.
pub fn as_int(e: Expr) -> Int {
    match e.node() {
        Node::Int(i) => i,
        Node::Const(c) if !c.elem.is_float() => {
            let shift = 64 - 8 * c.elem.size() as u32;
            let v = if c.elem.is_signed() { ((c.bits << shift) as i64) >> shift } else { c.bits as i64 };
            Int::new(v)
        }
        // Sizes and indices fit in 32 bits on every target.
        Node::Cast(DType::I64 | DType::I32, inner) if inner.dtype().is_int() => as_int(inner),
        _ if e.dtype() == DType::Bool && truth(e).is_some() => truth(e).unwrap_or(Int::new(0)),
        Node::Cast(DType::I64 | DType::I32, inner) if inner.dtype() == DType::Bool && truth(inner).is_some() => {
            truth(inner).unwrap_or(Int::new(0))
        }
        Node::Bin(Func2::Add, a, b) if small(e) => as_int(a) + as_int(b),
        Node::Bin(Func2::Sub, a, b) if small(e) => as_int(a) - as_int(b),
        Node::Bin(Func2::Mul, a, b) if small(e) => as_int(a) * as_int(b),
        Node::Bin(Func2::Min, a, b) if small(e) => as_int(a).min(as_int(b)),
        Node::Bin(Func2::Max, a, b) if small(e) => as_int(a).max(as_int(b)),
        Node::Select(c, a, b) if small(e) => match c.node() {
            Node::Cmp(Cmp::Lt, x, y) if small(x) => as_int(x).if_lt(as_int(y), as_int(a), as_int(b)),
            Node::Cmp(Cmp::Gt, x, y) if small(x) => as_int(y).if_lt(as_int(x), as_int(a), as_int(b)),
            Node::Cmp(Cmp::Ge, x, y) if small(x) => as_int(x).if_lt(as_int(y), as_int(b), as_int(a)),
            Node::Cmp(Cmp::Le, x, y) if small(x) => as_int(y).if_lt(as_int(x), as_int(b), as_int(a)),
            Node::Cmp(Cmp::Eq, x, y) if small(x) => as_int(x).if_eq(as_int(y), as_int(a), as_int(b)),
            Node::Cmp(Cmp::Ne, x, y) if small(x) => as_int(x).if_eq(as_int(y), as_int(b), as_int(a)),
            _ => crate::sym::data(cast(DType::I64, e)),
        },
        _ => crate::sym::data(cast(DType::I64, e)),
    }
}

/// A truth value as 0 or 1, where it is made of comparisons of index expressions.
fn truth(e: Expr) -> Option<Int> {
    let (zero, one) = (Int::new(0), Int::new(1));
    Some(match e.node() {
        Node::Const(c) => Int::new(i64::from(c.bits != 0)),
        Node::Un(Func1::Not, a) => one - truth(a)?,
        Node::Bin(Func2::And, a, b) => truth(a)? * truth(b)?,
        Node::Bin(Func2::Or, a, b) => {
            let (a, b) = (truth(a)?, truth(b)?);
            a + b - a * b
        }
        Node::Cmp(c, a, b) if small(a) => {
            let (a, b) = (as_int(a), as_int(b));
            match c {
                Cmp::Eq => a.if_eq(b, one, zero),
                Cmp::Ne => a.if_eq(b, zero, one),
                Cmp::Lt => a.if_lt(b, one, zero),
                Cmp::Ge => a.if_lt(b, zero, one),
                Cmp::Gt => b.if_lt(a, one, zero),
                Cmp::Le => b.if_lt(a, zero, one),
            }
        }
        // A bool that went through an integer type and back.
        Node::Cast(DType::Bool, a) if small(a) => as_int(a).if_eq(zero, zero, one),
        _ => return None,
    })
}

fn small(e: Expr) -> bool {
    matches!(e.dtype(), DType::I32 | DType::I64)
}

/// The operands of a node, in order (not the expressions inside of load indices).
pub fn operands(node: &Node) -> Vec<Expr> {
    match node {
        Node::Const(_) | Node::Int(_) | Node::Load(..) | Node::Acc(_) => vec![],
        Node::Un(_, a) | Node::Cast(_, a) | Node::Bitcast(_, a) => vec![*a],
        Node::Bin(_, a, b) | Node::Cmp(_, a, b) => vec![*a, *b],
        Node::Select(c, a, b) => vec![*c, *a, *b],
    }
}

/// Rebuilds an expression bottom-up: `leaf` may replace constants, ints, loads and accumulators.
pub fn rewrite(e: Expr, leaf: &mut dyn FnMut(Expr, &Node) -> Option<Expr>) -> Expr {
    rebuild(e, &mut |e, node| match node {
        Node::Const(_) | Node::Int(_) | Node::Load(..) | Node::Acc(_) => leaf(e, node),
        _ => None,
    })
}

/// `e` with `new` in the place of the sub-expression `old`.
pub fn replace(e: Expr, old: Expr, new: Expr) -> Expr {
    rebuild(e, &mut |e, _| (e == old).then_some(new))
}

/// Rebuilds an expression; what `f` gives stands for an expression with all that it is made of.
pub(crate) fn rebuild(e: Expr, f: &mut dyn FnMut(Expr, &Node) -> Option<Expr>) -> Expr {
    fn go(e: Expr, f: &mut dyn FnMut(Expr, &Node) -> Option<Expr>, memo: &mut HashMap<Expr, Expr>) -> Expr {
        if let Some(done) = memo.get(&e) {
            return *done;
        }
        let node = e.node();
        let out = match f(e, &node) {
            Some(new) => new,
            None => match &node {
                Node::Const(_) | Node::Int(_) | Node::Load(..) | Node::Acc(_) => e,
                Node::Un(op, a) => un(*op, go(*a, f, memo)),
                Node::Bin(op, a, b) => {
                    let a = go(*a, f, memo);
                    bin(*op, a, go(*b, f, memo))
                }
                Node::Cmp(c, a, b) => {
                    let a = go(*a, f, memo);
                    cmp(*c, a, go(*b, f, memo))
                }
                Node::Select(c, a, b) => {
                    let c = go(*c, f, memo);
                    let a = go(*a, f, memo);
                    select(c, a, go(*b, f, memo))
                }
                Node::Cast(t, a) => cast(*t, go(*a, f, memo)),
                Node::Bitcast(t, a) => bitcast(*t, go(*a, f, memo)),
            },
        };
        memo.insert(e, out);
        out
    }
    go(e, f, &mut HashMap::new())
}

/// Replaces index variables, also in load indices and data atoms.
pub fn subst_vars(e: Expr, f: &dyn Fn(VarId) -> Option<Int>) -> Expr {
    rewrite(e, &mut |e, node| match node {
        Node::Int(i) => Some(int(crate::sym::subst(*i, f))),
        Node::Load(t, index) => {
            let index = index.iter().map(|i| crate::sym::subst(*i, f)).collect();
            Some(intern(Node::Load(*t, index), e.dtype()))
        }
        _ => None,
    })
}

/// What a load of a tensor at an index, in a compute type, is replaced by; nothing to keep it.
pub type LoadMap<'f> = &'f mut dyn FnMut(TensorId, &[Int], DType) -> Option<Expr>;

/// Replaces loads, also those within indices (innermost first). `f` gets the tensor and the rewritten index.
pub fn map_loads(e: Expr, f: LoadMap<'_>) -> Expr {
    // `rewrite` wants one closure; the recursion into indices needs the same one.
    fn leaf(e: Expr, node: &Node, f: LoadMap<'_>) -> Option<Expr> {
        match node {
            Node::Int(i) => Some(int(int_loads(*i, f))),
            Node::Load(t, index) => {
                let index: Vec<Int> = index.iter().map(|i| int_loads(*i, f)).collect();
                Some(f(*t, &index, e.dtype()).unwrap_or_else(|| intern(Node::Load(*t, index), e.dtype())))
            }
            _ => None,
        }
    }
    rewrite(e, &mut |e, node| leaf(e, node, f))
}

/// [`map_loads`] for the data atoms of an index expression.
pub fn int_loads(i: Int, f: LoadMap<'_>) -> Int {
    crate::sym::map_data(i, &mut |e| as_int(map_loads(e, f)))
}

/// Adds every variable in `e` to `out`.
pub fn collect_vars(e: Expr, out: &mut BTreeSet<VarId>) {
    for x in nodes(e) {
        match x.node() {
            Node::Int(i) => crate::sym::collect(i, out),
            Node::Load(_, index) => index.iter().for_each(|i| crate::sym::collect(*i, out)),
            _ => {}
        }
    }
}

/// All distinct sub-expressions of `e`, operands before users, without those inside of indices.
pub fn nodes(e: Expr) -> Vec<Expr> {
    fn go(e: Expr, seen: &mut BTreeSet<Expr>, out: &mut Vec<Expr>) {
        if !seen.insert(e) {
            return;
        }
        for o in operands(&e.node()) {
            go(o, seen, out);
        }
        out.push(e);
    }
    let mut out = vec![];
    go(e, &mut BTreeSet::new(), &mut out);
    out
}

/// Every load in `e`, those within indices included, each once.
pub fn loads(e: Expr) -> Vec<(TensorId, Vec<Int>)> {
    let mut out = vec![];
    map_loads(e, &mut |t, index, _| {
        if !out.iter().any(|(a, i): &(TensorId, Vec<Int>)| *a == t && i == index) {
            out.push((t, index.to_vec()));
        }
        None
    });
    out
}

impl core::fmt::Display for Expr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        crate::te::text::expr(*self, f)
    }
}

impl core::fmt::Debug for Expr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{self}")
    }
}
