"""Cases of operators of the domain com.microsoft: operands, attributes, and where onnxruntime has no kernel, what comes out."""
import dataclasses
from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper

F, H, S, I8, U8, I32, I64, U32 = (
    TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.STRING, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT32)


class Narrow:
    """Elements of a type that numpy lacks; such a tensor is always a constant."""

    def __init__(self, kind, values):
        self.kind, self.values = kind, np.asarray(values)

    def proto(self):
        return helper.make_tensor("", self.kind, self.values.shape, self.values.reshape(-1).tolist())


@dataclasses.dataclass
class Case:
    name: str
    op: str
    inputs: list
    attributes: dict = dataclasses.field(default_factory=dict)
    outputs: tuple = (0,)
    # Of each output up to the last.
    types: tuple = (F,)
    # Places of operands that are constants in models.
    constants: tuple = ()
    # Outputs by a formula, where onnxruntime has none.
    expected: list | None = None
    # What a refusal must name.
    refused: str = ""
    # The part of an output that is defined: number of the output and array in, array out.
    select: Callable | None = None
    rtol: float = 1e-4
    atol: float = 1e-5
    domain: str = "com.microsoft"
    # Sizes of operands are open, but for those of the last axis and of heads.
    open_sizes: bool = False
    # Places of operands that are constants in every run.
    fixed: tuple = ()
    # All nodes, in the place of one of `op`; operands are in_0, in_1, …, outputs out_0, ….
    nodes: list | None = None
    opset: int = 21


CASES = []


def case(name, op, inputs, **more):
    CASES.append(Case(name, op, inputs, **more))


def rng(seed):
    return np.random.Generator(np.random.PCG64([77, seed]))


def floats(seed, *shape, scale=1.0):
    return (scale * rng(seed).standard_normal(shape)).astype(np.float32)


def integers(seed, low, high, shape, dtype):
    return rng(seed).integers(low, high, shape).astype(dtype)


def one(value, dtype=np.float32):
    return np.asarray(value, dtype)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def erf(x):
    import math
    return np.vectorize(math.erf)(x)


def gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


# Products and convolutions.
def products():
    a, b = floats(1, 2, 3, 4), floats(2, 2, 4, 5)
    case("fused product", "FusedMatMul", [a, b], attributes={"alpha": 0.25}, constants=(1,))
    case("fused product, turned", "FusedMatMul", [a.swapaxes(1, 2), b.swapaxes(1, 2)], attributes={"transA": 1, "transB": 1, "alpha": 1.5})
    case("fused product, batch behind", "FusedMatMul", [np.moveaxis(a, 0, 1), np.moveaxis(b, 0, 1)], attributes={"transBatchA": 1, "transBatchB": 1})
    case("turned product", "TransposeMatMul", [a, b.swapaxes(1, 2)], attributes={"transB": 1})
    x, w, c = floats(3, 3, 4), floats(4, 4, 5), floats(5, 5)
    for name, more in {"Relu": {}, "LeakyRelu": {"activation_alpha": 0.3}, "Tanh": {}, "Sigmoid": {}, "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4}}.items():
        case(f"fused affine map, {name}", "FusedGemm", [x, w, c], attributes={"activation": name, "alpha": 0.5, "beta": 2.0, **more}, constants=(1, 2))
    image, kernel, bias = floats(6, 2, 4, 7, 6), floats(7, 6, 2, 3, 3), floats(8, 6)
    for name, more in {"Relu": [], "LeakyRelu": [0.3], "Clip": [-0.5, 0.75], "HardSigmoid": [0.3, 0.4], "Tanh": []}.items():
        case(f"fused convolution, {name}", "FusedConv", [image, kernel, bias], constants=(1, 2),
             attributes={"activation": name, "activation_params": more, "group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]} if more else
             {"activation": name, "group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]})
    case("fused convolution that adds", "FusedConv", [image, kernel, bias, floats(9, 2, 6, 5, 4)], attributes={"activation": "Relu", "group": 2}, constants=(1, 2))
    case("unknown activation", "FusedConv", [image, kernel], attributes={"activation": "Swizzle", "group": 2}, refused="Swizzle")
    case("product and error unit", "GemmFastGelu", [x, w, c], constants=(1, 2),
         expected=[(lambda y: 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y ** 3))))(x @ w + c).astype(np.float32)])
    short = [integers(10, -3000, 3000, (3, 4), np.int16), integers(11, -3000, 3000, (4, 2), np.int16)]
    case("product of 16-bit integers", "MatMulInteger16", short, types=(I32,))
    case("product of unsigned 16-bit integers", "MatMulInteger16", [np.abs(s).astype(np.uint16) for s in short], types=(U32,),
         expected=[np.abs(short[0]).astype(np.uint32) @ np.abs(short[1]).astype(np.uint32)])
    p, q = integers(12, 0, 256, (3, 4), np.uint8), integers(13, 0, 256, (4,), np.uint8)
    case("integers multiplied", "MulInteger", [p, one(7, np.uint8), q, one(3, np.uint8)], types=(I32,),
         expected=[(p.astype(np.int32) - 7) * (q.astype(np.int32) - 3)])
    case("channels last, fused", "NhwcFusedConv", [np.moveaxis(image, 1, 3), kernel, bias], attributes={"activation": "Relu", "group": 2}, constants=(1, 2),
         expected=[np.maximum(np.moveaxis(convolution(image, kernel, 2) + bias[:, None, None], 1, 3), 0).astype(np.float32)])
    case("channels last", "NhwcConv", [np.moveaxis(image, 1, 3), kernel, bias], attributes={"group": 2}, constants=(1, 2),
         expected=[np.moveaxis(convolution(image, kernel, 2) + bias[:, None, None], 1, 3).astype(np.float32)])


def convolution(x, w, group):
    """Without padding, steps of one."""
    kh, kw = w.shape[2:]
    windows = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), (2, 3))
    parts = zip(np.split(windows, group, 1), np.split(w, group, 0))
    return np.concatenate([np.einsum("nchwij,ocij->nohw", a, b) for a, b in parts], 1)


# Weights of few bits.
def weights():
    n, k, block = 6, 80, 32
    blocks = -(-k // block)
    x = floats(20, 2, 3, k)
    for bits in (2, 4, 8):
        data = integers(21, 0, 256, (n, blocks, block * bits // 8), np.uint8)
        scales = floats(22, n, blocks, scale=0.1)
        zeros = integers(23, 0, 256, (n, -(-blocks * bits // 8)), np.uint8)
        attributes = {"N": n, "K": k, "bits": bits, "block_size": block}
        case(f"{bits} bits", "MatMulNBits", [x, data, scales], attributes=attributes, constants=(1, 2))
        case(f"{bits} bits, flat scales", "MatMulNBits", [x, data, scales.reshape(-1)], attributes=attributes, constants=(1, 2))
        case(f"{bits} bits with zero points", "MatMulNBits", [x, data, scales, zeros], attributes=attributes, constants=(1, 2, 3))
        case(f"{bits} bits with zero points and a bias", "MatMulNBits", [x, data, scales, zeros, None, floats(24, n)], attributes=attributes, constants=(1, 2, 3, 5))
        if bits == 4:
            case(f"{bits} bits with zero points that are floats", "MatMulNBits", [x, data, scales, floats(25, n, blocks)], attributes=attributes, constants=(1, 2, 3))
    # So many that they stay packed.
    wide, long = 150, 200
    for bits in (2, 4, 8):
        for group in (16, 64):
            count = -(-long // group)
            many = integers(27, 0, 256, (wide, count, group * bits // 8), np.uint8)
            large = np.abs(floats(28, wide, count, scale=0.1)) + 0.01
            zeros = integers(29, 0, 256, (wide, -(-count * bits // 8)), np.uint8)
            sizes = {"N": wide, "K": long, "bits": bits, "block_size": group}
            for rows in (1, 5, 40):
                left = floats(30, rows, long)
                name = f"{rows} by many of {bits} bits in blocks of {group}"
                case(name, "MatMulNBits", [left, many, large], attributes=sizes, fixed=(1, 2), open_sizes=rows == 5, atol=2e-3)
                case(f"{name} with zero points", "MatMulNBits", [left, many, large, zeros], attributes=sizes, fixed=(1, 2, 3), open_sizes=rows == 1, atol=2e-3)
    data = integers(21, 0, 256, (n, blocks, block // 2), np.uint8)
    scales = floats(22, n, blocks, scale=0.1)
    attributes = {"N": n, "K": k, "bits": 4, "block_size": block}
    groups = integers(26, 0, blocks, (k,), np.int32)
    nibbles = np.stack([data & 15, data >> 4], -1).reshape(n, -1)[:, :k].astype(np.float32)
    case("4 bits with groups in another order", "MatMulNBits", [x, data, scales, None, groups], attributes=attributes, constants=(1, 2, 4),
         expected=[x @ ((nibbles - 8) * scales[:, groups]).T])
    case("4 bits, laid out for a processor", "MatMulNBits", [x, data, scales], attributes={**attributes, "weight_prepacked": 1}, refused="weight_prepacked")
    case("half precision and 4 bits", "MatMulNBits", [x.astype(np.float16), data, scales.astype(np.float16)], attributes=attributes, types=(H,), constants=(1, 2), rtol=1e-2, atol=1e-2)
    for kind in (0, 1):
        count = n * 64
        bnb = [floats(27, 3, 64), integers(28, 0, 256, (count // 2,), np.uint8), np.abs(floats(29, count // 32))]
        case(f"table {kind} of 4 bits", "MatMulBnb4", bnb, attributes={"N": n, "K": 64, "block_size": 32, "quant_type": kind}, constants=(1, 2))
    rows, width = 5, 64
    indices = np.array([[0, 4], [-1, 2]], np.int64)
    for kind, low, high in ((TensorProto.UINT4, 0, 16), (TensorProto.INT4, -8, 8)):
        table = Narrow(kind, integers(30, low, high, (rows, width), np.int64))
        zeros = Narrow(kind, integers(31, low, high, (rows, width // 16), np.int64))
        scales = floats(32, rows, width // 16)
        attributes = {"block_size": 16, "gather_axis": 0, "quantize_axis": 1}
        case(f"rows of numbers of type {kind}", "GatherBlockQuantized", [table, indices, scales], attributes=attributes, constants=(2,))
        case(f"rows of numbers of type {kind} with zero points", "GatherBlockQuantized", [table, indices, scales, zeros], attributes=attributes, constants=(2,))
    table = Narrow(TensorProto.UINT4, integers(33, 0, 16, (32, 3), np.int64))
    case("columns in blocks of rows", "GatherBlockQuantized", [table, np.array([2, 0], np.int32), floats(34, 2, 3)],
         attributes={"block_size": 16, "gather_axis": 1, "quantize_axis": 0}, constants=(2,))
    for bits in (4, 8):
        data = integers(35, 0, 256, (rows, width * bits // 8), np.uint8)
        scales = floats(36, rows, width // 16)
        zeros = integers(37, 0, 256, (rows, 4 * bits // 8), np.uint8)
        attributes = {"block_size": 16, "gather_axis": 0, "quantize_axis": 1, "bits": bits}
        case(f"rows of {bits} bits in bytes", "GatherBlockQuantized", [data, indices, scales], attributes=attributes, constants=(0, 2))
        case(f"rows of {bits} bits in bytes with zero points", "GatherBlockQuantized", [data, indices, scales, zeros], attributes=attributes, constants=(0, 2, 3))


# Quantised numbers.
def quantised():
    a, b = integers(40, 0, 256, (2, 3, 8), np.uint8), integers(41, -128, 128, (8, 5), np.int8)
    bias = floats(42, 5)
    case("product as floats", "MatMulIntegerToFloat", [a, b, one(0.02), one(0.01), one(120, np.uint8), one(3, np.int8), bias], constants=(1, 2, 3, 4, 5, 6))
    case("product as floats, scales of columns", "MatMulIntegerToFloat",
         [a, b, one(0.02), np.abs(floats(43, 5, scale=0.01)), one(120, np.uint8), integers(44, -5, 5, (5,), np.int8)], constants=(1, 2, 3, 4, 5))
    case("product of what is quantised at run time", "DynamicQuantizeMatMul", [floats(45, 2, 3, 8), b, one(0.01), one(3, np.int8), bias], constants=(1, 2, 3, 4))
    case("product of what is quantised at run time, scales of columns", "DynamicQuantizeMatMul",
         [floats(45, 2, 3, 8), b, np.abs(floats(43, 5, scale=0.01)), integers(44, -5, 5, (5,), np.int8)], constants=(1, 2, 3))
    left, right, c = integers(46, 0, 256, (3, 8), np.uint8), integers(47, 0, 256, (5, 8), np.uint8), integers(48, -999, 999, (5,), np.int32)
    gemm = [left, one(0.02), one(100, np.uint8), right, one(0.03), one(130, np.uint8), c]
    case("quantised affine map to floats", "QGemm", gemm, attributes={"transB": 1, "alpha": 1.0}, constants=(1, 2, 3, 4, 5, 6))
    case("quantised affine map", "QGemm", [*gemm, one(0.2), one(128, np.uint8)], attributes={"transB": 1}, types=(U8,), constants=(1, 2, 3, 4, 5, 6, 7, 8))
    for dtype, code, low in ((np.uint8, U8, 0), (np.int8, I8, -128)):
        kind = np.dtype(dtype).name
        zero = lambda v: one(v + low, dtype)
        x, y = integers(50, low, low + 256, (2, 3, 4), dtype), integers(51, low, low + 256, (3, 1), dtype)
        two = [x, one(0.02), zero(100), y, one(0.015), zero(140), one(0.03), zero(120)]
        rest = (1, 2, 3, 4, 5, 6, 7)
        case(f"sum of {kind}", "QLinearAdd", two, types=(code,), constants=rest, atol=1)
        case(f"product of {kind}", "QLinearMul", two, types=(code,), constants=rest)
        case(f"choice of {kind}", "QLinearWhere", [integers(52, 0, 2, (2, 1, 4), bool), *two], types=(code,), constants=(2, 3, 4, 5, 6, 7, 8))
        case(f"{kind} joined", "QLinearConcat", [one(0.03), zero(120), x, one(0.02), zero(100), x[:, :2], one(0.015), zero(140)], attributes={"axis": 1}, types=(code,), constants=(0, 1, 3, 4, 6, 7))
        alone = [x, one(0.04), zero(100), one(0.02), zero(90)]
        case(f"leaky rectifier of {kind}", "QLinearLeakyRelu", alone, attributes={"alpha": 0.1}, types=(code,), constants=(1, 2, 3, 4))
        unit = [x, one(0.04), zero(128), one(1 / 256), zero(0)]
        case(f"logistic function of {kind}", "QLinearSigmoid", unit, types=(code,), constants=(1, 2, 3, 4))
        case(f"softmax of {kind}", "QLinearSoftmax", unit, attributes={"axis": -1, "opset": 13}, types=(code,), constants=(1, 2, 3, 4), atol=1)
        case(f"softmax of {kind} by rows", "QLinearSoftmax", unit, attributes={"axis": 1, "opset": 12}, types=(code,), constants=(1, 2, 3, 4), atol=1)
        image = integers(53, low, low + 256, (2, 3, 6, 5), dtype)
        around = [one(0.04), zero(100), one(0.02), zero(90)]
        for last in (0, 1):
            turned = np.moveaxis(image, 1, 3) if last else image
            where = "channels last" if last else "channels first"
            case(f"average of {kind}, {where}", "QLinearGlobalAveragePool", [turned, *around], attributes={"channels_last": last}, types=(code,), constants=(1, 2, 3, 4))
            case(f"averages of {kind}, {where}", "QLinearAveragePool", [turned, *around],
                 attributes={"channels_last": last, "kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}, types=(code,), constants=(1, 2, 3, 4), atol=1)
            for included in (0, 1):
                for kernel, strides, pads in (([4, 3], [3, 3], [1, 0, 1, 0]), ([3, 3], [2, 2], [0, 0, 1, 0])):
                    over = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": 1, "count_include_pad": included}
                    case(f"averages of {kind} beyond the end, {where}, {kernel} {included}", "QLinearAveragePool", [turned, *around],
                         attributes={"channels_last": last, **over}, types=(code,), constants=(1, 2, 3, 4), atol=1)
            kernel = integers(54, low, low + 256, (4, 3, 3, 3), dtype)
            conv = [turned, one(0.02), zero(100), kernel, np.abs(floats(55, 4, scale=0.02)), np.full(4, 128 + low, dtype), one(0.9), zero(110), integers(56, -999, 999, (4,), np.int32)]
            case(f"convolution of {kind}, {where}", "QLinearConv", conv, attributes={"channels_last": last, "pads": [1, 1, 1, 1]}, types=(code,), constants=(1, 2, 3, 4, 5, 6, 7, 8))
        means = np.clip(np.round(((image.astype(np.float64) - 100 - low) * 0.04).mean((2, 3), keepdims=True) / 0.02) + 90 + low, low, low + 255)
        case(f"mean of {kind}", "QLinearReduceMean", [image, *around], attributes={"axes": [2, 3], "keepdims": 1}, types=(code,), constants=(1, 2, 3, 4), expected=[means.astype(dtype)], atol=1)
        case(f"largest of {kind}, channels last", "NhwcMaxPool", [np.moveaxis(image, 1, 3)], attributes={"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}, types=(code,))
        case(f"sum of {kind} as integers", "ReduceSumInteger", [x], attributes={"axes": [1], "keepdims": 0}, types=(I32 if low else U32,),
             expected=[x.sum(1, dtype=np.int32 if low else np.uint32)])
    x = floats(57, 3, 4, scale=3)
    case("quantised by columns", "QuantizeLinear", [x, np.abs(floats(58, 4)) + 0.02, integers(59, 0, 99, (4,), np.uint8)], attributes={"axis": 1}, types=(U8,), constants=(1, 2))
    wide = integers(60, -30000, 30000, (3, 4), np.int16)
    case("16 bits to floats", "DequantizeLinear", [wide, one(0.001), one(77, np.int16)], constants=(1, 2))
    case("floats to 16 bits", "QuantizeLinear", [x, one(0.001), one(77, np.int16)], types=(TensorProto.INT16,), constants=(1, 2))
    nibbles = Narrow(TensorProto.INT4, integers(61, -8, 8, (3, 4), np.int64))
    case("4 bits to floats", "DequantizeLinear", [nibbles, one(0.1), Narrow(TensorProto.INT4, np.asarray(2))], constants=(1,))
    case("32 bits to floats", "DequantizeLinear", [integers(62, -9999, 9999, (3, 4), np.int32), one(0.01)], constants=(1,))


# Activations and normalisation.
def elementwise():
    x, bias = floats(70, 2, 3, 8), floats(71, 8)
    case("error unit", "Gelu", [x])
    case("error unit after a bias", "BiasGelu", [x, bias], constants=(1,))
    case("fast error unit", "FastGelu", [x])
    case("fast error unit after a bias", "FastGelu", [x, bias], constants=(1,))
    case("quick error unit", "QuickGelu", [x], attributes={"alpha": 1.3})
    case("bias and residual", "BiasAdd", [x, bias, floats(72, 2, 3, 8)], expected=[x + bias + floats(72, 2, 3, 8)])
    sum_ = (x + bias).astype(np.float64)
    case("halves after a bias", "BiasSplitGelu", [x, bias], expected=[(sum_[..., :4] * gelu(sum_[..., 4:])).astype(np.float32)], constants=(1,))
    skip, gamma, beta = floats(73, 2, 3, 8), floats(74, 8), floats(75, 8)
    four = (F, F, F, F)
    case("sum and norm", "SkipLayerNormalization", [x, skip, gamma, beta, bias], outputs=(0, 3), types=four, constants=(2, 3, 4))
    case("sum and norm, one residual for all", "SkipLayerNormalization", [x, skip[0], gamma], attributes={"epsilon": 1e-3}, constants=(2,))
    case("sum and root mean square", "SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], outputs=(0, 3), types=four, constants=(2, 3))
    case("root mean square", "SimplifiedLayerNormalization", [x, gamma], attributes={"axis": -1, "epsilon": 1e-4}, constants=(1,), domain="")
    words = [floats(76, 11, 8), floats(77, 6, 8), floats(78, 2, 8)]
    ids, segments = integers(79, 0, 11, (2, 5), np.int32), integers(80, 0, 2, (2, 5), np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    case("embeddings and norm", "EmbedLayerNormalization", [ids, segments, *words, gamma, beta, mask], outputs=(0, 1), types=(F, I32), constants=(2, 3, 4, 5, 6))
    case("embeddings and norm, sum", "EmbedLayerNormalization", [ids, None, *words[:2], None, gamma, beta, None, integers(81, 0, 6, (2, 5), np.int32)],
         attributes={"epsilon": 1e-3}, outputs=(0, 1, 2), types=(F, I32, F), constants=(2, 3, 5, 6))
    tables = [integers(82 + k, 0, 256, w.shape, np.uint8) for k, w in enumerate(words)] + [integers(85 + k, 0, 256, (8,), np.uint8) for k in range(2)]
    case("embeddings of bytes and norm", "QEmbedLayerNormalization",
         [ids, segments, *tables, mask, *[one(0.01 * (k + 1)) for k in range(5)], *[one(120 + k, np.uint8) for k in range(5)]],
         outputs=(0, 1), types=(F, I32), constants=(2, 3, 4, 5, 6, *range(8, 18)))
    image = floats(90, 2, 3, 4, 6)
    for last in (1, 0):
        first = np.moveaxis(image, 3, 1)
        gamma, beta, bias = floats(91, 6), floats(92, 6), floats(93, 6)
        turned = (lambda a: a) if last else (lambda a: np.ascontiguousarray(np.moveaxis(a, 3, 1)))

        def norm(x, silu):
            g = np.moveaxis(x, 3, 1).reshape(2, 3, -1).astype(np.float64)
            g = (g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-3)
            y = np.moveaxis(g.reshape(first.shape), 1, 3) * gamma + beta
            return (y / (1 + np.exp(-y)) if silu else y).astype(np.float32)

        for silu in (0, 1):
            attributes = {"groups": 3, "activation": silu, "epsilon": 1e-3, "channels_last": last}
            where = f"{'channels last' if last else 'channels first'}{', then a rectifier' if silu else ''}"
            case(f"norm of groups, {where}", "GroupNorm", [turned(image), gamma, beta], attributes=attributes, expected=[turned(norm(image, silu))], constants=(1, 2))
            skip = floats(94, 2, 6)
            total = image + skip[:, None, None, :] + bias
            case(f"sum and norm of groups, {where}", "SkipGroupNorm", [turned(image), gamma, beta, skip, bias], attributes=attributes, outputs=(0, 1), types=(F, F),
                 expected=[turned(norm(total, silu)), turned(total)], constants=(1, 2))


# Attention.
def attention():
    batch, length, heads, size = 2, 5, 4, 6
    width = heads * size
    q, k, v = (floats(100 + n, batch, length, width) for n in range(3))
    other = [floats(103 + n, batch, 7, width) for n in range(2)]
    bias = floats(105, 3 * width)
    past = [floats(106 + n, batch, heads, 3, size) for n in range(2)]
    attributes = {"num_heads": heads}
    three = (F, F, F)
    case("attention", "MultiHeadAttention", [q, k, v], attributes=attributes)
    case("attention of open sizes", "MultiHeadAttention", [q, k, v], attributes={**attributes, "scale": 0.4}, open_sizes=True)
    case("attention with a bias", "MultiHeadAttention", [q, k, v, bias], attributes={**attributes, "scale": 0.3}, constants=(3,))
    case("attention to others", "MultiHeadAttention", [q, *other], attributes=attributes)
    case("attention to others with a bias", "MultiHeadAttention", [q, *other, bias], attributes=attributes, constants=(3,))
    case("attention to others' heads", "MultiHeadAttention", [q, floats(108, batch, heads, 7, size), floats(109, batch, heads, 7, size)], attributes=attributes)
    case("attention, keys of a known length", "MultiHeadAttention", [q, *other, None, np.array([4, 7], np.int32)], attributes=attributes)
    case("attention, keys hidden", "MultiHeadAttention", [q, *other, None, integers(110, 0, 2, (batch, 7), np.int32)], attributes={**attributes, "mask_filter_value": -50.0})
    case("attention, keys hidden from queries", "MultiHeadAttention", [q, *other, None, integers(111, 0, 2, (batch, length, 7), np.int32)], attributes=attributes)
    case("attention with added scores", "MultiHeadAttention", [q, *other, None, None, floats(112, 1, heads, length, 7)], attributes=attributes)
    case("attention with added scores, one head", "MultiHeadAttention", [q, *other, None, None, floats(113, batch, 1, length, 7)], attributes=attributes)
    case("attention to what is before", "MultiHeadAttention", [q, k, v], attributes={**attributes, "unidirectional": 1})
    case("attention with a past", "MultiHeadAttention", [q, k, v, None, None, None, *past], attributes=attributes, outputs=(0, 1, 2), types=three)
    case("attention with a past to what is before", "MultiHeadAttention", [q, k, v, bias, None, floats(114, 1, heads, length, length + 3), *past],
         attributes={**attributes, "unidirectional": 1}, outputs=(0, 1, 2), types=three, constants=(3,))

    def formula(q, k, v):
        q, k, v = (a.reshape(batch, -1, heads, size).swapaxes(1, 2).astype(np.float64) for a in (q, k, v))
        y = softmax(q @ k.swapaxes(2, 3) / np.sqrt(size)) @ v
        return [y.swapaxes(1, 2).reshape(batch, length, width).astype(np.float32)]

    packed = np.stack([a.reshape(batch, length, heads, size) for a in (q, k, v)], 3)
    case("attention of packed operands", "MultiHeadAttention", [packed], attributes=attributes, expected=formula(q, k, v))
    pairs = np.stack([a.reshape(batch, 7, heads, size) for a in other], 3)
    case("attention to packed others", "MultiHeadAttention", [q, pairs], attributes=attributes, expected=formula(q, *other))
    case("attention with a shared buffer", "MultiHeadAttention", [q, k, v, None, None, None, *past, one([3], np.int32)], attributes=attributes, refused="past_sequence_length")

    x, w, b = floats(120, batch, length, 16), floats(121, 16, 3 * width, scale=0.4), floats(122, 3 * width)
    old = floats(123, 2, batch, heads, 3, size)
    case("projected attention", "Attention", [x, w, b], attributes=attributes, constants=(1, 2))
    case("projected attention without a bias", "Attention", [x, w, None], attributes={**attributes, "scale": 0.2}, constants=(1,))
    case("projected attention, lengths", "Attention", [x, w, b, np.array([3, 5], np.int32)], attributes=attributes, constants=(1, 2))
    case("projected attention, ends and starts", "Attention", [x, w, b, np.array([5, 4, 1, 0], np.int32)], attributes=attributes, constants=(1, 2))
    case("projected attention, keys hidden", "Attention", [x, w, b, integers(124, 0, 2, (batch, length), np.int32)], attributes={**attributes, "mask_filter_value": -30.0}, constants=(1, 2))
    case("projected attention, keys hidden from queries", "Attention", [x, w, b, integers(125, 0, 2, (batch, length, length), np.int32)], attributes=attributes, constants=(1, 2))
    case("projected attention to what is before", "Attention", [x, w, b], attributes={**attributes, "unidirectional": 1}, outputs=(0, 1), types=(F, F), constants=(1, 2))
    case("projected attention with a past", "Attention", [x, w, b, None, old],
         attributes={**attributes, "unidirectional": 1}, outputs=(0, 1), types=(F, F), constants=(1, 2))
    case("projected attention with added scores", "Attention", [x, w, b, None, None, floats(126, 1, heads, length, length)], attributes=attributes, constants=(1, 2))
    case("projected attention, values of another width", "Attention", [x, floats(127, 16, 2 * width + 12), floats(128, 2 * width + 12)],
         attributes={**attributes, "qkv_hidden_sizes": [width, width, 12]}, constants=(1, 2))
    case("projected attention that turns", "Attention", [x, w, b], attributes={**attributes, "do_rotary": 1}, refused="do_rotary")
    bytes_ = [integers(129, 0, 256, (batch, length, 16), np.uint8), integers(130, -128, 128, (16, 3 * width), np.int8), b]
    scales = [one(0.01), one(0.005)]
    case("quantised attention", "QAttention", [*bytes_, *scales, None, one(128, np.uint8), one(2, np.int8)], attributes=attributes, constants=(1, 2, 3, 4, 6, 7))
    case("quantised attention with a past", "QAttention", [*bytes_, *scales, None, one(128, np.uint8), one(2, np.int8), old],
         attributes={**attributes, "unidirectional": 1}, outputs=(0, 1), types=(F, F), constants=(1, 2, 3, 4, 6, 7))
    case("quantised attention, keys hidden", "QAttention", [*bytes_, scales[0], np.abs(floats(131, 3 * width, scale=0.005)), integers(124, 0, 2, (batch, length), np.int32), one(128, np.uint8), np.zeros(3 * width, np.int8)],
         attributes=attributes, constants=(1, 2, 3, 4, 6, 7))


# Attention of groups over a cache.
def groups():
    heads, shared, size = 4, 2, 32
    tables = [f(np.arange(32)[:, None] * 10.0 ** (-np.arange(size // 2) / 4)).astype(np.float32) for f in (np.cos, np.sin)]
    base = {"num_heads": heads, "kv_num_heads": shared}
    three = (F, F, F)

    def operands(batch, length, cached, lengths, total, seed=140):
        q = floats(seed, batch, length, heads * size)
        k, v = (floats(seed + n, batch, length, shared * size) for n in (1, 2))
        past = [floats(seed + n, batch, shared, cached, size) for n in (3, 4)] if cached is not None else [None, None]
        return [q, k, v, *past, np.asarray(lengths, np.int32), np.asarray(total, np.int32)]

    def group(name, inputs, attributes=None, **more):
        more = {"outputs": (0, 1, 2), "types": three, **more}
        case(f"groups, {name}", "GroupQueryAttention", inputs, attributes={**base, **(attributes or {})}, **more)

    prompt = operands(2, 5, None, [4, 4], 5)
    step = operands(2, 1, 6, [6, 6], 7)
    turned = {"do_rotary": 1}
    group("prompt", prompt)
    group("prompt, scaled", prompt, {"scale": 0.3})
    group("one step", step)
    group("one step, turned", [*step, *tables], turned, constants=(7, 8))
    group("prompt, turned", [*prompt, *tables], turned, constants=(7, 8))
    group("prompt, neighbours turned", [*prompt, *tables], {**turned, "rotary_interleaved": 1}, constants=(7, 8))
    group("prompt, some features turned", [*prompt, *[t[:, :8] for t in tables]], turned, constants=(7, 8))
    group("several steps of one", [*operands(1, 3, 4, [6], 7), *tables], turned, constants=(7, 8))
    packed = np.concatenate(prompt[:3], -1)
    group("packed prompt", [packed, None, None, *prompt[3:], *tables], turned, constants=(7, 8))
    group("packed step", [np.concatenate(step[:3], -1), None, None, *step[3:], *tables], turned, constants=(7, 8))
    # Rows behind an entry's length are padding, of which nothing is promised.
    ragged = operands(2, 5, None, [4, 2], 5)
    group("padded prompt", [*ragged, *tables], turned, constants=(7, 8),
          select=lambda k, y: np.concatenate([y[0].reshape(-1), (y[1, :3] if k == 0 else y[1, :, :3]).reshape(-1)]))
    uneven = operands(2, 1, 6, [6, 3], 7)
    valid = lambda k, y: y if k == 0 else np.concatenate([y[0].reshape(-1), y[1, :, :4].reshape(-1)])
    group("one step, unequal lengths", [*uneven, *tables], turned, constants=(7, 8), select=valid)
    buffer = operands(2, 1, 12, [6, 3], 7)
    group("one step in a longer buffer", [*buffer, *tables], turned, constants=(7, 8),
          select=lambda k, y: y if k == 0 else np.concatenate([y[0, :, :7].reshape(-1), y[1, :, :4].reshape(-1)]))
    for window in (1, 2, 4):
        group(f"window of {window}, prompt", prompt, {"local_window_size": window})
        group(f"window of {window}, step", step, {"local_window_size": window})
    group("capped", prompt, {"softcap": 0.7, "scale": 1.0})
    group("smooth", prompt, {"smooth_softmax": 1})
    more = [*prompt, None, None, None]
    group("added scores", [*more, floats(150, 1, heads, 5, 5)])
    group("added scores, one step", [*step, None, None, None, floats(151, 2, 1, 1, 7)])
    group("sinks", [*more, None, floats(152, heads)])
    group("sinks, step in a window", [*step, None, None, None, None, floats(152, heads)], {"local_window_size": 3})
    group("given positions", [*prompt, *tables, np.array([[3, 4, 5, 6, 7], [0, 1, 2, 3, 4]], np.int64)], turned, constants=(7, 8))
    group("keys behind too", prompt, {"causal": 0})
    group("open sizes", [*step, *tables], turned, open_sizes=True)
    group("scores as output", prompt, {"qk_output": 1}, refused="qk_output")
    group("quantised cache", prompt, {"k_quant_type": "PER_TENSOR"}, refused="k_quant_type")
    group("window that is a cache", prompt, {"sliding_window_cache": 1, "local_window_size": 3}, refused="sliding_window_cache")
    half = [a.astype(np.float16) if a is not None and a.dtype == np.float32 else a for a in [*step, *tables]]
    group("half precision", half, turned, types=(H, H, H), constants=(7, 8), rtol=1e-2, atol=1e-2)
    weight = floats(153, size)

    def turned_by_formula():
        q, k = prompt[0].reshape(2, 5, heads, size).astype(np.float64), prompt[1].reshape(2, 5, shared, size).astype(np.float64)
        v = prompt[2].reshape(2, 5, shared, size).swapaxes(1, 2).astype(np.float64)
        q, k = (a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-6) * weight for a in (q, k))
        q, k = q.swapaxes(1, 2), k.swapaxes(1, 2)
        wide = [np.repeat(a, heads // shared, 1) for a in (k, v)]
        scores = q @ wide[0].swapaxes(2, 3) / np.sqrt(size) + np.where(np.tril(np.ones((5, 5))), 0, -np.inf)
        y = (softmax(scores) @ wide[1]).swapaxes(1, 2).reshape(2, 5, heads * size)
        return [a.astype(np.float32) for a in (y, k, v)]

    group("heads normalised", [*more, *[None] * 4, weight, weight], expected=turned_by_formula(), constants=(14, 15))


def rotary():
    heads, size = 3, 8
    tables = [f(np.arange(16)[:, None] * 10.0 ** (-np.arange(size // 2) / 2)).astype(np.float32) for f in (np.cos, np.sin)]
    positions = np.array([[3, 4, 5, 9], [0, 1, 2, 3]], np.int64)
    packed, split = floats(160, 2, 4, heads * size), floats(161, 2, heads, 4, size)
    for interleaved in (0, 1):
        how = {"interleaved": interleaved}
        kind = "neighbours turned" if interleaved else "halves turned"
        case(f"{kind}", "RotaryEmbedding", [packed, positions, *tables], attributes=how, constants=(2, 3))
        case(f"{kind}, four axes", "RotaryEmbedding", [split, positions, *tables], attributes=how, constants=(2, 3))
        case(f"{kind}, from one position on", "RotaryEmbedding", [split, np.array([5], np.int64), *tables], attributes=how, constants=(2, 3))
        case(f"{kind}, some features", "RotaryEmbedding", [packed, positions, *[t[:, :2] for t in tables]], attributes={**how, "rotary_embedding_dim": 4, "num_heads": heads}, constants=(2, 3))
    case("turned in a packed batch", "RotaryEmbedding", [packed, positions, *tables], attributes={"is_packed_batching": 1}, refused="is_packed_batching")


# Recurrences over weights that are bytes.
def recurrences():
    steps, batch, inputs, hidden = 6, 3, 7, 10
    places = ("x", "w", "r", "bias", "lengths", "h", "c", "peepholes", "w_scale", "w_zero", "r_scale", "r_zero")

    def lstm(name, dtype=np.int8, zero=0, columns=False, direction="forward", attributes=None, rows=batch, units=hidden, outputs=(0, 1, 2), **more):
        ways = 2 if direction == "bidirectional" else 1
        low = np.iinfo(dtype).min
        shape = (ways, 4 * units) if columns else (ways,)
        given = {
            "x": floats(180, steps, rows, inputs, scale=2),
            "w": integers(181, low, low + 256, (ways, inputs, 4 * units), dtype),
            "r": integers(182, low, low + 256, (ways, units, 4 * units), dtype),
            "w_scale": np.abs(floats(183, *shape, scale=0.01)) + one(0.002), "w_zero": np.full(shape, zero, dtype),
            "r_scale": np.abs(floats(184, *shape, scale=0.01)) + one(0.002), "r_zero": np.full(shape, zero, dtype),
            **more,
        }
        # A state that lies at a bound between two bytes may become either: see docs/accuracy.md.
        case(f"recurrence over bytes, {name}", "DynamicQuantizeLSTM", [given.get(p) for p in places],
             attributes={"hidden_size": units, "direction": direction, **(attributes or {})}, outputs=outputs, types=(F, F, F), constants=(1, 2, 3, 7, 8, 9, 10, 11))

    bias = lambda ways: floats(185, ways, 8 * hidden, scale=0.3)
    states = lambda ways: {"h": floats(186, ways, batch, hidden), "c": floats(187, ways, batch, hidden)}
    lengths = np.array([4, 5, 2], np.int32)
    for dtype, zero in ((np.int8, 0), (np.uint8, 128)):
        kind = np.dtype(dtype).name
        for direction, ways in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            lstm(f"{kind}, {direction}", dtype, zero, direction=direction, bias=bias(ways))
            lstm(f"{kind}, {direction}, scales of columns, from states", dtype, zero, True, direction, bias=bias(ways), **states(ways))
            lstm(f"{kind}, {direction}, lengths", dtype, zero, direction=direction, bias=bias(ways), lengths=lengths, **states(ways))
            lstm(f"{kind}, {direction}, all", dtype, zero, True, direction, {"clip": 0.8}, bias=bias(ways), lengths=lengths,
                 peepholes=floats(188, ways, 3 * hidden, scale=0.3), **states(ways))
    lstm("zero points", np.int8, -3, bias=bias(1))
    lstm("other zero points", np.uint8, 77, bias=bias(1), **states(1))
    lstm("last states alone", outputs=(1, 2), lengths=lengths, **states(1))
    lstm("one sequence without steps", lengths=np.array([0, 5, 2], np.int32), **states(1))
    lstm("forgets what it takes in", attributes={"input_forget": 1}, bias=bias(1))
    lstm("other functions", attributes={"activations": ["HardSigmoid", "Softsign", "Relu"], "activation_alpha": [0.3], "activation_beta": [0.4]}, bias=bias(1))
    lstm("one row of many units", rows=1, units=70, direction="bidirectional")
    lstm("nothing but zeros", x=np.zeros((steps, batch, inputs), np.float32))


# Mixtures of experts.
def experts():
    tokens, hidden, inner, count = 7, 32, 64, 5
    x, scores = floats(200, tokens, hidden), floats(201, tokens, count, scale=2)
    w1, b1 = floats(202, count, inner, hidden, scale=0.2), floats(203, count, inner, scale=0.2)
    w2, b2 = floats(204, count, hidden, inner, scale=0.2), floats(205, count, hidden, scale=0.2)
    wide, wide_bias = floats(206, count, 2 * inner, hidden, scale=0.2), floats(207, count, 2 * inner, scale=0.2)
    for function in ("relu", "gelu", "silu", "identity"):
        case(f"experts, {function}", "MoE", [x, scores, w1, b1, w2, b2], attributes={"k": 2, "activation_type": function}, constants=(2, 3, 4, 5), rtol=1e-3)
    case("experts, shares that add up to one", "MoE", [x, scores, w1, b1, w2, b2], attributes={"k": 3, "activation_type": "silu", "normalize_routing_weights": 1}, constants=(2, 3, 4, 5))
    case("experts without biases, one for each token", "MoE", [x, scores, w1, None, w2], attributes={"k": 1, "activation_type": "relu"}, constants=(2, 4))
    case("experts, tokens in a batch", "MoE", [np.stack([x, x[::-1]]), np.concatenate([scores, scores[::-1]]), w1, b1, w2, b2], attributes={"k": 2, "activation_type": "relu"},
         constants=(2, 3, 4, 5))
    case("experts, gated", "MoE", [x, scores, wide, wide_bias, w2, b2], constants=(2, 3, 4, 5),
         attributes={"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.5})
    case("experts, gated, defaults", "MoE", [x, scores, wide, wide_bias, w2, b2], constants=(2, 3, 4, 5), attributes={"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1})
    third = floats(208, count, inner, hidden, scale=0.2)

    def by_formula(first, second, function):
        e = np.exp(scores - scores.max(-1, keepdims=True))
        share = e / e.sum(-1, keepdims=True)
        y = np.zeros_like(x)
        for t in range(tokens):
            for k in np.argsort(share[t])[-2:]:
                y[t] += share[t, k] * (function(first[k] @ x[t], second[k] @ x[t]) @ w2[k].T)
        return [y]

    silu = lambda v: v / (1 + np.exp(-v))
    case("experts, third layer", "MoE", [x, scores, w1, None, w2, None, third], constants=(2, 4, 6), attributes={"k": 2, "activation_type": "silu"},
         expected=by_formula(w1, third, lambda g, l: silu(g) * l))
    case("experts, gated in halves", "MoE", [x, scores, wide, None, w2], constants=(2, 4), attributes={"k": 2, "activation_type": "swiglu", "swiglu_fusion": 2},
         expected=by_formula(wide[:, :inner], wide[:, inner:], lambda g, l: silu(g) * l))
    for bits in (4, 8):
        part = 8 // bits
        q1, q2 = integers(209, 0, 256, (count, inner, hidden // part), np.uint8), integers(210, 0, 256, (count, hidden, inner // part), np.uint8)
        qw = integers(211, 0, 256, (count, 2 * inner, hidden // part), np.uint8)
        size = 0.2 / 2 ** (bits - 1)
        scale = lambda seed, *shape: np.abs(floats(seed, *shape, scale=size)) + np.float32(size / 10)
        name = f"experts of {bits} bits"
        base = {"k": 2, "expert_weight_bits": bits}
        rows = [scale(212, count, inner), scale(213, count, hidden), scale(214, count, 2 * inner)]
        more = {"constants": (2, 3, 4, 5, 6, 7, 11, 12), "rtol": 5e-3, "atol": 5e-3}
        case(name, "QMoE", [x, scores, q1, rows[0], b1, q2, rows[1], b2], attributes={**base, "activation_type": "silu"}, **more)
        case(f"{name}, gated", "QMoE", [x, scores, qw, rows[2], wide_bias, q2, rows[1], b2], **more,
             attributes={**base, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "normalize_routing_weights": 1})
        zeros = [integers(215, 0, 256, (count, inner // part), np.uint8), integers(216, 0, 256, (count, hidden // part), np.uint8)]
        case(f"{name} with zero points", "QMoE", [x, scores, q1, rows[0], b1, q2, rows[1], b2, None, None, None, *zeros], attributes={**base, "activation_type": "relu"}, **more)
        blocks = [scale(217, count, inner, hidden // 16), scale(218, count, hidden, inner // 16)]
        # onnxruntime makes bytes of what is multiplied with blocks of bytes.
        near = {**more, "atol": 0.05} if bits == 8 else more
        case(f"{name} in blocks", "QMoE", [x, scores, q1, blocks[0], b1, q2, blocks[1], b2], attributes={**base, "activation_type": "relu", "block_size": 16}, **near)
        zeros = [integers(219, 0, 256, (count, inner, hidden // 16 // part), np.uint8), integers(220, 0, 256, (count, hidden, inner // 16 // part), np.uint8)]
        case(f"{name} in blocks with zero points", "QMoE", [x, scores, q1, blocks[0], b1, q2, blocks[1], b2, None, None, None, *zeros],
             attributes={**base, "activation_type": "relu", "block_size": 16}, **near)
        weights = np.abs(floats(221, tokens, count))
        case(f"{name}, shares of their own", "QMoE", [x, scores, q1, rows[0], b1, q2, rows[1], b2, *[None] * 6, weights], attributes={**base, "activation_type": "relu"}, **more)
    case("experts that are floats of few bits", "QMoE", [x, scores, q1, rows[0], b1, q2, rows[1], b2], attributes={"k": 2, "quant_type": "fp4"}, refused="floats of few bits")


# The rest.
def forms():
    x = floats(170, 2, 4, 5)
    case("upper triangle", "Trilu", [x, one(1, np.int64)], constants=(1,))
    case("lower triangle", "Trilu", [x], attributes={"upper": 0})
    case("padded", "Pad", [x, np.array([[0, 1, 2, 0, 0, 1]], np.int64), one([0.5])], constants=(1, 2))
    case("padded by reflection", "Pad", [x, np.array([0, 1, 2, 0, 0, 1], np.int64)], attributes={"mode": "reflect"}, constants=(1,))
    case("a new axis", "ExpandDims", [x, one(-2, np.int32)], fixed=(1,))
    case("slices", "GatherND", [x, np.array([[0, 3], [1, -1]], np.int64)], constants=(1,))
    case("numbers", "Range", [one(2.0), one(7.5), one(1.5)], constants=(0, 1, 2))
    case("numbers by one", "Range", [one(2, np.int64), one(7, np.int64)], types=(I64,), constants=(0, 1))
    image, grid = floats(171, 2, 3, 5, 6), rng(172).uniform(-1.2, 1.2, (2, 4, 3, 2)).astype(np.float32)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            case(f"sampled, {mode}, {padding}", "GridSample", [image, grid], attributes={"mode": mode, "padding_mode": padding, "align_corners": int(padding == "border")})
    signal = floats(173, 2, 3, 10)
    spectrum = np.fft.rfft(signal)
    parts = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)
    case("transform", "Rfft", [signal], attributes={"onesided": 1, "normalized": 0, "signal_ndim": 1}, expected=[parts])
    case("inverse transform", "Irfft", [parts], attributes={"onesided": 1, "normalized": 0, "signal_ndim": 1}, expected=[(np.fft.irfft(spectrum) ).astype(np.float32)])
    case("transform over two axes", "Rfft", [signal], attributes={"signal_ndim": 2}, refused="signal_ndim")
    case("different values", "Unique", [np.array([3, 1, 3, 2, 1, 3, 7], np.float32)], outputs=(0, 1, 2), types=(F, I64, I64))
    case("windows", "UnfoldTensor", [x], attributes={"dim": 1, "size": 2, "step": 2})
    case("windows of the last axis", "UnfoldTensor", [x], attributes={"size": 3})
    for metric in ("euclidean", "sqeuclidean"):
        case(f"distances, {metric}", "CDist", [floats(174, 4, 6), floats(175, 5, 6)], attributes={"metric": metric})
    regions = np.array([[0.1, 0.2, 0.7, 0.9], [0.0, 0.0, 1.0, 1.0], [0.3, -0.2, 1.1, 0.5]], np.float32)
    for mode in ("bilinear", "nearest"):
        case(f"regions, {mode}", "CropAndResize", [image, regions, np.array([0, 1, 1], np.int32), np.array([4, 3], np.int32)],
             attributes={"mode": mode, "extrapolation_value": 0.25}, constants=(3,))
    case("regions of one element", "CropAndResize", [image, regions, np.array([0, 1, 1], np.int32), np.array([1, 3], np.int32)], constants=(3,))
    case("as it is", "SampleOp", [x])


products()
weights()
quantised()
elementwise()
attention()
groups()
rotary()
recurrences()
experts()
forms()
