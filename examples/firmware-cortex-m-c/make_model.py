#!/usr/bin/env python3
"""Makes the models of the firmware examples, and an input with the outputs that onnxruntime computes for it.

    make_model.py FOLDER

writes kws.onnx, and kws_case.h and kws_case.rs with the input and the outputs, into FOLDER/float and FOLDER/int8. The model is
the depthwise separable network that is used to spot keywords (DS-CNN, small): 49 frames of 10 coefficients in, 12 scores
out. Its weights are random, from a fixed seed, with activations and scores of order 1. In int8, onnxruntime has quantized
it: weights and activations are bytes, between QuantizeLinear and DequantizeLinear. Needs the packages onnx, onnxruntime
and numpy.
"""

import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

CHANNELS = 64
BLOCKS = 4
LABELS = 12
SHAPE = (1, 1, 49, 10)


def model():
    rng = np.random.default_rng(20240607)
    nodes, weights = [], []

    def weight(name, shape, inputs):
        data = (rng.standard_normal(shape) * np.sqrt(2.0 / inputs)).astype(np.float32)
        weights.append(numpy_helper.from_array(data, name))
        return name

    def bias(name, count):
        weights.append(numpy_helper.from_array((rng.standard_normal(count) * 0.1).astype(np.float32), name))
        return name

    def conv(name, x, channels, kernel, inputs, group=1, strides=(1, 1), pads=(0, 0, 0, 0)):
        shape = (channels, inputs // group, *kernel)
        w = weight(name + ".w", shape, shape[1] * kernel[0] * kernel[1])
        attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "group": group}
        nodes.append(helper.make_node("Conv", [x, w, bias(name + ".b", channels)], [name], name=name, **attributes))
        nodes.append(helper.make_node("Relu", [name], [name + ".relu"], name=name + ".relu"))
        return name + ".relu"

    x = conv("first", "features", CHANNELS, (10, 4), 1, strides=(2, 2), pads=(4, 1, 5, 1))
    for block in range(BLOCKS):
        x = conv(f"depthwise{block}", x, CHANNELS, (3, 3), CHANNELS, group=CHANNELS, pads=(1, 1, 1, 1))
        x = conv(f"pointwise{block}", x, CHANNELS, (1, 1), CHANNELS)
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"], name="pool"))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"], name="flatten"))
    w, b = weight("last.w", (CHANNELS, LABELS), CHANNELS), bias("last.b", LABELS)
    nodes.append(helper.make_node("Gemm", ["flat", w, b], ["logits"], name="last"))
    nodes.append(helper.make_node("Softmax", ["logits"], ["scores"], name="softmax", axis=1))

    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, SHAPE)
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, LABELS])
    graph = helper.make_graph(nodes, "kws", [features], [scores], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


class Samples(CalibrationDataReader):
    """Inputs that the quantizer takes the ranges of activations from."""

    def __init__(self):
        rng = np.random.default_rng(11)
        self.values = iter([rng.standard_normal(SHAPE).astype(np.float32) for _ in range(16)])

    def get_next(self):
        features = next(self.values, None)
        return None if features is None else {"features": features}


def quantized(made):
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        onnx.save(made, before)
        quantize_static(
            before,
            after,
            Samples(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(after)


def numbers(values):
    text = lambda v: f"{v:.9g}" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}.0"
    return [[text(v) for v in row] for row in np.array_split(values, max(1, len(values) // 8))]


def c_table(name, values):
    lines = [", ".join(v + "f" for v in row) for row in numbers(values)]
    return f"static const float {name}[{len(values)}] = {{\n    " + ",\n    ".join(lines) + "\n};\n"


def rust_table(name, values):
    lines = [", ".join(row) for row in numbers(values)]
    return f"pub static {name}: [f32; {len(values)}] = [\n    " + ",\n    ".join(lines) + ",\n];\n"


def write(made, folder):
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(made, folder / "kws.onnx")
    features = np.random.default_rng(7).standard_normal(SHAPE).astype(np.float32)
    options = onnxruntime.SessionOptions()
    # Optimised, onnxruntime rounds the products of scales in its own ways.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"features": features})
    note = "Made by make_model.py: an input, and what onnxruntime computes for it."
    tables = [("case_features", features.ravel()), ("case_scores", scores.ravel())]
    (folder / "kws_case.h").write_text(f"/* {note} */\n" + "".join(c_table(*t) for t in tables))
    text = f"// {note}\n" + "".join(rust_table(name.upper(), values) for name, values in tables)
    (folder / "kws_case.rs").write_text(text)


def main():
    made = model()
    write(made, Path(sys.argv[1]) / "float")
    write(quantized(made), Path(sys.argv[1]) / "int8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main()
