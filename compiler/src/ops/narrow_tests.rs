use super::AttrValue::{Int as I, Str};
use super::testing::call;
use super::{expand, unpack};
use crate::dtype::DType;
use crate::graph::ElemType;
use crate::sym::Int;
use crate::te::eval::{self, Array};
use crate::te::{Cx, OpError, TensorId};

fn input(cx: &mut Cx, elem: ElemType, dtype: DType, n: usize) -> TensorId {
    let t = cx.input("x", dtype, vec![Int::from(n)]);
    cx.narrow.insert(t, elem);
    t
}

fn cast(cx: &mut Cx, x: TensorId, to: i32, attrs: &[(&str, super::AttrValue)]) -> TensorId {
    let attrs = [&[("to", I(to.into()))], attrs].concat();
    expand(cx, &call("Cast", 24, &[Some(x)], &attrs, 1)).unwrap()[0]
}

fn floats(a: &Array) -> Vec<f32> {
    a.bits.iter().map(|b| f32::from_bits(*b as u32)).collect()
}

/// Every code of `elem`, as `f32` and converted back.
fn round_trip(elem: ElemType, codes: usize) -> (Vec<f32>, Vec<u8>) {
    let mut cx = Cx::new();
    let x = input(&mut cx, elem, DType::U8, codes);
    let wide = cast(&mut cx, x, 1, &[]);
    let back = cast(&mut cx, wide, elem.code(), &[]);
    let all: Vec<u8> = (0..codes).map(|c| c as u8).collect();
    let out = eval::run(&cx.program, &[Array::from_bytes(DType::U8, vec![codes], &all)], &[wide, back]).unwrap();
    (floats(&out[0]), out[1].bytes())
}

#[test]
fn every_code_survives_conversion_to_f32_and_back() {
    let formats = [
        (ElemType::F8E4M3FN, 256, 448.0, 2f32.powi(-9), 2),
        (ElemType::F8E4M3FNUZ, 256, 240.0, 2f32.powi(-10), 1),
        (ElemType::F8E5M2, 256, 57344.0, 2f32.powi(-16), 6),
        (ElemType::F8E5M2FNUZ, 256, 57344.0, 2f32.powi(-17), 1),
        (ElemType::F8E8M0, 256, 2f32.powi(127), 2f32.powi(-127), 1),
        (ElemType::F6E2M3, 64, 7.5, 0.125, 0),
        (ElemType::F6E3M2, 64, 28.0, 0.0625, 0),
        (ElemType::F4E2M1, 16, 6.0, 0.5, 0),
    ];
    for (elem, codes, largest, smallest, nans) in formats {
        let (values, back) = round_trip(elem, codes);
        let finite = || values.iter().filter(|v| v.is_finite());
        assert_eq!(finite().fold(0f32, |m, v| m.max(*v)), largest, "{elem}");
        assert_eq!(finite().filter(|v| **v > 0.0).fold(f32::INFINITY, |m, v| m.min(*v)), smallest, "{elem}");
        assert_eq!(values.iter().filter(|v| v.is_nan()).count(), nans, "{elem}");
        for (code, value) in values.iter().enumerate().filter(|(_, v)| v.is_finite()) {
            assert_eq!(back[code] as usize, code, "{elem} {value}");
        }
    }
}

#[test]
fn numbers_round_to_even_and_saturate_as_asked() {
    let encode = |elem: ElemType, attrs: &[_], values: &[f32]| {
        let mut cx = Cx::new();
        let x = cx.input("x", DType::F32, vec![Int::from(values.len())]);
        let y = cast(&mut cx, x, elem.code(), attrs);
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let out = eval::run(&cx.program, &[Array::from_bytes(DType::F32, vec![values.len()], &bytes)], &[y]).unwrap();
        out[0].bytes()
    };
    // 17 and 19 lie between 16, 18 and 20.
    assert_eq!(
        encode(ElemType::F8E4M3FN, &[], &[17.0, 19.0, 1e9, -1e9, f32::INFINITY]),
        [0x58, 0x5a, 0x7e, 0xfe, 0x7e]
    );
    assert_eq!(encode(ElemType::F8E4M3FN, &[("saturate", I(0))], &[1e9, -1e9]), [0x7f, 0xff]);
    assert_eq!(encode(ElemType::F8E5M2, &[("saturate", I(0))], &[1e9, f32::NEG_INFINITY]), [0x7c, 0xfc]);
    assert_eq!(encode(ElemType::F8E4M3FNUZ, &[], &[-0.0, -1e-9, f32::NAN]), [0, 0, 0x80]);
    let mode = |m: &str| encode(ElemType::F8E8M0, &[("round_mode", Str(m.into()))], &[1.0, 1.4, 1.5, 1.6]);
    assert_eq!((mode("up"), mode("down")), (vec![127, 128, 128, 128], vec![127; 4]));
    assert_eq!(mode("nearest"), [127, 127, 128, 128]);
    assert_eq!(encode(ElemType::I4, &[], &[-9.0, 7.9, 8.0]), [7, 7, 0xf8]);
    assert_eq!(encode(ElemType::U2, &[], &[-1.0, 5.0]), [3, 1]);
}

#[test]
fn packed_elements_come_out_low_bits_first() {
    assert_eq!(unpack(ElemType::I4, 3, &[0x8f, 0x07]).unwrap(), [0xff, 0xf8, 7]);
    assert_eq!(unpack(ElemType::U2, 4, &[0b1110_0100]).unwrap(), [0, 1, 2, 3]);
    assert_eq!(unpack(ElemType::U4, 3, &[0]), None);
}

#[test]
fn movements_carry_narrow_types_and_arithmetic_refuses_them() {
    let mut cx = Cx::new();
    let x = input(&mut cx, ElemType::I4, DType::I8, 6);
    let y = expand(&mut cx, &call("Transpose", 25, &[Some(x)], &[], 1)).unwrap()[0];
    assert_eq!(cx.narrow.get(&y), Some(&ElemType::I4));
    let add = expand(&mut cx, &call("Add", 14, &[Some(x), Some(y)], &[], 1));
    assert_eq!(add, Err(OpError::Unsupported("element type int4".into())));
}
