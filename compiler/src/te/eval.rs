//! Runs a program by its definitions, element by element: the oracle for expansions. Slow, and without a back end.

use super::expr::{Expr, Func1, Func2, Node};
use super::program::{Check, Custom, Def, KernelCx, Program, ReduceKind, Step, TensorId};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::interp::{self, Memory};
use crate::kernel::ir::{Access, BinOp, Buf, BufParam, UnOp};
use crate::kernel::scalar;
use crate::sym::{Atom, Int, VarId};
use std::collections::HashMap;
use std::sync::Arc;

/// The elements of a tensor, as bits of its stored type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) bits: Vec<u64>,
}

impl Array {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bits.iter().flat_map(|b| b.to_le_bytes()[..self.dtype.size()].to_vec()).collect()
    }

    pub(crate) fn from_bytes(dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Array {
        let bits = bytes.chunks_exact(dtype.size()).map(|c| {
            let mut le = [0; 8];
            le[..c.len()].copy_from_slice(c);
            u64::from_le_bytes(le)
        });
        Array { dtype, shape, bits: bits.collect() }
    }
}

struct Run<'a> {
    program: &'a Program,
    arrays: HashMap<TensorId, Array>,
    vars: HashMap<VarId, i64>,
    accs: Vec<u64>,
}

/// Runs the main block on `inputs` and gives the values of `wanted`.
pub(crate) fn run(program: &Program, inputs: &[Array], wanted: &[TensorId]) -> Result<Vec<Array>, String> {
    let mut r = Run { program, arrays: HashMap::new(), vars: HashMap::new(), accs: vec![] };
    for (var, (input, axis)) in &program.dim_vars {
        r.vars.insert(*var, inputs[*input].shape[*axis] as i64);
    }
    for step in &program.main.steps {
        match step {
            Step::Define(t) => {
                let array = r.define(*t, inputs)?;
                r.settle(*t, &array)?;
                r.arrays.insert(*t, array);
                for (var, (from, at)) in &program.data_vars {
                    if from == t {
                        let a = &r.arrays[t];
                        r.vars.insert(*var, scalar::to_i64(a.dtype, a.bits[*at as usize]));
                    }
                }
            }
            Step::Check(Check::Equal(a, b, what)) => {
                if r.int(*a) != r.int(*b) {
                    return Err(format!("check: {what}"));
                }
            }
            Step::Check(Check::AtMost(a, b, what)) => {
                if r.int(*a) > r.int(*b) {
                    return Err(format!("check: {what}"));
                }
            }
            Step::If { .. } | Step::Loop(_) => return Err("control flow is not evaluated here".into()),
        }
    }
    Ok(wanted.iter().map(|t| r.arrays[t].clone()).collect())
}

/// What memory holds before it is written.
fn unwritten(dtype: DType, shape: &[usize]) -> Array {
    let bits = u64::MAX >> (64 - 8 * dtype.size());
    Array { dtype, shape: shape.to_vec(), bits: vec![bits; shape.iter().product()] }
}

/// Sets the element at `start + index`.
fn put(array: &mut Array, start: &[i64], index: &[i64], bits: u64) -> Result<(), String> {
    let mut at = 0;
    for ((d, s), i) in array.shape.iter().zip(start).zip(index) {
        if s + i < 0 || s + i >= *d as i64 {
            return Err(format!("element {index:?} from {start:?} of {:?}", array.shape));
        }
        at = at * d + (s + i) as usize;
    }
    array.bits[at] = bits;
    Ok(())
}

/// All index tuples in row-major order.
fn space(sizes: &[i64]) -> Vec<Vec<i64>> {
    sizes.iter().fold(vec![vec![]], |out, n| {
        out.iter().flat_map(|p: &Vec<i64>| (0..*n).map(move |i| [p.as_slice(), &[i]].concat())).collect()
    })
}

impl Run<'_> {
    fn define(&mut self, t: TensorId, inputs: &[Array]) -> Result<Array, String> {
        let tensor = self.program.tensor(t).clone();
        let sizes: Vec<i64> = tensor.shape.iter().map(|d| self.int(*d)).collect();
        if let Some(d) = sizes.iter().find(|d| **d < 0) {
            return Err(format!("a dimension of t{} is {d}", t.0));
        }
        let dtype = tensor.dtype;
        let shape: Vec<usize> = sizes.iter().map(|d| *d as usize).collect();
        let mut bits = vec![];
        match &tensor.def {
            Def::Input(k) => bits = inputs[*k].bits.clone(),
            Def::Const(bytes) => return Ok(Array::from_bytes(dtype, shape, bytes)),
            Def::View(base) => bits = self.arrays[base].bits.clone(),
            Def::Slot | Def::Parts(_) => return Err("a slot".into()),
            Def::Assembled { pieces, .. } => {
                let mut array = self.arrays.get(&t).cloned().unwrap_or_else(|| unwritten(dtype, &shape));
                for piece in pieces {
                    let start: Vec<i64> = piece.start.iter().map(|i| self.int(*i)).collect();
                    for index in self.space_of(&piece.vars) {
                        self.bind(&piece.vars, &index);
                        let v = self.expr(piece.body)?;
                        put(&mut array, &start, &index, stored(dtype, v))?;
                    }
                }
                return Ok(array);
            }
            Def::Custom(custom, k) => return Ok(self.custom(custom)?.swap_remove(*k)),
            Def::Map { vars, body } => {
                for index in space(&sizes) {
                    self.bind(vars, &index);
                    let v = self.expr(*body)?;
                    bits.push(stored(dtype, v));
                }
            }
            Def::Reduce { vars, rvars, kind, body } => {
                let elem = dtype.compute();
                for index in space(&sizes) {
                    self.bind(vars, &index);
                    let mut total = neutral(*kind, elem);
                    for r in self.space_of(rvars) {
                        self.bind(rvars, &r);
                        let v = self.expr(*body)?;
                        total = combine(*kind, elem, total, v);
                    }
                    bits.push(stored(dtype, total));
                }
            }
            Def::Fold { vars, rvars, init, step, result } => {
                for index in space(&sizes) {
                    self.bind(vars, &index);
                    self.accs = init.iter().map(|e| self.expr(*e)).collect::<Result<_, _>>()?;
                    for r in self.space_of(rvars) {
                        self.bind(rvars, &r);
                        self.accs = step.iter().map(|e| self.expr(*e)).collect::<Result<_, _>>()?;
                    }
                    let v = self.expr(*result)?;
                    bits.push(stored(dtype, v));
                }
            }
        }
        if bits.len() != shape.iter().product::<usize>() {
            return Err(format!("t{} has {} elements for shape {shape:?}", t.0, bits.len()));
        }
        Ok(Array { dtype, shape, bits })
    }

    /// Puts the elements of a tensor that has a home there.
    fn settle(&mut self, t: TensorId, array: &Array) -> Result<(), String> {
        let Some(home) = self.program.homes.get(&t).cloned() else { return Ok(()) };
        let at: Vec<i64> = home.offset.iter().map(|i| self.int(*i)).collect();
        let shape: Vec<usize> = self.program.tensor(home.tensor).shape.iter().map(|d| self.int(*d) as usize).collect();
        let mut whole = self.arrays.remove(&home.tensor).unwrap_or_else(|| unwritten(array.dtype, &shape));
        let sizes: Vec<i64> = array.shape.iter().map(|d| *d as i64).collect();
        for (index, bits) in space(&sizes).iter().zip(&array.bits) {
            put(&mut whole, &at, index, *bits)?;
        }
        self.settle(home.tensor, &whole)?;
        self.arrays.insert(home.tensor, whole);
        Ok(())
    }

    fn space_of(&self, vars: &[VarId]) -> Vec<Vec<i64>> {
        let sizes: Vec<i64> = vars.iter().map(|v| v.extent().map_or(0, |e| self.int(e))).collect();
        space(&sizes)
    }

    fn bind(&mut self, vars: &[VarId], index: &[i64]) {
        self.vars.extend(vars.iter().copied().zip(index.iter().copied()));
    }

    fn custom(&mut self, custom: &Arc<Custom>) -> Result<Vec<Array>, String> {
        let mut bufs = vec![];
        for t in &custom.inputs {
            bufs.push(BufParam { dtype: self.program.tensor(*t).dtype, access: Access::Read });
        }
        let written = |dtype: &DType| BufParam { dtype: *dtype, access: Access::Write };
        bufs.extend(custom.outputs.iter().map(|(d, _)| written(d)));
        bufs.extend(custom.scratch.iter().map(|(d, _)| written(d)));
        let numbered = |from: usize, n: usize| (from..from + n).map(|k| Buf(k as u32)).collect::<Vec<_>>();
        let (i, o, s) = (custom.inputs.len(), custom.outputs.len(), custom.scratch.len());
        let mut b = Builder::new(&custom.name, bufs, 0, false);
        let this = &*self;
        let mut int = |b: &mut Builder, v: Int| b.i64(this.int(v));
        let mut no_expr = |_: &mut Builder, _: Expr, _: &[crate::kernel::ir::Reg]| panic!("not in these tests");
        let mut cx = KernelCx {
            b: &mut b,
            inputs: numbered(0, i),
            outputs: numbered(i, o),
            scratch: numbered(i + o, s),
            int: &mut int,
            expr: &mut no_expr,
        };
        (custom.generate)(&mut cx);
        let kernel = b.finish();
        let inputs: Vec<Vec<u8>> = custom.inputs.iter().map(|t| self.arrays[t].bytes()).collect();
        let shapes: Vec<Vec<usize>> =
            custom.outputs.iter().map(|(_, s)| s.iter().map(|d| self.int(*d) as usize).collect()).collect();
        let size = |d: DType, n: usize| vec![0xA5; d.size() * n];
        let mut work: Vec<Vec<u8>> =
            custom.outputs.iter().zip(&shapes).map(|((d, _), s)| size(*d, s.iter().product())).collect();
        work.extend(custom.scratch.iter().map(|(d, n)| size(*d, self.int(*n) as usize)));
        let mut memory: Vec<Memory<'_>> = inputs.iter().map(|b| Memory::Read(b)).collect();
        memory.extend(work.iter_mut().map(|b| Memory::Write(b)));
        let status =
            interp::run(&kernel, &mut memory, &[], 0..1, 1 << 32).map_err(|e| format!("{}: {e}", custom.name))?;
        if status != 0 {
            return Err(format!("{} gives status {status}", custom.name));
        }
        let outputs = custom.outputs.iter().zip(shapes).zip(work);
        Ok(outputs.map(|(((d, _), shape), bytes)| Array::from_bytes(*d, shape, &bytes)).collect())
    }

    fn int(&self, i: Int) -> i64 {
        let mut sum = 0i64;
        for (c, atoms) in i.terms() {
            let product = atoms.iter().fold(c, |p, a| p.wrapping_mul(self.atom(*a)));
            sum = sum.wrapping_add(product);
        }
        sum
    }

    fn atom(&self, a: Atom) -> i64 {
        let v = |i: Int| self.int(i);
        match a {
            Atom::Var(x) => *self.vars.get(&x).unwrap_or_else(|| panic!("{x} has no value")),
            Atom::Div(x, d) => Int::new(v(x)).div(v(d)).as_const().unwrap(),
            Atom::Rem(x, d) => Int::new(v(x)).rem(v(d)).as_const().unwrap(),
            Atom::Min(x, y) => v(x).min(v(y)),
            Atom::Max(x, y) => v(x).max(v(y)),
            Atom::IfLt(a, b, x, y) => {
                if v(a) < v(b) {
                    v(x)
                } else {
                    v(y)
                }
            }
            Atom::IfEq(a, b, x, y) => {
                if v(a) == v(b) {
                    v(x)
                } else {
                    v(y)
                }
            }
            Atom::Data(e) => match self.expr(e) {
                Ok(bits) => scalar::to_i64(e.dtype(), bits),
                Err(e) => panic!("{e}"),
            },
        }
    }

    fn expr(&self, e: Expr) -> Result<u64, String> {
        let elem = e.dtype();
        Ok(match e.node() {
            Node::Const(c) => c.bits,
            Node::Int(i) => self.int(i) as u64,
            Node::Acc(k) => self.accs[k as usize],
            Node::Load(t, index) => {
                let a = &self.arrays[&t];
                let mut at = 0;
                for (d, i) in a.shape.iter().zip(&index) {
                    let i = self.int(*i);
                    if i < 0 || i >= *d as i64 {
                        return Err(format!("load of t{} at {index:?} = {i} of {d}", t.0));
                    }
                    at = at * d + i as usize;
                }
                match a.dtype {
                    DType::F16 | DType::BF16 => scalar::from_f64(DType::F32, number(a.dtype, a.bits[at])),
                    _ => a.bits[at],
                }
            }
            Node::Un(f, a) => un(f, elem, self.expr(a)?),
            Node::Bin(f, a, b) => bin(f, elem, self.expr(a)?, self.expr(b)?),
            Node::Cmp(c, a, b) => {
                let (x, y) = (self.expr(a)?, self.expr(b)?);
                u64::from(scalar::cmp(c, a.dtype(), x, y).unwrap())
            }
            Node::Select(c, a, b) => self.expr(if self.expr(c)? != 0 { a } else { b })?,
            Node::Cast(to, a) => scalar::cast(to, a.dtype(), self.expr(a)?),
            Node::Bitcast(_, a) => self.expr(a)?,
        })
    }
}

/// The value of an element as a number.
pub(crate) fn number(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F16 => half::f16::from_bits(bits as u16).to_f64(),
        DType::BF16 => half::bf16::from_bits(bits as u16).to_f64(),
        DType::F32 => f32::from_bits(bits as u32).into(),
        DType::F64 => f64::from_bits(bits),
        DType::U64 => bits as f64,
        _ => scalar::to_i64(dtype, bits) as f64,
    }
}

/// Bits of a computed value as they are stored.
fn stored(dtype: DType, bits: u64) -> u64 {
    match dtype {
        DType::F16 => half::f16::from_f32(f32::from_bits(bits as u32)).to_bits().into(),
        DType::BF16 => half::bf16::from_f32(f32::from_bits(bits as u32)).to_bits().into(),
        _ => bits,
    }
}

fn neutral(kind: ReduceKind, elem: DType) -> u64 {
    let width = 8 * elem.size() as u32;
    match kind {
        ReduceKind::Sum => 0,
        ReduceKind::Prod => scalar::from_i64(elem, 1),
        ReduceKind::Max if elem.is_float() => scalar::from_f64(elem, f64::NEG_INFINITY),
        ReduceKind::Min if elem.is_float() => scalar::from_f64(elem, f64::INFINITY),
        ReduceKind::Max if elem.is_signed() => 1 << (width - 1),
        ReduceKind::Max => 0,
        ReduceKind::Min if elem == DType::Bool => 1,
        ReduceKind::Min if elem.is_signed() => (1 << (width - 1)) - 1,
        ReduceKind::Min => u64::MAX >> (64 - width),
    }
}

fn combine(kind: ReduceKind, elem: DType, a: u64, b: u64) -> u64 {
    let op = match (kind, elem) {
        (ReduceKind::Sum | ReduceKind::Max, DType::Bool) => BinOp::Or,
        (ReduceKind::Prod | ReduceKind::Min, DType::Bool) => BinOp::And,
        (ReduceKind::Sum, _) => BinOp::Add,
        (ReduceKind::Prod, _) => BinOp::Mul,
        (ReduceKind::Max, _) => BinOp::Max,
        (ReduceKind::Min, _) => BinOp::Min,
    };
    scalar::bin(op, elem, a, b).unwrap()
}

fn un(f: Func1, elem: DType, a: u64) -> u64 {
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
        _ => {
            let x = number(elem, a);
            let y = match f {
                Func1::Exp => x.exp(),
                Func1::Expm1 => x.exp_m1(),
                Func1::Log => x.ln(),
                Func1::Log1p => x.ln_1p(),
                Func1::Sin => x.sin(),
                Func1::Cos => x.cos(),
                Func1::Tan => x.tan(),
                Func1::Asin => x.asin(),
                Func1::Acos => x.acos(),
                Func1::Atan => x.atan(),
                Func1::Sinh => x.sinh(),
                Func1::Cosh => x.cosh(),
                Func1::Tanh => x.tanh(),
                Func1::Asinh => x.asinh(),
                Func1::Acosh => x.acosh(),
                Func1::Atanh => x.atanh(),
                other => panic!("{other:?} is not evaluated here"),
            };
            return scalar::from_f64(elem, y);
        }
    };
    scalar::un(op, elem, a).unwrap()
}

fn bin(f: Func2, elem: DType, a: u64, b: u64) -> u64 {
    let op = match f {
        Func2::Add => BinOp::Add,
        Func2::Sub => BinOp::Sub,
        Func2::Mul => BinOp::Mul,
        Func2::Div => BinOp::Div,
        Func2::Rem => BinOp::Rem,
        Func2::Min => BinOp::Min,
        Func2::Max => BinOp::Max,
        Func2::And => BinOp::And,
        Func2::Or => BinOp::Or,
        Func2::Xor => BinOp::Xor,
        Func2::Shl => BinOp::Shl,
        Func2::Shr => BinOp::Shr,
        Func2::Pow => return scalar::from_f64(elem, number(elem, a).powf(number(elem, b))),
        Func2::Atan2 => return scalar::from_f64(elem, number(elem, a).atan2(number(elem, b))),
    };
    scalar::bin(op, elem, a, b).unwrap()
}
