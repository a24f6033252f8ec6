"""``Schedule(check="smt")``: what is accepted more, and that it computes the same."""

import builtins

import numpy as np
import pytest

from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import interpret, parse, structural_equal

SQUARES = """
@T.prim_func
def main(A: T.Buffer((7, 10), "float32"), C: T.Buffer((7, 16), "float32")):
    B = T.alloc_buffer((7, 10))
    for t, j in T.grid(7, 10):
        with T.block("B"):
            vt, vj = T.axis.remap("SS", [t, j])
            B[vt, vj] = A[vt, vj] * T.float32(2)
    for t, j in T.grid(7, 16):
        with T.block("C"):
            vt, vj = T.axis.remap("SS", [t, j])
            T.reads(B[vt, 0:10])
            T.writes(C[vt, vj])
            C[vt, vj] = B[vt, vj * vj % 16] + T.float32(1)
"""
DIGITS = """
@T.prim_func
def main(A: T.Buffer((35,), "float32"), C: T.Buffer((100,), "float32")):
    B = T.alloc_buffer((35,))
    for i in range(35):
        with T.block("B"):
            vi = T.axis.spatial(35, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(100):
        with T.block("C"):
            vi = T.axis.spatial(100, i)
            C[vi] = B[vi // 3 + vi % 3] + T.float32(1)
"""
SIZES = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n, t = T.int32(), T.int32()
    A = T.match_buffer(a, (n,))
    C = T.match_buffer(c, (n, t))
    B = T.alloc_buffer((n,))
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] * T.float32(2)
    for i, j in T.grid(n, t):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi * vi // n] + T.float32(1)
"""
SHAPES = {
    SQUARES: [((7, 10), (7, 16))],
    DIGITS: [((35,), (100,))],
    SIZES: [((13,), (13, 1)), ((7,), (7, 17)), ((16,), (16, 3))],
}

MORE = {
    "compute_at": (SQUARES, lambda s: s.compute_at("B", s.get_loops("C")[0])),
    "reverse_compute_at": (SQUARES, lambda s: s.reverse_compute_at("C", s.get_loops("B")[0])),
    "cache_read": (SQUARES, lambda s: s.cache_read("C", 0, "local")),
    "digits": (DIGITS, lambda s: s.compute_at("B", s.get_loops("C")[0])),
    "digits of a tile": (DIGITS, lambda s: s.compute_at("B", s.split(s.get_loops("C")[0], [None, 7])[0])),
    "sizes": (SIZES, lambda s: s.compute_at("B", s.get_loops("C")[0])),
}


def run(func, shapes):
    source = np.arange(np.prod(shapes[0]), dtype="float32").reshape(shapes[0]) - 7
    out = np.full(shapes[1], np.nan, "float32")
    interpret(func, source, out)
    return out


@pytest.mark.parametrize("name", MORE)
def test_more_is_accepted_and_computes_the_same(name):
    pytest.importorskip("z3")
    text, step = MORE[name]
    with pytest.raises(ScheduleError, match="it is not shown that this lies in what"):
        step(Schedule(parse(text)))
    sch = Schedule(parse(text), check="smt", debug_mask="all")
    step(sch)
    assert not structural_equal(sch.func, parse(text))
    for shapes in SHAPES[text]:
        assert (run(sch.func, shapes) == run(parse(text), shapes)).all()


def test_what_is_wrong_is_refused_all_the_same():
    pytest.importorskip("z3")
    wrong = DIGITS.replace("B[vi // 3 + vi % 3]", "B[34 - vi // 3]")
    sch = Schedule(parse(wrong), check="smt")
    with pytest.raises(ScheduleError, match="block 'C' reads"):
        sch.reverse_compute_at("C", sch.get_loops("B")[0])
    sch = Schedule(parse(SQUARES), check="smt")
    with pytest.raises(ScheduleError, match="block 'C' reads B"):
        sch.reverse_compute_at("C", sch.get_loops("B")[1])


def test_copies_ask_the_solver_too():
    pytest.importorskip("z3")
    sch = Schedule(parse(DIGITS), check="smt").copy()
    sch.compute_at("B", sch.get_loops("C")[0])
    again = Schedule(parse(DIGITS), check="smt")
    sch.trace.apply_to_schedule(again)
    assert structural_equal(again.func, sch.func)


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="check 'hope'; it is 'affine' or 'smt'"):
        Schedule(parse(DIGITS), check="hope")


def test_without_the_solver_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == "z3":
            raise ImportError("no z3 here")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r"pip install 'tilewright\[smt\]'"):
        Schedule(parse(DIGITS), check="smt")
    Schedule(parse(DIGITS))
