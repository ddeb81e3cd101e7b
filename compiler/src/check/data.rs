//! Random inputs, in the forms that both engines take.

use std::ops::Range;

use graphmend_runtime::{DType, TensorRef};
use tract_onnx::prelude::{Tensor, TractResult};

/// A sequence of pseudo-random numbers (splitmix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between -1 and 1.
    fn float(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// One of a range that is not empty.
    fn int(&mut self, range: &Range<i64>) -> i64 {
        range.start.wrapping_add((self.next() % range.start.abs_diff(range.end).max(1)) as i64)
    }
}

/// An input and its elements.
#[derive(Clone)]
pub(super) struct Input {
    shape: Vec<usize>,
    values: Values,
}

#[derive(Clone)]
enum Values {
    Bool(Vec<bool>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F16(Vec<u16>),
    BF16(Vec<u16>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Input {
    /// Random elements for a shape; integers out of a range, cut to the type.
    pub(super) fn random(dtype: DType, shape: &[usize], integers: Range<i64>, random: &mut Random) -> Input {
        let n = 0..shape.iter().product();
        let int = |random: &mut Random| random.int(&integers);
        let values = match dtype {
            DType::Bool => Values::Bool(n.map(|_| random.int(&(0..2)) == 1).collect()),
            DType::I8 => Values::I8(n.map(|_| int(random) as i8).collect()),
            DType::I16 => Values::I16(n.map(|_| int(random) as i16).collect()),
            DType::I32 => Values::I32(n.map(|_| int(random) as i32).collect()),
            DType::I64 => Values::I64(n.map(|_| int(random)).collect()),
            DType::U8 => Values::U8(n.map(|_| int(random) as u8).collect()),
            DType::U16 => Values::U16(n.map(|_| int(random) as u16).collect()),
            DType::U32 => Values::U32(n.map(|_| int(random) as u32).collect()),
            DType::U64 => Values::U64(n.map(|_| int(random) as u64).collect()),
            DType::F16 => Values::F16(n.map(|_| half::f16::from_f64(random.float()).to_bits()).collect()),
            DType::BF16 => Values::BF16(n.map(|_| half::bf16::from_f64(random.float()).to_bits()).collect()),
            DType::F32 => Values::F32(n.map(|_| random.float() as f32).collect()),
            DType::F64 => Values::F64(n.map(|_| random.float()).collect()),
        };
        Input { shape: shape.to_vec(), values }
    }

    /// Sizes, outermost first.
    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// For the packed model.
    pub(super) fn as_ref(&self) -> TensorRef<'_> {
        let s = &self.shape;
        match &self.values {
            Values::Bool(v) => TensorRef::from_bools(v, s),
            Values::I8(v) => TensorRef::new(v, s),
            Values::I16(v) => TensorRef::new(v, s),
            Values::I32(v) => TensorRef::new(v, s),
            Values::I64(v) => TensorRef::new(v, s),
            Values::U8(v) => TensorRef::new(v, s),
            Values::U16(v) => TensorRef::new(v, s),
            Values::U32(v) => TensorRef::new(v, s),
            Values::U64(v) => TensorRef::new(v, s),
            Values::F16(v) => TensorRef { dtype: DType::F16, ..TensorRef::new(v, s) },
            Values::BF16(v) => TensorRef { dtype: DType::BF16, ..TensorRef::new(v, s) },
            Values::F32(v) => TensorRef::new(v, s),
            Values::F64(v) => TensorRef::new(v, s),
        }
    }

    /// For tract.
    pub(super) fn tensor(&self) -> TractResult<Tensor> {
        let s = &self.shape;
        match &self.values {
            Values::Bool(v) => Tensor::from_shape(s, v),
            Values::I8(v) => Tensor::from_shape(s, v),
            Values::I16(v) => Tensor::from_shape(s, v),
            Values::I32(v) => Tensor::from_shape(s, v),
            Values::I64(v) => Tensor::from_shape(s, v),
            Values::U8(v) => Tensor::from_shape(s, v),
            Values::U16(v) => Tensor::from_shape(s, v),
            Values::U32(v) => Tensor::from_shape(s, v),
            Values::U64(v) => Tensor::from_shape(s, v),
            Values::F16(v) => Tensor::from_shape(s, &v.iter().map(|b| half::f16::from_bits(*b)).collect::<Vec<_>>()),
            // tract has no bfloat16; its models would be refused at reading.
            Values::BF16(v) => {
                Tensor::from_shape(s, &v.iter().map(|b| half::bf16::from_bits(*b).to_f32()).collect::<Vec<_>>())
            }
            Values::F32(v) => Tensor::from_shape(s, v),
            Values::F64(v) => Tensor::from_shape(s, v),
        }
    }
}

/// An element type of the file as the compiler's.
pub(super) fn compiler_type(dtype: DType) -> crate::dtype::DType {
    use crate::dtype::DType as D;
    match dtype {
        DType::Bool => D::Bool,
        DType::I8 => D::I8,
        DType::I16 => D::I16,
        DType::I32 => D::I32,
        DType::I64 => D::I64,
        DType::U8 => D::U8,
        DType::U16 => D::U16,
        DType::U32 => D::U32,
        DType::U64 => D::U64,
        DType::F16 => D::F16,
        DType::BF16 => D::BF16,
        DType::F32 => D::F32,
        DType::F64 => D::F64,
    }
}
