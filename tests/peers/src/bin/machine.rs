//! What one core can do: multiply-adds a second of each vector width, and bytes read a second from each level of memory.
//!
//! Prints JSON. Of several tries the best counts: a limit is asked for.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

#[derive(Serialize)]
struct Machine {
    /// 10^9 single precision operations a second, by width of the vectors in bits; a multiply-add is two.
    gflops: Vec<(u32, f64)>,
    /// 10^9 bytes read a second: name, bytes of the array, rate.
    read: Vec<(&'static str, usize, f64)>,
}

/// Least seconds of several tries.
fn least(tries: usize, mut f: impl FnMut()) -> f64 {
    let mut once = || {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64()
    };
    (0..tries).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// Sixteen chains of multiply-adds: more than latency times throughput of any of today's processors.
const CHAINS: usize = 16;
const TURNS: usize = 200_000;

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::{CHAINS, TURNS};

    macro_rules! chains {
        ($name:ident, $feature:literal, $set:ident, $fma:ident, $t:ty, $store:ident, $lanes:literal) => {
            #[target_feature(enable = $feature)]
            pub(super) fn $name(x: f32) -> f32 {
                let (a, b) = ($set(x), $set(1.0 - x));
                let mut acc: [$t; CHAINS] = [$set(0.5); CHAINS];
                for _ in 0..TURNS {
                    for c in &mut acc {
                        *c = $fma(*c, a, b);
                    }
                }
                let mut out = [0.0; $lanes];
                let mut sum = 0.0;
                for c in acc {
                    // SAFETY: the array has as many elements as the vector.
                    unsafe { $store(out.as_mut_ptr(), c) };
                    sum += out.iter().sum::<f32>();
                }
                sum
            }
        };
    }
    chains!(fma128, "fma", _mm_set1_ps, _mm_fmadd_ps, __m128, _mm_storeu_ps, 4);
    chains!(fma256, "avx2,fma", _mm256_set1_ps, _mm256_fmadd_ps, __m256, _mm256_storeu_ps, 8);
    chains!(fma512, "avx512f", _mm512_set1_ps, _mm512_fmadd_ps, __m512, _mm512_storeu_ps, 16);
}

fn gflops() -> Vec<(u32, f64)> {
    let rate = |lanes: usize, f: &mut dyn FnMut()| (2 * lanes * CHAINS * TURNS) as f64 / least(30, f) / 1e9;
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("fma") {
            // SAFETY: the processor has the feature.
            found.push((128, rate(4, &mut || _ = black_box(unsafe { wide::fma128(black_box(0.3)) }))));
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: as above.
            found.push((256, rate(8, &mut || _ = black_box(unsafe { wide::fma256(black_box(0.3)) }))));
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: as above.
            found.push((512, rate(16, &mut || _ = black_box(unsafe { wide::fma512(black_box(0.3)) }))));
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let mut chains = || {
            let (a, b) = (black_box([0.3f32; 4]), black_box([0.7f32; 4]));
            let mut acc = [[0.5f32; 4]; CHAINS];
            for _ in 0..TURNS {
                for c in &mut acc {
                    for ((c, a), b) in c.iter_mut().zip(&a).zip(&b) {
                        *c = c.mul_add(*a, *b);
                    }
                }
            }
            black_box(acc);
        };
        found.push((128, rate(4, &mut chains)));
    }
    found
}

/// Adds up the words of an array, with as many sums as hide the latency of adding.
#[inline(always)]
fn sum(words: &[u64]) -> u64 {
    let (blocks, _) = words.as_chunks::<32>();
    let mut sums = [0u64; 32];
    for block in blocks {
        for (s, w) in sums.iter_mut().zip(block) {
            *s = s.wrapping_add(*w);
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(words: &[u64]) -> u64 {
    sum(words)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sum_avx512(words: &[u64]) -> u64 {
    use std::arch::x86_64::*;
    let (blocks, _) = words.as_chunks::<64>();
    let mut sums = [_mm512_setzero_si512(); 8];
    for block in blocks {
        for (k, s) in sums.iter_mut().enumerate() {
            // SAFETY: 8 of the block's 64 words, k < 8.
            let v = unsafe { _mm512_loadu_si512(block.as_ptr().add(8 * k).cast()) };
            *s = _mm512_add_epi64(*s, v);
        }
    }
    sums.into_iter().fold(0, |a, s| a.wrapping_add(_mm512_reduce_add_epi64(s) as u64))
}

fn read() -> Vec<(&'static str, usize, f64)> {
    let mut add: fn(&[u64]) -> u64 = sum;
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the feature.
            add = |w| unsafe { sum_avx512(w) };
        } else if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            add = |w| unsafe { sum_avx2(w) };
        }
    }
    // Within the first and second level of all processors of today; far beyond the last one's usual share.
    let sizes = [("L1", 16 << 10), ("L2", 192 << 10), ("memory", 1 << 30)];
    let rate = |(name, bytes): (&'static str, usize)| {
        let words = vec![1u64; bytes / 8];
        let turns = ((64 << 20) / bytes).max(1);
        let seconds = least(8, || {
            for _ in 0..turns {
                black_box(add(black_box(&words)));
            }
        });
        (name, bytes, (bytes * turns) as f64 / seconds / 1e9)
    };
    sizes.map(rate).into()
}

fn main() {
    println!("{}", serde_json::to_string(&Machine { gflops: gflops(), read: read() }).expect("plain numbers"));
}
