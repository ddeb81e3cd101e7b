//! `graphmend-run serve`: packs and runs models by request, a JSON object a line in, one a line out.

use std::fs;
use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use graphmend::border::{self, Value};
use graphmend::cache_format::meta::Border;
use graphmend::npy::Array;
use graphmend::{DType, Model, Trust, compiler};
use serde::{Deserialize, Serialize};

use crate::model::{ThreadArgs, Threads};

/// Pack and run models by request: one JSON line in, one out
#[derive(clap::Args)]
#[command(after_help = "\
Reads a request a line: {\"id\": ID, \"model\": FILE, \"work\": FOLDER, \"runs\": [{\"inputs\": [FILE, …], \"out\": FOLDER}, …]}
Packs the model for this machine once, runs it on each entry of `runs`, writes FOLDER/output_0.npy and so on, and answers
{\"id\": ID, \"status\": \"ok\" | \"refused\" | \"error\", \"message\": TEXT, \"stats\": {…}}.
Inputs are .npy files in the order of the model's inputs; bfloat16 is stored as uint16. A line that is no request is answered
with status \"error\".

Example:
  echo '{\"id\":\"a\",\"model\":\"model.onnx\",\"work\":\"/tmp\",\"runs\":[{\"inputs\":[\"x.npy\"],\"out\":\"/tmp\"}]}' | graphmend-run serve")]
pub(crate) struct Args {
    /// Pack for this target instead of this machine
    #[arg(long, value_name = "NAME")]
    target: Option<String>,

    /// Most nodes that writing out loops may make
    #[arg(long, value_name = "NODES", default_value_t = compiler::mend::UNROLL)]
    unroll: usize,

    /// In which order the axes of tensors lie in memory
    #[arg(long, value_name = "auto|keep|channels-last", default_value = "auto")]
    layout: compiler::layout::Layout,

    #[command(flatten)]
    threads: ThreadArgs,
}

#[derive(Deserialize)]
struct Request {
    id: String,
    model: PathBuf,
    work: PathBuf,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    inputs: Vec<PathBuf>,
    out: PathBuf,
}

#[derive(Serialize, Default)]
struct Answer {
    id: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<compiler::pack::Summary>,
}

/// Serves standard input until it ends.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut options = compiler::pack::Options::new(graphmend::host::target(args.target.as_deref())?);
    options.unroll = args.unroll;
    options.layout = args.layout;
    // A fault of the compiler is an answer, not the end of the service, and not a backtrace on the terminal.
    std::panic::set_hook(Box::new(|_| {}));
    let threads = args.threads.start()?;
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().split(b'\n') {
        let line = line?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let request: Request = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(e) => {
                send(&mut out, &not_a_request(&line, &e))?;
                continue;
            }
        };
        let answer =
            catch_unwind(AssertUnwindSafe(|| answer(&request, &options, &threads))).unwrap_or_else(|payload| {
                let text = payload.downcast_ref::<String>().cloned();
                let text = text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                Answer {
                    status: "error",
                    message: Some(format!("internal error: {}", text.unwrap_or_default())),
                    ..Answer::default()
                }
            });
        send(&mut out, &Answer { id: request.id, ..answer })?;
    }
    Ok(())
}

/// The answer to a line that is no request, with its id if that can be read.
fn not_a_request(line: &[u8], why: &serde_json::Error) -> Answer {
    let value = serde_json::from_slice::<serde_json::Value>(line).ok();
    let id = value.as_ref().and_then(|v| v["id"].as_str()).unwrap_or_default().to_owned();
    Answer { id, status: "error", message: Some(format!("not a request: {why}")), ..Answer::default() }
}

fn send(out: &mut impl Write, answer: &Answer) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(answer)?)?;
    Ok(out.flush()?)
}

fn answer(request: &Request, options: &compiler::pack::Options, threads: &Threads) -> Answer {
    let packed = match compiler::pack_file(&request.model, options, &mut |_, _, _| {}) {
        Ok(p) => p,
        Err(e) => {
            let status = if e.is_refusal() { "refused" } else { "error" };
            let message = Some(e.to_string().replace('\n', "; "));
            return Answer { status, message, ..Answer::default() };
        }
    };
    let stats = Some(packed.summary.clone());
    match run_all(request, &packed.bytes, threads) {
        Ok(()) => Answer { status: "ok", stats, ..Answer::default() },
        Err(e) => Answer { status: "error", message: Some(format!("{e:#}")), stats, ..Answer::default() },
    }
}

fn run_all(request: &Request, bytes: &[u8], threads: &Threads) -> Result<()> {
    // The way that a device takes: through a file that is mapped.
    let path = request.work.join("model.gmc");
    fs::create_dir_all(&request.work).with_context(|| request.work.display().to_string())?;
    fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    let model = Model::open(&path, Trust::Unsigned)?;
    let mut session = threads.session(&model)?;
    let (inputs, outputs) = (border::inputs(&model), border::outputs(&model));
    for run in &request.runs {
        if run.inputs.len() > inputs.len() {
            bail!("{} inputs are given, the model has {}", run.inputs.len(), inputs.len());
        }
        let mut declared = model.view().inputs();
        let mut arrays = vec![];
        for (k, (name, how)) in inputs.iter().enumerate() {
            let first = arrays.len();
            let value = match run.inputs.get(k) {
                Some(file) => Some(Value::read(file).with_context(|| file.display().to_string())?),
                None if matches!(how, Border::Maybe(_)) => None,
                None => bail!("input {name} is not given"),
            };
            border::flatten(how, value.as_ref(), &mut declared, &mut arrays)
                .map_err(|e| anyhow!("input {name}: {e}"))?;
            for (array, tensor) in arrays[first..].iter_mut().zip(model.view().inputs().skip(first)) {
                if tensor.dtype == DType::BF16 && array.dtype == DType::U16 {
                    array.dtype = DType::BF16;
                }
            }
        }
        let views: Vec<_> = arrays.iter().map(Array::view).collect();
        session.run(&views).map_err(|e| anyhow!(model.explain(e)))?;
        let mut tensors = vec![];
        for k in 0..model.view().outputs().count() {
            tensors.push(Array::from_view(&session.output(k)?));
        }
        let mut tensors = tensors.into_iter();
        for (k, (name, how)) in outputs.iter().enumerate() {
            let mut value = border::gather(how, &mut tensors).map_err(|e| anyhow!("output {name}: {e}"))?;
            for array in value.arrays_mut().filter(|a| a.dtype == DType::BF16) {
                array.dtype = DType::U16;
            }
            let path = run.out.join(format!("output_{k}"));
            value.write(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}
