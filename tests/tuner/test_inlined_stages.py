"""Which stages are inlined before the rules are asked: not what would be computed, or written out, again and again."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.tir.expr import Var
from tilewright.tir.interpret import interpret
from tilewright.tuner import Space, default_schedule
from tilewright.tuner.program import ProgramInfo
from tilewright.tuner.rules.fused_stages import TileSpan

WIDE = Target("llvm -mcpu=x86-64-v4 -num-cores=1")


def gathers(depth):
    """Stages that read the one before at its own values: the expression of an element more than triples with each."""
    S = A = te.placeholder((16,), "int32", name="A")
    for k in range(depth):
        S = te.compute((16,), lambda i, P=S: P[te.max(te.min(P[i], 15), 0)] + P[i], name=f"S{k}")
    return te.create_prim_func([A, S])


@pytest.mark.parametrize("depth", [3, 4, 12])
def test_gathers_of_gathers_are_not_inlined_without_end(depth):
    func = gathers(depth)
    sch = default_schedule(func, WIDE)
    loads = max(text.count("A[") + text.count("S") for text in sch.func.script().splitlines())
    assert loads < 400
    a = np.arange(16, dtype="int32")[::-1] // 3
    out, expected = np.zeros(16, "int32"), a
    interpret(sch.func, a, out)
    for _ in range(depth):
        expected = expected[np.clip(expected, 0, 15)] + expected
    np.testing.assert_array_equal(out, expected)


def test_what_reads_its_input_often_is_not_inlined_without_end():
    """Each stage reads the one before three times at one place: 3^12 reads when all are inlined."""
    x = A = te.placeholder((16,), name="A")
    for k in range(12):
        x = te.compute((16,), lambda i, x=x: x[i] * x[i] + x[i], name=f"S{k}")
    space = Space(te.create_prim_func([A, x]), WIDE)
    assert 4 <= len(space.inlined) < 11


def test_a_chain_that_reads_each_stage_once_is_inlined():
    x = A = te.placeholder((16,), name="A")
    for k in range(12):
        x = te.compute((16,), lambda i, x=x: x[i] * 0.5 + 1.0, name=f"S{k}")
    assert len(Space(te.create_prim_func([A, x]), WIDE).inlined) == 11


def concatenated(parts, size=3):
    xs = [te.placeholder((size, c), name=f"x{n}") for n, c in enumerate(parts)]
    s, b = te.placeholder((sum(parts),), name="s"), te.placeholder((sum(parts),), name="b")
    y = te.ops.relu(te.ops.add(te.ops.multiply(te.ops.concatenate(xs, 1), s), b))
    return te.create_prim_func([*xs, s, b, y])


@pytest.mark.parametrize(
    "parts", [(16, 32, 16), (64, 32, 32, 32, 32, 32), (32,) * 12, (16, 7), (1, 13, 17), (13, 16), (48, 12, 12), (16,)]
)
def test_what_follows_a_concatenation_joins_it(parts):
    func = concatenated(parts)
    assert len(Space(func, WIDE).inlined) == 3
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, [int(e) for e in func.buffer_map[p].shape]).astype("float32") for p in func.params]
    arrays[-1][:] = np.nan
    *xs, s, b, out = arrays
    interpret(default_schedule(func, WIDE).func, *arrays)
    np.testing.assert_array_equal(out, np.maximum(np.concatenate(xs, 1) * s + b, 0))


@pytest.mark.parametrize(
    ("parts", "vectors"), [((16, 32, 16), 4), ((32,) * 12, 12), ((16, 24, 24), 0), ((13, 16), 0), ((16 * 129, 16), 0)]
)
def test_parts_of_whole_vectors_are_written_out(parts, vectors):
    text = default_schedule(concatenated(parts), WIDE).func.script()
    assert [int(n) for n in re.findall(r"T.unroll\((\d+)\)", text)] == [vectors] * bool(vectors)


def stages_of(space):
    """The stages that each variant stores."""
    return [
        [block for group, _ in variant.groups for block in (b.name for b in group.blocks)] for variant in space.variants
    ]


def test_products_that_only_sums_read_are_computed_where_they_are_added():
    """Harris's measure of corners: the gradients are stored; their products, and the sums of these, take no stores."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    from affine_programs import PROGRAMS

    space = Space(PROGRAMS["harris"](300, 300).func, WIDE)
    assert ["ix", "iy", "corners"] in [
        sorted(names, key=["ix", "iy", "corners"].index) for names in stages_of(space) if len(names) == 3
    ]


def test_rows_that_are_costly_are_stored_for_their_windows():
    """Each blurred row is read three times: to compute its exponentials again would take longer than to load them."""
    x = te.placeholder((66, 258), name="x")
    rows = te.compute((66, 256), lambda i, j: te.exp(x[i, j] + x[i, j + 2]), name="rows")
    out = te.compute((64, 256), lambda i, j: rows[i, j] + rows[i + 1, j] + rows[i + 2, j], name="out")
    assert all("rows" in names for names in stages_of(Space(te.create_prim_func([x, out]), WIDE)))


def test_what_stands_twice_is_one_operation():
    x = te.placeholder((64,), name="x")
    half = te.compute((64,), lambda i: x[i] * 0.5, name="half")
    out = te.compute((64,), lambda i: (half[i] + 1.0) * (half[i] + 1.0) - half[i], name="out")
    space = Space(te.create_prim_func([x, out]), WIDE)
    (block,) = space.program.blocks
    assert block.operations == 4


def test_a_row_of_the_tile_and_a_constant_row_need_all_between_them():
    i = Var("i")
    rows = TileSpan({i: 1}, 0, 2, 512).union(TileSpan({}, 3, 3, 512))
    assert rows.size({i: np.array([8.0])}, 1)[0] == 512
    assert TileSpan({i: 1}, 0, 2, 512).union(TileSpan({i: 1}, -1, 0, 512)).size({i: np.array([8.0])}, 1)[0] == 11


def test_a_long_sum_is_counted():
    x = te.placeholder((1200, 64), name="x")
    total = te.compute((64,), lambda i: sum([x[n, i] * 0.5 for n in range(1, 1200)], start=x[0, i]), name="total")
    (block,) = ProgramInfo(te.create_prim_func([x, total])).blocks
    assert block.operations == 2 * 1199


def two_turned(x, y):
    added = te.compute((9, 20), lambda i, j: x[i, j] + y[i, j], name="added")
    return te.compute((20, 9), lambda j, i: added[i, j], name="turned")


def padded_turned(x, y):
    padded = te.compute((9, 20), lambda i, j: te.if_then_else(te.all(i >= 1, i < 8), x[i - 1, j], 0.0), name="padded")
    return te.compute((20, 9), lambda j, i: padded[i, j] * 2.0, name="turned")


def sums_of_turned(x, y):
    a = te.compute((20, 9), lambda j, i: x[i, j], name="a")
    b = te.compute((20, 9), lambda j, i: y[i, j], name="b")
    return te.compute((20, 9), lambda j, i: a[j, i] * 2.0 + b[j, i], name="turned")


def row_turned(x, y):
    added = te.compute((9, 20), lambda i, j: x[i, j] + y[0, j], name="added")
    return te.compute((20, 9), lambda j, i: added[i, j], name="turned")


@pytest.mark.parametrize(
    ("made", "stored"), [(two_turned, 1), (padded_turned, 1), (sums_of_turned, 1), (row_turned, 0)]
)
def test_one_array_is_turned_in_one_stage(made, stored):
    x, y = te.placeholder((9, 20), name="x"), te.placeholder((9, 20), name="y")
    func = te.create_prim_func([x, y, made(x, y)])
    stages = len(ProgramInfo(func).blocks) - 1
    assert stages - len(Space(func, WIDE).inlined) == stored
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((9, 20)).astype(np.float32) for _ in range(2))
    out, expected = np.zeros((20, 9), np.float32), np.zeros((20, 9), np.float32)
    interpret(default_schedule(func, WIDE).func, a, b, out)
    interpret(func, a, b, expected)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("dtype", "stored"), [("float16", True), ("bfloat16", True), ("float32", False)])
def test_what_three_stages_read_of_halves_is_rounded_once(dtype, stored):
    """A norm reads its rows three times: for the mean, the variance, and the result."""
    x, s, g = [te.placeholder(shape, dtype, name=name) for shape, name in (((8, 64), "x"), ((1,), "s"), ((64,), "g"))]
    func = te.create_prim_func([x, s, g, te.ops.layer_norm(te.ops.subtract(x, s), g, name="norm")])
    assert ("T_subtract" not in Space(func, WIDE).inlined) == stored


@pytest.mark.parametrize(("rows", "arrays", "stored"), [(9, 2, True), (12, 2, True), (4, 2, False), (9, 1, False)])
def test_one_gather_takes_the_place_of_several(rows, arrays, stored):
    """A sum that is gathered whole is stored; of a part of its rows that part alone is computed."""
    x, y = te.placeholder((9, 20), name="x"), te.placeholder((9, 20), name="y")
    t = te.placeholder((rows,), "int32", name="t")
    made = te.compute((9, 20), lambda i, j: x[i, j] + (y[i, j] if arrays == 2 else 1.0), name="made")
    out = te.compute((rows, 20), lambda i, j: made[te.min(te.max(t[i], 0), 8), j], name="out")
    func = te.create_prim_func([x, y, t, out])
    assert ("made" not in Space(func, WIDE).inlined) == stored
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((9, 20)).astype(np.float32) for _ in range(2))
    at, found = rng.integers(-3, 12, rows).astype(np.int32), np.zeros((rows, 20), np.float32)
    interpret(default_schedule(func, WIDE).func, a, b, at, found)
    np.testing.assert_array_equal(found, (a + (b if arrays == 2 else np.float32(1)))[np.clip(at, 0, 8)])


@pytest.mark.parametrize("rows", [9, 5])
def test_one_gather_takes_the_place_of_several_along_one_axis(rows):
    """So is a concatenation of vectors of which more than half is gathered."""
    x, y = te.placeholder((4,), name="x"), te.placeholder((5,), name="y")
    t = te.placeholder((rows,), "int32", name="t")
    made = te.compute((9,), lambda i: te.if_then_else(i < 4, x[i], y[i - 4]), name="made")
    out = te.compute((rows,), lambda i: made[te.min(te.max(t[i], 0), 8)], name="out")
    func = te.create_prim_func([x, y, t, out])
    assert "made" not in Space(func, WIDE).inlined
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(4).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    at, found = rng.integers(-3, 12, rows).astype(np.int32), np.zeros(rows, np.float32)
    interpret(default_schedule(func, WIDE).func, a, b, at, found)
    np.testing.assert_array_equal(found, np.concatenate([a, b])[np.clip(at, 0, 8)])


@pytest.mark.parametrize("costly", [True, False])
def test_what_several_stages_read_is_stored_when_the_stages_inlined_into_it_are_costly(costly):
    """A softmax reads its rows twice. The stage in front of it is cheap, the one before that may not be."""
    x, y = te.placeholder((3, 20), name="x"), te.placeholder((3, 20), name="y")
    first = te.compute((3, 20), lambda i, j: te.exp(x[i, j]) if costly else -x[i, j], name="first")
    added = te.compute((3, 20), lambda i, j: first[i, j] + y[i, j], name="added")
    func = te.create_prim_func([x, y, te.ops.softmax(added)])
    inlined = Space(func, WIDE).inlined
    assert "first" in inlined and ("added" not in inlined) == costly
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((3, 20)).astype(np.float32) for _ in range(2))
    found = np.zeros((3, 20), np.float32)
    interpret(default_schedule(func, WIDE).func, a, b, found)
    e = np.exp(((np.exp(a) if costly else -a) + b).astype(np.float64))
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "costly", "stored"), [((12, 40), 1, True), ((128, 40), 1, False), ((12, 40), 0, False)]
)
def test_functions_are_computed_in_whole_vectors_before_they_are_turned(shape, costly, stored):
    """Rows of the transpose that hold few vectors would compute a function such as softplus in parts of vectors."""
    x = te.placeholder(shape, name="x")
    made = te.ops.softplus(x) if costly else te.ops.negative(x)
    func = te.create_prim_func([x, te.ops.transpose(made)])
    assert (len(Space(func, WIDE).inlined) == 0) == stored
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = np.zeros(shape[::-1], np.float32)
    interpret(default_schedule(func, WIDE).func, a, found)
    np.testing.assert_allclose(found, (np.logaddexp(0, a) if costly else -a).T, rtol=1e-5)


@pytest.mark.parametrize("shift", [0, 1])
def test_repeated_copies_are_inlined_where_axes_can_be_split(shift):
    """Into what reads them element by element always; into a sum, where each index is an axis of it."""
    A = te.placeholder((8, 24), name="A")
    S = te.compute((33, 24), lambda i, j: A[i % 8, j], name="S")
    T = te.compute((32, 24), lambda i, j: A[i % 8, j], name="T")
    each = te.compute((32, 24), lambda i, j: te.exp(S[i + shift, j]), name="E")
    assert Space(te.create_prim_func([A, each]), WIDE).inlined == ["S"]
    table = S if shift else T
    k = te.reduce_axis((0, 32), name="k")
    total = te.compute((24,), lambda j: te.sum(table[k + shift, j], axis=k), name="C")
    func = te.create_prim_func([A, total])
    assert Space(func, WIDE).inlined == ([] if shift else ["T"])
    a, c = np.random.default_rng(0).uniform(0, 1, (8, 24)).astype("float32"), np.zeros(24, "float32")
    interpret(default_schedule(func, WIDE).func, a, c)
    np.testing.assert_allclose(c, 4 * a.sum(0), rtol=1e-5)


@pytest.mark.parametrize(("steps", "stored"), [(8, True), (40, False)])
def test_functions_are_not_computed_in_the_lanes_of_short_running_sums(steps, stored):
    """A vector of a recurrence waits for the one before, and one of few steps is partly empty."""
    x = te.placeholder((64, steps), name="x")
    scores = te.compute((64, steps), lambda i, j: te.exp(x[i, j]), name="scores")
    space = Space(te.create_prim_func([x, te.ops.cumsum(scores, 1)]), Target("llvm -mcpu=x86-64-v4 -num-cores=1"))
    assert ("scores" not in space.inlined) == stored


def test_repeats_are_not_gathered_by_running_sums():
    x = te.placeholder((64, 64), name="x")
    repeated = te.compute((64, 192), lambda i, j: te.max(x[i, j // 3], 0.0), name="repeated")
    space = Space(te.create_prim_func([x, te.ops.cumsum(repeated, 1)]), Target("llvm -mcpu=x86-64-v4 -num-cores=1"))
    assert space.inlined == []
