"""What a schedule may do with a `while` in a block, around blocks, and between loops; what it may do computes the same."""

import numpy as np
import pytest

from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse
from tilewright.tir.interpret import interpret

AROUND_BLOCKS = """
@T.prim_func
def main(A: T.Buffer((17,), "int32"), B: T.Buffer((17,), "int32"), N: T.Buffer((1,), "int32")):
    Y = T.alloc_buffer((17,), "int32")
    for i in range(17):
        with T.block("Y"):
            vi = T.axis.spatial(17, i)
            Y[vi] = A[vi] * 2
    while N[0] > 0:
        for i in range(17):
            with T.block("B"):
                vi = T.axis.spatial(17, i)
                B[vi] = B[vi] + Y[vi]
        for i in range(17):
            with T.block("Z"):
                vi = T.axis.spatial(17, i)
                A[vi] = B[vi] * 3
        N[0] = N[0] - 1
"""
BETWEEN_LOOPS = """
@T.prim_func
def main(A: T.Buffer((7, 17), "int32"), B: T.Buffer((7, 17), "int32"), N: T.Buffer((7,), "int32")):
    for i in range(7):
        while N[i] > 0:
            for j in range(17):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = B[vi, vj] * 2 + A[vi, vj]
            N[i] = N[i] - 1
"""
IN_A_BLOCK = """
@T.prim_func
def main(A: T.Buffer((17,), "int32"), B: T.Buffer((17,), "int32")):
    Y = T.alloc_buffer((17,), "int32")
    for i in range(17):
        with T.block("Y"):
            vi = T.axis.spatial(17, i)
            Y[vi] = A[vi] * A[vi]
            while Y[vi] > 2:
                Y[vi] = Y[vi] - 2
    for i in range(17):
        with T.block("B"):
            vi = T.axis.spatial(17, i)
            B[vi] = Y[vi]
"""
ON_SCRATCH = """
@T.prim_func
def main(A: T.Buffer((17,), "int32"), B: T.Buffer((17,), "int32")):
    Y = T.alloc_buffer((1,), "int32")
    for i in range(17):
        {condition} A[i] > 5:
            with T.block("Y"):
                v0 = T.axis.spatial(1, 0)
                vi = T.axis.spatial(17, i)
                Y[v0] = A[vi] + vi
        {after}with T.block("B"):
            vi = T.axis.spatial(17, i)
            B[vi] = Y[0]
"""
MOVING_PLACE = """
@T.prim_func
def main(B: T.Buffer((17,), "int32")):
    for i in range(17):
        with T.block("B"):
            vi = T.axis.spatial(17, i)
            at = T.alloc_buffer((1,), "int32")
            T.writes(B[0:17])
            at[0] = 0 - vi
            while at[0] + vi < 3:
                at[0] = at[0] + 1
            B[vi + at[0]] = vi
"""
NAMED_PLACE = """
@T.prim_func
def main(B: T.Buffer((17,), "int32")):
    for i in range(17):
        with T.block("B"):
            vi = T.axis.spatial(17, i)
            T.writes(B[0:17])
            at: T.int32 = 0 - vi
            B[vi + at] = vi
"""


def loop(sch, block, number=0):
    return sch.get_loops(block)[number]


def results(func):
    rng = np.random.default_rng(0)
    shapes = [[int(e) for e in b.shape] for b in func.buffers]
    arrays = [rng.integers(1, 5, shape).astype("int32") for shape in shapes]
    interpret(func, *arrays)
    return arrays


@pytest.mark.parametrize(
    "step",
    {
        "split": lambda s: s.split(loop(s, "B"), [None, 4]),
        "parallel": lambda s: s.parallel(loop(s, "B")),
        "vectorize": lambda s: s.vectorize(loop(s, "Z")),
        "merge": lambda s: s.merge(loop(s, "B"), loop(s, "Z")),
        "blockize": lambda s: s.blockize(loop(s, "B")),
        "loop_partition": lambda s: s.loop_partition(loop(s, "B"), [4, None]),
        "set_scope": lambda s: s.set_scope("Y", 0, "local"),
    }.items(),
    ids=lambda item: item[0],
)
def test_what_stays_inside_one_iteration(step):
    sch = Schedule(parse(AROUND_BLOCKS))
    want = results(sch.func)
    step[1](sch)
    for a, b in zip(want, results(sch.func), strict=True):
        np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize(
    "step",
    {
        "compute_inline": lambda s: s.compute_inline("Y"),
        "reverse_compute_inline": lambda s: s.reverse_compute_inline("B"),
        "compute_at": lambda s: s.compute_at("Y", loop(s, "B")),
        "reverse_compute_at": lambda s: s.reverse_compute_at("Z", loop(s, "B")),
        "cache_read": lambda s: s.cache_read("B", "Y", "local"),
        "cache_write": lambda s: s.cache_write("B", 0, "local"),
        "cache_inplace": lambda s: s.cache_inplace("B", 0, "local"),
        "reindex": lambda s: s.reindex("B", ("read", 0)),
        "read_at": lambda s: s.read_at(loop(s, "B"), "B", 1, "local"),
    }.items(),
    ids=lambda item: item[0],
)
def test_nothing_moves_in_a_scope_where_a_while_repeats_blocks(step):
    sch = Schedule(parse(AROUND_BLOCKS))
    with pytest.raises(ScheduleError, match=r"while N\[0\] > 0` stands around 'B', 'Z'.*what they read each time"):
        step[1](sch)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda s: s.split(loop(s, "B"), [None, 4]), r"N\[i\] would be read outside of blocks for those that are too many"),
        (lambda s: s.reorder(loop(s, "B", 1), loop(s, "B")), "between loop i and loop j stand other statements"),
        (lambda s: s.fuse(loop(s, "B"), loop(s, "B", 1)), "loop j is not the only statement of loop i"),
        (lambda s: s.blockize(loop(s, "B")), "only loops may"),
        (lambda s: s.loop_partition(loop(s, "B"), [4, None]), "an access of buffer N outside of blocks"),
    ],
    ids=["split", "reorder", "fuse", "blockize", "loop_partition"],
)  # fmt: skip
def test_a_while_between_loops_keeps_them_apart(step, reason):
    with pytest.raises(ScheduleError, match=reason):
        step(Schedule(parse(BETWEEN_LOOPS)))


@pytest.mark.parametrize("kind", ["parallel", "vectorize", "unroll"])
@pytest.mark.parametrize("number", [0, 1])
def test_independent_iterations_around_and_in_a_while(kind, number):
    sch = Schedule(parse(BETWEEN_LOOPS))
    want = results(sch.func)
    getattr(sch, kind)(loop(sch, "B", number))
    for a, b in zip(want, results(sch.func), strict=True):
        np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize(
    "step",
    {
        "reverse_compute_at": lambda s: s.reverse_compute_at("B", loop(s, "Y")),
        "cache_write": lambda s: s.cache_write("Y", 0, "local"),
        "cache_read": lambda s: s.cache_read("Y", "A", "local"),
        "transform_layout": lambda s: s.transform_layout("Y", ("write", 0), lambda i: (i // 4, i % 4), pad_value=0),
        "merge": lambda s: s.merge(loop(s, "Y"), loop(s, "B")),
        "split and parallel": lambda s: s.parallel(s.split(loop(s, "Y"), [None, 4])[0]),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_block_with_a_while_in_it_is_one_thing(step):
    sch = Schedule(parse(IN_A_BLOCK))
    want = results(sch.func)
    step[1](sch)
    for a, b in zip(want, results(sch.func), strict=True):
        np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize("inline", [lambda s: s.compute_inline("Y"), lambda s: s.reverse_compute_inline("B")])
def test_a_while_is_not_an_expression_to_inline(inline):
    with pytest.raises(ScheduleError, match="block 'Y' does more than store one value"):
        inline(Schedule(parse(IN_A_BLOCK)))


@pytest.mark.parametrize(("condition", "after"), [("if", ""), ("while", "    A[i] = 0\n        ")])
def test_scratch_that_may_not_be_written_is_shared(condition, after):
    sch = Schedule(parse(ON_SCRATCH.format(condition=condition, after=after)))
    with pytest.raises(
        ScheduleError, match=rf"'Y', which writes Y for block 'B', stands under `{condition} A\[i\] > 5`"
    ):
        sch.parallel(loop(sch, "B"))


@pytest.mark.parametrize("kind", ["parallel", "vectorize"])
@pytest.mark.parametrize("text", [MOVING_PLACE, NAMED_PLACE])
def test_places_that_differ_in_each_iteration_are_not_taken_for_one(text, kind):
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError, match="share elements of buffer B"):
        getattr(sch, kind)(loop(sch, "B"))
