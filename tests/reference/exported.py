"""Transformers with made-up weights, as PyTorch's two exporters and onnxruntime's own tools write them.

The architectures are those of common models at a small size: a vision transformer, a language model with a cache, an
encoder and decoder of speech, and an encoder of sentences whose outputs are pooled.
"""
import io
import logging
import os
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.quantization import matmul_nbits_quantizer
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS = 48, 4


def generator(*seed):
    return np.random.Generator(np.random.PCG64(list(seed)))


def set_random(model, seed):
    """numpy's numbers, which are the same on every machine; scaled so that activations stay of order 1."""
    rng = generator(30, seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = rng.standard_normal(tuple(p.shape))
            if p.dim() == 1:
                values = 0.1 * values + (1.0 if "norm" in name and name.endswith("weight") else 0.0)
            elif "embedding" not in name:
                values *= np.sqrt(1.5 / np.prod(p.shape[1:]))
            p.copy_(torch.from_numpy(values.astype(np.float32)))
    return model.eval()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    @staticmethod
    def heads(x):
        return x.reshape(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x, other=None, mask=None, past=None):
        """Gives the keys and values as well, those of the past before them."""
        source = x if other is None else other
        q, k, v = self.heads(self.q(x)), self.heads(self.k(source)), self.heads(self.v(source))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], WIDTH)), k, v


class Block(nn.Module):
    """Norms before the parts (or behind them, as in BERT), with attention to an encoder's result if there is one."""

    def __init__(self, cross=False, after=False, approximate="none"):
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(WIDTH)
        self.cross, self.cross_norm = (Attention(), nn.LayerNorm(WIDTH)) if cross else (None, None)
        self.up, self.down, self.last_norm = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.after, self.approximate = after, approximate

    def forward(self, x, other=None, mask=None, past=None):
        y, k, v = self.attention(x if self.after else self.norm(x), mask=mask, past=past)
        x = self.norm(x + y) if self.after else x + y
        if self.cross is not None:
            x = x + self.cross(self.cross_norm(x), other)[0]
        y = self.down(F.gelu(self.up(x if self.after else self.last_norm(x)), approximate=self.approximate))
        x = self.last_norm(x + y) if self.after else x + y
        return x, k, v


class Vision(nn.Module):
    """Patches of a picture and a class token."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 16, 16)
        self.token_embedding, self.position_embedding = nn.Parameter(torch.zeros(1, 1, WIDTH)), nn.Parameter(torch.zeros(1, 17, WIDTH))
        self.blocks, self.norm, self.head = nn.ModuleList(Block() for _ in range(2)), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token_embedding.expand(x.shape[0], -1, -1), x], 1) + self.position_embedding
        for block in self.blocks:
            x = block(x)[0]
        return self.head(self.norm(x)[:, 0])


class Language(nn.Module):
    """A decoder like GPT-2: tokens and a cache of keys and values in, logits and the longer cache out."""

    def __init__(self):
        super().__init__()
        self.embedding, self.position_embedding = nn.Embedding(64, WIDTH), nn.Embedding(64, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block(approximate="tanh") for _ in range(2)), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 64)

    def forward(self, ids, k0, v0, k1, v1):
        before, length = k0.shape[2], ids.shape[1]
        places = torch.arange(before, before + length)
        mask = places[:, None] >= torch.arange(before + length)[None, :]
        x = self.embedding(ids) + self.position_embedding(places)
        cache = []
        for block, past in zip(self.blocks, [(k0, v0), (k1, v1)]):
            x, k, v = block(x, mask=mask, past=past)
            cache += [k, v]
        return self.head(self.norm(x)), *cache


class Hearing(nn.Module):
    """The encoder of speech: a spectrogram in, half as many states out."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(20, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 3, 2, 1)
        self.position_embedding = nn.Parameter(torch.zeros(64, WIDTH))
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(2)), nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2)
        x = x + self.position_embedding[: x.shape[1]]
        for block in self.blocks:
            x = block(x)[0]
        return self.norm(x)


class Writing(nn.Module):
    """The decoder of speech: tokens so far and the encoder's states in, logits out."""

    def __init__(self):
        super().__init__()
        self.embedding, self.position_embedding = nn.Embedding(64, WIDTH), nn.Parameter(torch.zeros(32, WIDTH))
        self.blocks, self.norm = nn.ModuleList(Block(cross=True) for _ in range(2)), nn.LayerNorm(WIDTH)

    def forward(self, ids, states):
        length = ids.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        x = self.embedding(ids) + self.position_embedding[:length]
        for block in self.blocks:
            x = block(x, states, mask)[0]
        return self.norm(x) @ self.embedding.weight.T / WIDTH**0.5


class Sentences(nn.Module):
    """An encoder like MiniLM: the mean over tokens that are no padding, of length 1."""

    def __init__(self):
        super().__init__()
        self.embedding, self.position_embedding, self.kind_embedding = nn.Embedding(64, WIDTH), nn.Embedding(32, WIDTH), nn.Embedding(2, WIDTH)
        self.norm, self.blocks = nn.LayerNorm(WIDTH), nn.ModuleList(Block(after=True) for _ in range(2))

    def forward(self, ids, mask, kinds):
        places = torch.arange(ids.shape[1])
        x = self.norm(self.embedding(ids) + self.position_embedding(places) + self.kind_embedding(kinds))
        hidden = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for block in self.blocks:
            x = block(x, mask=hidden)[0]
        shown = mask[:, :, None].float()
        mean = (x * shown).sum(1) / shown.sum(1).clamp(min=1e-9)
        return F.normalize(mean, dim=1) * 4


def export(model, inputs, names, outputs, axes, dynamo):
    """By the exporter of the day or the older one; `axes` gives names of sizes that are open."""
    arguments = tuple(torch.from_numpy(x) for x in inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            sizes = {name: torch.export.Dim(name, min=1, max=30) for of in axes.values() for name in of.values()}
            shapes = tuple({axis: sizes[n] for axis, n in axes.get(name, {}).items()} for name in names)
            made = torch.onnx.export(model, arguments, dynamo=True, input_names=names, output_names=outputs, dynamic_shapes=shapes, verbose=False)
            return made.model_proto
        out = io.BytesIO()
        torch.onnx.export(model, arguments, out, input_names=names, output_names=outputs, opset_version=17, dynamic_axes=axes, dynamo=False)
    return onnx.load_from_string(out.getvalue())


def fused(model):
    """What onnxruntime makes of a model before it runs it: operators of its own among others."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = os.path.join(folder, "model.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def of_few_bits(model):
    """Constant matrices in blocks of 16 numbers of four bits."""
    logging.getLogger(matmul_nbits_quantizer.__name__).setLevel(logging.WARNING)
    quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(model, bits=4, block_size=16, is_symmetric=False)
    quantizer.process()
    return quantizer.model.model


def tokens(seed, *shape):
    return generator(31, seed).integers(0, 64, shape)


def floats(seed, *shape):
    return generator(32, seed).standard_normal(shape).astype(np.float32)


def language_inputs(seed, batch, length, before):
    return [tokens(seed, batch, length), *(floats(seed + k, batch, HEADS, before, WIDTH // HEADS) for k in range(4))]


def sentence_inputs(seed, batch, length):
    mask = np.ones((batch, length), np.int64)
    mask[-1, length // 2 :] = 0
    return [tokens(seed, batch, length), mask, generator(33, seed).integers(0, 2, (batch, length))]


CACHE = [f"{kind}{layer}" for layer in range(2) for kind in "kv"]
SEQUENCE = {0: "batch", 1: "length"}

# Model, names of inputs and outputs, open sizes, inputs of each set.
ARCHITECTURES = {
    "vision": (Vision, ["x"], ["y"], {"x": {0: "batch"}}, lambda: [[floats(1, 2, 3, 64, 64)], [floats(2, 3, 3, 64, 64)]]),
    "language": (Language, ["ids", *CACHE], ["logits", *(f"new_{c}" for c in CACHE)], {"ids": SEQUENCE, **{c: {0: "batch", 2: "before"} for c in CACHE}},
                 lambda: [language_inputs(10, 2, 5, 3), language_inputs(20, 1, 1, 8)]),
    "hearing": (Hearing, ["x"], ["states"], {}, lambda: [[floats(3, 1, 20, 40)], [floats(4, 1, 20, 40)]]),
    "writing": (Writing, ["ids", "states"], ["logits"], {"ids": SEQUENCE, "states": {0: "batch"}},
                lambda: [[tokens(5, 2, 6), floats(6, 2, 20, WIDTH)], [tokens(7, 1, 3), floats(8, 1, 20, WIDTH)]]),
    "sentences": (Sentences, ["ids", "mask", "kinds"], ["y"], {name: SEQUENCE for name in ("ids", "mask", "kinds")},
                  lambda: [sentence_inputs(40, 2, 7), sentence_inputs(41, 3, 12)]),
}

# Folders: architecture and how it is exported.
NAMES = {
    "exported_vision": ("vision", "script"),
    "exported_vision_dynamo": ("vision", "dynamo"),
    "exported_language": ("language", "script"),
    "exported_language_dynamo": ("language", "dynamo"),
    "exported_hearing": ("hearing", "script"),
    "exported_writing": ("writing", "script"),
    "exported_writing_dynamo": ("writing", "dynamo"),
    "exported_sentences": ("sentences", "script"),
    "exported_sentences_fused": ("sentences", "fused"),
    "exported_language_fused": ("language", "fused"),
    "exported_language_4bit": ("language", "4bit"),
}


def make(name):
    """The model, and the inputs of each set."""
    torch.set_num_threads(1)
    architecture, how = NAMES[name]
    kind, names, outputs, axes, inputs = ARCHITECTURES[architecture]
    model = set_random(kind(), list(ARCHITECTURES).index(architecture))
    sets = inputs()
    made = export(model, sets[0], names, outputs, axes, how == "dynamo")
    return {"fused": fused, "4bit": of_few_bits}.get(how, lambda m: m)(made), sets
