#!/usr/bin/env python3
"""Operators that onnxruntime adds to the standard (domain com.microsoft), and corners of standard ones that the official suite
leaves out, one in each model, against onnxruntime.

    python contrib.py "PROGRAM serve" [--only TEXT]

Each case is run with its operands as inputs, and again with those constants that models have as such (weights, scales). What
onnxruntime has no kernel for on this processor is compared with a formula in numpy, or with operators that it has.
"""
import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent / "reference"))
import operands as serving  # noqa: E402
import corner_cases  # noqa: E402, F401
from contrib_cases import CASES, Narrow  # noqa: E402


def proto(array):
    return array.proto() if isinstance(array, Narrow) else numpy_helper.from_array(np.asarray(array, order="C"))


def write(path, array):
    """As a file of the server's form; gives its path."""
    if array.dtype == object:
        path = path.with_suffix(".json")
        path.write_text(json.dumps({"shape": array.shape, "data": array.reshape(-1).tolist()}))
    else:
        path = path.with_suffix(".npy")
        np.save(path, np.asarray(array, order="C"))
    return str(path)


def read(work, k):
    """Output number `k`."""
    strings = work / f"output_{k}.json"
    if strings.exists():
        found = json.loads(strings.read_text())
        return np.array(found["data"], object).reshape(found["shape"])
    return np.load(work / f"output_{k}.npy")


def model(case, constants):
    """The case's operator alone; `constants` are the places of operands that the model holds."""
    names = [f"in_{k}" if a is not None else "" for k, a in enumerate(case.inputs)]
    while names and not names[-1]:
        names.pop()
    inputs, initializers = [], []
    for k, a in enumerate(case.inputs):
        if a is None:
            continue
        tensor = proto(a)
        if k in constants:
            tensor.name = names[k]
            initializers.append(tensor)
        else:
            rank = len(tensor.dims)
            opened = case.open_sizes and {d for d in range(rank - 1) if (rank, d) != (4, 1)}
            shape = [f"d{k}_{d}" if case.open_sizes and d in opened else n for d, n in enumerate(tensor.dims)]
            inputs.append(helper.make_tensor_value_info(names[k], tensor.data_type, shape))
    outputs = [f"out_{k}" if k in case.outputs else "" for k in range(max(case.outputs) + 1)]
    nodes = case.nodes or [helper.make_node(case.op, names, outputs, domain=case.domain, **case.attributes)]
    results = [helper.make_tensor_value_info(n, t, None) for n, t in zip(outputs, case.types) if n]
    graph = helper.make_graph(nodes, case.name, inputs, results, initializers)
    imports = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def by_onnxruntime(case):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    constants = {k for k, a in enumerate(case.inputs) if isinstance(a, Narrow)} | set(case.constants)
    session = onnxruntime.InferenceSession(model(case, constants).SerializeToString(), options, ["CPUExecutionProvider"])
    feeds = {f"in_{k}": a for k, a in enumerate(case.inputs) if a is not None and k not in constants}
    return session.run(None, feeds)


def compare(case, got, want):
    """What differs, or an empty text."""
    for k, (g, w) in enumerate(zip(got, want)):
        w = np.asarray(w)
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"output {k} is {g.dtype}{list(g.shape)}, not {w.dtype}{list(w.shape)}"
        if w.dtype == object:
            off = g != w
            if off.any():
                return f"output {k}: {int(off.sum())} of {off.size} differ, as {g[off][0]!r} instead of {w[off][0]!r}"
            continue
        g, w = (a.astype(np.float64) for a in (g, w))
        if case.select:
            g, w = case.select(k, g), case.select(k, w)
        off = ~np.isclose(g, w, rtol=case.rtol, atol=case.atol, equal_nan=True)
        if off.any():
            return f"output {k}: {int(off.sum())} of {off.size} differ, by at most {np.abs(g - w).max():.3g} (largest {np.abs(w).max():.3g})"
    return ""


def run(server, work, case, constants):
    path = work / "model.onnx"
    path.write_bytes(model(case, constants).SerializeToString())
    files = []
    for k, a in enumerate(case.inputs):
        if a is not None and k not in constants:
            files.append(write(work / f"in_{k}", a))
    for old in work.glob("output_*"):
        old.unlink()
    answer = server.request({"id": case.name, "model": str(path), "work": str(work), "runs": [{"inputs": files, "out": str(work)}]})
    if case.refused:
        named = answer["status"] == "refused" and case.refused in answer["message"]
        return "" if named else f"not refused for {case.refused!r}: {answer}"
    if answer["status"] != "ok":
        return f"{answer['status']}: {answer.get('message', '')}"
    try:
        want = case.expected if case.expected is not None else by_onnxruntime(case)
    except Exception as e:
        return f"onnxruntime: {e}"
    got = [read(work, k) for k in range(len(want))]
    return compare(case, got, want)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("program")
    ap.add_argument("--only", default="")
    args = ap.parse_args()
    bad = count = 0
    with tempfile.TemporaryDirectory() as work:
        server = serving.Server(args.program, Path(work))
        for case in CASES:
            if args.only not in case.name:
                continue
            narrow = {k for k, a in enumerate(case.inputs) if isinstance(a, Narrow)} | set(case.fixed)
            for constants in [narrow, narrow | set(case.constants)] if case.constants else [narrow]:
                count += 1
                complaint = run(server, Path(work), case, constants)
                if complaint:
                    bad += 1
                    print(f"{case.name}{' with constants' if constants else ''}: {complaint}")
    print(f"{count} runs of {len(CASES)} cases, {bad} wrong")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
