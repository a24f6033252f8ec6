import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import assert_structural_equal, parse
from tilewright.tir.arith import Analyzer
from tilewright.tir.interpret import interpret
from tilewright.tir.walk import blocks_of, substitute


def test_compute_inline(chain, same, agree, replays):
    func = chain(7, 13)
    sch = Schedule(func)
    sch.compute_inline("B")
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13))):
    for i, j in T.grid(7, 13):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)
""",
    )
    agree(func, sch.func)
    replays(sch, func)


def test_compute_inline_into_several_consumers_and_reductions(agree):
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, 13), name="k")
    C = te.compute((7,), lambda i: te.sum(B[i, k], axis=k), name="C")
    D = te.compute((7, 13), lambda i, j: B[i, j] - C[i], name="D")
    func = te.create_prim_func([A, D])
    sch = Schedule(func)
    sch.compute_inline("B")
    assert not any(b.name == "B" for b in sch.get_child_blocks(sch.get_block("root")))
    agree(func, sch.func)


def test_compute_inline_of_padding_keeps_its_guard(agree):
    A = te.placeholder((7,), name="A")
    P = te.compute((9,), lambda i: te.if_then_else(te.all(i >= 1, i < 8), A[i - 1], 0.0), name="P")
    C = te.compute((7,), lambda i: P[i] + P[i + 1] + P[i + 2], name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    sch.compute_inline("P")
    agree(func, sch.func)


def test_compute_inline_of_a_dimension_of_one(agree):
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 1), lambda i, j: A[i, 0] * 2.0, name="B")
    C = te.compute((7, 13), lambda i, j: A[i, j] + B[i, 0], name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    sch.compute_inline("B")
    agree(func, sch.func)


def test_compute_inline_under_a_shared_loop(chain, agree):
    func = chain(7, 13)
    sch = Schedule(func)
    sch.compute_at("B", sch.get_loops("C")[0])
    sch.compute_inline("B")
    agree(func, sch.func)


def stages(rng, count):
    """Stages that read two earlier stages or inputs each, some at two places, shifted or turned; the last one is the output."""
    found = [te.placeholder((5, 5), name=f"x{n}") for n in range(2)]
    for n in range(count):
        a, b = (found[k] for k in rng.integers(max(0, len(found) - 4), len(found), 2))
        at = rng.integers(4)
        found.append(te.compute(
            (5, 5),
            lambda i, j, a=a, b=b, at=at: [a[i, j] + b[j, i], a[i, j] * 0.5 - b[i, 4 - j], a[i, j] + 1.0,
                                           te.if_then_else(i < 3, a[i, j], b[j, j] + a[i, 0])][at],
            name=f"s{n}",
        ))  # fmt: skip
    return te.create_prim_func([*found[:2], found[-1]])


@pytest.mark.parametrize("seed", range(6))
def test_compute_inline_of_several_blocks_is_that_of_one_after_the_other(seed, agree, replays):
    rng = np.random.default_rng(seed)
    func = stages(rng, 9)
    names = [b.name for b in Schedule(func).get_child_blocks(Schedule(func).get_block("root"))]
    names = [n for n in names[:-1] if rng.random() < 0.8] or names[:1]
    one, all_ = Schedule(func), Schedule(func)
    for name in names:
        one.compute_inline(name)
    all_.compute_inline(*rng.permutation(names).tolist())
    agree(func, all_.func)
    assert_structural_equal(one.func, all_.func)
    replays(all_, func)


def test_compute_inline_of_blocks_of_several_scopes(agree, replays):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13))):
    B = T.alloc_buffer((7, 13))
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i in range(7):
        with T.block("outer"):
            vi = T.axis.spatial(7, i)
            T.reads(B[vi, 0:13])
            T.writes(C[vi, 0:13])
            D = T.alloc_buffer((13,))
            for j in range(13):
                with T.block("D"):
                    vj = T.axis.spatial(13, j)
                    D[vj] = B[vi, vj] + T.float32(1)
            for j in range(13):
                with T.block("C"):
                    vj = T.axis.spatial(13, j)
                    C[vi, vj] = D[vj] * D[12 - vj]
""")
    for names in (("B", "D"), ("D", "B")):
        sch = Schedule(func)
        sch.compute_inline(*names)
        agree(func, sch.func)
        replays(sch, func)
        assert {b.block.name_hint for b in blocks_of(sch.func)} == {"root", "outer", "C"}


def test_compute_inline_of_several_blocks_applies_to_all_or_none():
    """What the second stage reads through the first one is overwritten before its reader."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), C: T.Buffer((7,))):
    B = T.alloc_buffer((7,))
    D = T.alloc_buffer((7,))
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(7):
        with T.block("D"):
            vi = T.axis.spatial(7, i)
            D[vi] = B[vi] + T.float32(1)
    for i in range(7):
        with T.block("over"):
            vi = T.axis.spatial(7, i)
            A[vi] = T.float32(0)
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = D[vi]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="block 'D' reads A, which block 'over' overwrites later"):
        sch.compute_inline("B", "D")
    assert sch.func is func and not sch.trace.insts
    sch.compute_inline("B")
    with pytest.raises(ScheduleError, match="overwrites later"):
        sch.compute_inline("D")


def test_compute_inline_of_all_blocks_of_a_scope_is_refused():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,))):
    B = T.alloc_buffer((7,))
    D = T.alloc_buffer((7,))
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            B[vi] = A[vi]
    for i in range(7):
        with T.block("D"):
            vi = T.axis.spatial(7, i)
            D[vi] = B[vi]
""")
    with pytest.raises(ScheduleError, match="block 'D' is the only one of its scope"):
        Schedule(func).compute_inline("B", "D")


def test_compute_inline_refuses_an_output(chain):
    with pytest.raises(ScheduleError, match="'C' writes C, an output of its scope"):
        Schedule(chain()).compute_inline("C")


def test_compute_inline_refuses_a_reduction(matmul):
    sch = Schedule(matmul())
    sch.cache_write("C", 0, "local")
    with pytest.raises(ScheduleError, match="'C' does more than store one value"):
        sch.compute_inline("C")


@pytest.mark.parametrize(
    "store, words",
    [
        ("B[vi * 2, vj]", "not known to be a box without holes"),
        ("B[vi, vi]", r"stores at B\[vi, vi\], from which its axes do not follow"),
        ("B[vi + vj, vj]", r"from which its axes do not follow \(see vi \+ vj\)"),
        ("B[vi + 1, vj]", r"reads B\[vi, vj\], and it is not shown that this lies in what block 'B' has written"),
    ],
)
def test_compute_inline_refuses_places_that_do_not_give_the_axes_or_are_not_read(store, words):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((7, 7)), C: T.Buffer((7, 7))):
    B = T.alloc_buffer((14, 14))
    for i, j in T.grid(7, 7):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            {store} = A[vi, vj]
    for i, j in T.grid(7, 7):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj]
""")
    with pytest.raises(ScheduleError, match=words):
        Schedule(func).compute_inline("B")


def test_compute_inline_of_what_nobody_reads(same):
    text = """
@T.prim_func
def main(A: T.Buffer((7,)), C: T.Buffer((7,))):
    B = T.alloc_buffer((7,))
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            B[vi] = A[vi]
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = A[vi] + T.float32(1)
"""
    sch = Schedule(parse(text))
    sch.compute_inline("B")
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((7,)), C: T.Buffer((7,))):
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = A[vi] + T.float32(1)
""",
    )
    alone = Schedule(parse(text[: text.index('    for i in range(7):\n        with T.block("C")')]))
    with pytest.raises(ScheduleError, match="'B' is the only one of its scope, which cannot be left empty"):
        alone.compute_inline("B")


def test_compute_inline_refuses_indices_of_an_outer_block():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13))):
    for i in range(7):
        with T.block("outer"):
            vo = T.axis.spatial(7, i)
            B = T.alloc_buffer((7, 13))
            for j in range(13):
                with T.block("B"):
                    vj = T.axis.spatial(13, j)
                    B[vo, vj] = A[vo, vj] * T.float32(2)
            for j in range(13):
                with T.block("C"):
                    vj = T.axis.spatial(13, j)
                    C[vo, vj] = B[vo, vj]
""")
    with pytest.raises(ScheduleError, match=r"from which its axes do not follow \(see vo\)"):
        Schedule(func).compute_inline("B")


def test_compute_inline_with_an_outer_axis_of_one_turn(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((1, 13)), C: T.Buffer((1, 13))):
    for i in range(1):
        with T.block("outer"):
            vo = T.axis.spatial(1, i)
            B = T.alloc_buffer((1, 13))
            for j in range(13):
                with T.block("B"):
                    vj = T.axis.spatial(13, j)
                    B[vo, vj] = A[vo, vj] * T.float32(2)
            for j in range(13):
                with T.block("C"):
                    vj = T.axis.spatial(13, j)
                    C[vo, vj] = B[vo, vj]
""")
    sch = Schedule(func)
    sch.compute_inline("B")
    agree(func, sch.func)


PLACES = {
    "reversed": ((13, 7), "B[12 - vj, vi]", "C[vi, vj] = B[vj, vi] - B[12 - vj, vi]"),
    "shifted": ((9, 13), "B[vi + 2, vj]", "C[vi, vj] = B[8 - vi, vj] + B[vi + 2, 12 - vj]"),
    "fused": ((91,), "B[vi * 13 + vj]", "C[vi, vj] = B[vj * 7 + vi] + B[90 - vi]"),
    "fixed": ((13, 3, 7), "B[vj, 2, 6 - vi]", "C[vi, vj] = B[vj, 2, vi] + B[12, 2, 0]"),
}


@pytest.mark.parametrize("name", PLACES)
def test_compute_inline_of_other_places_than_axes(agree, replays, name):
    shape, store, use = PLACES[name]
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13))):
    B = T.alloc_buffer({shape})
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            {store} = A[vi, vj] * T.float32(2)
    for i, j in T.grid(7, 13):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            {use}
""")
    sch = Schedule(func)
    sch.compute_inline("B")
    agree(func, sch.func)
    replays(sch, func)


def test_compute_inline_refuses_reads_that_the_block_never_computed():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((5,)), C: T.Buffer((7,))):
    B = T.alloc_buffer((7,))
    for i in range(5):
        with T.block("B"):
            vi = T.axis.spatial(5, i)
            B[vi] = A[vi]
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = T.Select(vi < 5, B[vi], T.float32(0))
""")
    with pytest.raises(ScheduleError, match="it is not shown that this lies in what block 'B' has written"):
        Schedule(func).compute_inline("B")


def test_reverse_compute_inline(chain, same, agree, replays):
    func = chain(7, 13)
    sch = Schedule(func)
    sch.reverse_compute_inline("C")
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13))):
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)
""",
    )
    agree(func, sch.func)
    replays(sch, func)


SHAPES = {
    "transpose": ((13, 7), lambda B: lambda i, j: B[j, i] + 1.0),
    "flatten": ((91,), lambda B: lambda i: B[i // 13, i % 13] + 1.0),
    "shift": ((5, 13), lambda B: lambda i, j: B[i + 2, j] + 1.0),
    "corner": ((3, 5), lambda B: lambda i, j: B[i, j] * B[i, j]),
    "row": ((13,), lambda B: lambda i: B[3, i] + 1.0),
}


@pytest.mark.parametrize("name", SHAPES)
def test_reverse_compute_inline_of_views(agree, name):
    shape, body = SHAPES[name]
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute(shape, body(B), name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    sch.reverse_compute_inline("C")
    assert [b.name for b in sch.get_child_blocks(sch.get_block("root"))] == ["B"]
    agree(func, sch.func)


def test_reverse_compute_inline_makes_axes_of_digits(same):
    A = te.placeholder((91,), name="A")
    B = te.compute((91,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((7, 13), lambda i, j: B[i * 13 + j] + 1.0, name="C")
    sch = Schedule(te.create_prim_func([A, C]))
    sch.reverse_compute_inline("C")
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((91,)), C: T.Buffer((7, 13))):
    for i in range(91):
        with T.block("B"):
            vi = T.axis.spatial(91, i)
            C[vi // 13, vi % 13] = A[vi] * T.float32(2) + T.float32(1)
""",
    )


def test_reverse_compute_inline_refuses_a_producer_with_a_condition():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), C: T.Buffer((7,))):
    B = T.alloc_buffer((7,))
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            T.where(i < 5)
            B[vi] = A[vi]
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = B[vi] + T.float32(1)
""")
    with pytest.raises(ScheduleError, match="block 'B' is not known to run on the whole domain"):
        Schedule(func).reverse_compute_inline("C")


def test_reverse_compute_inline_refuses_guarded_reads():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((9,), lambda i: te.if_then_else(te.all(i >= 1, i < 8), B[i - 1], 0.0), name="C")
    with pytest.raises(ScheduleError, match="'C' reads B under a condition"):
        Schedule(te.create_prim_func([A, C])).reverse_compute_inline("C")


def test_reverse_compute_inline_refuses_two_producers(chain):
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((7,), lambda i: A[i] + 2.0, name="C")
    D = te.compute((7,), lambda i: B[i] + C[i], name="D")
    with pytest.raises(ScheduleError, match=r"'D' has 2 producers \('B', 'C'\)"):
        Schedule(te.create_prim_func([A, D])).reverse_compute_inline("D")


def test_reverse_compute_inline_refuses_other_readers():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((7,), lambda i: B[i] + 2.0, name="C")
    D = te.compute((7,), lambda i: B[i] * C[i], name="D")
    with pytest.raises(ScheduleError, match="B is also read by 'D'"):
        Schedule(te.create_prim_func([A, D])).reverse_compute_inline("C")


def test_reverse_compute_inline_refuses_a_reduction_as_producer():
    A = te.placeholder((7, 5), name="A")
    k = te.reduce_axis((0, 5), name="k")
    B = te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((7,), lambda i: B[i] * 2.0, name="C")
    with pytest.raises(ScheduleError, match="'B' does more than store one value"):
        Schedule(te.create_prim_func([A, C])).reverse_compute_inline("C")


def test_reverse_compute_inline_refuses_several_places():
    A = te.placeholder((9,), name="A")
    B = te.compute((9,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((7,), lambda i: B[i] + B[i + 2], name="C")
    with pytest.raises(ScheduleError, match="'C' reads B at several places"):
        Schedule(te.create_prim_func([A, C])).reverse_compute_inline("C")


POINTERS = parse("""
@T.prim_func
def main(A: T.Buffer((16,)), W: T.Buffer((16,)), V: T.Buffer((16,)), D: T.Buffer((16,))):
    B = T.alloc_buffer((16,))
    C = T.alloc_buffer((16,))
    X = T.alloc_buffer((16,))
    for i in range(16):
        with T.block("X"):
            vi = T.axis.spatial(16, i)
            X[vi] = W[vi] + T.float32(1)
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            T.reads(B[vi], X[0:vi + 1], V[0:16])
            T.writes(C[vi])
            C[vi] = B[vi] + T.call_extern("float32", "dot", X.data, T.address_of(V[0]), vi)
    for i in range(16):
        with T.block("D"):
            vi = T.axis.spatial(16, i)
            D[vi] = C[15 - vi] + T.float32(1)
""")


@pytest.mark.parametrize(
    "steps, block, reads",
    [
        ([("compute_inline", "B")], "C", "T.reads(A[vi], X[0:vi + 1], V[0:16])"),
        ([("compute_inline", "B"), ("compute_inline", "C")], "D", "T.reads(A[15 - vi], X[0:16 - vi], V[0:16])"),
        ([("compute_inline", "C")], "D", "T.reads(B[15 - vi], X[0:16 - vi], V[0:16])"),
        ([("reverse_compute_inline", "D")], "C", "T.reads(B[vi], X[0:vi + 1], V[0:16])"),
    ],
)
def test_regions_that_are_reached_through_pointers_stay(replays, steps, block, reads):
    func = POINTERS if steps[0][0] == "compute_inline" else parse(POINTERS.script().replace("15 - vi", "vi"))
    sch = Schedule(func, debug_mask="all")
    for name, of in steps:
        getattr(sch, name)(of)
    assert [b.name for b in sch.get_consumers("X")] == [block]
    declared = {r.buffer.name: r for r in sch.get(sch.get_block(block)).reads}
    wanted = parse(f"""
@T.prim_func
def main(A: T.Buffer((16,)), B: T.Buffer((16,)), X: T.Buffer((16,)), V: T.Buffer((16,)), D: T.Buffer((16,))):
    for i in range(16):
        with T.block("D"):
            vi = T.axis.spatial(16, i)
            {reads}
            T.writes(D[vi])
            T.evaluate(0)
""")
    (realize,) = blocks_of(wanted.body.block.body)
    assert declared.keys() == {r.buffer.name for r in realize.block.reads}
    (mine,) = sch.get(sch.get_block(block)).iter_vars
    at = {realize.block.iter_vars[0].var: mine.var}
    for r in realize.block.reads:
        for one, other in zip(declared[r.buffer.name].region, r.region, strict=True):
            assert Analyzer().can_prove_equal(one.min, substitute(other.min, at))
            assert Analyzer().can_prove_equal(one.extent, substitute(other.extent, at))
    replays(sch, func)


def test_a_match_buffer_keeps_the_region_of_its_source(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((13,)), E: T.Buffer((13,)), C: T.Buffer((13,))):
    B = T.alloc_buffer((13,))
    X = T.alloc_buffer((13,))
    for i in range(13):
        with T.block("B"):
            vi = T.axis.spatial(13, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(13):
        with T.block("X"):
            vi = T.axis.spatial(13, i)
            X[vi] = E[vi] * T.float32(2)
    for i in range(13):
        with T.block("C"):
            vi = T.axis.spatial(13, i)
            T.reads(B[vi], X[vi])
            T.writes(C[vi])
            M = T.match_buffer(X[vi], (1,), offset_factor=1)
            C[vi] = B[vi] + M[0]
""")
    sch = Schedule(func, debug_mask="all")
    sch.compute_inline("B")
    assert [b.name for b in sch.get_consumers("X")] == ["C"]
    agree(func, sch.func)


@pytest.mark.parametrize("m", [1, 13])
@pytest.mark.parametrize(
    "shape, view",
    [
        ((7, 5), lambda B: lambda i, j: B[i, j]),
        ((5, 7), lambda B: lambda i, j: B[j, i]),
        ((35,), lambda B: lambda i: B[i // 5, i % 5]),
    ],
)
def test_reverse_compute_inline_of_a_copy_of_a_reduction(agree, replays, shape, view, m):
    A = te.placeholder((7, m), name="A")
    W = te.placeholder((m, 5), name="W")
    k = te.reduce_axis((0, m), name="k")
    B = te.compute((7, 5), lambda i, j: te.sum(A[i, k] * W[k, j], axis=k), name="B")
    func = te.create_prim_func([A, W, te.compute(shape, view(B), name="C")])
    sch = Schedule(func, debug_mask="all")
    sch.split(sch.get_loops("B")[2], [None, 4])
    sch.reverse_compute_inline("C")
    assert [b.name for b in sch.get_child_blocks(sch.get_block("root"))] == ["B"]
    assert not sch.func.body.block.alloc_buffers
    agree(func, sch.func)
    replays(sch, func)
    sch.decompose_reduction("B", sch.get_loops("B")[2])
    agree(func, sch.func)


def test_reverse_compute_inline_of_a_part_of_a_reduction(agree):
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    B = te.compute((7,), lambda i: te.max(A[i, k], axis=k), name="B")
    func = te.create_prim_func([A, te.compute((5,), lambda i: B[i + 1], name="C")])
    sch = Schedule(func, debug_mask="all")
    sch.reverse_compute_inline("C")
    agree(func, sch.func)


def test_reverse_compute_inline_under_the_loop_of_a_reduction(agree):
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    B = te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="B")
    func = te.create_prim_func([A, te.compute((7,), lambda i: B[i], name="C")])
    sch = Schedule(func, debug_mask="all")
    sch.reverse_compute_at("C", sch.get_loops("B")[0])
    sch.reverse_compute_inline("C")
    agree(func, sch.func)


@pytest.mark.parametrize(
    "store, words",
    [
        ("C[0] = B[vi]", "stores at C.0., from which its axes do not follow"),
        ("C[vi] = B[vi] + T.float32(1)", "'B' does more than store one value: it is a reduction, and block 'C' more"),
        ("C[vi] = B[vi] + C[vi]", "reads and writes buffer C"),
    ],
)
def test_reverse_compute_inline_refuses_what_is_not_a_copy_of_a_reduction(store, words):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((7, 5)), C: T.Buffer((7,))):
    B = T.alloc_buffer((7,))
    for i, k in T.grid(7, 5):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            {store}
""")
    with pytest.raises(ScheduleError, match=words):
        Schedule(func).reverse_compute_inline("C")


@pytest.mark.parametrize("n, read", [(5, "vi"), (3, "vi"), (4, "vi + 1")])
def test_reverse_compute_inline_of_a_producer_whose_condition_the_reader_implies(agree, replays, n, read):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((7,)), C: T.Buffer(({n},))):
    B = T.alloc_buffer((7,))
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            T.where(i < 5)
            B[vi] = A[vi] * T.float32(2)
    for i in range({n}):
        with T.block("C"):
            vi = T.axis.spatial({n}, i)
            C[vi] = B[{read}] + T.float32(1)
""")
    sch = Schedule(func, debug_mask="all")
    sch.reverse_compute_inline("C")
    agree(func, sch.func)
    replays(sch, func)


def test_compute_inline_refuses_expressions_beyond_all_measure():
    """Each stage reads the one before at its own values, so that an element's expression grows with the power of two."""
    S = A = te.placeholder((16,), "int32", name="A")
    for k in range(5):
        S = te.compute((16,), lambda i, P=S: P[te.max(te.min(P[i], 15), 0)] + P[i], name=f"S{k}")
    sch = Schedule(te.create_prim_func([A, S]))
    sch.compute_inline("S0")
    sch.compute_inline("S1")
    with pytest.raises(ScheduleError, match="block 'S3' would compute expressions of [0-9]+ operations, 10 now"):
        sch.compute_inline("S2")


@pytest.mark.parametrize("condition", ["M[i] == 1", "i < M[0] + 4"])
def test_a_value_that_the_condition_of_its_reader_reads(condition):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((8,))):
    M = T.alloc_buffer((8,), "int32")
    for i in range(8):
        with T.block("M"):
            vi = T.axis.spatial(8, i)
            M[vi] = T.Cast("int32", A[vi] > T.float32(0))
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            T.where({condition})
            C[vi] = A[vi] * T.float32(2)
""")
    sch = Schedule(func, debug_mask="all")
    sch.compute_inline("M")
    a, found, want = (
        np.array([1, -1, 2, 3, -4, 5, -6, 7], "float32"),
        np.full(8, 9, "float32"),
        np.full(8, 9, "float32"),
    )
    interpret(func, a, want)
    interpret(sch.func, a, found)
    assert found.tolist() == want.tolist()
