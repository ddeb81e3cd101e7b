//! `graphmend-run run`: arrays in, arrays out.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use graphmend::border;
use graphmend::cache_format::meta::Border;
use graphmend::npy::{self, Array};
use serde::Serialize;

use crate::model::{ModelArgs, ThreadArgs, demand_inputs, read_inputs, run_once, split_name};

/// Run a model on .npy files
#[derive(clap::Args)]
#[command(after_help = "\
Without -o the outputs are summed up on standard output. A model with one input or output needs no name before the file.
A sequence is a folder NAME.seq with 0.npy, 1.npy, … and a file `length`; an absent optional is a file NAME.none, or not given.

Examples:
  graphmend-run run mobilenet.gmc -i image.npy -o scores.npy
  graphmend-run run bert.gmc -i input_ids=ids.npy -i attention_mask=mask.npy -o results/")]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// An input: its name and a .npy file
    #[arg(short, long = "input", value_name = "[NAME=]FILE")]
    inputs: Vec<String>,

    /// Where outputs go: a folder for all (a file for each, by its name), or a file for one (.npy, .seq for a sequence)
    #[arg(short, long = "output", value_name = "DIR|[NAME=]FILE")]
    outputs: Vec<String>,

    #[command(flatten)]
    threads: ThreadArgs,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Summary {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    first: Vec<Option<f64>>,
    file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let model = args.model.open()?;
    let inputs = demand_inputs(&model, read_inputs(&model, &args.inputs)?)?;
    let declared: Vec<_> = model.view().outputs().collect();
    let wholes = border::outputs(&model);
    let names = output_names(declared.iter().map(|t| t.name), &wholes);
    // Before the run: a wrong name should not cost one.
    let files = output_files(&args.outputs, &names)?;
    let mut session = args.threads.start()?.session(&model)?;
    run_once(&model, &mut session, &inputs)?;
    let mut summaries = Vec::new();
    let mut arrays = Vec::new();
    for i in 0..declared.len() {
        arrays.push(Array::from_view(&session.output(i)?));
    }
    let (mut files, whole_files) = (files[..declared.len()].to_vec(), &files[declared.len()..]);
    for (file, array) in files.iter().zip(&arrays) {
        if let Some(path) = file {
            make_parent(path)?;
            npy::write(path, array).with_context(|| path.display().to_string())?;
        }
    }
    // Sequences and optionals go to files as a whole.
    let mut first = 0;
    let mut whole_files = whole_files.iter();
    for (name, how) in &wholes {
        let own = first..first + how.tensors();
        first = own.end;
        if *how == Border::Tensor {
            continue;
        }
        let Some(Some(base)) = whole_files.next() else { continue };
        let value =
            border::gather(how, &mut arrays[own.clone()].iter().cloned()).map_err(|e| anyhow!("output {name}: {e}"))?;
        make_parent(base)?;
        let path = value.write(base).with_context(|| base.display().to_string())?;
        files[own].iter_mut().filter(|f| f.is_none()).for_each(|f| *f = Some(path.clone()));
    }
    for ((t, array), file) in declared.iter().zip(&arrays).zip(files) {
        summaries.push(summary(t.name, array, file));
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&summaries)?)?;
        return Ok(());
    }
    for s in summaries {
        print(&mut out, &s)?;
    }
    Ok(())
}

fn make_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(folder) => fs::create_dir_all(folder).with_context(|| folder.display().to_string()),
        None => Ok(()),
    }
}

/// What an output's name stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Tensor,
    /// A tensor that holds a sequence or an optional, alone or with others.
    Part,
    /// A sequence or an optional.
    Whole,
}

/// The names of tensors, then those of sequences and optionals.
fn output_names<'a>(tensors: impl Iterator<Item = &'a str>, declared: &'a [(String, Border)]) -> Vec<(&'a str, Named)> {
    let kind = |how: &Border| if *how == Border::Tensor { Named::Tensor } else { Named::Part };
    let kinds = declared.iter().flat_map(|(_, how)| std::iter::repeat_n(kind(how), how.tensors()));
    let wholes = declared.iter().filter(|(_, how)| *how != Border::Tensor);
    tensors.zip(kinds).chain(wholes.map(|(name, _)| (name.as_str(), Named::Whole))).collect()
}

/// The file of each output, if any; for a sequence or an optional without the extension.
fn output_files(given: &[String], outputs: &[(&str, Named)]) -> Result<Vec<Option<PathBuf>>> {
    let names: Vec<&str> = outputs.iter().map(|(name, _)| *name).collect();
    let mut files = vec![None; names.len()];
    let mut given_file = vec![false; names.len()];
    for arg in given {
        if arg == "-" || names.iter().any(|name| arg.strip_prefix(name) == Some("=-")) {
            bail!("-o {arg}: outputs go to files, standard output has their summary: name a file or a folder");
        }
        if is_folder(arg, &names) {
            for (file, (name, kind)) in files.iter_mut().zip(outputs) {
                match kind {
                    Named::Tensor => *file = Some(Path::new(arg).join(file_name(name))),
                    Named::Part => {}
                    Named::Whole => *file = Some(Path::new(arg).join(stem(name))),
                }
            }
            continue;
        }
        let (i, path) = split_name(arg, &names, "output")?;
        let named = |kind| (0..names.len()).find(|k| outputs[*k] == (names[i], kind));
        // A sequence may have the name of the tensor that holds it.
        let (i, path) = match (path.strip_suffix(".seq").or(path.strip_suffix(".none")), named(Named::Whole)) {
            (Some(base), Some(whole)) => (whole, base),
            (None, Some(_)) => match named(Named::Part) {
                Some(part) => (part, path),
                None => bail!("output {} goes to a folder NAME.seq or a file NAME.none", names[i]),
            },
            (_, None) => (i, path),
        };
        // A folder for all that was given before may have exceptions.
        if std::mem::replace(&mut given_file[i], true) {
            bail!("output {} is given twice", names[i]);
        }
        files[i] = Some(path.into());
    }
    for (i, file) in files.iter().enumerate() {
        if file.is_some() && files[..i].contains(file) {
            bail!("two outputs go to one file: {}", file.as_deref().unwrap_or(Path::new("")).display());
        }
    }
    Ok(files)
}

/// Is it the folder for all outputs?
fn is_folder(arg: &str, names: &[&str]) -> bool {
    let named = names.iter().any(|name| arg.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')));
    !named && !arg.ends_with(".npy")
}

/// A name as a file name: what would leave the folder becomes `_`.
fn file_name(name: &str) -> String {
    format!("{}.npy", stem(name))
}

fn stem(name: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' }).collect();
    safe.trim_start_matches('.').to_owned()
}

fn summary(name: &str, array: &Array, file: Option<PathBuf>) -> Summary {
    // JSON has no infinities: they become null.
    let finite = |x: f64| x.is_finite().then_some(x);
    let (mut min, mut max, mut sum, mut count) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0usize);
    array.for_each_number(|x| {
        // Comparisons, which a processor foresees: `f64::min` waits for the one before.
        if x < min {
            min = x;
        }
        if x > max {
            max = x;
        }
        sum += x;
        count += 1;
    });
    Summary {
        name: name.into(),
        dtype: array.dtype.name(),
        shape: array.shape.clone(),
        min: finite(min),
        max: finite(max),
        mean: finite(sum / count as f64),
        first: array.numbers().take(8).map(finite).collect(),
        file,
    }
}

fn print(out: &mut impl Write, s: &Summary) -> Result<()> {
    let number = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{x:.6}"));
    write!(out, "{}: {} {:?}", s.name, s.dtype, s.shape)?;
    if let Some(file) = &s.file {
        write!(out, " -> {}", file.display())?;
    }
    writeln!(out)?;
    if !s.first.is_empty() {
        writeln!(out, "  min {} max {} mean {}", number(s.min), number(s.max), number(s.mean))?;
        let dots = if s.shape.iter().product::<usize>() > s.first.len() { " …" } else { "" };
        let first: Vec<String> = s.first.iter().map(|&x| number(x)).collect();
        writeln!(out, "  {}{dots}", first.join(" "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_go_to_a_folder_or_to_named_files() {
        let files_of = |names: &[(&str, Named)], given: &[&str]| {
            let given: Vec<String> = given.iter().map(|s| s.to_string()).collect();
            output_files(&given, names)
                .map(|f| f.into_iter().map(|p| p.map(|p| p.display().to_string())).collect::<Vec<_>>())
        };
        let names = ["y", "a/b", "y=z"].map(|name| (name, Named::Tensor));
        let files = |given: &[&str]| files_of(&names, given);
        let some = |s: &str| Some(s.to_string());
        assert_eq!(files(&["out"]).unwrap(), [some("out/y.npy"), some("out/a_b.npy"), some("out/y_z.npy")]);
        assert_eq!(files(&["y=1.npy", "y=z=2.npy"]).unwrap(), [some("1.npy"), None, some("2.npy")]);
        assert_eq!(files(&["out", "y=z=2"]).unwrap(), [some("out/y.npy"), some("out/a_b.npy"), some("2")]);
        assert!(files(&["y=1.npy", "y=2.npy"]).unwrap_err().to_string().contains("output y is given twice"));
        for stdout in ["-", "y=-", "y=z=-"] {
            assert!(files(&[stdout]).unwrap_err().to_string().contains("name a file"), "{stdout}");
        }
        assert!(files(&["q=1.npy"]).unwrap_err().to_string().contains("no such output"));
        assert!(files(&["y=1.npy", "a/b=1.npy"]).is_err());
        assert_eq!(file_name("../../etc/x"), "_.._etc_x.npy");
        // A sequence goes as a whole, under its own name; the tensors that hold it only when they are named.
        let held = [("s.data", Named::Part), ("s.rows", Named::Part), ("t", Named::Part)];
        let names = [&held[..], &[("s", Named::Whole), ("t", Named::Whole)]].concat();
        let files = |given: &[&str]| files_of(&names, given);
        assert_eq!(files(&["out"]).unwrap(), [None, None, None, some("out/s"), some("out/t")]);
        assert_eq!(files(&["s=a.seq", "t=b.npy"]).unwrap(), [None, None, some("b.npy"), some("a"), None]);
        assert_eq!(files(&["s.rows=r.npy", "t=b.seq"]).unwrap(), [None, some("r.npy"), None, None, some("b")]);
        assert!(files(&["s=a.npy"]).unwrap_err().to_string().contains("NAME.seq"));
    }
}
