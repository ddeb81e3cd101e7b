//! `graphmend-pack --check`: messages and exit statuses.

use crate::quickstart::{EXAMPLE, graphmend_pack};
use crate::{Folder, failure};

#[test]
#[cfg(not(feature = "check"))]
fn without_the_feature_nothing_is_packed_and_the_feature_is_named() {
    let folder = Folder::new();
    let file = folder.path("model.gmc");
    let (status, message) =
        failure(&graphmend_pack(&[&format!("{EXAMPLE}/silero_vad.onnx"), &"--check", &"-o", &file]));
    assert_eq!(status, 1);
    assert!(message.contains("--features check"), "{message}");
    assert!(!file.exists());
}

#[cfg(feature = "check")]
mod with_tract {
    use graphmend::compiler::dtype::DType;
    use graphmend::compiler::graph::{DimDecl, Module, Node, ONNX_DOMAIN, OutputDecl, ValueType};
    use graphmend::compiler::onnx::write;
    use serde_json::Value;

    use super::*;
    use crate::stdout;

    /// How many elements this operator gives depends on data: tract takes it in no form.
    fn compress(folder: &Folder) -> std::path::PathBuf {
        let mut module = Module { name: "g".into(), ir_version: 8, ..Module::default() };
        module.opsets.insert(ONNX_DOMAIN.into(), 17);
        let x = module.add_value("x", ValueType::fixed(DType::F32, &[4]));
        let which = module.add_value("which", ValueType::fixed(DType::Bool, &[4]));
        let ty = ValueType::Tensor { elem: DType::F32.into(), shape: Some(vec![DimDecl::Unknown]) };
        let y = module.add_value("y", ty.clone());
        module.main.inputs = vec![x, which];
        module.main.outputs = vec![y];
        module.outputs = vec![OutputDecl { name: "y".into(), ty }];
        module.main.nodes = vec![Node {
            name: "compress".into(),
            domain: ONNX_DOMAIN.into(),
            op_type: "Compress".into(),
            version: 17,
            inputs: vec![Some(x), Some(which)],
            outputs: vec![Some(y)],
            ..Node::default()
        }];
        let path = folder.path("compress.onnx");
        write::write_file(&module, &path).unwrap();
        path
    }

    #[test]
    fn a_model_that_agrees_says_on_what_it_was_tried() {
        let folder = Folder::new();
        let model = format!("{EXAMPLE}/silero_vad.onnx");
        let out = stdout(&graphmend_pack(&[&model, &"--check", &"-o", &folder.path("model.gmc")]));
        assert!(out.contains("check     agrees with tract in 3 runs with inputs input ["), "{out}");
    }

    #[test]
    fn a_model_that_tract_refuses_is_packed_but_not_compared() {
        let folder = Folder::new();
        let (model, file) = (compress(&folder), folder.path("model.gmc"));
        let output = graphmend_pack(&[&model, &"--check", &"--json", &"-o", &file]);
        let (status, message) = failure(&output);
        assert_eq!(status, 5, "{message}");
        assert!(message.contains("nothing was compared: tract refused the model: "), "{message}");
        assert!(message.contains("Compress"), "{message}");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["status"], "not compared");
        assert!(file.exists());
    }
}
