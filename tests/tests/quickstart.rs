//! The quick start's model over the whole recording gives onnxruntime's probability in every window.

use anyhow::Result;
use graphmend::compiler::pack::Options;
use graphmend::{Model, Trust, compiler, host};
use graphmend_tests::{quickstart, vad};

#[test]
fn every_window_has_the_reference_probability() -> Result<()> {
    let options = Options::new(host::target(None)?);
    let packed = compiler::pack_file(quickstart("silero_vad.onnx"), &options, &mut |_, _, _| {})?;
    assert!(packed.summary.splits_before > 0, "the model has control flow");
    assert_eq!(packed.summary.splits_after, 0, "{}", packed.report);
    let model = Model::from_bytes(&packed.bytes, Trust::Unsigned)?;
    let expected = vad::expected()?;
    assert!(expected.len() > 200, "{} windows", expected.len());
    let got = vad::probabilities(&model, &vad::samples()?)?;
    let worst = vad::largest_difference(&got, &expected)?;
    println!("{} windows, largest difference {worst:.2e}", got.len());
    assert!(worst <= 1e-4, "{worst}");
    Ok(())
}
