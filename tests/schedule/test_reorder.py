"""reorder, and the dependence test behind it."""

import itertools

import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse


def start(text, block="B"):
    sch = Schedule(parse(text), debug_mask="all")
    return sch, sch.get_loops(sch.get_block(block))


def refused(words, step):
    with pytest.raises(ScheduleError) as info:
        step()
    assert words in str(info.value)
    return str(info.value)


def test_reorder_keeps_the_places_of_others(same):
    sch, (i, j, k, m) = start("""
@T.prim_func
def main(B: T.Buffer((2, 3, 4, 5), "float32")):
    for i, j, k, m in T.grid(2, 3, 4, 5):
        with T.block("B"):
            a, b, c, d = T.axis.remap("SSSS", [i, j, k, m])
            B[a, b, c, d] = T.float32(2)
""")
    sch.reorder(m, i)
    assert sch.get_loops("B") == [m, j, k, i]
    sch.reorder(k, j, m)
    assert sch.get_loops("B") == [k, j, m, i]
    sch.reorder(j)
    assert sch.get_loops("B") == [k, j, m, i]


def test_reorder_all_orders_of_a_matmul(matmul, agree, replays):
    func = matmul(5, 4, 3)
    for order in itertools.permutations(range(3)):
        sch = Schedule(func)
        loops = sch.get_loops("C")
        sch.reorder(*[loops[n] for n in order])
        agree(func, sch.func)
        replays(sch, func)


@pytest.mark.parametrize("sizes", [(1, 7, 13), (13, 16, 17), (17, 1, 1)])
def test_reorder_tiles(matmul, agree, sizes):
    func = matmul(*sizes)
    sch = Schedule(func, debug_mask="all")
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 8])
    k0, k1 = sch.split(k, [None, 3])
    sch.reorder(j0, k0, i0, k1, i1, j1)
    agree(func, sch.func)
    sch.reorder(k1, k0)
    agree(func, sch.func)


def test_reorder_refuses_what_is_no_nest(chain):
    sch = Schedule(chain())
    (a, b), (c, _) = sch.get_loops("B"), sch.get_loops("C")
    refused("loop i is given twice", lambda: sch.reorder(a, b, a))
    refused("loop i is not above loop j", lambda: sch.reorder(b, c))
    before = sch.func
    sch.reorder()
    assert sch.func is before


def test_reorder_refuses_statements_in_between():
    sch, (i, j) = start("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8, 8), "float32")):
    for i in range(8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi] = T.float32(1)
        for j in range(8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi]
""")
    text = refused("between loop i and loop j stand other statements (SeqStmt)", lambda: sch.reorder(j, i))
    assert "hint: reorder works on loops nested directly" in text


def test_reorder_refuses_axes_of_other_kinds():
    sch, (i, j) = start("""
@T.prim_func
def main(B: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            vj = T.axis.scan(8, j)
            B[vi, vj] = T.float32(1)
""")
    refused("axis vj of block 'B' is scan; here axes are reduce or spatial", lambda: sch.reorder(j, i))


def test_reorder_refuses_bindings_with_holes():
    sch, (i, _, _, m) = start("""
@T.prim_func
def main(A: T.Buffer((16, 16, 16, 16), "float32"), B: T.Buffer((16, 16, 16, 16), "float32")):
    for i, j, k, m in T.grid(16, 16, 16, 2):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            vm = T.axis.spatial(16, m * 8)
            B[vi, vj, vk, vm] = A[vi, vj, vk, vm] * T.float32(2)
""")
    refused("axis vm of block 'B' is bound to m * 8, which only takes every 8th value", lambda: sch.reorder(m, i))


SKEWED = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    B = T.alloc_buffer((8, 8))
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.writes(B[vi, vj])
            T.reads(A[vi, vj])
            B[vi, vj] = A[vi, vj] * T.float32(2)
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(B[vi - 1, vj + 1])
            T.writes(C[vi, vj])
            C[vi, vj] = T.if_then_else(vi >= 1 and vj < 7, B[vi - 1, vj + 1], T.float32(0))
"""


def test_reorder_refuses_a_dependence_that_would_turn_round():
    """C reads what B wrote one row up and one column on: right in row order, not yet there in column order."""
    sch, (i, j) = start(SKEWED)
    text = refused("iterations of i, j share elements of buffer B", lambda: sch.reorder(j, i))
    assert "hint: keep i, j in this order" in text


def test_reorder_accepts_a_dependence_that_stays(agree):
    """With B[vi - 1, vj] the read is one row up in either order."""
    func = parse(SKEWED.replace("vj + 1", "vj").replace(" and vj < 7", ""))
    sch = Schedule(func, debug_mask="all")
    i, j = sch.get_loops("B")
    sch.reorder(j, i)
    agree(func, sch.func)


def test_reorder_accepts_scratch_that_is_filled_anew(agree):
    """Each turn fills the row of B that it reads: the order of turns does not matter."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 6, 8), "float32"), C: T.Buffer((4, 6, 8), "float32")):
    B = T.alloc_buffer((8,))
    for i, j in T.grid(4, 6):
        for k in range(8):
            with T.block("B"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                T.reads(A[vi, vj, vk])
                T.writes(B[vk])
                B[vk] = A[vi, vj, vk] * T.float32(2)
        for k in range(8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                T.reads(B[7 - vk])
                T.writes(C[vi, vj, vk])
                C[vi, vj, vk] = B[7 - vk]
""")
    sch = Schedule(func)
    i, j, _ = sch.get_loops("C")
    sch.reorder(j, i)
    agree(func, sch.func)
    sch.parallel(j)
    text = refused("they cannot be the lanes of vectors", lambda: sch.vectorize(i))
    assert "B[k] is written" in text or "share elements of buffer B" in text


def test_reorder_block_iter_var(matmul, agree, replays):
    func = matmul(4, 3, 2)
    sch = Schedule(func, debug_mask="all")
    sch.reorder_block_iter_var("C", [2, 0, 1])
    assert [axis.var.name for axis in sch.get(sch.get_block("C")).iter_vars] == ["v_k", "v_i", "v_j"]
    agree(func, sch.func)
    replays(sch, func)
    refused("new_order [0, 1] is not a permutation of the 3 axes", lambda: sch.reorder_block_iter_var("C", [0, 1]))


HORNER = """
@T.prim_func
def main(A: T.Buffer((4, 3, 5), "float32"), B: T.Buffer((4,), "float32")):
    for i, k, m in T.grid(4, 3, 5):
        with T.block("B"):
            vi, vk, vm = T.axis.remap("SRR", [i, k, m])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] * T.float32(2) + A[vi, vk, vm]
"""


def test_reorder_refuses_an_accumulation_that_is_no_reduction(agree):
    """The axes are said to be reduce axes, but the order of the terms matters."""
    sch, (i, k, m) = start(HORNER)
    refused("block 'B' is not a known reduction, so the order of its iterations matters", lambda: sch.reorder(m, k))
    sch.reorder(k, m, i)  # the terms of each element stay in order
    agree(parse(HORNER), sch.func)
    for text in ("B[vi] + A[vi, vk, vm]", "T.max(A[vi, vk, vm], B[vi])"):
        func = parse(HORNER.replace("B[vi] * T.float32(2) + A[vi, vk, vm]", text))
        sch = Schedule(func)
        _, k, m = sch.get_loops("B")
        sch.reorder(m, k)
        agree(func, sch.func)


def test_scratch_that_accumulates_across_turns_is_refused():
    """A copy of B per turn of i would forget what the turns before have added."""
    sch, (_, i, _) = start("""
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), C: T.Buffer((3, 8), "float32")):
    B = T.alloc_buffer((8,))
    for k in range(4):
        for i in range(3):
            for j in range(8):
                with T.block("B"):
                    vk = T.axis.reduce(4, k)
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[vk, vj])
                    T.writes(B[vj])
                    with T.init():
                        B[vj] = T.float32(0)
                    B[vj] = B[vj] + A[vk, vj]
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(B[vj])
                    T.writes(C[vi, vj])
                    C[vi, vj] = B[vj]
""")
    refused("loop k carries the reduction of block 'B'", lambda: sch.parallel(i))


def test_reorder_of_an_argmax(agree):
    A = te.placeholder((3, 4, 5), name="A")
    arg = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    k, m = te.reduce_axis((0, 4), name="k"), te.reduce_axis((0, 5), name="m")
    B, C = te.compute((3,), lambda i: arg((k * 5 + m, A[i, k, m]), axis=[k, m]), name="B")
    func = te.create_prim_func([A, B, C])
    sch = Schedule(func, debug_mask="all")
    block = sch.get_child_blocks("root")[0]
    i, k, m = sch.get_loops(block)
    sch.reorder(k, m, i)
    agree(func, sch.func)
    sch.reorder(m, k)


def test_a_sum_whose_body_decides_keeps_its_order():
    sch, (k, j) = start(
        """
@T.prim_func
def main(A: T.Buffer((4, 5)), S: T.Buffer((1,))):
    for k, j in T.grid(4, 5):
        with T.block("S"):
            vk, vj = T.axis.remap("RR", [k, j])
            with T.init():
                S[0] = T.float32(0)
            if vk > 1:
                S[0] = S[0] * T.float32(2)
            else:
                S[0] = S[0] + A[vk, vj]
""",
        "S",
    )
    refused("block 'S' is not a known reduction", lambda: sch.reorder(j, k))


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (2, 0, 3, 1), (3, 2, 1, 0)])
@pytest.mark.parametrize(("rows", "columns", "apart"), [(24, 13, 13), (20, 13, 16), (9, 5, 5), (24, 13, 12), (9, 5, 4)])
def test_rows_that_were_split_unevenly_and_lie_in_one_axis(rows, columns, apart, order, agree):
    """The guard of a split limits the number that the loops count: the rows overlap only where they are closer."""
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer(({rows}, {columns}), "float32"), B: T.Buffer(({rows * apart + columns},), "float32")):
    for i, j in T.grid({rows}, {columns}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi * {apart} + vj] = A[vi, vj] * T.float32(2)
""")
    sch = Schedule(func)
    i, j = sch.get_loops("B")
    loops = [*sch.split(i, [None, 8]), *sch.split(j, [None, 4])]
    if apart < columns:
        refused("share elements", lambda: sch.reorder(*[loops[n] for n in order]))
    else:
        sch.reorder(*[loops[n] for n in order])
        agree(func, sch.func)


@pytest.mark.parametrize("condition", ["1 <= i * 8 + j", "0 < i * 8 + j and i * 8 + j < 25", "i * 8 + j >= 3"])
def test_reorder_where_an_axis_begins_later(condition, agree, replays):
    """A condition on where an axis begins or ends leaves a box of the axes: instances may change places."""
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((4, 31), "float32"), B: T.Buffer((4, 31), "float32")):
    for i, k, j in T.grid(4, 4, 8):
        with T.block("B"):
            T.where({condition})
            vk = T.axis.spatial(4, k)
            vj = T.axis.spatial(31, i * 8 + j - 1)
            B[vk, vj] = A[vk, vj] + T.float32(1)
""")
    sch = Schedule(func)
    i, k, j = sch.get_loops("B")
    sch.reorder(j, k)
    assert sch.get_loops("B") == [i, j, k]
    agree(func, sch.func)
    replays(sch, func)
