//! A [`FileSpec`] into bytes. The same specification gives the same bytes.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::check::check_plan;
use crate::file::{
    ALL_VARIANTS, HEADER, MAGIC, MAX_VARIANTS, ROOT_AT, SECTION, SectionKind, VARIANT, VERSION_MAJOR, VERSION_MINOR,
    root_digest,
};
use crate::plan::{self, Kernels, Plan, TOP, WORK, code};
use crate::spec::{
    Access, BufferSpec, DimSpec, FileSpec, Instr, KernelSpec, PlanSpec, Space, TensorSpec, Val, VariantSpec,
};
use crate::tensors::{self, NONE, Tensors};
use crate::{CODE_ALIGN, Digest, FormatError, LEAF, MAX_RANK};

/// Why a specification cannot be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteError {
    /// It contradicts itself or exceeds a limit of the format.
    Spec(String),
    /// The result would be refused by readers. `variant` is the variant's number.
    Invalid {
        /// Number of the variant.
        variant: usize,
        /// Why.
        error: FormatError,
    },
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::Spec(what) => f.write_str(what),
            WriteError::Invalid { variant, error } => write!(f, "variant {variant}: {error}"),
        }
    }
}

impl core::error::Error for WriteError {}

fn spec_error<T>(what: impl ToString) -> Result<T, WriteError> {
    Err(WriteError::Spec(what.to_string()))
}

/// A count or offset that the format holds in 31 bits.
fn small(n: usize, what: &str) -> Result<u32, WriteError> {
    u32::try_from(n).ok().filter(|&n| n < TOP).map_or_else(|| spec_error(format!("too many {what}: {n}")), Ok)
}

/// Little-endian fields, one after the other.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u16(&mut self, x: u16) -> &mut Bytes {
        self.0.extend(x.to_le_bytes());
        self
    }

    fn u32(&mut self, x: u32) -> &mut Bytes {
        self.0.extend(x.to_le_bytes());
        self
    }

    fn u64(&mut self, x: u64) -> &mut Bytes {
        self.0.extend(x.to_le_bytes());
        self
    }

    fn raw(&mut self, x: &[u8]) -> &mut Bytes {
        self.0.extend(x);
        self
    }
}

struct Sec {
    kind: SectionKind,
    variant: u16,
    align: u32,
    data: Vec<u8>,
}

/// Writes a file, after all the checks that readers make.
pub fn write(spec: &FileSpec) -> Result<Vec<u8>, WriteError> {
    if !spec.page.is_power_of_two() || !(64..=1 << 30).contains(&spec.page) {
        return spec_error("the page alignment is not a power of two from 64 to 2^30");
    }
    if spec.variants.is_empty() || spec.variants.len() > MAX_VARIANTS as usize {
        return spec_error(format!("{} variants, but there must be 1 to {MAX_VARIANTS}", spec.variants.len()));
    }
    let tensors = tensors_section(&spec.inputs, &spec.outputs)?;
    let view = Tensors::parse(&tensors).map_err(|error| WriteError::Invalid { variant: 0, error })?;
    let (mut hot, mut cold, mut large) = (Vec::new(), Vec::new(), Vec::new());
    let sec = |kind, variant, align, data| Sec { kind, variant, align, data };
    for (i, v) in spec.variants.iter().enumerate() {
        let variant = i as u16;
        let (kernels, code) = kernels_section(&v.kernels)?;
        for (k, (out, declared)) in v.plan.outputs.iter().zip(&spec.outputs).enumerate() {
            if out.dims.len() != declared.dims.len() {
                let (is, should) = (out.dims.len(), declared.dims.len());
                return spec_error(format!("output {k} has {is} dimensions, but is declared with {should}"));
            }
        }
        let plan = plan_section(v)?;
        let check = || {
            check_plan(
                &Plan::parse(&plan)?,
                &view,
                &Kernels::parse(&kernels)?,
                spec.weights.len() as u64,
                code.len() as u64,
            )
        };
        check().map_err(|error| WriteError::Invalid { variant: i, error })?;
        hot.push(sec(SectionKind::Plan, variant, 8, plan));
        hot.push(sec(SectionKind::Kernels, variant, 8, kernels));
        cold.push(sec(SectionKind::Debug, variant, 8, cold_section(&v.debug)?));
        if !code.is_empty() {
            large.push(sec(SectionKind::Code, variant, spec.page, code));
        }
    }
    let mut sections = Vec::from([sec(SectionKind::Tensors, ALL_VARIANTS, 8, tensors)]);
    sections.append(&mut hot);
    if !spec.weights.is_empty() {
        let leaves = spec.weights.chunks(LEAF).flat_map(|c| *blake3::hash(c).as_bytes()).collect();
        sections.push(sec(SectionKind::Leaves, ALL_VARIANTS, 8, leaves));
    }
    sections.push(sec(SectionKind::Meta, ALL_VARIANTS, 8, cold_section(&spec.meta)?));
    sections.append(&mut cold);
    sections.append(&mut large);
    Ok(assemble(spec, &sections))
}

fn cold_section<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, WriteError> {
    postcard::to_allocvec(value).or_else(spec_error)
}

/// Lays out header, tables and sections; the weights come last and are taken from the specification.
fn assemble(spec: &FileSpec, sections: &[Sec]) -> Vec<u8> {
    let leaves_digest = sections.iter().find(|s| s.kind == SectionKind::Leaves).map(|s| digest(&s.data));
    let count = sections.len() + usize::from(leaves_digest.is_some());
    let mut table = Bytes::default();
    let mut end = HEADER + count * SECTION + spec.variants.len() * VARIANT;
    let mut offsets = Vec::new();
    let mut entry = |kind: SectionKind, variant: u16, align: u32, bytes: usize, digest: &Digest| {
        let offset = end.next_multiple_of(align as usize);
        end = offset + bytes;
        offsets.push(offset);
        table.u16(kind as u16).u16(variant).u32(align).u64(offset as u64).u64(bytes as u64).u64(0).raw(digest);
    };
    for s in sections {
        entry(s.kind, s.variant, s.align, s.data.len(), &digest(&s.data));
    }
    if let Some(d) = &leaves_digest {
        entry(SectionKind::Weights, ALL_VARIANTS, spec.page, spec.weights.len(), d);
    }
    let mut variants = Bytes::default();
    for v in &spec.variants {
        variants.u16(v.arch).u16(v.abi).u32(v.rank).u64(v.features).u64(0).u64(0);
    }
    let arena = spec.variants.iter().map(|v| v.plan.arena_bytes).max().unwrap_or(0);
    let mut header = Bytes::default();
    header.raw(&MAGIC).u16(VERSION_MAJOR).u16(VERSION_MINOR).u32(HEADER as u32).u64(0).u64(0);
    header.raw(&spec.model_id).raw(&spec.build_id).raw(&[0; 32]);
    header.u32(count as u32).u32(spec.variants.len() as u32).u64(end as u64).u64(arena);
    header.0.resize(HEADER, 0);
    let root = root_digest(&header.0, &table.0, &variants.0);
    header.0.splice(ROOT_AT..ROOT_AT + 32, root);

    let mut file = Vec::with_capacity(end);
    file.extend(&header.0);
    file.extend(&table.0);
    file.extend(&variants.0);
    let datas = sections.iter().map(|s| &s.data[..]).chain(leaves_digest.is_some().then_some(&spec.weights[..]));
    for (data, offset) in datas.zip(offsets) {
        file.resize(offset, 0);
        file.extend(data);
    }
    file
}

fn digest(bytes: &[u8]) -> Digest {
    *blake3::hash(bytes).as_bytes()
}

/// A text pool.
#[derive(Default)]
struct Pool(String);

impl Pool {
    fn add(&mut self, text: &str) -> Result<(u32, u32), WriteError> {
        let at = small(self.0.len(), "bytes of text")?;
        self.0.push_str(text);
        Ok((at, small(text.len(), "bytes of text")?))
    }
}

fn tensors_section(inputs: &[TensorSpec], outputs: &[TensorSpec]) -> Result<Vec<u8>, WriteError> {
    let (mut records, mut dims, mut pool) = (Bytes::default(), Bytes::default(), Pool::default());
    let mut ndims = 0u32;
    // Symbol: its bounds, and where it stands first among the inputs.
    let mut symbols: BTreeMap<&str, ((u64, u64), u32)> = BTreeMap::new();
    for (i, t) in inputs.iter().chain(outputs).enumerate() {
        if t.dims.len() > MAX_RANK {
            return spec_error(format!("{} has rank {}, more than {MAX_RANK}", t.name, t.dims.len()));
        }
        let (at, len) = pool.add(&t.name)?;
        records.raw(&[t.dtype.code(), t.dims.len() as u8]).u16(0).u32(ndims).u32(at).u32(len);
        for (axis, dim) in t.dims.iter().enumerate() {
            let (lo, hi, same, name) = match dim {
                DimSpec::Fixed(n) => (*n, *n, NONE, ""),
                DimSpec::Any => (0, i64::MAX as u64, NONE, ""),
                DimSpec::Symbol { name, min, max } => {
                    if name.is_empty() {
                        return spec_error(format!("{} has a symbol without name", t.name));
                    }
                    let here = (small(i, "inputs")? << 8) | axis as u32;
                    let known = symbols.get(name.as_str()).copied();
                    if known.is_some_and(|(bounds, _)| bounds != (*min, *max)) {
                        return spec_error(format!("symbol {name} has different bounds in different places"));
                    }
                    let is_input = i < inputs.len();
                    symbols.entry(name).or_insert(((*min, *max), if is_input { here } else { NONE }));
                    (*min, *max, known.filter(|_| is_input).map_or(NONE, |(_, at)| at), name.as_str())
                }
            };
            if lo > hi || hi > i64::MAX as u64 {
                return spec_error(format!("{} has a dimension with bad bounds {lo}..{hi}", t.name));
            }
            let (at, len) = pool.add(name)?;
            dims.u64(lo).u64(hi).u32(same).u32(at).u32(len).u32(0);
            ndims += 1;
        }
    }
    let mut out = Bytes::default();
    out.u32(small(inputs.len(), "inputs")?).u32(small(outputs.len(), "outputs")?).u32(ndims);
    out.u32(small(pool.0.len(), "bytes of text")?).raw(&records.0).raw(&dims.0).raw(pool.0.as_bytes());
    debug_assert_eq!(
        tensors::HEAD + (inputs.len() + outputs.len()) * tensors::TENSOR + ndims as usize * tensors::DIM + pool.0.len(),
        out.0.len()
    );
    Ok(out.0)
}

/// KERNELS and CODE.
fn kernels_section(kernels: &[KernelSpec]) -> Result<(Vec<u8>, Vec<u8>), WriteError> {
    let mut code: Vec<u8> = Vec::new();
    let mut known: BTreeMap<&[u8], usize> = BTreeMap::from([(&[][..], 0)]);
    let mut records = Bytes::default();
    records.u32(small(kernels.len(), "kernels")?).u32(0);
    for k in kernels {
        let offset = *known.entry(&k.code).or_insert_with(|| {
            code.resize(code.len().next_multiple_of(CODE_ALIGN), 0);
            code.extend(&k.code);
            code.len() - k.code.len()
        });
        let code_bytes = small(k.code.len(), "bytes of a kernel's code")?;
        if k.work > u32::MAX >> 1 {
            return spec_error(format!(
                "a kernel's work units have {} operations, at most 2³¹ - 1 can be told",
                k.work
            ));
        }
        let units = u32::from(k.tiled) | k.work << 1;
        records.u64(offset as u64).u64(k.scratch).u32(code_bytes).u32(k.bufs).u32(k.scalars).u32(units);
    }
    Ok((records.0, code))
}

/// Tables of a plan that grow while its instructions are written.
#[derive(Default)]
struct Tables {
    consts: Vec<i64>,
    known: BTreeMap<i64, u32>,
    bindings: Vec<u32>,
    vals: Vec<u32>,
}

impl Tables {
    fn val(&mut self, val: Val) -> Result<u32, WriteError> {
        match val {
            Val::Reg(r) => small(r as usize, "registers"),
            Val::Imm(x) => {
                let next = small(self.consts.len(), "constants")?;
                let index = *self.known.entry(x).or_insert(next);
                if index == next {
                    self.consts.push(x);
                }
                Ok(TOP | index)
            }
        }
    }

    fn opt(&mut self, val: Option<Val>) -> Result<u32, WriteError> {
        val.map_or(Ok(NONE), |v| self.val(v))
    }

    fn list(&mut self, vals: &[Val]) -> Result<u32, WriteError> {
        let first = small(self.vals.len(), "scalars")?;
        for &v in vals {
            let raw = self.val(v)?;
            self.vals.push(raw);
        }
        Ok(first)
    }

    fn buffer(&mut self, b: &BufferSpec) -> Result<[u32; 4], WriteError> {
        let (space, index) = match b.space {
            Space::Arena => (0, 0),
            Space::Weights => (1, 0),
            Space::Input(k) => (2, k),
            Space::Slot(k) => (3, k),
        };
        Ok([space | u32::from(b.dtype.code()) << 8, index, self.val(b.offset)?, self.opt(b.bytes)?])
    }

    fn instr(&mut self, instr: &Instr, kernels: &[KernelSpec]) -> Result<(u16, [u32; 5]), WriteError> {
        Ok(match *instr {
            Instr::Set { dst, value } => (code::SET, [dst, self.val(value)?, 0, 0, 0]),
            Instr::InputDim { dst, input, axis } => (code::INPUT_DIM, [dst, input, axis, 0, 0]),
            Instr::Bin { op, dst, a, b } => (op as u16, [dst, self.val(a)?, self.val(b)?, 0, 0]),
            Instr::Select { dst, cond, a, b } => (code::SELECT, [dst, self.val(cond)?, self.val(a)?, self.val(b)?, 0]),
            Instr::LoadInt { dst, buf, index } => (code::LOAD_INT, [dst, buf, self.val(index)?, 0, 0]),
            Instr::StoreInt { buf, index, value } => (code::STORE_INT, [buf, self.val(index)?, self.val(value)?, 0, 0]),
            Instr::Dispatch { kernel, ref bufs, ref scalars, tiles, scratch } => {
                let Some(k) = kernels.get(kernel as usize) else {
                    return spec_error(format!("there is no kernel {kernel}"));
                };
                if (k.bufs as usize, k.scalars as usize) != (bufs.len(), scalars.len()) {
                    return spec_error(format!(
                        "kernel {kernel} takes {} buffers and {} scalars, but gets {} and {}",
                        k.bufs,
                        k.scalars,
                        bufs.len(),
                        scalars.len()
                    ));
                }
                let first_binding = small(self.bindings.len(), "bindings")?;
                for b in bufs {
                    let bits = match b.access {
                        Access::Read => 0,
                        Access::Write => TOP,
                        Access::Work => TOP | WORK,
                    };
                    if b.buf & (TOP | WORK) != 0 {
                        return spec_error(format!("there is no buffer {}", b.buf));
                    }
                    self.bindings.push(b.buf | bits);
                }
                let first_scalar = self.list(scalars)?;
                (code::DISPATCH, [kernel, first_binding, first_scalar, self.opt(tiles)?, scratch.unwrap_or(NONE)])
            }
            Instr::Copy { dst, dst_offset, src, src_offset, bytes } => {
                (code::COPY, [dst, self.val(dst_offset)?, src, self.val(src_offset)?, self.opt(bytes)?])
            }
            Instr::Fill { buf, bits } => (code::FILL, [buf, bits as u32, (bits >> 32) as u32, 0, 0]),
            Instr::SetSlot { slot, buf } => (code::SET_SLOT, [slot, buf, 0, 0, 0]),
            Instr::Jump { target } => (code::JUMP, [target, 0, 0, 0, 0]),
            Instr::JumpIfZero { cond, target } => (code::JUMP_IF_ZERO, [self.val(cond)?, target, 0, 0, 0]),
            Instr::Check { cond, message } => (code::CHECK, [self.val(cond)?, message, 0, 0, 0]),
            Instr::Reserve { bytes } => (code::RESERVE, [self.val(bytes)?, 0, 0, 0, 0]),
            Instr::Return => (code::RETURN, [0; 5]),
        })
    }
}

fn plan_section(variant: &VariantSpec) -> Result<Vec<u8>, WriteError> {
    let plan: &PlanSpec = &variant.plan;
    let mut tables = Tables::default();
    let (mut instrs, mut buffers, mut outputs) = (Bytes::default(), Bytes::default(), Bytes::default());
    let (mut messages, mut pool) = (Bytes::default(), Pool::default());
    let (mut max_bufs, mut max_scalars) = (0, 0);
    for instr in &plan.instrs {
        let (op, fields) = tables.instr(instr, &variant.kernels)?;
        instrs.u16(op).u16(0);
        for f in fields {
            instrs.u32(f);
        }
        if let Instr::Dispatch { bufs, scalars, .. } = instr {
            max_bufs = max_bufs.max(bufs.len());
            max_scalars = max_scalars.max(scalars.len());
        }
    }
    for b in &plan.buffers {
        for f in tables.buffer(b)? {
            buffers.u32(f);
        }
    }
    for o in &plan.outputs {
        outputs.u32(o.buf).u32(tables.list(&o.dims)?);
    }
    for m in &plan.messages {
        let (at, len) = pool.add(m)?;
        messages.u32(at).u32(len);
    }
    let mut out = Bytes::default();
    out.u32(plan.regs).u32(plan.slots).u64(plan.arena_bytes);
    out.u32(small(plan.instrs.len(), "instructions")?).u32(small(plan.buffers.len(), "buffers")?);
    out.u32(small(tables.bindings.len(), "bindings")?).u32(small(tables.vals.len(), "scalars")?);
    out.u32(small(tables.consts.len(), "constants")?).u32(small(plan.outputs.len(), "outputs")?);
    out.u32(small(plan.messages.len(), "messages")?).u32(small(pool.0.len(), "bytes of text")?);
    out.u32(small(max_bufs, "buffers")?).u32(small(max_scalars, "scalars")?).u64(0);
    debug_assert_eq!(out.0.len(), plan::HEAD);
    for &c in &tables.consts {
        out.u64(c as u64);
    }
    out.raw(&instrs.0).raw(&buffers.0).raw(&outputs.0).raw(&messages.0);
    for &raw in tables.bindings.iter().chain(&tables.vals) {
        out.u32(raw);
    }
    out.raw(pool.0.as_bytes());
    Ok(out.0)
}
