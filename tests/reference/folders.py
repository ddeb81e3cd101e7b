"""Writes a model with inputs and expected outputs as a case folder, the form that the conformance runner reads.

    FOLDER/model.onnx
    FOLDER/case.json               what the model is and how closely its outputs must agree
    FOLDER/set_K/input_N.npy       N counts the graph's inputs that are not initializers
    FOLDER/set_K/output_N.npy
"""
import json
import os
import shutil

import numpy as np
import onnx
from onnx import TensorProto

TYPE_NAME = {v: k.lower() for k, v in TensorProto.DataType.items()}


def nodes(graph):
    """All nodes, those of sub-graphs too."""
    for n in graph.node:
        yield n
        for a in n.attribute:
            for g in [a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs:
                yield from nodes(g)


def true_inputs(model):
    initializers = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in initializers]


def border(values):
    """Name, type and shape; a size that is not fixed is given by its name, or None."""
    out = []
    for v in values:
        t = v.type.tensor_type
        # Some exporters write -1 or an empty name for "any size".
        shape = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or None for d in t.shape.dim]
        out.append({"name": v.name, "type": f"tensor({TYPE_NAME[t.elem_type]})", "shape": shape})
    return out


def describe(model, name, group, sets, rtol, atol, note):
    all_nodes = list(nodes(model.graph))
    ops = sorted({n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}:{n.op_type}" for n in all_nodes})
    types = {TYPE_NAME[v.type.tensor_type.elem_type] for v in [*true_inputs(model), *model.graph.output]}
    types |= {TYPE_NAME[i.data_type] for i in model.graph.initializer}
    for n in all_nodes:
        for a in n.attribute:
            if a.type == onnx.AttributeProto.TENSOR:
                types.add(TYPE_NAME[a.t.data_type])
            elif n.op_type == "Cast" and a.name == "to":
                types.add(TYPE_NAME[a.i])
    needs = set()
    if {"If", "Loop", "Scan"} & set(ops): needs.add("control")
    if "float16" in types: needs.add("float16")
    if "double" in types: needs.add("float64")
    return {
        "id": f"reference/{name}", "kind": "reference", "name": name, "group": group, "op": "", "ops": ops, "expanded": False,
        "opset": {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import},
        "ir_version": model.ir_version, "types": sorted(types), "needs": sorted(needs),
        "inputs": border(true_inputs(model)), "outputs": border(model.graph.output),
        "sets": len(sets), "rtol": rtol, "atol": atol, "check": "value", "note": note,
    }


def write(out, name, model, sets, group, rtol=1e-3, atol=1e-4, note=""):
    """`sets`: for each set (inputs, outputs), lists of arrays in the order of the graph."""
    folder, new = os.path.join(out, name), os.path.join(out, f".{name}.new")
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)
    with open(os.path.join(new, "model.onnx"), "wb") as f:
        f.write(model.SerializeToString(deterministic=True))
    info = describe(model, name, group, sets, rtol, atol, note)
    for k, (inputs, outputs) in enumerate(sets):
        d = os.path.join(new, f"set_{k}")
        os.makedirs(d)
        for kind, values, declared in (("input", inputs, info["inputs"]), ("output", outputs, info["outputs"])):
            assert len(values) == len(declared), (name, kind)
            for i, v in enumerate(values):
                # ascontiguousarray makes a scalar a vector of one
                v = np.asarray(v)
                np.save(os.path.join(d, f"{kind}_{i}.npy"), np.ascontiguousarray(v).reshape(v.shape), allow_pickle=False)
    with open(os.path.join(new, "case.json"), "w") as f:
        json.dump(info, f, indent=1, sort_keys=True)
    # Last, so that a folder under its name is always complete.
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(new, folder)
