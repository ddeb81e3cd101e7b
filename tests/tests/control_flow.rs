//! Random models with nested control flow, made by `tests/reference/control.py`: the outputs are those of onnxruntime,
//! whether loops are kept or written out.

use anyhow::{Context, Result};
use graphmend::compiler::mend::UNROLL;
use graphmend::compiler::pack::Options;
use graphmend::{Model, Trust, compiler, host};
use graphmend_tests::reference::{Case, control_models, run};

fn check(name: &str, unroll: usize) -> Result<()> {
    let case = Case::load(name)?;
    let mut options = Options::new(host::target(None)?);
    options.unroll = unroll;
    let packed = compiler::pack_file(case.model(), &options, &mut |_, _, _| {})?;
    let model = Model::from_bytes(&packed.bytes, Trust::Unsigned)?;
    let mut session = model.session()?;
    // The first set once more at the end: what a run leaves behind must not show.
    for set in (0..case.sets).chain([0]) {
        case.check(set, &run(&model, &mut session, &case.inputs(set)?)?)?;
    }
    Ok(())
}

fn check_all(unroll: usize) -> Result<()> {
    for name in control_models()? {
        check(&name, unroll).with_context(|| format!("{name} with --unroll {unroll}"))?;
    }
    Ok(())
}

#[test]
fn loops_that_are_kept_give_the_reference() -> Result<()> {
    check_all(0)
}

#[test]
fn loops_that_are_written_out_give_the_reference() -> Result<()> {
    check_all(UNROLL)
}

#[test]
fn loops_of_which_some_are_written_out_give_the_reference() -> Result<()> {
    check_all(60)
}
