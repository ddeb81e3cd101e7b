//! `graphmend-run inspect`: what is in a file, also one that this CPU cannot run.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::{Context, Result};
use graphmend::Host;
use graphmend::cache_format::file::{ALL_VARIANTS, File};
use graphmend::cache_format::meta::Border;
use graphmend::cache_format::read::read;
use graphmend::cache_format::spec::{DimSpec, FileSpec, TensorSpec, VariantSpec};
use graphmend::cache_format::text::plan_text;
use graphmend::targets::{Arch, Features};
use serde_json::{Value, json};

use crate::model::hex;

/// Show what is in a packed model (any CPU's)
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  graphmend-run inspect model.gmc
  graphmend-run inspect model.gmc --plan --variant 1
  graphmend-run inspect model.gmc --json | jq .root")]
pub(crate) struct Args {
    /// Packed model (.gmc)
    #[arg(value_name = "MODEL")]
    path: std::path::PathBuf,

    /// Show the plan of a variant
    #[arg(long)]
    plan: bool,

    /// Show the kernels of a variant
    #[arg(long)]
    kernels: bool,

    /// Show the mending report
    #[arg(long)]
    report: bool,

    /// Number of the variant for --plan and --kernels
    #[arg(long, value_name = "N", default_value_t = 0)]
    variant: usize,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let path = || args.path.display().to_string();
    let bytes = std::fs::read(&args.path).with_context(path)?;
    let file = File::parse(&bytes).with_context(path)?;
    let spec = read(&bytes).with_context(path)?;
    let text = if args.json {
        serde_json::to_string_pretty(&as_json(&file, &spec, args)?)? + "\n"
    } else {
        as_text(&file, &spec, args)?
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

fn chosen<'a>(spec: &'a FileSpec, args: &Args) -> Result<&'a VariantSpec> {
    spec.variants.get(args.variant).with_context(|| format!("there is no variant {}", args.variant))
}

fn dims(t: &TensorSpec) -> Vec<String> {
    let one = |d: &DimSpec| match d {
        DimSpec::Fixed(n) => n.to_string(),
        DimSpec::Any => "?".into(),
        DimSpec::Symbol { name, .. } => name.clone(),
    };
    t.dims.iter().map(one).collect()
}

/// What a declared input or output is, and how it is held.
fn kind(how: &Border) -> String {
    match how {
        Border::Tensor => "a tensor".into(),
        Border::List(n) => format!("a sequence of {n}"),
        Border::Stack => "a sequence, its members along the first axis".into(),
        Border::Ragged => "a sequence, all elements and a row (rank, sizes) for each member".into(),
        Border::Text => "strings, bytes along the last axis with zeros behind each".into(),
        Border::Absent => "an optional without value".into(),
        Border::Maybe(None) => "an optional, whether it has a value".into(),
        Border::Maybe(Some(of)) => format!("an optional: whether it has a value, then {}", kind(of)),
    }
}

/// Named dimensions that are bounded or fixed, each once.
fn symbols(spec: &FileSpec) -> Vec<(&str, u64, u64)> {
    let mut out: Vec<(&str, u64, u64)> = Vec::new();
    for dim in spec.inputs.iter().chain(&spec.outputs).flat_map(|t| &t.dims) {
        if let DimSpec::Symbol { name, min, max } = dim
            && !out.iter().any(|(n, ..)| n == name)
        {
            out.push((name, *min, *max));
        }
    }
    out
}

fn arch(id: u16) -> String {
    Arch::from_id(id).map_or_else(|| format!("unknown instruction set {id}"), |a| a.to_string())
}

fn features(v: &VariantSpec) -> String {
    Arch::from_id(v.arch).map_or_else(|| format!("{:#x}", v.features), |a| Features(v.features).display(a).to_string())
}

/// Which variant this machine would take, or why none.
fn taken_here(bytes: &File<'_>) -> Result<u16, String> {
    graphmend::select(bytes.index(), Host::detect()).map_err(|e| e.to_string())
}

fn bytes(n: u64) -> String {
    match n {
        0..=9999 => format!("{n} B"),
        10_000..=9_999_999 => format!("{:.1} KiB", n as f64 / 1024.0),
        _ => format!("{:.1} MiB", n as f64 / 1048576.0),
    }
}

fn as_text(file: &File<'_>, spec: &FileSpec, args: &Args) -> Result<String> {
    let mut out = String::new();
    let header = file.index().header();
    if !(args.plan || args.kernels || args.report) {
        let meta = &spec.meta;
        writeln!(out, "model     {}", meta.model)?;
        writeln!(out, "target    {}", meta.target)?;
        writeln!(out, "producer  {}", meta.producer)?;
        writeln!(out, "format    {}.{}", header.major, header.minor)?;
        writeln!(out, "root      {}", hex(&header.root))?;
        writeln!(out, "model id  {}", hex(&header.model_id))?;
        writeln!(out, "build id  {}", hex(&header.build_id))?;
        writeln!(out, "size      {}, arena {}", bytes(header.file_bytes), bytes(header.arena_bytes))?;
        for (k, v) in &meta.options {
            writeln!(out, "option    {k} = {v}")?;
        }
        for (k, v) in &meta.properties {
            writeln!(out, "property  {k} = {v}")?;
        }
        let (inputs, outputs) = (&spec.meta.inputs, &spec.meta.outputs);
        for (what, tensors, wholes) in [("inputs", &spec.inputs, inputs), ("outputs", &spec.outputs, outputs)] {
            writeln!(out, "\n{what}")?;
            for t in tensors {
                writeln!(out, "  {}: {} [{}]", t.name, t.dtype, dims(t).join(", "))?;
            }
            let mut rest = tensors.iter();
            for (name, how) in wholes {
                let own: Vec<&str> = rest.by_ref().take(how.tensors()).map(|t| t.name.as_str()).collect();
                if *how != Border::Tensor {
                    writeln!(out, "  {name} is {}: {}", kind(how), own.join(", "))?;
                }
            }
        }
        let symbols = symbols(spec);
        if !symbols.is_empty() {
            writeln!(out, "\ndimensions")?;
        }
        for (name, min, max) in symbols {
            let max = if max == i64::MAX as u64 { String::new() } else { max.to_string() };
            writeln!(out, "  {name} = {min}..{max}")?;
        }
        let here = taken_here(file);
        writeln!(out, "\nvariants")?;
        for (i, v) in spec.variants.iter().enumerate() {
            let mark = if here.as_ref().is_ok_and(|&h| usize::from(h) == i) { "  <- this machine's" } else { "" };
            writeln!(
                out,
                "  {i}: {} ({}), rank {}, {} kernels, {} steps, arena {}{mark}",
                arch(v.arch),
                features(v),
                v.rank,
                v.kernels.len(),
                v.plan.instrs.len(),
                bytes(v.plan.arena_bytes)
            )?;
        }
        if let Err(why) = here {
            writeln!(out, "  none for this machine: {why}")?;
        }
        writeln!(out, "\nsections\n  {:<8} {:>7} {:>12} {:>12}  digest", "kind", "variant", "offset", "bytes")?;
        for s in file.index().sections() {
            let variant = if s.variant == ALL_VARIANTS { "all".into() } else { s.variant.to_string() };
            let digest = &hex(&s.digest)[..16];
            writeln!(out, "  {:<8} {variant:>7} {:>12} {:>12}  {digest}…", s.kind.to_string(), s.offset, s.bytes)?;
        }
    }
    if args.report {
        out.push_str(spec.meta.report.trim_end());
        out.push('\n');
    }
    if args.kernels {
        let v = chosen(spec, args)?;
        writeln!(out, "kernels of variant {}", args.variant)?;
        for (i, k) in v.kernels.iter().enumerate() {
            let name = v.debug.kernels.get(i).map_or("", |s| s);
            let tiled = if k.tiled { format!(", work units of about {} operations", k.work) } else { String::new() };
            writeln!(
                out,
                "  k{i}: {} bytes, {} buffers, {} scalars, scratch {}{tiled}  {name}",
                k.code.len(),
                k.bufs,
                k.scalars,
                k.scratch
            )?;
        }
    }
    if args.plan {
        let v = chosen(spec, args)?;
        out.push_str(&plan_text(&v.plan, &v.debug));
    }
    Ok(out)
}

fn as_json(file: &File<'_>, spec: &FileSpec, args: &Args) -> Result<Value> {
    let header = file.index().header();
    let tensors = |list: &[TensorSpec]| -> Vec<Value> {
        list.iter().map(|t| json!({"name": t.name, "dtype": t.dtype.name(), "shape": dims(t)})).collect()
    };
    let variants: Vec<Value> = spec
        .variants
        .iter()
        .map(|v| {
            json!({
                "arch": arch(v.arch), "features": features(v), "rank": v.rank, "kernels": v.kernels.len(),
                "steps": v.plan.instrs.len(), "arena_bytes": v.plan.arena_bytes,
            })
        })
        .collect();
    let sections: Vec<Value> = file
        .index()
        .sections()
        .map(|s| {
            let variant = (s.variant != ALL_VARIANTS).then_some(s.variant);
            json!({"kind": s.kind.to_string(), "variant": variant, "offset": s.offset, "bytes": s.bytes, "digest": hex(&s.digest)})
        })
        .collect();
    let here = taken_here(file);
    let mut value = json!({
        "model": spec.meta.model, "target": spec.meta.target, "producer": spec.meta.producer,
        "format": format!("{}.{}", header.major, header.minor),
        "root": hex(&header.root), "model_id": hex(&header.model_id), "build_id": hex(&header.build_id),
        "file_bytes": header.file_bytes, "arena_bytes": header.arena_bytes,
        "options": spec.meta.options, "properties": spec.meta.properties,
        "inputs": tensors(&spec.inputs), "outputs": tensors(&spec.outputs),
        "inputs_stand_for": spec.meta.inputs, "outputs_stand_for": spec.meta.outputs,
        "dimensions": symbols(spec).into_iter().map(|(name, min, max)| json!({"name": name, "min": min, "max": max})).collect::<Vec<_>>(),
        "variants": variants, "sections": sections,
        "variant_here": here.as_ref().ok(), "not_here": here.as_ref().err(),
        "mending": serde_json::from_str::<Value>(&spec.meta.report_json).ok(),
    });
    if args.plan {
        let v = chosen(spec, args)?;
        value["plan"] = plan_text(&v.plan, &v.debug).lines().collect();
    }
    if args.kernels {
        let v = chosen(spec, args)?;
        let kernel = |(i, k): (usize, &graphmend::cache_format::spec::KernelSpec)| {
            json!({
                "name": v.debug.kernels.get(i), "bytes": k.code.len(), "buffers": k.bufs, "scalars": k.scalars,
                "scratch": k.scratch, "tiled": k.tiled, "work": k.work,
            })
        };
        value["kernel_list"] = v.kernels.iter().enumerate().map(kernel).collect();
    }
    Ok(value)
}
