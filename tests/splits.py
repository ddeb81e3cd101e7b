#!/usr/bin/env python3
"""Holds the compiler's counts of dynamic-control splits against those of the definition.

    python splits.py COUNT_SPLITS.py CASES RESULT.json [--all-pass]

COUNT_SPLITS.py defines and counts splits; RESULT.json is what the suite's runner wrote for CASES.  For every case that was
packed, the splits of each kind and level must be as many, none may leave the plan, and none that constants settle may be
left in it.  With --all-pass, every case must pass too.
"""
import collections
import importlib.util
import json
import os
import sys

KINDS, LEVELS = ("control", "container", "shape"), ("const", "shape", "data")


def main():
    arguments = [a for a in sys.argv[1:] if a != "--all-pass"]
    if len(arguments) != 3:
        sys.exit(__doc__)
    spec = importlib.util.spec_from_file_location("count_splits", arguments[0])
    definition = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(definition)
    cases = arguments[1]
    with open(arguments[2]) as f:
        results = json.load(f)["results"]
    bad = [] if results else ["there are no cases"]
    before, within = collections.Counter(), collections.Counter()
    packed = 0
    for case in results:
        name = case["id"]
        if "--all-pass" in sys.argv and case["class"] != "passed":
            bad.append(f"{name}: {case['class']}: {case['reason']}")
        if "stats" not in case:
            continue
        packed += 1
        folder = os.path.join(cases, *name.split("/"))
        if not os.path.isdir(folder):
            folder = os.path.join(cases, name.split("/")[-1])
        want = definition.count(os.path.join(folder, "model.onnx"))
        want = {kind: {level: want[kind][level] for level in LEVELS} for kind in KINDS}
        splits = case["stats"]["splits"]
        got = {kind: {level: splits["before"][kind][level] for level in LEVELS} for kind in KINDS}
        if got != want:
            bad.append(f"{name}: {got} splits are found, the definition counts {want}")
        if splits["after"]["all"]["total"]:
            bad.append(f"{name}: splits leave the plan: {splits['after']}")
        if splits["within"]["all"]["const"]:
            bad.append(f"{name}: splits that constants settle are left: {splits['within']}")
        before.update({level: splits["before"]["all"][level] for level in LEVELS})
        within.update({level: splits["within"]["all"][level] for level in LEVELS})
    tell = lambda counts: ", ".join(f"{counts[level]} {level}" for level in LEVELS)
    print(f"{packed} models packed: splits {tell(before)}; 0 leave the plan; native choices and loops {tell(within)}")
    for line in bad:
        print(line)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
