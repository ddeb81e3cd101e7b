"""A small convolutional network whose weights and activations are bytes, made with onnxruntime's quantizer: pairs of
QuantizeLinear and DequantizeLinear, scales of weights by channel, unsigned or signed activations."""
import os
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

SIZE = 30


class Samples(CalibrationDataReader):
    def __init__(self, values):
        self.values = iter(values)

    def get_next(self):
        x = next(self.values, None)
        return None if x is None else {"x": x}


def network(rng):
    """With residual and joined branches, windows of several sizes, a depthwise convolution, bounds and pooling."""
    nodes, weights = [], []

    def node(op, inputs, **attributes):
        name = f"{op.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def weight(values):
        name = f"w{len(weights)}"
        weights.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def conv(x, inputs, outputs, kernel, group=1, **attributes):
        shape = (outputs, inputs // group, kernel, kernel)
        w = weight(rng.standard_normal(shape) * np.sqrt(2 / (shape[1] * kernel * kernel)))
        b = weight(0.2 * rng.standard_normal(outputs))
        pad = kernel // 2
        return node("Conv", [x, w, b], kernel_shape=[kernel, kernel], pads=[pad] * 4, group=group, **attributes)

    relu = lambda x: node("Relu", [x])
    x = relu(conv("x", 3, 16, 3, strides=[2, 2]))
    x = relu(node("Add", [conv(relu(conv(x, 16, 16, 3)), 16, 16, 3), x]))
    low, high = weight(0.0), weight(6.0)
    x = node("Clip", [conv(x, 16, 16, 3, group=16, strides=[2, 2]), low, high])
    x = node("MaxPool", [relu(conv(x, 16, 24, 1))], kernel_shape=[2, 2], strides=[2, 2])
    x = node("Concat", [relu(conv(x, 24, 8, 1)), relu(conv(x, 24, 12, 3))], axis=1)
    x = node("Flatten", [node("GlobalAveragePool", [x])])
    w, b = weight(rng.standard_normal((10, 20)) / 2), weight(rng.standard_normal(10) / 4)
    nodes.append(helper.make_node("Gemm", [x, w, b], ["y"], "gemm", transB=1))
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "quantized", [value("x", [1, 3, SIZE, SIZE])], [value("y", [1, 10])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def make(rng, signed):
    """The model and three inputs with outputs, computed with floats as the operators say."""
    inputs = [rng.standard_normal((1, 3, SIZE, SIZE)).astype(np.float32) for _ in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        before, after = os.path.join(folder, "before.onnx"), os.path.join(folder, "after.onnx")
        onnx.save(network(rng), before)
        quantize_static(
            before,
            after,
            Samples(inputs),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8 if signed else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        model = onnx.load(after)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    # Optimised, onnxruntime rounds the products of scales in its own ways.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(deterministic=True), options, providers=["CPUExecutionProvider"])
    sets = [([x], session.run(["y"], {"x": x})) for x in inputs[:3]]
    # How far apart neighbouring outputs are.
    values = np.unique(np.concatenate([y.ravel() for _, (y,) in sets]))
    return model, sets, float(np.diff(values).min())
