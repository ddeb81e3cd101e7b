use super::*;
use crate::kernel::ir::{BinOp, UnOp};

fn read(dtype: DType) -> BufParam {
    BufParam { dtype, access: Access::Read }
}

fn write(dtype: DType) -> BufParam {
    BufParam { dtype, access: Access::Write }
}

fn floats() -> Builder {
    Builder::new("test", vec![read(DType::F32), write(DType::F32)], 2, false)
}

const IN: Buf = Buf(0);
const OUT: Buf = Buf(1);

/// Number of `Let`s with an operation that `pick` accepts, per nesting depth.
fn depths(stmts: &[Stmt], pick: &dyn Fn(&Op) -> bool) -> Vec<usize> {
    fn walk(stmts: &[Stmt], depth: usize, pick: &dyn Fn(&Op) -> bool, out: &mut Vec<usize>) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(_, op) if pick(op) => out.push(depth),
                Stmt::For { body, .. } => walk(body, depth + 1, pick, out),
                Stmt::If { then, other, .. } => {
                    walk(then, depth + 1, pick, out);
                    walk(other, depth + 1, pick, out);
                }
                Stmt::While { head, body, .. } => {
                    walk(head, depth + 1, pick, out);
                    walk(body, depth + 1, pick, out);
                }
                _ => {}
            }
        }
    }
    let mut out = Vec::new();
    walk(stmts, 0, pick, &mut out);
    out
}

#[test]
fn constants_fold_and_integer_identities_vanish() {
    let mut b = floats();
    let (x, zero, one) = (b.scalar(0), b.i64(0), b.i64(1));
    assert_eq!(b.add(x, zero), x);
    assert_eq!(b.sub(x, zero), x);
    assert_eq!(b.mul(one, x), x);
    assert_eq!(b.mul(x, zero), zero);
    assert_eq!(b.div(x, one), x);
    assert_eq!(b.rem(x, one), zero);
    assert_eq!(b.sub(x, x), zero);
    assert_eq!(b.shl(x, zero), x);
    let (three, four) = (b.i64(3), b.i64(4));
    let seven = b.add(three, four);
    assert_eq!(b.const_i64(seven), Some(7));
    let d = b.div(seven, zero);
    assert_eq!(b.const_i64(d), Some(0));
    let (x3, x3b) = (b.add(x, three), b.add(three, x));
    assert_eq!(x3, x3b);
    let x7 = b.add(x3, four);
    assert_eq!(b.op_of(x7), Some(&Op::Bin(BinOp::Add, x, seven)));
    let back = b.sub(x7, seven);
    assert_eq!(back, x);
    let y = b.scalar(1);
    let (xy, y3) = (b.add(x, y), b.add(y, three));
    let sum = b.add(x, y3);
    assert_eq!(b.op_of(sum), Some(&Op::Bin(BinOp::Add, xy, three)));
    let scaled = b.mul(x3, four);
    let twelve = b.i64(12);
    let x4 = b.mul(x, four);
    assert_eq!(b.op_of(scaled), Some(&Op::Bin(BinOp::Add, x4, twelve)));
}

#[test]
fn float_rules_keep_signed_zeros_and_nans() {
    let mut b = floats();
    let zero = b.i64(0);
    let x = b.load(IN, zero, 0, 4);
    let ty = b.ty(x);
    let (plus, minus, one) = (b.float(ty, 0.0), b.float(ty, -0.0), b.float(ty, 1.0));
    assert_ne!(b.add(x, plus), x);
    assert_eq!(b.add(x, minus), x);
    assert_eq!(b.sub(x, plus), x);
    assert_ne!(b.sub(x, minus), x);
    assert_ne!(b.mul(x, plus), plus);
    assert_eq!(b.mul(x, one), x);
    let difference = b.sub(x, x);
    assert_eq!(b.op_of(difference), Some(&Op::Bin(BinOp::Sub, x, x)));
    let less = b.cmp(crate::kernel::ir::Cmp::Lt, x, one);
    let not = b.not(less);
    assert_eq!(b.op_of(not), Some(&Op::Un(UnOp::Not, less)));
}

#[test]
fn invariant_operations_leave_loops_but_loads_stay() {
    let mut b = floats();
    let (zero, n) = (b.i64(0), b.scalar(0));
    b.for_(zero, n, 1, |b, i| {
        let m = b.scalar(1);
        let row = b.mul(i, m);
        let mm = b.mul(m, m);
        b.for_(zero, m, 1, |b, j| {
            let row_again = b.mul(i, m);
            assert_eq!(row_again, row);
            let at = b.add(row_again, j);
            let at = b.add(at, mm);
            let x = b.load(IN, i, 0, 1);
            let y = b.sqrt(x);
            b.store(OUT, at, 3, y);
        });
    });
    let kernel = b.finish();
    assert_eq!(depths(&kernel.body, &|op| matches!(op, Op::Bin(BinOp::Mul, ..))), [0, 1]);
    assert_eq!(depths(&kernel.body, &|op| matches!(op, Op::Load { .. })), [2]);
    // row + m * m is added outside the inner loop.
    assert_eq!(depths(&kernel.body, &|op| matches!(op, Op::Bin(BinOp::Add, ..))), [1, 2]);
}

#[test]
fn pinned_regions_keep_operations_in_place() {
    let mut b = floats();
    let (zero, n) = (b.i64(0), b.scalar(0));
    b.for_(zero, n, 1, |b, i| {
        assert!(!b.pinned(true));
        let m = b.scalar(1);
        let mm = b.mul(m, m);
        let x = b.f32(1.5);
        let at = b.mul(i, mm);
        b.store(OUT, at, 0, x);
        assert!(b.pinned(false));
    });
    let kernel = b.finish();
    assert_eq!(depths(&kernel.body, &|op| matches!(op, Op::Bin(BinOp::Mul, ..))), [1, 1]);
    assert_eq!(depths(&kernel.body, &|op| matches!(op, Op::Const(imm, _) if imm.elem == DType::F32)), [1]);
}

#[test]
fn loads_are_shared_from_read_only_buffers() {
    let mut b = Builder::new("test", vec![read(DType::F32), write(DType::F32)], 1, false);
    let i = b.scalar(0);
    let first = b.load(IN, i, 1, 1);
    let one = b.i64(1);
    let next = b.add(i, one);
    assert_eq!(b.load(IN, next, 0, 1), first);
    assert_ne!(b.load(IN, i, 1, 2), first);
    let cond = b.cmp(crate::kernel::ir::Cmp::Lt, i, one);
    b.begin_if(cond);
    let inner = b.load(IN, i, 5, 1);
    assert_eq!(b.load(IN, i, 1, 1), first);
    b.begin_else();
    assert_ne!(b.load(IN, i, 5, 1), inner);
    b.end();
    assert_ne!(b.load(IN, i, 5, 1), inner);
}

#[test]
fn constants_of_indices_move_into_displacements() {
    let mut b = floats();
    let (i, four, nine) = (b.scalar(0), b.i64(4), b.i64(9));
    let at = b.add(i, four);
    let x = b.load(IN, at, 2, 1);
    assert_eq!(b.op_of(x), Some(&Op::Load { buf: IN, index: i, disp: 6, lanes: 1 }));
    let y = b.load(IN, nine, 2, 1);
    let zero = b.i64(0);
    assert_eq!(b.op_of(y), Some(&Op::Load { buf: IN, index: zero, disp: 11, lanes: 1 }));
    let far = b.load(IN, nine, i64::MAX, 1);
    assert_eq!(b.op_of(far), Some(&Op::Load { buf: IN, index: nine, disp: i64::MAX, lanes: 1 }));
}

#[test]
fn known_loops_and_branches_dissolve() {
    let mut b = floats();
    let (zero, one, ten) = (b.i64(0), b.i64(1), b.i64(10));
    let x = b.f32(2.0);
    b.for_(zero, one, 1, |b, i| b.store(OUT, i, 7, x));
    b.for_(one, zero, 1, |b, i| b.store(OUT, i, 8, x));
    b.for_(zero, ten, 10, |b, i| b.store(OUT, i, 9, x));
    let (yes, no) = (b.bool(true), b.bool(false));
    b.if_(yes, |b| b.store(OUT, zero, 10, x), |b| b.store(OUT, zero, 11, x));
    b.if_(no, |b| b.store(OUT, zero, 12, x), |b| b.store(OUT, zero, 13, x));
    let kernel = b.finish();
    let disps: Vec<i64> = kernel
        .body
        .iter()
        .filter_map(|stmt| match stmt {
            Stmt::Store { disp, .. } => Some(*disp),
            Stmt::Let(..) => None,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(disps, [7, 9, 10, 13]);
}

#[test]
fn dead_code_goes_with_the_loops_that_held_it() {
    let mut b = floats();
    let (zero, n) = (b.i64(0), b.scalar(0));
    let unread = b.var(Type::scalar(DType::F32));
    let bound = b.mul(n, n);
    b.for_(zero, bound, 1, |b, i| {
        let x = b.load(IN, i, 0, 1);
        b.set(unread, x);
    });
    let sum = b.var(Type::scalar(DType::F32));
    b.for_(zero, n, 1, |b, i| {
        let (x, s) = (b.load(IN, i, 0, 1), b.get(sum));
        let s = b.add(s, x);
        b.set(sum, s);
    });
    let s = b.get(sum);
    b.store(OUT, zero, 0, s);
    let kernel = b.finish();
    assert_eq!(kernel.vars.len(), 1);
    assert_eq!(kernel.body.iter().filter(|stmt| matches!(stmt, Stmt::For { .. })).count(), 1);
    assert!(depths(&kernel.body, &|op| matches!(op, Op::Bin(BinOp::Mul, ..))).is_empty());
}

#[test]
fn statements_after_a_return_are_dropped() {
    let mut b = floats();
    let (n, ten, x) = (b.scalar(0), b.i64(10), b.f32(1.0));
    let bad = b.cmp(crate::kernel::ir::Cmp::Ge, n, ten);
    b.begin_if(bad);
    b.ret(1);
    b.store(OUT, n, 0, x);
    b.end();
    b.store(OUT, n, 0, x);
    let kernel = b.finish();
    let branches: Vec<&Stmt> = kernel.body.iter().filter(|stmt| matches!(stmt, Stmt::If { .. })).collect();
    let [Stmt::If { then, other, .. }] = branches[..] else { panic!("{branches:?}") };
    assert_eq!(then[..], [Stmt::Return(1)]);
    assert!(other.is_empty());
}

#[test]
fn vector_lanes_are_traced_to_their_source() {
    let mut b = floats();
    let zero = b.i64(0);
    let (x, v) = (b.load(IN, zero, 0, 1), b.load(IN, zero, 4, 4));
    assert_eq!(b.splat(x, 1), x);
    let s = b.splat(x, 4);
    assert_eq!(b.extract(s, 3), x);
    assert_eq!(b.shuffle(v, s, vec![0, 1, 2, 3]), v);
    assert_eq!(b.shuffle(v, s, vec![4, 5, 6, 7]), s);
    assert_eq!(b.shuffle(v, s, vec![5, 4, 4, 7]), s);
    let mixed = b.shuffle(v, s, vec![1, 7, 0, 3]);
    assert_eq!(b.extract(mixed, 1), x);
    let third = b.extract(v, 3);
    assert_eq!(b.extract(mixed, 3), third);
    let put = b.insert(v, 2, x);
    assert_eq!(b.extract(put, 2), x);
    assert_eq!(b.extract(put, 3), third);
    let iota = b.iota(DType::I64, 4);
    let two = b.extract(iota, 2);
    assert_eq!(b.const_i64(two), Some(2));
}

#[test]
#[should_panic(expected = "operands of types")]
fn mixed_types_panic() {
    let mut b = floats();
    let (i, x) = (b.i64(1), b.f32(1.0));
    b.add(i, x);
}

#[test]
#[should_panic(expected = "outside the block")]
fn registers_do_not_outlive_their_block() {
    let mut b = floats();
    let (zero, n) = (b.i64(0), b.scalar(0));
    let i = b.begin_for(zero, n, 1);
    b.end();
    b.begin_for(zero, n, 1);
    b.add(i, n);
}

#[test]
#[should_panic(expected = "store of")]
fn stores_into_read_only_buffers_panic() {
    let mut b = floats();
    let (zero, x) = (b.i64(0), b.f32(1.0));
    b.store(IN, zero, 0, x);
}

#[test]
fn loads_from_a_written_buffer_are_shared_until_it_is_written_again() {
    let mut b = floats();
    let zero = b.i64(0);
    let first = b.load(OUT, zero, 0, 1);
    assert_eq!(b.load(OUT, zero, 0, 1), first);
    b.store(OUT, zero, 5, first);
    let second = b.load(OUT, zero, 0, 1);
    assert_ne!(second, first);
    // A block inside may run again after it has written.
    let n = b.scalar(0);
    b.for_(zero, n, 1, |b, i| {
        let inside = b.load(OUT, zero, 0, 1);
        assert_ne!(inside, second);
        assert_eq!(b.load(OUT, zero, 0, 1), inside);
        b.store(OUT, i, 0, inside);
    });
    let third = b.load(OUT, zero, 0, 1);
    assert!(third != second && third != first);
    // Another buffer changes nothing; groups of bytes are loads, too.
    let mut b = Builder::new("test", vec![write(DType::U8), write(DType::F32)], 0, false);
    let (zero, x) = (b.i64(0), b.f32(1.0));
    let words = b.words(Buf(0), zero, 0, 1);
    b.store(Buf(1), zero, 0, x);
    assert_eq!(b.words(Buf(0), zero, 0, 1), words);
    let byte = b.load(Buf(0), zero, 0, 1);
    b.store(Buf(0), zero, 0, byte);
    assert_ne!(b.words(Buf(0), zero, 0, 1), words);
}
