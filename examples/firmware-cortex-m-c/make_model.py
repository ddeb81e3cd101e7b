#!/usr/bin/env python3
"""Makes the model of this example, and an input with the outputs that onnxruntime computes for it.

    make_model.py FOLDER

writes FOLDER/kws.onnx and FOLDER/kws_case.h. The model is a small depthwise separable network as they are used to spot
keywords: 49 frames of 10 coefficients in, 12 scores out. Its weights are random, from a fixed seed, with activations and
scores of order 1. Needs the packages onnx, onnxruntime and numpy.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 32
LABELS = 12


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
    for block in range(3):
        x = conv(f"depthwise{block}", x, CHANNELS, (3, 3), CHANNELS, group=CHANNELS, pads=(1, 1, 1, 1))
        x = conv(f"pointwise{block}", x, CHANNELS, (1, 1), CHANNELS)
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"], name="pool"))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"], name="flatten"))
    w, b = weight("last.w", (CHANNELS, LABELS), CHANNELS), bias("last.b", LABELS)
    nodes.append(helper.make_node("Gemm", ["flat", w, b], ["logits"], name="last"))
    nodes.append(helper.make_node("Softmax", ["logits"], ["scores"], name="softmax", axis=1))

    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, 1, 49, 10])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, LABELS])
    graph = helper.make_graph(nodes, "kws", [features], [scores], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def table(name, values):
    lines = [", ".join(f"{v:.9g}f" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}.0f" for v in row)
             for row in np.array_split(values, max(1, len(values) // 8))]
    return f"static const float {name}[{len(values)}] = {{\n    " + ",\n    ".join(lines) + "\n};\n"


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    made = model()
    onnx.save(made, folder / "kws.onnx")
    features = np.random.default_rng(7).standard_normal((1, 1, 49, 10)).astype(np.float32)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"features": features})
    text = "/* Made by make_model.py: an input, and what onnxruntime computes for it. */\n"
    text += table("case_features", features.ravel()) + table("case_scores", scores.ravel())
    (folder / "kws_case.h").write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main()
