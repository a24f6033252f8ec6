"""rolling_buffer: what comes out, that it computes the same, interpreted and compiled, and what it refuses."""

import numpy as np
import pytest

from tilewright.codegen import compile
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse
from tilewright.tir.interpret import interpret


def pools(size, channels, stages, step=1):
    """``stages`` maxima over 3x3 windows in a row, the first ones ``step`` apart."""
    shapes = [size]
    for n in range(stages):
        shapes.append((shapes[-1] - 3) // (step if 0 < n < stages - 1 else 1) + 1)
    names = ["A", *[f"B{n}" for n in range(stages - 1)], "C"]
    text = f"""
@T.prim_func
def main(A: T.Buffer(({size}, {size}, {channels}), "int8"), C: T.Buffer(({shapes[-1]}, {shapes[-1]}, {channels}), "int8")):
"""
    for name, e in zip(names[1:-1], shapes[1:-1], strict=True):
        text += f'    {name} = T.alloc_buffer(({e}, {e}, {channels}), "int8")\n'
    for n in range(stages):
        a, b, e = names[n], names[n + 1], shapes[n + 1]
        s = step if 0 < n < stages - 1 else 1
        text += f"""
    for h, w, c, rh, rw in T.grid({e}, {e}, {channels}, 3, 3):
        with T.block("{b}"):
            vh, vw, vc, vrh, vrw = T.axis.remap("SSSRR", [h, w, c, rh, rw])
            with T.init():
                {b}[vh, vw, vc] = T.int8(-128)
            {b}[vh, vw, vc] = T.max({b}[vh, vw, vc], {a}[vh * {s} + vrh, vw * {s} + vrw, vc])
"""
    return parse(text)


def tile(sch, block, sizes):
    outer, inner = [], []
    for loop, size in zip(sch.get_loops(block), sizes, strict=False):
        a, b = sch.split(loop, [None, size])
        outer.append(a)
        inner.append(b)
    sch.reorder(*outer, *inner)
    return outer


def compiles_alike(before, after):
    rng = np.random.default_rng(0)
    results = []
    a = rng.integers(-9, 9, [e.value for e in before.buffers[0].shape]).astype("int8")
    for func in (before, after):
        c = np.full([e.value for e in func.buffers[-1].shape], 77, "int8")
        compile(func, "native")(a, c)
        results.append(c)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ((9, 4, 2), [11, 6, 2]),
        ((4, 9, 2), [6, 11, 2]),
        ((4, 4, 1), [6, 11, 2]),
        ((5, 5, 2), [7, 11, 2]),
        ((1, 9, 2), [3, 11, 2]),
    ],
)
def test_two_stages(agree, replays, sizes, shape):
    func = pools(13, 2, 2)
    sch = Schedule(func, debug_mask="all")
    outer = tile(sch, "C", sizes)
    sch.compute_at("B0", outer[-1])
    sch.rolling_buffer("B0", 0)
    (small,) = sch.get(sch.get_block("root")).alloc_buffers
    assert [e.value for e in small.shape] == shape
    agree(func, sch.func)
    compiles_alike(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize("order", [("B0", "B1"), ("B1", "B0")])
@pytest.mark.parametrize("step", [1, 2])
def test_three_stages(agree, replays, order, step):
    func = pools(21, 1, 3, step)
    sch = Schedule(func, debug_mask="all")
    outer = tile(sch, "C", (4, 4, 1))
    sch.compute_at("B1", outer[-1])
    sch.compute_at("B0", outer[-1])
    for block in order:
        sch.rolling_buffer(block, 0)
    agree(func, sch.func)
    compiles_alike(func, sch.func)
    replays(sch, func)


def test_what_a_rolled_stage_looks_like():
    sch = Schedule(pools(13, 2, 2), debug_mask="all")
    outer = tile(sch, "C", (4, 4, 2))
    sch.compute_at("B0", outer[-1])
    sch.rolling_buffer("B0", 0)
    text = sch.func.script()
    assert "B0 = T.alloc_buffer((6, 11, 2)" in text
    assert "vh = T.axis.opaque(11, h_0 * 4 + ax0)" in text and "vw = T.axis.spatial(11, w_0 * 4 + ax1)" in text
    assert "(h_0 < 1 or 2 <= ax0) and (w_0 < 1 or 2 <= ax1)" in text
    assert "B0[vh % 6, vw, vc]" in text and "B0[(vh + vrh) % 6, vw + vrw, vc]" in text
    assert "vh = T.axis.opaque(9, h_0 * 4 + h_1)" in text


UPSCALE = """
@T.prim_func
def main(A: T.Buffer((16,), "int8"), C: T.Buffer((24,), "int8")):
    B = T.alloc_buffer((14,), "int8")
    for o in range(5):
        for i in range(5):
            with T.block("B"):
                v = T.axis.spatial(14, o * 5 // 2 + i)
                T.where(o * 5 // 2 + i < 14)
                B[v] = A[v] + A[v + 2]
        for i in range(5):
            with T.block("C"):
                v = T.axis.spatial(24, o * 5 + i)
                T.where(o * 5 + i < 24)
                C[v] = B[v // 2] + B[v // 2 + 2]
"""


def test_tiles_that_do_not_move_evenly(agree):
    """Tiles start at 0, 2, 5, 7, 10: two elements of five come again, three at times."""
    func = parse(UPSCALE)
    sch = Schedule(func, debug_mask="all")
    sch.rolling_buffer("B", 0)
    text = sch.func.script()
    assert "B = T.alloc_buffer((5,)" in text and "T.where(o * 5 // 2 + i < 14 and (o < 1 or 2 <= i))" in text
    agree(func, sch.func)
    compiles_alike(func, sch.func)


def test_what_does_not_roll():
    sch = Schedule(pools(13, 2, 2))
    with pytest.raises(ScheduleError, match="shares no loop with the readers of B0"):
        sch.rolling_buffer("B0", 0)
    with pytest.raises(ScheduleError, match="block 'C' writes an output of its scope"):
        sch.rolling_buffer("C", 0)
    outer = tile(sch, "C", (9, 9, 1))
    sch.compute_at("B0", outer[-1])
    with pytest.raises(ScheduleError, match="no dimension of B0 has tiles that overlap"):
        sch.rolling_buffer("B0", 0)


def test_turns_that_do_not_run_in_order(agree):
    func = pools(13, 2, 2)
    sch = Schedule(func)
    outer = tile(sch, "C", (4, 9, 2))
    sch.compute_at("B0", outer[-1])
    sch.parallel(outer[0])
    with pytest.raises(ScheduleError, match="loop h_0 does not run in order"):
        sch.rolling_buffer("B0", 0)


def test_rolled_loops_stay_in_order():
    sch = Schedule(pools(13, 2, 2))
    outer = tile(sch, "C", (4, 4, 2))
    sch.compute_at("B0", outer[-1])
    sch.rolling_buffer("B0", 0)
    with pytest.raises(ScheduleError):
        sch.parallel(outer[0])
    with pytest.raises(ScheduleError):
        sch.parallel(outer[1])
    with pytest.raises(ScheduleError):
        sch.reorder(outer[1], outer[0])


def test_conditions_that_leave_elements_out():
    text = UPSCALE.replace("o * 5 // 2 + i < 14", "o * 5 // 2 + i < 14 and o % 2 == 0")
    with pytest.raises(ScheduleError, match="runs under o % 2 == 0"):
        Schedule(parse(text)).rolling_buffer("B", 0)


def test_several_writers():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((12,)), C: T.Buffer((12,))):
    B = T.alloc_buffer((14,))
    for o in range(3):
        for i in range(6):
            with T.block("B0"):
                v = T.axis.spatial(14, o * 4 + i)
                T.where(o * 4 + i < 12)
                B[v] = A[v]
        for i in range(2):
            with T.block("B1"):
                v = T.axis.spatial(2, i)
                B[v + 12] = T.float32(0)
        for i in range(4):
            with T.block("C"):
                v = T.axis.spatial(12, o * 4 + i)
                C[v] = B[v] + B[v + 2]
""")
    with pytest.raises(ScheduleError, match="buffer B is written by 'B1' too"):
        Schedule(func).rolling_buffer("B0", 0)


def test_a_turn_that_reads_what_is_not_written():
    """The first turn makes 5 rows; a copy of 10 rows has 5 unwritten ones, which a later turn would take for computed."""
    func = parse("""
@T.prim_func
def main(B: T.Buffer((8, 13)), S: T.Buffer((104,))):
    for f in range(104):
        with T.block("S"):
            v = T.axis.spatial(104, f)
            S[v] = B[v // 13, v % 13]
""")
    sch = Schedule(func)
    sch.cache_read("S", 0, "shared")
    sch.split(sch.get_loops("S")[0], [None, 8, 8])
    sch.compute_at("B_shared", sch.get_loops("S")[0])
    sch.cache_write("B_shared", 0, "shared")
    with pytest.raises(ScheduleError, match="B_shared"):
        sch.rolling_buffer("B_shared_shared", 0)


@pytest.mark.parametrize(("turns", "rolls"), [(1, True), (2, False)])
def test_a_source_that_leaves_out_what_the_first_turn_has_not_written(turns, rolls):
    """A source that writes everything in its first turn only rolls already. Any other has to write all that is read."""
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((12,)), C: T.Buffer((8,))):
    Z = T.alloc_buffer((12,))
    B = T.alloc_buffer((10,))
    for o in range(4):
        for i in range(6):
            with T.block("Z"):
                v = T.axis.spatial(12, o * 2 + i)
                T.where(o < {turns} or 4 <= i)
                Z[v] = A[v]
        for i in range(4):
            with T.block("B"):
                v = T.axis.spatial(10, o * 2 + i)
                B[v] = Z[v] + Z[v + 2]
        for i in range(2):
            with T.block("C"):
                v = T.axis.spatial(8, o * 2 + i)
                C[v] = B[v] + B[v + 2]
""")
    sch = Schedule(func)
    if not rolls:
        with pytest.raises(ScheduleError, match="Z"):
            sch.rolling_buffer("B", 0)
        return
    sch.rolling_buffer("B", 0)
    a, c = np.arange(12, dtype="float32"), np.full(8, np.nan, "float32")
    interpret(sch.func, a, c)
    np.testing.assert_array_equal(c, a[:8] + 2 * a[2:10] + a[4:12])


def test_lanes_across_what_rolls_stay_lanes():
    """The axis that rolls runs in order from now on; a vector loop along the other one is not a part of it."""
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((9, 16)), C: T.Buffer((7, 16))):
    B = T.alloc_buffer((9, 16))
    for i, j in T.grid(9, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(7, 16):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + B[vi + 2, vj]
""")
    )
    sch.compute_at("B", sch.get_loops("C")[0])
    sch.vectorize(sch.get_loops("B")[-1])
    sch.rolling_buffer("B", 0)
    a = np.arange(9 * 16, dtype="float32").reshape(9, 16)
    c = np.full((7, 16), np.nan, "float32")
    interpret(sch.func, a, c)
    np.testing.assert_array_equal(c, 2 * (a[:7] + a[2:]))
    assert "T.vectorized(16)" in sch.func.script() and "vi % 3" in sch.func.script()


def test_lanes_along_what_rolls_are_refused():
    sch = Schedule(pools(12, 4, 2))
    h0, _, _ = tile(sch, "C", [1, 10, 4])
    sch.compute_at("B0", h0)
    sch.vectorize(sch.get_loops("B0")[1])
    with pytest.raises(ScheduleError, match="is opaque|not proven|share elements"):
        sch.rolling_buffer("B0", 0)


@pytest.mark.parametrize("up", [2, 3])
@pytest.mark.parametrize("tile_size", [1, 2, 5, 6])
@pytest.mark.parametrize(("shift", "size"), [(0, 12), (1, 17)])
def test_windows_of_an_upscaling(agree, replays, up, tile_size, shift, size):
    """Tiles of two rows meet one row or two of a third as many: the buffer holds as many as any tile needs."""
    rows = (size - 1 + shift) // up + 3
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer(({rows}, 3)), C: T.Buffer(({size}, 3))):
    B = T.alloc_buffer(({rows}, 3))
    for i, j in T.grid({rows}, 3):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid({size}, 3):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[(vi + {shift}) // {up}, vj] + B[(vi + {shift}) // {up} + 2, vj]
""")
    sch = Schedule(func, debug_mask="all")
    outer, _ = sch.split(sch.get_loops("C")[0], [None, tile_size])
    sch.compute_at("B", outer)
    sch.rolling_buffer("B", 0)
    most = max((first + tile_size - 1) // up - first // up for first in range(shift, size * up, tile_size)) + 3
    (buffer,) = sch.get(sch.get_block("root")).alloc_buffers
    assert [e.value for e in buffer.shape] == [most, 3]
    agree(func, sch.func)
    replays(sch, func)
