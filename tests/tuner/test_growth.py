"""The work to schedule a program grows with its size: what is done for each stage is counted, not timed."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.schedule import Schedule
from tilewright.tir.analysis.known_ranges import sized_analyzer
from tilewright.tir.analysis.simplify import size_variables
from tilewright.tir.analysis.tree import Tree, tree_of
from tilewright.tir.interpret import interpret
from tilewright.tir.stmt import PrimFunc
from tilewright.tuner import Space, default_schedule
from tilewright.tuner.rules import fused_stages
from tilewright.tuner.rules.multi_level_tiling import TilingPart
from tilewright.tuner.space.sketch import RowTable

TARGET = Target("llvm -mcpu=x86-64-v4 -num-cores=1")


def mixed(count, size=32):
    """Returns a chain of stages, every fourth of them a matrix product."""
    x, w = te.placeholder((size, size), name="x"), te.placeholder((size, size), name="w")
    value = x
    for n in range(count):
        if n % 4 == 3:
            k = te.reduce_axis((0, size), "k")
            value = te.compute(
                (size, size), lambda i, j, of=value, k=k: te.sum(of[i, k] * w[k, j], axis=k), name=f"s{n}"
            )
        else:
            value = te.compute((size, size), lambda i, j, of=value: te.exp(of[i, j]) * 0.1, name=f"s{n}")
    return te.create_prim_func([x, w, value])


def results(count, size=32):
    """Returns a program of so many results."""
    x = te.placeholder((size, size), name="x")
    made = [te.compute((size, size), lambda i, j, n=n: x[i, j] * (n + 1.0), name=f"r{n}") for n in range(count)]
    return te.create_prim_func([x, *made])


def counted(monkeypatch, owner, name, run):
    """Returns how often ``run`` calls the function ``name`` of ``owner``."""
    calls, function = [], getattr(owner, name)

    def counting(*args, **named):
        calls.append(name)
        return function(*args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, counting)
        run()
    return len(calls)


def fused_tables(count):
    space = Space(mixed(count), TARGET)
    return [t for v in space.variants for _, tables in v.groups for t in tables if t.rule == "fused_stages"]


def test_stages_that_are_alike_share_their_decisions():
    (few,), (many,) = fused_tables(16), fused_tables(48)
    assert len(many.part.group.blocks) == 3 * len(few.part.group.blocks)
    assert [d.candidates for d in many.part.decisions] == [d.candidates for d in few.part.decisions]
    assert many.complete and len(many.rows) == len(few.rows)
    ratio = many.seconds / few.seconds
    assert (ratio > 2).all() and (ratio < 4).all()


def test_stages_that_differ_have_decisions_of_their_own():
    x, value = te.placeholder((64, 16), name="x"), None
    weights = []
    for n, (steps, columns) in enumerate([(16, 32), (32, 48), (48, 16)]):
        w, k = te.placeholder((steps, columns), name=f"w{n}"), te.reduce_axis((0, steps), "k")
        source = x if value is None else value
        value = te.compute(
            (64, columns), lambda i, j, of=source, k=k, w=w: te.sum(of[i, k] * w[k, j], axis=k), name=f"s{n}"
        )
        weights.append(w)
    space = Space(te.create_prim_func([x, *weights, value]), TARGET)
    (table,) = [t for v in space.variants for _, tables in v.groups for t in tables if t.rule == "fused_stages"]
    names = [d.name for d in table.part.decisions]
    assert [name for name in names if name.startswith("rows")] == ["rows0", "rows1", "rows2"]


def test_fused_stages_that_share_decisions_compute_the_same():
    func = mixed(12)
    space = Space(func, TARGET)
    (variant,) = [v for v in space.variants if v.groups[0][1][0].rule == "fused_stages"]
    table, sch = variant.groups[0][1][0], variant.base.copy()
    space.apply(sch, table, table.decisions(table.rows[int(table.order[0])]))
    rng = np.random.default_rng(0)
    x, w = [rng.random((32, 32), np.float32) - 0.5 for _ in range(2)]
    found, wanted = np.zeros((32, 32), np.float32), x
    interpret(sch.func, x, w, found)
    for n in range(12):
        wanted = wanted @ w if n % 4 == 3 else np.exp(wanted) * np.float32(0.1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.parametrize("program", [mixed, results])
def test_regions_are_found_a_few_times_for_each_stage(program, monkeypatch):
    few, many = [
        counted(monkeypatch, fused_stages, "fused_regions", lambda n=n: Space(program(n), TARGET)) for n in (16, 48)
    ]
    assert many <= 3 * few + 3


def test_a_step_walks_the_statements_that_it_changes(monkeypatch):
    few, many = [
        counted(monkeypatch, Tree, "__init__", lambda n=n: default_schedule(results(n), TARGET)) for n in (32, 96)
    ]
    assert many <= few + 8


@pytest.mark.parametrize("program", [mixed, results])
def test_trees_of_changed_functions_are_complete(program):
    sch = Schedule(program(24))
    names = [name for name in tree_of(sch.func).blocks if name != "root"]

    def agree():
        tree, fresh = tree_of(sch.func), Tree(sch.func)
        assert tree.func is sch.func
        assert tree.parent == fresh.parent
        assert tree.loops == fresh.loops
        assert tree.blocks == fresh.blocks

    for name in names:
        block = sch.get_block(name)
        first, second = sch.get_loops(block)[:2]
        sch.reorder(second, first)
        agree()
        outer, inner = sch.split(first, [None, 8])
        agree()
        sch.parallel(sch.fuse(second, outer))
        agree()
        sch.vectorize(inner)
        agree()


def test_products_that_are_alike_are_costed_once(monkeypatch):
    few, many = [counted(monkeypatch, TilingPart, "costs", lambda n=n: Space(mixed(n), TARGET)) for n in (16, 48)]
    assert few == many > 0


def test_tables_of_products_that_are_alike_are_those_of_each():
    space = Space(mixed(16), TARGET)
    tables = [t for _, tables in space.groups for t in tables if isinstance(t.part, TilingPart)]
    assert len(tables) >= 8
    for table in tables:
        alone = RowTable(table.part, space.machine)
        np.testing.assert_array_equal(table.rows, alone.rows)
        np.testing.assert_array_equal(table.seconds, alone.seconds)


def test_products_of_other_sizes_or_epilogues_are_not_alike():
    def likeness(rows, columns, after):
        x, w = te.placeholder((rows, 32), name="x"), te.placeholder((32, columns), name="w")
        k = te.reduce_axis((0, 32), "k")
        made = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="product")
        space = Space(te.create_prim_func([x, w, after(made)]), TARGET)
        return [t.part.likeness() for _, tables in space.groups for t in tables if isinstance(t.part, TilingPart)]

    def doubled(of, shape=(32, 64)):
        return te.compute(shape, lambda i, j: of[i, j] * 2.0, name="doubled")

    def squared(of):
        return te.compute((32, 64), lambda i, j: of[i, j] * of[i, j] + of[i, j], name="squared")

    alike = likeness(32, 64, doubled)
    assert alike == likeness(32, 64, doubled)
    others = [
        likeness(32, 64, squared),
        likeness(32, 64, lambda of: of),
        likeness(16, 64, lambda of: doubled(of, (16, 64))),
    ]
    assert all(set(alike).isdisjoint(other) and other for other in others)


def test_sizes_of_parameters_are_looked_for_once():
    looked = []

    class Counting(dict):
        def values(self):
            looked.append(len(self))
            return super().values()

    n = te.var("n")
    x = te.placeholder((n, 16), name="x")
    func = te.create_prim_func([x, te.compute((n, 16), lambda i, j: x[i, j] + 1.0, name="more")])
    func = PrimFunc(func.params, func.body, Counting(func.buffer_map), func.attrs)
    assert len(size_variables(func.buffer_map)) == 1 == len(looked)
    for _ in range(8):
        func = func.with_body(func.body.with_())
        sized_analyzer(func)
    assert len(looked) == 1
    assert [v.name for v in size_variables({**func.buffer_map})] == ["n"]
