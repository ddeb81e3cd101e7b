//! `TensorProto` to constant tensors.
//!
//! Everything is checked before memory is asked for: the type, each dimension, the element count, and that the data
//! present has exactly the length that type and dimensions call for. So a tensor never costs more memory than its file.

use graphmend_cache_format::MAX_RANK;

use crate::dtype::DType;
use crate::graph::{ElemType, TensorData};
use crate::onnx::proto::{SparseTensorProto, TensorProto, data_location};

/// A sparse tensor may become at most this many bytes when it is made dense.
const MOST_DENSE_BYTES: usize = 1 << 30;

/// Why a tensor cannot be taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The tensor is wrong.
    Invalid(String),
    /// The tensor is right, but this form of storage is not supported.
    Unsupported(String),
}

fn invalid(message: impl Into<String>) -> Reason {
    Reason::Invalid(message.into())
}

/// Type, dimensions and element count of a tensor, without its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Element type.
    pub elem: ElemType,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Their product.
    pub count: usize,
}

impl Header {
    /// Bytes of the packed elements; `None` for strings.
    pub fn bytes(&self) -> Result<Option<usize>, Reason> {
        match self.elem {
            ElemType::String => Ok(None),
            elem => {
                elem.bytes_of(self.count).map(Some).ok_or_else(|| invalid("the shape is too large (size overflows)"))
            }
        }
    }
}

/// The element type of a number in `TensorProto.DataType`.
pub fn elem_type(code: Option<i32>) -> Result<ElemType, Reason> {
    let code = code.unwrap_or(0);
    ElemType::from_code(code).ok_or_else(|| match code {
        0 => invalid("the element type is missing"),
        _ => invalid(format!("element type {code} is unknown")),
    })
}

/// Checks that tensors of a rank are supported.
pub fn check_rank(rank: usize) -> Result<(), Reason> {
    match rank > MAX_RANK {
        true => Err(Reason::Unsupported(format!("rank {rank} is more than {MAX_RANK}, the most that is supported"))),
        false => Ok(()),
    }
}

/// Checks dimensions: not too many, none negative, and their product, zeros left aside, fits 63 bits, so that no stride wraps either.
pub fn dimensions(dims: &[i64]) -> Result<(Vec<usize>, usize), Reason> {
    check_rank(dims.len())?;
    let mut shape = Vec::with_capacity(dims.len());
    let mut extent = 1i64;
    for &dim in dims {
        let size =
            usize::try_from(dim).map_err(|_| invalid(format!("dimension {dim} in shape {dims:?} is negative")))?;
        extent = extent
            .checked_mul(dim.max(1))
            .ok_or_else(|| invalid(format!("shape {dims:?} is too large (element count overflows)")))?;
        shape.push(size);
    }
    let count = if shape.contains(&0) { 0 } else { extent as usize };
    Ok((shape, count))
}

/// Reads and checks everything but the data.
pub fn header(tensor: &TensorProto) -> Result<Header, Reason> {
    if tensor.segment.is_some() {
        return Err(Reason::Unsupported("tensors stored in segments are not supported".into()));
    }
    let elem = elem_type(tensor.data_type)?;
    let (shape, count) = dimensions(&tensor.dims)?;
    let header = Header { elem, shape, count };
    header.bytes()?;
    Ok(header)
}

/// The lists that a tensor's data may be stored in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Storage {
    Raw,
    Float,
    Int32,
    Int64,
    Uint64,
    Double,
    Strings,
}

/// The list for a type that is not stored raw, and how many entries of it `count` elements take.
fn list_of(header: &Header) -> (Storage, Option<usize>) {
    let count = header.count;
    match header.elem {
        ElemType::Plain(DType::F32) => (Storage::Float, Some(count)),
        ElemType::Complex64 => (Storage::Float, count.checked_mul(2)),
        ElemType::Plain(DType::F64) => (Storage::Double, Some(count)),
        ElemType::Complex128 => (Storage::Double, count.checked_mul(2)),
        ElemType::Plain(DType::I64) => (Storage::Int64, Some(count)),
        ElemType::Plain(DType::U32 | DType::U64) => (Storage::Uint64, Some(count)),
        ElemType::String => (Storage::Strings, Some(count)),
        // Types below a byte share an entry as they share a byte in raw data.
        ElemType::F4E2M1 | ElemType::U4 | ElemType::I4 | ElemType::U2 | ElemType::I2 => {
            (Storage::Int32, header.elem.bytes_of(count))
        }
        _ => (Storage::Int32, Some(count)),
    }
}

/// Finds where the data is and checks its length.
fn storage(tensor: &TensorProto, header: &Header) -> Result<Storage, Reason> {
    if tensor.data_location == Some(data_location::EXTERNAL) {
        return Err(invalid("its data is in another file, which was not loaded"));
    }
    let (list, entries) = list_of(header);
    let found = match list {
        Storage::Raw => 0,
        Storage::Float => tensor.float_data.len(),
        Storage::Int32 => tensor.int32_data.len(),
        Storage::Int64 => tensor.int64_data.len(),
        Storage::Uint64 => tensor.uint64_data.len(),
        Storage::Double => tensor.double_data.len(),
        Storage::Strings => tensor.string_data.len(),
    };
    let describe = || format!("{} of shape {:?} ({} elements)", header.elem.onnx_name(), header.shape, header.count);
    if let Some(raw) = tensor.raw_data.as_ref().filter(|raw| !raw.is_empty() || found == 0) {
        let Some(wanted) = header.bytes()? else {
            if raw.is_empty() && header.count == 0 {
                return Ok(Storage::Strings);
            }
            return Err(invalid("strings cannot be stored as raw data"));
        };
        if raw.len() != wanted {
            return Err(invalid(format!("its data is {} bytes, but {} takes {wanted} bytes", raw.len(), describe())));
        }
        return Ok(Storage::Raw);
    }
    if Some(found) != entries {
        return Err(invalid(if found == 0 {
            format!("it has no data, but {} needs some", describe())
        } else {
            let wanted = entries.map_or("more".to_owned(), |n| n.to_string());
            format!("its data has {found} entries, but {} takes {wanted}", describe())
        }));
    }
    Ok(list)
}

/// Checks a tensor whose data is in the model without copying anything.
pub fn check(tensor: &TensorProto) -> Result<Header, Reason> {
    let header = header(tensor)?;
    storage(tensor, &header)?;
    Ok(header)
}

/// The tensor with its data as packed little-endian bytes. Raw data is moved, not copied.
pub fn convert(tensor: TensorProto) -> Result<TensorData, Reason> {
    let header = header(&tensor)?;
    let storage = storage(&tensor, &header)?;
    let Header { elem, shape, count } = header;
    if storage == Storage::Strings {
        return Ok(TensorData::from_strings(shape, tensor.string_data));
    }
    let mut bytes = match storage {
        Storage::Raw | Storage::Strings => tensor.raw_data.unwrap_or_default(),
        Storage::Float => tensor.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Storage::Double => tensor.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Storage::Int64 => tensor.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Storage::Uint64 => narrow(tensor.uint64_data.iter().map(|v| v.to_le_bytes()), elem, count),
        Storage::Int32 => narrow(tensor.int32_data.iter().map(|v| v.to_le_bytes()), elem, count),
    };
    if elem == ElemType::Plain(DType::Bool) {
        // Any number but zero means true; later stages count on one.
        for byte in &mut bytes {
            *byte = u8::from(*byte != 0);
        }
    }
    TensorData::new(elem, shape, bytes).ok_or_else(|| invalid("its data does not fit its shape"))
}

/// The low bytes of wider little-endian entries: as many as one element has, at least one.
fn narrow<const N: usize>(entries: impl Iterator<Item = [u8; N]>, elem: ElemType, count: usize) -> Vec<u8> {
    let width = elem.bits().unwrap_or(8).div_ceil(8).min(N);
    let mut bytes = Vec::with_capacity(count.saturating_mul(width).min(1 << 20));
    for entry in entries {
        bytes.extend_from_slice(&entry[..width]);
    }
    bytes
}

/// Checks a sparse tensor without making it dense; gives the header of its dense form.
pub fn check_sparse(sparse: &SparseTensorProto) -> Result<Header, Reason> {
    let values = sparse.values.as_ref().ok_or_else(|| invalid("a sparse tensor without values"))?;
    let elem = check(values)?.elem;
    if let Some(indices) = &sparse.indices {
        check(indices)?;
    }
    let (shape, count) = dimensions(&sparse.dims)?;
    let header = Header { elem, shape, count };
    match header.bytes()? {
        Some(bytes) if bytes <= MOST_DENSE_BYTES && elem.bits() >= Some(8) => Ok(header),
        Some(bytes) if bytes > MOST_DENSE_BYTES => {
            Err(Reason::Unsupported(format!("a sparse tensor of {bytes} bytes when dense is too large")))
        }
        _ => Err(Reason::Unsupported(format!("sparse tensors of {} are not supported", elem.onnx_name()))),
    }
}

/// A sparse tensor made dense. Indices are given per element, or per element and dimension.
pub fn convert_sparse(sparse: SparseTensorProto) -> Result<TensorData, Reason> {
    let Header { elem, shape, count } = check_sparse(&sparse)?;
    let values = convert(sparse.values.unwrap_or_default())?;
    let stored = values.numel();
    let (places, per_value) = match sparse.indices {
        None if stored == 0 => (Vec::new(), 1),
        None => return Err(invalid("a sparse tensor without indices")),
        Some(tensor) => {
            let indices = convert(tensor)?;
            let per_value = match indices.shape.as_slice() {
                [n] if *n == stored => 1,
                [n, rank] if *n == stored && *rank == shape.len() => *rank,
                other => {
                    return Err(invalid(format!(
                        "indices of shape {other:?} do not fit {stored} values of a sparse tensor of shape {shape:?}"
                    )));
                }
            };
            let places = indices.to_i64s().ok_or_else(|| invalid("sparse indices must be integers"))?;
            (places, per_value)
        }
    };
    let width = elem.bits().unwrap_or(8) / 8;
    let mut bytes = vec![0; count * width];
    for (n, value) in values.bytes.chunks_exact(width).enumerate() {
        let place = &places[n * per_value..(n + 1) * per_value];
        let flat = if per_value == 1 {
            // One number per value counts through the whole tensor; for a vector both forms are the same.
            usize::try_from(place[0]).ok().filter(|flat| *flat < count)
        } else {
            place.iter().zip(&shape).try_fold(0usize, |flat, (index, size)| {
                let index = usize::try_from(*index).ok().filter(|index| index < size)?;
                Some(flat * size + index)
            })
        };
        let flat = flat.ok_or_else(|| invalid(format!("index {place:?} lies outside of sparse shape {shape:?}")))?;
        bytes[flat * width..(flat + 1) * width].copy_from_slice(value);
    }
    TensorData::new(elem, shape, bytes).ok_or_else(|| invalid("its data does not fit its shape"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(elem: impl Into<ElemType>, dims: &[i64]) -> TensorProto {
        TensorProto { dims: dims.to_vec(), data_type: Some(elem.into().code()), ..Default::default() }
    }

    fn complaint(tensor: TensorProto) -> String {
        match (check(&tensor), convert(tensor)) {
            (Err(a), Err(b)) => {
                assert_eq!(a, b);
                match a {
                    Reason::Invalid(text) | Reason::Unsupported(text) => text,
                }
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_list_is_read() {
        let t = TensorProto { float_data: vec![1.0, -2.0], ..tensor(DType::F32, &[2]) };
        assert_eq!(convert(t).unwrap().to_f64s(), Some(vec![1.0, -2.0]));
        let t = TensorProto { double_data: vec![0.1], ..tensor(DType::F64, &[]) };
        assert_eq!(convert(t).unwrap().to_f64s(), Some(vec![0.1]));
        let t = TensorProto { int64_data: vec![i64::MIN], ..tensor(DType::I64, &[1]) };
        assert_eq!(convert(t).unwrap().to_i64s(), Some(vec![i64::MIN]));
        let t = TensorProto { uint64_data: vec![u64::from(u32::MAX)], ..tensor(DType::U32, &[1]) };
        assert_eq!(convert(t).unwrap().to_i64s(), Some(vec![i64::from(u32::MAX)]));
        let t = TensorProto { int32_data: vec![-1, 127], ..tensor(DType::I8, &[2]) };
        assert_eq!(convert(t).unwrap().to_i64s(), Some(vec![-1, 127]));
        let t = TensorProto { int32_data: vec![0x3c00, 0xc000], ..tensor(DType::F16, &[2]) };
        assert_eq!(convert(t).unwrap().to_f64s(), Some(vec![1.0, -2.0]));
        let t = TensorProto { int32_data: vec![5, 0], ..tensor(DType::Bool, &[2]) };
        assert_eq!(convert(t).unwrap().bytes[..], [1, 0]);
        let t = TensorProto { int32_data: vec![0x21, 0x03], ..tensor(ElemType::I4, &[3]) };
        assert_eq!(convert(t).unwrap().bytes[..], [0x21, 0x03]);
        let t = TensorProto { float_data: vec![1.0, 2.0], ..tensor(ElemType::Complex64, &[1]) };
        assert_eq!(convert(t).unwrap().bytes.len(), 8);
        let t = TensorProto { string_data: vec![b"a".to_vec(), vec![]], ..tensor(ElemType::String, &[2]) };
        assert_eq!(convert(t).unwrap().strings, [b"a".to_vec(), vec![]]);
        let t = TensorProto { raw_data: Some(vec![7, 0, 9, 0]), ..tensor(DType::I16, &[2, 1]) };
        assert_eq!(convert(t).unwrap().to_i64s(), Some(vec![7, 9]));
        assert_eq!(convert(tensor(DType::F32, &[0, 3])).unwrap().numel(), 0);
        assert_eq!(convert(tensor(ElemType::String, &[0])).unwrap().numel(), 0);
    }

    #[test]
    fn lengths_must_match() {
        let t = TensorProto { raw_data: Some(vec![0; 7]), ..tensor(DType::F32, &[2]) };
        assert_eq!(complaint(t), "its data is 7 bytes, but float of shape [2] (2 elements) takes 8 bytes");
        let t = TensorProto { float_data: vec![0.0; 3], ..tensor(DType::F32, &[2]) };
        assert_eq!(complaint(t), "its data has 3 entries, but float of shape [2] (2 elements) takes 2");
        assert!(complaint(tensor(DType::F32, &[])).starts_with("it has no data"));
        let t = TensorProto { raw_data: Some(vec![0; 2]), ..tensor(ElemType::String, &[2]) };
        assert_eq!(complaint(t), "strings cannot be stored as raw data");
    }

    #[test]
    fn wrong_dimensions_and_types_are_named() {
        assert!(complaint(tensor(DType::F32, &[3, -1])).contains("dimension -1"));
        for dims in [[1 << 32, 1 << 32, 1], [1 << 62, 4, 0], [0, i64::MAX, 2]] {
            assert!(complaint(tensor(DType::F32, &dims)).contains("element count overflows"), "{dims:?}");
        }
        assert!(complaint(tensor(DType::F64, &[1 << 62])).contains("size overflows"));
        let t = TensorProto { data_type: Some(99), ..Default::default() };
        assert_eq!(complaint(t), "element type 99 is unknown");
        assert_eq!(complaint(TensorProto::default()), "the element type is missing");
        let t = TensorProto { data_location: Some(data_location::EXTERNAL), ..tensor(DType::F32, &[1]) };
        assert!(complaint(t).contains("not loaded"));
    }

    fn sparse(dims: &[i64], values: &[f32], indices: &[i64], index_dims: &[i64]) -> SparseTensorProto {
        SparseTensorProto {
            values: Some(TensorProto { float_data: values.to_vec(), ..tensor(DType::F32, &[values.len() as i64]) }),
            indices: Some(TensorProto { int64_data: indices.to_vec(), ..tensor(DType::I64, index_dims) }),
            dims: dims.to_vec(),
        }
    }

    #[test]
    fn sparse_tensors_become_dense() {
        let want = Some(vec![0.0, 5.0, 0.0, 0.0, 0.0, 7.0]);
        assert_eq!(convert_sparse(sparse(&[2, 3], &[5.0, 7.0], &[1, 5], &[2])).unwrap().to_f64s(), want);
        assert_eq!(convert_sparse(sparse(&[2, 3], &[5.0, 7.0], &[0, 1, 1, 2], &[2, 2])).unwrap().to_f64s(), want);
        assert_eq!(convert_sparse(sparse(&[2], &[5.0], &[1], &[1, 1])).unwrap().to_f64s(), Some(vec![0.0, 5.0]));
        for bad in [
            sparse(&[2, 3], &[5.0], &[6], &[1]),
            sparse(&[2, 3], &[5.0], &[-1], &[1]),
            sparse(&[2, 3], &[5.0], &[0, 3], &[1, 2]),
            sparse(&[2, 3], &[5.0], &[0, 1, 2], &[3]),
            SparseTensorProto::default(),
        ] {
            assert!(matches!(convert_sparse(bad), Err(Reason::Invalid(_))));
        }
        let huge = sparse(&[1 << 40], &[5.0], &[0], &[1]);
        assert!(matches!(convert_sparse(huge), Err(Reason::Unsupported(_))));
    }
}
