//! Arrays in memory and in `.npy` files.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use graphmend_cache_format::DType;
use graphmend_runtime::{TensorRef, TensorView};

/// A row-major array that owns its elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Array {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Elements, as little-endian bytes.
    pub bytes: Vec<u8>,
}

impl Array {
    /// An array of zeros.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Array {
        Array { dtype, shape: shape.to_vec(), bytes: vec![0; shape.iter().product::<usize>() * dtype.size()] }
    }

    /// A copy of a session's output.
    pub fn from_view(view: &TensorView<'_>) -> Array {
        // A view's sizes are not negative.
        let shape = view.shape.iter().map(|&n| n as usize).collect();
        Array { dtype: view.dtype, shape, bytes: view.bytes.to_vec() }
    }

    /// For a run.
    pub fn view(&self) -> TensorRef<'_> {
        TensorRef::from_bytes(self.dtype, &self.shape, &self.bytes)
    }

    /// The elements as numbers, for printing and comparing.
    pub fn numbers(&self) -> impl Iterator<Item = f64> + '_ {
        self.bytes.chunks_exact(self.dtype.size()).map(|e| number(self.dtype, e))
    }

    /// Passes each element as a number to a function: a loop for each type, which takes a fraction of what [`Array::numbers`] does.
    pub fn for_each_number(&self, mut see: impl FnMut(f64)) {
        let elements = self.bytes.chunks_exact(self.dtype.size());
        match self.dtype {
            DType::F32 => elements.for_each(|e| see(number(DType::F32, e))),
            dtype => elements.for_each(|e| see(number(dtype, e))),
        }
    }
}

/// An element as a number (64-bit integers lose what an `f64` does not hold).
fn number(dtype: DType, element: &[u8]) -> f64 {
    let mut raw = [0; 8];
    raw[..element.len()].copy_from_slice(element);
    let bits = u64::from_le_bytes(raw);
    match dtype {
        DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64 => bits as f64,
        DType::I8 => f64::from(bits as i8),
        DType::I16 => f64::from(bits as i16),
        DType::I32 => f64::from(bits as i32),
        DType::I64 => bits as i64 as f64,
        DType::F32 => f64::from(f32::from_bits(bits as u32)),
        DType::F64 => f64::from_bits(bits),
        DType::BF16 => f64::from(f32::from_bits((bits as u32) << 16)),
        DType::F16 => f16_to_f64(bits as u16),
    }
}

fn f16_to_f64(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        e => (1024.0 + fraction) * 2f64.powi(e - 25),
    }
}

/// The IEEE binary16 nearest to a number, ties to even.
pub fn f16_bits(x: f64) -> u16 {
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let size = x.abs();
    if x.is_nan() {
        return 0x7e00;
    }
    // Half of the last place above the greatest finite value goes to infinity.
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    // The power of two of the leading bit; below the normal range the spacing stays what it is at its lower end.
    let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(-14);
    // Exact: a multiplication by a power of two. From 0 to 2048.
    let units = (size * 2f64.powi(10 - exponent)).round_ties_even() as u16;
    // The leading bit of a normal number, 1024, adds the one that the biased exponent lacks.
    sign | (units + ((exponent + 14) as u16) * 1024)
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads a file. NumPy has no bfloat16: such arrays are stored as two-byte voids (`V2`), as `ml_dtypes` does.
pub fn read(path: impl AsRef<Path>) -> io::Result<Array> {
    decode(fs::File::open(path)?)
}

/// Reads an array of any format version; what follows it is not read.
pub fn decode(mut file: impl Read) -> io::Result<Array> {
    let text = header_text(&mut file)?;
    let header = Header::parse(&text)
        .ok_or_else(|| invalid(format!("the .npy header is not understood: {}", text.trim_end())))?;
    let Header { descr, fortran, shape } = header;
    let (big, dtype) =
        element_type(descr).ok_or_else(|| invalid(format!("arrays of type {descr} are not supported")))?;
    let size = dtype.size();
    let total = shape
        .iter()
        .try_fold(size, |a, &n| a.checked_mul(n))
        .ok_or_else(|| invalid("the array is too large".into()))?;
    let mut bytes = Vec::new();
    // What the header promises is provided at once only up to a limit, for the file may not hold it.
    bytes.reserve_exact(total.min(AT_ONCE));
    file.take(total as u64).read_to_end(&mut bytes)?;
    if bytes.len() < total {
        return Err(invalid(format!("the file ends after {} bytes of data, its shape makes {total}", bytes.len())));
    }
    if big {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    if fortran && shape.len() > 1 {
        bytes = to_row_major(&bytes, &shape, size);
    }
    Ok(Array { dtype, shape, bytes })
}

/// Bytes that a header alone can make us allocate.
const AT_ONCE: usize = 1 << 26;

/// The header's text, where the data begins.
fn header_text(file: &mut impl Read) -> io::Result<String> {
    let mut take = |n: u32| {
        let mut bytes = Vec::new();
        file.by_ref().take(u64::from(n)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == u64::from(n) { Ok(bytes) } else { Err(invalid("not a .npy file".into())) }
    };
    let len = match *take(8)? {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _] => take(2)?,
        [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _] => take(4)?,
        _ => return Err(invalid("not a .npy file".into())),
    };
    let len = len.iter().rev().fold(0, |n, &byte| n << 8 | u32::from(byte));
    String::from_utf8(take(len)?).map_err(|_| invalid("not a .npy file".into()))
}

/// Whether a type description means big-endian, and the element type.
fn element_type(descr: &str) -> Option<(bool, DType)> {
    let mut chars = descr.chars();
    let order = chars.next()?;
    let dtype = match chars.as_str() {
        "b1" => DType::Bool,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "V2" => DType::BF16,
        _ => return None,
    };
    matches!(order, '<' | '>' | '|' | '=').then_some((order == '>', dtype))
}

/// What the header's Python dictionary says.
struct Header<'a> {
    descr: &'a str,
    fortran: bool,
    shape: Vec<usize>,
}

impl<'a> Header<'a> {
    fn parse(text: &'a str) -> Option<Header<'a>> {
        let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        while !rest.is_empty() {
            let (key, after) = quoted(rest)?;
            let value = after.trim_start().strip_prefix(':')?.trim_start();
            rest = match key {
                "descr" => {
                    let (text, after) = quoted(value)?;
                    descr = Some(text);
                    after
                }
                "fortran_order" => {
                    fortran = Some(value.starts_with("True"));
                    value.strip_prefix("True").or_else(|| value.strip_prefix("False"))?
                }
                "shape" => {
                    let (sizes, after) = value.strip_prefix('(')?.split_once(')')?;
                    let sizes = sizes.split(',').map(str::trim).filter(|s| !s.is_empty());
                    shape = Some(sizes.map(|s| s.parse().ok()).collect::<Option<Vec<usize>>>()?);
                    after
                }
                _ => return None,
            };
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        Some(Header { descr: descr?, fortran: fortran?, shape: shape? })
    }
}

/// A quoted text and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// Reorders from column-major.
fn to_row_major(bytes: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0usize; shape.len()];
    for _ in 0..bytes.len() / size {
        let at = index.iter().zip(shape).rev().fold(0, |at, (i, n)| at * n + i);
        out.extend_from_slice(&bytes[at * size..(at + 1) * size]);
        for (i, n) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < *n {
                break;
            }
            *i = 0;
        }
    }
    out
}

/// Writes a file.
pub fn write(path: impl AsRef<Path>, array: &Array) -> io::Result<()> {
    let mut file = io::BufWriter::new(fs::File::create(path)?);
    file.write_all(&header(array))?;
    file.write_all(&array.bytes)?;
    file.flush()
}

/// The header of version 1.0: magic, length, a Python dictionary, padded to a multiple of 64.
fn header(array: &Array) -> Vec<u8> {
    let descr = match array.dtype {
        DType::Bool => "|b1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::BF16 => "|V2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
    };
    let mut sizes = array.shape.iter().map(|n| format!("{n}, ")).collect::<String>();
    if array.shape.len() > 1 {
        sizes.truncate(sizes.len() - 2);
    } else if array.shape.len() == 1 {
        sizes.truncate(sizes.len() - 1);
    }
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    let unpadded = 10 + text.len() + 1;
    text.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    text.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    // At most 32 sizes of 20 digits: far below 65536.
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_bytes(array: &Array) -> Array {
        let mut file = header(array);
        assert_eq!(file.len() % 64, 0);
        file.extend(&array.bytes);
        decode(&file[..]).unwrap()
    }

    #[test]
    fn every_type_and_rank_is_read_as_it_was_written() {
        for dtype in DType::ALL {
            for shape in [&[][..], &[0], &[3], &[2, 3], &[1, 2, 3, 4]] {
                let mut array = Array::zeros(dtype, shape);
                array.bytes.iter_mut().enumerate().for_each(|(i, b)| *b = (i % 2) as u8);
                assert_eq!(through_bytes(&array), array, "{dtype} {shape:?}");
            }
        }
    }

    fn file(dict: &str, data: &[u8]) -> Vec<u8> {
        let mut out = b"\x93NUMPY\x01\x00".to_vec();
        out.extend((dict.len() as u16 + 1).to_le_bytes());
        out.extend(dict.bytes().chain([b'\n']).chain(data.iter().copied()));
        out
    }

    #[test]
    fn column_major_and_big_endian_arrays_become_row_major_and_little_endian() {
        let f = file("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", &[1, 4, 2, 5, 3, 6]);
        assert_eq!(decode(&f[..]).unwrap().bytes, [1, 2, 3, 4, 5, 6]);
        let f = file("{'descr': '>i4', 'fortran_order': False, 'shape': (1,), }", &[0, 0, 1, 2]);
        assert_eq!(decode(&f[..]).unwrap().numbers().collect::<Vec<_>>(), [258.0]);
    }

    #[test]
    fn files_that_are_no_arrays_of_numbers_are_refused() {
        assert!(decode(&b""[..]).is_err());
        assert!(decode(&b"\x93NUMPY\x01\x00\xff\xff{"[..]).is_err());
        let short = file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", &[0; 7]);
        assert!(decode(&short[..]).unwrap_err().to_string().contains("its shape makes 8"));
        let complex = file("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", &[0; 8]);
        assert!(decode(&complex[..]).is_err());
        let huge = file("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", &[]);
        assert!(decode(&huge[..]).unwrap_err().to_string().contains("too large"));
        for dict in [
            "",
            "{",
            "{}",
            "{'descr': '<f4'}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
            "{'shape': (-1,)}",
        ] {
            assert!(decode(&file(dict, &[0; 64])[..]).is_err(), "{dict}");
        }
    }

    #[test]
    fn numbers_become_the_nearest_half_precision_number() {
        for bits in 0..=u16::MAX {
            let x = f16_to_f64(bits);
            if x.is_nan() {
                assert_eq!(f16_bits(x), 0x7e00);
            } else {
                assert_eq!(f16_bits(x), bits, "{x}");
            }
        }
        // Between two neighbours: the nearer one, and the even one from the middle.
        for bits in 0..0x7bffu16 {
            let (a, b) = (f16_to_f64(bits), f16_to_f64(bits + 1));
            assert_eq!(f16_bits(a + (b - a) * 0.49), bits);
            assert_eq!(f16_bits(a + (b - a) * 0.51), bits + 1);
            assert_eq!(f16_bits(a + (b - a) * 0.5), bits + (bits & 1));
        }
        assert_eq!(f16_bits(65519.0), 0x7bff);
        assert_eq!(f16_bits(65520.0), 0x7c00);
        assert_eq!(f16_bits(-1e9), 0xfc00);
        assert_eq!(f16_bits(1e-300), 0);
    }

    #[test]
    fn half_types_are_read_as_numbers() {
        let f16 = |bits: u16| number(DType::F16, &bits.to_le_bytes());
        assert_eq!(f16(0x3c00), 1.0);
        assert_eq!(f16(0xc000), -2.0);
        assert_eq!(f16(0x0001), 2f64.powi(-24));
        assert_eq!(f16(0x7bff), 65504.0);
        assert_eq!(f16(0x7c00), f64::INFINITY);
        assert!(f16(0x7e00).is_nan());
        assert_eq!(number(DType::BF16, &0x3fc0u16.to_le_bytes()), 1.5);
    }
}
