//! Runs compiled kernels in this process.

use graphmend_cache_format::abi::{KernelArgs, KernelFn};
use graphmend_compiler::codegen::{CompiledKernel, Isa, Target};
use graphmend_compiler::kernel::ir::Kernel;
use graphmend_targets::{lookup, native};
use memmap2::{Mmap, MmapMut};

/// A kernel in executable memory.
pub struct Loaded {
    code: Mmap,
}

impl Loaded {
    pub fn new(compiled: &CompiledKernel) -> Loaded {
        assert!(compiled.align <= 4096);
        let mut memory = MmapMut::map_anon(compiled.code.len()).unwrap();
        memory.copy_from_slice(&compiled.code);
        Loaded { code: memory.make_exec().unwrap() }
    }

    /// Calls the kernel for the work units `tile`.
    pub fn call(&self, bufs: &mut [Vec<u8>], scalars: &[i64], tile: (i64, i64)) -> u32 {
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
pub fn runnable() -> Vec<(&'static str, Target)> {
    let here = native().expect("this machine's instruction set is known");
    targets().into_iter().filter(|(_, target)| target.arch == here.arch && here.features.contains(target.features)).collect()
}

/// All targets that code is generated for.
pub fn targets() -> Vec<(&'static str, Target)> {
    let names =
        ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "rpi3", "rpi5", "riscv64", "rv64gcv", "spacemit-x60"];
    let find = |name| lookup(name).unwrap_or_else(|| panic!("no target {name}"));
    names.into_iter().map(|name| (name, Target::from(&find(name)))).collect()
}

/// Compiles and loads a kernel; panics with its text where that fails.
pub fn load(kernel: &Kernel, target: Target) -> Loaded {
    let compiled = Isa::cached(target).and_then(|isa| isa.compile(kernel));
    Loaded::new(&compiled.unwrap_or_else(|error| panic!("{error}\n{kernel}")))
}
