//! Reading a model file and the files that its weights may lie in.
//!
//! Whatever the file says, reading never takes more memory than a small multiple of the files' sizes, and never reads a
//! file outside the model's own folder.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use prost::Message;

use crate::error::{Collector, Error, Fault, Result, Stage, Unsupported};
use crate::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, data_location,
};
use crate::onnx::tensor::{self, Reason};

/// Protobuf messages end here; larger models keep their weights in external files.
const MOST_MODEL_BYTES: u64 = i32::MAX as u64;
/// Tensors may share ranges of external files, but not so often that a small file fills the memory.
const MOST_SHARING: u64 = 8;

/// A model with all its weights in memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Loaded {
    /// The model; the data of external tensors is in their `raw_data`.
    pub model: ModelProto,
    /// BLAKE3 over the model file's bytes and, in the model's order, all external bytes that it uses: equal digests mean
    /// equal models, weights included, wherever they lie. To be part of the key of anything made from the model.
    pub content_digest: [u8; 32],
    /// Bytes of the model file.
    pub model_bytes: u64,
    /// Bytes read from other files.
    pub external_bytes: u64,
}

/// Reads a model file and its external data.
///
/// # Errors
/// [`Error::Io`] when the model file cannot be read, [`Error::Invalid`] when it is damaged, incomplete, or names
/// external data that is missing, too short or outside of the model's folder.
pub fn load(path: impl AsRef<Path>) -> Result<Loaded> {
    let path = path.as_ref();
    let bytes = read_model_file(path)?;
    let folders = Folders::of(path)?;
    finish(bytes, Some(folders))
}

/// Reads a model from memory. External data is looked for in `folder`; without one it is an error.
pub fn load_bytes(bytes: Vec<u8>, folder: Option<&Path>) -> Result<Loaded> {
    let folders = match folder {
        Some(folder) => {
            let real = folder.canonicalize().map_err(|e| Error::io(folder, e))?;
            Some(Folders { given: folder.to_owned(), real: vec![real] })
        }
        None => None,
    };
    finish(bytes, folders)
}

fn read_model_file(path: &Path) -> Result<Vec<u8>> {
    let io = |e| Error::io(path, e);
    let Some((file, size)) = open_regular(path).map_err(io)? else {
        return Err(Error::invalid(Stage::Load, format!("{} is not a regular file", path.display())));
    };
    if size > MOST_MODEL_BYTES {
        return Err(Error::invalid(
            Stage::Load,
            format!(
                "{} has {size} bytes; a model file has at most {MOST_MODEL_BYTES}, larger weights belong in external data",
                path.display()
            ),
        ));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size as usize).map_err(|_| {
        Error::invalid(Stage::Load, format!("{} has {size} bytes, more than memory can hold", path.display()))
    })?;
    file.take(MOST_MODEL_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

/// Opens a file and tells its size. Anything but a regular file gives `None` and is not opened: a named pipe would wait for
/// somebody to write to it.
fn open_regular(path: &Path) -> std::io::Result<Option<(File, u64)>> {
    if !path.metadata()?.is_file() {
        return Ok(None);
    }
    let file = File::open(path)?;
    let meta = file.metadata()?;
    Ok(meta.is_file().then_some((file, meta.len())))
}

fn finish(bytes: Vec<u8>, folders: Option<Folders>) -> Result<Loaded> {
    let damaged = |why: String| Error::invalid(Stage::Load, format!("the model file is damaged or incomplete: {why}"));
    if bytes.is_empty() {
        return Err(damaged("it is empty".into()));
    }
    let mut model = ModelProto::decode(bytes.as_slice()).map_err(|e| damaged(e.to_string()))?;
    if model.graph.is_none() {
        return Err(damaged("it has no graph".into()));
    }
    let mut hasher = blake3::Hasher::new();
    let model_bytes = bytes.len() as u64;
    hasher.update(&model_bytes.to_le_bytes());
    hasher.update(&bytes);
    drop(bytes);

    let mut reader = Reader { folders, files: HashMap::new(), available: 0, taken: 0, hasher, found: Collector::new() };
    reader.model(&mut model)?;
    reader.found.finish()?;
    Ok(Loaded {
        model,
        content_digest: *reader.hasher.finalize().as_bytes(),
        model_bytes,
        external_bytes: reader.taken,
    })
}

/// The folders that external data may lie in.
struct Folders {
    /// Where locations are looked up.
    given: PathBuf,
    /// Real folders of which one must hold the real file.
    real: Vec<PathBuf>,
}

impl Folders {
    fn of(model: &Path) -> Result<Folders> {
        let given = match model.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut real = vec![given.canonicalize().map_err(|e| Error::io(&given, e))?];
        // Download caches put links to model and weights beside each other, the files beside each other elsewhere.
        if let Ok(target) = model.canonicalize()
            && let Some(parent) = target.parent()
            && !real.iter().any(|known| known == parent)
        {
            real.push(parent.to_owned());
        }
        Ok(Folders { given, real })
    }

    /// The real path of a location, if it may be read.
    fn resolve(&self, location: &str) -> Result<PathBuf, String> {
        let outside = || format!("external data path '{location}' leaves the model folder");
        let relative = Path::new(location);
        let mut names = 0;
        for component in relative.components() {
            match component {
                Component::Normal(_) => names += 1,
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(outside()),
            }
        }
        if names == 0 {
            return Err("external data has no file name".into());
        }
        let path = self.given.join(relative);
        let real = path.canonicalize().map_err(|e| format!("external data file '{location}' cannot be read: {e}"))?;
        if !self.real.iter().any(|folder| real.starts_with(folder)) {
            return Err(outside());
        }
        Ok(real)
    }
}

/// An opened file of weights.
struct Weights {
    file: File,
    size: u64,
}

/// Walks over all tensors of a model and brings external data in.
struct Reader {
    folders: Option<Folders>,
    files: HashMap<String, Weights>,
    /// Sum of the sizes of the opened files.
    available: u64,
    /// Bytes read so far.
    taken: u64,
    hasher: blake3::Hasher,
    found: Collector,
}

impl Reader {
    fn model(&mut self, model: &mut ModelProto) -> Result<()> {
        // Training graphs are not run, so their weights are not read.
        if let Some(graph) = &mut model.graph {
            self.graph(graph)?;
        }
        for function in &mut model.functions {
            self.attributes("", &mut function.attribute_proto)?;
            self.nodes(&mut function.node)?;
        }
        Ok(())
    }

    fn graph(&mut self, graph: &mut GraphProto) -> Result<()> {
        for tensor in &mut graph.initializer {
            self.tensor("", tensor)?;
        }
        for sparse in &mut graph.sparse_initializer {
            self.sparse("", sparse)?;
        }
        self.nodes(&mut graph.node)
    }

    fn nodes(&mut self, nodes: &mut [NodeProto]) -> Result<()> {
        for node in nodes {
            let name = match node.name.as_deref() {
                Some(name) if !name.is_empty() => name.to_owned(),
                _ => node.output.first().cloned().unwrap_or_default(),
            };
            self.attributes(&name, &mut node.attribute)?;
        }
        Ok(())
    }

    fn attributes(&mut self, node: &str, attributes: &mut [AttributeProto]) -> Result<()> {
        for attribute in attributes {
            for tensor in attribute.t.iter_mut().chain(&mut attribute.tensors) {
                self.tensor(node, tensor)?;
            }
            for sparse in attribute.sparse_tensor.iter_mut().chain(&mut attribute.sparse_tensors) {
                self.sparse(node, sparse)?;
            }
            for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
                self.graph(graph)?;
            }
        }
        Ok(())
    }

    fn sparse(&mut self, node: &str, sparse: &mut SparseTensorProto) -> Result<()> {
        for tensor in sparse.values.iter_mut().chain(&mut sparse.indices) {
            self.tensor(node, tensor)?;
        }
        Ok(())
    }

    fn tensor(&mut self, node: &str, tensor: &mut TensorProto) -> Result<()> {
        if tensor.data_location != Some(data_location::EXTERNAL) {
            return Ok(());
        }
        match self.external(tensor) {
            Ok(bytes) => {
                self.hasher.update(&(bytes.len() as u64).to_le_bytes());
                self.hasher.update(&bytes);
                tensor.raw_data = Some(bytes);
                tensor.data_location = Some(data_location::DEFAULT);
                tensor.external_data.clear();
            }
            Err(reason) => {
                let what = match tensor.name.as_deref() {
                    Some(name) if !name.is_empty() => format!("tensor '{name}'"),
                    _ => "a tensor without a name".to_owned(),
                };
                let node = node.to_owned();
                match reason {
                    Reason::Invalid(why) => self.found.fault(Fault {
                        stage: Stage::Load,
                        node,
                        op: String::new(),
                        message: format!("{what}: {why}"),
                    }),
                    Reason::Unsupported(why) => {
                        self.found.lack(Unsupported::new(node, "", format!("{what}: {why}")));
                    }
                }
            }
        }
        Ok(())
    }

    /// The bytes of one external tensor.
    fn external(&mut self, tensor: &TensorProto) -> Result<Vec<u8>, Reason> {
        let invalid = Reason::Invalid;
        let entry = |key: &str| {
            tensor.external_data.iter().find(|e| e.key.as_deref() == Some(key)).and_then(|e| e.value.as_deref())
        };
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => {
                let read = text.trim().parse::<u64>();
                read.map(Some).map_err(|_| invalid(format!("external data {key} '{text}' is not a number")))
            }
        };
        let location = entry("location").unwrap_or("").to_owned();
        let offset = number("offset")?.unwrap_or(0);
        let length = number("length")?;
        let header = tensor::header(tensor)?;
        let wanted = header.bytes()?.ok_or_else(|| invalid("strings cannot be stored as external data".into()))?;
        if length.is_some_and(|length| length != wanted as u64) {
            return Err(invalid(format!(
                "external data has length {}, but {} of shape {:?} takes {wanted} bytes",
                length.unwrap_or(0),
                header.elem.onnx_name(),
                header.shape
            )));
        }
        let weights = self.open(&location)?;
        let size = weights.size;
        if offset.checked_add(wanted as u64).is_none_or(|end| end > size) {
            return Err(invalid(format!(
                "external data file '{location}' has {size} bytes, but {wanted} bytes from offset {offset} are asked for"
            )));
        }
        let read = read_range(&mut weights.file, offset, wanted);
        let bytes = read.map_err(|e| invalid(format!("external data file '{location}' cannot be read: {e}")))?;
        self.taken += wanted as u64;
        if self.taken > self.available.saturating_mul(MOST_SHARING) {
            return Err(invalid("the model's tensors take far more external data than the files hold".into()));
        }
        Ok(bytes)
    }

    fn open(&mut self, location: &str) -> Result<&mut Weights, Reason> {
        if !self.files.contains_key(location) {
            let invalid = Reason::Invalid;
            let Some(folders) = &self.folders else {
                return Err(invalid(format!("external data file '{location}' cannot be found for a model in memory")));
            };
            let path = folders.resolve(location).map_err(invalid)?;
            let cannot = |e| invalid(format!("external data file '{location}' cannot be read: {e}"));
            let Some((file, size)) = open_regular(&path).map_err(cannot)? else {
                return Err(invalid(format!("external data '{location}' is not a regular file")));
            };
            self.available = self.available.saturating_add(size);
            self.files.insert(location.to_owned(), Weights { file, size });
        }
        let opened = self.files.get_mut(location);
        opened.ok_or_else(|| Reason::Invalid(format!("external data file '{location}' cannot be opened")))
    }
}

fn read_range(file: &mut File, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(std::io::Error::other)?;
    let read = file.take(length as u64).read_to_end(&mut bytes)?;
    if read == length { Ok(bytes) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::StringStringEntryProto;
    use std::fs;

    /// A model with one external float tensor `w` of shape [2].
    fn model(location: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let pair = |key: &str, value: &str| StringStringEntryProto {
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
        };
        let mut external_data = vec![pair("location", location)];
        external_data.extend(more.iter().map(|(k, v)| pair(k, v)));
        let tensor = TensorProto {
            name: Some("w".into()),
            dims: vec![2],
            data_type: Some(1),
            data_location: Some(data_location::EXTERNAL),
            external_data,
            ..Default::default()
        };
        let graph = GraphProto { initializer: vec![tensor], ..Default::default() };
        ModelProto { graph: Some(graph), ..Default::default() }.encode_to_vec()
    }

    fn complaint(result: Result<Loaded>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn external_bytes_are_read_and_change_the_digest() {
        let dir = tempfile::tempdir().unwrap();
        let data: Vec<u8> = (0..12).collect();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/w.data"), &data).unwrap();
        let path = dir.path().join("m.onnx");
        fs::write(&path, model("sub/w.data", &[("offset", "4"), ("length", "8")])).unwrap();
        let first = load(&path).unwrap();
        let tensor = &first.model.graph.as_ref().unwrap().initializer[0];
        assert_eq!(tensor.raw_data.as_deref(), Some(&data[4..]));
        assert_eq!(first.external_bytes, 8);

        let again = load(&path).unwrap();
        assert_eq!(again.content_digest, first.content_digest);
        let mut changed = data.clone();
        changed[11] ^= 1;
        fs::write(dir.path().join("sub/w.data"), &changed).unwrap();
        assert_ne!(load(&path).unwrap().content_digest, first.content_digest);
        // Bytes that no tensor uses are not content.
        changed[11] ^= 1;
        changed[0] ^= 1;
        fs::write(dir.path().join("sub/w.data"), &changed).unwrap();
        assert_eq!(load(&path).unwrap().content_digest, first.content_digest);
    }

    #[test]
    fn nothing_outside_the_folder_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("model");
        fs::create_dir(&folder).unwrap();
        let outside = dir.path().join("outside.data");
        fs::write(&outside, [0; 8]).unwrap();
        let path = folder.join("m.onnx");
        let absolute = outside.to_str().unwrap();
        for location in ["../outside.data", "a/../../outside.data", absolute, ".."] {
            fs::write(&path, model(location, &[])).unwrap();
            let text = complaint(load(&path));
            assert!(text.contains("tensor 'w'") && text.contains("leaves the model folder"), "{location}: {text}");
        }
        fs::write(&path, model("", &[])).unwrap();
        assert!(complaint(load(&path)).contains("no file name"));
    }

    #[cfg(unix)]
    #[test]
    fn links_may_not_lead_outside() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let (folder, blobs) = (dir.path().join("model"), dir.path().join("blobs"));
        fs::create_dir(&folder).unwrap();
        fs::create_dir(&blobs).unwrap();
        fs::write(blobs.join("1234"), [0; 8]).unwrap();
        symlink("../blobs/1234", folder.join("w.data")).unwrap();
        let path = folder.join("m.onnx");
        fs::write(&path, model("w.data", &[])).unwrap();
        assert!(complaint(load(&path)).contains("leaves the model folder"));
        // A link to a file inside is fine, and so is a model that is itself a link into the folder of its weights.
        fs::write(folder.join("real.data"), [0; 8]).unwrap();
        symlink("real.data", folder.join("link.data")).unwrap();
        fs::write(&path, model("link.data", &[])).unwrap();
        load(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(blobs.join("5678"), model("w.data", &[])).unwrap();
        symlink("../blobs/5678", &path).unwrap();
        load(&path).unwrap();
    }

    #[test]
    fn ranges_are_checked_against_the_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("w.data"), [0; 11]).unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        for (more, wanted) in [
            (&[("offset", "4")][..], "has 11 bytes, but 8 bytes from offset 4"),
            (&[("offset", "18446744073709551615")], "from offset 18446744073709551615"),
            (&[("offset", "-1")], "offset '-1' is not a number"),
            (&[("length", "4")], "has length 4, but float of shape [2] takes 8 bytes"),
        ] {
            let text = complaint(load_bytes(model("w.data", more), Some(dir.path())));
            assert!(text.contains(wanted), "{text}");
        }
        assert!(complaint(load_bytes(model("none", &[]), Some(dir.path()))).contains("'none' cannot be read"));
        assert!(
            complaint(load_bytes(model("folder", &[]), Some(dir.path()))).contains("folder' is not a regular file")
        );
        assert!(complaint(load_bytes(model("w.data", &[]), None)).contains("for a model in memory"));
        load_bytes(model("w.data", &[("offset", "3")]), Some(dir.path())).unwrap();
    }

    #[test]
    fn damaged_files_say_so() {
        let good = {
            let tensor = TensorProto {
                name: Some("w".into()),
                dims: vec![100],
                data_type: Some(1),
                raw_data: Some(vec![1; 400]),
                ..Default::default()
            };
            let graph = GraphProto { initializer: vec![tensor], ..Default::default() };
            ModelProto { ir_version: Some(8), graph: Some(graph), ..Default::default() }.encode_to_vec()
        };
        load_bytes(good.clone(), None).unwrap();
        for cut in 0..good.len() {
            let text = complaint(load_bytes(good[..cut].to_vec(), None));
            assert!(text.contains("damaged or incomplete"), "{cut}: {text}");
        }
        let text = complaint(load_bytes(b"#!/bin/sh\necho no model\n".to_vec(), None));
        assert!(text.contains("damaged or incomplete"), "{text}");
        assert!(matches!(load("/nonexistent/m.onnx"), Err(Error::Io { .. })));
        let dir = tempfile::tempdir().unwrap();
        assert!(load(dir.path()).is_err());
    }

    /// A named pipe that nobody writes to: opening it would wait for ever.
    #[cfg(unix)]
    #[test]
    fn named_pipes_are_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let path = dir.path().join("m.onnx");
        fs::write(&path, model("pipe", &[])).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send([complaint(load(&pipe)), complaint(load(&path))]));
        let told = receive.recv_timeout(std::time::Duration::from_secs(20)).expect("an answer");
        assert!(told.iter().all(|text| text.contains("not a regular file")), "{told:?}");
    }
}
