"""The statements of random programs (program.py) that split a program: If, Loop, Scan, sequences, optionals, functions."""
import numpy as np
from onnx import TensorProto, helper

from program import Scope, Value


def statements(maker, s):
    """(weight, statement) of those that may stand here."""
    ways = [(3, branch), (3, loop), (2, scan), (2.5, sequence), (0.6, sequence_map), (0.6, optional)]
    if not s.function and s.depth == 0:
        ways.append((1, function))
    return [(p, lambda s, w=w: w(maker, s)) for p, w in ways]


def tell(m, s, values):
    """Notes results that should be outputs of the model."""
    if s.depth == 0:
        m.telling.update(v.name for v in values)


def inside(m, s, n=(0, 4)):
    """A graph within, with some statements."""
    inner = Scope(m, s)
    m.statements(inner, m.rng.randrange(*n))
    return inner


def close(s, *inner):
    s.count = max(s.count, *(i.count for i in inner))


def either(m, a, b):
    """Sizes of what is one or the other."""
    return [x if x == y else m.size(m.may_be_zero(x) or m.may_be_zero(y)) for x, y in zip(a, b)]


def choose(m, s, cond, then, other, results):
    """An If of two graphs that give these results."""
    close(s, then, other)
    least = lambda a, b: min(a.least, b.least) if a.is_sequence else None
    kinds = [(a.kind, either(m, a.dims, b.dims), least(a, b)) for a, b in results]
    declared = m.rng.random() < 0.5
    values = s.node(
        "If", [cond], kinds,
        then_branch=then.graph([a for a, _ in results], declared), else_branch=other.graph([b for _, b in results], declared),
    )  # fmt: skip
    tell(m, s, [v for v in values if not v.is_sequence])
    return values


def branch(m, s):
    r = m.rng
    cond = wide(m, s, m.truth(s))
    then, other = inside(m, s), inside(m, s)
    results = []
    for _ in range(r.choice([1, 1, 2, 3])):
        kind, rank = r.choice([("f", 1), ("f", 2), ("f", 2), ("f", 3), ("f", 0), ("i", 0), ("b", 0)])
        if r.random() < 0.12:
            a, b = a_sequence(m, then), a_sequence(m, other)
            if a.dims == b.dims or r.random() < 0.3 and len(a.dims) == len(b.dims):
                results.append((same(m, then, a), same(m, other, b)))
                continue
        a = m.any(then, kind, rank)
        seen = [v for v in other.values if v.of(kind, rank) and v.dims == a.dims]
        b = r.choice(seen) if seen and r.random() < 0.5 else m.any(other, kind, rank)
        results.append((m.own(then, a), m.own(other, b)))
    return choose(m, s, cond, then, other, results)


def wide(m, s, v):
    """A scalar, or the same as a tensor of one element."""
    return s.op("Unsqueeze", [v, s.const([0])], v.kind, [1]) if m.rng.random() < 0.1 else v


def trips(m, s):
    """The most trips: a value or nothing, and how many there are at least."""
    r = m.rng
    way = r.randrange(6)
    if way == 0:
        return None, 1
    if way in (1, 2):
        n = r.randrange(0, 5)
        return s.const(n), n
    if way == 3:
        v = m.floats(s)
        axis = r.randrange(v.rank)
        return m.extent(s, v, axis), 0 if m.may_be_zero(v.dims[axis]) else 1
    return m.within(s, 0, 4), 0


def loop(m, s):
    r = m.rng
    most, least = trips(m, s)
    start = r.choice(["", "", "true", "any"])
    if start == "any":
        start, least = m.truth(s), 0
    elif start:
        start = s.const(True)
    carried, kinds = [], []
    for _ in range(r.choice([0, 1, 1, 2, 2, 3])):
        kind = r.choice(["same", "same", "free", "grow", "shrink", "count", "pass", "turn", "swap", "sequence", "truth"])
        if kind == "swap":
            a = m.floats(s)
            b = s.pick(lambda v: v.of("f", a.rank) and (v.dims == a.dims or r.random() < 0.2)) or a
            carried += [a, b]
            kinds += ["swap", "swapped"]
            continue
        if kind == "count":
            v = m.number(s)
        elif kind == "truth":
            v = m.truth(s)
        elif kind == "turn":
            v = m.floats(s, 2)
        elif kind == "sequence":
            v = a_sequence(m, s)
        else:
            v = m.floats(s)
        carried.append(v)
        kinds.append(kind)
    mark = m.sizes
    body = Scope(m, s)
    declared = r.random() < 0.5
    trip, going = body.input("i", []), body.input("b", [])
    states, axes = [], []
    for k, (v, kind) in enumerate(zip(carried, kinds)):
        dims, axis = list(v.dims), None
        partner = carried[k + 1] if kind == "swap" else carried[k - 1] if kind == "swapped" else v
        if kind in ("free", "turn") or partner.dims != v.dims:
            dims = [m.size(True) for _ in dims]
        elif kind in ("grow", "shrink"):
            axis = r.randrange(v.rank)
            dims[axis] = m.size(kind == "shrink" or m.may_be_zero(dims[axis]))
        axes.append(axis)
        states.append(body.input(v.kind, dims, 0 if kind == "sequence" else None, declared))
    m.statements(body, r.randrange(0, 5))
    nexts = []
    for k, (v, kind) in enumerate(zip(states, kinds)):
        if kind == "same":
            n = m.like(body, v)
        elif kind == "free":
            n = m.any(body, "f", v.rank)
        elif kind == "grow":
            d = v.dims[axes[k]]
            rest = lambda o: o.dims[: axes[k]] + o.dims[axes[k] + 1 :]
            part = body.pick(lambda o: o.of("f", v.rank) and rest(o) == rest(v) and o.dims[axes[k]] != d)
            if part is None:
                one = v.dims[: axes[k]] + (1,) + v.dims[axes[k] + 1 :]
                part = body.op("ReduceSum", [v, body.const([axes[k]])], "f", one)
            n = body.op("Concat", [v, part] if r.random() < 0.7 else [part, v], "f", v.dims, axis=axes[k])
        elif kind == "shrink":
            n = m.slice(body, v, axes[k])
        elif kind == "count":
            n = body.op("Add", [v, body.const(r.choice([1, 1, 2, -1]))], "i", []) if r.random() < 0.7 else m.number(body)
        elif kind == "truth":
            n = m.truth(body)
        elif kind == "pass":
            n = v
        elif kind == "turn":
            n = body.op("Transpose", [v], "f", v.dims[::-1], perm=[1, 0])
            if r.random() < 0.5:
                n = m.simple(body, n)
        elif kind == "swap":
            n = states[k + 1] if r.random() < 0.7 else m.simple(body, states[k + 1])
        elif kind == "swapped":
            n = states[k - 1]
        else:
            n = change_sequence(m, body, v) if r.random() < 0.6 else insert(m, body, v)
        nexts.append(n)
    scanned = []
    for _ in range(r.choice([0, 0, 1, 1, 2])):
        fits = lambda v: not v.is_sequence and v.rank < 4 and m.is_old(v.dims, mark)
        fixed = lambda v: fits(v) and all(isinstance(d, int) for d in v.dims)
        v = body.pick(fits if least else fixed)
        if least and r.random() < 0.2:
            # Its sizes are known in a trip only; what is carried may have others in each.
            changing = {d for v in states for d in v.dims}.difference(*(v.dims for v in carried))
            v = body.pick(lambda v: v.of("f") and v.rank < 4 and not changing.intersection(v.dims)) or v
        scanned.append(v if v is not None else trip)
    on = go_on(m, body, most, trip, going)
    outs = [on, *nexts, *scanned]
    # A value given back as it came in is one of the forms.
    outs = [o if o in states and r.random() < 0.6 and outs.count(o) == 1 else same(m, body, o) for o in outs]
    close(s, body)
    kinds_out = []
    for v, o, kind in zip(carried, outs[1:], kinds):
        if kind == "sequence":
            kinds_out.append((v.kind, v.dims, 0))
        elif kind in ("same", "pass", "count", "truth"):
            kinds_out.append((v.kind, v.dims))
        else:
            b = states[len(kinds_out)]
            kinds_out.append((v.kind, [x if x == y else m.size(True) for x, y in zip(v.dims, b.dims)]))
    n = m.size(least == 0)
    for o in outs[1 + len(carried) :]:
        kinds_out.append((o.kind, [n, *(d if m.is_old([d], mark) else m.size(True) for d in o.dims)]))
    if not kinds_out:
        return []
    inputs = ["" if most is None else most, start, *carried]
    # The form of a scan output of no trips is that which is declared.
    graph = body.graph(outs, True)
    values = s.node("Loop", inputs, kinds_out, body=graph)
    tell(m, s, [v for v in values if not v.is_sequence])
    return values


def same(m, s, v):
    return s.node("Identity", [v], [(v.kind, v.dims, v.least)])[0] if v.is_sequence else m.own(s, v)


def go_on(m, s, most, trip, going):
    """Whether a loop makes another trip."""
    r = m.rng
    if most is not None and r.random() < 0.5:
        return going if r.random() < 0.6 else s.const(True)
    limit = m.within(s, 0, 4)
    within = s.op("Less", [trip, limit], "b", [])
    if r.random() < 0.5:
        return within
    return s.op("And", [within, m.truth(s)], "b", [])


def scan(m, s):
    r = m.rng
    x = m.floats(s)
    axis = r.randrange(x.rank)
    length = x.dims[axis]
    if m.may_be_zero(length):
        return branch(m, s)
    scanned, axes = [x], [axis]
    if r.random() < 0.4:
        y = s.pick(lambda v: v.of("f") and length in v.dims)
        scanned.append(y)
        axes.append(y.dims.index(length))
    states = [m.floats(s, r.choice([None, None, 0])) for _ in range(r.choice([0, 1, 1, 2]))]
    mark = m.sizes
    body = Scope(m, s)
    declared = r.random() < 0.5
    inner = [body.input("f", v.dims, None, declared) for v in states]
    for v, a in zip(scanned, axes):
        body.input("f", v.dims[:a] + v.dims[a + 1 :], None, declared)
    m.statements(body, r.randrange(0, 5))
    nexts = [m.like(body, v) for v in inner]
    if len(inner) == 2 and inner[0].dims == inner[1].dims and r.random() < 0.4:
        nexts = inner[::-1]
    results = [body.pick(lambda v: v.of("f") and v.rank < 3 and m.is_old(v.dims, mark)) for _ in range(r.choice([0, 1, 2]))]
    results = [v for v in results if v is not None]
    if not nexts and not results:
        return []
    outs = [m.own(body, v) for v in [*nexts, *results]]
    close(s, body)
    ways = {"scan_input_directions": [r.randrange(2) for _ in scanned], "scan_output_directions": [r.randrange(2) for _ in results]}
    out_axes = [r.randrange(v.rank + 1) for v in results]
    kinds = [("f", v.dims) for v in states]
    kinds += [("f", v.dims[:a] + (length,) + v.dims[a:]) for v, a in zip(results, out_axes)]
    negative = r.random() < 0.3
    ways["scan_input_axes"] = [a - v.rank if negative else a for v, a in zip(scanned, axes)]
    ways["scan_output_axes"] = [a - v.rank - 1 if negative else a for v, a in zip(results, out_axes)]
    attrs = {k: v for k, v in ways.items() if v and (any(v) or r.random() < 0.3)}
    values = s.node("Scan", [*states, *scanned], kinds, body=body.graph(outs), num_scan_inputs=len(scanned), **attrs)
    tell(m, s, values)
    return values


# Sequences.


def a_sequence(m, s):
    r = m.rng
    known = s.pick(lambda v: v.is_sequence)
    way = r.randrange(6)
    if known is not None and way < 2:
        return known
    if way == 2:
        v = m.floats(s)
        return s.node("SequenceEmpty", [], [("f", v.dims, 0)], dtype=TensorProto.FLOAT)[0]
    if way == 3:
        v = s.pick(lambda v: v.of("f") and v.rank > 0 and m.is_full(v))
        if v is not None:
            axis = r.randrange(v.rank)
            d = v.dims[axis]
            rest = v.dims[:axis], v.dims[axis + 1 :]
            least = d if isinstance(d, int) else 1
            if r.random() < 0.4:
                return s.node("SplitToSequence", [v], [("f", rest[0] + rest[1], least)], axis=axis, keepdims=0)[0]
            if isinstance(d, int) and d in (2, 4) and r.random() < 0.5:
                split = s.const([d // 2] * 2) if r.random() < 0.5 else s.const(d // 2)
                return s.node("SplitToSequence", [v, split], [("f", rest[0] + (d // 2,) + rest[1], 2)], axis=axis)[0]
            given = [s.const(1)] if r.random() < 0.5 else []
            return s.node("SplitToSequence", [v, *given], [("f", rest[0] + (1,) + rest[1], least)], axis=axis)[0]
    v = m.floats(s, r.choice([None, None, None, 0]))
    parts = [v] + [m.like(s, v) for _ in range(r.randrange(0, 3))]
    return s.node("SequenceConstruct", parts, [("f", v.dims, len(parts))])[0]


def place(m, s, q, ends):
    """A position within a sequence, by way of its length; `ends`: the end is one, too."""
    r = m.rng
    if r.random() < 0.3:
        return s.const(r.choice([0, 0, -1]) if q.least or not ends else 0)
    n = s.op("SequenceLength", [q], "i", [])
    if ends:
        n = s.op("Add", [n, s.const(1)], "i", [])
    p = s.op("Mod", [m.number(s), n], "i", [])
    return p if ends or r.random() < 0.7 else s.op("Sub", [p, n], "i", [])


def insert(m, s, q):
    v = s.pick(lambda v: v.of("f") and v.dims == q.dims)
    if v is None:
        return change_sequence(m, s, q)
    where = [place(m, s, q, True)] if m.rng.random() < 0.4 else []
    return s.node("SequenceInsert", [q, v, *where], [("f", q.dims, q.least + 1)])[0]


def change_sequence(m, s, q):
    if q.least > 0 and m.rng.random() < 0.5:
        where = [place(m, s, q, False)] if m.rng.random() < 0.6 else []
        return s.node("SequenceErase", [q, *where], [("f", q.dims, q.least - 1)])[0]
    if q.least > 0 or s.pick(lambda v: v.of("f") and v.dims == q.dims) is not None:
        if s.pick(lambda v: v.of("f") and v.dims == q.dims) is not None:
            return insert(m, s, q)
    return q


def read_sequence(m, s, q):
    r = m.rng
    way = r.randrange(4)
    if way == 0 or q.least == 0:
        return s.op("SequenceLength", [q], "i", [])
    if way == 1:
        return s.op("SequenceAt", [q, place(m, s, q, False)], "f", q.dims)
    if way == 2 and q.dims:
        axis = r.randrange(len(q.dims))
        dims = q.dims[:axis] + (m.size(m.may_be_zero(q.dims[axis])),) + q.dims[axis + 1 :]
        return s.op("ConcatFromSequence", [q], "f", dims, axis=axis if r.random() < 0.7 else axis - len(dims))
    axis = r.randrange(len(q.dims) + 1)
    return s.op("ConcatFromSequence", [q], "f", q.dims[:axis] + (m.size(),) + q.dims[axis:], axis=axis, new_axis=1)


def sequence(m, s):
    q = a_sequence(m, s)
    for _ in range(m.rng.randrange(0, 3)):
        q = change_sequence(m, s, q)
    v = read_sequence(m, s, q)
    tell(m, s, [v])
    return v


def sequence_map(m, s):
    r = m.rng
    q = a_sequence(m, s)
    given = [q] + ([m.floats(s)] if r.random() < 0.4 else []) + ([q] if r.random() < 0.2 else [])
    mark = m.sizes
    body = Scope(m, s)
    inputs = [body.input(v.kind, v.dims) for v in given]
    # What its function gives is seen by onnxruntime only if nothing is captured.
    if r.random() < 0.5:
        body.values = inputs[:]
        body.outer = 0
    m.statements(body, r.randrange(0, 3))
    results = [body.pick(lambda v: v.of("f") and m.is_old(v.dims, mark)) or inputs[0] for _ in range(r.choice([1, 1, 2]))]
    outs = [m.own(body, v) for v in results]
    close(s, body)
    values = s.node("SequenceMap", given, [("f", v.dims, q.least) for v in outs], body=body.graph(outs))
    for v in values:
        tell(m, s, [read_sequence(m, s, v)])
    return values


# Optionals and functions.


def optional(m, s):
    r = m.rng
    v = m.floats(s)
    o = Value(s.name(), "o", v.dims)
    m.nodes += 1
    if r.random() < 0.3:
        t = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
        s.nodes.append(helper.make_node("Optional", [], [o.name], type=t))
    else:
        s.nodes.append(helper.make_node("Optional", [v.name], [o.name]))
    there = s.op("OptionalHasElement", [o], "b", [])
    then, other = Scope(m, s), inside(m, s)
    a = then.op("OptionalGetElement", [o], "f", v.dims)
    m.statements(then, r.randrange(0, 2))
    return choose(m, s, there, then, other, [(m.own(then, a), m.own(other, m.any(other, "f", v.rank)))])


def function(m, s):
    r = m.rng
    x, flag = m.floats(s), m.truth(s)
    f = Scope(m, function=True)
    given = [f.see(Value(f.name(), "f", [m.size(True) for _ in x.dims])), f.see(Value(f.name(), "b", []))]
    m.statements(f, r.randrange(0, 3))
    results = [v for v in branch(m, f) if not v.is_sequence][:1] or [m.simple(f)]
    name = f"f{len(m.functions)}"
    imports = [helper.make_opsetid("", m.opset)]
    outs = [m.own(f, v) for v in results]
    if f.initializers:
        raise AssertionError("a function has no initializers")
    m.functions.append(
        helper.make_function("local", name, [v.name for v in given], [v.name for v in outs], f.nodes, imports)
    )
    kinds = [(v.kind, [d if isinstance(d, int) else m.size(True) for d in v.dims]) for v in outs]
    values = s.node(name, [x, flag], kinds, domain="local")
    if r.random() < 0.5:
        again = [s.pick(lambda v: v.of("f", x.rank)), m.truth(s)]
        kinds = [(k, [d if isinstance(d, int) else m.size(True) for d in dims]) for k, dims in kinds]
        values += s.node(name, again, kinds, domain="local")
    tell(m, s, values)
    return values
