//! Real models, packed for this machine, give the outputs that onnxruntime gives.

use anyhow::Result;
use graphmend::compiler::expand::Dim;
use graphmend::compiler::pack::{Options, Packed};
use graphmend::npy::Array;
use graphmend::{Model, Trust, compiler, host};
use graphmend_tests::compare::compare;
use graphmend_tests::reference::{CONTROL, Case, EXPORTED, MODELS, exported_models, folder, run};

fn pack(case: &Case, dims: &[(&str, Dim)]) -> Result<Packed> {
    let mut options = Options::new(host::target(None)?);
    options.dims = dims.iter().map(|(name, dim)| ((*name).to_owned(), *dim)).collect();
    Ok(compiler::pack_file(case.model(), &options, &mut |_, _, _| {})?)
}

fn open(packed: &Packed) -> Result<Model> {
    Ok(Model::from_bytes(&packed.bytes, Trust::Unsigned)?)
}

/// All sets in one session, the first once more at the end: what a run leaves behind must not show, nor how many threads
/// share it.
fn check_all(case: &Case, model: &Model, sets: &[usize]) -> Result<()> {
    let mut session = model.session()?;
    let mut first = None;
    for &set in sets {
        let outputs = run(model, &mut session, &case.inputs(set)?)?;
        let share = case.check(set, &outputs)?;
        println!("{} set {set}: {:.1} % of the tolerance", case.name, share * 100.0);
        first.get_or_insert(outputs);
    }
    let again = run(model, &mut session, &case.inputs(sets[0])?)?;
    assert_eq!(first, Some(again), "{}: the same inputs give other outputs after other runs", case.name);
    for threads in [2, 5] {
        let shared = run(model, &mut model.session()?.threads(threads)?, &case.inputs(sets[0])?)?;
        assert_eq!(first, Some(shared), "{}: {threads} threads give other outputs than one", case.name);
    }
    Ok(())
}

fn equals_the_reference(name: &str) -> Result<()> {
    let case = Case::load(name)?;
    let packed = pack(&case, &[])?;
    assert_eq!(packed.summary.splits_after, 0, "{name}:\n{}", packed.report);
    let (arena, least) = (packed.summary.arena_bytes, packed.summary.arena_floor);
    assert!(arena <= least + least / 20, "{name}: an arena of {arena} bytes, where {least} are needed at once");
    check_all(&case, &open(&packed)?, &(0..case.sets).collect::<Vec<_>>())
}

macro_rules! models {
    ($($name:ident)+) => {
        mod symbolic_sizes_stay_open {
            $(#[test]
            fn $name() -> anyhow::Result<()> {
                super::equals_the_reference(stringify!($name))
            })+
        }

        #[test]
        fn all_models_are_tested() {
            assert_eq!([$(stringify!($name)),+], MODELS);
        }
    };
}

models! {
    mlp mlp_dyn silero_vad silero_vad_8k squeezenet1_1 mobilenet_v2 mobilenet_v2_dyn mobilenet_v2_bn ppocr_cls magika
    quantized quantized_signed resnet50 resnet50_dyn
}

#[test]
fn every_folder_of_references_is_tested() -> Result<()> {
    // Says what to run if there are none.
    Case::load(MODELS[0])?;
    for entry in std::fs::read_dir(folder())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // Tests of the latter are in control_flow.rs.
        let tested = MODELS.contains(&name.as_str()) || name.starts_with(EXPORTED) || name.starts_with(CONTROL);
        assert!(name.starts_with('.') || tested, "{name} has a folder but no test");
    }
    Ok(())
}

#[test]
fn transformers_of_all_exporters_give_the_reference() -> Result<()> {
    exported_models()?.iter().try_for_each(|name| equals_the_reference(name))
}

/// The batch bound to each set's size in turn.
fn equals_the_reference_with_a_bound_batch(name: &str) -> Result<()> {
    let case = Case::load(name)?;
    for set in 0..case.sets {
        let batch = case.inputs(set)?[0].shape[0];
        let model = open(&pack(&case, &[("batch", Dim::Fixed(batch as u64))])?)?;
        check_all(&case, &model, &[set])?;
        // Another batch is refused, not computed wrongly.
        let other = (0..case.sets).find(|&k| case.inputs(k).is_ok_and(|i| i[0].shape[0] != batch));
        let error = run(&model, &mut model.session()?, &case.inputs(other.expect("sets of several sizes"))?);
        let error = error.expect_err("a batch of another size").to_string();
        assert!(error.contains(&format!("{batch} expected")), "{error}");
    }
    Ok(())
}

#[test]
fn mlp_with_a_bound_batch() -> Result<()> {
    equals_the_reference_with_a_bound_batch("mlp_dyn")
}

#[test]
fn mobilenet_v2_with_a_bound_batch() -> Result<()> {
    equals_the_reference_with_a_bound_batch("mobilenet_v2_dyn")
}

#[test]
fn resnet50_with_a_bound_batch() -> Result<()> {
    equals_the_reference_with_a_bound_batch("resnet50_dyn")
}

#[test]
fn a_range_for_the_batch_bounds_what_runs_may_be_given() -> Result<()> {
    let case = Case::load("mlp_dyn")?;
    let sizes: Vec<usize> = (0..case.sets).map(|k| Ok(case.inputs(k)?[0].shape[0])).collect::<Result<_>>()?;
    let model = open(&pack(&case, &[("batch", Dim::Range(1, 4))])?)?;
    let within: Vec<usize> = (0..case.sets).filter(|&k| sizes[k] <= 4).collect();
    check_all(&case, &model, &within)?;
    let beyond = (0..case.sets).find(|&k| sizes[k] > 4).expect("a larger set");
    let error = run(&model, &mut model.session()?, &case.inputs(beyond)?).expect_err("too large a batch").to_string();
    assert!(error.contains("1 to 4 expected"), "{error}");
    Ok(())
}

/// The same network exported with batch normalisation apart computes the same as the one in which it was folded.
#[test]
fn forms_of_one_network_agree_with_each_other() -> Result<()> {
    let output = |name: &str| -> Result<Array> {
        let case = Case::load(name)?;
        let model = open(&pack(&case, &[])?)?;
        let mut session = model.session()?;
        Ok(run(&model, &mut session, &case.inputs(0)?)?.remove(0))
    };
    let tolerance = Case::load("mobilenet_v2")?.tolerance;
    let plain = output("mobilenet_v2")?;
    for other in ["mobilenet_v2_bn", "mobilenet_v2_dyn"] {
        compare(&output(other)?, &plain, tolerance).map_err(anyhow::Error::msg)?;
    }
    Ok(())
}
