//! `--emit c|object|staticlib`: a model as something to link into a program.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use graphmend::compiler::codegen::Isa;
use graphmend::compiler::pack::Product;
use graphmend::compiler::source::toolchain::{Sizes, Toolchain};
use graphmend::compiler::source::{Source, archive, prefix};
use graphmend::targets::Cpu;

use super::{Cli, Stage, bytes, write_whole};

/// Bytes of weights beyond which text alone is not compiled, to tell its size, for which a compiler takes long.
const LARGE: u64 = 8 << 20;

/// What is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    C,
    Object,
    Staticlib,
}

/// What is made, and where.
pub(super) struct Link {
    kind: Kind,
    folder: PathBuf,
    /// What all names begin with.
    pub(super) name: String,
    /// The compiler. Where C is what is made, it only tells sizes, and need not be there.
    toolchain: Option<Toolchain>,
    /// The code generators make the object.
    own: bool,
}

impl Link {
    /// What the command line asks for, if it is this. A compiler is looked for at once, not after the work of packing.
    pub(super) fn of(cli: &Cli, model: &Path, cpu: &Cpu) -> Result<Option<Link>> {
        let mut kinds = cli.emit.iter().filter_map(|(stage, file)| Some((kind(*stage)?, file)));
        let Some((kind, file)) = kinds.next() else { return Ok(None) };
        if file.is_some() {
            bail!("--emit c, object and staticlib make several files: name the place by -o");
        }
        if kinds.next().is_some() {
            bail!("one of --emit c, object and staticlib at a time");
        }
        if cli.check {
            bail!("--check runs a cache file, which --emit c, object and staticlib do not make");
        }
        let stem = |path: &Path| path.file_stem().map(|s| s.to_string_lossy().into_owned());
        let of_model = stem(model).context("the model's path names no file")?;
        let (folder, name) = match &cli.output {
            None => (PathBuf::new(), of_model),
            Some(path) if path.is_dir() || path.as_os_str().to_string_lossy().ends_with('/') => {
                (path.clone(), of_model)
            }
            Some(path) => {
                let name = stem(path).context("-o names no file")?;
                let archive = path.extension().is_some_and(|e| e == "a");
                let name = name.strip_prefix("lib").filter(|_| archive).map(str::to_owned).unwrap_or(name);
                (path.parent().unwrap_or(Path::new("")).to_owned(), name)
            }
        };
        let own = kind != Kind::C && cli.cc.is_none() && Isa::cached(cpu.into()).is_ok();
        let toolchain = match kind {
            _ if own => None,
            Kind::C if cli.quiet => None,
            Kind::C => Toolchain::find(cpu, asked_compiler(cli).as_deref()).ok(),
            _ => Some(Toolchain::find(cpu, asked_compiler(cli).as_deref())?),
        };
        Ok(Some(Link { kind, folder, name: prefix(&name), toolchain, own }))
    }

    /// What packing is to make.
    pub(super) fn product(&self) -> Product {
        let name = self.name.clone();
        if self.own { Product::Object(name) } else { Product::Source(name) }
    }

    /// The files, what a program links or compiles first.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let name = &self.name;
        let first = match self.kind {
            Kind::C => format!("{name}.c"),
            Kind::Object => format!("{name}.o"),
            Kind::Staticlib => format!("lib{name}.a"),
        };
        [first, format!("{name}.h"), format!("{name}.rs")].iter().map(|file| self.folder.join(file)).collect()
    }

    /// Writes the files; gives what an object takes, if a compiler is there.
    pub(super) fn write(&self, source: &Source) -> Result<Option<Sizes>> {
        if !self.folder.as_os_str().is_empty() {
            fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        }
        let text = || source.c.clone().into_bytes();
        let (first, sizes) = match (self.kind, &self.toolchain) {
            (kind, None) => match &source.object {
                None => (text(), None),
                Some(object) => {
                    let library = kind == Kind::Staticlib;
                    let first = if library { archive(&self.name, &object.bytes) } else { object.bytes.clone() };
                    (first, Some(Sizes::of(source, object)))
                }
            },
            (Kind::C, Some(_)) if source.weight_bytes > LARGE => (text(), None),
            // A compiler that fails is no reason not to write the text.
            (Kind::C, Some(toolchain)) => (text(), toolchain.object(source).ok().map(|(_, sizes)| sizes)),
            (kind, Some(toolchain)) => {
                let (object, sizes) = toolchain.object(source)?;
                let first = if kind == Kind::Staticlib { toolchain.archive(&self.name, &object)? } else { object };
                (first, Some(sizes))
            }
        };
        let contents = [first.as_slice(), source.h.as_bytes(), source.rs.as_bytes()];
        for (path, content) in self.files().iter().zip(contents) {
            write_whole(path, content)?;
        }
        Ok(sizes)
    }
}

/// The C compiler that is asked for.
pub(super) fn asked_compiler(cli: &Cli) -> Option<String> {
    cli.cc.clone().or_else(|| std::env::var("CC").ok().filter(|cc| !cc.is_empty()))
}

fn kind(stage: Stage) -> Option<Kind> {
    match stage {
        Stage::C => Some(Kind::C),
        Stage::Object => Some(Kind::Object),
        Stage::Staticlib => Some(Kind::Staticlib),
        _ => None,
    }
}

/// What a model takes of a device, for people.
pub(super) fn report(sizes: &Sizes, grows: bool) -> String {
    let stack = match sizes.stack {
        Some(n) => format!(", stack {}", bytes(n)),
        None => String::new(),
    };
    let library = match sizes.library {
        Some(n) if n > 0 => format!(", compiler's library {}", bytes(n)),
        _ => String::new(),
    };
    format!(
        "flash     {}: code {}{library}, tables {}, weights {} (by {})\nRAM       {}: arena {}{}, state {}{stack}\n",
        bytes(sizes.flash()),
        bytes(sizes.code),
        bytes(sizes.tables),
        bytes(sizes.weights),
        sizes.compiler,
        bytes(sizes.arena + sizes.data),
        bytes(sizes.arena),
        if grows { " and what sizes known only in a run take" } else { "" },
        bytes(sizes.data),
    )
}
