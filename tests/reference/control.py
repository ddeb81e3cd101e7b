#!/usr/bin/env python3
"""Makes small random models with nested control flow, as case folders with reference outputs from onnxruntime.

    python control.py OUT FIRST COUNT       models of the seeds FIRST, FIRST+1, ... in OUT/c000123 and so on

A seed always gives the same model, or none: a model that onnxruntime refuses, whose outputs depend on its optimisations,
or are not finite or large, is left out.  The models hold If, Loop, Scan, sequences, SequenceMap, optionals and functions
within each other, with ordinary operators between; each has several data sets, of different sizes.
"""
import os
import signal
import sys
import traceback

import numpy as np
import onnx
import onnxruntime

import folders
import program

MOST_ELEMENTS = 4000

# Those whose models are among the references: small ones that differ much.
SEEDS = (
    9, 15, 20, 30, 33, 67, 81, 85, 112, 113, 120, 145, 186, 203, 230, 233, 237, 241, 255, 258,
    265, 267, 285, 287, 306, 321, 327, 340, 342, 346, 352, 356, 366, 389, 393, 417, 428, 447, 473, 503,
    505, 512, 515, 558, 559, 560, 563, 577, 591, 592, 614, 615, 621, 630, 654, 663, 667, 674, 676, 699,
)


def session(model, optimise=True):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Unfit(Exception):
    """No reference can be had."""


def outputs_of(model, sets):
    """Outputs for each set, if they mean something."""
    data = model.SerializeToString(deterministic=True)
    names = [i.name for i in folders.true_inputs(model)]
    try:
        onnx.checker.check_model(model, full_check=True)
        ways = [session(data, optimise) for optimise in (False, True)]
        found = [[w.run(None, dict(zip(names, arrays))) for arrays in sets] for w in ways]
    except Exception as e:
        raise Unfit(f"{type(e).__name__}: {str(e)[:300]}") from e
    for a, b in zip(*found):
        for x, y in zip(a, b):
            if x.shape != y.shape or x.size > MOST_ELEMENTS or not np.allclose(x, y, rtol=1e-4, atol=1e-5):
                raise Unfit("outputs depend on optimisations, or are large or no numbers")
            if x.dtype == np.float32 and x.size and not np.abs(x).max() < 1e4:
                raise Unfit("outputs are large")
    return found[0]


def make(seed):
    """The model of a seed and its sets; raises Unfit."""
    maker = program.Maker(seed)
    model, taken = maker.model()
    sets = maker.inputs(taken)
    return model, list(zip(sets, outputs_of(model, sets)))


def write(out, name, seed):
    model, sets = make(seed)
    folders.write(out, name, model, sets, "control", note=f"seed {seed}")


def alone(work):
    """Does something in a process of its own, which may end as it likes; why it left a model out, or None."""
    read, wrote = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        reason = ""
        try:
            work()
        except Unfit as e:
            reason = str(e)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os.write(wrote, reason.encode()[:4000])
        os._exit(0)
    os.close(wrote)
    with os.fdopen(read) as f:
        reason = f.read()
    status = os.waitpid(child, 0)[1]
    return f"ended with status {status}" if status else reason or None


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    out, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.makedirs(out, exist_ok=True)
    made, reasons = 0, {}
    for seed in range(first, first + count):
        reason = alone(lambda: write(out, f"c{seed:06}", seed))
        if reason is None:
            made += 1
        else:
            reasons.setdefault(reason, []).append(seed)
    for reason, seeds in sorted(reasons.items(), key=lambda r: -len(r[1])):
        print(f"left out {len(seeds)} ({seeds[0]}): {reason}", file=sys.stderr)
    print(f"{made} models of {count} seeds")


if __name__ == "__main__":
    main()
