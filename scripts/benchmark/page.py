"""docs/performance.md out of the results: every sentence with a figure is made from the results."""
import math
import os

from . import setup

OURS = "graphmend"
TITLES = {OURS: "GraphMend", "onnxruntime": "onnxruntime", "openvino": "OpenVINO", "iree": "IREE", "rten": "rten", "tract": "tract",
          "torch.compile": "torch.compile", "onnxruntime, native": "onnxruntime (native)"}
DASH = "–"


def geometric(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def figure(engines, name, key):
    """A figure of an engine, or None where it failed or has none."""
    e = (engines or {}).get(name)
    return e.get(key) if isinstance(e, dict) and "failed" not in e else None


def best_peer(engines, key="steady"):
    """(name, figure) of the peer with the least."""
    found = [(figure(engines, n, key), n) for n in engines or {} if n != OURS]
    found = [(v, n) for v, n in found if v is not None]
    return min(found)[::-1] if found else (None, None)


def ratios(results, threads, key="steady", against=None):
    """[(model, peer's time over ours, peer)]; of the best peer unless one is named. Above 1 we are faster."""
    out = []
    for m in results["models"]:
        engines = m["threads"].get(str(threads))
        ours = figure(engines, OURS, key)
        peer, theirs = (against, figure(engines, against, key)) if against else best_peer(engines, key)
        if ours and theirs:
            out.append((m["name"], theirs / ours, peer))
    return out


def cell(seconds):
    """Milliseconds, three digits."""
    if seconds is None:
        return DASH
    ms = seconds * 1e3
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}" if ms >= 0.001 else f"{ms:.1e}"


def factor(x):
    return DASH if x is None else f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def table(head, rows, left=1):
    """A Markdown table; all columns but the first `left` are aligned right."""
    line = lambda cells: "| " + " | ".join(map(str, cells)) + " |"
    return "\n".join([line(head), "|" + "|".join("---" if k < left else "--:" for k in range(len(head))) + "|", *map(line, rows)])


def words(items):
    items = list(items)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def count(n, noun):
    return f"{n} {noun}" + "s" * (n != 1)


def versions(results):
    found = {}
    for m in results["models"]:
        for engines in m["threads"].values():
            for name, e in engines.items():
                if isinstance(e, dict) and e.get("version"):
                    found.setdefault(name, e["version"])
    return found


def standing(results, threads):
    """Sentences: where we are against the best peer of each model."""
    found = ratios(results, threads)
    if not found:
        return ""
    mean = geometric(r for _, r, _ in found)
    ahead = [f"{m} ({factor(r)}×)" for m, r, _ in sorted(found, key=lambda x: -x[1]) if r >= 1]
    behind = [f"{m} ({factor(r)}×, {TITLES[p]})" for m, r, p in sorted(found, key=lambda x: x[1]) if r < 1]
    text = [f"The best peer's time over ours has a geometric mean of **{factor(mean)}** over {count(len(found), 'model')}; above 1 we are faster."]
    text.append(f"Faster than every peer: {words(ahead)}." if ahead else "No model is faster than with its best peer.")
    if behind:
        text.append(f"Behind: {words(behind)}.")
    return "\n".join(text)


def steady_section(results, threads):
    peers = results["peers"]
    rows = []
    for m in results["models"]:
        engines = m["threads"].get(str(threads), {})
        peer, theirs = best_peer(engines)
        ours = figure(engines, OURS, "steady")
        ratio = theirs / ours if ours and theirs else None
        mark = lambda n: f"**{cell(figure(engines, n, 'steady'))}**" if n == peer else cell(figure(engines, n, "steady"))
        rows.append([m["name"], cell(ours), *map(mark, peers), factor(ratio)])
    means = [factor(geometric(r for _, r, _ in ratios(results, threads, against=p))) for p in peers]
    rows.append(["peer's time over ours, geometric mean", "", *means, factor(geometric(r for _, r, _ in ratios(results, threads)))])
    head = ["model", TITLES[OURS], *(TITLES[p] for p in peers), "best peer ÷ ours"]
    of = "One thread, pinned to one core" if threads == 1 else f"{threads} threads"
    return (f"## Steady latency, {count(threads, 'thread')}\n{of}. Milliseconds, the median; the best peer of each model is bold.\n\n"
            f"{table(head, rows)}\n\n{standing(results, threads)}\n")


def start_section(results):
    rows, faster, loads = [], [], []
    for m in results["models"]:
        engines = m["threads"].get("1", {})
        cold = m.get("cold") or {}
        a, b = cold.get(OURS), cold.get("onnxruntime")
        ratio = b / a if a and b else None
        if ratio:
            faster.append(ratio)
        load = figure(engines, OURS, "load")
        if load:
            loads.append(load)
        # Not even a program that starts, loads and verifies in no time would be faster than a run.
        run = figure(engines, OURS, "steady")
        most = b / run if b and run else None
        rows.append([m["name"], cell(load), cell(figure(engines, "onnxruntime", "load")), cell(figure(engines, OURS, "first")),
                     cell(figure(engines, "onnxruntime", "first")), cell(a), cell(b), factor(ratio), factor(most)])
    head = ["model", "load", "onnxruntime", "first run", "onnxruntime", "cold start", "onnxruntime", "×", "× at most"]
    text = ("## Load, first run and cold start\nMilliseconds, one thread. *Load* is opening the packed file, or creating a session; packing (ours) and "
            "compiling (IREE) happened before. *First run* comes after it; ours verifies the weights that it uses. *Cold start* is from a new "
            "process to its first output, files in the page cache: `graphmend-run run` as devices have it (`--profile device`) against a native "
            "program that loads onnxruntime's shared library (`tests/peers`), no Python on either side. *At most* is onnxruntime's cold "
            f"start over our steady run: what a start that takes no time at all would reach.\n\n{table(head, rows)}\n\n")
    if faster:
        text += f"Cold start is {factor(min(faster))} to {factor(max(faster))} times faster than onnxruntime's, {factor(geometric(faster))} times in the geometric mean. "
    if loads:
        text += f"The longest load takes {cell(max(loads))} ms.\n"
    return text


def memory_section(results):
    names = [OURS, "onnxruntime, native", "onnxruntime", *(p for p in results["peers"] if p != "onnxruntime")]
    names = [n for n in names if any(n in (m.get("memory") or {}) for m in results["models"])]
    rows, shares = [], []
    for m in results["models"]:
        memory = m.get("memory") or {}
        get = lambda n: memory.get(n) if isinstance(memory.get(n), (int, float)) else None
        ours, theirs = get(OURS), get("onnxruntime, native")
        if ours and theirs:
            shares.append((ours / theirs, m["name"]))
        rows.append([m["name"], *(f"{get(n) / 2**20:.1f}" if get(n) else DASH for n in names),
                     f"{ours / theirs * 100:.0f} %" if ours and theirs else DASH,
                     f"{m['file_bytes'] / 2**20:.1f}" if "file_bytes" in m else DASH])
    head = ["model", *(TITLES[n] for n in names), "of onnxruntime (native)", "packed file"]
    text = ("## Memory\nPeak resident set (VmHWM) in MiB after ten runs, one thread, each engine in a process of its own; ours is the program as devices have it. A mapped file counts "
            "as far as it was touched. OpenVINO and the second onnxruntime column carry Python and NumPy; the others are native programs.\n\n"
            f"{table(head, rows)}\n")
    if shares:
        most, least = max(shares), min(shares)
        text += (f"\nOurs is {least[0] * 100:.0f} % ({least[1]}) to {most[0] * 100:.0f} % ({most[1]}) of onnxruntime's; "
                 f"{sum(s <= 0.5 for s, _ in shares)} of {len(shares)} models take at most half.\n")
    return text


def peak(results):
    """(bits, GFLOP/s) of the widest vectors."""
    return max(results["limits"]["gflops"], default=(0, 0))


def classes(results):
    """{class: (microseconds of all models, [(GFLOP/s, model)], [(GB/s, model)])}"""
    out = {}
    for m in results["models"]:
        for c in (m.get("profile") or {}).get("classes", []):
            us, flops, bytes = out.setdefault(c["class"], [0, [], []])
            out[c["class"]][0] = us + c["us_per_run"]
            if c["gflops"]:
                flops.append((c["gflops"], m["name"]))
            if c["gb_per_s"]:
                bytes.append((c["gb_per_s"], m["name"]))
    return out


def peak_section(results):
    limits = results["limits"]
    bits, most = peak(results)
    measured = "What one core could do at most is not known here. "
    if limits["gflops"] and limits["read"]:
        widths = words(f"{g:.0f} GFLOP/s with {b}-bit vectors" for b, g in limits["gflops"])
        reads = words(f"{rate:.0f} GB/s from {name}" for name, _, rate in limits["read"])
        measured = f"One core multiplies and adds at {widths} and reads {reads} (`tests/peers/src/bin/machine.rs`, same run). "
    found = classes(results)
    total = sum(c[0] for c in found.values()) or 1
    span = lambda seen, digits=0: DASH if not seen else f"{min(seen)[0]:.{digits}f}{DASH}{max(seen)[0]:.{digits}f}"
    rows = []
    for name, (us, flops, bytes) in sorted(found.items(), key=lambda c: -c[1][0]):
        of_peak = DASH if not flops or not most else f"{min(flops)[0] / most * 100:.0f}{DASH}{max(flops)[0] / most * 100:.0f} %"
        rows.append([name, f"{us / total * 100:.1f} %", span(flops, 1), of_peak, span(bytes, 1), max(flops)[1] if flops else DASH])
    head = ["kernel class", "share of time", "GFLOP/s", f"of {bits}-bit peak" if bits else "of peak", "GB/s", "fastest in"]
    return (f"## Fraction of the limit\n{measured}The table has the kernels of all models by class, as `graphmend-run bench --profile` sees them, from the slowest model's mean to the fastest's; "
            "a multiply-add counts as two operations, a tensor's bytes once for each kernel that reads or writes it, and the share is that of the sum of one run of each model.\n\n"
            + table(head, rows) + "\n")


def growth_section(results, image):
    if not results["growth"]:
        return ""
    parts = ["## Growth\nSteady latency in milliseconds as the input grows, one thread, and the GFLOP/s that this is of our own count of operations.\n"]
    for s in results["growth"]:
        rows = []
        for p in s["points"]:
            ours = figure(p["engines"], OURS, "steady")
            rate = p["ops"] / ours / 1e9 if p["ops"] and ours else None
            peer, theirs = best_peer(p["engines"])
            others = [n for n in p["engines"] if n != OURS]
            rows.append([p["x"], cell(ours), *(cell(figure(p["engines"], n, "steady")) for n in others),
                         factor(theirs / ours if ours and theirs else None), DASH if rate is None else f"{rate:.1f}"])
        others = [TITLES[n] for n in s["points"][0]["engines"] if n != OURS]
        parts.append(f"**{s['title']}**\n\n{table([s['axis'], TITLES[OURS], *others, 'best peer ÷ ours', 'GFLOP/s'], rows, 0)}\n")
        first, last = s["points"][0], s["points"][-1]
        a, b = figure(first["engines"], OURS, "steady"), figure(last["engines"], OURS, "steady")
        if a and b and first["ops"] and last["ops"]:
            parts.append(f"From {first['x']} to {last['x']} the operations grow by {factor(last['ops'] / first['ops'])}, our time by {factor(b / a)}.\n")
    if image:
        parts.append(f"![Latency over the size of the input]({image})\n")
    return "\n".join(parts)


def failures_section(results):
    """Who failed on what, and why."""
    seen = {}
    for m in results["models"]:
        if "failed" in m:
            seen.setdefault((TITLES[OURS], m["failed"]), []).append(m["name"])
        for threads, engines in m["threads"].items():
            for name, e in engines.items():
                if "failed" in e:
                    seen.setdefault((TITLES[name], e["failed"]), []).append(f"{m['name']} ({count(int(threads), 'thread')})")
    if not seen:
        return ""
    lines = []
    for (name, reason), where in sorted(seen.items()):
        plain = sorted({w.split(" (")[0] for w in where})
        # Not where the repository lies on this machine.
        reason = " ".join(reason.replace(setup.ROOT + os.sep, "").replace("|", "/").split()).replace("`", "'")
        lines.append(f"- **{name}**: {words(plain) if len(plain) <= 4 else count(len(plain), 'model')}: `{reason}`")
    return "## What did not run\nA dash in a table is an engine that failed on the model, with this message:\n\n" + "\n".join(lines) + "\n"


def text(results, image=None, growth_image=None):
    """The page."""
    machine = results["machine"]
    named = versions(results)
    peers = words(f"{TITLES[p]} {named.get(p, '')}".strip() for p in results["peers"])
    memory = f", {machine['memory_gib']} GiB" if machine.get("memory_gib") else ""
    parts = [
        "# Performance\n",
        f"GraphMend beside {peers}.\n",
        "`scripts/bench.py --md docs/performance.md` sets up the peers, measures and writes this page: every figure, and every sentence that "
        f"has one, is from one run of {results['date']} on {machine['cpu']} ({count(machine['cores'], 'core')}{memory}, {machine['system']}, {machine['arch']}).\n",
        f"Engines take turns, {count(results['rounds'], 'round')}, each in a fresh process with {results['seconds']} s of steady runs; a figure is the median over the "
        "rounds of the median within one. Inputs are the reference cases' own, or random. All compute in single precision (OpenVINO is asked for f32), "
        "except for models that are quantized themselves. Engines that can be told the sizes of open dimensions beforehand are: GraphMend, OpenVINO and tract. Python peers are measured around the call, inside of the process.\n",
    ]
    if results.get("quick"):
        parts.append("This is a quick run: few models, short rounds.\n")
    if image:
        parts.append(f"![Best peer's time over ours for each model]({image})\n")
    parts += [steady_section(results, n) for n in results["threads"]]
    parts += [start_section(results), memory_section(results), peak_section(results), growth_section(results, growth_image), failures_section(results)]
    return "\n".join(p for p in parts if p)


def summary(results):
    """The gist, for a terminal."""
    return "\n".join(f"{count(n, 'thread')}: {standing(results, n)}" for n in results["threads"])


def write(results, path):
    """The page and its charts beside it."""
    from . import charts

    base = os.path.splitext(path)[0]
    image, growth = base + ".svg", base + "-growth.svg"
    shown = charts.ratios(results, image)
    grown = charts.growth(results, growth)
    name = os.path.basename
    with open(path, "w") as f:
        f.write(text(results, name(image) if shown else None, name(growth) if grown else None))
    print(f"wrote {path}")
