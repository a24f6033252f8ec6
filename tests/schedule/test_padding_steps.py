"""decompose_padding, pad_einsum and pad_reduction: what comes out, that it computes the same, and what they refuse."""

import pytest

from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse

POOL = """
@T.prim_func
def main(x: T.Buffer((1, 3, 13, 13), "int8"), y: T.Buffer((1, 3, 13, 13), "int8")):
    pad = T.alloc_buffer((1, 3, 17, 17), "int8")
    for n, c, h, w in T.grid(1, 3, 17, 17):
        with T.block("pad"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            pad[vn, vc, vh, vw] = T.if_then_else(
                2 <= vh and vh < 15 and 2 <= vw and vw < 15, x[vn, vc, vh - 2, vw - 2], T.int8(1)
            )
    for n, c, h, w, rh, rw in T.grid(1, 3, 13, 13, 5, 5):
        with T.block("y"):
            vn, vc, vh, vw, vrh, vrw = T.axis.remap("SSSSRR", [n, c, h, w, rh, rw])
            with T.init():
                y[vn, vc, vh, vw] = T.int8(0)
            y[vn, vc, vh, vw] = y[vn, vc, vh, vw] + pad[vn, vc, vh + vrh, vw + vrw]
"""


def test_the_padding_of_a_whole_stage(same, agree, replays):
    func = parse(POOL)
    sch = Schedule(func, debug_mask="all")
    made = sch.decompose_padding("pad", sch.get_loops("pad")[0])
    assert made.name == "pad_pad_const"
    start, end = POOL.index("    for n, c, h, w in"), POOL.index("    for n, c, h, w, rh")
    same(
        sch.func,
        POOL[:start]
        + """
    for n, c, h, w in T.grid(1, 3, 17, 17):
        with T.block("pad_pad_const"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            T.reads()
            T.writes(pad[vn, vc, vh, vw])
            pad[vn, vc, vh, vw] = T.int8(1)
    for n, c, h, w in T.grid(1, 3, 13, 13):
        with T.block("pad"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            T.reads(x[vn, vc, vh, vw])
            T.writes(pad[vn, vc, vh + 2, vw + 2])
            pad[vn, vc, vh + 2, vw + 2] = x[vn, vc, vh, vw]
"""
        + POOL[end:],
    )
    agree(func, sch.func)
    replays(sch, func)


def _tiled(factor, depth):
    sch = Schedule(parse(POOL), debug_mask="all")
    n, c, h, w, rh, rw = sch.get_loops("y")
    ho, hi = sch.split(h, [None, factor])
    wo, wi = sch.split(w, [None, factor])
    sch.reorder(n, ho, wo, c, hi, wi, rh, rw)
    sch.compute_at("pad", wo)
    sch.decompose_padding("pad", sch.get_loops("pad")[depth])
    return sch


@pytest.mark.parametrize("depth", range(6))
@pytest.mark.parametrize("factor", [13, 5])
def test_tiles(agree, replays, factor, depth):
    func = parse(POOL)
    if depth == 1 or depth == 2:  # loops with the consumer inside: the constant comes before all of it
        sch = _tiled(factor, depth)
        fill = sch.get_loops("pad_pad_const")
        assert len(fill) == 6 and sch.get_loops("y")[0] not in fill[depth:]
    sch = _tiled(factor, depth)
    agree(func, sch.func)
    replays(sch, func)


def test_a_tile_keeps_its_loops_and_gets_a_condition():
    text = _tiled(5, 3).func.script()
    assert "v_h = " not in text
    assert "T.where(i" not in text
    inner = text[text.index('with T.block("pad"):') :].split("with T.block")[1]
    assert "T.axis.spatial(13, h_0 * 5 + ax1 - 2)" in inner
    assert "T.where(2 <= h_0 * 5 + ax1 and h_0 * 5 + ax1 < 15 and 2 <= w_0 * 5 + ax2 and w_0 * 5 + ax2 < 15" in inner


def _pad(condition, value="A[vi - 2]", other="T.float32(0)", extent=20, more=""):
    return parse(f"""
@T.prim_func
def main(A: T.Buffer((16,)), s: T.float32, B: T.Buffer(({extent},))):
    for i in range({extent}):
        with T.block("B"):
            vi = T.axis.spatial({extent}, i)
            B[vi] = T.if_then_else({condition}, {value}, {other})
{more}""")


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (_pad("0 <= vi and vi < 20", "A[vi // 2]"), "never pads"),
        (_pad("2 <= vi and vi < 18", other="s"), "pads with s, which is not a constant"),
        (_pad("vi % 2 == 0", "A[vi // 2]"), "does not bound one of its axes by a constant"),
        (_pad("vi < 0", "A[vi]"), "axis vi of block 'B' has nothing inside the padding"),
        (_pad("2 * vi < 8", "A[vi]"), "does not bound one of its axes"),
    ],
)
def test_what_is_no_padding(func, words):
    sch = Schedule(func)
    with pytest.raises(ScheduleError) as info:
        sch.decompose_padding("B", sch.get_loops("B")[0])
    assert words in str(info.value) and "^^^" in str(info.value)
    assert not sch.can_decompose_padding("B", sch.get_loops("B")[0])


def test_a_plain_store_is_no_padding(chain):
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="which is not an if_then_else"):
        sch.decompose_padding("B", sch.get_loops("B")[0])
    with pytest.raises(ScheduleError, match="loop i is not around block 'B'"):
        sch.decompose_padding("B", sch.get_loops("C")[0])


def test_nobody_may_look_at_the_constant():
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((16,)), B: T.Buffer((20,)), C: T.Buffer((20,))):
    for i in range(20):
        with T.block("C"):
            vi = T.axis.spatial(20, i)
            C[vi] = B[19 - vi]
        with T.block("B"):
            vi = T.axis.spatial(20, i)
            B[vi] = T.if_then_else(vi < 16, A[vi], T.float32(0))
""")
    )
    with pytest.raises(ScheduleError, match="block 'C' under loop i reads B"):
        sch.decompose_padding("B", sch.get_loops("B")[0])


# -- pad_einsum ------------------------------------------------------------------------------------------------------------

SYMBOLIC = """
@T.prim_func
def main(a: T.handle, b: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (16, 8))
    B = T.match_buffer(b, (n, 8))
    C = T.match_buffer(c, (16, n))
    for i, j, k in T.grid(16, n, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]
"""


def test_a_symbolic_extent(same, agree, replays):
    func = parse(SYMBOLIC)
    sch = Schedule(func, debug_mask="all")
    sch.pad_einsum("C", [4, 4, 4])
    same(
        sch.func,
        """
@T.prim_func
def main(a: T.handle, b: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (16, 8))
    B = T.match_buffer(b, (n, 8))
    C = T.match_buffer(c, (16, n))
    B_pad = T.alloc_buffer(((n + 3) // 4 * 4, 8))
    C_pad = T.alloc_buffer((16, (n + 3) // 4 * 4))
    for i0, i1 in T.grid((n + 3) // 4 * 4, 8):
        with T.block("B_pad"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            B_pad[v0, v1] = T.if_then_else(v0 < n, B[v0, v1], T.float32(0))
    for i, j, k in T.grid(16, (n + 3) // 4 * 4, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B_pad[vj, vk])
            T.writes(C_pad[vi, vj])
            with T.init():
                C_pad[vi, vj] = T.float32(0)
            C_pad[vi, vj] = C_pad[vi, vj] + A[vi, vk] * B_pad[vj, vk]
    for i0, i1 in T.grid(16, n):
        with T.block("C_pad"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            C[v0, v1] = C_pad[v0, v1]
""",
    )
    for n in (1, 7, 13, 16):
        agree(func, sch.func, n=n)
    replays(sch, func)


@pytest.mark.parametrize("padding", [[8, 8, 8], [1, 16, 1], [1, 1, 16], [4, 1, 2], [16, 32, 3]])
def test_matmul(matmul, agree, replays, padding):
    func = matmul(13, 17, 7)
    sch = Schedule(func, debug_mask="all")
    sch.pad_einsum("C", padding)
    extents = [sch.get(v).extent.value for v in sch.get_loops("C")]
    assert extents == [-(-e // p) * p for e, p in zip((13, 17, 7), padding, strict=True)]
    agree(func, sch.func)
    replays(sch, func)


def test_padding_that_fits_changes_nothing(matmul):
    sch = Schedule(matmul(16, 8, 4))
    func = sch.func
    sch.pad_einsum("C", [4, 4, 4])
    assert sch.func is func


@pytest.mark.parametrize("padding", [(1, 8, 1, 4), (1, 1, 1, 4), (1, 4, 1, 1)], ids=str)
def test_windows_along_other_axes(agree, replays, padding):
    """A convolution pads its channels: the axes that address places together stay as they are."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((11, 3), "int32"), W: T.Buffer((3, 3, 5), "int32"), C: T.Buffer((5, 5), "int32")):
    for y, o, r, k in T.grid(5, 5, 3, 3):
        with T.block("C"):
            vy, vo, vr, vk = T.axis.remap("SSRR", [y, o, r, k])
            with T.init():
                C[vy, vo] = 0
            C[vy, vo] = C[vy, vo] + A[vy * 2 + vr, vk] * W[vr, vk, vo]
""")
    sch = Schedule(func, debug_mask="all")
    sch.pad_einsum("C", padding)
    assert [sch.get(v).extent.value for v in sch.get_loops("C")] == [5, -(-5 // padding[1]) * padding[1], 3, -(-3 // padding[3]) * padding[3]]  # fmt: skip
    agree(func, sch.func)
    replays(sch, func)
    with pytest.raises(ScheduleError, match="an axis that is padded has to be an index by itself"):
        Schedule(func).pad_einsum("C", [4, 1, 1, 1])


def _reduction(start, step):
    return parse(f"""
@T.prim_func
def main(A: T.Buffer((13, 7)), s: T.Buffer((13,)), B: T.Buffer((13,))):
    for i, k in T.grid(13, 7):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32({start})
            B[vi] = {step}
""")


@pytest.mark.parametrize(
    ("func", "padding", "words"),
    [
        (_reduction(0, "B[vi] + A[vi, vk]"), [4], "not a list of 2 positive numbers"),
        (_reduction(0, "B[vi] + A[vi, vk]"), [4, 0], "not a list of 2 positive numbers"),
        (_reduction(-1e30, "T.max(B[vi], A[vi, vk])"), [1, 4], "the block is not a sum over it"),
        (_reduction(0, "B[vi] + A[vi, vk] * s[vi]"), [1, 4], "is not known to be zero"),
        (_reduction(0, "B[vi] + T.exp(A[vi, vk])"), [1, 4], "is not known to be zero"),
        (
            _reduction(0, "B[vi] + A[vi, vk] + A[vi, 6 - vk]"),
            [1, 4],
            "an axis that is padded has to be an index by itself",
        ),
    ],
)
def test_what_zeros_would_change(func, padding, words):
    with pytest.raises(ScheduleError) as info:
        Schedule(func).pad_einsum("B", padding)
    assert words in str(info.value)


@pytest.mark.parametrize(
    ("declared", "read"), [("A[0, vk]", "A[vi, vk]"), ("A[vi, 0]", "A[vi, vk]"), ("A[vi, vk]", "A[vi, 0]")]
)
def test_an_element_that_is_not_the_declared_one_is_no_contraction(declared, read):
    text = _reduction(0, f"B[vi] + {read}").script()
    reads = next(line for line in text.splitlines() if "T.reads" in line)
    func = parse(text.replace(reads.strip(), f"T.reads({declared})"))
    with pytest.raises(ScheduleError, match="in more than one way"):
        Schedule(func).pad_einsum("B", [4, 1])


def test_an_axis_that_only_repeats():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((13, 7)), B: T.Buffer((13,))):
    for i, k, r in T.grid(13, 7, 1):
        with T.block("B"):
            vi, vk, vr = T.axis.remap("SRS", [i, k, r])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
""")
    with pytest.raises(ScheduleError, match="axis vr of block 'B' does not address B"):
        Schedule(func).pad_einsum("B", [1, 1, 2])


def test_a_spatial_axis_pads_whatever_is_reduced(agree):
    func = _reduction(-1e30, "T.max(B[vi], A[vi, vk])")
    sch = Schedule(func)
    sch.pad_einsum("B", [8, 1])
    agree(func, sch.func)


def test_a_block_in_a_block_writes_a_part():
    """The axis of the block around is a number in it."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 3)), B: T.Buffer((4, 3))):
    for i, j in T.grid(4, 3):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
""")
    sch = Schedule(func)
    sch.blockize(sch.get_loops("B")[1], preserve_unit_iters=False)
    with pytest.raises(ScheduleError, match="block 'B' writes a part of B"):
        sch.pad_einsum("B", [4])


def test_split_loops_do_not_pad(matmul):
    sch = Schedule(matmul())
    sch.split(sch.get_loops("C")[0], [None, 4])
    with pytest.raises(ScheduleError, match="not to a loop from zero"):
        sch.pad_einsum("C", [8, 1, 1])


# -- pad_reduction --------------------------------------------------------------------------------------------------


def _triangle(loops, start="0.0", step="B[vi] + A[vi, vk]"):
    return parse(f"""
@T.prim_func
def main(A: T.Buffer((13, 17)), B: T.Buffer((13,))):
    for i in range(13):
        for k in range({loops}):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32("{start}")
                B[vi] = {step}
""")


@pytest.mark.parametrize("loops", ["i", "i + 1", "i, 17", "i // 2, i + 3", "i - 5", "3, i"])
@pytest.mark.parametrize(
    ("start", "step"), [("0.0", "B[vi] + A[vi, vk]"), ("-inf", "T.max(A[vi, vk], B[vi])"), ("1.0", "B[vi] * A[vi, vk]")]
)
def test_triangles_become_rectangles(agree, replays, loops, start, step):
    func = _triangle(loops, start, step)
    sch = Schedule(func, debug_mask="all")
    sch.pad_reduction("B")
    assert all(type(sch.get(loop).extent).__name__ == "IntImm" for loop in sch.get_loops("B"))
    agree(func, sch.func)
    replays(sch, func)
    again = sch.func
    sch.pad_reduction("B")  # it is a rectangle
    assert sch.func is again


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (_triangle("i", "2.0"), "is not known to keep its value"),
        (_triangle("i", "0.0", "A[vi, vk] - B[vi]"), "is not known to keep its value"),
        (_triangle("T.int32(A[i, 0])"), "has no bounds that are the same"),
    ],
)
def test_what_is_no_rectangle(func, words):
    with pytest.raises(ScheduleError, match=words):
        Schedule(func).pad_reduction("B")


def test_rectangles_come_before_splits(matmul):
    sch = Schedule(_triangle("i"))
    sch.split(sch.get_loops("B")[0], [None, 4])
    with pytest.raises(ScheduleError, match="not its loops one to one"):
        sch.pad_reduction("B")


def test_a_triangle_of_symbolic_size_becomes_a_square():
    func = parse("""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, n))
    B = T.match_buffer(b, (n,))
    for i in range(n):
        for k in range(i, n):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
""")
    sch = Schedule(func)
    sch.pad_reduction("B")
    assert "for i, k in T.grid(n, n):" in sch.func.script() and "T.if_then_else(vk >= vi" in sch.func.script()
