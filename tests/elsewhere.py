#!/usr/bin/env python3
"""Packs models here and runs them as another processor would: the service that the runner of the official suite asks.

    python elsewhere.py GRAPHMEND-PACK TARGET COMMAND...

Reads requests and answers them as `graphmend-run serve` does: each model is packed by GRAPHMEND-PACK for TARGET and run by COMMAND,
a graphmend-run behind what emulates its processor.
"""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx


def answer(request, pack, target, command):
    model = onnx.load(request["model"], load_external_data=False)
    own = {t.name for t in model.graph.initializer}
    inputs = [i.name for i in model.graph.input if i.name not in own]
    packed = Path(request["work"]) / "model.gmc"
    done = subprocess.run([pack, request["model"], "--target", target, "-o", packed], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        refused = next((line for line in lines if "not supported" in line), None)
        return {"status": "refused" if refused else "error", "message": refused or lines[-1]}
    for run in request["runs"]:
        given = [f"{name}={file}" for name, file in zip(inputs, run["inputs"])]
        asked = [f"{o.name}={Path(run['out']) / f'output_{k}'}.npy" for k, o in enumerate(model.graph.output)]
        options = [x for g in given for x in ("-i", g)] + [x for a in asked for x in ("-o", a)]
        done = subprocess.run([*command, "run", packed, *options], capture_output=True, text=True)
        if done.returncode:
            return {"status": "error", "message": (done.stderr.strip().splitlines() or ["no reason given"])[-1]}
        for file in Path(run["out"]).glob("output_*.npy"):
            array = np.load(file)
            # numpy has no bfloat16: files hold its bits, the suite has them as integers.
            if array.dtype == "V2":
                np.save(file, array.view(np.uint16))
    return {"status": "ok"}


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    pack, target, *command = sys.argv[1:]
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({"id": request["id"], **answer(request, pack, target, command)}), flush=True)


if __name__ == "__main__":
    main()
