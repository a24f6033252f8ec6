"""Costs of candidates: what several of them need is computed once."""

import numpy as np

from tilewright.tuner.cost import loop_nest
from tilewright.tuner.cost.loop_nest import Nest, NestAccess, NestLoop


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
