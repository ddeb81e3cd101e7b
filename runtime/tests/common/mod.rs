//! Small models for the tests.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]

use graphmend_cache_format::abi;
use graphmend_cache_format::meta::{Debug, Meta};
pub use graphmend_cache_format::spec::*;
use graphmend_cache_format::write::write;
use graphmend_runtime::Host;
use graphmend_targets::{Arch, Features};

pub fn imm(x: i64) -> Val {
    Val::Imm(x)
}

pub fn reg(r: u32) -> Val {
    Val::Reg(r)
}

pub fn arena(dtype: DType, offset: i64, bytes: i64) -> BufferSpec {
    BufferSpec { space: Space::Arena, dtype, offset: imm(offset), bytes: Some(imm(bytes)) }
}

pub fn input(k: u32, dtype: DType) -> BufferSpec {
    BufferSpec { space: Space::Input(k), dtype, offset: imm(0), bytes: None }
}

pub fn weights(dtype: DType, offset: i64, bytes: i64) -> BufferSpec {
    BufferSpec { space: Space::Weights, dtype, offset: imm(offset), bytes: Some(imm(bytes)) }
}

pub fn slot(k: u32, dtype: DType) -> BufferSpec {
    BufferSpec { space: Space::Slot(k), dtype, offset: imm(0), bytes: None }
}

pub fn tensor(name: &str, dtype: DType, dims: Vec<DimSpec>) -> TensorSpec {
    TensorSpec { name: name.into(), dtype, dims }
}

pub fn symbol(name: &str, min: u64, max: u64) -> DimSpec {
    DimSpec::Symbol { name: name.into(), min, max }
}

pub fn read(buf: u32) -> Binding {
    Binding { buf, access: Access::Read }
}

pub fn written(buf: u32) -> Binding {
    Binding { buf, access: Access::Write }
}

pub fn bin(op: BinOp, dst: u32, a: Val, b: Val) -> Instr {
    Instr::Bin { op, dst, a, b }
}

/// A file with one variant for this program's instruction set.
pub fn file(inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>, plan: PlanSpec, kernels: Vec<KernelSpec>) -> FileSpec {
    let variant = VariantSpec {
        arch: Arch::of_this_program().unwrap().id(),
        abi: abi::id::OF_THIS_PROGRAM,
        rank: 0,
        features: 0,
        plan,
        kernels,
        debug: Debug::default(),
    };
    FileSpec {
        model_id: [1; 32],
        build_id: [2; 32],
        page: 64,
        inputs,
        outputs,
        variants: vec![variant],
        weights: vec![],
        meta: Meta { target: "test".into(), ..Meta::default() },
    }
}

pub fn host() -> Host {
    Host::with_features(Features::NONE)
}

/// The file's bytes at an aligned address: firmware has them so in flash.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub fn new(data: &[u8]) -> Aligned {
        let mut bytes = vec![0; data.len() + 64];
        let start = bytes.as_ptr().align_offset(64);
        bytes[start..start + data.len()].copy_from_slice(data);
        Aligned { bytes, start, len: data.len() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

pub fn bytes(spec: &FileSpec) -> Vec<u8> {
    write(spec).unwrap()
}

/// Machine code of a tiled kernel `(in: i32 read, out: i32 written)`: `out[i] = 2 * in[i]` for the units of the call.
pub fn doubling() -> KernelSpec {
    #[cfg(target_arch = "x86_64")]
    let code = vec![
        0x48, 0x8b, 0x07, // mov rax, [rdi]
        0x48, 0x8b, 0x30, // mov rsi, [rax]
        0x48, 0x8b, 0x50, 0x08, // mov rdx, [rax + 8]
        0x48, 0x8b, 0x4f, 0x18, // mov rcx, [rdi + 24]
        0x4c, 0x8b, 0x47, 0x20, // mov r8, [rdi + 32]
        0x4c, 0x39, 0xc1, // cmp rcx, r8
        0x7d, 0x0d, // jge +13
        0x8b, 0x04, 0x8e, // mov eax, [rsi + 4 * rcx]
        0x01, 0xc0, // add eax, eax
        0x89, 0x04, 0x8a, // mov [rdx + 4 * rcx], eax
        0x48, 0xff, 0xc1, // inc rcx
        0xeb, 0xee, // jmp -18
        0x31, 0xc0, // xor eax, eax
        0xc3, // ret
    ];
    #[cfg(target_arch = "aarch64")]
    let code = [
        0xf9400001u32, // ldr x1, [x0]
        0xf9400022,    // ldr x2, [x1]
        0xf9400423,    // ldr x3, [x1, 8]
        0xf9400c04,    // ldr x4, [x0, 24]
        0xf9401005,    // ldr x5, [x0, 32]
        0xeb05009f,    // cmp x4, x5
        0x540000ca,    // b.ge +24
        0xb8647846,    // ldr w6, [x2, x4, lsl 2]
        0x0b0600c6,    // add w6, w6, w6
        0xb8247866,    // str w6, [x3, x4, lsl 2]
        0x91000484,    // add x4, x4, 1
        0x17fffffa,    // b -24
        0x52800000,    // mov w0, 0
        0xd65f03c0,    // ret
    ]
    .iter()
    .flat_map(|i| i.to_le_bytes())
    .collect();
    #[cfg(target_arch = "riscv64")]
    let code = [
        0x00053583u32, // ld a1, 0(a0)
        0x0005b603,    // ld a2, 0(a1)
        0x0085b683,    // ld a3, 8(a1)
        0x01853703,    // ld a4, 24(a0)
        0x02053783,    // ld a5, 32(a0)
        0x02f75263,    // bge a4, a5, +36
        0x00271813,    // slli a6, a4, 2
        0x010608b3,    // add a7, a2, a6
        0x0008a283,    // lw t0, 0(a7)
        0x005282b3,    // add t0, t0, t0
        0x010688b3,    // add a7, a3, a6
        0x0058a023,    // sw t0, 0(a7)
        0x00170713,    // addi a4, a4, 1
        0xfe1ff06f,    // j -32
        0x00000513,    // li a0, 0
        0x00008067,    // ret
    ]
    .iter()
    .flat_map(|i| i.to_le_bytes())
    .collect();
    KernelSpec { code, bufs: 2, scalars: 0, scratch: 0, tiled: true, work: 1 }
}

/// `y = 2 * x` for `x: i32 [n]`, `n` up to 1000.
pub fn doubling_model() -> FileSpec {
    let plan = PlanSpec {
        regs: 2,
        slots: 0,
        arena_bytes: 4096,
        buffers: vec![
            input(0, DType::I32),
            BufferSpec { space: Space::Arena, dtype: DType::I32, offset: imm(64), bytes: Some(reg(1)) },
        ],
        instrs: vec![
            Instr::InputDim { dst: 0, input: 0, axis: 0 },
            bin(BinOp::Mul, 1, reg(0), imm(4)),
            Instr::Dispatch {
                kernel: 0,
                bufs: vec![read(0), written(1)],
                scalars: vec![],
                tiles: Some(reg(0)),
                scratch: None,
            },
            Instr::Return,
        ],
        outputs: vec![OutputSpec { buf: 1, dims: vec![reg(0)] }],
        messages: vec![],
    };
    let n = || vec![symbol("n", 0, 1000)];
    file(vec![tensor("x", DType::I32, n())], vec![tensor("y", DType::I32, n())], plan, vec![doubling()])
}
