//! Runs compiled kernels: in this process, or under an emulator.

use graphmend_cache_format::abi::{KernelArgs, KernelFn};
use graphmend_compiler::codegen::{CompiledKernel, Isa, Target, compile};
use graphmend_compiler::kernel::ir::Kernel;
use graphmend_targets::features::riscv;
use graphmend_targets::{Arch, lookup, native};
use memmap2::{Mmap, MmapMut};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// What to call a kernel with.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) bufs: Vec<Vec<u8>>,
    pub(crate) scalars: Vec<i64>,
    pub(crate) tile: (i64, i64),
}

/// A kernel in executable memory.
pub(crate) struct Loaded {
    code: Mmap,
}

impl Loaded {
    pub(crate) fn new(compiled: &CompiledKernel) -> Loaded {
        assert!(compiled.align <= 4096);
        let mut memory = MmapMut::map_anon(compiled.code.len()).unwrap();
        memory.copy_from_slice(&compiled.code);
        Loaded { code: memory.make_exec().unwrap() }
    }

    /// Calls the kernel for the work units `tile`.
    pub(crate) fn call(&self, bufs: &mut [Vec<u8>], scalars: &[i64], tile: (i64, i64)) -> u32 {
        let pointers: Vec<*mut u8> = bufs.iter_mut().map(|buf| buf.as_mut_ptr()).collect();
        let args = KernelArgs {
            bufs: pointers.as_ptr(),
            scalars: scalars.as_ptr(),
            scratch: std::ptr::null_mut(),
            tile_lo: tile.0,
            tile_hi: tile.1,
        };
        // SAFETY: the mapping holds a kernel compiled for a target whose features this machine has, from its first byte,
        // and lives as long as `self`.
        let entry: KernelFn = unsafe { std::mem::transmute(self.code.as_ptr()) };
        // SAFETY: the arguments have the layout of the ABI and outlive the call; the tests' kernels stay inside the buffers
        // that they are given.
        unsafe { entry(&args) }
    }
}

/// Targets that this machine can run, from the plainest.
pub(crate) fn runnable() -> Vec<(&'static str, Target)> {
    let here = native().expect("this machine's instruction set is known");
    targets()
        .into_iter()
        .filter(|(_, target)| target.arch == here.arch && here.features.contains(target.features))
        .collect()
}

/// All targets that code is generated for.
pub(crate) fn targets() -> Vec<(&'static str, Target)> {
    let x86 = ["x86-64", "x86-64-v2", "x86-64-v3", "n100", "x86-64-v4", "icelake-server"];
    let names = [&x86[..], &["rpi3", "rpi5", "riscv64", "rv64gcv", "spacemit-x60"]].concat();
    let find = |name| lookup(name).unwrap_or_else(|| panic!("no target {name}"));
    names.into_iter().map(|name| (name, Target::from(&find(name)))).collect()
}

/// Compiles and loads a kernel; panics with its text where that fails.
pub(crate) fn load(kernel: &Kernel, target: Target) -> Loaded {
    let compiled = compile(kernel, target);
    Loaded::new(&compiled.unwrap_or_else(|error| panic!("{error}\n{kernel}")))
}

/// A kind of machine that is emulated.
pub(crate) struct Emulated {
    pub(crate) name: &'static str,
    gcc: &'static str,
    qemu: &'static [&'static str],
}

/// One machine for each way that code is generated for other instruction sets.
pub(crate) const EMULATED: [Emulated; 4] = [
    Emulated { name: "rpi4", gcc: "aarch64-linux-gnu-gcc", qemu: &["qemu-aarch64", "-cpu", "cortex-a72"] },
    Emulated { name: "riscv64", gcc: "riscv64-linux-gnu-gcc", qemu: &["qemu-riscv64", "-cpu", "rv64"] },
    Emulated {
        name: "rv64gcv",
        gcc: "riscv64-linux-gnu-gcc",
        qemu: &["qemu-riscv64", "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0"],
    },
    Emulated {
        name: "spacemit-x60",
        gcc: "riscv64-linux-gnu-gcc",
        qemu: &["qemu-riscv64", "-cpu", "rv64,v=true,vlen=256,vext_spec=v1.0,zba=true,zbb=true,zbc=true,zbs=true"],
    },
];

impl Emulated {
    pub(crate) fn target(&self) -> Target {
        let target = Target::from(&lookup(self.name).unwrap_or_else(|| panic!("no target {}", self.name)));
        match target.arch {
            // QEMU has it from version 8 on only.
            Arch::Riscv64 => Target { features: target.features.without(riscv::ZICOND), ..target },
            _ => target,
        }
    }

    /// Builds the program that runs jobs.
    fn runner(&self) -> PathBuf {
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/codegen/runner.c");
        // One for each use: tests run side by side.
        static USES: AtomicU32 = AtomicU32::new(0);
        let number = USES.fetch_add(1, Ordering::Relaxed);
        let name = format!("runner-{}-{}-{number}", self.name, std::process::id());
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let gcc = Command::new(self.gcc).args(["-O1", "-static", "-o"]).arg(&program).arg(source).status();
        assert!(gcc.as_ref().is_ok_and(|status| status.success()), "{}: {gcc:?}", self.gcc);
        program
    }

    /// Runs all jobs in one process; gives each one's status and buffers.
    pub(crate) fn run(&self, jobs: &[(Kernel, Call)]) -> Vec<(u32, Vec<Vec<u8>>)> {
        let isa = Isa::cached(self.target()).unwrap();
        let mut input = Vec::new();
        put(&mut input, jobs.len());
        for (kernel, call) in jobs {
            let compiled = isa.compile(kernel).unwrap_or_else(|error| panic!("{}: {error}\n{kernel}", self.name));
            put(&mut input, compiled.code.len());
            input.extend(&compiled.code);
            put_call(&mut input, call);
        }
        let runner = self.runner();
        let mut command = Command::new(self.qemu[0]);
        command.args(&self.qemu[1..]).arg(&runner);
        let results = run_jobs(command, input, jobs);
        std::fs::remove_file(&runner).unwrap();
        results
    }
}

/// Writes a number for the runner.
pub(crate) fn put(input: &mut Vec<u8>, number: usize) {
    input.extend((number as u32).to_le_bytes());
}

/// Writes what a kernel is called with for the runner.
pub(crate) fn put_call(input: &mut Vec<u8>, call: &Call) {
    put(input, call.bufs.len());
    for buf in &call.bufs {
        put(input, buf.len());
        input.extend(buf);
    }
    put(input, call.scalars.len());
    call.scalars.iter().chain([&call.tile.0, &call.tile.1]).for_each(|v| input.extend(v.to_le_bytes()));
}

/// Gives the runner its input; gives each job's status and buffers.
pub(crate) fn run_jobs(mut command: Command, input: Vec<u8>, jobs: &[(Kernel, Call)]) -> Vec<(u32, Vec<Vec<u8>>)> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    writer.join().unwrap().unwrap();
    let mut rest = &output.stdout[..];
    let mut take = |bytes: usize| {
        let (head, tail) = rest.split_at(bytes);
        rest = tail;
        head.to_vec()
    };
    let results = jobs.iter().map(|(_, call)| {
        let status = take(4);
        let status = u32::from_le_bytes([status[0], status[1], status[2], status[3]]);
        (status, call.bufs.iter().map(|buf| take(buf.len())).collect())
    });
    results.collect()
}
