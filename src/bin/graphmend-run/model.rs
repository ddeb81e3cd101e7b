//! What all subcommands share: opening a model, naming its tensors, reading arrays for them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use graphmend::border::{self, Value};
use graphmend::cache_format::meta::Border;
use graphmend::npy::{self, Array};
use graphmend::{
    Digest, Error, FormatError, Model, OpenError, OpenOptions, OwnedSession, Pool, Storage, Trust, WeightCheck,
    declaration,
};

/// Which file, and how it is opened.
#[derive(Args)]
pub(crate) struct ModelArgs {
    /// Packed model (.gmc)
    #[arg(value_name = "MODEL")]
    pub(crate) path: PathBuf,

    /// Take only the file with this root digest (64 hex digits, see `inspect`)
    #[arg(long, value_name = "DIGEST", value_parser = parse_digest)]
    pub(crate) pin: Option<Digest>,

    /// When weights are compared with their digests
    #[arg(long, value_enum, default_value_t = Weights::OnUse)]
    weights: Weights,

    /// Read the whole file into memory instead of mapping it
    #[arg(long)]
    read: bool,

    /// Number of the variant to take, instead of the best for this CPU
    #[arg(long, value_name = "N")]
    variant: Option<u16>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Weights {
    /// Each block before its first use
    OnUse,
    /// All when the file is opened
    Eager,
    /// Never
    Skip,
}

impl ModelArgs {
    pub(crate) fn trust(&self) -> Trust {
        self.pin.map_or(Trust::Unsigned, Trust::Pinned)
    }

    /// Opens the model.
    pub(crate) fn open(&self) -> Result<Model> {
        let options = OpenOptions {
            weights: match self.weights {
                Weights::OnUse => WeightCheck::OnUse,
                Weights::Eager => WeightCheck::Eager,
                Weights::Skip => WeightCheck::Skip,
            },
            storage: if self.read { Storage::Read } else { Storage::Map },
            variant: self.variant,
            ..OpenOptions::new(self.trust())
        };
        Ok(options.open(&self.path)?)
    }
}

/// Who shares the work of a run.
#[derive(Args)]
pub(crate) struct ThreadArgs {
    /// Threads that share the work of a run (0: one for each processor); results are the same to the bit
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
}

/// Threads, if there are several.
pub(crate) struct Threads(Option<Arc<Pool>>);

impl ThreadArgs {
    /// Starts them.
    pub(crate) fn start(&self) -> Result<Threads> {
        Ok(Threads(if self.threads == 1 { None } else { Some(Pool::new(self.threads)?) }))
    }
}

impl Threads {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.as_ref().map_or(1, |pool| pool.threads())
    }

    /// A session that they share.
    pub(crate) fn session<'m>(&self, model: &'m Model) -> Result<OwnedSession<'m>, Error> {
        let session = model.session()?;
        match &self.0 {
            Some(pool) => session.pool(Arc::clone(pool)),
            None => Ok(session),
        }
    }
}

/// A digest from hex digits.
pub(crate) fn parse_digest(text: &str) -> Result<Digest, String> {
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let bytes: Option<Vec<u8>> =
        text.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect();
    bytes.and_then(|b| b.try_into().ok()).ok_or_else(|| "a digest has 64 hex digits".into())
}

/// A digest as hex digits.
pub(crate) fn hex(digest: &Digest) -> String {
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether an error means that the file itself is refused.
pub(crate) fn is_refusal(error: &anyhow::Error) -> bool {
    // A number that the file does not have is the caller's mistake.
    let refuses = |e: Error| e != Error::NoSuchVariant;
    let by_opening = error.downcast_ref::<OpenError>().is_some_and(|e| e.model_error().is_some_and(refuses));
    let by_format = error.downcast_ref::<FormatError>().is_some();
    // Damage that only a run sees.
    let by_run = error.downcast_ref::<RunError>().is_some_and(|e| matches!(e.error, Error::Format(_)));
    let by_pin = error.downcast_ref::<Error>() == Some(&Error::NotPinned);
    by_opening || by_format || by_run || by_pin
}

/// A failed run, with the names of what it is about.
#[derive(Debug)]
pub(crate) struct RunError {
    error: Error,
    text: String,
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for RunError {}

impl RunError {
    pub(crate) fn new(model: &Model, error: Error) -> RunError {
        RunError { error, text: model.explain(error) }
    }
}

/// Runs a session once.
pub(crate) fn run_once(model: &Model, session: &mut OwnedSession<'_>, inputs: &[Array]) -> Result<(), RunError> {
    let views: Vec<_> = inputs.iter().map(Array::view).collect();
    session.run(&views).map_err(|e| RunError::new(model, e))
}

/// Splits `NAME=FILE` where `NAME` is one of `names`; without such a name, the only one is meant.
pub(crate) fn split_name<'a>(arg: &'a str, names: &[&str], what: &str) -> Result<(usize, &'a str)> {
    // The longest: a name may contain `=`.
    let named = names
        .iter()
        .enumerate()
        .filter_map(|(i, name)| Some((i, name.len(), arg.strip_prefix(name)?.strip_prefix('=')?)))
        .max_by_key(|&(_, len, _)| len);
    match (named, names) {
        (Some((i, _, rest)), _) => Ok((i, rest)),
        (None, [_]) if !arg.contains('=') || Path::new(arg).exists() => Ok((0, arg)),
        (None, _) => bail!("{arg}: the model has no such {what}; it has {}", names.join(", ")),
    }
}

/// Reads the arrays given as `NAME=FILE`, by number of the input. A sequence or an optional may be given as a whole; an
/// optional that is not given is absent.
pub(crate) fn read_inputs(model: &Model, given: &[String]) -> Result<Vec<Option<Array>>> {
    let declared: Vec<_> = model.view().inputs().collect();
    let (mut wholes, mut first) = (vec![], 0);
    for (name, how) in border::inputs(model) {
        let count = how.tensors();
        wholes.push((name, how, first));
        first += count;
    }
    let only = matches!(wholes.as_slice(), [(_, how, _)] if *how != Border::Tensor);
    wholes.retain(|(_, how, _)| *how != Border::Tensor);
    let names: Vec<&str> = declared.iter().map(|t| t.name).chain(wholes.iter().map(|w| w.0.as_str())).collect();
    let mut arrays: Vec<Option<Array>> = vec![None; declared.len()];
    for arg in given {
        let (i, path) = match split_name(arg, &names, "input") {
            Err(_)
                if only && [".seq", ".none", ".json"].iter().any(|e| arg.ends_with(e)) && Path::new(arg).exists() =>
            {
                (declared.len(), arg.as_str())
            }
            named => named?,
        };
        // A whole may have the name of the tensor that holds it.
        let whole = wholes.iter().find(|(name, ..)| name == names[i] && !path.ends_with(".npy"));
        let mut made = vec![];
        let start = match whole {
            Some((name, how, start)) => {
                let value = Value::read(Path::new(path)).with_context(|| path.to_string())?;
                border::flatten(how, Some(&value), &mut declared[*start..].iter().copied(), &mut made)
                    .map_err(|e| anyhow!("input {name}: {e}"))?;
                *start
            }
            None if i < declared.len() => {
                made.push(npy::read(path).with_context(|| path.to_string())?);
                i
            }
            None => bail!("input {} takes a folder NAME.seq or a file NAME.none or NAME.json", names[i]),
        };
        for (k, mut array) in (start..).zip(made) {
            // What NumPy stores bfloat16 as depends on who wrote it.
            if declared[k].dtype == graphmend::DType::BF16 && array.dtype == graphmend::DType::U16 {
                array.dtype = graphmend::DType::BF16;
            }
            if arrays[k].replace(array).is_some() {
                bail!("input {} is given twice", names[i]);
            }
        }
    }
    for (name, how, start) in wholes.iter().filter(|w| matches!(w.1, Border::Maybe(_))) {
        let own = *start..*start + how.tensors();
        if arrays[own.clone()].iter().all(Option::is_none) {
            let mut made = vec![];
            border::flatten(how, None, &mut declared[own].iter().copied(), &mut made)
                .map_err(|e| anyhow!("input {name}: {e}"))?;
            arrays.iter_mut().skip(*start).zip(made).for_each(|(to, array)| *to = Some(array));
        }
    }
    Ok(arrays)
}

/// All inputs; an error names those that are missing.
pub(crate) fn demand_inputs(model: &Model, arrays: Vec<Option<Array>>) -> Result<Vec<Array>> {
    let (mut missing, mut first) = (vec![], 0);
    for (name, how) in border::inputs(model) {
        let own = first..first + how.tensors();
        first = own.end;
        let lacking = |k: &usize| arrays.get(*k).is_some_and(Option::is_none);
        if how != Border::Tensor && own.clone().all(|k| lacking(&k)) && !own.is_empty() {
            let what = if how == Border::Text { "strings, a file" } else { "a folder" };
            let extension = if how == Border::Text { "json" } else { "seq" };
            missing.push(format!("{name}: {what} {name}.{extension}"));
            continue;
        }
        missing.extend(
            model
                .view()
                .inputs()
                .enumerate()
                .filter(|(k, _)| own.contains(k) && lacking(k))
                .map(|(_, t)| declaration(&t)),
        );
    }
    if !missing.is_empty() {
        return Err(anyhow!("missing inputs (-i NAME=FILE.npy):\n  {}", missing.join("\n  ")));
    }
    Ok(arrays.into_iter().flatten().collect())
}
