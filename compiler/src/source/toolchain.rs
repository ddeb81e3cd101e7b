//! Source text to objects and archives, by a C compiler that is found or named.

use super::{Object, Source};
use crate::error::{Error, Result};
use graphmend_targets::{Cpu, c_compilers, c_flags};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What every object is compiled with. Flags that a user adds come after these, and win.
const FLAGS: &[&str] = &[
    "-std=c99",
    "-O2",
    "-ffunction-sections",
    "-fdata-sections",
    "-fstack-usage",
    // Nothing unwinds through a model, and firmware has no room for the tables.
    "-fno-asynchronous-unwind-tables",
];

/// A C compiler for a processor.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// The program.
    pub program: String,
    flags: Vec<String>,
}

/// Bytes of stack that functions of compilers' libraries take, about: those of floating-point arithmetic save a few registers.
pub const LIBRARY_STACK: u64 = 32;

/// What an object takes of a device's memory.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Sizes {
    /// The compiler.
    pub compiler: String,
    /// Bytes of code, without [`library`](Sizes::library) and the function that explains a status.
    pub code: u64,
    /// Bytes of the compiler's own library that the code calls, constants included: arithmetic that the processor lacks. A
    /// program that calls them as well has them once. Nothing if the linker does not tell.
    pub library: Option<u64>,
    /// Bytes of constants that are no weights.
    pub tables: u64,
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of memory that is written and lives as long as the program: the state of a model between runs.
    pub data: u64,
    /// Bytes of the arena, at least.
    pub arena: u64,
    /// Bytes of stack that a run takes beyond its caller's, if the compiler tells. For functions of its library, of which it
    /// does not, [`LIBRARY_STACK`] is added.
    pub stack: Option<u64>,
}

impl Sizes {
    /// Of an object that the code generators made.
    pub fn of(source: &Source, object: &Object) -> Sizes {
        Sizes {
            compiler: "graphmend".to_owned(),
            code: object.code,
            library: Some(0),
            tables: 0,
            weights: source.weight_bytes,
            data: 0,
            arena: source.arena_bytes,
            stack: Some(object.stack),
        }
    }

    /// Bytes of flash.
    pub fn flash(&self) -> u64 {
        self.code + self.library.unwrap_or(0) + self.tables + self.weights + self.data
    }
}

/// Bytes of an object by what becomes of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sections {
    code: u64,
    constants: u64,
    data: u64,
}

impl Toolchain {
    /// The compiler that is asked for (a program and perhaps flags), else the first of those known for the processor that is
    /// there.
    ///
    /// # Errors
    /// No compiler, with the names that were tried.
    pub fn find(cpu: &Cpu, asked: Option<&str>) -> Result<Toolchain> {
        let mut flags: Vec<String> = FLAGS.iter().chain(c_flags(cpu)).map(|f| (*f).to_owned()).collect();
        // Without an operating system there may be no C library, and no headers of one.
        let linux = cpu.rust_triple.contains("linux");
        flags.push(if linux { "-fPIC" } else { "-ffreestanding" }.to_owned());
        let Some(asked) = asked else {
            let known = c_compilers(cpu);
            let Some(program) = known.iter().find(|program| starts(program)) else {
                let (name, known) = (cpu.name, known.join(", "));
                return Err(Error::Options(format!(
                    "no C compiler for {name} is found (tried {known}): name one by --cc, or write C by --emit c"
                )));
            };
            return Ok(Toolchain { program: (*program).to_owned(), flags });
        };
        let mut words = asked.split_whitespace().map(str::to_owned);
        let program = words.next().unwrap_or_default();
        if !starts(&program) {
            return Err(Error::Options(format!("--cc: '{program}' cannot be started")));
        }
        flags.extend(words);
        Ok(Toolchain { program, flags })
    }

    /// Whether a flag is among those that are passed.
    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    /// How the compiler names itself.
    pub(crate) fn version(&self) -> Result<String> {
        let output = run(Command::new(&self.program).arg("--version"))?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or(&self.program).to_owned())
    }

    /// The compiler with the flags for the processor.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.flags);
        command
    }

    /// Compiles a model; gives the object and what it takes.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn object(&self, source: &Source) -> Result<(Vec<u8>, Sizes)> {
        let folder = Folder::new()?;
        let name = &source.name;
        let path = |end: &str| folder.0.join(format!("{name}{end}"));
        write(&path(".c"), source.c.as_bytes())?;
        write(&path(".h"), source.h.as_bytes())?;
        // With relative names, so that no path of this machine gets into the object.
        let mut command = self.command();
        command.current_dir(&folder.0).args(["-c", &format!("{name}.c"), "-o", &format!("{name}.o")]);
        run(&mut command)?;
        let all = self.measure(&folder.0, &format!("{name}.o"))?;
        // What a run needs, and with it what it needs of the library. Some linkers cannot: then all of the object counts.
        let own = self.needed(&folder.0, name, &[]).unwrap_or(all);
        let whole = self.needed(&folder.0, name, &["-lgcc"]).ok();
        let library = whole.map(|w| (w.code + w.constants).saturating_sub(own.code + own.constants));
        let calls = library.is_some_and(|bytes| bytes > 0);
        let stack = fs::read_to_string(path(".su")).ok().and_then(|usage| stack(&usage, &format!("{name}_run")));
        let sizes = Sizes {
            compiler: self.program.clone(),
            code: own.code,
            library,
            tables: own.constants.saturating_sub(source.weight_bytes),
            weights: source.weight_bytes,
            data: own.data,
            arena: source.arena_bytes,
            stack: stack.map(|own| own + if calls { LIBRARY_STACK } else { 0 }),
        };
        Ok((read(&path(".o"))?, sizes))
    }

    /// An archive with one object.
    ///
    /// # Errors
    /// An archiver that is missing or fails.
    pub fn archive(&self, name: &str, object: &[u8]) -> Result<Vec<u8>> {
        let folder = Folder::new()?;
        write(&folder.0.join(format!("{name}.o")), object)?;
        // D: without times and owners.
        let mut command = Command::new(self.tool("ar")?);
        command.current_dir(&folder.0).args(["rcsD", "model.a", &format!("{name}.o")]);
        run(&mut command)?;
        read(&folder.0.join("model.a"))
    }

    /// A program of the compiler's own set.
    pub(crate) fn tool(&self, name: &str) -> Result<PathBuf> {
        let output = run(Command::new(&self.program).arg(format!("-print-prog-name={name}")))?;
        Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    }

    /// What is left of an object when only what a run needs is kept, linked with `libraries`.
    fn needed(&self, folder: &Path, name: &str, libraries: &[&str]) -> Result<Sections> {
        let mut link = self.command();
        link.current_dir(folder).args(["-nostdlib", "-r", "-Wl,--gc-sections", &format!("-Wl,-u,{name}_run")]);
        link.arg(format!("{name}.o")).args(libraries).args(["-o", "needed.o"]);
        run(&mut link)?;
        self.measure(folder, "needed.o")
    }

    fn measure(&self, folder: &Path, object: &str) -> Result<Sections> {
        let output = run(Command::new(self.tool("size")?).current_dir(folder).args(["-A", object]))?;
        sections(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| Error::Options(format!("{}: the sizes of an object are not understood", self.program)))
    }
}

/// Sums up the list of sections that `size -A` prints.
fn sections(text: &str) -> Option<Sections> {
    let mut sum = Sections::default();
    let mut any = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(Ok(bytes))) = (words.next(), words.next().map(str::parse::<u64>)) else { continue };
        any = true;
        let is = |list: &[&str]| list.iter().any(|start| name.starts_with(start));
        if is(&[".text", ".literal"]) {
            sum.code += bytes;
        } else if is(&[".rodata", ".srodata", ".ARM.ex", ".eh_frame"]) {
            sum.constants += bytes;
        } else if is(&[".data", ".sdata", ".bss", ".sbss", ".tdata", ".tbss"]) {
            sum.data += bytes;
        }
    }
    any.then_some(sum)
}

/// Stack of a run: its own frame, and the largest of the functions that it calls, which call none.
fn stack(usage: &str, run: &str) -> Option<u64> {
    let frames: Vec<(&str, u64)> = usage
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let name = fields.next()?.rsplit(':').next()?;
            Some((name, fields.next()?.parse().ok()?))
        })
        .collect();
    let own = frames.iter().find(|(name, _)| *name == run)?.1;
    let called = frames.iter().filter(|(name, _)| name.starts_with("kernel_") || name.starts_with("plan_"));
    Some(own + called.map(|(_, bytes)| *bytes).max().unwrap_or(0))
}

fn starts(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs a program that must succeed.
pub(crate) fn run(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| Error::Options(format!("{name}: {e}")))?;
    if output.status.success() {
        return Ok(output);
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    let first: Vec<&str> = messages.lines().take(12).collect();
    Err(Error::Options(format!("{name} failed ({}):\n{}", output.status, first.join("\n"))))
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|reason| Error::Io { path: path.to_owned(), reason })
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|reason| Error::Io { path: path.to_owned(), reason })
}

/// A folder that goes when it is not used any more.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Folder> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static MADE: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("graphmend-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(reason) => return Err(Error::Io { path, reason }),
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to the system.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_is_the_runs_frame_and_the_largest_below_it() {
        let usage = "m.c:10:17:kernel_0\t48\tstatic\nm.c:90:17:kernel_1\t120\tstatic\nm.c:300:5:m_run\t40\tstatic\nm.c:9:1:m_explain\t999\tstatic\n";
        assert_eq!(stack(usage, "m_run"), Some(160));
        assert_eq!(stack("", "m_run"), None);
    }

    #[test]
    fn sections_are_code_constants_or_data() {
        let text = "m.o  :\nsection  size  addr\n.text  2  0\n.text.kernel_0  40  0\n.rodata.weights  64  0\n.bss  8  0\n\
                    .comment  30  0\nTotal  144\n";
        assert_eq!(sections(text), Some(Sections { code: 42, constants: 64, data: 8 }));
        assert_eq!(sections("what is this"), None);
    }

    #[test]
    fn a_compiler_that_is_not_there_is_named() {
        let cpu = graphmend_targets::lookup("cortex-m4f").unwrap();
        let error = Toolchain::find(&cpu, Some("no-such-compiler -O3")).unwrap_err().to_string();
        assert_eq!(error, "--cc: 'no-such-compiler' cannot be started");
    }
}
