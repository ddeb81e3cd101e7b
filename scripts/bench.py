#!/usr/bin/env python3
"""Load time, first run and steady latency of GraphMend and onnxruntime, one thread each, in one run.

    scripts/bench.py REFERENCE [--bin FOLDER] [--only REGEX] [--rounds N] [--md FILE]

REFERENCE is a folder made by tests/reference/make.py; --bin has graphmend-pack and graphmend-run (default target/release).
Both engines get the inputs of set_0. Rounds alternate between the engines, so that both meet the same state of the
machine; of each figure the median over the rounds is reported. onnxruntime is measured within Python, in a fresh process a
round: `load` is the creation of a session, `first` its first run, `steady` the median of further runs.
"""
import argparse, glob, json, os, platform, re, statistics, subprocess, sys

ORT = r"""
import json, sys, time
import numpy as np, onnxruntime as ort
model, seconds, files = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
o = ort.SessionOptions()
o.intra_op_num_threads = o.inter_op_num_threads = 1
t = time.perf_counter()
s = ort.InferenceSession(model, o, providers=["CPUExecutionProvider"])
load = time.perf_counter() - t
feeds = {i.name: np.load(f) for i, f in zip(s.get_inputs(), files)}
t = time.perf_counter()
s.run(None, feeds)
first = time.perf_counter() - t
times, end = [], time.perf_counter() + seconds
while time.perf_counter() < end or len(times) < 3:
    t = time.perf_counter()
    s.run(None, feeds)
    times.append(time.perf_counter() - t)
times.sort()
print(json.dumps({"load": load, "first": first, "steady": times[len(times) // 2], "version": ort.__version__}))
"""


def pinned(cmd):
    """One core for everything that is measured."""
    return ["taskset", "-c", "1", *cmd] if sys.platform == "linux" else cmd


def ours(run, gmc, names, files, seconds):
    cmd = [run, "bench", gmc, "--json", "--seconds", str(seconds)]
    for n, f in zip(names, files):
        cmd += ["-i", f"{n}={f}"]
    out = json.loads(subprocess.run(pinned(cmd), check=True, capture_output=True, text=True).stdout)
    return {k: out[k]["median_us"] / 1e6 for k in ("load", "first", "steady")}


def theirs(model, files, seconds):
    cmd = [sys.executable, "-c", ORT, model, str(seconds), *files]
    return json.loads(subprocess.run(pinned(cmd), check=True, capture_output=True, text=True).stdout)


def cpu():
    try:
        return re.search(r"model name\s*:\s*(.*)", open("/proc/cpuinfo").read()).group(1)
    except (OSError, AttributeError):
        return platform.processor()


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("reference")
    a.add_argument("--bin", default="target/release")
    # Random models with control flow (control_*) say nothing about speed.
    a.add_argument("--only", default="^(?!control_)")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--seconds", type=float, default=2.0)
    a.add_argument("--md")
    a = a.parse_args()
    rows = []
    for case in sorted(glob.glob(os.path.join(a.reference, "*", "case.json"))):
        folder = os.path.dirname(case)
        name = os.path.basename(folder)
        if not re.search(a.only, name):
            continue
        info = json.load(open(case))
        names = [i["name"] for i in info["inputs"]]
        files = [os.path.join(folder, "set_0", f"input_{k}.npy") for k in range(len(names))]
        model, gmc = os.path.join(folder, "model.onnx"), os.path.join(a.bin, name + ".gmc")
        packed = subprocess.run([os.path.join(a.bin, "graphmend-pack"), model, "-o", gmc, "--json"],
                                check=True, capture_output=True, text=True)
        summary = json.loads(packed.stdout)["summary"]
        got = {"ours": [], "ort": []}
        for _ in range(a.rounds):
            got["ours"].append(ours(os.path.join(a.bin, "graphmend-run"), gmc, names, files, a.seconds))
            got["ort"].append(theirs(model, files, a.seconds))
        mid = lambda who, key: statistics.median(x[key] for x in got[who])
        row = {"model": name, "file_mb": summary["file_bytes"] / 1e6, "arena_mb": summary["arena_bytes"] / 1e6}
        for k in ("load", "first", "steady"):
            row[k] = (mid("ours", k) * 1e3, mid("ort", k) * 1e3)
        row["version"] = got["ort"][0]["version"]
        rows.append(row)
        print(f"{name:18} " + "  ".join(f"{k} {row[k][0]:9.3f} / {row[k][1]:9.3f} ms" for k in ("load", "first", "steady")), flush=True)
    if not rows:
        sys.exit(f"no case in {a.reference} matches")
    lines = [f"onnxruntime {rows[0]['version']}, one thread each, {cpu()}. Milliseconds, GraphMend / onnxruntime; the factor is",
             "onnxruntime's time over ours: above 1 we are faster.", "",
             "| model | load | × | first run | × | steady | × | file MB |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for r in rows:
        cells = []
        for k in ("load", "first", "steady"):
            o, t = r[k]
            cells += [f"{o:.3g} / {t:.3g}", f"{t / o:.2f}"]
        lines.append(f"| {r['model']} | " + " | ".join(cells) + f" | {r['file_mb']:.1f} |")
    text = "\n".join(lines) + "\n"
    if a.md:
        open(a.md, "w").write(text)
    print("\n" + text)


if __name__ == "__main__":
    main()
