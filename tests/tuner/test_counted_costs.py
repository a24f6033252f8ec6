"""Costs of candidates: what several of them need is computed once."""

import numpy as np

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.tuner import Space
from tilewright.tuner.cost import loop_nest
from tilewright.tuner.cost.axis_roles import tile_axes
from tilewright.tuner.cost.loop_nest import Nest, NestAccess, NestLoop
from tilewright.tuner.program import ProgramInfo


def window(monkeypatch, *trips):
    """Returns a nest over rows, columns and a window, and how often lines were counted."""
    counted = []
    lines = Nest.__dict__["_lines"].__func__

    def counting(access, spans, ones):
        counted.append(access)
        return lines(access, spans, ones)

    monkeypatch.setattr(Nest, "_lines", staticmethod(counting))
    loops = [NestLoop(axis, np.array(n, float)) for axis, n in zip("jkij", trips, strict=True)]
    accesses = [NestAccess(({"i": 1, "k": 1}, {"j": 1}), 4), NestAccess(({"i": 1}, {"j": 1}), 4, write=True)]
    return Nest(loops, accesses, {"i": 8, "j": 64, "k": 3}, 2), len(counted)


def test_loops_that_cover_nothing_new_count_no_lines(monkeypatch):
    _, all_loops = window(monkeypatch, (16, 32), (3, 3), (8, 8), (4, 2))
    _, some = window(monkeypatch, (64, 64), (3, 3), (8, 8), (1, 1))
    assert (all_loops, some) == (2 + 2 + 1 + 2 + 2, 2 + 2 + 1 + 2)


def test_lines_are_those_of_the_whole_cover(monkeypatch):
    nest, _ = window(monkeypatch, (16, 32), (3, 3), (8, 8), (4, 2))
    np.testing.assert_array_equal(nest.lines[-1], [[10 * 4, 10 * 4], [8 * 4, 8 * 4]])


def test_how_far_a_level_fits_is_computed_once_for_a_cache(monkeypatch):
    nest, _ = window(monkeypatch, (16, 32), (3, 3), (8, 8), (4, 2))
    asked, fitting = [], loop_nest.fitting

    def counting(sizes, cache_bytes):
        asked.append(cache_bytes)
        return fitting(sizes, cache_bytes)

    monkeypatch.setattr(loop_nest, "fitting", counting)
    whole = nest.traffic(1024.0)
    parts = [nest.traffic(1024.0, only=number) for number in range(2)]
    nest.traffic(2048.0)
    assert asked == [1024.0, 2048.0]
    assert (whole > 0).all() and (sum(parts) <= whole * 1.001).all()


def test_loops_over_small_inputs_stand_inside():
    r = te.reduce_axis((0, 32), name="r")
    large, small = te.placeholder((32, 8, 32, 64), name="A"), te.placeholder((16, 32, 64), name="B")
    out = te.compute((16, 32, 8, 64), lambda i, j, h, v: te.sum(large[j, h, r, v] * small[i, r, v], axis=r), name="C")
    (block,) = ProgramInfo(te.create_prim_func([large, small, out])).blocks
    i, j, _, v = block.spatial
    assert tile_axes(block, v).others == (j, i)  # B passes while a part of A stays


def test_vectors_of_short_axes_that_do_not_lie_in_line_count_as_they_are():
    """Two lanes of a row of 14 × 4 × 2 whose outer axes are looked up are not seven whole vectors."""
    x, t = te.placeholder((14, 4, 32, 2), name="x"), te.placeholder((14,), "int32", name="t")
    axes = [te.reduce_axis((0, e), name=f"r{e}") for e in (14, 4, 2)]
    a, b, c = axes
    out = te.compute((32,), lambda i: te.sum(te.sigmoid(x[t[a], b, i, c]), axis=axes), name="y")
    space = Space(te.create_prim_func([x, t, out]), Target("llvm -mcpu=x86-64-v4 -num-cores=1"))
    seconds = {s.name: float(s.score(s.best_rows(1))[1][0]) for s in space.sketches}
    assert seconds["rows_y"] > 2 * seconds["columns_y"]
