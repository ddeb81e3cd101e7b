//! Files for no processor in particular: their kernels are interpreted, and whatever is in them, nothing outside of lent memory is
//! read or written.

use anyhow::{Context, Result};
use graphmend::cache_format::{read, spec::FileSpec, write};
use graphmend::compiler::kernel::ir::{Access, Buf, Imm, Kernel, Op, Reg, Stmt, Type};
use graphmend::compiler::kernel::{bytes, ir};
use graphmend::compiler::pack::Options;
use graphmend::npy::Array;
use graphmend::{
    Error, Host, Model, ModelRef, OpenOptions, Programs, Session, TensorRef, Trust, WeightCheck, compiler, host,
    targets,
};
use graphmend_tests::reference::{Case, run};

fn pack(case: &Case, target: &str) -> Result<Vec<u8>> {
    let options = Options::new(host::target(Some(target))?);
    let packed = compiler::pack_file(case.model(), &options, &mut |_, _, _| {});
    Ok(packed.with_context(|| case.name.clone())?.bytes)
}

fn agrees(name: &str) -> Result<()> {
    let case = Case::load(name)?;
    let model = Model::from_bytes(&pack(&case, "portable")?, Trust::Unsigned)?;
    let mut session = model.session()?;
    let outputs = run(&model, &mut session, &case.inputs(0)?)?;
    case.check(0, &outputs)?;
    // What a run leaves behind does not show in the next, nor how many threads there are.
    assert_eq!(outputs, run(&model, &mut model.session()?.threads(3)?, &case.inputs(0)?)?, "{name}");
    assert_eq!(outputs, run(&model, &mut session, &case.inputs(0)?)?, "{name}");
    Ok(())
}

#[test]
fn interpreted_models_agree_with_onnxruntime() -> Result<()> {
    ["mlp", "mlp_dyn", "quantized", "quantized_signed", "silero_vad"].into_iter().try_for_each(agrees)
}

#[test]
fn interpreted_models_with_control_flow_agree_with_onnxruntime() -> Result<()> {
    graphmend_tests::reference::control_models()?.iter().take(20).try_for_each(|name| agrees(name))
}

/// The file and an input of a small model.
fn small() -> Result<(Vec<u8>, Vec<Array>)> {
    let case = Case::load("mlp")?;
    Ok((pack(&case, "portable")?, case.inputs(0)?))
}

#[test]
fn lent_memory_is_enough() -> Result<()> {
    let (file, inputs) = small()?;
    let model = Model::from_bytes(&file, Trust::Unsigned)?;
    let expected = run(&model, &mut model.session()?, &inputs)?;
    let programs = Programs::from_bytes(&file)?;
    let model = ModelRef::interpreted(&file, Trust::Unsigned, WeightCheck::OnUse, &programs)?;
    let mut arena = vec![0u8; model.arena_bytes() + 64];
    let start = arena.as_ptr().align_offset(64);
    let mut state = vec![0i64; model.state_words()];
    let arena = &mut arena[start..start + model.arena_bytes()];
    let mut session = Session::new(model, arena, &mut state)?;
    let tensors: Vec<TensorRef<'_>> =
        inputs.iter().map(|a| TensorRef::from_bytes(a.dtype, &a.shape, &a.bytes)).collect();
    session.run(&tensors)?;
    assert_eq!(session.output(0)?.bytes, &expected[0].bytes[..]);
    Ok(())
}

#[test]
fn such_a_file_is_not_taken_for_machine_code_nor_the_other_way_round() -> Result<()> {
    let (file, _) = small()?;
    let native = pack(&Case::load("mlp")?, "native")?;
    assert!(matches!(Programs::from_bytes(&native).err(), Some(Error::WrongArch { .. })));
    // Who says that there is no processor gets no machine code.
    let host = Some(Host { arch: None, features: targets::Features::NONE });
    let options = OpenOptions { host, ..OpenOptions::new(Trust::Unsigned) };
    assert!(options.from_bytes(&file).is_ok() && options.from_bytes(&native).is_err());
    Ok(())
}

/// Opens and runs a file with its own digests, in few steps.
fn attempt(spec: &FileSpec, inputs: &[Array]) -> Result<(), Error> {
    let file = write::write(spec).expect("only kernels were changed, which the writer does not look at");
    let model = Model::from_bytes(&file, Trust::Unsigned).map_err(|e| e.model_error().expect("not the system"))?;
    let mut session = model.session()?;
    session.set_step_limit(1 << 20);
    let tensors: Vec<TensorRef<'_>> =
        inputs.iter().map(|a| TensorRef::from_bytes(a.dtype, &a.shape, &a.bytes)).collect();
    session.run(&tensors)
}

/// Replaces the first kernel that writes.
fn with_body(spec: &FileSpec, make: impl Fn(&mut Kernel, Buf)) -> Result<FileSpec> {
    let mut spec = spec.clone();
    let record = &mut spec.variants[0].kernels[0];
    let mut kernel = bytes::read(&record.code)?;
    let written = kernel.bufs.iter().position(|b| b.access == Access::Write).context("nothing is written")?;
    make(&mut kernel, Buf(written as u32));
    record.code = bytes::write(&kernel);
    Ok(spec)
}

#[test]
fn kernels_that_would_do_harm_end_the_run() -> Result<()> {
    let (file, inputs) = small()?;
    let spec = read::read(&file)?;
    assert_eq!(attempt(&spec, &inputs), Ok(()));
    let i64s = Type::scalar(ir::Imm { elem: compiler::dtype::DType::I64, bits: 0 }.elem);
    let number = |reg, n: i64| Stmt::Let(Reg(reg), Op::Const(Imm { elem: i64s.elem, bits: n as u64 }, 1));
    // A store far behind, just behind, and before its buffer.
    for at in [1 << 40, i64::MAX, -1, i64::MIN] {
        let outside = with_body(&spec, |kernel, buf| {
            let dtype = kernel.bufs[buf.0 as usize].dtype;
            kernel.regs = vec![i64s, Type::scalar(dtype.compute())];
            let value = Stmt::Let(Reg(1), Op::Const(Imm { elem: dtype.compute(), bits: 0 }, 1));
            let store = Stmt::Store { buf, index: Reg(0), disp: 1, value: Reg(1) };
            kernel.body = vec![number(0, i64::wrapping_sub(at, 1)), value, store];
        })?;
        assert!(matches!(attempt(&outside, &inputs), Err(Error::Bounds { kernel: 0, .. })), "{at}");
    }
    // A buffer that the plan has only read.
    let writes_all = with_body(&spec, |kernel, _| kernel.bufs.iter_mut().for_each(|b| b.access = Access::Write))?;
    assert_eq!(attempt(&writes_all, &inputs), Err(Error::BadKernel { kernel: 0 }));
    let fewer = with_body(&spec, |kernel, _| {
        kernel.bufs.pop();
        (kernel.regs, kernel.vars, kernel.body) = (vec![], vec![], vec![]);
    })?;
    assert_eq!(attempt(&fewer, &inputs), Err(Error::BadKernel { kernel: 0 }));
    // A loop without end.
    let endless = with_body(&spec, |kernel, _| {
        kernel.regs = vec![Type::scalar(compiler::dtype::DType::Bool)];
        let yes = Stmt::Let(Reg(0), Op::Const(Imm { elem: compiler::dtype::DType::Bool, bits: 1 }, 1));
        kernel.body = vec![yes, Stmt::While { head: vec![], cond: Reg(0), body: vec![] }];
    })?;
    assert_eq!(attempt(&endless, &inputs), Err(Error::StepLimit));
    // More values than there is memory for.
    let large = with_body(&spec, |kernel, _| {
        kernel.regs = vec![Type::vector(compiler::dtype::DType::I64, u16::MAX); 100];
        let wide = |reg| Stmt::Let(Reg(reg), Op::Const(Imm { elem: i64s.elem, bits: 0 }, u16::MAX));
        kernel.body = (0..100).map(wide).collect();
    })?;
    assert_eq!(attempt(&large, &inputs), Err(Error::BadKernel { kernel: 0 }));
    Ok(())
}

/// Numbers without order.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn number(&mut self) -> i64 {
        [-1, 1, 7, 64, 1000, 1 << 20, 1 << 33, i64::MAX, i64::MIN][self.below(9)]
    }
}

/// Changes some of the numbers that indices are made of.
fn shake(stmts: &mut [Stmt], random: &mut Random) {
    for stmt in stmts {
        let change = random.below(6) == 0;
        match stmt {
            Stmt::Let(_, Op::Const(imm, _)) if change && imm.elem == compiler::dtype::DType::I64 => {
                imm.bits = random.number() as u64;
            }
            Stmt::Let(_, Op::Load { disp, .. } | Op::Words { disp, .. }) | Stmt::Store { disp, .. } if change => {
                *disp = disp.wrapping_add(random.number());
            }
            Stmt::For { body, .. } => shake(body, random),
            Stmt::If { then, other, .. } => {
                shake(then, random);
                shake(other, random);
            }
            Stmt::While { head, body, .. } => {
                shake(head, random);
                shake(body, random);
            }
            _ => {}
        }
    }
}

#[test]
fn damaged_kernels_are_refused_or_run_within_their_buffers() -> Result<()> {
    let (file, inputs) = small()?;
    let spec = read::read(&file)?;
    let (mut refused, mut ended) = (0, 0);
    let mut random = Random(7);
    for round in 0..400 {
        let mut damaged = spec.clone();
        let kernels = &mut damaged.variants[0].kernels;
        let kernel = random.below(kernels.len());
        let code = &mut kernels[kernel].code;
        if round % 2 == 0 {
            let at = random.below(code.len());
            code[at] = code[at].wrapping_add(1 + random.below(255) as u8);
        } else {
            let mut kernel = bytes::read(code)?;
            shake(&mut kernel.body, &mut random);
            *code = bytes::write(&kernel);
        }
        match attempt(&damaged, &inputs) {
            Err(Error::BadKernel { .. }) => refused += 1,
            Err(Error::Bounds { .. } | Error::StepLimit) => ended += 1,
            // What was changed did not matter, or made another result.
            Ok(()) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 100 && ended > 100, "{refused} refused, {ended} ended by an error");
    Ok(())
}
