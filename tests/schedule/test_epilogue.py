"""fuse_reduction_epilogue: what comes out, that it computes the same, and what it refuses."""

import pytest

from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse


def stages(
    value="temp[vi, vj] + C[vi, vj]", start="0", step="temp[vi, vj] + A[vi, vk] * B[vj, vk]", dtype="float32", more=""
):
    return parse(f"""
@T.prim_func
def main(A: T.Buffer((13, 7), "{dtype}"), B: T.Buffer((17, 7), "{dtype}"), C: T.Buffer((13, 17), "{dtype}"),
         D: T.Buffer((13, 17), "{dtype}"), E: T.Buffer((13, 17), "{dtype}")):
    temp = T.alloc_buffer((13, 17), "{dtype}")
    for i, j, k in T.grid(13, 17, 7):
        with T.block("temp"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.{dtype}({start})
            temp[vi, vj] = {step}
    for i, j in T.grid(13, 17):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = {value}
{more}""")


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("value", ["temp[vi, vj] + C[vi, vj]", "C[vi, vj] + temp[vi, vj]"])
def test_a_bias(agree, replays, dtype, value):
    func = stages(value, dtype=dtype)
    sch = Schedule(func, debug_mask="all")
    sch.fuse_reduction_epilogue("temp", "D")
    text = sch.func.script()
    assert "D[vi, vj] = C[vi, vj]" in text and "D[vi, vj] = D[vi, vj] + A[vi, vk] * B[vj, vk]" in text
    assert "T.reads(C[vi, vj], A[vi, vk], B[vj, vk])" in text and "T.writes(D[vi, vj])" in text
    assert [b.name for b in sch.get_child_blocks("root")] == ["temp"]
    agree(func, sch.func)
    replays(sch, func)


def test_a_maximum_with_a_floor(agree):
    func = stages("T.max(temp[vi, vj], T.float32(0))", "-1000", "T.max(temp[vi, vj], A[vi, vk] + B[vj, vk])")
    with pytest.raises(ScheduleError, match="not a sum, product, maximum or minimum from its start value"):
        Schedule(func).fuse_reduction_epilogue("temp", "D")
    func = stages(
        "T.max(temp[vi, vj], T.float32(0))", "-3.4028234663852886e38", "T.max(temp[vi, vj], A[vi, vk] + B[vj, vk])"
    )
    sch = Schedule(func, debug_mask="all")
    sch.fuse_reduction_epilogue("temp", "D")
    agree(func, sch.func)


def test_axes_in_another_order(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((13, 17, 7)), D: T.Buffer((17, 13))):
    temp = T.alloc_buffer((13, 17))
    for i, j, k in T.grid(13, 17, 7):
        with T.block("temp"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.float32(0)
            temp[vi, vj] = temp[vi, vj] + A[vi, vj, vk]
    for a, b in T.grid(17, 13):
        with T.block("D"):
            va, vb = T.axis.remap("SS", [a, b])
            D[va, vb] = temp[vb, va] + A[vb, va, 0]
""")
    sch = Schedule(func, debug_mask="all")
    sch.fuse_reduction_epilogue("temp", "D")
    assert "D[vj, vi] = A[vi, vj, 0]" in sch.func.script()
    agree(func, sch.func)


READER = """
    for i, j in T.grid(13, 17):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = {0}[vi, vj]
"""


@pytest.mark.parametrize(
    ("func", "words"),
    [
        # each of these would be applied in every step of the sum, or misses something
        (stages("T.max(temp[vi, vj] + C[vi, vj], T.float32(0))"), r"only temp \+ e may be done before the reduction"),
        (stages("T.min(T.max(temp[vi, vj], T.float32(-5)), T.float32(5))"), r"only temp \+ e may be done"),
        (stages("temp[vi, vj] * T.float32(2) + C[vi, vj]"), r"only temp \+ e may be done"),
        (stages("C[vi, vj] - temp[vi, vj]"), r"only temp \+ e may be done"),
        (stages("temp[vi, vj]"), r"only temp \+ e may be done"),
        (stages("temp[vi, vj] + temp[vi, vj]"), "uses temp 2 times"),
        (stages("(temp[vi, vj] + C[vi, vj]) * (temp[vi, vj] + C[vi, vj])"), "uses temp 2 times"),
        (stages("temp[12 - vi, vj] + C[vi, vj]"), "these are not axes of both, over the same domains"),
        (stages(start="1"), "not a sum, product, maximum or minimum from its start value"),
        (stages(more=READER.format("temp")), "temp is also read by 'E'"),
        (stages("temp[vi, vj] + D[vi, vj]"), "reads and writes buffer D"),
    ],
)
def test_what_would_mean_something_else(func, words):
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=words) as info:
        sch.fuse_reduction_epilogue("temp", "D")
    assert "^^^" in str(info.value) and sch.func is func


def test_readers_of_the_result_stay(agree):
    func = stages(more=READER.format("D"))
    sch = Schedule(func)
    sch.fuse_reduction_epilogue("temp", "D")
    agree(func, sch.func)


def test_a_bias_that_comes_later():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((13, 7)), D: T.Buffer((13,))):
    temp = T.alloc_buffer((13,))
    C = T.alloc_buffer((13,))
    for i, k in T.grid(13, 7):
        with T.block("temp"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.float32(0)
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(13):
        with T.block("C"):
            vi = T.axis.spatial(13, i)
            C[vi] = A[vi, 0]
    for i in range(13):
        with T.block("D"):
            vi = T.axis.spatial(13, i)
            D[vi] = temp[vi] + C[vi]
""")
    with pytest.raises(ScheduleError, match="block 'C' writes C, which block 'D' reads, not before block 'temp'"):
        Schedule(func).fuse_reduction_epilogue("temp", "D")
