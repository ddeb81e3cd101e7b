#!/usr/bin/env python3
"""Changes models at random and asks that each is packed, refused or found wrong.

    python fuzz.py "PROGRAM serve" [--seed N] [--count N] [--seconds N] [--keep FOLDER] MODEL.onnx...

What may not happen: that the program ends, reports a fault of its own, takes longer than 20 seconds or more than 3 GB.  The
same seed and models give the same changes.  What goes wrong is kept in FOLDER.
"""
import argparse
import random
import resource
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from onnx import ModelProto

import operands

SECONDS, BYTES = 20, 3 << 30
NUMBERS = [0, 1, 2, 3, 7, 8, 9, 13, 16, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1, -1, -2, -(1 << 31), -(1 << 63)]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e38, float("inf"), float("-inf"), float("nan")]
INTEGERS = {FieldDescriptor.CPPTYPE_INT32: 32, FieldDescriptor.CPPTYPE_INT64: 64, FieldDescriptor.CPPTYPE_UINT32: 32, FieldDescriptor.CPPTYPE_UINT64: 64}
UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)


class Server(operands.Server):
    """Ends a program that is too slow, and bounds its memory."""

    def start(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        self.program = subprocess.Popen(self.command.split(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, preexec_fn=limit)

    def request(self, request):
        self.late = False
        answer = super().request(request)
        return {"status": "timeout"} if self.late else answer

    def readline(self):
        if select.select([self.program.stdout], [], [], SECONDS)[0]:
            return self.program.stdout.readline()
        self.late = True
        self.program.kill()
        return ""


def messages(message, found):
    """All messages within one, itself first."""
    found.append(message)
    for field, value in message.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                messages(inner, found)
    return found


def integer(rng, old, kind):
    bits = INTEGERS[kind]
    value = rng.choice([rng.choice(NUMBERS), old + rng.choice((-1, 1)), old ^ (1 << rng.randrange(bits))])
    low, high = (0, (1 << bits) - 1) if kind in UNSIGNED else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return min(max(value, low), high)


def data(rng, old):
    """Other bytes, or another text."""
    cut = rng.randrange(len(old) + 1)
    return rng.choice([old[:cut], old + old[:cut], old[:cut] + old[cut + 1 :], type(old)(), old[cut:] + old[:cut]])


def value(rng, field, old, texts):
    if field.cpp_type in INTEGERS:
        return integer(rng, old, field.cpp_type)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING and isinstance(old, str):
        return rng.choice(texts) if texts and rng.random() < 0.8 else data(rng, old)
    return data(rng, old) if isinstance(old, (bytes, str)) else old


def changed(rng, model):
    """One field of one message within the model becomes another."""
    found = messages(model, [])
    message = rng.choice(found)
    fields = message.ListFields()
    if not fields:
        return
    field, old = rng.choice(fields)
    # Names of the same kind elsewhere.
    texts = []
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        for other in found:
            if other.DESCRIPTOR is message.DESCRIPTOR:
                inner = getattr(other, field.name)
                texts += list(inner) if field.is_repeated else [inner]
        texts = [t for t in texts if isinstance(t, str)]
    if field.is_repeated:
        k = rng.randrange(len(old))
        what = rng.randrange(4)
        if what == 0:
            del old[k]
        elif what == 1:
            old.append(old[k]) if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE else old.add().CopyFrom(old[k])
        elif what == 2 or field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            j = rng.randrange(len(old))
            if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                kept = type(old[k])()
                kept.CopyFrom(old[k])
                old[k].CopyFrom(old[j])
                old[j].CopyFrom(kept)
            else:
                old[k], old[j] = old[j], old[k]
        else:
            old[k] = value(rng, field, old[k], texts)
    elif rng.random() < 0.15 or field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, value(rng, field, old, texts))


def scrambled(rng, raw):
    """Bytes that are perhaps no model."""
    raw = bytearray(raw)
    for _ in range(rng.randrange(1, 8)):
        at = rng.randrange(len(raw))
        what = rng.randrange(4)
        if what == 0:
            raw[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            raw[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif what == 2:
            del raw[at : at + rng.randrange(1, 16)]
        else:
            raw[at:at] = raw[at : at + rng.randrange(1, 16)]
        if not raw:
            break
    return bytes(raw)


def mutant(rng, raw):
    if rng.random() < 0.15:
        return scrambled(rng, raw)
    try:
        model = ModelProto.FromString(raw)
    except DecodeError:
        return scrambled(rng, raw)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 9))):
        changed(rng, model)
    return model.SerializeToString()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("program")
    ap.add_argument("models", nargs="+", type=Path)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--count", type=int, default=1 << 40)
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--keep", type=Path, default=Path("fuzz-finds"))
    args = ap.parse_args()
    raws = [p.read_bytes() for p in sorted(args.models) if p.stat().st_size <= 1 << 18]
    if not raws:
        ap.error("no model of at most 256 KB")
    end, counts, seen = time.monotonic() + args.seconds, {}, {}
    with tempfile.TemporaryDirectory() as work:
        server, path = Server(args.program, Path(work)), Path(work) / "model.onnx"
        number = 0
        while number < args.count and time.monotonic() < end:
            rng = random.Random(args.seed << 32 | number)
            number += 1
            path.write_bytes(mutant(rng, rng.choice(raws)))
            answer = server.request({"id": "a", "model": str(path), "work": work, "runs": []})
            counts[answer["status"]] = counts.get(answer["status"], 0) + 1
            message = answer.get("message", "")
            if answer["status"] in ("crashed", "timeout") or "internal error" in message:
                key = (answer["status"], message[:100])
                seen[key] = seen.get(key, 0) + 1
                if seen[key] <= 3:
                    args.keep.mkdir(parents=True, exist_ok=True)
                    kept = args.keep / f"{args.seed}-{number}.onnx"
                    kept.write_bytes(path.read_bytes())
                    print(f"{kept}: {answer['status']} {message[:200]}", flush=True)
    print(f"{number} models: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    sys.exit(bool(seen))


if __name__ == "__main__":
    main()
