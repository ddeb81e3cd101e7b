"""Checks mended models that were written as ONNX: legal by onnx.checker, and equal to the originals in onnxruntime.

    check_emitted.py PACK CASES [CASES ...] [--unroll N] [--quiet]

PACK is graphmend-pack. CASES are case folders, or folders of them, in the form of folders.py: each model is packed with
--emit-onnx, and both models run on every input set of the case. Models that graphmend-pack refuses are named and skipped.
--unroll is passed on; 0 leaves every loop a Loop. --quiet names only what fails or is skipped.
"""
import argparse
import glob
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

SKIPPED = 3  # graphmend-pack's exit status for a model that it refuses


def case_folders(paths):
    for path in paths:
        if os.path.exists(os.path.join(path, "model.onnx")):
            yield path
        else:
            yield from sorted(os.path.dirname(p) for p in glob.glob(os.path.join(path, "*", "model.onnx")))


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def input_sets(case):
    for folder in sorted(glob.glob(os.path.join(case, "set_*"))):
        files = glob.glob(os.path.join(folder, "input_*.npy"))
        files.sort(key=lambda p: int(os.path.basename(p)[len("input_"):-len(".npy")]))
        yield [np.load(f) for f in files]


def check(pack, case, work, options):
    """None if all is well, else what is not; raises for what graphmend-pack refuses."""
    mended = os.path.join(work, "mended.onnx")
    command = [pack, "-q", os.path.join(case, "model.onnx"), "-o", os.path.join(work, "m.gmc"), "--emit-onnx", mended, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == SKIPPED:
        raise NotImplementedError(done.stderr.strip())
    if done.returncode:
        return done.stderr.strip()
    try:
        onnx.checker.check_model(mended, full_check=True)
        ours, theirs = session(mended), session(os.path.join(case, "model.onnx"))
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    for k, arrays in enumerate(input_sets(case)):
        feed = {i.name: a for i, a in zip(theirs.get_inputs(), arrays)}
        try:
            expected = theirs.run(None, feed)
        except Exception as e:
            print(f"  set {k}: the original does not run: {e}")
            continue
        found = ours.run(None, feed)
        for decl, a, b in zip(theirs.get_outputs(), found, expected):
            # A rewritten graph may be fused otherwise: results differ by rounding.
            if a.shape != b.shape or a.dtype != b.dtype or not np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True):
                return f"set {k}: output '{decl.name}' differs"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack")
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--unroll")
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()
    options = ["--unroll", args.unroll] if args.unroll is not None else []
    failed = checked = 0
    for case in case_folders(args.cases):
        with tempfile.TemporaryDirectory() as work:
            try:
                wrong = check(args.pack, case, work, options)
            except NotImplementedError as e:
                print(f"skipped  {case}: {str(e).splitlines()[0]}")
                continue
        checked += 1
        failed += wrong is not None
        if wrong or not args.quiet:
            print(f"FAILED   {case}: {wrong}" if wrong else f"equal    {case}", flush=True)
    print(f"{checked} checked, {failed} failed")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
