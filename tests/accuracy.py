#!/usr/bin/env python3
"""Real models against onnxruntime, at several sizes of their inputs.

    python accuracy.py "PROGRAM serve" [--only TEXT] [--models FOLDER] [--write docs/accuracy.md]

Each output must be as near as 1e-4 plus a thousandth of the element. Where activations become bytes by rounding, a last bit can
decide between two bytes, and onnxruntime's own outputs move when it computes in another order or a last bit of the input
changes: there the difference, as a part of the largest element, must be at most a thousandth, or twice as far as these move.
"""
import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parent / "reference"))
import operands as serving  # noqa: E402
from accuracy_models import SUBJECTS  # noqa: E402

HERE = Path(__file__).parents[1]
HEAD, TAIL = "<!-- measured -->", "<!-- end -->"


def session(path, optimised):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])


def of(session, inputs):
    return session.run(None, {i.name: x for i, x in zip(session.get_inputs(), inputs, strict=True)})


def apart(got, want):
    """The largest difference as a part of the largest element, and the most of the tolerance that an element takes."""
    part = share = 0.0
    for g, w in zip(got, want, strict=True):
        if g.shape != w.shape or g.dtype != w.dtype:
            raise ValueError(f"an output is {g.dtype}{list(g.shape)}, not {w.dtype}{list(w.shape)}")
        if not w.size:
            continue
        g, w = g.astype(np.float64), w.astype(np.float64)
        off = np.abs(g - w)
        if not np.isfinite(off).all():
            raise ValueError("an output is not finite")
        part = max(part, off.max() / max(np.abs(w).max(), 1e-30))
        share = max(share, (off / (1e-4 + 1e-3 * np.abs(w))).max())
    return part, share


def nudged(inputs, seed):
    """About half of the floats moved by their last bit."""
    rng = np.random.Generator(np.random.PCG64([92, seed]))
    move = lambda x: np.where(rng.integers(0, 2, x.shape) > 0, np.nextafter(x, np.float32(np.inf)), x)
    return [move(x) if x.dtype == np.float32 else x for x in inputs]


def outputs(server, work, path, sets):
    runs = []
    for n, inputs in enumerate(sets):
        folder = work / str(n)
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.npy"):
            old.unlink()
        files = [folder / f"input_{k}.npy" for k in range(len(inputs))]
        for file, x in zip(files, inputs):
            np.save(file, x)
        runs.append({"inputs": [str(f) for f in files], "out": str(folder)})
    answer = server.request({"id": "a", "model": str(path), "work": str(work), "runs": runs})
    if answer["status"] != "ok":
        raise ValueError(f"{answer['status']}: {answer.get('message', '')}")
    count = lambda folder: len(list(folder.glob("output_*.npy")))
    return [[np.load(work / str(n) / f"output_{k}.npy") for k in range(count(work / str(n)))] for n in range(len(sets))]


def measure(server, work, folder, subject):
    """Sizes, and how far apart: ours and onnxruntime, onnxruntime and itself without optimisation, and with a last bit changed."""
    path, sets = subject.make(folder)
    plain, optimised = session(path, False), session(path, True)
    got = outputs(server, work, path, sets)
    ours, share, itself, moved = 0.0, 0.0, 0.0, 0.0
    for n, inputs in enumerate(sets):
        want = of(optimised, inputs)
        part, of_bound = apart(got[n], want)
        ours, share = max(ours, part), max(share, of_bound)
        itself = max(itself, apart(of(plain, inputs), want)[0])
        if subject.rounds:
            moved = max([moved, *(apart(of(optimised, nudged(inputs, k)), want)[0] for k in range(4))])
    good = ours <= max(1e-3, 2 * max(itself, moved)) if subject.rounds else share <= 1
    sizes = ", ".join("×".join(map(str, inputs[0].shape)) for inputs in sets)
    return good, [subject.name, sizes, f"{ours:.1e}", f"{itself:.1e}", f"{moved:.1e}" if subject.rounds else ""]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("program")
    ap.add_argument("--only", default="")
    ap.add_argument("--models", default=str(HERE / "target/accuracy"), help="where downloaded and made models are kept")
    ap.add_argument("--write", help="a page whose table is replaced")
    args = ap.parse_args()
    Path(args.models).mkdir(parents=True, exist_ok=True)
    rows, bad = [], 0
    with tempfile.TemporaryDirectory() as work:
        server = serving.Server(args.program, Path(work))
        for subject in SUBJECTS:
            if args.only not in subject.name:
                continue
            try:
                good, row = measure(server, Path(work), args.models, subject)
            except ValueError as e:
                good, row = False, [subject.name, "", str(e), "", ""]
            bad += not good
            print("" if good else "WRONG ", " | ".join(row), sep="", flush=True)
            rows.append(row)
    if args.write:
        head = ["model", "first input", "GraphMend", "onnxruntime without optimisation", "onnxruntime, last bits of inputs changed"]
        lines = ["| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows]]
        page = Path(args.write)
        text = page.read_text()
        before, after = text.split(HEAD)[0], text.split(TAIL)[1]
        page.write_text(before + HEAD + "\n" + "\n".join(lines) + "\n" + TAIL + after)
    print(f"{len(rows)} models, {bad} wrong")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
