//! The instructions that come out for the loops that matter.

use crate::control::agree;
use crate::host::{Call, targets};
use crate::{lanes, random};
use graphmend_compiler::codegen::{CodegenError, Isa, Target, asm_text, compile, loop_spills};
use graphmend_compiler::dtype::DType;
use graphmend_compiler::kernel::builder::Builder;
use graphmend_compiler::kernel::ir::*;
use graphmend_compiler::kernel::text::parse;
use graphmend_targets::{Arch, Features, lookup};
use iced_x86::{Decoder, DecoderOptions};

fn target(name: &str) -> Target {
    Target::from(&lookup(name).unwrap_or_else(|| panic!("no target {name}")))
}

/// How the factors of one side reach all lanes.
#[derive(Clone, Copy, PartialEq)]
enum Broadcast {
    /// A vector of them is loaded; a shuffle copies one lane.
    Shuffle,
    /// The same with an extraction and a splat.
    Extract,
    /// Each is loaded as a scalar.
    Load,
}

/// `c[rows][cols] = sum over k of a[k][rows] * b[k][cols]` over packed panels, all sums in registers of four lanes.
fn gemm(k: i64, rows: usize, cols: usize, how: Broadcast) -> Kernel {
    wide_gemm(k, rows, cols, 4, how)
}

/// The same with vectors of any number of lanes.
fn wide_gemm(k: i64, rows: usize, cols: usize, lanes: usize, how: Broadcast) -> Kernel {
    let param = |access| BufParam { dtype: DType::F32, access };
    let bufs = vec![param(Access::Read), param(Access::Read), param(Access::Write)];
    let mut b = Builder::new("gemm", bufs, 0, false);
    let vector = Type { elem: DType::F32, lanes: lanes as u16 };
    let sums: Vec<Vec<Var>> = (0..rows).map(|_| (0..cols / lanes).map(|_| b.var(vector)).collect()).collect();
    let (zero, bound) = (b.i64(0), b.i64(k));
    b.for_(zero, bound, 1, |b, p| {
        let (step_a, step_b) = (b.i64(rows as i64), b.i64(cols as i64));
        let (ia, ib) = (b.mul(p, step_a), b.mul(p, step_b));
        let right: Vec<Reg> = (0..cols / lanes).map(|j| b.load(Buf(1), ib, (lanes * j) as i64, lanes as u16)).collect();
        let left: Vec<Reg> = match how {
            Broadcast::Load => Vec::new(),
            _ => (0..rows / 4).map(|i| b.load(Buf(0), ia, 4 * i as i64, 4)).collect(),
        };
        for (i, row) in sums.iter().enumerate() {
            let factor = match how {
                Broadcast::Shuffle => b.shuffle(left[i / 4], left[i / 4], vec![i as u16 % 4; lanes]),
                Broadcast::Extract => {
                    let lane = b.extract(left[i / 4], i as u16 % 4);
                    b.splat(lane, lanes as u16)
                }
                Broadcast::Load => {
                    let scalar = b.load(Buf(0), ia, i as i64, 1);
                    b.splat(scalar, lanes as u16)
                }
            };
            for (sum, right) in row.iter().zip(&right) {
                let old = b.get(*sum);
                let new = b.fma(factor, *right, old);
                b.set(*sum, new);
            }
        }
    });
    for (i, row) in sums.iter().enumerate() {
        for (j, sum) in row.iter().enumerate() {
            let value = b.get(*sum);
            b.store(Buf(2), zero, (cols * i + lanes * j) as i64, value);
        }
    }
    b.finish()
}

/// Matrix kernels with calls.
pub(crate) fn gemms() -> Vec<(Kernel, Call)> {
    let mut out = Vec::new();
    for how in [Broadcast::Shuffle, Broadcast::Extract, Broadcast::Load] {
        for (rows, cols) in [(4, 8), (8, 12), (12, 12)] {
            let kernel = gemm(20, rows, cols, how);
            let floats =
                |count: usize| (0..count).flat_map(|i| ((i * 37 % 101) as f32 * 0.25 - 9.0).to_le_bytes()).collect();
            let bufs = vec![floats(20 * rows), floats(20 * cols), floats(rows * cols)];
            out.push((kernel, Call { bufs, scalars: Vec::new(), tile: (0, 0) }));
        }
    }
    out
}

/// `out[i] = max(a[i] + b[i], 0) * 1.1`, eight at a time.
fn elementwise() -> Kernel {
    let text = "kernel \"add relu scale\" tiled { b0: read f32 b1: read f32 b2: write f32
        %0: i64 = tile.lo %1: i64 = tile.hi %2: f32x8 = const 0.0 %3: f32x8 = const 1.1
        for %4 in %0..%1 step 8 { %5: f32x8 = load b0[%4] %6: f32x8 = load b1[%4] %7: f32x8 = add %5, %6
        %8: f32x8 = max %7, %2 %9: f32x8 = mul %8, %3 store b2[%4] = %9 } }";
    parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The words of the innermost loop of AArch64 code: from the target of the one backward conditional branch to that branch.
fn a64_loop(code: &[u8]) -> Vec<u32> {
    let words: Vec<u32> = code.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
    let back = |(at, word): (usize, &u32)| {
        let distance = ((word << 8) as i32) >> 13;
        (word >> 24 == 0x54 && distance < 0).then(|| (at as i64 + distance as i64) as usize..at + 1)
    };
    let loops: Vec<_> = words.iter().enumerate().filter_map(back).collect();
    assert_eq!(loops.len(), 1, "backward branches at {loops:?}");
    words[loops[0].clone()].to_vec()
}

fn is_fmla_by_element(word: u32) -> bool {
    word & 0xffc0_f400 == 0x4f80_1000
}

fn is_a64_branch(word: u32) -> bool {
    // B, B.cond, CBZ and CBNZ.
    word >> 26 == 0b000101 || word >> 24 == 0x54 || word & 0x7e00_0000 == 0x3400_0000
}

/// Number of lines that contain `word`.
fn count(text: &str, word: &str) -> usize {
    text.lines().filter(|line| line.contains(word)).count()
}

#[test]
fn aarch64_multiplies_by_single_lanes_in_a_rotated_loop() {
    for how in [Broadcast::Shuffle, Broadcast::Extract, Broadcast::Load] {
        let compiled = compile(&gemm(100, 8, 12, how), target("rpi4")).unwrap();
        let body = a64_loop(&compiled.code);
        assert_eq!(body.iter().filter(|word| is_fmla_by_element(**word)).count(), 24);
        assert_eq!(body.iter().filter(|word| is_a64_branch(**word)).count(), 1);
        // 24 products, the loads, 4 for two addresses, 3 for the loop.
        let loads = if how == Broadcast::Load { 11 } else { 5 };
        assert!(body.len() <= 24 + loads + 7, "{} instructions", body.len());
    }
}

#[test]
fn riscv_vectors_multiply_by_scalar_registers() {
    for how in [Broadcast::Extract, Broadcast::Load] {
        let text = asm_text(&gemm(100, 8, 12, how), target("rv64gcv")).unwrap();
        assert_eq!(count(&text, "vfmacc.vf"), 24, "{text}");
        assert_eq!(count(&text, "vrgather") + count(&text, "(slot)"), 0, "{text}");
    }
}

#[test]
fn x86_fuses_multiplies_into_registers() {
    let kernel = gemm(100, 4, 8, Broadcast::Load);
    let text = asm_text(&kernel, target("x86-64-v3")).unwrap();
    assert_eq!(count(&text, "vfmadd"), 8, "{text}");
    assert_eq!(count(&text, "(%rsp)"), 0, "{text}");
    let plain = asm_text(&kernel, target("x86-64")).unwrap();
    assert_eq!((count(&plain, "mulps"), count(&plain, "addps"), count(&plain, "call")), (8, 8, 0), "{plain}");
}

#[test]
fn a_maximum_with_a_constant_is_one_instruction_on_x86() {
    for (name, maximum, times) in [("x86-64", "maxps", 2), ("x86-64-v3", "vmaxps", 1)] {
        let text = asm_text(&elementwise(), target(name)).unwrap();
        assert_eq!(count(&text, maximum), times, "{text}");
        assert_eq!(count(&text, "cmp"), 2, "only the loop's tests: {text}");
    }
}

#[test]
fn elementwise_loops_on_aarch64_have_nothing_to_spare() {
    let compiled = compile(&elementwise(), target("rpi3")).unwrap();
    let body = a64_loop(&compiled.code);
    // Three addresses, four loads, six operations, two stores, three for the loop.
    assert!(body.len() <= 18, "{} instructions", body.len());
}

#[test]
fn matrix_kernels_multiply() {
    // The values are such that every sum is exact, fused or not.
    for (kernel, call) in gemms() {
        agree(&kernel, &call);
    }
}

#[test]
fn products_of_bytes_multiply_in_sixteen_bits() {
    let text = "kernel \"bytes\" { b0: read u8 b1: read i8 b2: write i32 scalars 1 v0: i32x16 %0: i64 = scalar 0 %1: i64 = const 0
        for %2 in %1..%0 step 16 { %3: u8x16 = load b0[%2] %4: i8x16 = load b1[%2] %5: i32x16 = cast %3
        %6: i32x16 = cast %4 %7: i32x16 = mul %5, %6 %8: i32x16 = get v0 %9: i32x16 = add %8, %7 v0 = %9 }
        %10: i32x16 = get v0 store b2[%1] = %10 }";
    let kernel = parse(text).unwrap_or_else(|error| panic!("{error}"));
    let text = asm_text(&kernel, target("x86-64-v3")).unwrap();
    assert_eq!((count(&text, "vpmaddwd"), count(&text, "vpmulld")), (2, 0), "{text}");
    // aarch64 adds the widened products; RISC-V widens as it adds.
    let text = asm_text(&kernel, target("rv64gcv")).unwrap();
    assert_eq!(count(&text, "vwadd.wv"), 4, "{text}");
}

#[test]
fn tiles_that_do_not_fit_the_registers_are_noticed() {
    for (name, rows, cols, fits) in [
        ("rpi4", 8, 12, true),
        ("rpi4", 12, 12, false),
        ("rv64gcv", 8, 12, true),
        ("rv64gcv", 12, 12, false),
        ("x86-64-v3", 4, 8, true),
        ("x86-64-v3", 8, 12, false),
    ] {
        let spills = loop_spills(&gemm(100, rows, cols, Broadcast::Load), target(name)).unwrap();
        assert_eq!(spills == 0, fits, "{name}: {spills} for {rows}x{cols}");
    }
}

#[test]
fn wide_tiles_stay_in_the_registers_of_x86() {
    for (name, rows, cols, lanes) in [
        ("x86-64-v3", 6, 16, 8),
        ("x86-64-v3", 4, 24, 8),
        ("n100", 12, 8, 8),
        ("x86-64-v4", 14, 32, 16),
        ("znver4", 8, 48, 16),
    ] {
        let kernel = wide_gemm(100, rows, cols, lanes, Broadcast::Load);
        assert_eq!(loop_spills(&kernel, target(name)).unwrap(), 0, "{name}: {rows}x{cols}");
        let text = asm_text(&kernel, target(name)).unwrap();
        assert_eq!(count(&text, "vfmadd"), rows * cols / lanes, "{text}");
    }
}

#[test]
fn code_for_avx2_needs_nothing_beyond() {
    let wide = wide_gemm(9, 8, 16, 8, Broadcast::Shuffle);
    for kernel in (0..60).map(random::make).chain(lanes::kernels()).chain([wide, elementwise()]) {
        let target = target("x86-64-v3");
        // As many instructions as there are lines: constants follow.
        let count = asm_text(&kernel, target).unwrap().lines().count();
        let compiled = compile(&kernel, target).unwrap();
        for instruction in Decoder::new(64, &compiled.code, DecoderOptions::NONE).iter().take(count) {
            for feature in instruction.cpuid_features() {
                let name = format!("{feature:?}");
                assert!(!name.starts_with("AVX512") && !name.starts_with("AVX_"), "{instruction} in\n{kernel}");
            }
        }
    }
}

#[test]
fn quotient_and_remainder_by_a_constant_share_a_multiplication() {
    let text = "kernel \"split\" { b0: write i64 scalars 1 %0: i64 = scalar 0 %1: i64 = const 12 %2: i64 = const 0
        %3: i64 = div %0, %1 %4: i64 = rem %0, %1 store b0[%2] = %3 store b0[%2 + 1] = %4 }";
    let kernel = parse(text).unwrap();
    let text = asm_text(&kernel, target("rpi4")).unwrap();
    assert_eq!((count(&text, "smulh"), count(&text, "sdiv")), (1, 0), "{text}");
}

#[test]
fn the_same_kernel_gives_the_same_bytes() {
    for (name, target) in targets() {
        let kernel = gemm(7, 4, 8, Broadcast::Load);
        let first = compile(&kernel, target).unwrap();
        assert_eq!(first, compile(&kernel, target).unwrap(), "{name}");
        assert!(first.align.is_power_of_two());
    }
}

#[test]
fn targets_without_a_generator_and_broken_kernels_are_errors() {
    for name in ["cortex-m4", "rv32imc"] {
        assert!(matches!(Isa::new(target(name)), Err(CodegenError::Target { .. })));
    }
    let bare = Target { arch: Arch::Aarch64, features: Features::NONE };
    let error = compile(&elementwise(), bare).unwrap_err().to_string();
    assert!(error.contains("neon"), "{error}");
    let mut broken = elementwise();
    broken.bufs.clear();
    assert!(matches!(compile(&broken, target("x86-64")), Err(CodegenError::Invalid(_))));
}
