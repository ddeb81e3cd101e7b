"""Random programs for control.py: graphs while they are made, and their ordinary statements.

Of each value its type is known, and its sizes: a number, or a name of a size that is known only while running; two sizes of
one name are equal.  So nearly all models are legal.
"""
import random

import numpy as np
from onnx import TensorProto, helper, numpy_helper

SETS = 4
ELEM = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}
NUMPY = {"f": np.float32, "i": np.int64, "b": np.bool_}
MOST_NODES = 180


class Value:
    """A tensor, or a sequence of tensors of these sizes with at least `least` members."""

    def __init__(self, name, kind, dims, least=None):
        self.name, self.kind, self.dims, self.least = name, kind, tuple(dims), least

    @property
    def rank(self):
        return len(self.dims)

    @property
    def is_sequence(self):
        return self.least is not None

    def of(self, kind, rank=None):
        return not self.is_sequence and self.kind == kind and rank in (None, self.rank)


class Scope:
    """A graph while it is made, and the values that it sees."""

    def __init__(self, maker, parent=None, function=False):
        self.maker, self.rng, self.function = maker, maker.rng, function or (parent is not None and parent.function)
        self.values = list(parent.values) if parent else []
        self.outer = len(self.values)
        self.depth = parent.depth + 1 if parent else 1 if function else 0
        # Siblings use the same names.
        self.count = parent.count if parent else 0
        self.nodes, self.initializers, self.inputs = [], [], []

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def see(self, value):
        self.values.append(value)
        return value

    def node(self, op, inputs, kinds, domain="", **attrs):
        """A node whose outputs are given as (kind, dims) or (kind, dims, least)."""
        self.maker.nodes += 1
        outs = [Value(self.name(), *k) for k in kinds]
        names = [i.name if isinstance(i, Value) else i for i in inputs]
        self.nodes.append(helper.make_node(op, names, [o.name for o in outs], domain=domain, **attrs))
        for o in outs:
            self.see(o)
        return outs

    def op(self, op, inputs, kind, dims, **attrs):
        return self.node(op, inputs, [(kind, dims)], **attrs)[0]

    def const(self, array):
        array = np.asarray(array)
        kind = {"f": "f", "i": "i", "b": "b"}[array.dtype.kind]
        array = array.astype(NUMPY[kind])
        value = Value(self.name(), kind, array.shape)
        tensor = numpy_helper.from_array(array, value.name)
        if self.function or self.rng.random() < 0.4:
            self.nodes.append(helper.make_node("Constant", [], [value.name], value=tensor))
        else:
            self.initializers.append(tensor)
        return value

    def input(self, kind, dims, least=None, declared=True):
        value = Value(self.name(), kind, dims, least)
        self.inputs.append(declare(value, declared))
        return self.see(value)

    def pick(self, test):
        """A value for which `test` holds, rather one of this graph; None if there is none."""
        found = [v for v in self.values if test(v)]
        own = [v for v in self.values[self.outer :] if test(v)]
        if own and self.rng.random() < 0.6:
            found = own
        return self.rng.choice(found) if found else None

    def graph(self, outputs, declared=True):
        return helper.make_graph(
            self.nodes, "g", self.inputs, [declare(o, declared) for o in outputs], self.initializers
        )


def declare(value, shape=True):
    dims = [d if isinstance(d, int) else None for d in value.dims] if shape else None
    t = helper.make_tensor_type_proto(ELEM[value.kind], dims)
    return helper.make_value_info(value.name, helper.make_sequence_type_proto(t) if value.is_sequence else t)


class Maker:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.sizes = 0
        self.nodes = 0
        # Sizes that may be 0.
        self.zero = set()
        self.functions = []
        # Names of what control flow gives.
        self.telling = set()
        self.opset = self.rng.choice([17, 18, 18, 19, 20, 21, 21])

    def size(self, zero=False):
        self.sizes += 1
        name = f"u{self.sizes}"
        if zero:
            self.zero.add(name)
        return name

    def may_be_zero(self, d):
        return d == 0 or d in self.zero

    def is_old(self, dims, mark):
        """Were all of these sizes known when `mark` sizes were?"""
        return all(isinstance(d, int) or not d.startswith("u") or int(d[1:]) <= mark for d in dims)

    def is_full(self, v):
        return not any(self.may_be_zero(d) for d in v.dims)

    # Values of a wanted kind.

    def floats(self, s, rank=None):
        """A float tensor, of a rank if one is given."""
        v = s.pick(lambda v: v.of("f", rank) if rank is not None else v.of("f") and v.rank > 0)
        if v is not None:
            return v
        v = s.pick(lambda v: v.of("f")) or s.const(np.float32([0.5, -1.5, 1.0]))
        if rank == 0:
            return s.op("ReduceMean" if self.is_full(v) else "ReduceSum", [v], "f", [], keepdims=0)
        size = v.dims[0] if v.rank == 1 else int(np.prod(v.dims)) if all(isinstance(d, int) for d in v.dims) else None
        zero = any(self.may_be_zero(d) for d in v.dims)
        flat = v if v.rank == 1 else s.op("Reshape", [v, s.const([-1])], "f", [self.size(zero) if size is None else size])
        if rank in (None, 1):
            return flat
        axes = self.rng.sample(range(rank), rank - 1)
        dims = [1 if k in axes else flat.dims[0] for k in range(rank)]
        return s.op("Unsqueeze", [flat, s.const(sorted(axes))], "f", dims)

    def extent(self, s, v, axis):
        """A size of a tensor, as a number."""
        shape = s.op("Shape", [v], "i", [v.rank])
        if self.rng.random() < 0.5:
            return s.op("Gather", [shape, s.const(self.rng.choice([axis, axis - v.rank]))], "i", [])
        one = s.op("Slice", [shape, s.const([axis]), s.const([axis + 1])], "i", [1])
        return s.op("Squeeze", [one], "i", [])

    def number(self, s, depth=0):
        """A small integer, possibly negative."""
        r = self.rng
        way = r.randrange(8)
        known = s.pick(lambda v: v.of("i", 0))
        if way < 3 and known is not None:
            return known
        if way == 3 or depth > 2:
            return s.const(r.randrange(-1, 5))
        if way == 4:
            v = self.floats(s)
            return self.extent(s, v, r.randrange(v.rank))
        a = self.number(s, depth + 1)
        if way == 5:
            return s.op(r.choice(["Mod", "Div"]), [a, s.const(r.randrange(2, 4))], "i", [])
        return s.op(r.choice(["Add", "Sub", "Min", "Max"]), [a, self.number(s, depth + 1)], "i", [])

    def within(self, s, low, high):
        """A number between two numbers; `high` may be a value."""
        top = high if isinstance(high, Value) else s.const(high)
        return s.op("Min", [s.op("Max", [self.number(s), s.const(low)], "i", []), top], "i", [])

    def vector(self, s, parts):
        """Numbers in a row, some of them values."""
        rows = [s.op("Reshape", [p, s.const([1])], "i", [1]) if isinstance(p, Value) else s.const([p]) for p in parts]
        return s.op("Concat", rows, "i", [len(rows)], axis=0) if len(rows) > 1 else rows[0]

    def truth(self, s):
        r = self.rng
        way = r.randrange(9)
        known = s.pick(lambda v: v.of("b", 0))
        if way < 2 and known is not None:
            return known
        if way == 2:
            return s.const(r.random() < 0.5)
        compare = r.choice(["Less", "Greater", "LessOrEqual", "Equal"])
        if way in (3, 4):
            return s.op(compare, [self.number(s), self.number(s)], "b", [])
        if way == 5:
            a, b = self.floats(s), self.floats(s)
            sizes = [self.extent(s, v, r.randrange(v.rank)) for v in (a, b)]
            return s.op(compare, sizes, "b", [])
        if way == 6 and known is not None:
            return s.op("Not", [known], "b", [])
        total = s.op("ReduceSum", [self.floats(s)], "f", [], keepdims=0)
        return s.op(r.choice(["Less", "Greater"]), [total, s.const(np.float32(r.uniform(-1, 1)))], "b", [])

    def like(self, s, v):
        """A value of exactly the sizes of `v`."""
        same = s.pick(lambda o: o.of(v.kind) and o.dims == v.dims and o is not v)
        if v.kind == "f" and (same is None or self.rng.random() < 0.3):
            return self.simple(s, v)
        if same is None:
            return s.op("Identity", [v], v.kind, v.dims)
        return same

    def any(self, s, kind, rank):
        if kind == "f":
            return self.floats(s, rank)
        v = s.pick(lambda v: v.of(kind, rank))
        if v is not None:
            return v
        if rank == 0:
            return self.number(s) if kind == "i" else self.truth(s)
        return s.const(np.ones([2] * rank, NUMPY[kind]))

    def own(self, s, v):
        """`v` as an output of its graph: it must be made there, and be another than all other outputs."""
        return s.op("Identity", [v], v.kind, v.dims)

    # Ordinary statements.

    def simple(self, s, v=None):
        r = self.rng
        v = v or self.floats(s)
        other = s.pick(lambda o: o.of("f") and o.dims == v.dims)
        if other is not None and r.random() < 0.4:
            both = s.op(r.choice(["Add", "Sub", "Max", "Min"]), [v, other], "f", v.dims)
            return both if r.random() < 0.5 else s.op("Mul", [both, s.const(np.float32(0.5))], "f", v.dims)
        if r.random() < 0.5:
            scalar = s.pick(lambda o: o.of("f", 0)) or s.const(np.float32(r.choice([-1.5, -0.5, 0.25, 0.75])))
            return s.op(r.choice(["Add", "Sub"]), [v, scalar], "f", v.dims)
        if r.random() < 0.2:
            return s.op("Mul", [v, s.const(np.float32(r.choice([-0.75, 0.5])))], "f", v.dims)
        return s.op(r.choice(["Relu", "Neg", "Tanh", "Sigmoid", "Abs", "Identity"]), [v], "f", v.dims)

    def reduce(self, s):
        v = self.floats(s)
        axis = self.rng.randrange(v.rank)
        keep = self.rng.randrange(2)
        ops = ["ReduceSum"] if self.may_be_zero(v.dims[axis]) else ["ReduceSum", "ReduceMean", "ReduceMax"]
        op = self.rng.choice(ops)
        dims = [d for k, d in enumerate(v.dims) if k != axis]
        if keep:
            dims.insert(axis, 1)
        if op == "ReduceSum" or self.opset >= 18:
            return s.op(op, [v, s.const([axis])], "f", dims, keepdims=keep)
        return s.op(op, [v], "f", dims, keepdims=keep, axes=[axis])

    def product(self, s):
        v = s.pick(lambda v: v.of("f") and v.rank > 0 and isinstance(v.dims[-1], int) and v.dims[-1] > 0)
        if v is None:
            return self.simple(s)
        n = self.rng.randrange(1, 4)
        w = [[round(self.rng.uniform(-0.5, 0.5), 2) for _ in range(n)] for _ in range(v.dims[-1])]
        return s.op("MatMul", [v, s.const(np.float32(w))], "f", v.dims[:-1] + (n,))

    def concat(self, s):
        a = self.floats(s)
        axis = self.rng.randrange(a.rank)
        rest = lambda v: v.dims[:axis] + v.dims[axis + 1 :]
        b = s.pick(lambda v: v.of("f", a.rank) and rest(v) == rest(a))
        both = [a, b] if self.rng.random() < 0.7 else [b, a, a]
        sizes = [v.dims[axis] for v in both]
        fixed = all(isinstance(d, int) for d in sizes)
        d = sum(sizes) if fixed else self.size(all(self.may_be_zero(d) for d in sizes))
        return s.op("Concat", both, "f", a.dims[:axis] + (d,) + a.dims[axis + 1 :], axis=axis)

    def slice(self, s, v=None, axis=None):
        r = self.rng
        v = v or self.floats(s)
        axis = r.randrange(v.rank) if axis is None else axis
        d = v.dims[axis]
        way = r.randrange(5)
        if way == 0:
            bounds, size = [s.const([0]), s.const([2])], min(d, 2) if isinstance(d, int) else self.size(d in self.zero)
        elif way == 1:
            bounds, size = [s.const([1]), s.const([2**40])], max(d - 1, 0) if isinstance(d, int) else self.size(True)
        elif way == 2:
            bounds, size = [s.const([0]), s.const([-1])], max(d - 1, 0) if isinstance(d, int) else self.size(True)
        elif way == 3:
            bounds, size = [s.const([-1]), s.const([-(2**40)])], d
        else:
            start = self.vector(s, [self.within(s, 0, 2)])
            end = s.op("Add", [start, self.vector(s, [self.within(s, 1, 3)])], "i", [1])
            bounds, size = [start, end], self.size(True)
        steps = [s.const([-1])] if way == 3 else []
        dims = v.dims[:axis] + (size,) + v.dims[axis + 1 :]
        return s.op("Slice", [v, *bounds, s.const([axis]), *steps], "f", dims)

    def gather(self, s):
        v = s.pick(lambda v: v.of("f") and v.rank > 0 and self.is_full(v))
        if v is None:
            return self.simple(s)
        axis = self.rng.randrange(v.rank)
        if self.rng.random() < 0.5:
            at = s.op("Mod", [self.number(s), self.extent(s, v, axis)], "i", [])
            return s.op("Gather", [v, at], "f", v.dims[:axis] + v.dims[axis + 1 :], axis=axis)
        rows = s.const([0, -1, 0][: self.rng.randrange(1, 4)])
        return s.op("Gather", [v, rows], "f", v.dims[:axis] + rows.dims + v.dims[axis + 1 :], axis=axis)

    def move(self, s):
        r = self.rng
        v = self.floats(s)
        way = r.randrange(4)
        if way == 0 and v.rank > 1:
            order = r.sample(range(v.rank), v.rank)
            return s.op("Transpose", [v], "f", [v.dims[k] for k in order], perm=order)
        if way == 1 and v.rank < 3:
            axis = r.randrange(v.rank + 1)
            return s.op("Unsqueeze", [v, s.const([axis])], "f", v.dims[:axis] + (1,) + v.dims[axis:])
        if way == 2 and v.rank > 1:
            # The first two axes as one, with sizes that are computed.
            a, b = self.extent(s, v, 0), self.extent(s, v, 1)
            joined = s.op("Mul", [a, b], "i", [])
            sizes = [joined, *(self.extent(s, v, k) for k in range(2, v.rank))]
            zero = any(self.may_be_zero(d) for d in v.dims[:2])
            fixed = all(isinstance(d, int) for d in v.dims[:2])
            d = v.dims[0] * v.dims[1] if fixed else self.size(zero)
            attrs = {"allowzero": 1} if not self.is_full(v) else {}
            return s.op("Reshape", [v, self.vector(s, sizes)], "f", (d,) + v.dims[2:], **attrs)
        if self.is_full(v):
            flat = s.op("Reshape", [v, s.const([-1])], "f", [self.size()])
            return s.op("Reshape", [flat, s.const([1, -1])], "f", (1,) + flat.dims)
        return self.simple(s)

    def numbers(self, s):
        """Tensors whose sizes are computed."""
        r = self.rng
        n = self.within(s, 0 if r.random() < 0.3 else 1, 4)
        way = r.randrange(4)
        if way == 0:
            row = s.op("Range", [s.const(0), n, s.const(1)], "i", [self.size(True)])
            return s.op("Cast", [row], "f", row.dims, to=TensorProto.FLOAT)
        if way == 1:
            v = s.pick(lambda v: v.of("f", 1)) or self.floats(s, 1)
            return s.op("Expand", [v, self.vector(s, [n, self.extent(s, v, 0)])], "f", [self.size(True), v.dims[0]])
        if way == 2:
            v = self.floats(s)
            counts = [n] + [1] * (v.rank - 1)
            return s.op("Tile", [v, self.vector(s, counts)], "f", (self.size(True),) + v.dims[1:])
        value = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.5])
        return s.op("ConstantOfShape", [self.vector(s, [n, 2])], "f", [self.size(True), 2], value=value)

    def select(self, s):
        v = self.floats(s)
        return s.op("Where", [self.truth(s), v, self.like(s, v)], "f", v.dims)

    def compress(self, s):
        v = self.floats(s, 1)
        keep = s.op("Greater", [v, s.const(np.float32(0.0))], "b", v.dims)
        return s.op("Compress", [v, keep], "f", [self.size(True)], axis=0)

    def best(self, s):
        """Rows where they are largest, or the largest in order."""
        v = s.pick(lambda v: v.of("f") and v.rank > 0 and self.is_full(v))
        if v is None:
            return self.simple(s)
        axis = self.rng.randrange(v.rank)
        if self.rng.random() < 0.5:
            dims = v.dims[:axis] + v.dims[axis + 1 :]
            at = s.op("ArgMax", [v], "i", dims, axis=axis, keepdims=0)
            return s.op("Gather", [v, at], "f", v.dims[:axis] + dims + v.dims[axis + 1 :], axis=axis) if v.rank < 3 else at
        n = s.op("Min", [self.extent(s, v, axis), self.within(s, 1, 3)], "i", [])
        dims = v.dims[:axis] + (self.size(),) + v.dims[axis + 1 :]
        return s.node("TopK", [v, self.vector(s, [n])], [("f", dims), ("i", dims)], axis=axis)[0]

    def window(self, s):
        """Some rows from a place that is computed."""
        v = s.pick(lambda v: v.of("f") and v.rank > 0 and self.is_full(v))
        if v is None:
            return self.simple(s)
        axis = self.rng.randrange(v.rank)
        start = s.op("Mod", [self.number(s), self.extent(s, v, axis)], "i", [])
        end = s.op("Add", [start, s.const(self.rng.randrange(1, 3))], "i", [])
        dims = v.dims[:axis] + (self.size(),) + v.dims[axis + 1 :]
        return s.op("Slice", [v, self.vector(s, [start]), self.vector(s, [end]), s.const([axis])], "f", dims)

    # Control flow: see flow.py.

    def statements(self, s, n):
        import flow

        ordinary = [
            (6, self.simple), (2, self.reduce), (2, self.product), (2, self.concat), (2, self.slice), (2, self.gather),
            (2, self.move), (2, self.numbers), (1, self.select), (1, self.number), (0.3, self.compress), (1, self.best),
            (1, self.window),
        ]  # fmt: skip
        ways = ordinary + (flow.statements(self, s) if s.depth < 3 else [])
        for _ in range(n):
            if self.nodes > MOST_NODES:
                return
            self.rng.choices([w for _, w in ways], [p for p, _ in ways])[0](s)

    def model(self):
        r = self.rng
        s = Scope(self)
        named = ["n", "m", "t"]
        for _ in range(r.randrange(1, 4)):
            s.input("f", [r.choice([*named, 1, 2, 3, 4]) for _ in range(r.choice([1, 2, 2, 3]))])
        for _ in range(r.randrange(0, 3)):
            s.input("i", [])
        for _ in range(r.randrange(0, 2)):
            s.input("b", [])
        taken = list(s.values)
        s.inputs = [helper.make_tensor_value_info(v.name, ELEM[v.kind], v.dims) for v in taken]
        self.statements(s, r.randrange(4, 12 if r.random() < 0.7 else 24))
        made = [v for v in s.values if v not in taken and not v.is_sequence]
        r.shuffle(made)
        # What control flow gives, and others.
        telling = [v for v in made if v.name in self.telling][:4]
        outputs = [self.own(s, v) for v in dict.fromkeys([*telling, *made[:2]])]
        graph = s.graph(outputs)
        imports = [helper.make_opsetid("", self.opset)] + [helper.make_opsetid("local", 1)] * bool(self.functions)
        return helper.make_model(graph, opset_imports=imports, functions=self.functions, ir_version=8), taken

    def inputs(self, taken):
        """Data sets for the inputs: sizes, numbers and truth values change between them."""
        rng = np.random.Generator(np.random.PCG64(self.rng.randrange(2**32)))
        sets = []
        for k in range(SETS):
            sizes = {n: int(rng.integers(1, 6)) for n in ("n", "m", "t")}
            if k == 1:
                sizes = dict.fromkeys(sizes, 1 + self.rng.randrange(3))
            shift = [0.3, -0.4, 0.0, 0.1][k]
            arrays = []
            for v in taken:
                shape = [sizes.get(d, d) for d in v.dims]
                if v.kind == "f":
                    arrays.append((rng.standard_normal(shape) + shift).astype(np.float32))
                elif v.kind == "i":
                    arrays.append(np.array([3, 0, 5, 1][k] if self.rng.random() < 0.5 else rng.integers(-1, 6), np.int64))
                else:
                    arrays.append(np.array(k % 2 == 0))
            sets.append(arrays)
        return sets
