//! Every target that is offered can be packed for, and its files say what they need.

use anyhow::{Context, Result};
use graphmend::compiler::pack::{Options, Packed};
use graphmend::targets::{self, Arch, Cpu};
use graphmend::{Host, Model, OpenOptions, Trust, compiler, host};
use graphmend_tests::reference::{Case, QUANTIZED, run};

fn pack(case: &Case, cpu: Cpu) -> Result<Packed> {
    compiler::pack_file(case.model(), &Options::new(cpu), &mut |_, _, _| {})
        .with_context(|| format!("{} for {}", case.name, cpu.name))
}

#[test]
fn every_target_packs_and_only_machines_with_its_features_open_the_file() -> Result<()> {
    let case = Case::load("mlp")?;
    let names: Vec<&str> = host::targets().map(|cpu| cpu.name).collect();
    for asked in ["native", "x86-64-v2", "x86-64-v3", "rpi3", "rpi4", "rpi5", "aarch64", "riscv64", "rv64gcv"] {
        assert!(names.contains(&asked), "{asked} is not offered");
    }
    // Those by way of C need a compiler for them: the tests under QEMU have it.
    for cpu in host::targets().filter(|cpu| !compiler::codegen::c::serves(cpu.into())) {
        assert_eq!(host::target(Some(cpu.name))?, cpu);
        if compiler::codegen::interpreted((&cpu).into()) {
            continue;
        }
        let packed = pack(&case, cpu)?;
        assert!(packed.summary.code_bytes > 0);
        let open = |arch, features| {
            let host = Some(Host { arch: Some(arch), features });
            OpenOptions { host, ..OpenOptions::new(Trust::Unsigned) }.from_bytes(&packed.bytes)
        };
        open(cpu.arch, cpu.features).map(|_| ()).with_context(|| cpu.name.to_owned())?;
        // Without any one of its features: the lack is named.
        for bit in (0..64).map(|k| targets::Features(1 << k)).filter(|bit| cpu.features.contains(*bit)) {
            let name = bit.display(cpu.arch).to_string();
            let less = targets::Features(cpu.features.0 & !bit.0);
            let error = open(cpu.arch, less).err().with_context(|| format!("{} opens without {name}", cpu.name))?;
            let error = error.to_string();
            assert!(error.contains("lacks it") && error.contains(&name), "{}: {error}", cpu.name);
        }
        let other = if cpu.arch == Arch::Aarch64 { Arch::Riscv64 } else { Arch::Aarch64 };
        let error = open(other, targets::Features(u64::MAX)).err().context("opens on another architecture")?;
        assert!(error.to_string().contains(cpu.arch.name()), "{}: {error}", cpu.name);
    }
    Ok(())
}

#[test]
fn presets_without_a_code_generator_are_refused_by_name() {
    let offered: Vec<&str> = host::targets().map(|cpu| cpu.name).collect();
    for cpu in targets::presets().iter().filter(|cpu| !offered.contains(&cpu.name)) {
        let error = host::target(Some(cpu.name)).expect_err(cpu.name).to_string();
        assert!(error.contains(cpu.name) && error.contains(cpu.arch.name()), "{error}");
    }
}

#[test]
fn raspberry_pi_presets_ask_for_nothing_that_the_board_lacks() -> Result<()> {
    // What Linux reports on the boards: the Pi 3 and 4 come without the cryptography extension.
    for (board, has) in
        [("rpi3", "neon+crc"), ("rpi4", "neon+crc"), ("rpi5", "neon+crc+aes+sha2+lse+rdm+fp16+dotprod+rcpc")]
    {
        let cpu = host::target(Some(board))?;
        let has = targets::Features::parse(cpu.arch, has)?;
        assert!(has.contains(cpu.features), "{board}: {}", has.missing(cpu.features).display(cpu.arch));
    }
    Ok(())
}

/// Code for older processors of this machine's kind runs here and computes the same.
#[test]
fn targets_that_this_machine_includes_give_the_reference_values() -> Result<()> {
    let native = host::target(None)?;
    let cases = [Case::load("mlp_dyn")?, Case::load("squeezenet1_1")?, Case::load("magika")?];
    let mut tried = vec![];
    for cpu in host::targets().filter(|cpu| native.runs_code_for(cpu)) {
        for case in &cases {
            let model = Model::from_bytes(&pack(case, cpu)?.bytes, Trust::Unsigned)?;
            let mut session = model.session()?;
            for set in 0..case.sets {
                let outputs = run(&model, &mut session, &case.inputs(set)?)?;
                case.check(set, &outputs).with_context(|| format!("for {}", cpu.name))?;
            }
        }
        tried.push(cpu.name);
    }
    println!("ran here: {}", tried.join(" "));
    assert!(tried.contains(&"native"));
    Ok(())
}

#[test]
fn quantized_models_give_the_same_bits_on_all_targets_that_this_machine_includes() -> Result<()> {
    let native = host::target(None)?;
    for name in QUANTIZED {
        let case = Case::load(name)?;
        for set in 0..case.sets {
            let mut first = None;
            for cpu in host::targets().filter(|cpu| native.runs_code_for(cpu)) {
                let model = Model::from_bytes(&pack(&case, cpu)?.bytes, Trust::Unsigned)?;
                let outputs = run(&model, &mut model.session()?, &case.inputs(set)?)?;
                let (with, want) = first.get_or_insert_with(|| (cpu.name, outputs.clone()));
                assert_eq!(*want, outputs, "{name}, set {set}: {with} and {}", cpu.name);
            }
        }
    }
    Ok(())
}
