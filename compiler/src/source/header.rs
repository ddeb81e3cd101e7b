//! The C header.

use super::{ARENA_ALIGN, Model, Tensor, c_type};
use graphmend_cache_format::spec::DimSpec;
use std::fmt::Write as _;

/// What every file begins with.
pub(super) fn banner(model: &Model<'_>) -> String {
    let clean = |text: &str| text.replace("*/", "* /").replace(['\n', '\r'], " ");
    let meta = &model.file.meta;
    format!("/* Made by {} for {}: model '{}'. */", clean(&meta.producer), clean(&meta.target), clean(&meta.model))
}

/// Sizes for people: `[1, seq, 3]`.
pub(super) fn shape(tensor: &Tensor<'_>) -> String {
    let dims = tensor.spec.dims.iter().map(|d| match d {
        DimSpec::Fixed(n) => n.to_string(),
        DimSpec::Symbol { name, min, max } if *max >= i64::MAX as u64 => format!("{name} from {min} on"),
        DimSpec::Symbol { name, min, max } => format!("{name} {min}..{max}"),
        DimSpec::Any => "any".to_owned(),
    });
    format!("[{}]", dims.collect::<Vec<_>>().join(", ")).replace("*/", "* /")
}

/// A C string literal.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            // Three digits always, so that what follows is not taken for one; `?` starts trigraphs.
            b' '..=b'~' if byte != b'?' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out.push('"');
    out
}

fn describe(model: &Model<'_>, direction: &str, tensors: &[Tensor<'_>], out: &mut String) {
    let upper = &model.upper;
    for (k, t) in tensors.iter().enumerate() {
        let base = format!("{upper}_{direction}_{}", t.ident.to_ascii_uppercase());
        let half = match t.spec.dtype.name() {
            name @ ("f16" | "bf16" | "bool") => format!(" ({name})"),
            _ => String::new(),
        };
        let ty = c_type(t.spec.dtype);
        let _ = writeln!(out, "\n/* {ty}{half} {} */", shape(t));
        let _ = writeln!(out, "#define {base} {k}");
        let _ = writeln!(out, "#define {base}_NAME {}", quoted(&t.spec.name));
        let _ = writeln!(out, "#define {base}_TYPE {ty}");
        let _ = writeln!(out, "#define {base}_RANK {}", t.spec.dims.len());
        if let (Some(dims), Some(elements), Some(bytes)) = (&t.fixed, t.elements(), t.bytes()) {
            if !dims.is_empty() {
                let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
                let _ = writeln!(out, "#define {base}_SHAPE {{{}}}", dims.join(", "));
            }
            let _ = writeln!(out, "#define {base}_ELEMENTS {elements}");
            let _ = writeln!(out, "#define {base}_BYTES {bytes}");
        }
    }
}

/// The structure of sizes that are not fixed.
fn shapes(model: &Model<'_>) -> String {
    let Model { name, upper, .. } = model;
    let mut fields = String::new();
    let all = [("in", &model.inputs), ("out", &model.outputs)];
    for (direction, tensors) in all {
        for t in tensors.iter().filter(|t| t.fixed.is_none()) {
            let _ = writeln!(fields, "    int64_t {direction}_{}[{}]; /* {} */", t.ident, t.spec.dims.len(), shape(t));
        }
    }
    format!(
        "
/* Sizes that are not fixed: of inputs (in_...) given to a run, of outputs (out_...) given by it. `arena_needed` is given when
 * a run ends with {upper}_ARENA_TOO_SMALL: a larger one may then be lent to the next. */
struct {name}_shapes {{
{fields}    uint64_t arena_needed;
}};
"
    )
}

/// The status codes and their texts, in the order of their numbers.
pub(super) fn statuses(model: &Model<'_>) -> Vec<(&'static str, &'static str)> {
    let mut out = vec![
        ("OK", "success"),
        ("ARENA_TOO_SMALL", "the arena is too small"),
        ("ARENA_UNALIGNED", "the arena's address is not a multiple of the alignment"),
        ("INPUT", "an input is missing or not aligned to its element type"),
        ("SHAPE", "an input has a size that the model does not take"),
        ("DATA", "an index in the data is out of range"),
        ("INDEX", "the plan reads beyond a tensor"),
        ("OVERFLOW", "a size does not fit into 64 bits"),
        ("BUFFER", "a tensor does not lie in its memory"),
    ];
    if !model.plan.messages.is_empty() {
        out.push(("CHECK", "a check of the model failed"));
    }
    out
}

/// The parameters of the run function.
pub(super) fn parameters(model: &Model<'_>) -> String {
    let Model { name, upper, .. } = model;
    let inputs = if model.inputs.is_empty() { "const void *const *".to_owned() } else { format!("{upper}_INPUTS") };
    let inputs = match model.inputs.is_empty() {
        true => format!("{inputs}inputs"),
        false => format!("const void *const inputs[{inputs}]"),
    };
    let outputs = match model.outputs.is_empty() {
        true => "const void **outputs".to_owned(),
        false => format!("const void *outputs[{upper}_OUTPUTS]"),
    };
    let shapes = if model.shapes { format!(", struct {name}_shapes *shapes") } else { String::new() };
    format!("void *arena, size_t arena_bytes, {inputs}, {outputs}{shapes}")
}

pub(super) fn header(model: &Model<'_>) -> String {
    let Model { name, upper, .. } = model;
    let mut out = banner(model);
    let _ = write!(
        out,
        "
#ifndef {upper}_H
#define {upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {{
#endif

/* Memory for a run: its bytes{}, and what its address must be a multiple of. */
#define {upper}_ARENA_BYTES {}
#define {upper}_ARENA_ALIGN {ARENA_ALIGN}
/* Bytes of constants. */
#define {upper}_WEIGHT_BYTES {}

/* Inputs: positions in `inputs`, names in the model, types and sizes. */
#define {upper}_INPUTS {}
",
        if model.shapes { " at least" } else { "" },
        model.plan.arena_bytes.max(1),
        model.file.weights.len(),
        model.inputs.len()
    );
    describe(model, "IN", &model.inputs, &mut out);
    let _ = write!(
        out,
        "\n/* Outputs: positions in `outputs`, likewise. */\n#define {upper}_OUTPUTS {}\n",
        model.outputs.len()
    );
    describe(model, "OUT", &model.outputs, &mut out);
    if model.shapes {
        out += &shapes(model);
    }
    let statuses = statuses(model);
    let list: Vec<String> = statuses.iter().map(|(word, text)| format!("    {upper}_{word}, /* {text} */\n")).collect();
    let checks = match model.plan.messages.len() {
        0 => String::new(),
        n => format!("/* {upper}_CHECK and the {} after it: what {name}_explain says. */\n", n - 1),
    };
    let _ = write!(
        out,
        "
/* What a run returns. */
enum {name}_status {{
{}}};
{checks}
/* Runs the model once. `arena` is memory that nobody else uses during the run; what it held before does not matter. `inputs`
 * are the addresses of the inputs' elements, outside of the arena, row-major and aligned to their type. `outputs` are set to
 * the addresses of the outputs' elements, which lie in the arena (or are constants) and stay until the arena is used again. */
int {name}_run({});

/* What a status means, as a sentence. Costs nothing where it is not called and sections are collected (-ffunction-sections
 * -fdata-sections, --gc-sections). */
const char *{name}_explain(int status);

#ifdef __cplusplus
}}
#endif

#endif
",
        list.concat(),
        parameters(model)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_hold_any_bytes() {
        assert_eq!(quoted("a\"b\\c"), r#""a\"b\\c""#);
        assert_eq!(quoted("é1??"), r#""\303\2511\077\077""#);
    }
}
