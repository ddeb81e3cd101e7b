#!/usr/bin/env python3
"""Gives every operator operands that it should not get, and asks that each is answered.

    python operands.py "PROGRAM serve"

For each operator of the ONNX standard and of onnxruntime's own: no operands, and too few, enough and too many of each of several types and shapes, empty
and open ones among them, at run time and as constants.  The answer may be a packed model, a refusal or an error, but not
the compiler's own fault, and the program must not end.
"""
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import onnxruntime.capi.onnxruntime_pybind11_state as onnxruntime
from onnx import TensorProto, ValueInfoProto, defs, helper

TYPES = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL, "s": TensorProto.STRING, "u": TensorProto.UINT8}
SHAPES = ([], [2], [2, 3], [2, 3, 4], [1, 2, 3, 4], [0], ["n"], ["n", 3], [2, 0, 3])
IMPORTS = (("", 25), ("ai.onnx.ml", 5), ("ai.onnx.preview.training", 1), ("com.microsoft", 1))
# Values of attributes that must be given, by type.
GIVEN = {1: 1.0, 2: 1, 3: "x", 6: [1.0], 7: [1], 8: ["x"]}


def schemas():
    """Operators, the kinds and shapes of operands that each is tried with, and the least number of them."""
    for schema in defs.get_all_schemas():
        if not schema.deprecated:
            yield schema, {**dict.fromkeys("fib", SHAPES), "s": SHAPES[1::4]}, 1
    for schema in onnxruntime.get_all_operator_schema():
        if schema.domain == "com.microsoft":
            yield schema, {"f": SHAPES[2:5], "u": SHAPES[1:3]}, max(1, schema.min_input)


def operands(schema, kinds, least):
    """Lists of types and shapes."""
    yield []
    for count in range(least, max(schema.min_input, 2) + 2):
        for kind, shapes in kinds.items():
            for shape in shapes:
                yield [(kind, shape)] * count
                if count > 1:
                    yield [(kind, shape)] + [("i", [2])] * (count - 1)
                    yield [(kind, shape)] + [("i", [])] * (count - 1)
                    yield [(kind, [1, 3, 4, 4])] + [(kind, shape)] * (count - 1)


def kind_of(kind):
    """Its number in the format, whichever library tells it."""
    return getattr(defs.OpSchema.AttrType, kind.name).value


def attributes(schema):
    found = {}
    for name, attribute in schema.attributes.items():
        if not attribute.required:
            continue
        if name in ("body", "then_branch", "else_branch"):
            found[name] = helper.make_graph([], name, [], [])
        elif (value := kind_of(attribute.type)) in GIVEN:
            found[name] = GIVEN[value]
    return found


def model(schema, given, constants):
    names = [f"in_{k}" for k in range(len(given))]
    outputs = [f"out_{k}" for k in range(max(1, schema.min_output))]
    inputs, initializers = [], []
    for name, (kind, shape) in zip(names, given):
        if constants and name != "in_0":
            count = 1
            for size in shape:
                count *= size
            initializers.append(helper.make_tensor(name, TYPES[kind], shape, [b"x" if kind == "s" else 1] * count))
        else:
            inputs.append(helper.make_tensor_value_info(name, TYPES[kind], shape))
    node = helper.make_node(schema.name, names, outputs, domain=schema.domain, **attributes(schema))
    results = [ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "operands", inputs, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*i) for i in IMPORTS], ir_version=10)


class Server:
    def __init__(self, command, work):
        self.work, self.command = work, command
        self.start()

    def start(self):
        self.program = subprocess.Popen(self.command.split(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, proto):
        path = self.work / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        return self.request({"id": "a", "model": str(path), "work": str(self.work), "runs": []})

    def readline(self):
        return self.program.stdout.readline()

    def request(self, request):
        try:
            self.program.stdin.write(json.dumps(request) + "\n")
            self.program.stdin.flush()
            line = self.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        status = self.program.wait()
        self.start()
        return {"status": "crashed", "message": f"status {status}"}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    counts, bad = collections.Counter(), {}
    with tempfile.TemporaryDirectory() as work:
        server = Server(sys.argv[1], Path(work))
        for schema, kinds, least in schemas():
            for given in operands(schema, kinds, least):
                open_sizes = any(isinstance(size, str) for _, shape in given[1:] for size in shape)
                for constants in (False, True) if len(given) > 1 and not open_sizes else (False,):
                    answer = server.ask(model(schema, given, constants))
                    counts[answer["status"]] += 1
                    message = answer.get("message", "")
                    if answer["status"] == "crashed" or "internal error" in message:
                        bad.setdefault((schema.name, message[:80]), (given, constants))
    print(", ".join(f"{n} {status}" for status, n in counts.most_common()))
    for (name, message), (given, constants) in bad.items():
        print(f"{name} of {given}{' as constants' if constants else ''}: {message}")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
