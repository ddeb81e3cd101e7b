#!/usr/bin/env python3
"""Holds a run of the official ONNX suite against the baseline.

    python conformance.py RESULT.json BASELINE.txt

RESULT.json is what the suite's runner wrote.  The baseline's first line is the number of cases that must pass at least; each
further line names a case that may be wrong, and why.  No other case may be wrong, and none may crash or time out: what is
not supported must be refused by name.
"""
import collections
import json
import sys


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as f:
        result = json.load(f)
    with open(sys.argv[2]) as f:
        least = int(f.readline())
        excused = {line.split()[0] for line in f if line.strip() and not line.startswith("#")}
    results = result["results"]
    counts = collections.Counter(case["class"] for case in results)
    print(", ".join(f"{n} {c}" for c, n in counts.most_common()))
    bad = [case for case in results if case["class"] in ("crashed", "timeout")]
    bad += [case for case in results if case["class"] == "wrong" and case["id"] not in excused]
    for case in bad:
        print(f"{case['class']}: {case['id']}: {case['reason']}")
    if counts["passed"] < least:
        print(f"{counts['passed']} cases pass; the baseline is {least}")
    sys.exit(bool(bad) or counts["passed"] < least)


if __name__ == "__main__":
    main()
