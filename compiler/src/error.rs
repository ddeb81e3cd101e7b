//! The one error type of the compiler.
//!
//! Five kinds of failure are told apart because a caller acts differently on each: the model is *invalid* (its author
//! must mend it), the model is fine but *refused* (this compiler lacks something, each lack is named), the *options* do
//! not fit the model, the compiler itself broke a promise (*internal*), or the machine failed (*io*).

use std::fmt;
use std::path::{Path, PathBuf};

/// Shorthand for results of the compiler.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The part of the compiler that noticed a failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// Reading the model file and its external data.
    Load,
    /// Checking the model against the rules of the format.
    Validate,
    /// ONNX structs to graph IR.
    Import,
    /// Removal of control flow.
    Mend,
    /// Expansion of operators into tensor expressions, with shape inference.
    Expand,
    /// Fusion of tensor expressions.
    Fuse,
    /// Order, liveness and arena.
    Plan,
    /// Tensor expressions to kernel IR.
    Lower,
    /// Kernel IR to machine code.
    Codegen,
    /// Writing of the cache file.
    Pack,
    /// Comparison of the packed model with another engine.
    Check,
}

impl Stage {
    /// The word used in messages.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Load => "load",
            Stage::Validate => "validate",
            Stage::Import => "import",
            Stage::Mend => "mend",
            Stage::Expand => "expand",
            Stage::Fuse => "fuse",
            Stage::Plan => "plan",
            Stage::Lower => "lower",
            Stage::Codegen => "codegen",
            Stage::Pack => "pack",
            Stage::Check => "check",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One fault of a model. Displayed as one line: `node 'c1' (ai.onnx:Conv-11): input rank 4 and weight rank 5 do not fit`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Who noticed it.
    pub stage: Stage,
    /// The node at fault; empty when the fault is not one node's.
    pub node: String,
    /// Its operator as `domain:Op-version`; empty when there is no node.
    pub op: String,
    /// What is wrong, naming values where that helps.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.node.is_empty(), self.op.is_empty()) {
            (true, true) => f.write_str(&self.message),
            (true, false) => write!(f, "{}: {}", self.op, self.message),
            (false, true) => write!(f, "node '{}': {}", self.node, self.message),
            (false, false) => write!(f, "node '{}' ({}): {}", self.node, self.op, self.message),
        }
    }
}

/// One thing that a model needs and this compiler lacks. Displayed as one line:
/// `node 'up' (ai.onnx:Resize-19): mode cubic with antialias is not supported`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsupported {
    /// The node that needs it; empty when the need is the whole model's.
    pub node: String,
    /// Its operator as `domain:Op-version`, e.g. `ai.onnx:Resize-19`; empty when there is no node.
    pub op: String,
    /// What is missing, as a phrase that can stand alone, e.g. `mode cubic with antialias is not supported`.
    pub what: String,
}

impl Unsupported {
    /// Names what `node`, an `op` such as `ai.onnx:Resize-19`, needs.
    pub fn new(node: impl Into<String>, op: impl Into<String>, what: impl Into<String>) -> Self {
        Unsupported { node: node.into(), op: op.into(), what: what.into() }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.node.is_empty(), self.op.is_empty()) {
            (true, true) => f.write_str(&self.what),
            (true, false) => write!(f, "{}: {}", self.op, self.what),
            (false, true) => write!(f, "node '{}': {}", self.node, self.what),
            (false, false) => write!(f, "node '{}' ({}): {}", self.node, self.op, self.what),
        }
    }
}

/// Why the compiler gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model breaks the format's rules or contradicts itself. Every fault that was found is listed, at least one.
    #[error("invalid model: {}", Lines(.0))]
    Invalid(Vec<Fault>),

    /// The model is valid, but needs what this compiler lacks. Every lack that was found is listed, at least one.
    #[error("not supported: {}", Lines(.0))]
    Refused(Vec<Unsupported>),

    /// A promise between stages was broken: a bug of this compiler, whatever the model.
    #[error("internal error in {stage}: {message}")]
    Internal {
        /// Where it was noticed.
        stage: Stage,
        /// What was expected and what was found, naming the node where there is one.
        message: String,
    },

    /// The caller's options do not fit the model.
    #[error("{0}")]
    Options(String),

    /// A file could not be read or written.
    #[error("{}: {reason}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason. No source of this error: the message has it already.
        reason: std::io::Error,
    },
}

impl Error {
    /// A fault of the model as a whole.
    pub fn invalid(stage: Stage, message: impl Into<String>) -> Self {
        Error::Invalid(vec![Fault { stage, node: String::new(), op: String::new(), message: message.into() }])
    }

    /// A fault of one node; `op` as `domain:Op-version`.
    pub fn invalid_node(
        stage: Stage,
        node: impl Into<String>,
        op: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Error::Invalid(vec![Fault { stage, node: node.into(), op: op.into(), message: message.into() }])
    }

    /// One lack of this compiler; `op` as `domain:Op-version`.
    pub fn unsupported(node: impl Into<String>, op: impl Into<String>, what: impl Into<String>) -> Self {
        Error::Refused(vec![Unsupported::new(node, op, what)])
    }

    /// A broken promise between stages.
    pub fn internal(stage: Stage, message: impl Into<String>) -> Self {
        Error::Internal { stage, message: message.into() }
    }

    /// A file that could not be read or written.
    pub fn io(path: impl AsRef<Path>, reason: std::io::Error) -> Self {
        Error::Io { path: path.as_ref().to_owned(), reason }
    }

    /// Whether this is a refusal: the model is valid and the lack is this compiler's.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Error::Refused(_))
    }
}

/// Collects faults and lacks, so that a stage reports all that it finds and not only the first.
///
/// Faults win over lacks: a model that is wrong is not worth a list of what else would be missing.
#[derive(Default, Debug)]
pub struct Collector {
    faults: Vec<Fault>,
    lacks: Vec<Unsupported>,
}

impl Collector {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes an error's entries. Gives the error back when it is of a kind that ends the work at once.
    pub fn add(&mut self, error: Error) -> Result<()> {
        match error {
            Error::Invalid(faults) => self.faults.extend(faults),
            Error::Refused(lacks) => self.lacks.extend(lacks),
            other => return Err(other),
        }
        Ok(())
    }

    /// Adds one fault.
    pub fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Adds one lack.
    pub fn lack(&mut self, lack: Unsupported) {
        self.lacks.push(lack);
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.lacks.is_empty()
    }

    /// How many entries were found.
    pub fn len(&self) -> usize {
        self.faults.len() + self.lacks.len()
    }

    /// `Ok` when nothing was found, else the list as one error.
    pub fn finish(self) -> Result<()> {
        if !self.faults.is_empty() {
            Err(Error::Invalid(self.faults))
        } else if !self.lacks.is_empty() {
            Err(Error::Refused(self.lacks))
        } else {
            Ok(())
        }
    }
}

/// Writes one entry on the same line, several as an indented list.
struct Lines<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Lines<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("(no reason given)"),
            [only] => only.fmt(f),
            many => {
                write!(f, "{} reasons", many.len())?;
                for entry in many {
                    write!(f, "\n  {entry}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reason_is_one_line() {
        let error = Error::unsupported("up", "ai.onnx:Resize-19", "mode cubic is not supported");
        assert_eq!(error.to_string(), "not supported: node 'up' (ai.onnx:Resize-19): mode cubic is not supported");
    }

    #[test]
    fn faults_hide_lacks_and_are_all_listed() {
        let mut all = Collector::new();
        all.add(Error::unsupported("a", "ai.onnx:Foo-1", "unknown operator")).unwrap();
        all.add(Error::invalid(Stage::Load, "first")).unwrap();
        all.add(Error::invalid_node(Stage::Validate, "n", "", "second")).unwrap();
        assert_eq!(all.len(), 3);
        let text = all.finish().unwrap_err().to_string();
        assert_eq!(text, "invalid model: 2 reasons\n  first\n  node 'n': second");
    }

    #[test]
    fn a_system_error_is_told_once() {
        let error = Error::io("m.onnx", std::io::ErrorKind::NotFound.into());
        assert_eq!(error.to_string(), "m.onnx: entity not found");
        assert!(std::error::Error::source(&error).is_none());
    }

    #[test]
    fn an_internal_error_is_not_collected() {
        let mut all = Collector::new();
        assert!(all.add(Error::internal(Stage::Lower, "x")).is_err());
        assert!(all.is_empty());
        assert!(all.finish().is_ok());
    }
}
