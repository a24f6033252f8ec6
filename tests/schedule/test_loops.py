"""split, fuse, add_unit_loop: the text, the numbers, the trace, the refusals."""

import numpy as np
import pytest

from tilewright.schedule import Schedule, ScheduleError
from tilewright.schedule.primitives.loops import split
from tilewright.tir import parse
from tilewright.tir.analysis.tree import tree_of
from tilewright.tir.interpret import interpret

ELEMENTWISE = """
@T.prim_func
def main(A: T.Buffer((128, 128, 128), "float32"), B: T.Buffer((128, 128, 128), "float32")):
    for i, j, k in T.grid(128, 128, 128):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vi, vj, vk] = A[vi, vj, vk] * T.float32(2)
"""

SYMBOLIC = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int32()
    m = T.int32()
    A = T.match_buffer(a, (n, m))
    B = T.match_buffer(b, (n, m))
    for i, j in T.grid(n, m):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
"""


def start(text, block="B"):
    sch = Schedule(parse(text), debug_mask="all")
    return sch, sch.get_loops(sch.get_block(block))


def refused(words, step):
    with pytest.raises(ScheduleError) as info:
        step()
    assert words in str(info.value)
    return str(info.value)


# -- split ---------------------------------------------------------------------------------------------------------------


def test_split_exact(same):
    sch, (i, j, k) = start(ELEMENTWISE)
    sch.split(i, factors=[2, 1, 64])
    sch.split(j, factors=[4, 32])
    sch.split(k, factors=[16, 8])
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((128, 128, 128), "float32"), B: T.Buffer((128, 128, 128), "float32")):
    for i_0, i_1, i_2, j_0, j_1, k_0, k_1 in T.grid(2, 1, 64, 4, 32, 16, 8):
        with T.block("B"):
            vi = T.axis.spatial(128, i_0 * 64 + i_1 * 64 + i_2)
            vj = T.axis.spatial(128, j_0 * 32 + j_1)
            vk = T.axis.spatial(128, k_0 * 8 + k_1)
            B[vi, vj, vk] = A[vi, vj, vk] * T.float32(2)
""",
    )


def test_split_drops_unit_loops_when_asked(same):
    sch, (i, _, _) = start(ELEMENTWISE)
    sch.split(i, factors=[2, 1, 64], preserve_unit_iters=False)
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((128, 128, 128), "float32"), B: T.Buffer((128, 128, 128), "float32")):
    for i_0, i_1, i_2, j, k in T.grid(2, 1, 64, 128, 128):
        with T.block("B"):
            vi = T.axis.spatial(128, i_0 * 64 + i_2)
            vj, vk = T.axis.remap("SS", [j, k])
            B[vi, vj, vk] = A[vi, vj, vk] * T.float32(2)
""",
    )


def test_split_infers_the_open_factor(same):
    sch, (i, j, k) = start(ELEMENTWISE)
    sch.split(i, factors=[None, 1, 64])
    sch.split(j, factors=[2, None, 64])
    sch.split(k, factors=[2, 1, None])
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((128, 128, 128), "float32"), B: T.Buffer((128, 128, 128), "float32")):
    for i_0, i_1, i_2, j_0, j_1, j_2, k_0, k_1, k_2 in T.grid(2, 1, 64, 2, 1, 64, 2, 1, 64):
        with T.block("B"):
            vi = T.axis.spatial(128, i_0 * 64 + i_1 * 64 + i_2)
            vj = T.axis.spatial(128, j_0 * 64 + j_1 * 64 + j_2)
            vk = T.axis.spatial(128, k_0 * 64 + k_1 * 64 + k_2)
            B[vi, vj, vk] = A[vi, vj, vk] * T.float32(2)
""",
    )


def test_split_that_does_not_divide_gets_a_predicate(same):
    sch, (i, j, k) = start(ELEMENTWISE)
    sch.split(i, factors=[1000, 2, 3])
    sch.split(j, factors=[None, 129])
    sch.split(k, factors=[3, None])
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((128, 128, 128), "float32"), B: T.Buffer((128, 128, 128), "float32")):
    for i_0, i_1, i_2, j_0, j_1, k_0, k_1 in T.grid(1000, 2, 3, 1, 129, 3, 43):
        with T.block("B"):
            vi = T.axis.spatial(128, i_0 * 6 + i_1 * 3 + i_2)
            vj = T.axis.spatial(128, j_0 * 129 + j_1)
            vk = T.axis.spatial(128, k_0 * 43 + k_1)
            T.where((i_0 * 2 + i_1) * 3 + i_2 < 128 and j_0 * 129 + j_1 < 128 and k_0 * 43 + k_1 < 128)
            B[vi, vj, vk] = A[vi, vj, vk] * T.float32(2)
""",
    )


def test_split_of_symbolic_extents(same, agree):
    sch, (i, j) = start(SYMBOLIC)
    before = sch.func
    sch.split(i, factors=[None, 16])
    sch.split(j, factors=[8, None])
    same(
        sch.func,
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int32()
    m = T.int32()
    A = T.match_buffer(a, (n, m))
    B = T.match_buffer(b, (n, m))
    for i_0, i_1, j_0, j_1 in T.grid((n + 15) // 16, 16, 8, (m + 7) // 8):
        with T.block("B"):
            vi = T.axis.spatial(n, i_0 * 16 + i_1)
            vj = T.axis.spatial(m, j_0 * ((m + 7) // 8) + j_1)
            T.where(i_0 * 16 + i_1 < n and j_0 * ((m + 7) // 8) + j_1 < m)
            B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    )
    for n, m in [(1, 1), (7, 13), (16, 8), (17, 16)]:
        agree(before, sch.func, n=n, m=m)


def test_split_conveniences(matmul):
    func = matmul(13, 17, 7)
    a, b = Schedule(func), Schedule(func)
    for sch, by in ((a, {"factor": 4}), (b, {"factors": [None, 4]})):
        sch.split(sch.get_loops("C")[0], **by)
    assert str(a.func) == str(b.func)
    c, d = Schedule(func), Schedule(func)
    for sch, by in ((c, {"nparts": 4}), (d, {"factors": [4, None]})):
        sch.split(sch.get_loops("C")[0], **by)
    assert str(c.func) == str(d.func)


@pytest.mark.parametrize("extent", [1, 7, 13, 16, 17])
@pytest.mark.parametrize("factors", [[None, 4], [3, None], [None, 2, 3], [2, None, 8], [None, 17]])
def test_split_computes_the_same(matmul, agree, replays, extent, factors):
    func = matmul(extent, 5, 3)
    for loop in range(3):
        sch = Schedule(func, debug_mask="all")
        sch.split(sch.get_loops("C")[loop], factors)
        agree(func, sch.func)
        replays(sch, func)


def test_split_of_a_loop_without_blocks_guards_with_an_if(agree):
    func = parse("""
@T.prim_func
def main(B: T.Buffer((13,), "float32")):
    with T.block("all"):
        T.reads()
        T.writes(B[0:13])
        for i in range(13):
            B[i] = T.float32(2)
""")
    (loop,) = tree_of(func).loops
    after, _ = split(func, loop, [None, 4])
    assert "if i_0 * 4 + i_1 < 13:" in str(after)
    agree(func, after)


def test_split_again_and_again(matmul, agree):
    func = matmul(17, 13, 7)
    sch = Schedule(func, debug_mask="all")
    i, _, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 8])
    sch.split(i1, [None, 3])
    sch.split(i0, [2, None])
    sch.split(k, [None, 2])
    agree(func, sch.func)


def test_split_refuses():
    sch, (i, j, k) = start(ELEMENTWISE)
    before = sch.func
    refused("the factors [1, 2, 3] make 6 iterations, loop i has 128", lambda: sch.split(i, [1, 2, 3]))
    refused("factor 0 of loop i is not positive", lambda: sch.split(i, [0, None]))
    refused("factor -2 of loop i is not positive", lambda: sch.split(i, [None, -2]))
    refused("leave more than one None", lambda: sch.split(i, [None, None]))
    refused("split into no loops", lambda: sch.split(i, []))
    refused("give either factors, or factor, or nparts", lambda: sch.split(i, [2, 64], factor=3))
    refused("a predicate is needed", lambda: sch.split(i, [None, 3], disable_predication=True))
    with pytest.raises(TypeError, match="factors must be a list"):
        sch.split(i, 8)
    assert sch.func is before and len(sch.trace) == 2
    sch.split(i, [4, None])
    text = refused("loop i is not in function main", lambda: sch.split(i, [4, None]))
    assert "split, fuse and compute_at make new loops" in text and "i_0, i_1, j, k" in text
    sch.annotate(j, "pragma", 1)
    text = refused("loop j has annotations (pragma)", lambda: sch.split(j, [2, 64]))
    assert text.startswith("split: ") and "hint: unannotate it first" in text and "^^^" in text
    sch.bind(k, "threadIdx.x")
    refused("loop k is bound to threadIdx.x", lambda: sch.split(k, [2, 64]))


@pytest.mark.parametrize("factor", [2, 4, 5, 32])
def test_split_of_a_loop_that_starts_elsewhere(factor):
    """The new loops start at 0, and the start is added where the variable was used."""
    sch, (i,) = start("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in T.serial(3, 16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] + T.float32(2)
""")
    sch.split(i, [None, factor])
    values, out = np.arange(16, dtype="float32"), np.full(16, -1, "float32")
    interpret(sch.func, values, out)
    np.testing.assert_array_equal(out, np.where(np.arange(16) < 3, -1, values + 2))


def test_symbolic_factor_must_be_positive():
    sch, (i, _) = start(SYMBOLIC)
    refused("factor m of loop i is not known to be positive", lambda: sch.split(i, [None, sch.get_symbol("m")]))


# -- fuse ----------------------------------------------------------------------------------------------------------------


def test_fuse(same):
    sch, loops = start(ELEMENTWISE)
    fused = sch.fuse(*loops)
    assert fused.name == "i_j_k_fused"
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((128, 128, 128), "float32"), B: T.Buffer((128, 128, 128), "float32")):
    for f in range(2097152):
        with T.block("B"):
            vi = T.axis.spatial(128, f // 16384)
            vj = T.axis.spatial(128, f % 16384 // 128)
            vk = T.axis.spatial(128, f % 128)
            B[vi, vj, vk] = A[vi, vj, vk] * T.float32(2)
""",
    )


def test_fuse_undoes_split(same):
    sch, (i, _, _) = start(ELEMENTWISE)
    before = str(sch.func).replace("i", "x")
    sch.fuse(*sch.split(i, [4, 32]))
    assert str(sch.func).replace("i_0_i_1_fused", "i").replace("i", "x") == before


def test_fuse_symbolic(same, agree):
    sch, loops = start(SYMBOLIC)
    before = sch.func
    sch.fuse(*loops)
    same(
        sch.func,
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int32()
    m = T.int32()
    A = T.match_buffer(a, (n, m))
    B = T.match_buffer(b, (n, m))
    for f in range(n * m):
        with T.block("B"):
            vi = T.axis.spatial(n, f // m)
            vj = T.axis.spatial(m, f % m)
            B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    )
    agree(before, sch.func, n=7, m=13)


@pytest.mark.parametrize("m", [1, 7, 13, 16, 17])
@pytest.mark.parametrize("n", [1, 3, 16])
def test_fuse_computes_the_same(matmul, agree, replays, m, n):
    func = matmul(m, n, 5)
    sch = Schedule(func, debug_mask="all")
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 3])
    sch.reorder(i0, j0, i1, j1, k)
    sch.fuse(i0, j0, i1)
    sch.fuse(j1, k)
    agree(func, sch.func)
    replays(sch, func)


def test_fuse_refuses(chain):
    sch, (i, j, k) = start(ELEMENTWISE)
    refused("loop j is inside loop i; loops are given outermost first", lambda: sch.fuse(j, i))
    refused("loop k is not the only statement of loop i", lambda: sch.fuse(i, k))
    refused("given twice", lambda: sch.fuse(i, i))
    refused("needs at least one loop", lambda: sch.fuse())
    sch.annotate(j, "x", 1)
    refused("loop j has annotations (x)", lambda: sch.fuse(i, j))
    sch = Schedule(chain())
    (a, _), (b, _) = sch.get_loops("B"), sch.get_loops("C")
    refused("loop i is not inside loop i", lambda: sch.fuse(a, b))


def test_fuse_refuses_dependent_extents():
    sch, (i, j) = start("""
@T.prim_func
def main(B: T.Buffer((16, 16), "float32")):
    for i in range(16):
        for j in range(i + 1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.float32(2)
""")
    refused("the extent i + 1 of loop j depends on an outer loop", lambda: sch.fuse(i, j))
    refused("the bounds of loop j depend on loop i", lambda: sch.reorder(j, i))


# -- unit loops ----------------------------------------------------------------------------------------------------------


def test_add_unit_loop(same, chain):
    func = chain(4, 4)
    sch = Schedule(func, debug_mask="all")
    sch.add_unit_loop(sch.get_loops("B")[1])
    u = sch.add_unit_loop("C")
    assert u.name == "u" and sch.get_loops("C")[-1] is u
    assert [v.name for v in sch.get_loops("B")] == ["i", "u", "j"]
    refused("a loop cannot stand around the root block", lambda: sch.add_unit_loop("root"))


# -- annotations ---------------------------------------------------------------------------------------------------------


def test_annotate_loops_and_blocks(same, replays):
    sch, (i, _, _) = start(ELEMENTWISE)
    func = parse(ELEMENTWISE)
    sch.annotate(i, "software_pipeline", [0, 1])
    sch.annotate("B", "tag", {"a": "%x", "b": 2.5})
    sch.annotate(i, "software_pipeline", [0, 2])
    assert sch.get(i).annotations == {"software_pipeline": [0, 1]}  # the first one stays
    sch.unannotate(i, "software_pipeline")
    sch.annotate(i, "software_pipeline", [0, 2])
    assert sch.get(i).annotations == {"software_pipeline": [0, 2]}
    assert sch.get(sch.get_block("B")).annotations == {"tag": {"a": "%x", "b": 2.5}}
    replays(sch, func)
    sch.unannotate(i, "software_pipeline")
    assert sch.get(i).annotations == {}
    refused("there is no annotation 'tog' here", lambda: sch.unannotate("B", "tog"))
