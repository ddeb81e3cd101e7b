//! The other instruction sets under QEMU: operations, lane moves and random kernels against the interpreter.
//!
//! Needs QEMU and C cross compilers (`scripts/install-cross.sh`); `cargo test --test codegen -- --ignored` runs these.

use crate::control::{compare, interpret};
use crate::host::{Call, EMULATED, Emulated};
use crate::values::Rng;
use crate::{c, control, lanes, lanewise, random, shape};
use graphmend_compiler::kernel::ir::Kernel;

fn check(machine: &Emulated, jobs: &[(Kernel, Call)]) {
    for ((kernel, call), got) in jobs.iter().zip(machine.run(jobs)) {
        compare(machine.name, kernel, &got, &interpret(kernel, call));
    }
}

#[test]
#[ignore = "needs QEMU and C cross compilers"]
fn operations_give_the_interpreters_lanes_on_other_instruction_sets() {
    for machine in &EMULATED {
        lanewise::check_all(machine.name, &[1, 3, 8, 24], false, &|jobs| machine.run(jobs));
    }
}

#[test]
#[ignore = "needs QEMU and C cross compilers"]
fn loops_branches_and_returns_are_the_interpreters_on_other_instruction_sets() {
    let jobs = control::calls();
    EMULATED.iter().for_each(|machine| check(machine, &jobs));
}

#[test]
#[ignore = "needs QEMU and C cross compilers"]
fn lanes_move_as_in_the_interpreter_on_other_instruction_sets() {
    let mut rng = Rng(23);
    let job = |kernel: Kernel| {
        let call = Call::random(&kernel, 128, &mut rng);
        (kernel, call)
    };
    let jobs: Vec<_> = lanes::kernels().into_iter().map(job).collect();
    EMULATED.iter().for_each(|machine| check(machine, &jobs));
}

#[test]
#[ignore = "needs QEMU and C cross compilers"]
fn products_and_matrix_kernels_agree_with_the_interpreter_on_other_instruction_sets() {
    let jobs: Vec<_> = control::byte_products().into_iter().chain(shape::gemms()).collect();
    EMULATED.iter().for_each(|machine| check(machine, &jobs));
}

#[test]
#[ignore = "needs QEMU and C cross compilers"]
fn random_kernels_agree_with_the_interpreter_on_other_instruction_sets() {
    let job = |seed: u64| {
        let kernel = random::make(seed);
        let call = random::call(&kernel, seed);
        (kernel, call)
    };
    let jobs: Vec<_> = (1000..1300).map(job).collect();
    EMULATED.iter().for_each(|machine| check(machine, &jobs));
}

/// What 32-bit processors have of their own: the instruction for square roots, calls for 64-bit integers.
#[test]
#[ignore = "needs QEMU and C cross compilers"]
fn c_agrees_with_the_interpreter_on_32_bit_arm() {
    c::operations(&c::ARMV7);
    c::moves(&c::ARMV7);
    c::control_flow(&c::ARMV7);
    c::products(&c::ARMV7);
    c::random_kernels(&c::ARMV7);
}

/// Vectors of 32-bit Arm.
#[test]
#[ignore = "needs QEMU and C cross compilers"]
fn c_agrees_with_the_interpreter_on_32_bit_arm_with_vectors() {
    let [fused, plain] = &c::NEON;
    c::operations(fused);
    c::moves(fused);
    c::control_flow(fused);
    c::random_kernels(fused);
    c::products(fused);
    c::products(plain);
}
