//! `load_or_pack` packs a model once, and again only when something changed of which the packed file is made.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use graphmend::compiler::expand::Dim;
use graphmend::compiler::pack::Options;
use graphmend::npy::Array;
use graphmend::{DType, Model, compiler, host};
use graphmend_tests::{model, quickstart, reference};

const X: [f32; 4] = [1.0, 10.0, 100.0, 1000.0];

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Result<Place> {
        let place = Place { dir: tempfile::tempdir()? };
        model::write_scale(&place.model(), [1.0, 2.0, 3.0, 4.0])?;
        Ok(place)
    }

    fn model(&self) -> PathBuf {
        self.dir.path().join("scale.onnx")
    }

    fn weights(&self) -> PathBuf {
        self.dir.path().join(model::WEIGHTS)
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn load(&self, path: &Path) -> Result<Model> {
        Ok(host::load_or_pack_with(path, &Options::new(host::target(None)?), &self.cache())?)
    }

    /// Packed files and when each was written.
    fn packed(&self) -> Result<Vec<(PathBuf, SystemTime)>> {
        let mut files = vec![];
        for entry in fs::read_dir(self.cache())? {
            let entry = entry?;
            files.push((entry.path(), entry.metadata()?.modified()?));
        }
        files.sort();
        Ok(files)
    }
}

fn y(model: &Model) -> Result<Vec<f64>> {
    let bytes = X.iter().flat_map(|v| v.to_le_bytes()).collect();
    let x = Array { dtype: DType::F32, shape: vec![4], bytes };
    Ok(reference::run(model, &mut model.session()?, &[x])?[0].numbers().collect())
}

#[test]
fn the_second_load_takes_the_packed_file() -> Result<()> {
    let place = Place::new()?;
    assert_eq!(y(&place.load(&place.model())?)?, [1.0, 20.0, 300.0, 4000.0]);
    let packed = place.packed()?;
    assert_eq!(packed.len(), 1, "{packed:?}");
    assert_eq!(y(&place.load(&place.model())?)?, [1.0, 20.0, 300.0, 4000.0]);
    assert_eq!(place.packed()?, packed);
    Ok(())
}

#[test]
fn times_and_paths_play_no_part() -> Result<()> {
    let place = Place::new()?;
    place.load(&place.model())?;
    let packed = place.packed()?;
    for file in [place.model(), place.weights()] {
        fs::File::options().append(true).open(file)?.set_modified(SystemTime::now() + Duration::from_secs(3600))?;
    }
    place.load(&place.model())?;
    let elsewhere = place.dir.path().join("elsewhere");
    fs::create_dir(&elsewhere)?;
    fs::rename(place.model(), elsewhere.join("renamed.onnx"))?;
    fs::rename(place.weights(), elsewhere.join(model::WEIGHTS))?;
    assert_eq!(y(&place.load(&elsewhere.join("renamed.onnx"))?)?, [1.0, 20.0, 300.0, 4000.0]);
    assert_eq!(place.packed()?, packed);
    Ok(())
}

#[test]
fn other_external_weights_of_the_same_size_and_time_are_packed_anew() -> Result<()> {
    let place = Place::new()?;
    place.load(&place.model())?;
    let time = fs::metadata(place.weights())?.modified()?;
    model::write_weights(&place.weights(), [4.0, 3.0, 2.0, 1.0])?;
    fs::File::options().append(true).open(place.weights())?.set_modified(time)?;
    assert_eq!(y(&place.load(&place.model())?)?, [4.0, 30.0, 200.0, 1000.0]);
    assert_eq!(place.packed()?.len(), 2);
    // The first weights again: their file is still there.
    model::write_weights(&place.weights(), [1.0, 2.0, 3.0, 4.0])?;
    assert_eq!(y(&place.load(&place.model())?)?, [1.0, 20.0, 300.0, 4000.0]);
    assert_eq!(place.packed()?.len(), 2);
    Ok(())
}

#[test]
fn missing_or_short_external_weights_are_an_error() -> Result<()> {
    let place = Place::new()?;
    fs::write(place.weights(), [0; 15])?;
    let error = place.load(&place.model()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(model::WEIGHTS) || error.contains("'w'"), "{error}");
    fs::remove_file(place.weights())?;
    let error = place.load(&place.model()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(model::WEIGHTS), "{error}");
    Ok(())
}

#[test]
fn damaged_packed_files_are_replaced() -> Result<()> {
    let place = Place::new()?;
    place.load(&place.model())?;
    let path = place.packed()?.remove(0).0;
    let good = fs::read(&path)?;
    let mut flipped = good.clone();
    flipped[64] ^= 1;
    for bad in [&good[..good.len() - 1], &good[..3], &[][..], &b"something else"[..], &flipped[..]] {
        fs::write(&path, bad)?;
        assert_eq!(y(&place.load(&place.model())?)?, [1.0, 20.0, 300.0, 4000.0]);
        assert!(fs::read(&path)? == good, "the file of {} bytes was not replaced", bad.len());
    }
    assert_eq!(place.packed()?.len(), 1, "nothing but the packed file is left behind");
    Ok(())
}

#[test]
fn each_target_and_each_bound_has_its_own_file() -> Result<()> {
    let place = Place::new()?;
    let native = host::target(None)?;
    // As a machine with smaller caches has it: the same name, another schedule.
    let mut smaller = Options::new(native);
    smaller.target.l1d_bytes /= 2;
    for options in [Options::new(native), smaller.clone(), Options::new(native), smaller] {
        host::load_or_pack_with(place.model(), &options, &place.cache())?;
    }
    assert_eq!(place.packed()?.len(), 2);
    let case = reference::Case::load("mlp_dyn")?;
    let cache = place.dir.path().join("bounds");
    for dim in [Dim::Fixed(3), Dim::Range(1, 8), Dim::Fixed(7), Dim::Fixed(3)] {
        let mut options = Options::new(native);
        options.dims.insert("batch".into(), dim);
        host::load_or_pack_with(case.model(), &options, &cache)?;
    }
    assert_eq!(fs::read_dir(cache)?.count(), 3);
    Ok(())
}

#[test]
fn several_threads_may_load_at_once() -> Result<()> {
    let place = Place::new()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| y(&place.load(&place.model())?))).collect();
        for thread in threads {
            assert_eq!(thread.join().expect("no panic")?, [1.0, 20.0, 300.0, 4000.0]);
        }
        anyhow::Ok(())
    })?;
    assert_eq!(place.packed()?.len(), 1);
    Ok(())
}

#[test]
fn packing_twice_gives_the_same_bytes() -> Result<()> {
    let place = Place::new()?;
    for path in [place.model(), quickstart("silero_vad.onnx"), reference::Case::load("squeezenet1_1")?.model()] {
        let pack = |emit: &[compiler::pack::Emit]| -> Result<Vec<u8>> {
            let mut options = Options::new(host::target(None)?);
            options.emit = emit.to_vec();
            Ok(compiler::pack_file(&path, &options, &mut |_, _, _| {})?.bytes)
        };
        let first = pack(&[])?;
        // What is shown of the stages does not change the result either.
        assert!(first == pack(&[compiler::pack::Emit::Fused])?, "{}", path.display());
        // Other threads have other hash seeds and other handles.
        let other = std::thread::scope(|s| s.spawn(|| pack(&[])).join().expect("no panic"))?;
        assert!(first == other, "{} in another thread", path.display());
    }
    Ok(())
}
