//! Models in files: mapping, native code, damage.

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::*;
use graphmend_cache_format::LEAF;
use graphmend_runtime::{
    Error, FormatError, Host, KernelArgs, KernelFn, Model, ModelRef, OpenOptions, OwnedSession, Storage, TensorRef,
    Trust, WeightCheck,
};
use graphmend_targets::Features;

struct Temp {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn store(bytes: &[u8]) -> Temp {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gmc");
    std::fs::write(&path, bytes).unwrap();
    Temp { _dir: dir, path }
}

fn doubled(session: &mut OwnedSession<'_>, x: &[i32]) -> Vec<i32> {
    session.run(&[TensorRef::new(x, &[x.len()])]).unwrap();
    let y = session.output(0).unwrap();
    assert_eq!(y.shape, [x.len() as i64]);
    y.as_slice::<i32>().unwrap().to_vec()
}

#[test]
fn native_code_runs_from_a_file() {
    for page in [64, 65536] {
        let mut spec = doubling_model();
        spec.page = page;
        let file = store(&bytes(&spec));
        for storage in [Storage::Map, Storage::Read] {
            let options = OpenOptions { storage, ..OpenOptions::new(Trust::Unsigned) };
            let model = options.open(&file.path).unwrap();
            let mut session = model.session().unwrap();
            assert_eq!(doubled(&mut session, &[1, -2, 3]), [2, -4, 6]);
            assert_eq!(doubled(&mut session, &[]), [0i32; 0]);
            assert_eq!(doubled(&mut session, &[7; 1000]), [14; 1000]);
            assert_eq!(model.meta().unwrap().target, "test");
            let root = model.root().unwrap();
            assert!(Model::open(&file.path, Trust::Pinned(root)).is_ok());
        }
        let model = Model::from_bytes(&bytes(&spec), Trust::Unsigned).unwrap();
        assert_eq!(doubled(&mut model.session().unwrap(), &[5]), [10]);
    }
}

#[test]
fn a_file_in_memory_is_used_where_it_lies() {
    let mut spec = doubling_model();
    spec.weights = (0..100).collect();
    let memory: &'static Aligned = Box::leak(Box::new(Aligned::new(&bytes(&spec))));
    let memory = memory.bytes();
    let options = OpenOptions::new(Trust::Unsigned);
    let model = Arc::new(options.from_static(memory).unwrap());
    assert_eq!(doubled(&mut model.session().unwrap(), &[5]), [10]);
    let error = options.from_static(&memory[1..]).unwrap_err();
    assert_eq!(error.model_error(), Some(Error::FileMisaligned));

    // An arena that is lent is used, and does not grow.
    let mut arena = vec![0u8; 8192 + 64];
    let skip = arena.as_ptr().align_offset(64);
    let range = arena[skip..skip + 4096].as_ptr_range();
    let mut session = OwnedSession::shared_in(Arc::clone(&model), &mut arena[skip..skip + 4096]).unwrap();
    assert_eq!(session.arena_range(), range);
    assert_eq!(doubled(&mut session, &[5, 6]), [10, 12]);
    assert!(range.contains(&session.output(0).unwrap().bytes.as_ptr()));
    let small = OwnedSession::shared_in(Arc::clone(&model), &mut []).err();
    assert_eq!(small, Some(Error::ArenaTooSmall { needed: 4096 }));
    assert!(OwnedSession::new_in(model.view(), &mut arena[skip..skip + 8192]).is_ok());
}

#[test]
fn a_model_is_shared_by_threads() {
    let model = Arc::new(Model::from_bytes(&bytes(&doubling_model()), Trust::Unsigned).unwrap());
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let mut session = OwnedSession::shared(Arc::clone(&model)).unwrap();
            std::thread::spawn(move || doubled(&mut session, &[t, t + 1]))
        })
        .collect();
    drop(model);
    for (t, thread) in (0..).zip(threads) {
        assert_eq!(thread.join().unwrap(), [2 * t, 2 * t + 2]);
    }
}

#[test]
fn every_changed_byte_is_refused() {
    let mut spec = doubling_model();
    spec.weights = (0..100).collect();
    // The plan uses the weights, so that a run looks at them.
    let plan = &mut spec.variants[0].plan;
    plan.buffers.push(weights(DType::U8, 0, 100));
    plan.instrs.insert(0, Instr::LoadInt { dst: 0, buf: 2, index: imm(0) });
    let good = bytes(&spec);
    let mut copy = good.clone();
    let options = OpenOptions::new(Trust::Unsigned);
    let use_all = |bytes: &[u8]| -> Result<(), String> {
        let model = options.from_bytes(bytes).map_err(|e| e.to_string())?;
        model.meta().map_err(|e| e.to_string())?;
        model.debug().map_err(|e| e.to_string())?;
        let mut session = model.session().map_err(|e| e.to_string())?;
        session.run(&[TensorRef::new(&[1i32], &[1])]).map_err(|e| e.to_string())
    };
    use_all(&good).unwrap();
    for i in 0..good.len() {
        copy[i] ^= 1 << (i % 8);
        assert!(use_all(&copy).is_err(), "byte {i} of {}", good.len());
        copy[i] = good[i];
    }
    for n in 0..good.len() {
        assert!(use_all(&good[..n]).is_err(), "length {n}");
    }
    let eager = OpenOptions { weights: WeightCheck::Eager, ..options };
    let last = copy.len() - 1;
    copy[last] ^= 1;
    let error = eager.from_bytes(&copy).unwrap_err().model_error();
    assert_eq!(error, Some(Error::Format(FormatError::Leaf(0))));
}

#[test]
fn bytes_that_were_never_a_model_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Model::open(dir.path().join("none.gmc"), Trust::Unsigned).unwrap_err();
    assert!(missing.io_error().is_some() && missing.to_string().contains("none.gmc"), "{missing}");
    let folder = Model::open(dir.path(), Trust::Unsigned).unwrap_err();
    assert!(folder.io_error().is_some(), "{folder}");
    for junk in [&b""[..], b"GMCACHE", b"GMCACHE\0", &[0; 4096], b"ONNX model"] {
        let file = store(junk);
        let error = Model::open(&file.path, Trust::Unsigned).unwrap_err();
        assert!(error.model_error().is_some(), "{error}");
    }
}

/// A named pipe that nobody writes to: opening it would wait for ever.
#[cfg(unix)]
#[test]
fn named_pipes_are_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(Model::open(&pipe, Trust::Unsigned).unwrap_err().to_string()));
    let told = receive.recv_timeout(std::time::Duration::from_secs(20)).expect("an answer");
    assert!(told.contains("not a regular file"), "{told}");
}

unsafe extern "C" fn nothing(_: *const KernelArgs) -> u32 {
    0
}

#[test]
fn plans_that_lie_are_refused_although_all_digests_fit() {
    // Every field of every record of the hot sections, changed to extreme values, with digests made right again.
    let good = bytes(&doubling_model());
    let kinds: [u16; 3] = [1, 2, 3];
    let entries: Vec<(usize, usize, usize)> = (0..u32::from_le_bytes(good[128..132].try_into().unwrap()) as usize)
        .map(|i| 192 + 64 * i)
        .filter(|&e| kinds.contains(&u16::from_le_bytes(good[e..e + 2].try_into().unwrap())))
        .map(|e| {
            let field = |at: usize| u64::from_le_bytes(good[e + at..e + at + 8].try_into().unwrap()) as usize;
            (e, field(8), field(16))
        })
        .collect();
    assert_eq!(entries.len(), 3);
    let (mut refused, mut taken) = (0, 0);
    for (entry, offset, len) in entries {
        for at in (offset..offset + len).step_by(4) {
            for value in [0u32, 1, 2, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff_fffe, 0xffff_ffff] {
                let mut bad = good.clone();
                let end = (at + 4).min(offset + len);
                bad[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
                let digest = blake3::hash(&bad[offset..offset + len]);
                bad[entry + 32..entry + 64].copy_from_slice(digest.as_bytes());
                bad[96..128].fill(0);
                let tables = 192 + 64 * u32::from_le_bytes(good[128..132].try_into().unwrap()) as usize + 32;
                let root = blake3::hash(&bad[..tables]);
                bad[96..128].copy_from_slice(root.as_bytes());
                // Those that are still plans run, with a kernel that touches nothing: native code trusts its arguments.
                let file = Aligned::new(&bad);
                let kernels: [KernelFn; 1] = [nothing];
                // SAFETY: the kernel takes any arguments.
                let model = unsafe {
                    ModelRef::from_bytes(file.bytes(), Trust::Unsigned, host(), WeightCheck::OnUse, Some(&kernels))
                };
                let Ok(mut session) = model.and_then(OwnedSession::new) else {
                    refused += 1;
                    continue;
                };
                taken += 1;
                session.set_step_limit(10_000);
                if session.run(&[TensorRef::new(&[1i32; 10], &[10])]).is_ok() {
                    let _ = session.output(0).unwrap().bytes.iter().fold(0u8, |a, b| a ^ b);
                }
            }
        }
    }
    assert!(refused > 300 && taken > 0, "{refused} {taken}");
}

#[test]
fn features_are_demanded_before_anything_runs() {
    let mut spec = doubling_model();
    spec.variants[0].features = 1 << 20 | 1;
    let file = store(&bytes(&spec));
    let with =
        |features| OpenOptions { host: Some(Host::with_features(features)), ..OpenOptions::new(Trust::Unsigned) };
    let error = with(Features(1)).open(&file.path).unwrap_err();
    assert!(
        matches!(error.model_error(), Some(Error::MissingFeatures { missing: Features(0x10_0000), .. })),
        "{error}"
    );
    assert!(error.to_string().contains("this CPU lacks it"), "{error}");
    let by_number = OpenOptions { variant: Some(0), ..with(Features(1)) };
    assert!(matches!(by_number.open(&file.path).unwrap_err().model_error(), Some(Error::MissingFeatures { .. })));
    let none = OpenOptions { variant: Some(1), ..with(Features(u64::MAX)) };
    assert_eq!(none.open(&file.path).unwrap_err().model_error(), Some(Error::NoSuchVariant));
}

#[test]
fn a_run_reads_only_the_weights_it_uses() {
    let mut spec = doubling_model();
    spec.weights = vec![1; 4 * LEAF];
    let plan = &mut spec.variants[0].plan;
    plan.buffers.push(weights(DType::U8, LEAF as i64, 10));
    plan.instrs.insert(0, Instr::LoadInt { dst: 0, buf: 2, index: imm(3) });
    let mut file = bytes(&spec);
    let weights = file.len() - 4 * LEAF;
    for leaf in [0, 2, 3] {
        file[weights + leaf * LEAF] ^= 1;
    }
    let model = Model::from_bytes(&file, Trust::Unsigned).unwrap();
    let mut session = model.session().unwrap();
    session.run(&[TensorRef::new(&[1i32], &[1])]).unwrap();
    file[weights + LEAF] ^= 1;
    let model = Model::from_bytes(&file, Trust::Unsigned).unwrap();
    let mut session = model.session().unwrap();
    assert_eq!(session.run(&[TensorRef::new(&[1i32], &[1])]), Err(Error::Format(FormatError::Leaf(1))));
}
