//! `graphmend-run vad`: speech segments of a recording, with a Silero voice activity model.
//!
//! The model takes windows of samples, each with the last samples of the window before in front (zeros at the start),
//! and a state that goes in as it last came out. What makes segments of the probabilities follows the rules that the
//! model's authors publish with it (`get_speech_timestamps`).

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use graphmend::npy::{self, Array};
use graphmend::{DType, Model};
use serde::Serialize;

use crate::model::{ModelArgs, RunError};

/// Find speech in a WAV file with a Silero voice activity model
#[derive(clap::Args)]
#[command(after_help = "\
The model has the inputs input, state and sr and the outputs output and stateN. The recording has 16000 samples a second
(or 8000); several channels are averaged. A last part shorter than a window (32 ms) is not used.

Example:
  graphmend-run vad silero_vad.gmc speech.wav --probabilities probabilities.npy")]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Recording
    #[arg(value_name = "WAV")]
    wav: PathBuf,

    /// Write the probability of speech of each window, as .npy or .json
    #[arg(long, value_name = "FILE")]
    probabilities: Option<PathBuf>,

    /// Speech begins at this probability; it ends below this less 0.15
    #[arg(long, value_name = "P", default_value_t = 0.5, value_parser = parse_probability)]
    threshold: f32,

    /// Shorter speech is dropped
    #[arg(long, value_name = "MS", default_value_t = 250)]
    min_speech: u32,

    /// Shorter silence does not end speech
    #[arg(long, value_name = "MS", default_value_t = 100)]
    min_silence: u32,

    /// Added on both sides of a segment
    #[arg(long, value_name = "MS", default_value_t = 30)]
    pad: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_probability(text: &str) -> Result<f32, String> {
    let p = text.parse().ok().filter(|p| (0.0..=1.0).contains(p));
    p.ok_or_else(|| "a probability from 0 to 1 is expected".into())
}

/// A stretch of speech, in samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    start: u64,
    end: u64,
}

/// The same in seconds.
#[derive(Serialize)]
struct Seconds {
    start: f64,
    end: f64,
}

/// When speech begins and ends, in samples.
struct Rules {
    window: u64,
    threshold: f32,
    /// Below this, speech ends.
    low: f32,
    min_speech: u64,
    min_silence: u64,
    pad: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (samples, rate) = read_wav(&args.wav).with_context(|| args.wav.display().to_string())?;
    let (window, context) = match rate {
        16000 => (512, 64),
        8000 => (256, 32),
        _ => bail!("{}: {rate} samples a second; the model takes 16000 or 8000", args.wav.display()),
    };
    let model = args.model.open()?;
    let found = probabilities(&model, &samples, rate, window, context)?;
    if let Some(path) = &args.probabilities {
        write_probabilities(path, &found).with_context(|| path.display().to_string())?;
    }
    let in_samples = |ms: u32| u64::from(rate) * u64::from(ms) / 1000;
    let rules = Rules {
        window: window as u64,
        threshold: args.threshold,
        low: (args.threshold - 0.15).max(0.01),
        min_speech: in_samples(args.min_speech),
        min_silence: in_samples(args.min_silence),
        pad: in_samples(args.pad),
    };
    let seconds = |n: u64| n as f64 / f64::from(rate);
    let segments: Vec<Seconds> = segments(&found, samples.len() as u64, &rules)
        .into_iter()
        .map(|s| Seconds { start: seconds(s.start), end: seconds(s.end) })
        .collect();
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&segments)?)?;
        return Ok(());
    }
    for s in &segments {
        writeln!(out, "speech {:7.2} s to {:7.2} s", s.start, s.end)?;
    }
    if segments.is_empty() {
        writeln!(out, "no speech")?;
    }
    Ok(())
}

/// Samples in -1..1, channels averaged, and samples a second.
fn read_wav(path: &Path) -> Result<(Vec<f32>, u32)> {
    let mut reader = hound::WavReader::open(path)?;
    let spec = reader.spec();
    let scale = 2f32.powi(1 - i32::from(spec.bits_per_sample));
    let samples: Vec<f32> = match spec.sample_format {
        hound::SampleFormat::Float => reader.samples::<f32>().collect::<Result<_, _>>()?,
        hound::SampleFormat::Int => {
            reader.samples::<i32>().map(|s| Ok(s? as f32 * scale)).collect::<Result<_, hound::Error>>()?
        }
    };
    let channels = usize::from(spec.channels.max(1));
    let mono = samples.chunks_exact(channels).map(|frame| frame.iter().sum::<f32>() / channels as f32);
    Ok((mono.collect(), spec.sample_rate))
}

/// The probability of speech in each whole window.
fn probabilities(model: &Model, samples: &[f32], rate: u32, window: usize, context: usize) -> Result<Vec<f32>> {
    let input_names: Vec<&str> = model.view().inputs().map(|t| t.name).collect();
    let output_names: Vec<&str> = model.view().outputs().map(|t| t.name).collect();
    let find = |names: &[&str], name: &str| {
        let at = names.iter().position(|n| *n == name);
        at.with_context(|| format!("not a voice activity model: it has no tensor {name}, but {}", names.join(", ")))
    };
    let (input, state) = (find(&input_names, "input")?, find(&input_names, "state")?);
    let (output, next_state) = (find(&output_names, "output")?, find(&output_names, "stateN")?);
    let mut arrays = Vec::new();
    for name in &input_names {
        arrays.push(match *name {
            "input" => Array::zeros(DType::F32, &[1, context + window]),
            "state" => Array::zeros(DType::F32, &[2, 1, 128]),
            "sr" => Array { dtype: DType::I64, shape: vec![], bytes: i64::from(rate).to_le_bytes().to_vec() },
            other => bail!("not a voice activity model: it has an input {other}"),
        });
    }
    let mut session = model.session()?;
    let mut padded = vec![0.0; context];
    padded.extend_from_slice(samples);
    let mut found = Vec::new();
    for k in 0..samples.len() / window {
        let part = &padded[k * window..k * window + context + window];
        arrays[input].bytes.clear();
        arrays[input].bytes.extend(part.iter().flat_map(|s| s.to_le_bytes()));
        let views: Vec<_> = arrays.iter().map(Array::view).collect();
        session.run(&views).map_err(|e| RunError::new(model, e))?;
        let probability = session.output(output)?.as_f32()?.first().copied();
        found.push(probability.context("the model gives no probability")?);
        let next = session.output(next_state)?.bytes;
        if next.len() != arrays[state].bytes.len() {
            bail!("the model's state changes its size");
        }
        arrays[state].bytes.copy_from_slice(next);
    }
    Ok(found)
}

fn write_probabilities(path: &Path, found: &[f32]) -> Result<()> {
    if path.extension().is_some_and(|e| e == "json") {
        std::fs::write(path, serde_json::to_string(found)? + "\n")?;
        return Ok(());
    }
    let bytes = found.iter().flat_map(|p| p.to_le_bytes()).collect();
    npy::write(path, &Array { dtype: DType::F32, shape: vec![found.len()], bytes })?;
    Ok(())
}

/// Segments of a recording of `total` samples from its windows' probabilities.
fn segments(probabilities: &[f32], total: u64, rules: &Rules) -> Vec<Segment> {
    let mut out = Vec::new();
    let mut start: Option<u64> = None;
    // Where it has been quiet since, while in speech.
    let mut quiet: Option<u64> = None;
    for (&p, at) in probabilities.iter().zip((0..).step_by(rules.window as usize)) {
        let Some(from) = start else {
            start = (p >= rules.threshold).then_some(at);
            continue;
        };
        if p >= rules.threshold {
            quiet = None;
        } else if p < rules.low {
            let end = *quiet.get_or_insert(at);
            if at - end >= rules.min_silence {
                out.push(Segment { start: from, end });
                (start, quiet) = (None, None);
            }
        }
    }
    out.extend(start.map(|from| Segment { start: from, end: total }));
    out.retain(|s| s.end - s.start > rules.min_speech);
    pad(&mut out, total, rules.pad);
    out
}

/// Widens segments; two that are close share the silence between them.
fn pad(segments: &mut [Segment], total: u64, pad: u64) {
    if let Some(first) = segments.first_mut() {
        first.start = first.start.saturating_sub(pad);
    }
    if let Some(last) = segments.last_mut() {
        last.end = total.min(last.end + pad);
    }
    for i in 1..segments.len() {
        let silence = segments[i].start - segments[i - 1].end;
        let each = if silence < 2 * pad { silence / 2 } else { pad };
        segments[i - 1].end += each;
        segments[i].start -= each;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules =
        Rules { window: 512, threshold: 0.5, low: 0.35, min_speech: 4000, min_silence: 1600, pad: 480 };

    fn of(probabilities: &[f32]) -> Vec<(u64, u64)> {
        segments(probabilities, probabilities.len() as u64 * 512 + 100, &RULES)
            .iter()
            .map(|s| (s.start, s.end))
            .collect()
    }

    fn windows(parts: &[(f32, usize)]) -> Vec<f32> {
        parts.iter().flat_map(|&(p, n)| std::iter::repeat_n(p, n)).collect()
    }

    #[test]
    fn speech_begins_and_ends_with_hysteresis_and_padding() {
        assert_eq!(of(&windows(&[(0.1, 20), (0.9, 10), (0.1, 20)])), [(20 * 512 - 480, 30 * 512 + 480)]);
        // Between the two thresholds it goes on, but does not begin.
        assert_eq!(of(&windows(&[(0.4, 20), (0.9, 5), (0.4, 5), (0.1, 20)])), [(20 * 512 - 480, 30 * 512 + 480)]);
        assert_eq!(of(&windows(&[(0.49, 50)])), []);
    }

    #[test]
    fn short_speech_is_dropped_and_short_silence_bridged() {
        // 7 windows are less than 250 ms, 8 are more; 3 windows of silence do not yet reach 100 ms.
        assert_eq!(of(&windows(&[(0.1, 9), (0.9, 7), (0.1, 9)])), []);
        assert_eq!(of(&windows(&[(0.1, 9), (0.9, 8), (0.1, 9)])).len(), 1);
        assert_eq!(of(&windows(&[(0.9, 10), (0.1, 3), (0.9, 10), (0.1, 9)])), [(0, 23 * 512 + 480)]);
        assert_eq!(of(&windows(&[(0.9, 10), (0.1, 5), (0.9, 10), (0.1, 9)])).len(), 2);
    }

    #[test]
    fn speech_at_the_edges_stays_inside_the_recording() {
        assert_eq!(of(&windows(&[(0.9, 20)])), [(0, 20 * 512 + 100)]);
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn close_segments_share_the_silence_between_them() {
        let mut close = [Segment { start: 1000, end: 2000 }, Segment { start: 2501, end: 9000 }];
        pad(&mut close, 9100, 480);
        assert_eq!(close, [Segment { start: 520, end: 2250 }, Segment { start: 2251, end: 9100 }]);
    }
}
