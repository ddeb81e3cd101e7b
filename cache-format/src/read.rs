//! Bytes back into a [`FileSpec`], for tools and tests. Decodes the records on its own, not with the writer's code.

use alloc::string::ToString;
use alloc::vec::Vec;

use crate::check::check_plan;
use crate::file::{ALL_VARIANTS, File, SectionKind};
use crate::meta::{Debug, Meta};
use crate::plan::{self, Kernels, Plan, Source, Step};
use crate::spec::{
    Access, Binding, BufferSpec, DimSpec, FileSpec, Instr, KernelSpec, OutputSpec, PlanSpec, Space, TensorSpec, Val,
    VariantSpec,
};
use crate::tensors::{Tensor, Tensors};
use crate::{FormatError, PAGE};

/// Verifies a whole file and decodes it.
pub fn read(bytes: &[u8]) -> Result<FileSpec, FormatError> {
    let file = File::parse(bytes)?;
    file.verify()?;
    let header = file.index().header();
    let tensors = Tensors::parse(file.verified(SectionKind::Tensors, ALL_VARIANTS)?)?;
    let weights = match file.index().section(SectionKind::Weights, ALL_VARIANTS) {
        Some(section) => file.data(&section),
        None => &[],
    };
    let large = |kind| matches!(kind, SectionKind::Code | SectionKind::Weights);
    Ok(FileSpec {
        model_id: header.model_id,
        build_id: header.build_id,
        page: file.index().sections().find(|s| large(s.kind)).map_or(PAGE, |s| s.align),
        inputs: (0..tensors.inputs()).filter_map(|i| tensors.input(i)).map(tensor).collect(),
        outputs: (0..tensors.outputs()).filter_map(|i| tensors.output(i)).map(tensor).collect(),
        variants: (0..header.variants as u16)
            .map(|v| variant(&file, v, &tensors, weights.len() as u64))
            .collect::<Result<_, _>>()?,
        weights: weights.to_vec(),
        meta: meta(&file)?,
    })
}

/// The section META, verified.
pub fn meta(file: &File<'_>) -> Result<Meta, FormatError> {
    decode(SectionKind::Meta, file.verified(SectionKind::Meta, ALL_VARIANTS)?)
}

/// A variant's section DEBUG, verified.
pub fn debug(file: &File<'_>, variant: u16) -> Result<Debug, FormatError> {
    decode(SectionKind::Debug, file.verified(SectionKind::Debug, variant)?)
}

fn decode<T: serde::de::DeserializeOwned>(kind: SectionKind, bytes: &[u8]) -> Result<T, FormatError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(FormatError::Cold(kind)),
    }
}

fn tensor(t: Tensor<'_>) -> TensorSpec {
    let dims = t.dims().map(|d| match d.fixed() {
        Some(n) => DimSpec::Fixed(n as u64),
        None if d.symbol.is_empty() => DimSpec::Any,
        None => DimSpec::Symbol { name: d.symbol.to_string(), min: d.lo as u64, max: d.hi as u64 },
    });
    TensorSpec { name: t.name.to_string(), dtype: t.dtype, dims: dims.collect() }
}

fn variant(file: &File<'_>, index: u16, tensors: &Tensors<'_>, weights_bytes: u64) -> Result<VariantSpec, FormatError> {
    let head = file.index().variant(index).ok_or(FormatError::Header("short"))?;
    let plan = Plan::parse(file.verified(SectionKind::Plan, index)?)?;
    let kernels = Kernels::parse(file.verified(SectionKind::Kernels, index)?)?;
    let code = match file.index().section(SectionKind::Code, index) {
        Some(section) => file.data(&section),
        None => &[],
    };
    check_plan(&plan, tensors, &kernels, weights_bytes, code.len() as u64)?;
    Ok(VariantSpec {
        arch: head.arch,
        abi: head.abi,
        rank: head.rank,
        features: head.features,
        plan: plan_spec(&plan, tensors, &kernels)?,
        kernels: kernel_specs(&kernels, code)?,
        debug: debug(file, index)?,
    })
}

fn kernel_specs(kernels: &Kernels<'_>, code: &[u8]) -> Result<Vec<KernelSpec>, FormatError> {
    let one = |i| {
        let k = kernels.get(i)?;
        let from = usize::try_from(k.code_offset).ok()?;
        let code = code.get(from..from.checked_add(k.code_bytes as usize)?)?.to_vec();
        Some(KernelSpec { code, bufs: k.bufs, scalars: k.scalars, scratch: k.scratch, tiled: k.tiled, work: k.work })
    };
    (0..kernels.count()).map(|i| one(i).ok_or(FormatError::Missing(SectionKind::Kernels))).collect()
}

/// A plan as plain data. The plan has been checked with [`check_plan`].
pub fn plan_spec(plan: &Plan<'_>, tensors: &Tensors<'_>, kernels: &Kernels<'_>) -> Result<PlanSpec, FormatError> {
    let wrong = |table, index| FormatError::Record { section: SectionKind::Plan, table, index, what: "out of range" };
    let instr = |i| plan.step(i).and_then(|s| instr(plan, kernels, s)).ok_or(wrong("instruction", i));
    let buffer = |i| plan.buffer(i).and_then(|b| buffer(plan, b)).ok_or(wrong("buffer", i));
    let output = |i| {
        let read = || {
            let out = plan.output(i)?;
            Some(OutputSpec { buf: out.buf, dims: vals(plan, out.first_dim, tensors.output(i)?.rank as u32)? })
        };
        read().ok_or(wrong("output", i))
    };
    let message = |i| plan.message(i).map(ToString::to_string).ok_or(wrong("message", i));
    Ok(PlanSpec {
        regs: plan.regs,
        slots: plan.slots,
        arena_bytes: plan.arena_bytes,
        buffers: (0..plan.buffers).map(buffer).collect::<Result<_, _>>()?,
        instrs: (0..plan.instrs).map(instr).collect::<Result<_, _>>()?,
        outputs: (0..plan.outputs).map(output).collect::<Result<_, _>>()?,
        messages: (0..plan.messages).map(message).collect::<Result<_, _>>()?,
    })
}

fn val(plan: &Plan<'_>, v: plan::Val) -> Option<Val> {
    Some(match v.source() {
        Source::Reg(r) => Val::Reg(r),
        Source::Const(i) => Val::Imm(plan.constant(i)?),
    })
}

fn opt(plan: &Plan<'_>, v: Option<plan::Val>) -> Option<Option<Val>> {
    match v {
        None => Some(None),
        Some(v) => val(plan, v).map(Some),
    }
}

fn vals(plan: &Plan<'_>, first: u32, count: u32) -> Option<Vec<Val>> {
    (0..count).map(|i| val(plan, plan.val(first.checked_add(i)?)?)).collect()
}

fn buffer(plan: &Plan<'_>, b: plan::Buffer) -> Option<BufferSpec> {
    let space = match b.space {
        plan::Space::Arena => Space::Arena,
        plan::Space::Weights => Space::Weights,
        plan::Space::Input(k) => Space::Input(k),
        plan::Space::Slot(k) => Space::Slot(k),
    };
    Some(BufferSpec { space, dtype: b.dtype, offset: val(plan, b.offset)?, bytes: opt(plan, b.bytes)? })
}

fn instr(plan: &Plan<'_>, kernels: &Kernels<'_>, step: Step) -> Option<Instr> {
    let v = |x| val(plan, x);
    Some(match step {
        Step::Bin { op, dst, a, b } => Instr::Bin { op, dst, a: v(a)?, b: v(b)? },
        Step::Set { dst, value } => Instr::Set { dst, value: v(value)? },
        Step::InputDim { dst, input, axis } => Instr::InputDim { dst, input, axis },
        Step::Select { dst, cond, a, b } => Instr::Select { dst, cond: v(cond)?, a: v(a)?, b: v(b)? },
        Step::LoadInt { dst, buf, index } => Instr::LoadInt { dst, buf, index: v(index)? },
        Step::StoreInt { buf, index, value } => Instr::StoreInt { buf, index: v(index)?, value: v(value)? },
        Step::Dispatch { kernel, first_binding, first_scalar, tiles, scratch } => {
            let k = kernels.get(kernel)?;
            let binding = |i: u32| {
                let b = plan.binding(first_binding.checked_add(i)?)?;
                let access = match (b.written, b.work) {
                    (true, true) => Access::Work,
                    (true, false) => Access::Write,
                    (false, _) => Access::Read,
                };
                Some(Binding { buf: b.buf, access })
            };
            Instr::Dispatch {
                kernel,
                bufs: (0..k.bufs).map(binding).collect::<Option<_>>()?,
                scalars: vals(plan, first_scalar, k.scalars)?,
                tiles: opt(plan, tiles)?,
                scratch,
            }
        }
        Step::Copy { dst, dst_offset, src, src_offset, bytes } => {
            Instr::Copy { dst, dst_offset: v(dst_offset)?, src, src_offset: v(src_offset)?, bytes: opt(plan, bytes)? }
        }
        Step::Fill { buf, bits } => Instr::Fill { buf, bits },
        Step::SetSlot { slot, buf } => Instr::SetSlot { slot, buf },
        Step::Jump { target } => Instr::Jump { target },
        Step::JumpIfZero { cond, target } => Instr::JumpIfZero { cond: v(cond)?, target },
        Step::Check { cond, message } => Instr::Check { cond: v(cond)?, message },
        Step::Reserve { bytes } => Instr::Reserve { bytes: v(bytes)? },
        Step::Return => Instr::Return,
    })
}
