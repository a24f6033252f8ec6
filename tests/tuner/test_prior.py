"""What the analytic prior prefers where it is easy to be wrong. The machine is fixed: nothing depends on where this runs."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.codegen.packing import split_packing
from tilewright.te import ops
from tilewright.tuner import MachineModel, Space, choose_default
from tilewright.tuner.program import ProgramInfo

TARGET = Target("llvm -mcpu=x86-64-v4 -num-cores=1")
MACHINE = MachineModel(64, 32, 1, 48 << 10, 2 << 20, 32 << 20)


def p(*shape, name="A"):
    return te.placeholder(shape, name=name)


def space_of(build, *inputs):
    return Space(te.create_prim_func([*inputs, build(*inputs)]), TARGET, machine=MACHINE)


def favourite(space):
    """The sketch and the decisions that the prior likes best."""
    best = []
    for sketch in space.sketches:
        rows = space.best_rows(sketch, 1)
        best.append((sketch.score(rows)[1][0], sketch.name, sketch.decisions_of(rows[0])))
    return min(best, key=lambda item: item[:2])[1:]


def seconds(space, name, **decisions):
    sketch = space.sketch(name)
    decisions.update({d: 0 for d in sketch.column_names if d.endswith("ahead") and d not in decisions})
    return sketch.score(np.array([sketch.row_of(decisions)]))[1][0]


def fused(m, n, k):
    return space_of(
        lambda a, b, c: ops.gelu(ops.add(ops.matmul(a, b), c)), p(m, k), p(k, n, name="B"), p(n, name="bias")
    )


def test_a_fused_product_keeps_its_vectors_along_the_result():
    assert favourite(fused(128, 3072, 768))[0] == "tile_matmul_v1_packed"
    assert favourite(space_of(ops.matmul, p(128, 768), p(768, 3072, name="B")))[0] == "tile_matmul_v1_packed"


def test_weights_stored_by_row_are_broadcast_and_not_packed():
    assert favourite(space_of(ops.dense, p(128, 768), p(3072, 768, name="W")))[0] == "tile_dense_v0_packed"


def test_scattered_rows_cost_more_a_page_apart():
    row = {"vectors": 2, "rows": 8, "block": 16, "outer": 0, "slice": 0, "unroll": 4}
    near, far = (space_of(ops.dense, p(128, 256), p(n, 256, name="W")) for n in (1016, 1024))
    assert seconds(far, "tile_dense_v0_packed", **row) > 1.1 * seconds(near, "tile_dense_v0_packed", **row)


def test_jumps_beyond_the_cache_cost_more_than_their_bytes():
    """One line of each row is a jump for each; three lines of each row are a third of the jumps. Measured: 575, 360 µs."""
    space = space_of(ops.matmul, p(32, 1024), p(1024, 1024, name="B"))
    few, many = ({"vectors": v, "rows": r, "block": 4, "outer": 0, "unroll": 4} for v, r in ((3, 8), (1, 16)))
    assert seconds(space, "tile_matmul_v1", **many) > 1.4 * seconds(space, "tile_matmul_v1", **few)


def test_lines_that_are_read_once_are_not_fetched_twice():
    """A broadcast operand whose rows are a page apart, each line of which one tile reads. Measured: 306 and 404 µs."""
    space = space_of(ops.matmul, p(32, 1024), p(1024, 1024, name="B"))
    once = {"vectors": 2, "rows": 14, "block": 1024, "outer": 0, "slice": 0, "unroll": 4}
    packed = {"vectors": 3, "rows": 8, "block": 4, "outer": 0, "slice": 1, "unroll": 4}
    assert seconds(space, "tile_matmul_v0_packed", **once) < seconds(space, "tile_matmul_v1_packed", **packed)


def test_rows_that_share_a_set_of_the_cache_are_at_most_its_ways():
    """Sixteen rows a page apart against twelve ways: 438 and 247 µs were measured; 265 and 237 with rows of 4000 bytes."""
    rows = {"block": 4, "outer": 0, "slice": 1, "unroll": 4}
    shared, apart = (space_of(ops.matmul, p(96, k), p(k, 256, name="B")) for k in (1024, 1000))

    def of(space, **tile):
        return seconds(space, "tile_matmul_v1_packed", **rows, **tile)

    for space, factor in ((shared, 1.4), (apart, 1.0)):
        assert of(space, vectors=1, rows=16) > factor * of(space, vectors=2, rows=12)
    assert of(apart, vectors=1, rows=16) < 1.3 * of(apart, vectors=2, rows=12)


def test_sums_of_rows_a_page_apart_take_few_rows_at_a_time():
    (row,) = [favourite(space_of(lambda x: ops.sum(x, axis=1), p(256, 4096)))[1]]
    assert row["rows"] <= 8


def test_what_comes_from_beyond_the_cache_is_fetched_ahead():
    """The rows of a large product, a tile at a time; the panels of large weights; nothing where all of it is near."""
    large = favourite(space_of(ops.matmul, p(1024, 1024), p(1024, 1024, name="B")))[1]
    assert large["slice"] > 0 and large["ahead"] == 1
    few = space_of(
        lambda x, w: ops.conv2d(x, w, padding=1, layout="NHWC"), p(1, 7, 7, 512), p(3, 3, 512, 512, name="W")
    )
    (packed,) = [s for s in few.sketches if s.name.endswith("_v3_packed")]
    row = packed.decisions_of(few.best_rows(packed, 1)[0])
    assert row["1.outer"] == row["1.ahead"] == 1
    for space in (
        space_of(ops.matmul, p(512, 512), p(512, 512, name="B")),
        space_of(lambda x, w: ops.conv2d(x, w, padding=1, layout="NHWC"), p(1, 56, 56, 64), p(3, 3, 64, 64, name="W")),
    ):
        assert not any("ahead" in column for sketch in space.sketches for column in sketch.column_names)


def test_unrolled_windows_keep_their_broadcasts_in_registers():
    space = space_of(lambda x, w: ops.conv2d(x, w, padding=1), p(1, 64, 56, 56), p(64, 64, 3, 3, name="W"))
    name = "map_pad_temp+tile_conv2d_nchw_v1_packed"

    def of(rows, unroll):
        tile = {"1.vectors": 2, "1.rows": rows, "1.block": 4, "1.outer": 0, "1.unroll": unroll}
        return seconds(space, name, **{"0.vectors": 4, **tile})

    assert of(14, 3) > 1.3 * of(14, 1)
    assert of(8, 3) < of(8, 1)


def test_a_padded_copy_that_is_read_few_times_becomes_masks():
    for layout, weights in (("NCHW", (64, 1, 3, 3)), ("NHWC", (3, 3, 64, 1))):
        shape = (1, 64, 56, 56) if layout == "NCHW" else (1, 56, 56, 64)
        space = space_of(
            lambda x, w, layout=layout: ops.depthwise_conv2d(x, w, padding=1, layout=layout), p(*shape),
            p(*weights, name="W"),
        )  # fmt: skip
        assert favourite(space)[0].endswith("_masked"), layout


def test_transposed_operands_go_through_scratch_memory():
    def transposed(n):
        return space_of(lambda x, y: ops.add(ops.transpose(x), y), p(n, n), p(n, n, name="B"))

    for n in (520, 2000, 2048):
        assert favourite(transposed(n))[1]["staged"] == 1


def test_a_plain_transpose_goes_through_registers():
    for n in (512, 1024, 2000, 2048):
        assert favourite(space_of(ops.transpose, p(n, n)))[1]["staged"] == 0


def test_functions_count_what_they_are_lowered_to_and_conditions_nothing():
    def operations(build):
        (block,) = ProgramInfo(te.create_prim_func([x := p(8, 8), build(x)])).blocks
        return block.operations

    assert operations(ops.relu) <= 2
    assert operations(ops.gelu) > operations(ops.exp) > 12
    assert operations(lambda x: ops.pad(x, (1, 1))) <= 2


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("op", [ops.dense, ops.matmul])
def test_weights_that_may_be_packed_ahead_are(op, rows):
    """Packing them takes no time of the call, so even a single row gets panels, as wide as its tiles."""
    a = te.placeholder((rows, 512), "float32", "A")
    w = te.placeholder((512, 512), "float32", "W")
    func = te.create_prim_func([a, w, op(a, w)])
    free = func.with_attr("layout_free_buffers", [1])
    packs = [split_packing(choose_default(Space(f, TARGET)).schedule.func).packs for f in (func, free)]
    assert list(packs[0]) == [] and list(packs[1]) == [1]


def conv(channels, size, out, kernel, stride, padding):
    x, w = p(1, channels, size, size, name="X"), p(out, channels, kernel, kernel, name="W")
    return space_of(lambda a, b: ops.conv2d(a, b, stride, padding), x, w)


def test_rows_of_one_set_are_not_fetched_far_ahead():
    """Eight steps a page apart and the next eight are more lines than a set holds: 1761 and 14505 µs were measured. With
    rows of 4400 bytes they are not, and longer bodies are faster: 1922 and 2252 µs."""
    row = {"vectors": 2, "rows": 14, "outer": 0, "slice": 0}
    shared, apart = (space_of(ops.matmul, p(32, 4096), p(4096, n, name="B")) for n in (1024, 1100))
    name = "tile_matmul_v0_packed"
    four, eight = (seconds(shared, name, block=1024, unroll=u, **row) for u in (4, 8))
    assert four < 0.8 * eight
    four, eight = (seconds(apart, name, block=1100, unroll=u, **row) for u in (4, 8))
    assert eight < four


def test_tiles_that_are_transposed_in_registers_are_stored_quickly():
    """Channels in the lanes, places in the rows: 999 and 1231 µs were measured."""
    assert favourite(conv(3, 224, 64, 7, 2, 3))[0].endswith("v1_packed")


def test_the_rows_of_a_short_window_are_as_many_as_registers_hold():
    """All nine steps are written out, what they read is kept. Measured for 7 and 14 rows: 12.4 and 17.7 µs."""
    x, w = p(1, 512, 14, 14, name="X"), p(512, 1, 3, 3, name="W")
    name, row = favourite(space_of(lambda a, b: ops.depthwise_conv2d(a, b, 1, 1), x, w))
    assert name.endswith("masked") and row["unroll"] == 9 and 4 < row["rows"] < 9


def test_loads_of_a_body_in_webassembly_wait_in_its_sixteen_registers():
    """Engines run the loads of a body before its arithmetic. Measured: 42 loads 45 µs, 7 loads 28, 9 without sums 23."""
    space = Space(
        te.create_prim_func([x := p(1, 64, 28, 28), w := p(64, 1, 3, 3, name="W"), ops.depthwise_conv2d(x, w, 1, 1)]),
        Target("llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128"),
    )
    name, best = favourite(space)
    sums = best["1.rows"] * best["1.vectors"]
    assert sums * min(best["1.unroll"], 9) + sums < 16, best
    crowded = {**best, "1.rows": 14, "1.unroll": 3, "1.vectors": 1}
    assert seconds(space, name, **crowded) > 1.3 * seconds(space, name, **best)
