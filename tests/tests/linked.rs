//! Models as C source, compiled without a warning, or as objects, linked into a program, give the reference values.

use std::process::Command;

use anyhow::{Context, Result};
use graphmend::compiler::expand::Dim;
use graphmend::compiler::pack::{Options, Product};
use graphmend::compiler::source::{Source, archive, prefix};
use graphmend::{compiler, host};
use graphmend_tests::emulate::succeed;
use graphmend_tests::linked::{Linked, write};
use graphmend_tests::reference::{Case, QUANTIZED, control_models, exported_models};

fn source(case: &Case, target: &str, unroll: Option<usize>, dims: &[(&str, Dim)]) -> Result<Source> {
    pack(case, target, Product::Source(prefix(&case.name)), unroll, dims)
}

fn pack(case: &Case, target: &str, product: Product, unroll: Option<usize>, dims: &[(&str, Dim)]) -> Result<Source> {
    let mut options = Options::new(host::source_target(Some(target))?);
    options.product = product;
    options.unroll = unroll.unwrap_or(options.unroll);
    options.dims = dims.iter().map(|(name, dim)| ((*name).to_owned(), *dim)).collect();
    let packed = compiler::pack_file(case.model(), &options, &mut |_, _, _| {})?;
    packed.source.context("no source")
}

fn check(case: &Case, source: &Source, sets: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = Linked::new(source, folder.path(), &["cc", "-O1"], &[])?;
    for set in 0..case.sets.min(sets) {
        let outputs = program.arrays(&case.inputs(set)?, &case.expected(set)?)?;
        let share = case.check(set, &outputs)?;
        println!("{} set {set}: {:.1} % of the tolerance", case.name, share * 100.0);
    }
    Ok(())
}

/// With vectors, and as for a microcontroller: scalars, 32-bit indices.
fn gives_the_reference(name: &str) -> Result<()> {
    let case = Case::load(name)?;
    for target in ["x86-64", "cortex-m4f"] {
        check(&case, &source(&case, target, None, &[])?, 3).with_context(|| format!("{name} for {target}"))?;
    }
    Ok(())
}

#[test]
fn layers_as_c_give_the_reference() -> Result<()> {
    gives_the_reference("mlp")?;
    gives_the_reference("mlp_dyn")
}

#[test]
fn voice_activity_as_c_gives_the_reference() -> Result<()> {
    gives_the_reference("silero_vad")?;
    gives_the_reference("silero_vad_8k")
}

#[test]
fn convolutions_as_c_give_the_reference() -> Result<()> {
    gives_the_reference("squeezenet1_1")?;
    gives_the_reference("ppocr_cls")?;
    // Its weights make a large text: once.
    let case = Case::load("mobilenet_v2")?;
    check(&case, &source(&case, "x86-64", None, &[])?, 1)
}

#[test]
fn file_types_as_c_give_the_reference() -> Result<()> {
    gives_the_reference("magika")
}

#[test]
fn integers_as_c_give_the_reference() -> Result<()> {
    QUANTIZED.iter().try_for_each(|name| gives_the_reference(name))
}

#[test]
fn transformers_as_c_give_the_reference() -> Result<()> {
    for name in exported_models()? {
        let case = Case::load(&name)?;
        check(&case, &source(&case, "x86-64", None, &[])?, 1).with_context(|| name)?;
    }
    Ok(())
}

/// Every third of the random models with control flow, loops kept.
#[test]
fn control_flow_as_c_gives_the_reference() -> Result<()> {
    for name in control_models()?.iter().step_by(3) {
        let case = Case::load(name)?;
        check(&case, &source(&case, "rv32imac", Some(0), &[])?, case.sets).with_context(|| name.clone())?;
    }
    Ok(())
}

fn object(case: &Case, target: &str, unroll: Option<usize>, dims: &[(&str, Dim)]) -> Result<Source> {
    pack(case, target, Product::Object(prefix(&case.name)), unroll, dims)
}

#[test]
fn objects_of_models_give_the_reference() -> Result<()> {
    for name in ["mlp", "mlp_dyn", "silero_vad", "squeezenet1_1", "quantized"] {
        let case = Case::load(name)?;
        for target in ["x86-64", "native"] {
            check(&case, &object(&case, target, None, &[])?, 3).with_context(|| format!("{name} for {target}"))?;
        }
    }
    Ok(())
}

/// Every third of the random models with control flow, loops kept.
#[test]
fn control_flow_in_objects_gives_the_reference() -> Result<()> {
    for name in control_models()?.iter().skip(1).step_by(3) {
        let case = Case::load(name)?;
        check(&case, &object(&case, "x86-64-v3", Some(0), &[])?, case.sets).with_context(|| name.clone())?;
    }
    Ok(())
}

/// A library of an object is what a linker takes, on its own and in several programs' languages.
#[test]
fn a_library_of_an_object_is_linked_by_its_index() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = |file: &str| folder.path().join(file);
    let source = object(&Case::load("mlp")?, "x86-64", None, &[])?;
    write(&source, folder.path())?;
    let made = &source.object.as_ref().context("no object")?.bytes;
    std::fs::write(at("libmlp.a"), archive("mlp", made))?;
    let program = "#include \"mlp.h\"\n#include <stdio.h>\n\
                   int main(void) { return puts(mlp_explain(MLP_ARENA_UNALIGNED)) + puts(mlp_explain(77)) == 0 || \
                   mlp_run((char *)0 + 1, MLP_ARENA_BYTES, 0, 0) != MLP_ARENA_UNALIGNED || \
                   mlp_run(0, MLP_ARENA_BYTES - 1, 0, 0) != MLP_ARENA_TOO_SMALL; }\n";
    std::fs::write(at("main.c"), program)?;
    let mut link = Command::new("cc");
    succeed(link.arg(at("main.c")).arg("-L").arg(folder.path()).args(["-lmlp", "-o"]).arg(at("program")))?;
    let said = String::from_utf8(succeed(&mut Command::new(at("program")))?.stdout)?;
    assert_eq!(said, "the arena's address is not a multiple of the alignment\nunknown status\n");
    Ok(())
}

#[test]
fn sizes_that_a_model_does_not_take_are_refused() -> Result<()> {
    let case = Case::load("mlp_dyn")?;
    let folder = tempfile::tempdir()?;
    let dims = [("batch", Dim::Range(1, 4))];
    for source in [source(&case, "cortex-m4f", None, &dims)?, object(&case, "x86-64", None, &dims)?] {
        let program = Linked::new(&source, folder.path(), &["cc", "-O1"], &[])?;
        let beyond =
            (0..case.sets).find(|&set| case.inputs(set).is_ok_and(|i| i[0].shape[0] > 4)).context("a large set")?;
        let error = program.run(&case.inputs(beyond)?).expect_err("too large a batch").to_string();
        assert!(error.contains("an input has a size that the model does not take"), "{error}");
    }
    Ok(())
}

/// Two models in one program in Rust, one with sizes that are not fixed.
#[test]
fn rust_modules_of_two_models_give_the_reference() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = |file: &str| folder.path().join(file);
    let (fixed, open) = (Case::load("mlp")?, Case::load("mlp_dyn")?);
    for case in [&fixed, &open] {
        let source = source(case, "native", None, &[])?;
        write(&source, folder.path())?;
        let (c, o) = (at(&format!("{}.c", source.name)), at(&format!("{}.o", source.name)));
        succeed(Command::new("cc").args(["-std=c99", "-O1", "-c"]).arg(c).arg("-o").arg(o))?;
    }
    succeed(Command::new("ar").arg("rcs").arg(at("libmodels.a")).arg(at("mlp.o")).arg(at("mlp_dyn.o")))?;
    let floats = |bytes: &[u8]| -> Vec<String> {
        bytes.as_chunks::<4>().0.iter().map(|b| format!("{:?}", f32::from_le_bytes(*b))).collect()
    };
    let (x, y) = (fixed.inputs(0)?.remove(0), open.inputs(0)?.remove(0));
    let program = format!(
        "#![deny(warnings)]
#![allow(dead_code)]
#[path = \"mlp.rs\"]
mod mlp;
#[path = \"mlp_dyn.rs\"]
mod mlp_dyn;

fn main() {{
    let mut arena: mlp::Arena = mlp::Arena::new();
    let out = mlp::run(&mut arena, &[{}]).unwrap();
    let (x, shape) = ([{}], {:?});
    let mut small: mlp_dyn::Arena = mlp_dyn::Arena::new();
    if let Err(error) = mlp_dyn::run(&mut small, (&x, shape)) {{
        assert!(matches!(error, mlp_dyn::Error::ArenaTooSmall(n) if n > mlp_dyn::ARENA_BYTES as u64), \"{{error:?}}\");
    }}
    let wrong = mlp_dyn::run(&mut small, (&x[1..], shape)).unwrap_err();
    assert_eq!(wrong, mlp_dyn::Error::Shape);
    let mut large = mlp_dyn::Arena::<1000000>::new();
    let open = mlp_dyn::run(&mut large, (&x, shape)).unwrap();
    print!(\"{{:?}} {{:?}} {{:?}}\", out.y, open.y.0, open.y.1);
}}
",
        floats(&x.bytes).join(", "),
        floats(&y.bytes).join(", "),
        y.shape,
    );
    std::fs::write(at("main.rs"), program)?;
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--edition", "2024", "-o"]).arg(at("program")).arg(at("main.rs"));
    succeed(command.arg("-L").arg(folder.path()).args(["-l", "static=models"]))?;
    let printed = String::from_utf8(succeed(&mut Command::new(at("program")))?.stdout)?;
    let numbers = |text: &str| -> Vec<f32> {
        text.split(|c: char| !"0123456789.e-+".contains(c)).filter_map(|word| word.parse().ok()).collect()
    };
    let (want_fixed, want_open) = (fixed.expected(0)?.remove(0), open.expected(0)?.remove(0));
    let want: Vec<f64> =
        want_fixed.numbers().chain(want_open.numbers()).chain(want_open.shape.iter().map(|n| *n as f64)).collect();
    let got = numbers(&printed);
    assert_eq!(got.len(), want.len(), "{printed}");
    for (got, want) in got.iter().zip(&want) {
        assert!((f64::from(*got) - want).abs() <= 1e-4 * want.abs().max(1.0), "{got}, not {want}");
    }
    Ok(())
}
