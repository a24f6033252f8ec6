"""annotate_buffer_access: declared regions that say more than is accessed, and never less."""

import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse

PAIR = """
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13))):
    B = T.alloc_buffer((7, 13))
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(7, 13):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + A[vi, vj]
"""


def declared(sch, block):
    node = sch.get(sch.get_block(block))
    return [str(r) for r in (*node.reads, *node.writes)], dict(node.annotations)


def test_regions_are_replaced_and_counted(agree, replays):
    func = parse(PAIR)
    sch = Schedule(func)
    sch.annotate_buffer_access("C", 1, "read", lambda vi, vj: ((vi - 1, vi + 2), vj))
    sch.annotate_buffer_access("C", 0, "read", lambda vi, vj: ((0, 7), (0, 13)))
    sch.annotate_buffer_access("C", 0, "write", lambda vi, vj: (vi, (vj, vj + 1)))
    sch.annotate_buffer_access("C", 1, "read", lambda vi, vj: (vi, (vj - 2, vj + 1)))
    regions, annotations = declared(sch, "C")
    assert regions == ["B[0:7, 0:13]", "A[vi, vj - 2:vj - 2 + 3]", "C[vi, vj]"]
    assert {k: list(v) for k, v in annotations.items()} == {
        "explicit_read_region": [1, 0],
        "explicit_write_region": [0],
    }
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize(
    "ranges, words",
    [
        (lambda vi, vj: ((vi + 1, vi + 3), vj), r"accesses A\[vi, vj\], and it is not shown that vi lies in"),
        (lambda vi, vj: ((vi - 2, vi), vj), "it is not shown that vi lies in"),
        (lambda vi, vj: (vi, (0, 12)), r"it is not shown that vj lies in 0\.\.11"),
        (lambda vi, vj: (vi,), "1 ranges are given for buffer A of 2 dimensions"),
    ],
)
def test_regions_that_say_less_are_refused(ranges, words):
    with pytest.raises(ScheduleError, match=words):
        Schedule(parse(PAIR)).annotate_buffer_access("B", 0, "read", ranges)


def test_wrong_words_are_errors():
    with pytest.raises(ValueError, match="buf_type is 'read' or 'write', not 'reads'"):
        Schedule(parse(PAIR)).annotate_buffer_access("B", 0, "reads", lambda vi, vj: (vi, vj))
    with pytest.raises(TypeError, match="a place, or a begin and an end, not 3 values"):
        Schedule(parse(PAIR)).annotate_buffer_access("B", 0, "read", lambda vi, vj: ((vi, vi, vi), vj))
    with pytest.raises(ScheduleError, match="has no read buffer 3"):
        Schedule(parse(PAIR)).annotate_buffer_access("B", 3, "read", lambda vi, vj: (vi, vj))


def test_a_clamped_read_is_declared_by_what_it_can_reach(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((17,)), C: T.Buffer((7,))):
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = A[T.max(T.min(vi * 2 + 3, 16), 0)]
""")
    sch = Schedule(func)
    sch.annotate_buffer_access("C", 0, "read", lambda vi: ((vi * 2, vi * 2 + 5),))
    agree(func, sch.func)
    with pytest.raises(ScheduleError, match="it is not shown that"):
        sch.annotate_buffer_access("C", 0, "read", lambda vi: ((vi * 2, vi * 2 + 3),))


STEPS = {
    "cache_write": lambda s: s.cache_write("B", 0, "local"),
    "cache_read": lambda s: s.cache_read("C", 0, "local"),
    "reindex": lambda s: s.reindex("B", ("write", 0)),
    "blockize": lambda s: s.blockize(s.get_loops("B")[1]),
    "compute_at": lambda s: s.compute_at("B", s.get_loops("C")[0]),
    "compute_inline": lambda s: s.compute_inline("B"),
    "reverse_compute_inline": lambda s: s.reverse_compute_inline("C"),
    "transform_layout": lambda s: s.transform_layout("B", ("write", 0), lambda i, j: (j, i)),
    "split": lambda s: s.split(s.get_loops("B")[1], [None, 4]),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("block, kind", [("B", "write"), ("B", "read"), ("C", "read")])
def test_steps_do_not_take_the_declared_for_the_written(step, block, kind, agree):
    func = parse(PAIR)
    sch = Schedule(func)
    sch.annotate_buffer_access(block, 0, kind, lambda vi, vj: ((0, 7), (vj, vj + 2)))
    try:
        STEPS[step](sch)
    except ScheduleError:
        return
    agree(func, sch.func)


def test_ranges_may_take_any_number_of_axes(replays):
    func = parse(PAIR)
    sch = Schedule(func)
    sch.annotate_buffer_access("B", 0, "read", lambda *axes: [(v - 1, v + 1) for v in axes])
    assert declared(sch, "B")[0][0] == "A[vi - 1:vi - 1 + 2, vj - 1:vj - 1 + 2]"
    replays(sch, func)


def resized(c, d, inside, outside, dtype="float32"):
    """Each row is A at ``int(floor(float(i) * c + d))``, cut to what exists."""
    A = te.placeholder((inside,), name="A")

    def place(i):
        at = te.floor(te.cast(dtype, i) * te.const(c, dtype) + te.const(d, dtype))
        return te.max(te.min(te.cast("int32", at), inside - 1), 0)

    return te.create_prim_func([A, te.compute((outside,), lambda i: A[place(i)] * 2.0, name="C")])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "c, d, inside, outside, ranges",
    [
        (2.0, 0.0, 34, 17, lambda i: ((i * 2, i * 2 + 1),)),
        (2.0, 0.5, 34, 17, lambda i: ((i * 2, i * 2 + 1),)),
        (0.5, 0.25, 17, 34, lambda i: ((i // 2, i // 2 + 1),)),
        (1.3, -0.2, 23, 17, lambda i: ((i, i + 7),)),
        (1 / 3, 0.01, 13, 37, lambda i: ((i // 3, i // 3 + 2),)),
    ],
)
def test_a_region_of_floating_point_indices(agree, replays, dtype, c, d, inside, outside, ranges):
    func = resized(c, d, inside, outside, dtype)
    sch = Schedule(func, debug_mask="all")
    sch.annotate_buffer_access("C", 0, "read", ranges)
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize(
    "c, d, inside, outside, ranges",
    [
        (2.0, 0.5, 34, 17, lambda i: ((i * 2 + 1, i * 2 + 2),)),
        (0.1, 0.0, 7, 61, lambda i: ((i // 10, i // 10 + 1),)),  # 0.1 * 10 may round to either side of 1
        (1.3, -0.2, 23, 17, lambda i: ((i, i + 4),)),
    ],
)
def test_a_region_that_rounding_may_leave_is_refused(c, d, inside, outside, ranges):
    sch = Schedule(resized(c, d, inside, outside))
    with pytest.raises(ScheduleError, match="it is not shown that"):
        sch.annotate_buffer_access("C", 0, "read", ranges)
