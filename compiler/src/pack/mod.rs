//! Everything together: a model in, the bytes of a cache file out.

pub mod choices;
mod dims;

use crate::codegen::{self, Target};
use crate::error::{Error, Result, Stage};
use crate::expand::{self, Dim, Dims};
use crate::fuse::{self, Unit};
use crate::graph::Module;
use crate::kernel::ir::Kernel;
use crate::kernel::work;
use crate::layout::{self, Layout};
use crate::lower::{self, LoweredKernel};
use crate::mend::{self, Report};
use crate::plan::{self, Planned};
use crate::quantize;
use crate::source::toolchain::Toolchain;
use crate::source::{self, Source};
use crate::te::{Program, TensorId};
use crate::{sym, te};
use choices::{Choices, Found, Tunable};
use graphmend_cache_format::spec::{
    BufferSpec, DimSpec, FileSpec, Instr, KernelSpec, Space, TensorSpec, Val, VariantSpec,
};
use graphmend_cache_format::{self as format, meta};
use graphmend_targets::Cpu;
use std::collections::BTreeMap;

/// How to pack.
#[derive(Clone, Debug)]
pub struct Options {
    /// The processor to pack for.
    pub target: Cpu,
    /// Sizes of symbolic dimensions.
    pub dims: Dims,
    /// Shapes of inputs by name; an empty name is that of a model's only input. They bind the symbolic dimensions that the
    /// inputs have.
    pub shapes: BTreeMap<String, Vec<u64>>,
    /// Most nodes that writing out loops may make; a loop that would make more stays a loop.
    pub unroll: usize,
    /// In which order the axes of tensors lie in memory.
    pub layout: Layout,
    /// Texts of intermediate stages to keep.
    pub emit: Vec<Emit>,
    /// What to make.
    pub product: Product,
    /// The C compiler for processors that have code by way of C, and flags for it; nothing: one that is found.
    pub cc: Option<String>,
    /// Schedules to take instead of those that the estimates recommend, and [`Packed::tunables`] are wanted; see
    /// [`choices`].
    pub choices: Option<Choices>,
}

/// What packing makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Product {
    /// A cache file, with machine code.
    Cache,
    /// Source text to link into a program, whose names begin with this.
    Source(String),
    /// An object to link into a program, likewise, by the code generators.
    Object(String),
}

impl Options {
    /// Packs for `target`, symbolic dimensions left open.
    pub fn new(target: Cpu) -> Options {
        Options {
            target,
            dims: Dims::new(),
            shapes: BTreeMap::new(),
            unroll: mend::UNROLL,
            layout: Layout::Auto,
            emit: vec![],
            product: Product::Cache,
            cc: None,
            choices: None,
        }
    }
}

/// An intermediate form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Emit {
    /// The model's nodes as they lie in the file.
    Onnx,
    /// The graph as imported.
    Graph,
    /// The graph without control flow.
    Mended,
    /// Tensor expressions, after what could disappear into its users has.
    Fused,
    /// The plan.
    Plan,
    /// The kernels in kernel IR.
    Kernels,
    /// The kernels as machine code.
    Asm,
}

/// What packing did, for people and programs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Summary {
    /// The model's name.
    pub model: String,
    /// The target's name.
    pub target: String,
    /// Nodes of the model as given, nested ones included.
    pub nodes: usize,
    /// Splits of the model as given.
    pub splits_before: usize,
    /// Splits that leave the plan.
    pub splits_after: usize,
    /// The same by kind and level, and how many are left as native choices and loops within the plan.
    pub splits: mend::Totals,
    /// Calls of kernels in one run.
    pub dispatches: usize,
    /// Different kernels.
    pub kernels: usize,
    /// Tensors that disappeared into their users.
    pub fused_away: usize,
    /// Kernels that only bring elements into another order, or do so as well.
    pub layout_changes: usize,
    /// Bytes of machine code.
    pub code_bytes: usize,
    /// Bytes of weights.
    pub weight_bytes: usize,
    /// Arena bytes for buffers of known size.
    pub arena_bytes: u64,
    /// What no arrangement of those could go below.
    pub arena_floor: u64,
    /// Whether a run needs more arena than that, for buffers whose sizes follow from its inputs.
    pub arena_grows: bool,
    /// Bytes of the file.
    pub file_bytes: usize,
}

/// A packed model.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The cache file; empty if there is to be none.
    pub bytes: Vec<u8>,
    /// The source text, if that is what was asked for.
    pub source: Option<Source>,
    /// What was done.
    pub summary: Summary,
    /// What became of each split.
    pub report: Report,
    /// The mended graph.
    pub mended: Module,
    /// The intermediate forms that were asked for.
    pub emitted: BTreeMap<Emit, String>,
    /// Kernels whose schedules can be chosen, if [`Options::choices`] are given.
    pub tunables: Vec<Tunable>,
}

/// Told of progress: what is being done, how far (done, of).
pub type Progress<'p> = &'p mut (dyn FnMut(&str, usize, usize) + Send);

/// Compiles a module.
///
/// `model_id` names the model (a digest of its bytes and its external data).
///
/// # Errors
/// Whatever stops a stage; see [`Error`].
pub fn pack(module: Module, model_id: [u8; 32], options: &Options, progress: Progress<'_>) -> Result<Packed> {
    // On a thread of its own: expressions may nest deeply, symbols and expressions live in the thread's tables, and a
    // fault of the compiler ends as an error, whatever the model.
    let name = module.name.clone();
    std::thread::scope(|scope| {
        let work = move || stages(module, model_id, options, progress);
        let thread = std::thread::Builder::new().name("pack".into()).stack_size(STACK).spawn_scoped(scope, work);
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => result,
            Ok(Err(payload)) => {
                let text = payload.downcast_ref::<String>().cloned();
                let text = text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                Err(Error::internal(Stage::Pack, format!("model {name}: {}", text.unwrap_or_default())))
            }
            Err(e) => Err(Error::internal(Stage::Pack, format!("no thread: {e}"))),
        }
    })
}

/// Stack of the packing thread: address space, of which only what is used costs memory.
const STACK: usize = 256 << 20;

fn stages(mut module: Module, model_id: [u8; 32], options: &Options, progress: Progress<'_>) -> Result<Packed> {
    // Handles of symbols and expressions are this compilation's own.
    sym::reset();
    te::expr::reset();
    let mut emitted = BTreeMap::new();
    let mut emit = |what: Emit, text: &dyn Fn() -> String| {
        if options.emit.contains(&what) {
            emitted.insert(what, text());
        }
    };
    let cpu = &schedule_cpu(options);
    let target = Target::from(cpu);
    let toolchain = match options.product {
        Product::Cache if codegen::c::serves(target) => Some(Toolchain::find(&options.target, options.cc.as_deref())?),
        _ => None,
    };
    let nodes = module.node_count();
    emit(Emit::Graph, &|| module.to_string());
    let options = &dims::bound(&module, options)?;
    sym::reset();
    te::expr::reset();
    progress("mending", 0, nodes);
    let report = mend::mend(&mut module, &options.dims, options.unroll)?;
    emit(Emit::Mended, &|| module.to_string());
    // The scratch program of mending shares no handles with what follows.
    sym::reset();
    te::expr::reset();
    progress("expanding", 0, nodes);
    let mut program = expand::expand(&module, &options.dims)?;
    quantize::rewrite(&mut program);
    layout::arrange(&mut program, options.layout, cpu);
    progress("fusing", 0, nodes);
    let mut fused = fuse::fuse(program);
    fuse::chain::find(&mut fused, &|p, chain| lower::contract::chain::pays(p, cpu, chain));
    emit(Emit::Fused, &|| te::text::program(&fused.program, &|t| fused.stored.contains(&t)));
    let mut found = Found::default();
    let planned = match &options.choices {
        None => plan::plan(&fused, &mut |p, u| lower_unit(p, cpu, u)),
        Some(choices) => plan::plan(&fused, &mut |p, u| found.lower(p, cpu, u, choices)),
    };
    let tunables = found.tunables(&planned.kernels);
    if planned.plan.arena_bytes > i64::MAX as u64 {
        return Err(Error::unsupported("", "", "the tensors of a run take more memory than can be addressed"));
    }
    emit(Emit::Kernels, &|| planned.kernels.iter().map(Kernel::to_string).collect::<Vec<_>>().join("\n"));
    // One that is missing is told before the work; its version is part of what the file is made from.
    let kernels = generate(&planned, target, toolchain.as_ref(), &options.product, progress)?;
    emit(Emit::Asm, &|| {
        let texts = planned.kernels.iter().map(|k| match codegen::asm_text(k, target) {
            Ok(text) => format!("; {}\n{text}", k.name),
            Err(e) => format!("; {}: {e}", k.name),
        });
        texts.collect::<Vec<_>>().join("\n")
    });
    let dispatches = planned.notes.len();
    let mut summary = Summary {
        model: module.name.clone(),
        target: cpu.name.into(),
        nodes,
        splits_before: report.before(),
        splits_after: report.after(),
        splits: report.totals(),
        dispatches,
        kernels: kernels.len(),
        fused_away: fused.inlined,
        layout_changes: layout::left(&fused),
        code_bytes: kernels.iter().map(|k| k.code.len()).sum(),
        weight_bytes: planned.weights.len(),
        arena_bytes: planned.plan.arena_bytes,
        arena_floor: planned.arena_floor,
        arena_grows: planned.plan.buffers.iter().any(grows),
        file_bytes: 0,
    };
    let functions = planned.kernels.clone();
    let made_by = (options, toolchain.as_ref());
    let spec = file(&module, &fused.program, planned, kernels, model_id, made_by, &report)?;
    emit(Emit::Plan, &|| format::text::plan_text(&spec.variants[0].plan, &spec.variants[0].debug));
    let (mut bytes, mut source) = (vec![], None);
    match &options.product {
        Product::Cache => {
            bytes = format::write::write(&spec).map_err(|e| Error::internal(Stage::Pack, e.to_string()))?;
        }
        Product::Source(name) => {
            progress("writing source", 0, functions.len());
            source = Some(source::write(name, &spec, &functions, codegen::c::Style::of(target))?);
        }
        Product::Object(name) => {
            let mut compiled = vec![];
            for (k, kernel) in functions.iter().enumerate() {
                progress("generating code", k, functions.len());
                compiled.push(codegen::compile(kernel, target)?);
            }
            source = Some(source::link(name, &spec, &compiled, target)?);
        }
    }
    summary.file_bytes = bytes.len();
    Ok(Packed { bytes, source, summary, report, mended: module, emitted, tunables })
}

/// The processor as schedules see it: with the vectors that code for it is made with.
fn schedule_cpu(options: &Options) -> Cpu {
    let cpu = options.target;
    let target = Target::from(&cpu);
    match options.product {
        Product::Cache | Product::Object(_) if !codegen::c::serves(target) => cpu,
        _ => Cpu { vector_bits: cpu.vector_bits.min(codegen::c::vector_bits(target)), ..cpu },
    }
}

/// Whether a buffer lies in the arena and its size or place is known only in a run.
fn grows(b: &BufferSpec) -> bool {
    b.space == Space::Arena && [Some(b.offset), b.bytes].iter().any(|v| matches!(v, Some(Val::Reg(_))))
}

/// Lowers one unit for a processor.
pub(crate) fn lower_unit(p: &Program, cpu: &Cpu, u: &Unit) -> LoweredKernel {
    match u {
        Unit::Nest(n) => lower::nest::lower(p, cpu, &unit_name(p, u), n),
        Unit::Attention(a) => lower::attention::lower(p, cpu, &unit_name(p, u), a),
        Unit::Custom(c, outputs) => lower::custom::lower(p, c, outputs),
        Unit::Pieces(t, pieces) => lower::nest::lower_pieces(p, cpu, &unit_name(p, u), *t, pieces),
        Unit::Chain(c) => lower::contract::chain::lower(p, cpu, &unit_name(p, u), c),
        Unit::Contract(c) => match (lower_contraction(p, cpu, c, 0), fuse::group::as_nest(p, c)) {
            (Some(k), _) => k,
            (None, Some(n)) => lower::nest::lower(p, cpu, &unit_name(p, u), &n),
            (None, None) => unreachable!("a contraction is a reduction"),
        },
    }
}

/// Lowers a contraction with the schedule of a number; nothing where there is none.
fn lower_contraction(p: &Program, cpu: &Cpu, of: &fuse::Contract, choice: usize) -> Option<LoweredKernel> {
    let c = lower::contract::recognise(p, of.sum)?;
    lower::contract::lower(p, cpu, &c, of, choice)
}

/// Names a kernel after the nodes that it computes.
fn unit_name(p: &Program, u: &Unit) -> String {
    let name = |t: TensorId| p.tensor(t).node.clone();
    match u {
        Unit::Nest(n) => {
            let mut names: Vec<String> = n
                .stages
                .iter()
                .map(|s| match s {
                    fuse::Stage::Reduce { id, .. } | fuse::Stage::Store { id, .. } => name(*id),
                })
                .collect();
            names.dedup();
            names.join("+")
        }
        Unit::Contract(c) if c.sum != c.out => format!("{}+{}", name(c.sum), name(c.out)),
        Unit::Contract(c) => name(c.sum),
        Unit::Chain(c) => {
            let mut names: Vec<String> =
                [&c.first, &c.second].iter().flat_map(|c| [name(c.sum), name(c.out)]).collect();
            names.dedup();
            names.join("+")
        }
        Unit::Attention(a) => {
            let mut names: Vec<String> = [a.product, a.total, a.sum, a.out].into_iter().map(name).collect();
            names.dedup();
            names.join("+")
        }
        Unit::Pieces(t, _) => name(*t),
        Unit::Custom(c, _) => c.name.clone(),
    }
}

fn generate(
    planned: &Planned,
    target: Target,
    toolchain: Option<&Toolchain>,
    product: &Product,
    progress: Progress<'_>,
) -> Result<Vec<KernelSpec>> {
    // What the first call of each gets.
    let mut calls: BTreeMap<u32, (Vec<Option<i64>>, Option<i64>)> = BTreeMap::new();
    for instr in &planned.plan.instrs {
        if let Instr::Dispatch { kernel, scalars, tiles, .. } = instr {
            let known = |v: &Val| if let Val::Imm(n) = v { Some(*n) } else { None };
            calls
                .entry(*kernel)
                .or_insert_with(|| (scalars.iter().map(known).collect(), tiles.as_ref().and_then(known)));
        }
    }
    let bounds = source::bounds(planned.kernels.len(), &planned.plan);
    let mut out = vec![];
    for (k, kernel) in planned.kernels.iter().enumerate() {
        progress("generating code", k, planned.kernels.len());
        let code = match (product, toolchain) {
            (Product::Cache, Some(toolchain)) => source::flat::compile(kernel, &bounds[k], target, toolchain)?,
            (Product::Cache, None) if codegen::interpreted(target) => crate::kernel::bytes::write(kernel),
            (Product::Cache, None) => {
                codegen::compile(kernel, target).map_err(|e| Error::internal(Stage::Codegen, e.to_string()))?.code
            }
            // Linked into the program.
            (Product::Source(_) | Product::Object(_), _) => vec![],
        };
        out.push(KernelSpec {
            code,
            bufs: kernel.bufs.len() as u32,
            scalars: kernel.scalars,
            scratch: 0,
            tiled: kernel.tiled,
            work: if kernel.tiled { unit_work(kernel, calls.get(&(k as u32))) } else { 0 },
        });
    }
    Ok(out)
}

/// Operations of a work unit, given what is known of the scalars and of the number of units.
fn unit_work(kernel: &Kernel, call: Option<&(Vec<Option<i64>>, Option<i64>)>) -> u32 {
    let (scalars, units) = call.map_or((&[][..], None), |(scalars, units)| (scalars, *units));
    let units = units.unwrap_or(SOME_UNITS).max(1);
    let each = work::operations(kernel, scalars, units).div_ceil(units.unsigned_abs());
    u32::try_from(each).unwrap_or(u32::MAX).min(u32::MAX >> 1)
}

/// Work units assumed where only a run knows how many there are.
const SOME_UNITS: i64 = 64;

/// A note of what the tensors at the border stand for, if not all stand for themselves.
fn declared(borders: &[(String, meta::Border)]) -> Vec<(String, meta::Border)> {
    let plain = borders.iter().all(|(_, b)| *b == meta::Border::Tensor);
    if plain { vec![] } else { borders.to_vec() }
}

fn file(
    module: &Module,
    program: &Program,
    planned: Planned,
    kernels: Vec<KernelSpec>,
    model_id: [u8; 32],
    (options, toolchain): (&Options, Option<&Toolchain>),
    report: &Report,
) -> Result<FileSpec> {
    let cpu = &options.target;
    let dim = |d: sym::Int, input: bool| match (d.as_const(), d.as_var()) {
        (Some(n), _) => DimSpec::Fixed(n.max(0) as u64),
        (None, Some(v)) if input || program.dim_vars.contains_key(&v) => {
            let info = sym::var_info(v);
            DimSpec::Symbol {
                name: info.name,
                min: info.lo.unwrap_or(0).max(0) as u64,
                max: info.hi.unwrap_or(i64::MAX) as u64,
            }
        }
        _ => DimSpec::Any,
    };
    let tensors = |ids: &[TensorId], names: &[String], input: bool| {
        let each = ids.iter().zip(names).map(|(t, name)| {
            let t = program.tensor(*t);
            let dims = t.shape.iter().map(|d| dim(*d, input)).collect();
            TensorSpec { name: name.clone(), dtype: plan::stored(t.dtype), dims }
        });
        each.collect::<Vec<_>>()
    };
    let dims: Vec<(String, String)> = options
        .dims
        .iter()
        .map(|(n, d)| {
            let text = match d {
                Dim::Fixed(n) => n.to_string(),
                Dim::Range(a, b) => format!("{a}..{b}"),
            };
            (format!("dim {n}"), text)
        })
        .collect();
    let mut dims = dims;
    if let Some(toolchain) = toolchain {
        dims.push(("compiler".to_owned(), toolchain.version()?));
    }
    let mut build = blake3::Hasher::new();
    build.update(env!("CARGO_PKG_VERSION").as_bytes());
    build.update(cpu.name.as_bytes());
    build.update(&cpu.features.0.to_le_bytes());
    build.update(&(options.unroll as u64).to_le_bytes());
    build.update(&[options.layout as u8]);
    for (a, b) in &dims {
        build.update(a.as_bytes());
        build.update(b.as_bytes());
    }
    let report_json =
        serde_json::to_string(report).map_err(|e| Error::internal(Stage::Pack, format!("report: {e}")))?;
    Ok(FileSpec {
        model_id,
        build_id: *build.finalize().as_bytes(),
        page: format::PAGE,
        inputs: tensors(&program.inputs, &program.input_names, true),
        outputs: tensors(&program.outputs, &program.output_names, false),
        variants: vec![VariantSpec {
            arch: cpu.arch.id(),
            abi: format::abi::id::SYSTEM,
            rank: 0,
            features: cpu.features.0,
            plan: planned.plan,
            kernels,
            debug: meta::Debug {
                kernels: planned.kernels.iter().map(|k| k.name.clone()).collect(),
                buffers: vec![],
                steps: planned.notes,
                work: planned.work,
            },
        }],
        weights: planned.weights,
        meta: meta::Meta {
            producer: format!("graphmend {}", env!("CARGO_PKG_VERSION")),
            target: cpu.name.into(),
            model: module.name.clone(),
            options: dims,
            properties: module.metadata.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            report: report.to_string(),
            report_json,
            inputs: declared(&module.borders.inputs),
            outputs: declared(&module.borders.outputs),
        },
    })
}
