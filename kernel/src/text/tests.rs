use super::*;
use crate::dtype::DType;
use crate::ir::{Buf, Imm, Op, Reg, Stmt, Type, Var};
use crate::verify::verify;

/// One of everything.
const SAMPLE: &str = r#"kernel "a \"b\" \\ c\nd" tiled {
  b0: read f32
  b1: write f16
  b2: read bool
  scalars 2
  v0: f32x4
  v1: i64
  %0: i64 = tile.lo
  %1: i64 = tile.hi
  %2: i64 = scalar 1
  %3: i64 = const -9223372036854775808
  %4: u64 = const 18446744073709551615
  %5: i8x3 = const -128
  %6: f32x4 = const 0.1
  %7: f64 = const -1e-300
  %8: f32 = const nan:0x7fc00001
  %9: f64 = const -inf
  %10: f32 = const -0.0
  %11: bool = const true
  %12: f32x4 = load b0[%0 + 16]
  %13: f32x4 = load b0[%0 - 9223372036854775808]
  %14: f32x4 = fma %12, %13, %6
  %15: boolx4 = lt %14, %6
  %16: f32x4 = select %15, %14, %6
  %17: f32x4 = cast bf16 %16
  %18: i32x4 = cast %17
  %19: f32x4 = bitcast %18
  %20: f32 = extract %19[3]
  %21: f32x4 = insert %19[2], %20
  %22: f32x2 = shuffle %21, %19 [0, 7]
  %23: f32x2 = splat %20
  %24: i32x4 = iota
  %25: f32 = hmax %22
  %26: f32x2 = sqrt %23
  %27: bool = load b2[%2]
  v0 = %14
  for %28 in %0..%1 step 8 {
    %29: f32x4 = get v0
    %30: i64 = shl %28, %2
    store b1[%30] = %29
    if %27 {
      return 1
    } else {
      store b1[%28 - 3] = %20
    }
  }
  if %11 {
    v1 = %0
  }
  while {
    %31: i64 = get v1
    %32: bool = ne %31, %1
  } %32 {
    v1 = %1
  }
}
"#;

#[test]
fn text_of_every_form_reads_back_to_itself() {
    let kernel = parse(SAMPLE).unwrap();
    assert_eq!(verify(&kernel), Ok(()));
    assert_eq!(kernel.to_string(), SAMPLE);
    assert_eq!(kernel.name, "a \"b\" \\ c\nd");
    assert_eq!(parse(&kernel.to_string()), Ok(kernel));
}

#[test]
fn statements_mean_what_they_say() {
    let kernel = parse(SAMPLE).unwrap();
    assert_eq!(kernel.regs[5], Type { elem: DType::I8, lanes: 3 });
    assert_eq!(kernel.body[5], Stmt::Let(Reg(5), Op::Const(Imm { elem: DType::I8, bits: 0x80 }, 3)));
    assert_eq!(kernel.body[12], Stmt::Let(Reg(12), Op::Load { buf: Buf(0), index: Reg(0), disp: 16, lanes: 4 }));
    assert_eq!(kernel.body[17], Stmt::Let(Reg(17), Op::Cast(DType::BF16, Reg(16))));
    assert_eq!(kernel.body[28], Stmt::Set(Var(0), Reg(14)));
    let Stmt::For { ivar: Reg(28), lo: Reg(0), hi: Reg(1), step: 8, body } = &kernel.body[29] else {
        panic!("{:?}", kernel.body[29])
    };
    assert_eq!(body[2], Stmt::Store { buf: Buf(1), index: Reg(30), disp: 0, value: Reg(29) });
}

#[test]
fn every_operation_word_reads_back() {
    let mut text = String::from("kernel \"ops\" {\n  b0: read u8\n  %0: i64 = const 1\n");
    text.push_str("  %1: u32 = words b0[%0 + 1]\n  %2: i32 = const -1\n");
    let mut next = 3;
    let mut line = |rest: String| {
        text.push_str(&format!("  %{next}: {rest}\n"));
        next += 1;
    };
    UN_OPS.iter().for_each(|(_, word)| line(format!("i64 = {word} %0")));
    BIN_OPS.iter().for_each(|(_, word)| line(format!("i64 = {word} %0, %0")));
    CMPS.iter().for_each(|(_, word)| line(format!("bool = {word} %0, %0")));
    HORIZONTALS.iter().for_each(|(_, word)| line(format!("i64 = {word} %0")));
    DOTS.iter().for_each(|(_, word)| line(format!("i32 = {word} %1, %1, %2")));
    text.push_str("}\n");
    assert_eq!(parse(&text).unwrap().to_string(), text);
}

#[test]
fn comments_and_layout_do_not_matter() {
    let dense = parse("kernel \"k\"{%0:i64=const 3//x\n%1:i64=add %0,%0}").unwrap();
    assert_eq!(dense.to_string(), "kernel \"k\" {\n  %0: i64 = const 3\n  %1: i64 = add %0, %0\n}\n");
}

#[test]
fn syntax_errors_name_line_and_expectation() {
    for (text, line, reason) in [
        ("", 1, "expected `kernel`, found the end"),
        ("kernel k {}", 1, "name in quotes"),
        ("kernel \"k\" {\n%0: i64 = frob 1 }", 2, "expected an operation, found `frob`"),
        ("kernel \"k\" {\n\n%0: i65 = const 1 }", 3, "expected a type"),
        ("kernel \"k\" {\n%0: i8 = const 128 }", 2, "128 is no i8"),
        ("kernel \"k\" {\n%1: i8 = const 1 }", 2, "%0 is not defined"),
        ("kernel \"k\" { b1: read f32 }", 1, "the next buffer is b0"),
        ("kernel \"k\" { } }", 1, "after the kernel"),
        ("kernel \"k {\n}", 1, "a string without end"),
        ("kernel \"k\" { for %0 in %1.%2 step 1 { } }", 1, "expected `.`"),
        ("kernel \"k\" { return -1 }", 1, "expected a status"),
        ("kernel \"k\" { %99999999999: i64 = const 0 }", 1, "no register"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.reason.contains(reason), "{text}: {error}");
    }
    let deep = format!("kernel \"k\" {{ {}", "if %0 { ".repeat(100_000));
    assert!(parse(&deep).unwrap_err().reason.contains("nested deeper"));
}

#[test]
fn truncated_text_never_parses() {
    let end = SAMPLE.rfind('}').unwrap();
    for cut in (0..end).filter(|cut| SAMPLE.is_char_boundary(*cut)) {
        assert!(parse(&SAMPLE[..cut]).is_err(), "{}", &SAMPLE[..cut]);
    }
}
