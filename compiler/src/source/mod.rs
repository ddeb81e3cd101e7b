//! A packed model to link into a program: `NAME.c`, or an object by the code generators; `NAME.h` and a Rust module `NAME.rs`.
//!
//! Weights are constant arrays, kernels are functions, and the plan is the function `NAME_run`: its instructions are C
//! statements over local variables. Nothing is parsed, allocated or kept between runs, and everything but the few
//! functions that the header declares is static, so that several models go into one image.

pub mod flat;
mod header;
mod names;
mod native;
mod object;
mod plan;
mod rust;
mod support;
pub mod toolchain;
mod weights;

use crate::codegen::c::{self, Bounds, Helpers, Style};
use crate::codegen::{CompiledKernel, Target};
use crate::error::{Error, Result};
use crate::kernel::ir::{Kernel, Stmt};
use graphmend_cache_format::DType;
use graphmend_cache_format::spec::{DimSpec, FileSpec, Instr, PlanSpec, TensorSpec, Val};

pub use names::prefix;
pub use object::{Object, archive};

/// The texts of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// What all names begin with.
    pub name: String,
    /// Kernels, weights and plan; empty if they are in the object.
    pub c: String,
    /// Kernels, weights and plan as machine code, if that was asked for.
    pub object: Option<Object>,
    /// What a program includes.
    pub h: String,
    /// A module for programs in Rust, `no_std`.
    pub rs: String,
    /// Bytes of constants.
    pub weight_bytes: u64,
    /// Bytes of memory that a run needs at least.
    pub arena_bytes: u64,
}

/// What the address of the arena must be a multiple of.
pub const ARENA_ALIGN: usize = 16;

/// A model with the names that stand for its parts.
struct Model<'a> {
    name: &'a str,
    /// The name in macros.
    upper: String,
    file: &'a FileSpec,
    plan: &'a PlanSpec,
    inputs: Vec<Tensor<'a>>,
    outputs: Vec<Tensor<'a>>,
    /// Whether a run takes or gives sizes.
    shapes: bool,
}

/// An input or output.
struct Tensor<'a> {
    spec: &'a TensorSpec,
    /// Its name as an identifier.
    ident: String,
    /// All sizes, if they are fixed.
    fixed: Option<Vec<u64>>,
}

impl Tensor<'_> {
    /// Number of elements, if it is fixed. What does not fit is no tensor that anybody has.
    fn elements(&self) -> Option<u64> {
        self.fixed.as_ref().map(|dims| dims.iter().fold(1, |n: u64, d| n.saturating_mul(*d)))
    }

    fn bytes(&self) -> Option<u64> {
        self.elements().map(|n| n.saturating_mul(self.spec.dtype.size() as u64))
    }
}

/// The C type of a tensor's elements. Half types are their bits.
fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
        DType::U16 | DType::F16 | DType::BF16 => "uint16_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// The Rust type of a tensor's elements. Half types are their bits, truth values are bytes.
fn rust_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 => "u8",
        DType::U16 | DType::F16 | DType::BF16 => "u16",
        other => other.name(),
    }
}

/// Writes a model, whose kernels' numbers are those of the plan.
///
/// # Errors
/// A model that does not fit into the addresses of the processor; an error of the code generator.
pub fn write(name: &str, file: &FileSpec, kernels: &[Kernel], style: Style) -> Result<Source> {
    let plan = plan_of(file)?;
    if style.narrow {
        fits(file, plan)?;
    }
    let model = Model::of(name, file, plan);
    let mut helpers = Helpers::default();
    let run = plan::run(&model, kernels);
    let mut functions = String::new();
    for (k, (kernel, bounds)) in kernels.iter().zip(bounds(kernels.len(), plan)).enumerate() {
        // A call of no work units is none.
        if !run.contains(&format!("{}(", kernel_name(k))) {
            continue;
        }
        let text = c::function(kernel, &kernel_name(k), style, &bounds, &mut helpers)?;
        functions += &format!("\n{text}");
    }
    let c = format!(
        "{}\n#include \"{name}.h\"\n\n{}{}{functions}{run}",
        header::banner(&model),
        helpers.preamble(),
        weights::table(&model),
    );
    Ok(Source {
        name: name.to_owned(),
        c,
        object: None,
        h: header::header(&model),
        rs: rust::module(&model),
        weight_bytes: file.weights.len() as u64,
        arena_bytes: plan.arena_bytes,
    })
}

/// Writes a model whose kernels are compiled already, as an object.
///
/// # Errors
/// An error of the code generator.
pub fn link(name: &str, file: &FileSpec, kernels: &[CompiledKernel], target: Target) -> Result<Source> {
    let plan = plan_of(file)?;
    let model = Model::of(name, file, plan);
    Ok(Source {
        name: name.to_owned(),
        c: String::new(),
        object: Some(object::write(&model, kernels, target)?),
        h: header::header(&model),
        rs: rust::module(&model),
        weight_bytes: file.weights.len() as u64,
        arena_bytes: plan.arena_bytes,
    })
}

fn plan_of(file: &FileSpec) -> Result<&PlanSpec> {
    Ok(&file.variants.first().ok_or_else(|| Error::Options("a file without a plan".into()))?.plan)
}

impl<'a> Model<'a> {
    fn of(name: &'a str, file: &'a FileSpec, plan: &'a PlanSpec) -> Model<'a> {
        let (inputs, outputs) = (tensors(&file.inputs), tensors(&file.outputs));
        let open = |t: &Tensor<'_>| t.fixed.is_none();
        let reserves = |i: &Instr| matches!(i, Instr::Reserve { .. });
        let shapes = inputs.iter().any(open) || outputs.iter().any(open) || plan.instrs.iter().any(reserves);
        Model { name, upper: name.to_ascii_uppercase(), file, plan, inputs, outputs, shapes }
    }
}

fn kernel_name(k: usize) -> String {
    format!("kernel_{k}")
}

/// Whether a kernel may end with another status than success.
fn may_fail(kernel: &Kernel) -> bool {
    fn any(stmts: &[Stmt]) -> bool {
        stmts.iter().any(|stmt| match stmt {
            Stmt::Return(status) => *status != 0,
            Stmt::For { body, .. } => any(body),
            Stmt::If { then, other, .. } => any(then) || any(other),
            Stmt::While { head, body, .. } => any(head) || any(body),
            Stmt::Let(..) | Stmt::Set(..) | Stmt::Store { .. } | Stmt::Prefetch { .. } => false,
        })
    }
    any(&kernel.body)
}

fn tensors(specs: &[TensorSpec]) -> Vec<Tensor<'_>> {
    let idents = names::unique(specs.iter().map(|t| t.name.as_str()));
    let each = specs.iter().zip(idents).map(|(spec, ident)| {
        let size = |d: &DimSpec| if let DimSpec::Fixed(n) = d { Some(*n) } else { None };
        Tensor { spec, ident, fixed: spec.dims.iter().map(size).collect() }
    });
    each.collect()
}

/// 32-bit addresses reach all memory.
fn fits(file: &FileSpec, plan: &PlanSpec) -> Result<()> {
    let most = i32::MAX as u64;
    let what = [(plan.arena_bytes, "arena"), (file.weights.len() as u64, "weights")];
    match what.into_iter().find(|(bytes, _)| *bytes > most) {
        Some((bytes, part)) => {
            let what = format!("the {part} of {bytes} bytes, on a processor with 32-bit addresses");
            Err(Error::unsupported("", "", what))
        }
        None => Ok(()),
    }
}

/// What the plan's calls say of each kernel.
pub(crate) fn bounds(kernels: usize, plan: &PlanSpec) -> Vec<Bounds> {
    let mut all: Vec<Option<Bounds>> = vec![None; kernels];
    for instr in &plan.instrs {
        let Instr::Dispatch { kernel, scalars, tiles, .. } = instr else { continue };
        let Some(slot) = all.get_mut(*kernel as usize) else { continue };
        let range = |v: &Val| if let Val::Imm(n) = v { (*n, *n) } else { (i64::MIN, i64::MAX) };
        let units = tiles.as_ref().map_or((0, 1), |v| (0, range(v).1));
        let scalars: Vec<(i64, i64)> = scalars.iter().map(range).collect();
        match slot {
            None => *slot = Some(Bounds { scalars, units: Some(units) }),
            Some(known) => {
                let widen = |a: &mut (i64, i64), b: (i64, i64)| *a = (a.0.min(b.0), a.1.max(b.1));
                known.scalars.iter_mut().zip(scalars).for_each(|(a, b)| widen(a, b));
                if let Some(known) = &mut known.units {
                    widen(known, units);
                }
            }
        }
    }
    all.into_iter().map(Option::unwrap_or_default).collect()
}
