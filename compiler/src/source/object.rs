//! A model as an object with machine code of the compiler's own: kernels as in cache files, and the plan by [`native`](super::native).
//!
//! It is position-independent and refers to nothing outside of itself. Everything but the two functions that the header declares is
//! local. Sections are by function, so that a linker leaves out what is not used.

use super::header::statuses;
use super::native::{self, Outside};
use super::{Model, kernel_name};
use crate::codegen::{CompiledKernel, Isa, Target};
use crate::error::{Error, Result, Stage};
use cranelift_codegen::Context;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AbiParam, Function, InstBuilder, Signature, UserFuncName, types};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module, ModuleError, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};
use graphmend_cache_format::CODE_ALIGN;

/// An object, and what it is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// The file, in ELF.
    pub bytes: Vec<u8>,
    /// Bytes of code.
    pub code: u64,
    /// Bytes of stack that a run takes beyond its caller's.
    pub stack: u64,
}

fn failed(error: ModuleError) -> Error {
    Error::internal(Stage::Codegen, format!("object: {error}"))
}

/// Alignment of weights: what vectors and lines of caches like.
const WEIGHTS_ALIGN: u64 = 64;

pub(super) fn write(model: &Model<'_>, kernels: &[CompiledKernel], target: Target) -> Result<Object> {
    let isa = Isa::cached(target)?.shared();
    let mut builder = ObjectBuilder::new(isa, model.name, default_libcall_names()).map_err(failed)?;
    builder.per_function_section(true).per_data_object_section(true);
    let mut module = ObjectModule::new(builder);
    let mut code = 0;
    let mut functions: Vec<FuncId> = vec![];
    for (k, kernel) in kernels.iter().enumerate() {
        let id =
            module.declare_function(&kernel_name(k), Linkage::Local, &native::kernel_signature()).map_err(failed)?;
        module
            .define_function_bytes(id, u64::from(kernel.align).max(CODE_ALIGN as u64), &kernel.code, &[])
            .map_err(failed)?;
        code += kernel.code.len() as u64;
        functions.push(id);
    }
    let weights = &model.file.weights;
    let weights = match weights.is_empty() {
        true => None,
        false => Some(data(&mut module, "weights", weights.clone(), WEIGHTS_ALIGN)?),
    };
    let run = format!("{}_run", model.name);
    let (run, mut context) = function(&mut module, &run, native::signature(model))?;
    let outside = Outside {
        kernels: functions.iter().map(|id| module.declare_func_in_func(*id, &mut context.func)).collect(),
        weights: weights.map(|id| module.declare_data_in_func(id, &mut context.func)),
    };
    native::run(model, &mut context.func, &outside, module.target_config());
    let (run_code, run_stack) = define(&mut module, run, context)?;
    code += run_code;
    explain(model, &mut module)?;
    let deepest = kernels.iter().map(|k| u64::from(k.stack_bytes) + FRAME).max().unwrap_or(0);
    let bytes = module.finish().emit().map_err(|e| Error::internal(Stage::Codegen, format!("object: {e}")))?;
    Ok(Object { bytes, code, stack: run_stack + deepest })
}

/// Bytes that a call and its frame take beside what [`CompiledKernel::stack_bytes`] counts: return address and frame pointer.
const FRAME: u64 = 16;

fn data(module: &mut ObjectModule, name: &str, bytes: Vec<u8>, align: u64) -> Result<DataId> {
    let id = module.declare_data(name, Linkage::Local, false, false).map_err(failed)?;
    let mut description = DataDescription::new();
    description.define(bytes.into_boxed_slice());
    description.set_align(align);
    module.define_data(id, &description).map_err(failed)?;
    Ok(id)
}

fn function(module: &mut ObjectModule, name: &str, signature: Signature) -> Result<(FuncId, Context)> {
    let id = module.declare_function(name, Linkage::Export, &signature).map_err(failed)?;
    Ok((id, Context::for_function(Function::with_name_signature(UserFuncName::user(0, id.as_u32()), signature))))
}

/// Compiles a function; gives its bytes of code and of stack.
fn define(module: &mut ObjectModule, id: FuncId, mut context: Context) -> Result<(u64, u64)> {
    module.define_function(id, &mut context).map_err(failed)?;
    let compiled =
        context.compiled_code().ok_or_else(|| Error::internal(Stage::Codegen, "object: no code came out"))?;
    let frame = compiled.buffer.frame_layout().map_or(0, |frame| u64::from(frame.frame_to_fp_offset));
    Ok((compiled.code_buffer().len() as u64, frame + FRAME))
}

/// The sentence for each status: one after the other in memory, each ended by a zero.
fn explain(model: &Model<'_>, module: &mut ObjectModule) -> Result<()> {
    let messages = model.plan.messages.iter().map(String::as_str);
    let known = statuses(model).into_iter().filter(|(word, _)| *word != "CHECK").map(|(_, text)| text);
    let mut text = b"unknown status\0".to_vec();
    let mut starts = vec![];
    for sentence in known.chain(messages) {
        starts.push(text.len() as i64);
        text.extend(sentence.bytes().filter(|b| *b != 0));
        text.push(0);
    }
    let text = data(module, "sentences", text, 1)?;
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params.push(AbiParam::new(types::I32));
    signature.returns.push(AbiParam::new(types::I64));
    let (id, mut context) = function(module, &format!("{}_explain", model.name), signature)?;
    let text = module.declare_data_in_func(text, &mut context.func);
    let mut frontend = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut context.func, &mut frontend);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let status = b.block_params(entry)[0];
    let mut offset = b.ins().iconst(types::I64, 0);
    for (number, start) in (0i64..).zip(starts) {
        let is = b.ins().icmp_imm_s(IntCC::Equal, status, number);
        let start = b.ins().iconst(types::I64, start);
        offset = b.ins().select(is, start, offset);
    }
    let base = b.ins().symbol_value(types::I64, text);
    let sentence = b.ins().iadd(base, offset);
    b.ins().return_(&[sentence]);
    b.seal_all_blocks();
    b.finalize(module.target_config());
    define(module, id, context)?;
    Ok(())
}

/// A static library with one object, whose functions its index names.
pub fn archive(name: &str, object: &[u8]) -> Vec<u8> {
    let member = |title: &str, bytes: &[u8], out: &mut Vec<u8>| {
        out.extend(format!("{title:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, bytes.len()).bytes());
        out.extend(bytes);
        // Members begin at even places.
        if !bytes.len().is_multiple_of(2) {
            out.push(b'\n');
        }
    };
    let symbols = [format!("{name}_run"), format!("{name}_explain")];
    // The number of symbols, for each the place of the member that has it, then their names.
    let names: Vec<u8> = symbols.iter().flat_map(|s| s.bytes().chain([0])).collect();
    let index_bytes = 4 + 4 * symbols.len() + names.len();
    let magic = b"!<arch>\n";
    let place = magic.len() + HEADER + index_bytes.next_multiple_of(2);
    // A name that does not fit its field is of no use to a linker.
    let title: String = name.chars().take(13).collect();
    let mut index = (symbols.len() as u32).to_be_bytes().to_vec();
    symbols.iter().for_each(|_| index.extend((place as u32).to_be_bytes()));
    index.extend(names);
    let mut out = magic.to_vec();
    member("/", &index, &mut out);
    member(&format!("{title}.o/"), object, &mut out);
    out
}

/// Bytes of what precedes a member of an archive.
const HEADER: usize = 60;
