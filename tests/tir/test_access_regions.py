"""The regions that a block touches, found in its body."""

import functools

import pytest

from tilewright.tir.analysis.regions import access_regions
from tilewright.tir.expr import BufferLoad, IntImm, Ramp, Var
from tilewright.tir.parser import parse
from tilewright.tir.stmt import Allocate, BufferStore, decl_buffer
from tilewright.tir.walk import blocks_of


def regions(body, buffers="A: T.Buffer((16, 16), 'float32'), B: T.Buffer((16, 16), 'float32')"):
    """The regions inferred for a block around the lines ``body``, whose axes are vi and vj."""
    lines = "\n".join("            " + line for line in body.strip("\n").splitlines())
    func = parse(f"""
@T.prim_func
def main({buffers}, J: T.Buffer((16,), "int32"), n: T.int32):
    for i, j in T.grid(8, 8):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
{lines}
""")
    block = next(r.block for r in blocks_of(func) if r.block.name_hint == "b")
    reads, writes = access_regions(block.body, block.init)
    return ", ".join(map(str, reads)), ", ".join(map(str, writes))


CASES = [
    ("B[vi, vj] = A[vj, vi]", "A[vj, vi]", "B[vi, vj]"),
    ("B[vi, vj] = A[vi, vj] + A[vi, vj + 2] * A[vi + 1, vj]", "A[vi:vi + 2, vj:vj + 3]", "B[vi, vj]"),
    ("for k in range(4):\n    B[vi, k] = A[vi + k, 2 * k]", "A[vi:vi + 4, 0:7]", "B[vi, 0:4]"),
    ("for k in range(4):\n    B[vi, k] = A[vi + 3 - k, k // 2]", "A[vi:vi + 4, 0:2]", "B[vi, 0:4]"),
    ("for k in range(4):\n    B[vi, 8 + k * -2] = A[vi, k % 2]", "A[vi, 0:2]", "B[vi, 2:9]"),
    ("for k in range(4):\n    for m in range(k + 1):\n        B[vi, m] = A[k, m]", "A[0:4, 0:4]", "B[vi, 0:4]"),
    ("for k in range(n):\n    B[vi, k] = A[k, vj]", "A[0:n, vj]", "B[vi, 0:n]"),
    ("B[vi, vj] = A[J[vi], vj]", "A[J[vi], vj], J[vi]", "B[vi, vj]"),
    ("for k in range(4):\n    B[vi, k] = A[T.Cast('int32', T.Cast('int8', k * 60)), vj]", "A[0:16, vj]", "B[vi, 0:4]"),
    ("for k in range(4):\n    B[vi, k] = A[J[k], vj]", "A[0:16, vj], J[0:4]", "B[vi, 0:4]"),
    ("for k in range(4):\n    for m in range(J[k]):\n        B[vi, m] = A[k, m]", "J[0:4], A[0:4, 0:16]", "B[vi, 0:16]"),
    ("if A[vi, 0] > T.float32(0):\n    B[vi, vj] = T.float32(1)", "A[vi, 0]", "B[vi, vj]"),
    ("B[vi, T.min(vj, 3)] = A[T.max(vi - 1, 0), vj]", "A[T.max(vi - 1, 0), vj]", "B[vi, T.min(vj, 3)]"),
    ("x: T.int32 = vi * 2\nB[x, vj] = A[x + 1, vj]", "A[vi * 2 + 1, vj]", "B[vi * 2, vj]"),
    ("with T.init():\n    B[vi, vj] = T.float32(0)\nB[vi, vj] = B[vi, vj] + A[vi, vj]", "A[vi, vj]", "B[vi, vj]"),
    ("B[vi, vj] = B[vi, vj] + A[vi, vj]", "B[vi, vj], A[vi, vj]", "B[vi, vj]"),
    ("for k in range(4):\n    with T.block('in'):\n        vk = T.axis.spatial(4, k)\n        B[vi, vk] = A[vi, vk + 1]",
     "A[vi, 1:5]", "B[vi, 0:4]"),
]  # fmt: skip


@pytest.mark.parametrize("body, reads, writes", CASES, ids=[c[0].replace("\n", "; ") for c in CASES])
def test_regions(body, reads, writes):
    got_reads, got_writes = regions(body)
    assert sorted(got_reads.split(", ")) == sorted(reads.split(", "))
    assert got_writes == writes


def test_vectors():
    A, B, i = decl_buffer((64,), name="A"), decl_buffer((64,), name="B"), Var("i")
    forward, backward = Ramp(i, IntImm(2), 4), Ramp(i, IntImm(-1), 4)
    (read,), (write,) = access_regions(BufferStore(B, BufferLoad(A, (backward,)), (forward,)))
    assert str(write) == "B[i:i + 7]" and read.region[0].extent.value == 4
    gather = forward + forward * 3
    (read,), _ = access_regions(BufferStore(B, BufferLoad(A, (gather,)), (forward,)))
    assert str(read) == "A[0:64]"


def test_memory_of_its_own_is_no_region():
    A, C, i = decl_buffer((8,), name="A"), decl_buffer((8,), name="C"), Var("i")
    reads, writes = access_regions(Allocate(C, BufferStore(C, A[i], (i,))))
    assert [str(r) for r in reads] == ["A[i]"] and writes == ()


def test_many_gathers_take_the_whole_dimension():
    """Nobody knows which of the loads is the least; a minimum of all of them would be of no use and cost much time."""
    A, P, B = decl_buffer((16,), name="A"), decl_buffer((16, 16), "int32", name="P"), decl_buffer((16,), name="B")
    i = Var("i")
    few, many = (functools.reduce(lambda a, b: a + b, [BufferLoad(A, (P[i, k],)) for k in range(n)]) for n in (2, 12))
    reads, _ = access_regions(BufferStore(B, few, (i,)))
    assert "T.min(P[i, 0], P[i, 1])" in str(next(r for r in reads if r.buffer is A).region[0].min)
    reads, _ = access_regions(BufferStore(B, many, (i,)))
    (r,) = next(r for r in reads if r.buffer is A).region
    assert (r.min.value, r.extent.value) == (0, 16)
