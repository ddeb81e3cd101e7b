//! Files packed for other processors give the reference values there: `graphmend-run`, built for them, under QEMU.
//!
//! Run by `scripts/test-cross.sh`.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use graphmend::compiler::pack::{Options, Product};
use graphmend::targets::Arch;
use graphmend::{Model, Trust, compiler, host};
use graphmend_tests::emulate::Machine;
use graphmend_tests::linked::Linked;
use graphmend_tests::reference::{Case, MODELS, QUANTIZED, control_models, run};

const CORTEX_A53: Machine = Machine { arch: Arch::Aarch64, cpu: "cortex-a53" };
const CORTEX_A72: Machine = Machine { arch: Arch::Aarch64, cpu: "cortex-a72" };
const CORTEX_A76: Machine = Machine { arch: Arch::Aarch64, cpu: "cortex-a76" };
const CORTEX_A7: Machine = Machine { arch: Arch::Arm, cpu: "cortex-a7" };
const CORTEX_A8: Machine = Machine { arch: Arch::Arm, cpu: "cortex-a8" };
const RV64GC: Machine = Machine { arch: Arch::Riscv64, cpu: "rv64" };
const RV64GCV: Machine = Machine { arch: Arch::Riscv64, cpu: "rv64,v=true,vlen=128,vext_spec=v1.0" };

fn pack(folder: &tempfile::TempDir, case: &Case, target: &str) -> Result<PathBuf> {
    let options = Options::new(host::target(Some(target))?);
    let packed = compiler::pack_file(case.model(), &options, &mut |_, _, _| {})
        .with_context(|| format!("{} for {target}", case.name))?;
    let path = folder.path().join(format!("{}.gmc", case.name));
    fs::write(&path, &packed.bytes)?;
    Ok(path)
}

/// Sets of a case that are run: emulated multiplications are slow, and large networks have many.
fn sets(case: &Case) -> usize {
    if is_large(&case.name) { 1 } else { case.sets.min(3) }
}

fn is_large(model: &str) -> bool {
    model.starts_with("resnet50") || model.starts_with("mobilenet")
}

fn all_models(target: &str, machine: Machine) -> Result<()> {
    models(target, machine, &|_| true)
}

/// Without ResNet-50, which takes minutes to emulate: the presets of one instruction set differ little.
fn small_models(target: &str, machine: Machine) -> Result<()> {
    models(target, machine, &|name| !name.starts_with("resnet50"))
}

fn models(target: &str, machine: Machine, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
    let mut failed = vec![];
    for name in MODELS.iter().filter(|name| wanted(name)) {
        let start = Instant::now();
        let one = || -> Result<f64> {
            let case = Case::load(name)?;
            let folder = tempfile::tempdir()?;
            let cache = pack(&folder, &case, target)?;
            let mut worst = 0.0f64;
            for set in 0..sets(&case) {
                let outputs = machine.run(&cache, &case, set, folder.path())?;
                worst = worst.max(case.check(set, &outputs)?);
            }
            Ok(worst)
        };
        match one() {
            Ok(share) => {
                let seconds = start.elapsed().as_secs_f32();
                println!(
                    "{target} on {}: {name}: {:.1} % of the tolerance, {seconds:.0} s",
                    machine.cpu,
                    share * 100.0
                );
            }
            Err(e) => failed.push(format!("{name}: {e:#}")),
        }
    }
    assert!(failed.is_empty(), "{target} on {}:\n{}", machine.cpu, failed.join("\n"));
    Ok(())
}

/// Random models with control flow, their loops kept; each with another one of its sets.
fn control_flow(target: &str, machine: Machine) -> Result<()> {
    some_control_flow(target, machine, 1)
}

/// One of so many of them.
fn some_control_flow(target: &str, machine: Machine, of: usize) -> Result<()> {
    let mut options = Options::new(host::target(Some(target))?);
    options.unroll = 0;
    let names = control_models()?;
    for (k, name) in names.iter().enumerate().step_by(of) {
        let case = Case::load(name)?;
        let folder = tempfile::tempdir()?;
        let packed = compiler::pack_file(case.model(), &options, &mut |_, _, _| {})?;
        let cache = folder.path().join("model.gmc");
        fs::write(&cache, &packed.bytes)?;
        let set = k % case.sets;
        let one = || case.check(set, &machine.run(&cache, &case, set, folder.path())?);
        one().with_context(|| format!("{name}, set {set}, {target} on {}", machine.cpu))?;
    }
    println!("{target} on {}: {} models with control flow", machine.cpu, names.len().div_ceil(of));
    Ok(())
}

#[test]
fn aarch64_runs_control_flow() -> Result<()> {
    control_flow("aarch64", CORTEX_A53)
}

#[test]
fn riscv64_runs_control_flow() -> Result<()> {
    control_flow("riscv64", RV64GC)
}

#[test]
fn rv64gcv_runs_control_flow() -> Result<()> {
    control_flow("rv64gcv", RV64GCV)
}

/// Each kernel takes a run of the C compiler.
#[test]
fn armv7_runs_control_flow() -> Result<()> {
    some_control_flow("armv7", CORTEX_A8, 8)
}

#[test]
fn armv7_gives_the_reference_values() -> Result<()> {
    models("armv7", CORTEX_A8, &|name| !is_large(name))
}

#[test]
fn a_file_for_no_processor_in_particular_runs_on_32_bit_arm() -> Result<()> {
    models("portable", CORTEX_A8, &|name| ["mlp", "mlp_dyn", "quantized"].contains(&name))
}

#[test]
fn rpi2_gives_the_reference_values() -> Result<()> {
    models("rpi2", CORTEX_A7, &|name| name.starts_with("mlp") || name.starts_with("silero"))
}

/// A Cortex-A7 runs what a Cortex-M4F does: Thumb code and single-precision floats in hardware.
#[test]
fn cortex_m4f_gives_the_reference_values() -> Result<()> {
    models("cortex-m4f", CORTEX_A7, &|name| name.starts_with("mlp"))
}

#[test]
fn aarch64_gives_the_reference_values() -> Result<()> {
    all_models("aarch64", CORTEX_A53)
}

#[test]
fn rpi3_gives_the_reference_values() -> Result<()> {
    small_models("rpi3", CORTEX_A53)
}

#[test]
fn rpi4_gives_the_reference_values() -> Result<()> {
    small_models("rpi4", CORTEX_A72)
}

#[test]
fn rpi5_gives_the_reference_values() -> Result<()> {
    small_models("rpi5", CORTEX_A76)
}

#[test]
fn riscv64_gives_the_reference_values() -> Result<()> {
    all_models("riscv64", RV64GC)
}

#[test]
fn rv64gcv_gives_the_reference_values() -> Result<()> {
    small_models("rv64gcv", RV64GCV)
}

/// What is computed with integers is the same there as here.
#[test]
fn quantized_models_give_the_bits_that_this_machine_gives() -> Result<()> {
    for name in QUANTIZED {
        let case = Case::load(name)?;
        let folder = tempfile::tempdir()?;
        let packed = compiler::pack_file(case.model(), &Options::new(host::target(None)?), &mut |_, _, _| {})?;
        let model = Model::from_bytes(&packed.bytes, Trust::Unsigned)?;
        for (target, machine) in [
            ("aarch64", CORTEX_A53),
            ("rpi5", CORTEX_A76),
            ("riscv64", RV64GC),
            ("rv64gcv", RV64GCV),
            ("cortex-m4f", CORTEX_A7),
            ("rpi2", CORTEX_A7),
        ] {
            let cache = pack(&folder, &case, target)?;
            for set in 0..case.sets {
                let here = run(&model, &mut model.session()?, &case.inputs(set)?)?;
                assert_eq!(here, machine.run(&cache, &case, set, folder.path())?, "{name}, set {set}, {target}");
            }
        }
    }
    Ok(())
}

/// Objects that the code generators make link and run without a runtime.
#[test]
fn objects_for_other_processors_give_the_reference_values() -> Result<()> {
    let aarch64 = (["aarch64-linux-gnu-gcc", "-O1"], &["qemu-aarch64", "-cpu", "cortex-a72"][..]);
    let riscv64 = (["riscv64-linux-gnu-gcc", "-O1"], &["qemu-riscv64", "-cpu", "rv64"][..]);
    let mut names = vec!["mlp_dyn".to_owned(), "silero_vad".to_owned(), "quantized".to_owned()];
    names.extend(control_models()?.into_iter().step_by(12));
    for (target, (cc, emulator)) in [("rpi4", aarch64), ("riscv64", riscv64)] {
        for name in &names {
            let case = Case::load(name)?;
            let mut options = Options::new(host::target(Some(target))?);
            (options.product, options.unroll) = (Product::Object("model".to_owned()), 0);
            let packed = compiler::pack_file(case.model(), &options, &mut |_, _, _| {})?;
            let folder = tempfile::tempdir()?;
            let program = Linked::new(&packed.source.context("no object")?, folder.path(), &cc, emulator)?;
            let outputs = program.arrays(&case.inputs(0)?, &case.expected(0)?)?;
            case.check(0, &outputs).with_context(|| format!("{name} for {target}"))?;
        }
    }
    Ok(())
}

/// A file for a processor that has more than this one is refused before any of its code runs, and the lack is named.
#[test]
fn a_file_for_another_processor_is_refused() -> Result<()> {
    let case = Case::load("mlp")?;
    let folder = tempfile::tempdir()?;
    for (target, machine, lack) in [
        ("rpi5", CORTEX_A53, "dotprod"),
        ("rpi5", CORTEX_A72, "dotprod"),
        ("rv64gcv", RV64GC, "v"),
        ("rpi2", CORTEX_A8, "vfpv4"),
        ("rpi4", RV64GC, "aarch64"),
        ("x86-64", CORTEX_A72, "x86_64"),
    ] {
        let cache = pack(&folder, &case, target)?;
        let output = machine.graphmend_run()?.arg("run").arg(&cache).arg("-i").arg(case.input_file(0, 0)).output()?;
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{target} on {}: {message}", machine.cpu);
        assert!(message.contains("built for") && message.contains(lack), "{target} on {}: {message}", machine.cpu);
    }
    Ok(())
}
