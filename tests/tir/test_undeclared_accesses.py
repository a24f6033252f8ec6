"""Blocks at the top of a function, and blocks that declare less than they touch."""

import numpy as np
import pytest

from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import VerifyError, interpret, parse, verify
from tilewright.tir.walk import blocks_of

TOP = """
@T.prim_func
def main(A: T.Buffer((7, 13)), B: T.Buffer((7, 13))):
{allocs}    with T.block("s"):
        S[0] = A[0, 0] * T.float32(3)
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + S[0]
"""
ALLOCS = "    S = T.alloc_buffer((1,))\n"


def blocks(func):
    return {r.block.name_hint: r.block for r in blocks_of(func)}


def right(func):
    a = np.arange(91, dtype="float32").reshape(7, 13) + 1
    b = np.full((7, 13), np.nan, "float32")
    interpret(func, a, b, check_regions=True)
    np.testing.assert_array_equal(b, a + 3 * a[0, 0])


def test_a_block_without_axes_in_front_of_loops_is_not_the_root():
    func = parse(TOP.format(allocs=ALLOCS))
    s = blocks(func)["s"]
    assert [str(r) for r in (*s.reads, *s.writes)] == ["A[0, 0]", "S[0]"]
    sch = Schedule(func, debug_mask="all")
    sch.compute_at("s", sch.get_loops("B")[0])
    right(sch.func)
    sch = Schedule(func, debug_mask="all")
    sch.cache_read("s", "A", "local")
    right(sch.func)


@pytest.mark.parametrize("around", ["if n > 2:", "with T.attr(0, 'remark', 1):"])
def test_a_block_without_axes_under_something_else_is_not_the_root(around):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((7,)), S: T.Buffer((1,)), n: T.int32):
    {around}
        with T.block("s"):
            S[0] = A[0]
""")
    assert [r.buffer.name for r in blocks(func)["s"].reads] == ["A"]
    assert blocks(func)["root"].reads == ()


def test_the_only_block_is_the_root():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), S: T.Buffer((1,))):
    with T.block("s"):
        S[0] = A[0]
""")
    assert list(blocks(func)) == ["s"] and blocks(func)["s"].reads == ()


REFUSED = [
    ("T.reads()\nT.writes()\nB[0] = T.float32(1)", "writes `B`, which its T.writes leaves out"),
    ("T.reads()\nT.writes(B[0])\nB[0] = A[0]", "reads `A`, which its T.reads leaves out"),
    ("vi = T.axis.S(8, i)\nT.reads(A[vi])\nT.writes(B[vi])\nB[vi] = A[vi + 1]", "`A` outside of A[vi]"),
    ("vi = T.axis.S(8, i)\nT.reads(A[vi])\nT.writes(B[vi + 1])\nB[vi] = A[vi]", "`B` outside of B[vi + 1]"),
    ("vi = T.axis.S(8, i)\nT.reads(A[vi:vi + 4])\nT.writes(B[vi])\nfor k in range(5):\n    B[vi] = A[vi + k]", "`A`"),
    ("vi = T.axis.S(8, i)\nT.reads(A[0:8])\nT.writes(B[vi])\nfor k in range(5):\n    B[vi] = A[k * 2]", "`A`"),
    (
        "vi = T.axis.S(8, i)\nT.reads(A[vi])\nT.writes(B[vi])\nfor k in range(1):\n    with T.block('in'):\n"
        "        w = T.axis.S(16, vi + 1)\n        B[w - 1] = A[w]",
        "`A` outside of A[vi]",
    ),
]
ALLOWED = [
    "vi = T.axis.S(8, i)\nT.reads(A[vi])\nT.writes(B[vi])\nB[vi] = T.if_then_else(vi < 0, A[vi + 1], T.float32(0))",
    "vi = T.axis.S(8, i)\nT.reads(A[vi])\nT.writes(B[vi])\nif vi > 8:\n    B[vi] = A[vi + 1]\nelse:\n    B[vi] = A[vi]",
    "vi = T.axis.S(8, i)\nT.reads(A[vi])\nT.writes(B[vi])\nfor k in range(n):\n    B[vi] = A[vi + k]",
    "vi = T.axis.S(8, i)\nT.reads(A[0:2])\nT.writes(B[vi])\nfor k in range(4):\n    B[vi] = A[k - k // 2 * 2]",
    "vi = T.axis.S(8, i)\nT.reads(A[vi], A[vi + 1])\nT.writes(B[vi])\nB[vi] = A[vi] + A[vi + 1]",
    "vi = T.axis.S(8, i)\nT.reads(A[0:16], J[vi])\nT.writes(B[vi])\nB[vi] = A[J[vi]]",
]


def block_of(body):
    lines = "\n".join("            " + line for line in body.splitlines())
    return parse(f"""
@T.prim_func
def main(A: T.Buffer((16,)), B: T.Buffer((16,)), J: T.Buffer((16,), "int32"), n: T.int32):
    for i in range(8):
        with T.block("b"):
{lines}
""")


@pytest.mark.parametrize(("body", "words"), REFUSED)
def test_regions_that_leave_out_an_access_are_refused(body, words):
    with pytest.raises(VerifyError) as info:
        verify(block_of(body))
    assert words in info.value.message


@pytest.mark.parametrize("body", ALLOWED)
def test_what_cannot_be_known_is_not_refused(body):
    verify(block_of(body))


@pytest.mark.parametrize("reads, writes", [("", "S[0]"), ("A[0]", ""), ("", "")])
def test_a_block_that_hides_what_its_blocks_read_or_write_is_not_complete(reads, writes):
    sch = Schedule(
        parse(f"""
@T.prim_func
def main(A: T.Buffer((7,)), B: T.Buffer((7,))):
    S = T.alloc_buffer((1,))
    with T.block("s"):
        T.reads({reads})
        T.writes({writes})
        with T.block("inner"):
            S[0] = A[0]
    for i in range(7):
        with T.block("B"):
            v = T.axis.spatial(7, i)
            B[v] = A[v] + S[0]
""")
    )
    with pytest.raises(ScheduleError, match="touch more than it declares"):
        sch.compute_at("s", sch.get_loops("B")[0])
