//! Kernel IR to C99, for processors that no code is generated for here: microcontrollers, 32-bit Arm and RISC-V.
//!
//! A kernel becomes a function of its buffers, scalars and range of work units; an entry with the kernel ABI can be put
//! before it. The text needs no header but `<stdint.h>` and `<stddef.h>`, and no function but `memcpy` and `memset`: what C
//! leaves to a mathematical library or to the compiler is written out in [`helpers`], as the interpreter defines it.
//!
//! A value of many lanes is cut into pieces of [`Style::lanes`] lanes, which are one vector each, and single lanes
//! ([`value`]). Vectors of 32-bit lanes are the compiler's own where it has them (GCC, Clang), else arrays; those of other
//! lanes are arrays. On 32-bit Arm with NEON operations on `float` are instructions ([`neon`]), which take subnormal numbers
//! as zeros; what is called by an [`entry`] does so throughout. Where addresses have 32 bits, [`narrow`] finds what need not be computed in 64.

mod cast;
mod dot;
mod float;
mod helpers;
mod literal;
mod narrow;
mod neon;
mod op;
mod stmt;
mod unused;
mod value;
mod vector;

pub use helpers::Helpers;

use super::{CodegenError, Target};
use crate::kernel::ir::{Access, Kernel, Op, Stmt};
use crate::kernel::verify::verify;
use graphmend_targets::Arch;
use graphmend_targets::features::arm;

/// What the text is written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Lanes of a vector; 1: none.
    pub lanes: u16,
    /// Addresses have 32 bits.
    pub narrow: bool,
}

impl Style {
    /// What suits a processor.
    pub fn of(target: Target) -> Style {
        Style { lanes: if vector_bits(target) >= 128 { 4 } else { 1 }, narrow: target.arch.pointer_bytes() == 4 }
    }
}

/// Is this the back end for a target, because no other one is?
pub fn serves(target: Target) -> bool {
    matches!(target.arch, Arch::Arm | Arch::Riscv32)
}

/// Bits of the vectors that text for a target is written with; 0: none.
pub fn vector_bits(target: Target) -> u32 {
    match target.arch {
        Arch::Arm if target.features.contains(arm::NEON) => 128,
        Arch::Arm | Arch::Riscv32 | Arch::Riscv64 | Arch::Portable => 0,
        Arch::X86_64 | Arch::Aarch64 => 128,
    }
}

/// What is known of a kernel's calls.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// Least and greatest value of each scalar; of those beyond the list nothing is known.
    pub scalars: Vec<(i64, i64)>,
    /// Least and greatest number that a range of work units begins or ends with.
    pub units: Option<(i64, i64)>,
}

/// Writes a kernel as a static function `name`, with parameters for its buffers, its scalars and, if it is tiled, the range of
/// its work units.
pub fn function(
    kernel: &Kernel,
    name: &str,
    style: Style,
    bounds: &Bounds,
    helpers: &mut Helpers,
) -> Result<String, CodegenError> {
    verify(kernel)?;
    stmt::function(kernel, name, style, bounds, helpers)
        .map_err(|message| CodegenError::Internal { kernel: kernel.name.clone(), message })
}

/// The entry `name` with the kernel ABI, which calls the function `inner` of the same kernel.
pub fn entry(kernel: &Kernel, name: &str, inner: &str) -> String {
    let mut args: Vec<String> = (0..kernel.bufs.len()).map(|i| format!("a->bufs[{i}]")).collect();
    args.extend((0..kernel.scalars).map(|i| format!("a->scalars[{i}]")));
    if uses_tile(kernel) {
        args.extend(["a->tile_lo".to_owned(), "a->tile_hi".to_owned()]);
    }
    let unused = if args.is_empty() { "    (void)a;\n" } else { "" };
    format!(
        "uint32_t {name}(const struct gm_args *a);
uint32_t {name}(const struct gm_args *a)
{{
    const uint32_t mode = gm_flush();
    uint32_t status;
{unused}    status = {inner}({});
    gm_restore(mode);
    return status;
}}
",
        args.join(", ")
    )
}

/// What entries need: the argument record of the kernel ABI, and the mode of the floating-point unit. Where vectors take subnormal
/// numbers as zeros, all arithmetic does: which elements of a range are whole vectors depends on where it begins.
pub const ARGS: &str = "\
struct gm_args {
    uint8_t *const *bufs;
    const int64_t *scalars;
    uint8_t *scratch;
    int64_t tile_lo, tile_hi;
};

GM_INLINE uint32_t gm_flush(void)
{
    uint32_t mode = 0;
#if GM_NEON
    __asm__ volatile(\"vmrs %0, fpscr\" : \"=r\"(mode) : : \"memory\");
    __asm__ volatile(\"vmsr fpscr, %0\" : : \"r\"(mode | 3u << 24) : \"memory\");
#endif
    return mode;
}

GM_INLINE void gm_restore(uint32_t mode)
{
#if GM_NEON
    __asm__ volatile(\"vmsr fpscr, %0\" : : \"r\"(mode) : \"memory\");
#else
    (void)mode;
#endif
}
";

/// Whether a kernel's function has parameters for the range of work units.
pub fn uses_tile(kernel: &Kernel) -> bool {
    fn any(stmts: &[Stmt]) -> bool {
        stmts.iter().any(|stmt| match stmt {
            Stmt::Let(_, op) => matches!(op, Op::TileLo | Op::TileHi),
            Stmt::For { body, .. } => any(body),
            Stmt::If { then, other, .. } => any(then) || any(other),
            Stmt::While { head, body, .. } => any(head) || any(body),
            Stmt::Set(..) | Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Return(_) => false,
        })
    }
    any(&kernel.body)
}

/// Declarations of a function's parameters.
fn parameters(kernel: &Kernel) -> String {
    let mut list: Vec<String> = vec![];
    for (i, buf) in kernel.bufs.iter().enumerate() {
        let constant = if buf.access == Access::Read { "const " } else { "" };
        list.push(format!("{constant}void *p{i}"));
    }
    list.extend((0..kernel.scalars).map(|i| format!("int64_t s{i}")));
    if uses_tile(kernel) {
        list.push("int64_t lo, int64_t hi".to_owned());
    }
    if list.is_empty() { "void".to_owned() } else { list.join(", ") }
}
