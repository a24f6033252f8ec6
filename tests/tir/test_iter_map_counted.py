"""Iter maps, subspaces and normal forms of random loop nests, each claim against counting every iteration."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.tir import structural_equal
from tilewright.tir.arith import Analyzer, detect_iter_map, divide_subspace, iter_map_simplify
from tilewright.tir.arith.itermap import constant_form, subspace
from tilewright.tir.expr import And, Expr, IntImm, Range, Reason, Var, const
from tilewright.tir.interpret.interpret_expr import ExprCompiler
from tilewright.tir.walk import substitute, vars_in

TRUE = IntImm(1, "bool")
EXTENTS = [1, 1, 2, 3, 4, 5, 7, 8]
ITERATIONS = 400


class Nest:
    """Axes, each first a loop of its own, whose loops are then split (also into more than there is), fused and put in
    another order: what a schedule makes. ``known`` draws whether indices are simplified at once, and whether loops of
    one iteration are kept then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.number = rng, itertools.count()
        self.loops = [(self.var(), rng.choice(EXTENTS)) for _ in range(rng.randint(1, 2))]
        self.bindings: list[Expr] = [v for v, _ in self.loops]
        self.predicates: list[Expr] = []
        for _ in range(rng.randint(0, 4)):
            rng.choice([self.split, self.split, self.fuse, self.swap])()
        if rng.random() < 0.5:
            an = self.analyzer(self.loops)
            self.bindings = [an.simplify(b) for b in self.bindings]
            self.predicates = [an.simplify(p) for p in self.predicates]
        if rng.random() < 0.4:
            rng.choice([self.limit, self.join, self.shift, self.divide])()
        rng.shuffle(self.predicates)

    def var(self) -> Var:
        return Var(f"x{next(self.number)}")

    def analyzer(self, loops) -> Analyzer:
        an, keep = Analyzer(), self.rng.random() < 0.5
        for v, extent in loops:
            an.bind(v, (0, 1) if keep and extent == 1 else Range.from_extent(extent))
        return an

    def replace(self, mapping) -> None:
        self.bindings = [substitute(b, mapping) for b in self.bindings]
        self.predicates = [substitute(p, mapping) for p in self.predicates]

    def split(self) -> None:
        at = self.rng.randrange(len(self.loops))
        loop, extent = self.loops[at]
        f = self.rng.choice([1, 2, 3, 4])
        factors = self.rng.choice([[-(-extent // f), f], [f, -(-extent // f)], [2, f, 1], [1, f, 3]])
        total = math.prod(factors)
        if total < extent or total * math.prod(e for v, e in self.loops if v is not loop) > ITERATIONS:
            return
        new = [(self.var(), factor) for factor in factors]
        value: Expr = const(0)
        for v, factor in new:
            value = value * factor + v
        self.loops[at : at + 1] = new
        simple = self.analyzer(new).simplify(value)
        self.replace({loop: simple})
        if total > extent:
            self.predicates.append(self.rng.choice([value, simple]) < extent)

    def fuse(self) -> None:
        if len(self.loops) < 2:
            return
        at = self.rng.randrange(len(self.loops) - 1)
        (a, high), (b, low) = self.loops[at : at + 2]
        fused = self.var()
        self.loops[at : at + 2] = [(fused, high * low)]
        self.replace({a: fused // low, b: fused % low})

    def swap(self) -> None:
        i, j = self.rng.randrange(len(self.loops)), self.rng.randrange(len(self.loops))
        self.loops[i], self.loops[j] = self.loops[j], self.loops[i]

    # what no schedule would make

    def limit(self) -> None:
        v, extent = self.rng.choice(self.loops)
        self.predicates.append(v < self.rng.randint(1, extent + 1))

    def join(self) -> None:
        (a, _), (b, extent) = self.rng.choice(self.loops), self.rng.choice(self.loops)
        self.predicates.append(a * self.rng.choice([1, extent]) + b < self.rng.randint(1, 6))

    def shift(self) -> None:
        i = self.rng.randrange(len(self.bindings))
        self.bindings[i] = self.bindings[i] + self.rng.choice([const(1), self.rng.choice(self.loops)[0]])

    def divide(self) -> None:
        i, c = self.rng.randrange(len(self.bindings)), self.rng.choice([2, 3, 4])
        self.bindings[i : i + 1] = [self.bindings[i] // c, self.bindings[i] % c]

    @property
    def ranges(self) -> dict[Var, Range]:
        return {v: Range.from_extent(e) for v, e in self.loops}

    @property
    def predicate(self) -> Expr | None:
        out: Expr | None = None
        for p in self.predicates:
            out = p if out is None else And(out, p)
        return out


def run(exprs, ranges, fixed=()):
    """The values of ``exprs``, one list per iteration; ``fixed`` are the values of other variables."""
    compiler = ExprCompiler(None, {})
    for v, value in dict(fixed).items():
        compiler.registers[compiler.slot(v)] = value
    slots = [compiler.slot(v) for v in ranges]
    runs = [compiler.compile(e) for e in exprs]
    ends = [compiler.compile(r.extent)() for r in ranges.values()]
    for point in itertools.product(*map(range, ends)):
        for slot, value in zip(slots, point, strict=True):
            compiler.registers[slot] = value
        yield [r() for r in runs]


def number(e, fixed=()):
    return next(run([e], {}, fixed))[0]


def written(total) -> Expr:
    """The expression that a sum of digits stands for."""
    if isinstance(total, Var):
        return total
    out = total.base
    for d in total.args:
        out = out + written(d.mark.source) // d.lower_factor % d.extent * d.scale
    return out


def check_map(found, bindings, ranges, predicate, fixed=()) -> None:
    """The digits are the bindings; surjective: their values are the box; injective: no values come twice."""
    indices = [written(s) for s in found.indices] if found.surjective else bindings
    seen = []
    for got in run([*bindings, *indices, TRUE if predicate is None else predicate], ranges, fixed):
        if got[-1]:
            assert got[: len(bindings)] == got[len(bindings) : -1]
            seen.append(tuple(got[: len(bindings)]))
    if found.injective:
        assert len(set(seen)) == len(seen)
    if found.surjective:
        ends = [(number(m, fixed), number(e, fixed)) for m, e in zip(found.mins, found.extents, strict=True)]
        assert set(seen) == set(itertools.product(*[range(m, m + e) for m, e in ends]))


def check_subspace(found, bindings, ranges, inner, predicate, fixed=()) -> None:
    """Each side uses its own loops; together they are the bindings and the predicate; and each runs over its box."""
    sides = [TRUE if e is None else e for e in (found.outer_predicate, found.inner_predicate)]
    for outer, low in [*[(d.outer, d.inner) for d in found.divisions], sides]:
        assert not set(vars_in(outer)) & set(inner)
        assert set(vars_in(low)) & set(ranges) <= set(inner)
    parts = [e for d in found.divisions for e in (d.outer, d.inner)]
    sizes = [number(e, fixed) for d in found.divisions for e in (d.outer_extent, d.inner_extent)]
    bases = [number(d.base, fixed) for d in found.divisions]
    seen = set()
    for got in run([*bindings, *parts, TRUE if predicate is None else predicate, *sides], ranges, fixed):
        holds, high, low = got[-3:]
        assert bool(holds) == bool(high and low)
        if not holds:
            continue
        halves = got[len(bindings) : -3]
        assert all(0 <= x < size for x, size in zip(halves, sizes, strict=True))
        for n, base in enumerate(bases):
            assert got[n] == halves[2 * n] * sizes[2 * n + 1] + halves[2 * n + 1] + base
        seen.add(tuple(halves))
    assert seen == set(itertools.product(*map(range, sizes)))


def check_normal(simple, bindings, ranges, predicate) -> None:
    for got in run([*bindings, *simple, TRUE if predicate is None else predicate], ranges):
        assert not got[-1] or got[: len(bindings)] == got[len(bindings) : -1]


def check_nest(nest: Nest, rng: random.Random) -> int:
    """Every claim about ``nest``; how many maps were found surjective."""
    bindings, ranges, predicate = nest.bindings, nest.ranges, nest.predicate
    inner = [v for v in ranges if rng.random() < 0.5] if rng.random() < 0.3 else list(ranges)[rng.randint(0, 4) :]
    proved = 0
    for keep in (False, True):
        for as_written in (False, True):
            found = detect_iter_map(bindings, ranges, predicate, keep_unit=keep, as_written=as_written)
            check_map(found, bindings, ranges, predicate)
            proved += found.surjective
        divided = divide_subspace(bindings, ranges, inner, predicate, keep_unit=keep)
        if not isinstance(divided, Reason):
            check_subspace(divided, bindings, ranges, inner, predicate)
        simple = iter_map_simplify(bindings, ranges, predicate, keep_unit=keep)
        if simple is not None:
            check_normal(simple, bindings, ranges, predicate)
        check_short(nest, keep)
    return proved


def check_short(nest: Nest, keep: bool) -> bool:
    """Where integers alone give a normal form, the general way gives the same one; whether they do."""
    short = constant_form(nest.bindings, nest.ranges, nest.predicate, keep)
    if short is None:
        return False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subspace, "constant_form", lambda *question: None)
        long = iter_map_simplify(nest.bindings, nest.ranges, nest.predicate, keep_unit=keep)
    assert long is not None and all(structural_equal(a, b) for a, b in zip(short, long, strict=True))
    assert not detect_iter_map(nest.bindings, nest.ranges, nest.predicate, keep_unit=keep).errors
    return True


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_random_nests(rng):
    check_nest(Nest(rng), rng)


def test_most_of_them_are_proved():
    rng = random.Random(5)
    assert sum(check_nest(Nest(rng), rng) for _ in range(100)) > 250  # of 400


def test_integers_alone_give_most_normal_forms():
    rng = random.Random(6)
    nests = [Nest(rng) for _ in range(100)]
    assert sum(check_short(nest, keep) for nest in nests for keep in (False, True)) > 90  # of 200


def nest(text: str, *bindings: str, where: str | None = None):
    """``nest("i:2 j:3", "i * 3 + j", where="i < 1")``"""
    extents = {name: int(e) for name, e in (part.split(":") for part in text.split())}
    v = {name: Var(name) for name in extents}
    ranges = {v[name]: Range.from_extent(e) for name, e in extents.items()}
    return [eval(b, {}, v) for b in bindings], ranges, None if where is None else eval(where, {}, v)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("as_written", [False, True])
@pytest.mark.parametrize(
    "loops, bindings, where",
    [
        ("a:2 b:2 c:1", ["a + b"], "(a + (b + c) < 1) & (b + c < 1)"),  # one unit axis, split twice
        ("a:3 b:2", ["a * 2 + b"], "(a * 2 + b < 1) & (a * 2 + b < 4)"),  # the wider one says nothing more
        ("a:3 b:2", ["a * 2 + b"], "(a * 2 + b < 4) & (a * 2 + b < 1)"),
        ("a:8", ["a // 4 * 4 + a % 4"], "a // 4 * 4 + a % 4 < 7"),  # the upper digit is cut short
        ("a:1", ["a // 4", "a % 4"], None),  # no loop is left in the digits
    ],
)
def test_predicates_are_not_lost(loops, bindings, where, as_written, keep):
    values, ranges, predicate = nest(loops, *bindings, where=where)
    found = detect_iter_map(values, ranges, predicate, keep_unit=keep, as_written=as_written)
    check_map(found, values, ranges, predicate)
    assert found.surjective or keep
    for cut in range(len(ranges) + 1):
        inner = list(ranges)[cut:]
        divided = divide_subspace(values, ranges, inner, predicate, keep_unit=keep)
        if not isinstance(divided, Reason):
            check_subspace(divided, values, ranges, inner, predicate)


def test_a_predicate_on_a_loop_that_no_binding_has_is_an_error():
    values, ranges, predicate = nest("a:2 b:2 c:1", "a + b", where="(a + (b + c) < 1) & (b + c < 1)")
    found = detect_iter_map(values, ranges, predicate, keep_unit=True)
    assert found.errors == ("the predicate b + c < 1 does not limit any binding",)


def test_a_symbolic_bound_shortens_a_number_and_never_lengthens_it():
    i, j, n, m = Var("i"), Var("j"), Var("n"), Var("m")
    value = i * 4 + j
    for extent, predicate, shown in [
        ((n + 3) // 4, value < n, "n"),
        (m, value < n, "T.min(n, m * 4)"),
        (IntImm(2), value < n, "T.min(n, 8)"),
        (IntImm(3), And(value < n, value < 10), "T.min(n, 10)"),
    ]:
        ranges = {i: Range.from_extent(extent), j: Range.from_extent(4)}
        found = detect_iter_map([value], ranges, predicate)
        assert found.bijective and [str(e) for e in found.extents] == [shown]
        divided = divide_subspace([value], ranges, [], predicate)
        for fixed in itertools.product([1, 2, 3, 7, 8, 9, 13], [1, 2, 3]):
            sizes = dict(zip((n, m), fixed, strict=True))
            check_map(found, [value], ranges, predicate, sizes)
            check_subspace(divided, [value], ranges, [], predicate, sizes)
