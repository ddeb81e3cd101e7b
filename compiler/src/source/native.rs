//! The plan as machine code, by Cranelift: what [`plan`](super::plan) writes as C, with the same checks.

use super::{ARENA_ALIGN, Model, Tensor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, Block, FuncRef, Function, InstBuilder, MemFlagsData, Signature, StackSlotData, StackSlotKind, Type,
    Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use graphmend_cache_format::abi::offset64;
use graphmend_cache_format::spec::{Binding, DimSpec, Instr, Space, Val};
use graphmend_cache_format::{BinOp, DType};
use std::collections::BTreeMap;

mod memory;

/// Statuses, as the header numbers them.
mod status {
    pub(super) const OK: i64 = 0;
    pub(super) const ARENA_TOO_SMALL: i64 = 1;
    pub(super) const ARENA_UNALIGNED: i64 = 2;
    pub(super) const INPUT: i64 = 3;
    pub(super) const SHAPE: i64 = 4;
    pub(super) const DATA: i64 = 5;
    pub(super) const INDEX: i64 = 6;
    pub(super) const OVERFLOW: i64 = 7;
    pub(super) const BUFFER: i64 = 8;
    pub(super) const CHECK: i64 = 9;
}

/// The signature of the function that runs a model.
pub(super) fn signature(model: &Model<'_>) -> Signature {
    let mut signature = Signature::new(CallConv::SystemV);
    let pointers = if model.shapes { 5 } else { 4 };
    signature.params = vec![AbiParam::new(types::I64); pointers];
    signature.returns.push(AbiParam::new(types::I32));
    signature
}

/// The signature of kernels.
pub(super) fn kernel_signature() -> Signature {
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params.push(AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I32));
    signature
}

/// What the function refers to outside of itself.
pub(super) struct Outside {
    /// Kernels, by number.
    pub(super) kernels: Vec<FuncRef>,
    /// The weights, if there are any.
    pub(super) weights: Option<cranelift_codegen::ir::GlobalValue>,
}

/// Writes the body of the function that runs a model.
pub(super) fn run(model: &Model<'_>, func: &mut Function, outside: &Outside, config: TargetFrontendConfig) {
    let mut frontend = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(func, &mut frontend);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let given = b.block_params(entry).to_vec();
    let most = |f: &dyn Fn(&Instr) -> usize| model.plan.instrs.iter().map(f).max().unwrap_or(0).max(1) as u32 * 8;
    let dispatch = |instr: &Instr| match instr {
        Instr::Dispatch { bufs, scalars, .. } => (bufs.len(), scalars.len()),
        _ => (0, 0),
    };
    let slot = |b: &mut FunctionBuilder<'_>, bytes| {
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 3);
        let slot = b.create_sized_stack_slot(data);
        b.ins().stack_addr(types::I64, slot, 0)
    };
    let (bufs, scalars) = (slot(&mut b, most(&|i| dispatch(i).0)), slot(&mut b, most(&|i| dispatch(i).1)));
    let args = slot(&mut b, 40);
    let zero = b.ins().iconst(types::I64, 0);
    let variables = |b: &mut FunctionBuilder<'_>, count: u32| {
        let each = (0..count).map(|_| {
            let variable = b.declare_var(types::I64);
            b.def_var(variable, zero);
            variable
        });
        each.collect::<Vec<_>>()
    };
    let regs = variables(&mut b, model.plan.regs);
    let slots = variables(&mut b, 2 * model.plan.slots);
    let weights = match outside.weights {
        Some(weights) => b.ins().symbol_value(types::I64, weights),
        None => given[0],
    };
    let (arena, arena_bytes, outputs) = (given[0], given[1], given[3]);
    let shapes = given.get(4).copied().unwrap_or(zero);
    let mut run = Run {
        model,
        b,
        kernels: &outside.kernels,
        regs,
        slots,
        blocks: BTreeMap::new(),
        arena,
        arena_bytes,
        weights,
        given_inputs: given[2],
        inputs: vec![],
        input_bytes: vec![],
        outputs,
        shapes,
        args,
        bufs,
        scalars,
    };
    run.checks();
    run.instructions();
    run.b.seal_all_blocks();
    run.b.finalize(config);
}

fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

fn int_type(bytes: usize) -> Type {
    match bytes {
        1 => types::I8,
        2 => types::I16,
        4 => types::I32,
        _ => types::I64,
    }
}

struct Run<'a> {
    model: &'a Model<'a>,
    b: FunctionBuilder<'a>,
    kernels: &'a [FuncRef],
    regs: Vec<Variable>,
    /// Address and bytes of each slot.
    slots: Vec<Variable>,
    /// Where instructions that are jumped to begin.
    blocks: BTreeMap<u32, Block>,
    arena: Value,
    arena_bytes: Value,
    weights: Value,
    /// The table of the inputs' addresses.
    given_inputs: Value,
    inputs: Vec<Value>,
    input_bytes: Vec<Value>,
    outputs: Value,
    shapes: Value,
    /// The arguments of a kernel, its buffers, its scalars.
    args: Value,
    bufs: Value,
    scalars: Value,
}

/// A buffer right now.
#[derive(Clone, Copy)]
struct View {
    pointer: Value,
    bytes: Value,
    dtype: DType,
}

impl Run<'_> {
    fn number(&mut self, n: i64) -> Value {
        self.b.ins().iconst(types::I64, n)
    }

    fn val(&mut self, val: Val) -> Value {
        match val {
            Val::Reg(reg) => self.b.use_var(self.regs[reg as usize]),
            Val::Imm(n) => self.number(n),
        }
    }

    fn set(&mut self, reg: u32, value: Value) {
        self.b.def_var(self.regs[reg as usize], value);
    }

    fn give(&mut self, status: i64) {
        let status = self.b.ins().iconst(types::I32, status);
        self.b.ins().return_(&[status]);
    }

    /// Ends the run where `condition` is not zero.
    fn fail(&mut self, condition: Value, status: i64) {
        let (bad, good) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(bad);
        self.b.ins().brif(condition, bad, &[], good, &[]);
        self.b.switch_to_block(bad);
        self.give(status);
        self.b.switch_to_block(good);
    }

    fn fail_if(&mut self, cc: IntCC, a: Value, b: Value, status: i64) {
        let condition = self.b.ins().icmp(cc, a, b);
        self.fail(condition, status);
    }

    /// Checks of what a run is given.
    fn checks(&mut self) {
        let least = self.number(self.model.plan.arena_bytes as i64);
        self.fail_if(IntCC::UnsignedLessThan, self.arena_bytes, least, status::ARENA_TOO_SMALL);
        let off = self.b.ins().band_imm_u(self.arena, ARENA_ALIGN as i64 - 1);
        self.fail(off, status::ARENA_UNALIGNED);
        let mut symbols: BTreeMap<&str, Value> = BTreeMap::new();
        let model = self.model;
        for (k, t) in model.inputs.iter().enumerate() {
            let size = t.spec.dtype.size() as i64;
            let address = self.b.ins().load(types::I64, flags(), self.given_inputs, 8 * k as i32);
            self.inputs.push(address);
            if t.bytes() != Some(0) {
                let null = self.number(0);
                self.fail_if(IntCC::Equal, self.inputs[k], null, status::INPUT);
            }
            let off = self.b.ins().band_imm_u(self.inputs[k], size - 1);
            self.fail(off, status::INPUT);
            let mut bytes = self.number(t.bytes().unwrap_or(0) as i64);
            if t.fixed.is_none() {
                let sizes: Vec<Value> = (0..t.spec.dims.len()).map(|axis| self.input_dim(k, axis)).collect();
                for (dim, at) in t.spec.dims.iter().zip(&sizes) {
                    self.dimension(dim, *at, &mut symbols);
                }
                bytes = self.number(size);
                for at in sizes {
                    // The product of what is not negative; too large, it is refused.
                    let high = self.b.ins().umulhi(bytes, at);
                    bytes = self.b.ins().imul(bytes, at);
                    let sign = self.b.ins().sshr_imm_u(bytes, 63);
                    let wrong = self.b.ins().bor(high, sign);
                    self.fail(wrong, status::SHAPE);
                }
            }
            self.input_bytes.push(bytes);
        }
    }

    fn dimension<'d>(&mut self, dim: &'d DimSpec, at: Value, symbols: &mut BTreeMap<&'d str, Value>) {
        let (least, most) = match dim {
            DimSpec::Fixed(n) => (*n as i64, *n as i64),
            DimSpec::Any => (0, i64::MAX),
            DimSpec::Symbol { min, max, .. } => (*min as i64, *max as i64),
        };
        let (least, most) = (self.number(least), self.number(most));
        self.fail_if(IntCC::SignedLessThan, at, least, status::SHAPE);
        self.fail_if(IntCC::SignedGreaterThan, at, most, status::SHAPE);
        if let DimSpec::Symbol { name, .. } = dim {
            match symbols.get(name.as_str()) {
                Some(first) => self.fail_if(IntCC::NotEqual, at, *first, status::SHAPE),
                None => drop(symbols.insert(name, at)),
            }
        }
    }

    /// Byte offset of an open tensor's sizes in the structure of shapes: of an input, or of an output behind all inputs.
    fn shape_offset(&self, inputs: usize, outputs: usize) -> i32 {
        let words = |t: &Tensor<'_>| if t.fixed.is_none() { t.spec.dims.len() } else { 0 };
        let before = self.model.inputs[..inputs].iter().chain(&self.model.outputs[..outputs]);
        8 * before.map(words).sum::<usize>() as i32
    }

    fn input_dim(&mut self, input: usize, axis: usize) -> Value {
        match self.model.inputs.get(input).and_then(|t| t.fixed.as_ref()).and_then(|dims| dims.get(axis)) {
            Some(n) => self.number(*n as i64),
            None => {
                let at = self.shape_offset(input, 0) + 8 * axis as i32;
                self.b.ins().load(types::I64, flags(), self.shapes, at)
            }
        }
    }

    fn instructions(&mut self) {
        let plan = self.model.plan;
        for instr in &plan.instrs {
            if let Instr::Jump { target } | Instr::JumpIfZero { target, .. } = instr
                && !self.blocks.contains_key(target)
            {
                let block = self.b.create_block();
                self.blocks.insert(*target, block);
            }
        }
        // Whether what is written next can be reached from what was written last.
        let mut open = true;
        for (at, instr) in (0u32..).zip(&plan.instrs) {
            if let Some(block) = self.blocks.get(&at).copied() {
                if open {
                    self.b.ins().jump(block, &[]);
                }
                self.b.switch_to_block(block);
            } else if !open {
                let block = self.b.create_block();
                self.b.switch_to_block(block);
            }
            open = !matches!(instr, Instr::Jump { .. } | Instr::Return);
            self.instr(instr);
        }
        if open {
            self.give(status::OK);
        }
    }

    fn instr(&mut self, instr: &Instr) {
        match instr {
            Instr::Set { dst, value } => {
                let value = self.val(*value);
                self.set(*dst, value);
            }
            Instr::InputDim { dst, input, axis } => {
                let size = self.input_dim(*input as usize, *axis as usize);
                self.set(*dst, size);
            }
            Instr::Bin { op, dst, a, b } => {
                let (a, b) = (self.val(*a), self.val(*b));
                let value = self.arithmetic(*op, a, b);
                self.set(*dst, value);
            }
            Instr::Select { dst, cond, a, b } => {
                let (cond, a, b) = (self.val(*cond), self.val(*a), self.val(*b));
                let value = self.b.ins().select(cond, a, b);
                self.set(*dst, value);
            }
            Instr::LoadInt { dst, buf, index } => {
                let view = self.view(*buf);
                let place = self.element(&view, *index);
                let value = self.load_int(view.dtype, place);
                self.set(*dst, value);
            }
            Instr::StoreInt { buf, index, value } => {
                let view = self.view(*buf);
                let place = self.element(&view, *index);
                let mut value = self.val(*value);
                if view.dtype == DType::Bool {
                    let set = self.b.ins().icmp_imm_s(IntCC::NotEqual, value, 0);
                    value = self.b.ins().uextend(types::I64, set);
                }
                self.store(view.dtype.size(), value, place);
            }
            Instr::Dispatch { kernel, bufs, scalars, tiles, .. } => self.dispatch(*kernel, bufs, scalars, *tiles),
            Instr::Copy { dst, dst_offset, src, src_offset, bytes } => {
                let (to, from) = (self.view(*dst), self.view(*src));
                let offsets = (self.val(*dst_offset), self.val(*src_offset));
                let bytes = bytes.map(|bytes| self.val(bytes));
                let (from, bytes) = self.part(from.pointer, from.bytes, offsets.1, bytes, status::INDEX);
                let (to, _) = self.part(to.pointer, to.bytes, offsets.0, Some(bytes), status::INDEX);
                self.copy(to, from, bytes);
            }
            Instr::Fill { buf, bits } => self.fill(*buf, *bits),
            Instr::SetSlot { slot, buf } => {
                let view = self.view(*buf);
                let at = 2 * *slot as usize;
                self.b.def_var(self.slots[at], view.pointer);
                self.b.def_var(self.slots[at + 1], view.bytes);
            }
            Instr::Jump { target } => {
                self.b.ins().jump(self.blocks[target], &[]);
            }
            Instr::JumpIfZero { cond, target } => {
                let cond = self.val(*cond);
                let next = self.b.create_block();
                self.b.ins().brif(cond, next, &[], self.blocks[target], &[]);
                self.b.switch_to_block(next);
            }
            Instr::Check { cond, message } => {
                let (cond, zero) = (self.val(*cond), self.number(0));
                self.fail_if(IntCC::Equal, cond, zero, status::CHECK + i64::from(*message));
            }
            Instr::Reserve { bytes } => self.reserve(*bytes),
            Instr::Return => self.finish(),
        }
    }

    fn reserve(&mut self, bytes: Val) {
        let (bytes, zero) = (self.val(bytes), self.number(0));
        self.fail_if(IntCC::SignedLessThan, bytes, zero, status::OVERFLOW);
        let (bad, good) = (self.b.create_block(), self.b.create_block());
        let more = self.b.ins().icmp(IntCC::UnsignedGreaterThan, bytes, self.arena_bytes);
        self.b.ins().brif(more, bad, &[], good, &[]);
        self.b.switch_to_block(bad);
        let needed = self.shape_offset(self.model.inputs.len(), self.model.outputs.len());
        self.b.ins().store(flags(), bytes, self.shapes, needed);
        self.give(status::ARENA_TOO_SMALL);
        self.b.switch_to_block(good);
    }

    fn arithmetic(&mut self, op: BinOp, a: Value, b: Value) -> Value {
        let cc = match op {
            BinOp::Eq => IntCC::Equal,
            BinOp::Ne => IntCC::NotEqual,
            BinOp::Lt => IntCC::SignedLessThan,
            BinOp::Le => IntCC::SignedLessThanOrEqual,
            BinOp::Min => {
                let less = self.b.ins().icmp(IntCC::SignedLessThan, a, b);
                return self.b.ins().select(less, a, b);
            }
            BinOp::Max => {
                let more = self.b.ins().icmp(IntCC::SignedGreaterThan, a, b);
                return self.b.ins().select(more, a, b);
            }
            BinOp::And => return self.b.ins().band(a, b),
            BinOp::Or => return self.b.ins().bor(a, b),
            BinOp::Xor => return self.b.ins().bxor(a, b),
            BinOp::Add | BinOp::Sub => return self.sum(op, a, b),
            BinOp::Mul => {
                let (low, high) = (self.b.ins().imul(a, b), self.b.ins().smulhi(a, b));
                let sign = self.b.ins().sshr_imm_u(low, 63);
                self.fail_if(IntCC::NotEqual, high, sign, status::OVERFLOW);
                return low;
            }
            BinOp::FloorDiv | BinOp::CeilDiv | BinOp::TruncDiv | BinOp::Mod | BinOp::Rem => {
                return self.quotient(op, a, b);
            }
        };
        let holds = self.b.ins().icmp(cc, a, b);
        self.b.ins().uextend(types::I64, holds)
    }

    /// A sum or difference: it does not fit if its sign is not that of both terms.
    fn sum(&mut self, op: BinOp, a: Value, b: Value) -> Value {
        let add = op == BinOp::Add;
        let sum = if add { self.b.ins().iadd(a, b) } else { self.b.ins().isub(a, b) };
        let other = if add { self.b.ins().bxor(b, sum) } else { self.b.ins().bxor(a, b) };
        let changed = self.b.ins().bxor(a, sum);
        let both = self.b.ins().band(changed, other);
        let zero = self.number(0);
        self.fail_if(IntCC::SignedLessThan, both, zero, status::OVERFLOW);
        sum
    }

    /// A quotient or remainder; by zero it is 0.
    fn quotient(&mut self, op: BinOp, a: Value, b: Value) -> Value {
        let (zero, one) = (self.number(0), self.number(1));
        let by_zero = self.b.ins().icmp_imm_s(IntCC::Equal, b, 0);
        let by_minus_one = self.b.ins().icmp_imm_s(IntCC::Equal, b, -1);
        if matches!(op, BinOp::FloorDiv | BinOp::CeilDiv | BinOp::TruncDiv) {
            let least = self.b.ins().icmp_imm_s(IntCC::Equal, a, i64::MIN);
            let wrong = self.b.ins().band(least, by_minus_one);
            self.fail(wrong, status::OVERFLOW);
        }
        // The processor divides by neither, where it would trap.
        let plain = self.b.ins().bor(by_zero, by_minus_one);
        let divisor = self.b.ins().select(plain, one, b);
        let quotient = self.b.ins().sdiv(a, divisor);
        let product = self.b.ins().imul(quotient, divisor);
        let rest = self.b.ins().isub(a, product);
        let signs = self.b.ins().bxor(a, b);
        let differ = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, signs, 0);
        let inexact = self.b.ins().icmp_imm_s(IntCC::NotEqual, rest, 0);
        let agree = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, signs, 0);
        match op {
            BinOp::Rem => rest,
            BinOp::Mod => {
                let moved = self.b.ins().iadd(rest, b);
                let move_it = self.b.ins().band(differ, inexact);
                self.b.ins().select(move_it, moved, rest)
            }
            _ => {
                let negated = self.b.ins().ineg(a);
                let exact = self.b.ins().select(by_minus_one, negated, quotient);
                let (step, when) = match op {
                    BinOp::FloorDiv => (-1, differ),
                    BinOp::CeilDiv => (1, agree),
                    _ => (0, agree),
                };
                let moved = self.b.ins().iadd_imm_s(exact, step);
                let move_it = self.b.ins().band(when, inexact);
                let value = self.b.ins().select(move_it, moved, exact);
                self.b.ins().select(by_zero, zero, value)
            }
        }
    }

    /// `bytes` bytes (nothing: all that is left) at `offset` of `room` bytes.
    fn part(&mut self, base: Value, room: Value, offset: Value, bytes: Option<Value>, status: i64) -> (Value, Value) {
        self.fail_if(IntCC::UnsignedGreaterThan, offset, room, status);
        let left = self.b.ins().isub(room, offset);
        if let Some(bytes) = bytes {
            self.fail_if(IntCC::UnsignedGreaterThan, bytes, left, status);
        }
        (self.b.ins().iadd(base, offset), bytes.unwrap_or(left))
    }

    /// A buffer; one with computed bounds is checked to lie in its memory.
    fn view(&mut self, buf: u32) -> View {
        let spec = self.model.plan.buffers[buf as usize];
        let (base, room) = match spec.space {
            Space::Arena => (self.arena, self.arena_bytes),
            Space::Weights => (self.weights, self.number(self.model.file.weights.len() as i64)),
            Space::Input(k) => (self.inputs[k as usize], self.input_bytes[k as usize]),
            Space::Slot(k) => {
                let at = 2 * k as usize;
                (self.b.use_var(self.slots[at]), self.b.use_var(self.slots[at + 1]))
            }
        };
        let dtype = spec.dtype;
        // The planner's own constants lie where they should; what a slot or an open input holds may be less.
        if let (Val::Imm(offset), Some(Val::Imm(bytes)), Space::Arena | Space::Weights) =
            (spec.offset, spec.bytes, spec.space)
        {
            let pointer = if offset == 0 { base } else { self.b.ins().iadd_imm_s(base, offset) };
            return View { pointer, bytes: self.number(bytes), dtype };
        }
        let (offset, bytes) = (self.val(spec.offset), spec.bytes.map(|bytes| self.val(bytes)));
        let (pointer, bytes) = self.part(base, room, offset, bytes, status::BUFFER);
        View { pointer, bytes, dtype }
    }

    /// The place of an element, which the view has.
    fn element(&mut self, view: &View, index: Val) -> Value {
        let shift = view.dtype.size().trailing_zeros();
        let (index, count) = (self.val(index), self.b.ins().ushr_imm_u(view.bytes, i64::from(shift)));
        self.fail_if(IntCC::UnsignedGreaterThanOrEqual, index, count, status::INDEX);
        let offset = self.b.ins().ishl_imm_u(index, i64::from(shift));
        self.b.ins().iadd(view.pointer, offset)
    }

    fn load_int(&mut self, dtype: DType, place: Value) -> Value {
        let value = self.b.ins().load(int_type(dtype.size()), flags(), place, 0);
        match dtype {
            DType::I8 | DType::I16 | DType::I32 => self.b.ins().sextend(types::I64, value),
            DType::I64 => value,
            DType::U64 => {
                let zero = self.number(0);
                self.fail_if(IntCC::SignedLessThan, value, zero, status::OVERFLOW);
                value
            }
            _ => self.b.ins().uextend(types::I64, value),
        }
    }

    fn store(&mut self, bytes: usize, value: Value, place: Value) {
        let value = if bytes == 8 { value } else { self.b.ins().ireduce(int_type(bytes), value) };
        self.b.ins().store(flags(), value, place, 0);
    }

    fn dispatch(&mut self, kernel: u32, bufs: &[Binding], scalars: &[Val], tiles: Option<Val>) {
        let Some(function) = self.kernels.get(kernel as usize).copied() else { return };
        let pointers: Vec<Value> = bufs.iter().map(|binding| self.view(binding.buf).pointer).collect();
        let units = self.val(tiles.unwrap_or(Val::Imm(1)));
        // Without work units, there is nothing to call.
        let (call, after) = (self.b.create_block(), self.b.create_block());
        let any = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThan, units, 0);
        self.b.ins().brif(any, call, &[], after, &[]);
        self.b.switch_to_block(call);
        for (k, pointer) in pointers.into_iter().enumerate() {
            self.b.ins().store(flags(), pointer, self.bufs, 8 * k as i32);
        }
        for (k, scalar) in scalars.iter().enumerate() {
            let value = self.val(*scalar);
            self.b.ins().store(flags(), value, self.scalars, 8 * k as i32);
        }
        let zero = self.number(0);
        for (value, at) in [
            (self.bufs, offset64::BUFS),
            (self.scalars, offset64::SCALARS),
            (zero, offset64::SCRATCH),
            (zero, offset64::TILE_LO),
            (units, offset64::TILE_HI),
        ] {
            self.b.ins().store(flags(), value, self.args, at);
        }
        let called = self.b.ins().call(function, &[self.args]);
        let ended = self.b.inst_results(called)[0];
        self.fail(ended, status::DATA);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
    }

    /// The end of a run.
    fn finish(&mut self) {
        let model = self.model;
        for (k, (output, t)) in model.plan.outputs.iter().zip(&model.outputs).enumerate() {
            let view = self.view(output.buf);
            self.b.ins().store(flags(), view.pointer, self.outputs, 8 * k as i32);
            if t.fixed.is_none() {
                let from = self.shape_offset(model.inputs.len(), k);
                for (axis, dim) in output.dims.iter().enumerate() {
                    let dim = self.val(*dim);
                    self.b.ins().store(flags(), dim, self.shapes, from + 8 * axis as i32);
                }
            }
        }
        self.give(status::OK);
    }
}
