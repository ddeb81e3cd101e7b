//! Real models with reference outputs: the folders that `tests/reference/make.py` makes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use graphmend::npy::{self, Array};
use graphmend::{Model, OwnedSession};
use serde_json::Value;

use crate::compare::{Tolerance, compare};

/// All real models that have reference outputs; `make.py --list` names the same, and those of [`CONTROL`] and
/// [`EXPORTED`].
pub const MODELS: [&str; 14] = [
    "mlp",
    "mlp_dyn",
    "silero_vad",
    "silero_vad_8k",
    "squeezenet1_1",
    "mobilenet_v2",
    "mobilenet_v2_dyn",
    "mobilenet_v2_bn",
    "ppocr_cls",
    "magika",
    "quantized",
    "quantized_signed",
    "resnet50",
    "resnet50_dyn",
];

/// Those of them that compute with integers, so that all processors give the same.
pub const QUANTIZED: [&str; 2] = ["quantized", "quantized_signed"];

/// How the folders of random models with control flow begin.
pub const CONTROL: &str = "control_";

/// How the folders of transformers begin, as exporters and onnxruntime's own tools write them.
pub const EXPORTED: &str = "exported_";

/// Where the folders are: `$GRAPHMEND_REFERENCE`, else `target/reference`.
pub fn folder() -> PathBuf {
    std::env::var_os("GRAPHMEND_REFERENCE").map_or_else(|| crate::root().join("target/reference"), PathBuf::from)
}

/// A model and its sets of inputs and expected outputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Number of sets.
    pub sets: usize,
    /// Names of the inputs that are no initializers.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// How closely outputs must agree.
    pub tolerance: Tolerance,
}

impl Case {
    /// Reads what a folder says of itself.
    ///
    /// # Errors
    /// A folder that is missing, with the commands that make it; one of another form.
    pub fn load(name: &str) -> Result<Case> {
        let folder = folder().join(name);
        let path = folder.join("case.json");
        let text = fs::read_to_string(&path).with_context(|| {
            format!(
                "{} is missing. Reference outputs are made by\n  scripts/setup-python.sh && \
                 target/venv/bin/python tests/reference/make.py target/reference\nor set GRAPHMEND_REFERENCE to where they are",
                path.display()
            )
        })?;
        let json: Value = serde_json::from_str(&text)?;
        let names = |key: &str| -> Result<Vec<String>> {
            let list = json[key].as_array().with_context(|| format!("case.json has no {key}"))?;
            list.iter().map(|t| Ok(t["name"].as_str().context("a tensor without name")?.to_owned())).collect()
        };
        let number = |key: &str| json[key].as_f64().with_context(|| format!("case.json has no {key}"));
        let sets = number("sets")? as usize;
        ensure!(sets > 0, "{name} has no sets");
        Ok(Case {
            name: name.into(),
            sets,
            inputs: names("inputs")?,
            outputs: names("outputs")?,
            tolerance: Tolerance { relative: number("rtol")?, absolute: number("atol")? },
            folder,
        })
    }

    /// The model.
    pub fn model(&self) -> PathBuf {
        self.folder.join("model.onnx")
    }

    /// The file of an input.
    pub fn input_file(&self, set: usize, k: usize) -> PathBuf {
        self.folder.join(format!("set_{set}/input_{k}.npy"))
    }

    /// The inputs of a set.
    ///
    /// # Errors
    /// Files that are missing or damaged.
    pub fn inputs(&self, set: usize) -> Result<Vec<Array>> {
        (0..self.inputs.len()).map(|k| read(&self.input_file(set, k))).collect()
    }

    /// The expected outputs of a set.
    ///
    /// # Errors
    /// Files that are missing or damaged.
    pub fn expected(&self, set: usize) -> Result<Vec<Array>> {
        (0..self.outputs.len()).map(|k| read(&self.folder.join(format!("set_{set}/output_{k}.npy")))).collect()
    }

    /// Compares the outputs of a set; gives the largest share of the tolerance that was used.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self, set: usize, got: &[Array]) -> Result<f64> {
        let expected = self.expected(set)?;
        ensure!(got.len() == expected.len(), "{} outputs, expected {}", got.len(), expected.len());
        let mut worst = 0.0f64;
        for ((g, w), name) in got.iter().zip(&expected).zip(&self.outputs) {
            let share = compare(g, w, self.tolerance).map_err(anyhow::Error::msg);
            worst = worst.max(share.with_context(|| format!("{} set {set} output {name}", self.name))?);
        }
        Ok(worst)
    }
}

fn read(path: &Path) -> Result<Array> {
    npy::read(path).with_context(|| path.display().to_string())
}

/// Runs a session once; all outputs.
///
/// # Errors
/// What the runtime refuses.
pub fn run(model: &Model, session: &mut OwnedSession<'_>, inputs: &[Array]) -> Result<Vec<Array>> {
    let views: Vec<_> = inputs.iter().map(Array::view).collect();
    session.run(&views).map_err(|e| anyhow::anyhow!(model.explain(e)))?;
    (0..model.view().outputs().count()).map(|k| Ok(Array::from_view(&session.output(k)?))).collect()
}

/// Names of the random models with control flow, in order.
///
/// # Errors
/// No references, or too few: says what to run.
pub fn control_models() -> Result<Vec<String>> {
    named(CONTROL, 50)
}

/// Names of the transformers, in order.
///
/// # Errors
/// No references, or too few: says what to run.
pub fn exported_models() -> Result<Vec<String>> {
    named(EXPORTED, 11)
}

fn named(beginning: &str, least: usize) -> Result<Vec<String>> {
    // Says what to run if there is nothing at all.
    Case::load(MODELS[0])?;
    let mut names = vec![];
    for entry in fs::read_dir(folder())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(beginning) {
            names.push(name);
        }
    }
    names.sort();
    ensure!(names.len() >= least, "{} models {beginning}* only: run tests/reference/make.py", names.len());
    Ok(names)
}
