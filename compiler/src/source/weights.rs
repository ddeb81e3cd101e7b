//! Weights as a table.

use super::Model;
use std::fmt::Write as _;

/// Words of a line. Few long lines are what C compilers read fastest.
const LINE: usize = 8;

/// The weights as 64-bit words: a quarter of the tokens that bytes would be.
pub(super) fn table(model: &Model<'_>) -> String {
    let bytes = &model.file.weights;
    if bytes.is_empty() {
        return String::new();
    }
    let upper = &model.upper;
    let words = bytes.len().div_ceil(8);
    let mut out = format!(
        "
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error \"the weights are for little-endian processors\"
#endif
/* Placed elsewhere with, for example, -D'{upper}_WEIGHTS=__attribute__((section(\".qspi\")))'. */
#ifndef {upper}_WEIGHTS
#define {upper}_WEIGHTS
#endif
#if defined(__GNUC__)
__attribute__((aligned(64)))
#endif
static const uint64_t weights[{words}] {upper}_WEIGHTS = {{
"
    );
    for line in bytes.chunks(8 * LINE) {
        for word in line.chunks(8) {
            let value = word.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
            let _ = write!(out, "{value:#x},");
        }
        out.push('\n');
    }
    out += "};\n";
    out
}
