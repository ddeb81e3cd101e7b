//! Kernels as C, compiled by this machine's compiler: operations, lane moves and random kernels against the interpreter.

use crate::control::{compare, interpret};
use crate::host::{Call, put, put_call, run_jobs};
use crate::values::{Rng, from_bytes, near_one, to_bytes};
use crate::{control, lanes, lanewise, random, shape};
use graphmend_compiler::codegen::c::{self, Bounds, Helpers, Style};
use graphmend_compiler::kernel::ir::Kernel;
use std::path::PathBuf;
use std::process::Command;

/// A way in which C is written and compiled.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) style: Style,
    pub(crate) cc: &'static [&'static str],
    pub(crate) run: &'static [&'static str],
    /// Subnormal numbers are taken as zeros.
    pub(crate) flushes: bool,
}

/// As for a processor with vectors, and as for a microcontroller: without, 32-bit indices, and a square root of our own.
const WAYS: [Way; 3] = [
    Way { name: "vectors", style: Style { lanes: 4, narrow: false }, cc: &["cc", "-O2"], run: &[], flushes: false },
    Way {
        name: "scalars",
        style: Style { lanes: 1, narrow: true },
        cc: &["cc", "-O1", "-U__SSE2__", "-fno-strict-aliasing"],
        run: &[],
        flushes: false,
    },
    // As a compiler without extensions sees it.
    Way {
        name: "plain",
        style: Style { lanes: 4, narrow: true },
        cc: &["cc", "-O1", "-U__GNUC__"],
        run: &[],
        flushes: false,
    },
];

/// A Cortex-A7 under QEMU, as one without vectors.
pub(crate) const ARMV7: Way = Way {
    name: "armv7",
    style: Style { lanes: 1, narrow: true },
    cc: &["arm-linux-gnueabihf-gcc", "-O1", "-mcpu=cortex-a7", "-mfpu=vfpv4"],
    run: &["qemu-arm", "-cpu", "cortex-a7"],
    flushes: false,
};

/// With vectors: products are added with one rounding, or with two.
pub(crate) const NEON: [Way; 2] = [
    Way {
        name: "neon-vfpv4",
        style: Style { lanes: 4, narrow: true },
        cc: &["arm-linux-gnueabihf-gcc", "-O1", "-mcpu=cortex-a7", "-mfpu=neon-vfpv4"],
        run: &["qemu-arm", "-cpu", "cortex-a7"],
        flushes: true,
    },
    Way {
        name: "neon",
        style: Style { lanes: 4, narrow: true },
        cc: &["arm-linux-gnueabihf-gcc", "-O1", "-march=armv7-a", "-mfpu=neon", "-marm"],
        run: &["qemu-arm", "-cpu", "cortex-a8"],
        flushes: true,
    },
];

impl Way {
    /// Compiles all kernels into one program, without a warning, and runs it.
    pub(crate) fn run(&self, jobs: &[(Kernel, Call)]) -> Vec<(u32, Vec<Vec<u8>>)> {
        let mut helpers = Helpers::default();
        let mut body = String::from(c::ARGS);
        let mut table = vec![];
        let mut input = Vec::new();
        put(&mut input, jobs.len());
        for (number, (kernel, call)) in jobs.iter().enumerate() {
            let (inner, name) = (format!("inner{number}"), format!("kernel{number}"));
            let bounds = Bounds::default();
            let text = c::function(kernel, &inner, self.style, &bounds, &mut helpers);
            body += &text.unwrap_or_else(|error| panic!("{error}\n{kernel}"));
            body += &c::entry(kernel, &name, &inner);
            table.push(name);
            put(&mut input, number);
            put_call(&mut input, call);
        }
        let source = format!(
            "{}{body}\ntypedef uint32_t kernel(const struct gm_args *);\nextern kernel *const linked[];\nkernel *const linked[] = \
             {{{}}};\n",
            helpers.preamble(),
            table.join(", ")
        );
        let folder = tempfile::tempdir().unwrap();
        let (file, program) = (folder.path().join("kernels.c"), folder.path().join("kernels"));
        std::fs::write(&file, source).unwrap();
        let runner = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/codegen/runner.c");
        let object = folder.path().join("kernels.o");
        let strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-c", "-o"];
        compile(Command::new(self.cc[0]).args(&self.cc[1..]).args(strict).arg(&object).arg(&file));
        compile(Command::new(self.cc[0]).args(["-static", "-DLINKED", "-o"]).arg(&program).arg(runner).arg(object));
        let mut command = match self.run {
            [] => Command::new(&program),
            [emulator, args @ ..] => {
                let mut command = Command::new(emulator);
                command.args(args).arg(&program);
                command
            }
        };
        command.current_dir(folder.path());
        run_jobs(command, input, jobs)
    }
}

fn compile(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("these tests need a C compiler: {command:?}: {error}"));
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{}", messages.lines().take(40).collect::<Vec<_>>().join("\n"));
}

/// Gives a kernel numbers near 1 instead of those whose products are subnormal, so that it computes what the interpreter does.
fn without_subnormals(kernel: &Kernel, call: &mut Call) {
    for (param, bytes) in kernel.bufs.iter().zip(&mut call.bufs) {
        let values: Vec<u64> = from_bytes(param.dtype, bytes).iter().map(|v| near_one(param.dtype, *v)).collect();
        let kept = bytes.split_off(values.len() * param.dtype.size());
        *bytes = to_bytes(param.dtype, &values);
        bytes.extend(kept);
    }
}

fn check(way: &Way, jobs: &[(Kernel, Call)]) {
    let mut jobs = jobs.to_vec();
    if way.flushes {
        jobs.iter_mut().for_each(|(kernel, call)| without_subnormals(kernel, call));
    }
    for ((kernel, call), got) in jobs.iter().zip(way.run(&jobs)) {
        compare(way.name, kernel, &got, &interpret(kernel, call));
    }
}

pub(crate) fn operations(way: &Way) {
    let lanes: &[u16] = match (way.style.lanes, way.flushes) {
        (1, _) => &[1, 3],
        // A vector and a scalar.
        (_, true) => &[5],
        (_, false) => &[1, 5, 8],
    };
    lanewise::check_all(way.name, lanes, way.flushes, &|jobs| way.run(jobs));
}

pub(crate) fn constants(way: &Way) {
    lanewise::check_constants(way.name, &|jobs| way.run(jobs));
}

pub(crate) fn moves(way: &Way) {
    let mut rng = Rng(23);
    let job = |kernel: Kernel| {
        let call = Call::random(&kernel, 128, &mut rng);
        (kernel, call)
    };
    check(way, &lanes::kernels().into_iter().map(job).collect::<Vec<_>>());
}

pub(crate) fn control_flow(way: &Way) {
    check(way, &control::calls());
}

pub(crate) fn products(way: &Way) {
    check(way, &control::byte_products().into_iter().chain(shape::gemms()).collect::<Vec<_>>());
}

pub(crate) fn random_kernels(way: &Way) {
    let job = |seed: u64| {
        let kernel = random::make(seed);
        let call = random::call(&kernel, seed);
        (kernel, call)
    };
    check(way, &(2000..2120).map(job).collect::<Vec<_>>());
}

#[test]
fn operations_in_c_give_the_interpreters_lanes() {
    WAYS.iter().for_each(operations);
}

#[test]
fn operations_in_c_with_a_constant_give_the_interpreters_lanes() {
    constants(&WAYS[1]);
}

#[test]
fn loops_branches_and_returns_in_c_are_the_interpreters() {
    WAYS.iter().for_each(control_flow);
}

#[test]
fn lanes_move_in_c_as_in_the_interpreter() {
    WAYS.iter().for_each(moves);
}

#[test]
fn products_and_matrix_kernels_in_c_agree_with_the_interpreter() {
    WAYS.iter().for_each(products);
}

#[test]
fn random_kernels_in_c_agree_with_the_interpreter() {
    WAYS.iter().for_each(random_kernels);
}
