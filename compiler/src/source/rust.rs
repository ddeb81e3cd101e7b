//! The Rust module.

use super::header::{shape, statuses};
use super::{ARENA_ALIGN, Model, Tensor, rust_type};
use std::fmt::Write as _;

/// Words that are no names of fields or parameters.
const WORDS: &[&str] = &[
    "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern", "false", "fn",
    "for", "gen", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self",
    "static", "struct", "super", "trait", "true", "type", "unsafe", "use", "where", "while", "abstract", "become",
    "box", "do", "final", "macro", "override", "priv", "try", "typeof", "unsized", "virtual", "yield", "arena", "raw",
    "shapes",
];

fn word(ident: &str) -> String {
    if WORDS.contains(&ident) { format!("{ident}_") } else { ident.to_owned() }
}

/// A comment cannot be left by what a model is called.
fn comment(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn parameter(t: &Tensor<'_>) -> String {
    let (name, ty) = (word(&t.ident), rust_type(t.spec.dtype));
    match t.elements() {
        Some(n) => format!("{name}: &[{ty}; {n}]"),
        None => format!("{name}: (&[{ty}], [i64; {}])", t.spec.dims.len()),
    }
}

/// The module.
pub(super) fn module(model: &Model<'_>) -> String {
    let Model { name, plan, .. } = model;
    let title = comment(&model.file.meta.model);
    let mut out = format!(
        "// Made by {}: model '{title}'. Use as `mod {name};` beside the object or archive of {name}.c.
//
// Inputs are given in the order of the model, sizes that are not fixed beside the elements; the slices of the outputs
// borrow the arena. Truth values are bytes, half-precision numbers their bits.

/// Bytes that a run needs{}.
pub const ARENA_BYTES: usize = {};

/// Memory for a run. A `static` one costs no stack.
#[repr(C, align({ARENA_ALIGN}))]
pub struct Arena<const N: usize = ARENA_BYTES>(pub [u8; N]);

impl<const N: usize> Arena<N> {{
    /// Memory of which nothing needs to be known before a run.
    pub const fn new() -> Self {{
        Arena([0; N])
    }}
}}

impl<const N: usize> Default for Arena<N> {{
    fn default() -> Self {{
        Self::new()
    }}
}}

/// Why a run failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {{
",
        comment(&model.file.meta.producer),
        if model.shapes { " at least" } else { "" },
        plan.arena_bytes.max(1),
    );
    let failures: Vec<(usize, &str, &str)> =
        statuses(model).into_iter().enumerate().skip(1).map(|(number, (word, text))| (number, word, text)).collect();
    let camel = |word: &str| {
        let part = |p: &str| p.chars().take(1).chain(p.to_ascii_lowercase().chars().skip(1)).collect::<String>();
        word.split('_').map(part).collect::<String>()
    };
    for (_, word, text) in &failures {
        let payload = match *word {
            "ARENA_TOO_SMALL" if model.shapes => "(u64)",
            "CHECK" => "(u32)",
            _ => "",
        };
        let note = if payload == "(u64)" { ": bytes that are needed" } else { "" };
        let _ = writeln!(out, "    /// {text}{note}.\n    {}{payload},", camel(word));
    }
    out += "    /// A status that this module does not know: it does not belong to the code.\n    Unknown(i32),\n}\n";
    let (shapes_type, shapes_param, shapes_make, shapes_arg) = sizes(model);
    out += &shapes_type;
    let _ = write!(out, "\n/// What a run gives.\n#[derive(Clone, Copy, Debug)]\npub struct Outputs<'a> {{\n");
    for t in &model.outputs {
        let (name, ty) = (word(&t.ident), rust_type(t.spec.dtype));
        let _ = writeln!(out, "    /// {}", comment(&shape(t)));
        let _ = match t.elements() {
            Some(n) => writeln!(out, "    pub {name}: &'a [{ty}; {n}],"),
            None => {
                writeln!(out, "    /// and the sizes.\n    pub {name}: (&'a [{ty}], [i64; {}]),", t.spec.dims.len())
            }
        };
    }
    if model.outputs.is_empty() {
        out += "    /// Nothing.\n    pub none: core::marker::PhantomData<&'a ()>,\n";
    }
    let params: Vec<String> = model.inputs.iter().map(parameter).collect();
    let inputs: Vec<String> = model
        .inputs
        .iter()
        .map(|t| {
            let part = if t.fixed.is_some() { "" } else { ".0" };
            format!("{}{part}.as_ptr().cast()", word(&t.ident))
        })
        .collect();
    let checks: Vec<String> = model.inputs.iter().filter(|t| t.fixed.is_none()).map(length_check).collect();
    let arms: Vec<String> = failures
        .iter()
        .map(|(number, word, _)| match *word {
            "CHECK" => format!(
                "        n if n >= {number} && n < {number} + {} => return Err(Error::Check((n - {number}) as u32)),\n",
                plan.messages.len()
            ),
            "ARENA_TOO_SMALL" if model.shapes => {
                format!("        {number} => return Err(Error::ArenaTooSmall(shapes.arena_needed)),\n")
            }
            _ => format!("        {number} => return Err(Error::{}),\n", camel(word)),
        })
        .collect();
    let outputs: Vec<String> = model.outputs.iter().enumerate().map(|(k, t)| output(k, t)).collect();
    let none = if model.outputs.is_empty() { "        none: core::marker::PhantomData,\n" } else { "" };
    let helper = match model.inputs.iter().chain(&model.outputs).any(|t| t.fixed.is_none()) {
        true => ELEMENTS,
        false => "",
    };
    let (n_in, n_out) = (model.inputs.len(), model.outputs.len());
    let _ = write!(
        out,
        "}}

mod raw {{
    use core::ffi::{{c_int, c_void}};

    unsafe extern \"C\" {{
        pub fn {name}_run(
            arena: *mut c_void,
            arena_bytes: usize,
            inputs: *const *const c_void,
            outputs: *mut *const c_void{shapes_param},
        ) -> c_int;
    }}
}}
{helper}
/// Runs the model once.
pub fn run<'a, const N: usize>(arena: &'a mut Arena<N>{}{}) -> Result<Outputs<'a>, Error> {{
{}{shapes_make}    let inputs: [*const core::ffi::c_void; {n_in}] = [{}];
    let mut outputs: [*const core::ffi::c_void; {n_out}] = [core::ptr::null(); {n_out}];
    // SAFETY: the inputs have as many elements as the model reads, which was compiled with this module; the arena is
    // exclusively borrowed, and its size is passed on and checked.
    let status = unsafe {{
        raw::{name}_run(arena.0.as_mut_ptr().cast(), N, inputs.as_ptr(), outputs.as_mut_ptr(){shapes_arg})
    }};
    match status {{
        0 => {{}}
{}        n => return Err(Error::Unknown(n)),
    }}
    Ok(Outputs {{
{}{none}    }})
}}
",
        if params.is_empty() { "" } else { ", " },
        params.join(", "),
        checks.concat(),
        inputs.join(", "),
        arms.concat(),
        outputs.concat(),
    );
    out
}

/// Counts elements; nothing for sizes that are none or too many.
const ELEMENTS: &str = "
fn elements(dims: &[i64]) -> Option<usize> {
    dims.iter().try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?))
}
";

fn length_check(t: &Tensor<'_>) -> String {
    let name = word(&t.ident);
    format!("    if elements(&{name}.1) != Some({name}.0.len()) {{\n        return Err(Error::Shape);\n    }}\n")
}

/// The structure of sizes: its type, and how it is declared, made and passed.
fn sizes(model: &Model<'_>) -> (String, String, String, String) {
    if !model.shapes {
        return Default::default();
    }
    let mut fields = String::new();
    let mut values = String::new();
    for t in model.inputs.iter().filter(|t| t.fixed.is_none()) {
        let _ = writeln!(fields, "    in_{}: [i64; {}],", t.ident, t.spec.dims.len());
        let _ = writeln!(values, "        in_{}: {}.1,", t.ident, word(&t.ident));
    }
    for t in model.outputs.iter().filter(|t| t.fixed.is_none()) {
        let _ = writeln!(fields, "    out_{}: [i64; {}],", t.ident, t.spec.dims.len());
        let _ = writeln!(values, "        out_{}: [0; {}],", t.ident, t.spec.dims.len());
    }
    (
        format!("\n#[repr(C)]\nstruct Shapes {{\n{fields}    arena_needed: u64,\n}}\n"),
        ",\n            shapes: *mut super::Shapes".to_owned(),
        format!("    let mut shapes = Shapes {{\n{values}        arena_needed: 0,\n    }};\n"),
        ", &mut shapes".to_owned(),
    )
}

fn output(k: usize, t: &Tensor<'_>) -> String {
    let name = word(&t.ident);
    match t.elements() {
        Some(_) => format!(
            "        // SAFETY: a successful run leaves an address of as many elements, in the arena or in constants.\n        \
             {name}: unsafe {{ &*outputs[{k}].cast() }},\n"
        ),
        None => format!(
            "        // SAFETY: a successful run leaves an address of as many elements as the sizes say.\n        {name}: unsafe \
             {{\n            let n = elements(&shapes.out_{0}).ok_or(Error::Buffer)?;\n            \
             (core::slice::from_raw_parts(outputs[{k}].cast(), n), shapes.out_{0})\n        }},\n",
            t.ident
        ),
    }
}
