//! Lane values that find mistakes, and their comparison.

use graphmend_compiler::dtype::DType;

/// Every type that a register can have.
pub(crate) const REGISTER_TYPES: [DType; 11] = [
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F32,
    DType::F64,
];

/// A small generator of numbers (splitmix64).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Bits of a type.
fn mask(elem: DType) -> u64 {
    match elem {
        DType::Bool => 1,
        _ => u64::MAX >> (64 - 8 * elem.size()),
    }
}

/// What lies just above the middle between 1 and the next number, by less than `F32` can tell.
const ABOVE_TIE_F16: f64 = 1.0 / (1u64 << 11) as f64 + 1.0 / (1u64 << 45) as f64;
const ABOVE_TIE_BF16: f64 = 1.0 / (1u64 << 8) as f64 + 1.0 / (1u64 << 45) as f64;

/// Values at the edges of a type.
pub(crate) fn edges(elem: DType) -> Vec<u64> {
    match elem {
        DType::F32 => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            -1.5,
            2.5,
            0.3,
            -0.3,
            0.49999997,
            7.25,
            -7.75,
            8388607.5,
            -8388608.0,
            4194304.5,
            16777216.0,
            127.0,
            128.5,
            -129.0,
            255.6,
            256.0,
            32767.9,
            -32769.0,
            65504.0,
            65519.9,
            65520.0,
            65536.0,
            1e-8,
            5.9e-8,
            6.1e-5,
            2147483648.0,
            -2147483904.0,
            4294967296.0,
            9.223372e18,
            1.8446744e19,
            -1e30,
            3e38,
            f32::MIN_POSITIVE,
            1e-45,
            f32::MAX,
            f32::MIN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            -f32::NAN,
        ]
        .iter()
        .map(|v: &f32| v.to_bits() as u64)
        .collect(),
        DType::F64 => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            -2.5,
            3.5,
            0.3,
            -0.3,
            7.25,
            -7.75,
            0.49999999999999994,
            4503599627370495.5,
            -4503599627370496.5,
            127.5,
            -128.9,
            255.5,
            32768.0,
            65519.99999,
            65520.0,
            1e-8,
            2147483647.5,
            -2147483649.0,
            4294967295.5,
            9.223372036854776e18,
            1.8446744073709552e19,
            -1e30,
            1e300,
            1e39,
            1e-310,
            5e-324,
            1e-46,
            f64::MIN_POSITIVE,
            1.0 + ABOVE_TIE_F16,
            -1.0 - ABOVE_TIE_BF16,
            f64::MAX,
            f64::MIN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ]
        .iter()
        .map(|v: &f64| v.to_bits())
        .collect(),
        DType::F16 => vec![0, 0x8000, 1, 0x83ff, 0x400, 0x3c00, 0xbc01, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0x3555],
        DType::BF16 => vec![0, 0x8000, 1, 0x80, 0x3f80, 0xbf81, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81],
        DType::Bool => vec![0, 1],
        _ => {
            let bits = 8 * elem.size() as u32;
            let top = 1u64 << (bits - 1);
            let values = [
                0, 1, 2, 3, 5, 7, 8, 10, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 200, 255, 256, 1000, 40000,
                65535, 65536,
            ]
            .into_iter()
            .chain([top, top - 1, top + 1, u64::MAX, u64::MAX - 1, top >> 1, u64::MAX - 6, u64::MAX - 99]);
            let mut out: Vec<u64> = values.map(|v| v & mask(elem)).collect();
            out.sort_unstable();
            out.dedup();
            out
        }
    }
}

/// A value: often an edge, else anything of any size.
pub(crate) fn any(elem: DType, rng: &mut Rng) -> u64 {
    let edges = edges(elem);
    match rng.below(3) {
        0 => edges[rng.below(edges.len() as u64) as usize],
        1 => {
            let magnitude = (rng.next() >> (rng.below(64))) as i64;
            match elem {
                DType::F32 => (magnitude as f32 * 0.37 * if rng.below(2) == 0 { 1.0 } else { -1.0 }).to_bits() as u64,
                DType::F64 => (magnitude as f64 * -0.37).to_bits(),
                _ => magnitude as u64 & mask(elem),
            }
        }
        _ => rng.next() & mask(elem),
    }
}

/// Values as bytes of memory.
pub(crate) fn to_bytes(elem: DType, values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes().into_iter().take(elem.size())).collect()
}

/// Bytes of memory as values.
pub(crate) fn from_bytes(elem: DType, bytes: &[u8]) -> Vec<u64> {
    let value = |chunk: &[u8]| chunk.iter().rev().fold(0u64, |sum, byte| sum << 8 | *byte as u64);
    bytes.chunks_exact(elem.size()).map(value).collect()
}

pub(crate) fn is_nan(elem: DType, bits: u64) -> bool {
    match elem {
        DType::F64 => f64::from_bits(bits).is_nan(),
        DType::F32 => f32::from_bits(bits as u32).is_nan(),
        DType::F16 => bits & 0x7fff > 0x7c00,
        DType::BF16 => bits & 0x7fff > 0x7f80,
        _ => false,
    }
}

/// Whether two values are the same number: all NaN are one.
pub(crate) fn same(elem: DType, a: u64, b: u64) -> bool {
    a == b || (is_nan(elem, a) && is_nan(elem, b))
}

/// A zero of the same sign instead of a subnormal number.
pub(crate) fn flushed(elem: DType, bits: u64) -> u64 {
    let (fraction, sign) = match elem {
        DType::F32 => (23, 1 << 31),
        DType::F64 => (52, 1 << 63),
        _ => return bits,
    };
    if (bits & !sign) >> fraction == 0 { bits & sign } else { bits }
}

/// A number of the same sign and fraction between 2^-4 and 2^4; zeros, infinities and NaN stay.
pub(crate) fn near_one(elem: DType, bits: u64) -> u64 {
    let (fraction, top) = match elem {
        DType::F32 => (23, 0xff),
        DType::F64 => (52, 0x7ff),
        _ => return bits,
    };
    let bits = flushed(elem, bits);
    let exponent = bits >> fraction & top;
    if exponent == 0 || exponent == top {
        return bits;
    }
    (bits & !(top << fraction)) | (top / 2 - 4 + exponent % 8) << fraction
}

/// A value for messages.
pub(crate) fn show(elem: DType, bits: u64) -> String {
    match elem {
        DType::F64 => format!("{:e} ({bits:#x})", f64::from_bits(bits)),
        DType::F32 => format!("{:e} ({bits:#x})", f32::from_bits(bits as u32)),
        _ if elem.is_signed() => {
            let shift = 64 - 8 * elem.size() as u32;
            format!("{}", (bits << shift) as i64 >> shift)
        }
        _ => format!("{bits}"),
    }
}
