"""Random programs: well-formed by construction, so the verifier accepts them, and their text parses back."""

import numpy as np
import pytest

from tilewright.tir import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    Evaluate,
    FloatImm,
    For,
    IfThenElse,
    IntImm,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    Range,
    SeqStmt,
    Var,
    assert_structural_equal,
    decl_buffer,
    parse,
    structural_equal,
    structural_hash,
    verify,
    workload_key,
)
from tilewright.tir.stmt import needs_root, root_block
from tilewright.tir.walk import pre_order, transform

TRUE = IntImm(1, "bool")
KINDS = ("serial", "parallel", "vectorized", "unrolled", "thread_binding")
NAMES = ("i", "j", "i", "x", "for", "A", "v.1", "T")


class Maker:
    """Draws statements; ``ints`` are the variables in scope that a statement may use."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.buffers = []

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def number(self, low=0, high=9):
        return IntImm(int(self.rng.integers(low, high)))

    def index(self, ints):
        out = self.pick(ints) if ints and self.rng.random() < 0.8 else self.number()
        for _ in range(int(self.rng.integers(3))):
            other = self.pick(ints) if ints and self.rng.random() < 0.5 else self.number(1)
            out = self.pick(
                [out + other, out - other, out * self.number(1), out // self.number(1), out % self.number(1)]
            )
        return out

    def condition(self, ints):
        out = self.index(ints) < self.index(ints)
        return out if self.rng.random() < 0.7 else (out & (self.index(ints) > 3))

    def value(self, ints):
        out = FloatImm(float(self.rng.integers(-4, 5)) / 2)
        for _ in range(int(self.rng.integers(3))):
            buffer = self.pick(self.buffers)
            out = self.pick(
                [out + self.load(buffer, ints), out * self.load(buffer, ints), self.load(buffer, ints) - out]
            )
        return out

    def load(self, buffer, ints):
        return buffer[tuple(self.index(ints) for _ in buffer.shape)]

    def store(self, ints):
        buffer = self.pick(self.buffers)
        return BufferStore(buffer, self.value(ints), tuple(self.index(ints) for _ in buffer.shape))

    def stmt(self, depth, ints):
        if depth == 0:
            return self.store(ints) if self.rng.random() < 0.8 else Evaluate(self.index(ints))
        make = self.pick([self.seq, self.loop, self.loop, self.let, self.allocate, self.attr, self.check, self.branch,
                          self.block, self.block])  # fmt: skip
        return make(depth - 1, ints)

    def seq(self, depth, ints):
        items = []
        for _ in range(int(self.rng.integers(2, 4))):
            s = self.stmt(depth, ints)
            items.extend(s.seq if isinstance(s, SeqStmt) else [s])
        return SeqStmt(tuple(items))

    def loop(self, depth, ints):
        kind, var = self.pick(KINDS), Var(self.pick(NAMES))
        lo = IntImm(0) if self.rng.random() < 0.6 else self.index(ints)
        extent = self.number(1) if self.rng.random() < 0.6 else self.index(ints)
        notes = {"k": [1, "a", {"b": True}]} if self.rng.random() < 0.2 else {}
        thread = "threadIdx.x" if kind == "thread_binding" else None
        return For(var, lo, extent, kind, self.stmt(depth, [*ints, var]), thread, notes)

    def let(self, depth, ints):
        var = Var(self.pick(NAMES))
        return LetStmt(var, self.index(ints), self.stmt(depth, [*ints, var]))

    def allocate(self, depth, ints):
        buffer = decl_buffer((self.index(ints), 4), name=self.pick(NAMES), scope=self.pick(["global", "local"]))
        self.buffers.append(buffer)
        body = self.stmt(depth, ints)
        self.buffers.remove(buffer)
        return Allocate(buffer, body)

    def attr(self, depth, ints):
        return AttrStmt(self.pick(["node", 3, None]), "key", self.index(ints), self.stmt(depth, ints))

    def check(self, depth, ints):
        return AssertStmt(self.condition(ints), 'say "no"\n', self.stmt(depth, ints))

    def branch(self, depth, ints):
        other = self.stmt(depth, ints) if self.rng.random() < 0.5 else None
        return IfThenElse(self.condition(ints), self.stmt(depth, ints), other)

    def block(self, depth, ints):
        axes, values = [], []
        for _ in range(int(self.rng.integers(3))):
            lo = IntImm(0) if self.rng.random() < 0.7 else self.number()
            axes.append(IterVar(Range(lo, self.number(1)), Var(self.pick(NAMES)), self.pick(["spatial", "reduce"])))
            values.append(self.pick(ints) if ints and self.rng.random() < 0.6 else self.index(ints))
        inner = [a.var for a in axes] if axes else ints
        outer_buffers = list(self.buffers)
        allocs, matches = (), ()
        if self.rng.random() < 0.3:
            allocs = (decl_buffer((4,), name=self.pick(NAMES)),)
        if self.rng.random() < 0.3:
            source = self.pick(outer_buffers)
            strides = (Var("s"),) if self.rng.random() < 0.5 else ()
            matched = decl_buffer(
                (4,), name="m", scope=source.scope, strides=strides, elem_offset=Var("o"), offset_factor=2
            )
            matches = (MatchBufferRegion(matched, self.region(source, inner)),)
        self.buffers = [*outer_buffers, *allocs, *(m.buffer for m in matches)]
        init = self.stmt(0, inner) if self.rng.random() < 0.3 else None
        body = self.stmt(depth, inner)
        self.buffers = outer_buffers
        # each twice: of buffers with one region, the verifier asks that it hold what is accessed
        regions = tuple(self.region(b, inner) for b in outer_buffers) * 2
        name = self.pick(["B", "C", 'a "b"', ""])
        block = Block(tuple(axes), regions, regions, name, body, init, allocs, matches, {})
        predicate = self.condition(ints) if self.rng.random() < 0.3 else TRUE
        return BlockRealize(tuple(values), predicate, block)

    def region(self, buffer, ints):
        ranges = []
        for _ in buffer.shape:
            lo = self.index(ints)
            ranges.append(Range(lo, IntImm(1) if self.rng.random() < 0.5 else self.index(ints)))
        return BufferRegion(buffer, tuple(ranges))

    def func(self, depth):
        n = Var("n")
        a, b = decl_buffer((16, 16), name="A"), decl_buffer((n, 4, n + 1), name="B", elem_offset=IntImm(8))
        handles = [Var("a", "handle"), Var("A", "handle")]
        params = [*handles, *([n] if self.rng.random() < 0.5 else [])]
        self.buffers = [a, b]
        body = self.stmt(depth, [n])
        if needs_root(body, False):
            body = root_block("root", body)
        return PrimFunc(tuple(params), body, dict(zip(handles, (a, b), strict=True)), {"global_symbol": "main"})


@pytest.mark.parametrize("seed", range(200))
def test_random_programs_parse_back(seed):
    func = Maker(seed).func(1 + seed % 6)
    verify(func)
    text = func.script()
    again = parse(text)
    assert_structural_equal(func, again)
    assert again.script() == text
    assert structural_hash(func) == structural_hash(again) and workload_key(func) == workload_key(again)


@pytest.mark.parametrize("seed", range(60))
def test_one_changed_constant_is_a_difference(seed):
    func = Maker(seed).func(4)
    found = [n for n in pre_order(func) if type(n) is IntImm and n.dtype == "int32"]
    if not found:
        pytest.skip("no constant in it")
    target = found[seed % len(found)]
    other = transform(func, lambda n: IntImm(n.value + 1) if n is target else None)
    assert not structural_equal(func, other)
    assert structural_hash(func) != structural_hash(other)
