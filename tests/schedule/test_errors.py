"""The five errors of docs/reference/errors.md: each says what was asked, what stands in the way, where, and what would be legal;
and the page shows them as they are."""

import ast
import re
from pathlib import Path

import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"

MATMUL = """
@T.prim_func
def main(A: T.Buffer((13, 17), "float32"), B: T.Buffer((17, 16), "float32"), C: T.Buffer((13, 16), "float32")):
    for i, j, k in T.grid(13, 16, 17):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
STENCIL = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((14,), "float32"), D: T.Buffer((16,), "float32")):
    B = T.alloc_buffer((16,))
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(14):
        with T.block("C"):
            vi = T.axis.spatial(14, i)
            C[vi] = B[vi] + B[vi + 2]
    for i in range(16):
        with T.block("D"):
            vi = T.axis.spatial(16, i)
            D[vi] = B[vi]
"""
SWEEP = """
@T.prim_func
def main(A: T.Buffer((17, 16), "float32")):
    for t, i in T.grid(16, 15):
        with T.block("A"):
            vt, vi = T.axis.remap("SS", [t, i])
            A[vt + 1, vi] = A[vt, vi + 1] * T.float32(2)
"""
GUARDED = """
@T.prim_func
def main(A: T.Buffer((17,), "float32"), C: T.Buffer((17,), "float32")):
    B = T.alloc_buffer((17,))
    for i in range(17):
        with T.block("B"):
            vi = T.axis.spatial(17, i)
            T.where(i < 13)
            B[vi] = A[vi] + T.float32(1)
    for i in range(17):
        with T.block("C"):
            vi = T.axis.spatial(17, i)
            C[vi] = B[vi] * T.float32(3)
"""

FIVE = {
    "split": (MATMUL, lambda s: s.split(s.get_loops("D")[0], [None, 4])),
    "parallel": (MATMUL, lambda s: s.parallel(s.get_loops("C")[2])),
    "compute_at": (STENCIL, lambda s: s.compute_at("B", s.get_loops("C")[0])),
    "reorder": (SWEEP, lambda s: s.reorder(*reversed(s.get_loops("A")))),
    "reverse_compute_inline": (GUARDED, lambda s: s.reverse_compute_inline("C")),
}
PARTS = {  # what was asked; numbers and names in the reason; the lines marked; what would make it legal
    "split": ("asked: get_loops(block='D')", ["'D'"], ['with T.block("C"):'], "there are 'root', 'C'"),
    "parallel": ("asked: parallel(loop=k)", ["loop k", "axis vk", "all 17 of them add to C[i, j]"],
                 ["for k in range(17):", 'with T.block("C"):'], "choose a spatial loop, or rfactor"),
    "compute_at": ("asked: compute_at(block='B', loop=i)", ["'B'", "'D'", "loop i"],
                   ['with T.block("B"):', "for i in range(14):", 'with T.block("D"):'], "choose a loop around all consumers"),
    "reorder": ("asked: reorder(i, t)", ["A[t + 1, i] is written", "A[t, i + 1] read"],
                ["for t in range(16):", "for i in range(15):"], "keep t, i in this order"),
    "reverse_compute_inline": ("asked: reverse_compute_inline(block='C')", ["i < 13", "[0, 17)"],
                               ['with T.block("B"):', 'with T.block("C"):'], "with T.if_then_else in the value in place of T.where"),
}  # fmt: skip


def message(name: str) -> str:
    text, step = FIVE[name]
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError) as info:
        step(sch)
    return str(info.value)


@pytest.mark.parametrize("name", FIVE)
def test_each_has_the_four_parts(name):
    asked, values, marked, remedy = PARTS[name]
    first, *rest = message(name).splitlines()
    assert all(value in first for value in values), first
    assert rest[0] == asked
    assert rest[1].startswith("hint: ") and remedy in rest[1]
    program = rest[3:]
    found = [program[n - 1].strip() for n, line in enumerate(program) if re.fullmatch(r" *#\^+", line)]
    assert found == marked


@pytest.mark.parametrize("name", FIVE)
def test_the_page_shows_them(name):
    page = PAGE.read_text()
    lines = message(name).splitlines()
    assert f"    {lines[0]}\n    {lines[1]}\n    {lines[2]}\n" in page
    for line in lines[5:]:
        if "^^" in line:
            assert f"    {line}\n" in page


LEGAL = {  # what the hints say
    "split": (MATMUL, lambda s: s.split(s.get_loops("C")[0], [None, 4])),
    "parallel": (MATMUL, lambda s: s.parallel(s.get_loops("C")[0])),
    "rfactor": (MATMUL, lambda s: (s.rfactor(s.get_loops("C")[2], 2), s.parallel(s.get_loops("C_rf")[2]))),
    "compute_at": (STENCIL, lambda s: s.reverse_compute_at("D", s.get_loops("B")[0])),
    "reorder": (SWEEP, lambda s: s.reorder(*s.get_loops("A"))),
    "reverse_compute_inline": (
        GUARDED.replace("            T.where(i < 13)\n", "").replace(
            "A[vi] + T.float32(1)", "T.if_then_else(vi < 13, A[vi] + T.float32(1), T.float32(0))"
        ),
        lambda s: s.reverse_compute_inline("C"),
    ),
}


@pytest.mark.parametrize("name", LEGAL)
def test_what_the_hint_says_is_legal(name):
    text, step = LEGAL[name]
    step(Schedule(parse(text), debug_mask="all"))


def test_arguments_are_shown_as_they_were_given():
    sch = Schedule(parse(MATMUL))
    i, j, k = sch.get_loops("C")
    with pytest.raises(ScheduleError, match=r"\nasked: split\(loop=k, factors=\[5, 2\], disable_predication=True\)\n"):
        sch.split(k, [5, 2], disable_predication=True)
    with pytest.raises(ScheduleError, match=r"\nasked: reorder\(i, i\)\n"):
        sch.reorder(i, i)
    with pytest.raises(ScheduleError, match=r"\nasked: unannotate\(block_or_loop='C', ann_key='x+\.\.\.\)\n"):
        sch.unannotate("C", "x" * 300)
    with pytest.raises(
        ScheduleError, match=r"\nasked: transform_layout\(block='C', buffer=.'write', 0., index_map='lambda a"
    ):
        sch.transform_layout("C", ("write", 0), lambda a, b: (a % 3, b))


MAKERS = ("ScheduleError", "bad_argument", "unknown_handle")


def test_every_refusal_says_what_to_try():
    bare = []
    for path in sorted((PAGE.parents[1] / "schedule").rglob("*.py")):
        for n in ast.walk(ast.parse(path.read_text())):
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in MAKERS:
                if not any(k.arg == "hint" for k in n.keywords):
                    bare.append(f"{path.name}:{n.lineno}")
    assert not bare


def test_calls_that_do_not_fit_show_the_signature():
    A = te.placeholder((8, 8), name="A")
    r = te.reduce_axis((0, 8), name="r")
    C = te.compute((8,), lambda i: te.sum(A[i, r], axis=r), name="C")
    D = te.compute((8,), lambda i: C[i] * 2.0, name="D")
    sch = Schedule(te.create_prim_func([A, D]))
    i, k = sch.get_loops("C")
    with pytest.raises(TypeError, match=r"unroll: too many positional arguments; it is unroll\(loop\)"):
        sch.unroll(i, 4)
    with pytest.raises(ScheduleError, match=r"write factor=8 or factors=\[None, 8\]"):
        sch.split(i, 8)
    sch.split(i, [None, 2])
    with pytest.raises(ScheduleError, match=r"split replaced i by i_0, i_1; .* The loops are i_0, i_1, r of block 'C'"):
        sch.fuse(i, k)
    with pytest.raises(
        ScheduleError, match=r"'C' does more than store one value: it is a reduction[\s\S]*compute_at moves it"
    ):
        sch.compute_inline("C")


def test_notebooks_show_the_lines_of_the_user():
    A = te.placeholder((8,), name="A")
    sch = Schedule(te.create_prim_func([A, te.compute((8,), lambda i: A[i] + 1.0, name="B")]))
    try:
        sch.get_block("C")
    except ScheduleError as error:
        shown = "\n".join(error._render_traceback_())
    assert 'sch.get_block("C")' in shown and shown.count("  File ") == 1 and "\nScheduleError: get_block" in shown
