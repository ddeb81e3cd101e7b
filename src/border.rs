//! Sequences, optionals and strings: what a model declares, and the tensors of a packed file that hold it.
//!
//! On disk a tensor of strings is a file `NAME.json` with `{"shape": […], "data": […]}`, a sequence is a folder `NAME.seq` with `0.npy`, `1.npy`, … and a text file `length`; an absent optional is an
//! empty file `NAME.none`; everything else is `NAME.npy`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use graphmend_cache_format::DType;
use graphmend_cache_format::meta::Border;

use crate::npy::{self, Array};
use crate::{Model, Tensor};

/// A value of a declared input or output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A tensor.
    Tensor(Array),
    /// A tensor of strings, row-major.
    Text {
        /// Dimensions.
        shape: Vec<usize>,
        /// As many strings as the shape has elements.
        strings: Vec<String>,
    },
    /// A sequence of tensors.
    Sequence(Vec<Array>),
    /// An optional without value.
    Absent,
}

/// Names of the declared inputs, and how each is held.
pub fn inputs(model: &Model) -> Vec<(String, Border)> {
    let declared = model.meta().map(|m| m.inputs).unwrap_or_default();
    if declared.is_empty() { plain(model.view().inputs()) } else { declared }
}

/// Names of the declared outputs, and how each is held.
pub fn outputs(model: &Model) -> Vec<(String, Border)> {
    let declared = model.meta().map(|m| m.outputs).unwrap_or_default();
    if declared.is_empty() { plain(model.view().outputs()) } else { declared }
}

fn plain<'a>(tensors: impl Iterator<Item = Tensor<'a>>) -> Vec<(String, Border)> {
    tensors.map(|t| (t.name.to_owned(), Border::Tensor)).collect()
}

/// Numbers in a row that describes a member of a sequence: rank, then sizes.
const ROW: usize = 9;

/// The tensors that hold `value`, added to `out`; `declared` gives the file's inputs from the first of them on.
///
/// # Errors
/// What does not fit, as a sentence.
pub fn flatten<'a>(
    border: &Border,
    value: Option<&Value>,
    declared: &mut impl Iterator<Item = Tensor<'a>>,
    out: &mut Vec<Array>,
) -> Result<(), String> {
    let mut next = || declared.next().ok_or("the file has fewer inputs than it says");
    match (border, value) {
        (Border::Tensor, Some(Value::Tensor(array))) => {
            next()?;
            out.push(array.clone());
        }
        (Border::List(n), Some(Value::Sequence(members))) if members.len() == *n as usize => {
            for m in members {
                next()?;
                out.push(m.clone());
            }
        }
        (Border::Stack, Some(Value::Sequence(members))) => out.push(stack(&next()?, members)?),
        (Border::Ragged, Some(Value::Sequence(members))) => {
            let data = next()?;
            next()?;
            out.extend(ragged(data.dtype, members)?);
        }
        (Border::Text, Some(Value::Text { shape, strings })) => {
            next()?;
            out.push(bytes_of(shape, strings)?);
        }
        (Border::Absent, Some(Value::Absent) | None) => {}
        (Border::Maybe(of), value) => {
            next()?;
            let there = value.filter(|v| **v != Value::Absent);
            out.push(Array { dtype: DType::Bool, shape: vec![], bytes: vec![u8::from(there.is_some())] });
            if let Some(of) = of {
                flatten(of, there, declared, out)?;
            }
        }
        // In the place of what is not there: zeros of the least size.
        (Border::Tensor | Border::Stack | Border::Text, None) => out.push(least(&next()?)),
        (Border::Ragged, None) => out.extend([least(&next()?), least(&next()?)]),
        (Border::List(n), None) => {
            for _ in 0..*n {
                out.push(least(&next()?));
            }
        }
        (Border::List(n), Some(Value::Sequence(m))) => return Err(format!("{} members, {n} are needed", m.len())),
        (Border::Text, Some(_)) => return Err("a tensor of strings is needed".into()),
        (Border::Tensor, Some(_)) => return Err("a tensor is needed".into()),
        (Border::Absent, Some(_)) => return Err("nothing may be given".into()),
        (Border::List(_) | Border::Stack | Border::Ragged, Some(_)) => return Err("a sequence is needed".into()),
    }
    Ok(())
}

/// Strings as bytes along one axis more, with zeros behind the end of each.
fn bytes_of(shape: &[usize], strings: &[String]) -> Result<Array, String> {
    if shape.iter().try_fold(1usize, |all, n| all.checked_mul(*n)) != Some(strings.len()) {
        return Err(format!("{} strings for the shape {shape:?}", strings.len()));
    }
    if strings.iter().any(|s| s.contains('\0')) {
        return Err("a string holds the character 0, which ends strings here".into());
    }
    let width = strings.iter().map(String::len).max().unwrap_or(0).max(1);
    let mut bytes = vec![0; width * strings.len()];
    for (to, from) in bytes.chunks_mut(width).zip(strings) {
        to[..from.len()].copy_from_slice(from.as_bytes());
    }
    Ok(Array { dtype: DType::U8, shape: [shape, &[width]].concat(), bytes })
}

/// The strings that a tensor of bytes holds.
fn text_of(array: &Array) -> Result<Value, String> {
    let (width, shape) = array.shape.split_last().ok_or("strings of rank 0")?;
    let count: usize = shape.iter().product();
    let string = |k: usize| {
        let own = &array.bytes[k * width..][..*width];
        let end = own.iter().position(|b| *b == 0).unwrap_or(*width);
        String::from_utf8(own[..end].to_vec()).map_err(|_| "a string is not UTF-8".to_string())
    };
    Ok(Value::Text { shape: shape.to_vec(), strings: (0..count).map(string).collect::<Result<_, _>>()? })
}

/// Reads `{"shape": […], "data": […]}`.
fn read_text(path: &Path) -> io::Result<Value> {
    #[derive(serde::Deserialize)]
    struct Text {
        shape: Vec<usize>,
        data: Vec<String>,
    }
    let text: Text = serde_json::from_slice(&fs::read(path)?)?;
    Ok(Value::Text { shape: text.shape, strings: text.data })
}

fn least(t: &Tensor<'_>) -> Array {
    let shape: Vec<usize> = t.dims().map(|d| d.lo as usize).collect();
    Array::zeros(t.dtype, &shape)
}

fn stack(t: &Tensor<'_>, members: &[Array]) -> Result<Array, String> {
    let own: Vec<usize> = t.dims().skip(1).map(|d| d.lo as usize).collect();
    for m in members {
        if m.shape != own || m.dtype != t.dtype {
            return Err(format!("a member of shape {:?}, {own:?} is needed", m.shape));
        }
    }
    let bytes = members.iter().flat_map(|m| m.bytes.iter().copied()).collect();
    Ok(Array { dtype: t.dtype, shape: [&[members.len()][..], &own].concat(), bytes })
}

fn ragged(dtype: DType, members: &[Array]) -> Result<[Array; 2], String> {
    let (mut data, mut rows) = (vec![], vec![]);
    for m in members {
        if m.dtype != dtype {
            return Err(format!("a member of {}, {} is needed", m.dtype.name(), dtype.name()));
        }
        let mut row = [1i64; ROW];
        let rank = m.shape.len();
        let sizes = row.get_mut(1..=rank).ok_or(format!("a member of rank {rank}, which is above {}", ROW - 1))?;
        sizes.iter_mut().zip(&m.shape).for_each(|(to, n)| *to = *n as i64);
        row[0] = rank as i64;
        data.extend_from_slice(&m.bytes);
        rows.extend(row.iter().flat_map(|n| n.to_le_bytes()));
    }
    let count = data.len() / dtype.size();
    Ok([
        Array { dtype, shape: vec![count], bytes: data },
        Array { dtype: DType::I64, shape: vec![members.len(), ROW], bytes: rows },
    ])
}

/// The value that the next tensors hold.
///
/// # Errors
/// What does not fit, as a sentence.
pub fn gather(border: &Border, tensors: &mut impl Iterator<Item = Array>) -> Result<Value, String> {
    let mut next = || tensors.next().ok_or("the file has fewer outputs than it says");
    Ok(match border {
        Border::Tensor => Value::Tensor(next()?),
        Border::Text => text_of(&next()?)?,
        Border::List(n) => Value::Sequence((0..*n).map(|_| next()).collect::<Result<_, _>>()?),
        Border::Stack => {
            let whole = next()?;
            let (count, shape) = whole.shape.split_first().ok_or("a stack of rank 0")?;
            let size = shape.iter().product::<usize>() * whole.dtype.size();
            let member = |k: usize| Array {
                dtype: whole.dtype,
                shape: shape.to_vec(),
                bytes: whole.bytes[k * size..][..size].to_vec(),
            };
            Value::Sequence((0..*count).map(member).collect())
        }
        Border::Ragged => {
            let (data, rows) = (next()?, next()?);
            let numbers: Vec<i64> =
                rows.bytes.chunks_exact(8).map(|c| i64::from_le_bytes(c.try_into().unwrap_or_default())).collect();
            let (mut at, mut members) = (0, vec![]);
            for row in numbers.chunks_exact(ROW) {
                let rank = usize::try_from(row[0]).ok().filter(|r| *r < ROW).ok_or("a rank out of range")?;
                let shape: Vec<usize> = row[1..=rank].iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect();
                let size = shape.iter().try_fold(data.dtype.size(), |all, n| all.checked_mul(*n));
                let end = size.and_then(|size| size.checked_add(at));
                let bytes = end.and_then(|end| data.bytes.get(at..end)).ok_or("fewer elements than the rows say")?;
                at += bytes.len();
                let bytes = bytes.to_vec();
                members.push(Array { dtype: data.dtype, shape, bytes });
            }
            Value::Sequence(members)
        }
        Border::Absent => Value::Absent,
        Border::Maybe(of) => {
            let there = next()?.bytes.first().is_some_and(|b| *b != 0);
            // What holds the value is taken, whether it is there or not.
            let value = of.as_ref().map(|of| gather(of, tensors)).transpose()?;
            value.filter(|_| there).unwrap_or(Value::Absent)
        }
    })
}

impl Value {
    /// Reads a value: the form is that of the name's extension.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn read(path: &Path) -> io::Result<Value> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("none") => Ok(Value::Absent),
            Some("seq") => {
                let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the file 'length' holds no number");
                let length: usize = fs::read_to_string(path.join("length"))?.trim().parse().map_err(|_| wrong())?;
                (0..length)
                    .map(|k| npy::read(path.join(format!("{k}.npy"))))
                    .collect::<Result<_, _>>()
                    .map(Value::Sequence)
            }
            Some("json") => read_text(path),
            _ => npy::read(path).map(Value::Tensor),
        }
    }

    /// Writes a value to `base` with the extension of its form; gives the path.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn write(&self, base: &Path) -> io::Result<PathBuf> {
        let with = |extension: &str| {
            let mut name = base.as_os_str().to_owned();
            name.push(extension);
            PathBuf::from(name)
        };
        match self {
            Value::Tensor(array) => {
                let path = with(".npy");
                npy::write(&path, array)?;
                Ok(path)
            }
            Value::Sequence(members) => {
                let path = with(".seq");
                fs::create_dir_all(&path)?;
                for (k, m) in members.iter().enumerate() {
                    npy::write(path.join(format!("{k}.npy")), m)?;
                }
                fs::write(path.join("length"), members.len().to_string())?;
                Ok(path)
            }
            Value::Text { shape, strings } => {
                let path = with(".json");
                fs::write(&path, serde_json::json!({ "shape": shape, "data": strings }).to_string())?;
                Ok(path)
            }
            Value::Absent => {
                let path = with(".none");
                fs::write(&path, [])?;
                Ok(path)
            }
        }
    }

    /// The tensors within.
    pub fn arrays_mut(&mut self) -> impl Iterator<Item = &mut Array> {
        match self {
            Value::Tensor(array) => std::slice::from_mut(array).iter_mut(),
            Value::Sequence(members) => members.iter_mut(),
            Value::Absent | Value::Text { .. } => [].iter_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(shape: &[usize]) -> Array {
        let n: usize = shape.iter().product();
        Array { dtype: DType::U8, shape: shape.to_vec(), bytes: (0..n as u8).collect() }
    }

    #[test]
    fn members_of_any_shape_come_back_as_they_went_in() {
        let members = vec![array(&[2, 3]), array(&[]), array(&[0, 4]), array(&[5])];
        let tensors = ragged(DType::U8, &members).expect("fits");
        assert_eq!(tensors[0].shape, [12]);
        assert_eq!(tensors[1].shape, [4, ROW]);
        assert_eq!(gather(&Border::Ragged, &mut tensors.into_iter()), Ok(Value::Sequence(members)));
        assert!(ragged(DType::U8, &[array(&[1; 9])]).is_err(), "rank 9");
        let sizes = [2, 1 << 40, 1 << 40, 0, 1, 1, 1, 1, 1i64];
        let rows = Array {
            dtype: DType::I64,
            shape: vec![1, ROW],
            bytes: sizes.iter().flat_map(|n| n.to_le_bytes()).collect(),
        };
        assert!(gather(&Border::Ragged, &mut [array(&[3]), rows].into_iter()).is_err(), "sizes beyond all memory");
    }

    #[test]
    fn strings_are_bytes_with_zeros_behind_them() {
        let strings = ["abc".to_string(), String::new(), "é".to_string()];
        let array = bytes_of(&[3, 1], &strings).expect("fits");
        assert_eq!((&array.shape[..], &array.bytes[..]), (&[3, 1, 3][..], &b"abc\0\0\0\xc3\xa9\0"[..]));
        assert_eq!(text_of(&array), Ok(Value::Text { shape: vec![3, 1], strings: strings.to_vec() }));
        assert_eq!(bytes_of(&[0], &[]).map(|a| a.shape), Ok(vec![0, 1]));
        assert!(bytes_of(&[1], &["a\0b".to_string()]).is_err(), "a zero within");
        assert!(bytes_of(&[2], &["a".to_string()]).is_err(), "too few");
    }

    #[test]
    fn an_absent_value_takes_its_tensors_along() {
        let truth = |b: u8| Array { dtype: DType::Bool, shape: vec![], bytes: vec![b] };
        let border = Border::Maybe(Some(Box::new(Border::Stack)));
        let mut tensors = [truth(0), array(&[0, 2]), truth(1), array(&[2, 2])].into_iter();
        assert_eq!(gather(&border, &mut tensors), Ok(Value::Absent));
        let two = vec![array(&[2]), Array { bytes: vec![2, 3], ..array(&[2]) }];
        assert_eq!(gather(&border, &mut tensors), Ok(Value::Sequence(two)));
        assert!(gather(&border, &mut tensors).is_err(), "nothing is left");
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = Value::Text { shape: vec![2, 1], strings: vec!["a\"ü".into(), String::new()] };
        for value in
            [Value::Tensor(array(&[3])), Value::Sequence(vec![array(&[1]), array(&[2, 2])]), text, Value::Absent]
        {
            let path = value.write(&folder.path().join("v")).expect("writes");
            assert_eq!(Value::read(&path).expect("reads"), value);
        }
    }
}
