#!/usr/bin/env python3
"""Runs small models that have broken inference engines, and says how each fares.

    python reports.py REPORTS PROGRAMS

PROGRAMS is the folder that cargo builds into: graphmend-pack, graphmend-run and examples/load_or_pack are run.

REPORTS holds a folder a case: model.onnx, meta.json, input_N.npy and output_N.npy, or error.txt where a clear error is
asked for, and steps.txt where one run is not enough.  Errors must come at packing or at running, name what is wrong, take
neither long nor much memory, and not be the compiler's own fault.
"""
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

SECONDS = 60
# Address space: the packing thread's stack and the code generators' tables are some of it.
MOST_MEMORY = 4 << 30


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


class Case:
    def __init__(self, folder, programs, work):
        self.folder, self.work = folder, work
        self.programs = programs
        self.meta = json.loads((folder / "meta.json").read_text())
        self.model = folder / "model.onnx"

    def call(self, *command):
        """Standard output; a clear error is raised as Refused, everything else ends the case."""
        done = subprocess.run(
            [str(c) for c in command], cwd=self.work, capture_output=True, text=True, timeout=SECONDS, preexec_fn=limit
        )
        if done.returncode in (1, 3):
            message = done.stderr.strip() or done.stdout.strip()
            if "internal error" in message or "panicked" in message or not message:
                raise Failed(f"no clear error: {message}")
            raise Refused(message.replace("\n", "; "))
        if done.returncode:
            raise Failed(f"status {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def pack(self, model=None):
        packed = self.work / "model.gmc"
        self.call(self.programs / "graphmend-pack", model or self.model, "-o", packed, "--quiet")
        return packed

    def inputs(self):
        found = []
        while (path := self.folder / f"input_{len(found)}.npy").exists():
            found.append(path)
        return found

    def names(self):
        if "inputs" in self.meta:
            return self.meta["inputs"]
        return [i.name for i in onnx.load(self.model, load_external_data=False).graph.input]

    def run(self, packed):
        out = self.work / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        given = zip(self.names(), self.inputs())
        self.call(self.programs / "graphmend-run", "run", packed, *[f"--input={name}={path}" for name, path in given], f"--output={out}")
        return out

    def cached(self, model):
        """A run through the cache of packed models."""
        out = self.work / "out"
        out.mkdir(exist_ok=True)
        os.environ["GRAPHMEND_CACHE_DIR"] = str(self.work / "cache")
        program = self.programs / "examples" / "load_or_pack"
        self.call(program, model / "model.onnx", self.folder / "input_0.npy", out / f"{self.meta['outputs'][0]}.npy")
        return out

    def agrees(self, out, prefix="output"):
        for k, name in enumerate(self.meta["outputs"]):
            want = np.load(self.folder / f"{prefix}_{k}.npy")
            got = np.load(out / f"{name}.npy")
            if got.shape != want.shape or got.dtype != want.dtype:
                raise Failed(f"{name}: {got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}")
            if not np.allclose(got, want, rtol=self.meta["rtol"], atol=self.meta["atol"], equal_nan=True):
                raise Failed(f"{name}: {got.ravel()[:8]} for {want.ravel()[:8]}")


class Failed(Exception):
    pass


class Refused(Exception):
    pass


def value(case):
    case.agrees(case.run(case.pack()))
    return "right values"


def error(case):
    refused(case, case.model)
    return "refused"


def refused(case, model, words=()):
    """The model is packed and run, and one of the two refuses it."""
    try:
        case.run(case.pack(model))
    except Refused as why:
        text = str(why)
        case.said = text
        if words and not any(word in text for word in words):
            raise Failed(f"the error names none of {', '.join(words)}: {text}") from None
    else:
        raise Failed("no error")


def stale_cache(case):
    """External weights are replaced, size and time kept: nothing old may be run."""
    model = case.work / "model"
    model.mkdir()
    for name in ("model.onnx", "weights.data"):
        shutil.copy2(case.folder / name, model / name)
    times = os.stat(model / "weights.data")
    case.agrees(case.cached(model))
    shutil.copyfile(case.folder / "weights_changed.data", model / "weights.data")
    os.utime(model / "weights.data", ns=(times.st_atime_ns, times.st_mtime_ns))
    case.agrees(case.cached(model), "output_changed")
    return "right values, twice"


def outside(case):
    """External data above the model's folder, by an absolute path, and through a symbolic link."""
    model = case.work / "model"
    model.mkdir()
    shutil.copyfile(case.model, model / "model.onnx")
    shutil.copyfile(case.folder / "outside.data", case.work / "outside.data")
    refused(case, model / "model.onnx", ["outside", "leaves"])
    said = case.said
    bytes_ = case.model.read_bytes()
    for name, location in (("absolute", str(case.work / "outside.data")), ("link", "inside.data")):
        (model / f"{name}.onnx").write_bytes(located(bytes_, location))
    (model / "inside.data").symlink_to(case.work / "outside.data")
    refused(case, model / "absolute.onnx", ["absolute", "leaves"])
    refused(case, model / "link.onnx", ["link", "leaves"])
    case.said = said
    return "refused, three ways"


def located(model, location):
    proto = onnx.load_model_from_string(model)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    return proto.SerializeToString()


def damaged(case):
    """A file that ends early, an empty one, one without a graph."""
    refused(case, case.model)
    said = case.said
    empty = case.work / "empty.onnx"
    empty.write_bytes(b"")
    refused(case, empty)
    # ir_version 8, no graph.
    empty.write_bytes(b"\x08\x08")
    refused(case, empty, ["graph"])
    case.said = said
    return "refused, three ways"


STEPS = {"R018": stale_cache, "R067": outside, "R075": damaged}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    programs = Path(sys.argv[2]).resolve()
    failed = 0
    folders = sorted(f for f in Path(sys.argv[1]).resolve().iterdir() if (f / "meta.json").exists())
    for folder in folders:
        with tempfile.TemporaryDirectory() as work:
            case = Case(folder, programs, Path(work))
            case.said = ""
            how = STEPS.get(folder.name, error if (folder / "error.txt").exists() else value)
            try:
                told = how(case)
            except (Failed, Refused) as why:
                failed += 1
                told = f"FAILED: {why}"
            except subprocess.TimeoutExpired:
                failed += 1
                told = f"FAILED: no answer in {SECONDS} s"
            said = f": {case.said}" if case.said else ""
            print(f"{folder.name}  {told}{said.replace(work + os.sep, '')}  ({case.meta['title']})")
    print(f"{len(folders) - failed} of {len(folders)} pass")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
