//! Operators on tensors of strings.

use super::strings::{Text, is_text};
use super::testing::call;
use super::{AttrValue, Call, expand};
use crate::sym::Int;
use crate::te::{Cx, OpError, TensorId, eval};

fn list(cx: &mut Cx, strings: &[&str]) -> TensorId {
    Text::list(cx, &strings.iter().map(|s| s.to_string()).collect::<Vec<_>>()).id()
}

/// The strings of a tensor, or its numbers as text.
fn shown(cx: &Cx, t: TensorId) -> Vec<String> {
    let made = eval::run(&cx.program, &[], &[t]).expect("evaluates").remove(0);
    if !is_text(cx, t) {
        return made.bits.iter().map(|b| eval::number(made.dtype, *b).to_string()).collect();
    }
    let width = *made.shape.last().expect("bytes");
    let string = |row: &[u64]| String::from_utf8(row.iter().map(|b| *b as u8).filter(|b| *b != 0).collect());
    made.bits.chunks(width).map(|row| string(row).expect("UTF-8")).collect()
}

fn ml(op: &str, x: TensorId, attrs: &[(&str, AttrValue)]) -> Call {
    Call { domain: "ai.onnx.ml".into(), ..call(op, 4, &[Some(x)], attrs, 1) }
}

fn texts(list: &[&str]) -> AttrValue {
    AttrValue::Strs(list.iter().map(|s| s.to_string()).collect())
}

#[test]
fn moved_strings_stay_whole() {
    let mut cx = Cx::new();
    let x = list(&mut cx, &["one", "", "three", "vier", "é", "six"]);
    let shape = cx.constant_i64(&[2], &[2, 3]);
    let grid = expand(&mut cx, &call("Reshape", 14, &[Some(x), Some(shape)], &[], 1)).expect("legal")[0];
    assert_eq!(cx.shape(grid), [2, 3, 5].map(Int::new), "two rows of three strings of five bytes");
    let turned = expand(&mut cx, &call("Transpose", 13, &[Some(grid)], &[], 1)).expect("legal")[0];
    assert_eq!(shown(&cx, turned), ["one", "vier", "", "é", "three", "six"]);
    let which = cx.constant_i64(&[2], &[-1, 0]);
    let picked = expand(&mut cx, &call("Gather", 13, &[Some(x), Some(which)], &[], 1)).expect("legal")[0];
    assert_eq!(shown(&cx, picked), ["six", "one"]);
    let long = list(&mut cx, &["a long one"]);
    let axis = [("axis", AttrValue::Int(-1))];
    let joined = expand(&mut cx, &call("Concat", 13, &[Some(picked), Some(long)], &axis, 1)).expect("legal")[0];
    assert_eq!(shown(&cx, joined), ["six", "one", "a long one"]);
    let size = expand(&mut cx, &call("Shape", 15, &[Some(grid)], &[], 1)).expect("legal")[0];
    assert_eq!(cx.const_ints(size), Some(vec![2, 3]), "the bytes are no axis of the model's");
}

#[test]
fn strings_are_chosen_and_compared() {
    let mut cx = Cx::new();
    let (a, b) = (list(&mut cx, &["a", "longer", "c"]), list(&mut cx, &["b"]));
    let same = list(&mut cx, &["b", "longer", "cc"]);
    let condition = expand(&mut cx, &call("Equal", 19, &[Some(a), Some(same)], &[], 1)).expect("legal")[0];
    assert_eq!(shown(&cx, condition), ["0", "1", "0"]);
    let y = expand(&mut cx, &call("Where", 16, &[Some(condition), Some(a), Some(b)], &[], 1)).expect("legal")[0];
    assert_eq!(shown(&cx, y), ["b", "longer", "b"]);
    let sum = expand(&mut cx, &call("Add", 14, &[Some(a), Some(b)], &[], 1));
    assert!(matches!(sum, Err(OpError::Unsupported(_))), "{sum:?}");
}

#[test]
fn labels_map_between_strings_and_numbers() {
    let mut cx = Cx::new();
    let x = list(&mut cx, &["b", "none", "a"]);
    let keys = ("keys_strings", texts(&["a", "b", "a"]));
    let to_ints =
        [keys.clone(), ("values_int64s", AttrValue::Ints(vec![7, 8, 9])), ("default_int64", AttrValue::Int(-5))];
    let y = expand(&mut cx, &ml("LabelEncoder", x, &to_ints)).expect("legal")[0];
    assert_eq!(shown(&cx, y), ["8", "-5", "7"], "the first of equal keys counts");
    let to_strings = [keys.clone(), ("values_strings", texts(&["x", "yy", "z"]))];
    let y = expand(&mut cx, &ml("LabelEncoder", x, &to_strings)).expect("legal")[0];
    assert_eq!(shown(&cx, y), ["yy", "_Unused", "x"]);
    let numbers = cx.constant_f32(&[3], &[f32::NAN, 1.5, 2.0]);
    let back = [("keys_floats", AttrValue::Floats(vec![1.5, f32::NAN])), ("values_strings", texts(&["half", "nan"]))];
    let y = expand(&mut cx, &ml("LabelEncoder", numbers, &back)).expect("legal")[0];
    assert_eq!(shown(&cx, y), ["nan", "half", "_Unused"]);
    let uneven = [keys, ("values_int64s", AttrValue::Ints(vec![7]))];
    assert!(matches!(expand(&mut cx, &ml("LabelEncoder", x, &uneven)), Err(OpError::Invalid(_))));
}

#[test]
fn categories_are_their_numbers_both_ways() {
    let mut cx = Cx::new();
    let attrs = [("cats_strings", texts(&["cat", "dog"])), ("cats_int64s", AttrValue::Ints(vec![3, 1]))];
    let x = list(&mut cx, &["dog", "cow", "cat"]);
    let y = expand(&mut cx, &ml("CategoryMapper", x, &attrs)).expect("legal")[0];
    assert_eq!(shown(&cx, y), ["1", "-1", "3"]);
    let x = cx.constant_i64(&[3], &[3, 2, 1]);
    let y = expand(&mut cx, &ml("CategoryMapper", x, &attrs)).expect("legal")[0];
    assert_eq!(shown(&cx, y), ["cat", "_Unused", "dog"]);
}

#[test]
fn the_longest_string_decides_the_bytes_of_a_constant() {
    let (width, bytes) = super::stored_strings(&[b"ab".to_vec(), vec![], b"c".to_vec()]);
    assert_eq!((width, bytes.as_slice()), (2, &b"ab\0\0c\0"[..]));
    assert_eq!(super::stored_strings(&[]), (1, vec![]), "an axis of no size would hold no string");
}

#[test]
fn numbers_are_written_with_eight_digits_and_read_again() {
    let mut cx = Cx::new();
    let floats: [(f32, &str); 17] = [
        (1.5, "1.5"),
        (0.0, "0"),
        (-0.0, "-0"),
        (1e-4, "9.9999997e-05"),
        (0.0125, "0.0125"),
        (123_456_789.0, "1.2345679e+08"),
        (12_345_678.0, "12345678"),
        (-1e20, "-1e+20"),
        (core::f32::consts::PI, "3.1415927"),
        (f32::NAN, "NaN"),
        (f32::INFINITY, "INF"),
        (f32::NEG_INFINITY, "-INF"),
        (1e-45, "1.4012985e-45"),
        (f32::MAX, "3.4028235e+38"),
        (100.0, "100"),
        (0.999_999_94, "0.99999994"),
        // A quarter, written to the nearest even digit.
        (1_234_567.3, "1234567.2"),
    ];
    let values: Vec<f32> = floats.iter().map(|(v, _)| *v).collect();
    let x = cx.constant_f32(&[values.len()], &values);
    let to = |code: i64| [("to", AttrValue::Int(code))];
    let y = expand(&mut cx, &call("Cast", 21, &[Some(x)], &to(8), 1)).expect("legal")[0];
    assert_eq!(shown(&cx, y), floats.map(|(_, s)| s));
    let back = expand(&mut cx, &call("Cast", 21, &[Some(y)], &to(1), 1)).expect("legal")[0];
    let made = eval::run(&cx.program, &[], &[back]).expect("evaluates").remove(0);
    for (bits, v) in made.bits.iter().zip(values) {
        let got = f32::from_bits(*bits as u32);
        assert!((got - v).abs() <= v.abs() * 1e-7 || got == v || (got.is_nan() && v.is_nan()), "{got} for {v}");
    }
    let whole = cx.constant_i64(&[4], &[i64::MIN, 0, -12, i64::MAX]);
    let y = expand(&mut cx, &call("Cast", 21, &[Some(whole)], &to(8), 1)).expect("legal")[0];
    assert_eq!(shown(&cx, y), ["-9223372036854775808", "0", "-12", "9223372036854775807"]);
    let back = expand(&mut cx, &call("CastLike", 21, &[Some(y), Some(whole)], &[], 1)).expect("legal")[0];
    let made = eval::run(&cx.program, &[], &[back]).expect("evaluates").remove(0);
    assert_eq!(made.bits, [i64::MIN, 0, -12, i64::MAX].map(|v| v as u64));
}

#[test]
fn double_precision_is_written_with_eight_digits_rounded_once() {
    let mut cx = Cx::new();
    let list: [(f64, &str); 11] = [
        (0.1, "0.1"),
        (-0.0, "-0"),
        (5e-324, "4.9406565e-324"),
        (f64::MAX, "1.7976931e+308"),
        (-1e100, "-1e+100"),
        (f64::NEG_INFINITY, "-INF"),
        // Nine digits, the last a five: binary, the first lies below the half and the second above it; the third is a half.
        (1.234_567_85, "1.2345678"),
        (1.234_567_05, "1.2345671"),
        (12_345_678.5, "12345678"),
        (1.234_567_85e-200, "1.2345678e-200"),
        (9.999_999_95e200, "1e+201"),
    ];
    let bytes = list.iter().flat_map(|(v, _)| v.to_le_bytes()).collect();
    let x = cx.constant(crate::dtype::DType::F64, &[list.len()], bytes);
    let y = expand(&mut cx, &call("Cast", 21, &[Some(x)], &[("to", AttrValue::Int(8))], 1)).expect("legal")[0];
    assert_eq!(shown(&cx, y), list.map(|(_, s)| s));
}

#[test]
fn strings_are_unique_in_their_own_order_or_that_of_their_appearance() {
    let words = ["b", "a", "", "ab", "a", "b"];
    for (sorted, want) in [(1, ["", "a", "ab", "b"]), (0, ["b", "a", "", "ab"])] {
        let mut cx = Cx::new();
        let x = list(&mut cx, &words);
        let attrs = [("sorted", AttrValue::Int(sorted))];
        let made = expand(&mut cx, &call("Unique", 11, &[Some(x)], &attrs, 4)).expect("legal");
        assert_eq!(shown(&cx, made[0]), want);
        let counts = want.map(|w| words.iter().filter(|x| **x == w).count().to_string());
        assert_eq!(shown(&cx, made[3]), counts);
    }
}

#[test]
fn letters_beyond_ascii_have_cases_and_what_is_no_letter_stays() {
    let mut cx = Cx::new();
    let x = list(&mut cx, &["ñandú", "Ⱥx", "日本", "привет"]);
    for (action, want) in [("UPPER", ["ÑANDÚ", "ȺX", "日本", "ПРИВЕТ"]), ("LOWER", ["ñandú", "ⱥx", "日本", "привет"])]
    {
        let attrs = [("case_change_action", AttrValue::Str(action.into()))];
        let y = expand(&mut cx, &call("StringNormalizer", 10, &[Some(x)], &attrs, 1)).expect("legal")[0];
        assert_eq!(shown(&cx, y), want);
    }
    let stop = [("stopwords", texts(&["ÑANDÚ"])), ("is_case_sensitive", AttrValue::Int(0))];
    let y = expand(&mut cx, &call("StringNormalizer", 10, &[Some(x)], &stop, 1)).expect("legal")[0];
    assert_eq!(shown(&cx, y), ["Ⱥx", "日本", "привет"]);
}

#[test]
fn strings_are_read_as_numbers_in_plain_and_scientific_form_and_nothing_else_is() {
    let to = |code: i64| [("to", AttrValue::Int(code))];
    let read = |list: &[&str], code: i64| {
        let mut cx = Cx::new();
        let x = self::list(&mut cx, list);
        let y = expand(&mut cx, &call("Cast", 21, &[Some(x)], &to(code), 1)).expect("legal")[0];
        let made = eval::run(&cx.program, &[], &[y])?.remove(0);
        Ok::<_, String>(made.bits.iter().map(|b| eval::number(made.dtype, *b)).collect::<Vec<_>>())
    };
    let plain = ["1.5", "-1e-5", " 2 ", "+1E8", ".5", "5.", "-Infinity", "1e400", "2.5e-400", "314.15926"];
    let want = [1.5, -1e-5, 2.0, 1e8, 0.5, 5.0, f64::NEG_INFINITY, f64::INFINITY, 0.0, 314.15926];
    assert_eq!(read(&plain, 11), Ok(want.to_vec()));
    assert!(read(&["nan"], 1).is_ok_and(|v| v[0].is_nan()));
    assert_eq!(read(&["3.7", "-12", "0007", "1e2"], 7), Ok(vec![3.0, -12.0, 7.0, 100.0]));
    assert_eq!(read(&["0", "-0.0", "2"], 9), Ok(vec![0.0, 0.0, 1.0]));
    for wrong in ["abc", "", "1.5x", "1e", ".", "1 2", "--1"] {
        assert!(read(&["1", wrong], 1).is_err(), "{wrong}");
    }
    assert!(read(&["inf"], 7).is_err());
}
