#!/usr/bin/env python3
"""Makes case folders of whole models, with reference outputs from onnxruntime.

    python make.py OUT [--only NAME,NAME] [--again]
    python make.py --list

Run it with the Python that scripts/setup-python.sh made.  A model that is already in OUT is left alone; --again makes
it anew.  The folders have the form that folders.py describes, which the conformance runner reads.
"""
import argparse
import os
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import control
import folders
import quantized
import vad

MODELS = os.path.join(sys.prefix, "models")
QUICKSTART = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "examples", "quickstart")


# Transformers by torch, see exported.py.
EXPORTED = [
    "vision", "vision_dynamo", "language", "language_dynamo", "language_fused", "language_4bit", "hearing", "writing", "writing_dynamo", "sentences",
    "sentences_fused",
]


def generator(*seed):
    return np.random.Generator(np.random.PCG64(list(seed)))


def packaged(name):
    path = os.path.join(MODELS, name + ".onnx")
    if not os.path.exists(path):
        sys.exit(f"make.py: {path} is missing: run it with the Python made by scripts/setup-python.sh")
    return onnx.load(path)


def run(model, inputs_of_sets):
    """[(inputs, outputs)] by onnxruntime."""
    session = vad.session(model.SerializeToString(deterministic=True))
    names = [i.name for i in folders.true_inputs(model)]
    return [(inputs, session.run([o.name for o in model.graph.output], dict(zip(names, inputs)))) for inputs in inputs_of_sets]


def check_telling(name, sets, k=0):
    """Refuses outputs with which a comparison would prove little: tiny, alike, or the same whatever the input."""
    seen = []
    for _, outputs in sets:
        for row in np.asarray(outputs[k], np.float64).reshape(len(outputs[k]), -1):
            if not np.isfinite(row).all() or not 0.05 < np.abs(row).max() < 100 or row.std() < 0.02:
                sys.exit(f"{name}: outputs are not of order 1: {np.abs(row).max()}, deviation {row.std()}")
            if any(row.shape == s.shape and np.abs(row - s).max() < 0.02 for s in seen):
                sys.exit(f"{name}: two inputs give the same output")
            seen.append(row)


def mlp(batch):
    rng = generator(1)
    sizes, nodes, initializers, x = [64, 128, 128, 10], [], [], "x"
    for k, (n, m) in enumerate(zip(sizes, sizes[1:])):
        last = k == len(sizes) - 2
        w = (rng.standard_normal((m, n)) * np.sqrt(2 / n)).astype(np.float32)
        b = (0.3 * rng.standard_normal(m)).astype(np.float32)
        initializers += [numpy_helper.from_array(w, f"w{k}"), numpy_helper.from_array(b, f"b{k}")]
        y = "y" if last else f"h{k}"
        nodes.append(helper.make_node("Gemm", [x, f"w{k}", f"b{k}"], [y], transB=1))
        if not last:
            nodes.append(helper.make_node("Relu", [y], [f"a{k}"]))
        x = f"a{k}"
    value = lambda name, n: helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, n])
    graph = helper.make_graph(nodes, "mlp", [value("x", 64)], [value("y", 10)], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def make_mlp(out, name):
    counts = [1, 3, 7] if name.endswith("_dyn") else [1, 1]
    model = mlp("batch" if name.endswith("_dyn") else 1)
    sets = run(model, [[generator(2, k).standard_normal((n, 64)).astype(np.float32)] for k, n in enumerate(counts)])
    check_telling(name, sets)
    folders.write(out, name, model, sets, "mlp")


def make_vision(out, name):
    try:
        import torch_models
    except ImportError as e:
        sys.exit(f"{name}: {e}; scripts/setup-python.sh without --no-torch installs it")
    dynamic = name.endswith("_dyn")
    # The same weights and, in set 0, the same picture for all forms of one architecture: outputs of set 0 are equal.
    model = torch_models.make(name.removesuffix("_dyn").removesuffix("_bn"))
    pictures = torch_models.images(7, 4)
    inputs = [pictures[:1], pictures[1:4]] if dynamic else [pictures[:1], pictures[1:2]]
    exported = torch_models.export(model, inputs[0], "batch" if dynamic else None, name.endswith("_bn"))
    sets = run(exported, [[x] for x in inputs])
    check_telling(name, sets)
    noise = max(np.abs(outputs[0] - torch_models.exact(model, x[0])).max() for x, outputs in sets)
    if noise > 2e-5:
        sys.exit(f"{name}: single precision alone makes a difference of {noise}")
    folders.write(out, name, exported, sets, "vision", note=f"made-up weights; onnxruntime differs from double precision by {noise:.0e} at most")


def make_ppocr_cls(out, name):
    """Is a line of text upright? A softmax over two classes, so the outputs tell little; three sizes make up for it."""
    model = packaged("ppocr_cls")
    shapes = [(1, 3, 48, 192), (3, 3, 48, 192), (1, 3, 48, 160)]
    sets = run(model, [[generator(3, k).uniform(-1, 1, s).astype(np.float32)] for k, s in enumerate(shapes)])
    folders.write(out, name, model, sets, "ocr", note="rapidocr-onnxruntime 1.4.4 (PP-OCR angle classifier), Apache-2.0")


SAMPLES = [
    b"import sys\n\n\ndef main():\n    for line in sys.stdin:\n        print(line.rstrip()[::-1])\n\n\nif __name__ == '__main__':\n    main()\n",
    b'{"name": "kettle", "on": true, "steps": [1, 2, 3], "limits": {"low": -0.5, "high": 99.5}}\n',
    b"#include <stdio.h>\n\nint main(void)\n{\n    for (int i = 0; i < 10; i++)\n        printf(\"%d\\n\", i * i);\n    return 0;\n}\n",
    b"The kettle is on, and the window is open. Please turn the lights down a little. Thank you, good night.\n" * 4,
]


def make_magika(out, name):
    """What type is a file? Bytes of its start and end as int32, 256 where there are none."""
    model = packaged("magika")

    def features(data):
        x = np.full(2048, 256, np.int32)
        begin, end = data[:4096].lstrip()[:1024], data[-4096:].rstrip()[-1024:]
        x[: len(begin)] = np.frombuffer(begin, np.uint8)
        x[2048 - len(end) :] = np.frombuffer(end, np.uint8)
        return x

    noise = generator(4).integers(0, 256, (2, 2048)).astype(np.int32)
    inputs = [np.stack([features(SAMPLES[0])]), noise[:1], np.stack([features(s) for s in SAMPLES[1:]] + [noise[1]])]
    sets = run(model, [[x] for x in inputs])
    # Most of the 214 probabilities are far below 1e-4.
    folders.write(out, name, model, sets, "files", atol=1e-6, note="magika 1.0.3 (standard_v3_3), Apache-2.0")


def make_silero_vad(out, name):
    """Consecutive windows of speech; the state that goes in is that which came out of the set before."""
    samples, rate = vad.read_wav(os.path.join(QUICKSTART, "speech.wav"))
    model = packaged("silero_vad")
    if name.endswith("_8k"):
        # Every second sample: what it sounds like does not matter here.
        samples, rate = samples[::2], 8000
    # From the pause before the first phrase into it: probabilities from near 0 to near 1.
    first, count = 20, 12
    size = vad.SHAPES[rate][0]
    sets = list(vad.run(vad.session(model.SerializeToString(deterministic=True)), samples[first * size : (first + count) * size], rate))
    check_telling(name, sets, 1)
    folders.write(out, name, model, sets, "audio", note=f"silero-vad 6.2.3, MIT; {rate} Hz; input 1 of set K is output 1 of set K-1")


def make_quantized(out, name):
    model, sets, step = quantized.make(generator(9), name.endswith("_signed"))
    check_telling(name, sets)
    # A sum of floats that falls on the other side of a half moves what is computed from it by a step.
    folders.write(out, name, model, sets, "quantized", atol=2.01 * step, note=f"made-up weights; outputs are multiples of {step:.4g}")


def make_exported(out, name):
    try:
        import exported
    except ImportError as e:
        sys.exit(f"{name}: {e}; scripts/setup-python.sh without --no-torch installs it")
    model, inputs = exported.make(name)
    sets = run(model, inputs)
    check_telling(name, sets)
    folders.write(out, name, model, sets, "transformers", note="made-up weights")


def make_control(out, name):
    control.write(out, name, int(name.removeprefix("control_")))


MAKERS = {
    "mlp": make_mlp,
    "mlp_dyn": make_mlp,
    "silero_vad": make_silero_vad,
    "silero_vad_8k": make_silero_vad,
    "squeezenet1_1": make_vision,
    "mobilenet_v2": make_vision,
    "mobilenet_v2_dyn": make_vision,
    "mobilenet_v2_bn": make_vision,
    "ppocr_cls": make_ppocr_cls,
    "magika": make_magika,
    "quantized": make_quantized,
    "quantized_signed": make_quantized,
    "resnet50": make_vision,
    "resnet50_dyn": make_vision,
    **{f"exported_{name}": make_exported for name in EXPORTED},
    **{f"control_{seed}": make_control for seed in control.SEEDS},
}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", nargs="?")
    ap.add_argument("--only", default="")
    ap.add_argument("--again", action="store_true")
    ap.add_argument("--list", action="store_true")
    args = ap.parse_args()
    if args.list:
        print("\n".join(MAKERS))
        return
    if not args.out:
        ap.error("OUT is missing")
    chosen = args.only.split(",") if args.only else list(MAKERS)
    for name in chosen:
        if name not in MAKERS:
            ap.error(f"unknown model {name}; --list names them")
        if not args.again and os.path.exists(os.path.join(args.out, name, "case.json")):
            print(f"{name}: is there")
            continue
        start = time.monotonic()
        MAKERS[name](args.out, name)
        print(f"{name}: made in {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
