//! The quick start's voice activity model, window by window.

use std::fs;

use anyhow::{Context, Result, ensure};
use graphmend::npy::Array;
use graphmend::{DType, Model};
use serde_json::Value;

/// What onnxruntime computed for each window of the recording.
///
/// # Errors
/// A file that is missing or of another form.
pub fn expected() -> Result<Vec<f32>> {
    let json: Value = serde_json::from_str(&fs::read_to_string(crate::quickstart("reference.json"))?)?;
    let list = json["probabilities"].as_array().context("reference.json has no probabilities")?;
    list.iter().map(|p| Ok(p.as_f64().context("not a number")? as f32)).collect()
}

/// The samples of the recording, in -1..1: 16-bit, mono, 16 kHz.
///
/// # Errors
/// A file that is missing or of another form.
pub fn samples() -> Result<Vec<f32>> {
    let wav = fs::read(crate::quickstart("speech.wav"))?;
    ensure!(wav.get(..4) == Some(b"RIFF") && wav.get(20..24) == Some(&[1, 0, 1, 0]), "not a mono PCM file");
    let at = wav.windows(4).position(|w| w == b"data").context("a WAV file without data")?;
    let data = wav.get(at + 8..).context("a WAV file without data")?;
    Ok(data.chunks_exact(2).map(|s| f32::from(i16::from_le_bytes([s[0], s[1]])) / 32768.0).collect())
}

/// The probability of speech in each window, the state carried from one to the next.
///
/// # Errors
/// What the runtime refuses.
pub fn probabilities(model: &Model, samples: &[f32]) -> Result<Vec<f32>> {
    const CONTEXT: usize = 64;
    const WINDOW: usize = 512;
    let mut padded = vec![0.0f32; CONTEXT];
    padded.extend_from_slice(samples);
    let mut state = Array::zeros(DType::F32, &[2, 1, 128]);
    let rate = Array { dtype: DType::I64, shape: vec![], bytes: 16000i64.to_le_bytes().to_vec() };
    let mut session = model.session()?;
    let mut found = vec![];
    for k in 0..samples.len() / WINDOW {
        let part = &padded[k * WINDOW..(k + 1) * WINDOW + CONTEXT];
        let bytes = part.iter().flat_map(|s| s.to_le_bytes()).collect();
        let input = Array { dtype: DType::F32, shape: vec![1, WINDOW + CONTEXT], bytes };
        let inputs = [input, state, rate.clone()];
        let mut outputs = crate::reference::run(model, &mut session, &inputs)?.into_iter();
        let probability = outputs.next().context("no output")?;
        ensure!(probability.shape == [1, 1], "the probability has shape {:?}", probability.shape);
        found.push(f32::from_le_bytes(probability.bytes.as_slice().try_into()?));
        state = outputs.next().context("no state")?;
    }
    Ok(found)
}

/// The largest difference of two lists of equal length.
///
/// # Errors
/// Lists of different length.
pub fn largest_difference(got: &[f32], want: &[f32]) -> Result<f32> {
    ensure!(got.len() == want.len(), "{} windows, expected {}", got.len(), want.len());
    // Not `max`, which passes over NaN.
    Ok(got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, |a, d| if d > a || d.is_nan() { d } else { a }))
}
