//! Models as C, compiled and linked with a program that feeds them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use graphmend::DType;
use graphmend::compiler::source::Source;
use graphmend::npy::Array;

use crate::emulate::succeed;

/// Flags under which the text must compile without a warning.
pub const STRICT: &[&str] = &["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"];

/// An input or output as the header describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Port {
    /// Its name in macros, without what all begin with.
    name: String,
    rank: usize,
    fixed: bool,
}

/// A model linked with the program that feeds it.
#[derive(Debug)]
pub struct Linked {
    program: PathBuf,
    inputs: Vec<Port>,
    /// What runs the program: an emulator with its arguments, or nothing.
    emulator: Vec<String>,
}

/// Writes the files of a model.
///
/// # Errors
/// Those of the file system.
pub fn write(source: &Source, folder: &Path) -> Result<()> {
    for (end, text) in [("c", &source.c), ("h", &source.h), ("rs", &source.rs)] {
        std::fs::write(folder.join(format!("{}.{end}", source.name)), text)?;
    }
    Ok(())
}

impl Linked {
    /// Compiles a model with `cc`, a program and flags, in a folder of its own.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn new(source: &Source, folder: &Path, cc: &[&str], emulator: &[&str]) -> Result<Linked> {
        write(source, folder)?;
        let name = &source.name;
        let (object, program) = (folder.join(format!("{name}.o")), folder.join(format!("{name}-program")));
        let [compiler, flags @ ..] = cc else { bail!("no compiler") };
        let file = |end: &str| folder.join(format!("{name}{end}"));
        match &source.object {
            Some(made) => std::fs::write(&object, &made.bytes)?,
            None => {
                let mut compile = Command::new(compiler);
                succeed(compile.args(STRICT).args(flags).arg("-c").arg(file(".c")).arg("-o").arg(&object))?;
            }
        }
        let (inputs, outputs) = (ports(source, "IN"), ports(source, "OUT"));
        std::fs::write(file("-main.c"), main(source, &inputs, &outputs))?;
        let mut link = Command::new(compiler);
        link.args(flags).args(["-static", "-o"]).arg(&program).arg(file("-main.c")).arg(&object);
        succeed(&mut link)?;
        Ok(Linked { program, inputs, emulator: emulator.iter().map(|s| (*s).to_owned()).collect() })
    }

    /// Runs the model twice on the same memory; the outputs of the second run, as dimensions and bytes.
    ///
    /// # Errors
    /// What the model's status means.
    pub fn run(&self, inputs: &[Array]) -> Result<Vec<(Vec<usize>, Vec<u8>)>> {
        ensure!(inputs.len() == self.inputs.len(), "{} inputs, not {}", self.inputs.len(), inputs.len());
        let mut command = match &self.emulator[..] {
            [] => Command::new(&self.program),
            [emulator, args @ ..] => {
                let mut command = Command::new(emulator);
                command.args(args).arg(&self.program);
                command
            }
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("no program")?;
        let mut bytes = vec![];
        for (array, port) in inputs.iter().zip(&self.inputs) {
            ensure!(array.shape.len() == port.rank, "{} has {} axes", port.name, port.rank);
            if !port.fixed {
                array.shape.iter().for_each(|n| bytes.extend((*n as i64).to_le_bytes()));
            }
            bytes.extend(&array.bytes);
        }
        let mut stdin = child.stdin.take().context("no standard input")?;
        let writer = std::thread::spawn(move || stdin.write_all(&bytes));
        let output = child.wait_with_output()?;
        // A program that fails early does not read everything.
        let _ = writer.join();
        ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        let mut rest = &output.stdout[..];
        let mut out = vec![];
        while !rest.is_empty() {
            let mut number = || -> Result<usize> {
                let (head, tail) = rest.split_first_chunk::<8>().context("a short output")?;
                rest = tail;
                Ok(usize::try_from(u64::from_le_bytes(*head))?)
            };
            let (rank, bytes) = (number()?, number()?);
            let shape = (0..rank).map(|_| number()).collect::<Result<Vec<_>>>()?;
            let (data, tail) = rest.split_at_checked(bytes).context("a short output")?;
            rest = tail;
            out.push((shape, data.to_vec()));
        }
        Ok(out)
    }

    /// The same as arrays, of the element types that are expected.
    ///
    /// # Errors
    /// As [`Linked::run`].
    pub fn arrays(&self, inputs: &[Array], expected: &[Array]) -> Result<Vec<Array>> {
        let outputs = self.run(inputs)?;
        ensure!(outputs.len() == expected.len(), "{} outputs, expected {}", outputs.len(), expected.len());
        let dtype = |k: usize| -> DType { expected[k].dtype };
        Ok(outputs.into_iter().enumerate().map(|(k, (shape, bytes))| Array { dtype: dtype(k), shape, bytes }).collect())
    }
}

/// Inputs or outputs, out of the header's macros.
fn ports(source: &Source, direction: &str) -> Vec<Port> {
    let start = format!("#define {}_{direction}_", source.name.to_ascii_uppercase());
    let mut out: Vec<Port> = vec![];
    for line in source.h.lines() {
        let Some((name, value)) = line.strip_prefix(&start).and_then(|rest| rest.split_once(' ')) else { continue };
        match out.last_mut() {
            _ if value.starts_with('"') => {
                let name = name.trim_end_matches("_NAME").to_owned();
                out.push(Port { name, rank: 0, fixed: false });
            }
            Some(last) if name == format!("{}_RANK", last.name) => last.rank = value.parse().unwrap_or(0),
            Some(last) if name == format!("{}_BYTES", last.name) => last.fixed = true,
            _ => {}
        }
    }
    out
}

/// The program: inputs from standard input, outputs to standard output.
fn main(source: &Source, inputs: &[Port], outputs: &[Port]) -> String {
    let (name, upper) = (&source.name, source.name.to_ascii_uppercase());
    let shapes = source.h.contains(&format!("struct {name}_shapes"));
    let mut before = String::new();
    for (k, port) in inputs.iter().enumerate() {
        let (macro_name, field) = (format!("{upper}_IN_{}", port.name), port.name.to_ascii_lowercase());
        let bytes = match port.fixed {
            true => format!("{macro_name}_BYTES"),
            false => format!("sizes(shapes.in_{field}, {0}) * sizeof({macro_name}_TYPE)", port.rank),
        };
        let dims = if port.fixed { String::new() } else { format!("get(shapes.in_{field}, 8 * {});", port.rank) };
        let _ = write!(before, "    {dims}\n    bytes = {bytes};\n    inputs[{k}] = get(malloc(bytes + 1), bytes);\n");
    }
    let mut after = String::new();
    for (k, port) in outputs.iter().enumerate() {
        let (macro_name, field) = (format!("{upper}_OUT_{}", port.name), port.name.to_ascii_lowercase());
        let (rank, ty) = (port.rank, format!("{macro_name}_TYPE"));
        let dims = match (port.fixed, rank) {
            (_, 0) => "    { int64_t *dims = 0;\n".to_owned(),
            (true, _) => format!("    {{ int64_t dims[] = {macro_name}_SHAPE;\n"),
            (false, _) => format!("    {{ int64_t *dims = shapes.out_{field};\n"),
        };
        let _ = writeln!(after, "{dims}    put(dims, {rank}, sizeof({ty}), outputs[{k}]); }}");
    }
    let (declare, argument, grow) = match shapes {
        true => (
            format!("    struct {name}_shapes shapes;\n    memset(&shapes, 0, sizeof shapes);\n"),
            ", &shapes",
            format!(
                "        if (status == {upper}_ARENA_TOO_SMALL && shapes.arena_needed > room) {{
            room = shapes.arena_needed;
            runs = 0;
            free(arena);
            arena = aligned_alloc(64, (room + 63) / 64 * 64);
            memset(arena, 0xa5, room);
            continue;
        }}
"
            ),
        ),
        false => (String::new(), "", String::new()),
    };
    format!(
        "#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include \"{name}.h\"

static void *get(void *to, size_t bytes) {{
    if (bytes && fread(to, 1, bytes, stdin) != bytes)
        exit(2);
    return to;
}}

static size_t sizes(const int64_t *dims, int rank) {{
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (size_t)dims[i];
    return n;
}}

static void put(const int64_t *dims, int rank, size_t size, const void *data) {{
    uint64_t head[2] = {{rank, sizes(dims, rank) * size}};
    fwrite(head, 8, 2, stdout);
    fwrite(dims, 8, rank, stdout);
    fwrite(data, 1, head[1], stdout);
}}

int main(void) {{
    const void *inputs[{} + 1], *outputs[{} + 1];
    size_t bytes = 0, room = {upper}_ARENA_BYTES;
    int status;
{declare}    void *arena = aligned_alloc(64, (room + 63) / 64 * 64);
    memset(arena, 0xa5, room);
    (void)sizes;
    (void)bytes;
{before}    for (int runs = 0; runs < 2; runs++) {{
        status = {name}_run(arena, room, inputs, outputs{argument});
{grow}        if (status) {{
            fprintf(stderr, \"%s\\n\", {name}_explain(status));
            return 3;
        }}
    }}
{after}    return 0;
}}
",
        inputs.len(),
        outputs.len()
    )
}
