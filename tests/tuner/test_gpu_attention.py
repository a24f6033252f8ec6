"""Attention by online softmax: the primitive and the rule, on the simulated GPU against NumPy in float64, what the assembler says, what is refused."""

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.schedule import Schedule, ScheduleError
from tilewright.schedule.attention_kernel import AttentionTiles, tiles_of_keys
from tilewright.schedule.primitives.online_softmax import attention_in
from tilewright.tir.expr import Not
from tilewright.tir.expr.dtype import bfloat16_from_bits, bfloat16_to_bits
from tilewright.tuner.space.search_space import Space


def attention(lead=(2,), queries=128, keys=256, depth=64, width=64, dtype="bfloat16", **options):
    q, k = (te.placeholder((*lead, n, depth), dtype, name) for n, name in ((queries, "q"), (keys, "k")))
    v = te.placeholder((*lead, keys, width), dtype, "v")
    return te.create_prim_func([q, k, v, te.ops.attention(q, k, v, **options)])


def given(func, spread=1.0):
    """Random operands, as they are stored and as numbers, and room for the result."""
    rng = np.random.default_rng(0)
    shapes = [[int(n) for n in b.shape] for b in func.buffers]
    stored = [spread * rng.standard_normal(shape).astype("float32") for shape in shapes[:3]]
    if func.buffers[0].dtype == "bfloat16":
        stored = [bfloat16_to_bits(x) for x in stored]
        return stored, [bfloat16_from_bits(x) for x in stored], np.zeros(shapes[3], "uint16")
    stored = [x.astype("float16") for x in stored]
    return stored, stored, np.zeros(shapes[3], "float16")


def expected(q, k, v, scale=None, causal=False, mask=None, safe=False, window=None):
    q, k, v = (x.astype("float64") for x in (q, k, v))
    s = q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask.astype("float64")
    if causal:
        i, j = np.indices(s.shape[-2:])
        s = np.where(j <= i + s.shape[-1] - s.shape[-2], s, -np.inf)
    if window is not None:
        i, j = np.indices(s.shape[-2:])
        s = np.where(abs(i + s.shape[-1] - s.shape[-2] - j) < window, s, -np.inf)
    with np.errstate(invalid="ignore"):  # rows that see nothing
        e = np.exp(s - s.max(-1, keepdims=True))
        out = e / e.sum(-1, keepdims=True) @ v
    return np.nan_to_num(out) if safe else out


def close(out, want):
    got = out.astype("float64") if out.dtype == "float16" else bfloat16_from_bits(out)
    step = 2**-8 if out.dtype != "float16" else 2**-11
    np.testing.assert_allclose(got, want, rtol=0, atol=2 * step * np.nanmax(abs(want)))


CASES = [
    ("one step", {"keys": 128}, (2, 128), {}),
    ("several", {"keys": 512, "dtype": "float16"}, (2, 128), {}),
    ("batch, other widths", {"lead": (2, 2), "depth": 128, "width": 64, "queries": 64}, (1, 64), {}),
    ("no heads", {"lead": (), "queries": 192, "keys": 128}, (3, 128), {}),
    ("wide values", {"width": 192, "dtype": "float16"}, (1, 64), {}),
    ("causal", {"queries": 256, "causal": True}, (2, 64), {"causal": True}),
    ("causal, large tiles", {"queries": 256, "causal": True}, (1, 128), {"causal": True}),
    ("causal, more keys", {"queries": 128, "keys": 384, "causal": True}, (2, 128), {"causal": True}),
    ("scale", {"scale": 0.5}, (2, 64), {"scale": 0.5}),
    ("negative scale", {"scale": -0.5}, (2, 64), {"scale": -0.5}),
    ("lengths that tiles do not divide", {"queries": 100, "keys": 200}, (2, 128), {}),
    ("features that panels do not divide", {"queries": 70, "depth": 80, "width": 40}, (1, 64), {}),
    (
        "causal, other lengths",
        {"queries": 100, "keys": 200, "causal": True, "dtype": "float16"},
        (1, 64),
        {"causal": True},
    ),
    ("causal, one length", {"queries": 197, "keys": 197, "causal": True}, (2, 64), {"causal": True}),
    ("queries that see nothing", {"queries": 128, "keys": 64, "causal": True}, (1, 64), {"causal": True}),
    (
        "a window that whole tiles are in",
        {"queries": 300, "keys": 500, "causal": True, "window": 180, "dtype": "float16"},
        (1, 64),
        {"causal": True, "window": 180},
    ),
    (
        "a window, and rows that see nothing",
        {"queries": 300, "keys": 100, "window": 30, "safe": True},
        (2, 64),
        {"window": 30, "safe": True},
    ),
]


@pytest.mark.parametrize(("shape", "tiles", "options"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_equal_on_the_simulated_gpu(shape, tiles, options):
    func = attention(**shape)
    sch = Schedule(func)
    sch.online_softmax("attention", *tiles)
    stored, numbers, out = given(func)
    tw.build(sch, "gpu-sim")(*stored, out)
    close(out, expected(*numbers, **options))


def masks():
    """Masks by name: the shape, the data type, and the numbers of two heads with 100 queries and 200 keys."""
    rng = np.random.default_rng(1)
    sees = rng.random((100, 200)) < 0.3
    sees[5] = False
    sees[7, :190] = False
    sees[9, 128:] = False
    least = np.where(sees, 0, np.finfo("float32").min).astype("float32")
    return [
        ("added", "float32", rng.standard_normal((2, 100, 200)).astype("float32"), {}),
        ("added to all heads", "float16", rng.standard_normal((100, 200)).astype("float16"), {}),
        ("of keys", "bool", rng.random((2, 1, 200)) < 0.5, {}),
        ("boolean", "bool", sees, {}),
        ("rows that see nothing are 0", "bool", sees, {"safe": True}),
        ("the smallest number", "float32", least, {}),
        ("and causal", "bool", sees | (np.arange(200) == 0), {"causal": True}),
    ]


@pytest.mark.parametrize(("dtype", "mask", "options"), [m[1:] for m in masks()], ids=[m[0] for m in masks()])
def test_masks(dtype, mask, options):
    """The rule takes it as one kernel, and a row of a tile may have seen no key yet."""
    q, k, v = (te.placeholder((2, n, 64), "float16", name) for n, name in ((100, "q"), (200, "k"), (200, "v")))
    m = te.placeholder(mask.shape, dtype, "m")
    func = te.create_prim_func([q, k, v, m, te.ops.attention(q, k, v, m, **options)])
    assert {s.name for s in Space(func, "gpu-sim -arch=sm_90a").sketches} == {"online_attention"}
    rng = np.random.default_rng(0)
    stored = [rng.standard_normal((2, n, 64)).astype("float16") for n in (100, 200, 200)]
    out = np.zeros((2, 100, 64), "float16")
    tw.build(func, "gpu-sim -arch=sm_90a")(*stored, mask, out)
    close(out, expected(*stored, mask=mask, **options))


RANGES = [
    ("an end", (None, 0), lambda i, j: j <= i),
    ("an end before all", (None, -70), lambda i, j: i - j >= 70),
    ("a begin", (40, None), lambda i, j: Not(j < i + 40)),
    ("both, one outside", (-99, 3), lambda i, j: te.all(i - j < 100, j < i + 4)),
    ("all but others", (-2, 1), lambda i, j: Not(te.any(j > i + 1, i > j + 2))),
    ("more than there is", (None, None), lambda i, j: te.all(j < i + 500, i < j + 500)),
]


def of_range(sees, queries=128, keys=192):
    q, k, v = (te.placeholder((1, n, 64), "float16", name) for n, name in ((queries, "q"), (keys, "k"), (keys, "v")))
    s = te.ops.matmul(q, k, transpose_b=True, out_dtype="float32")
    never = te.const(float("-inf"), "float32")
    seen = te.compute(s.shape, lambda h, i, j: te.if_then_else(sees(i, j), s[h, i, j] * 0.125, never), name="seen")
    out = te.ops.matmul(te.ops.softmax(seen), te.ops.cast(v, "float32"))
    return te.create_prim_func([q, k, v, te.compute(q.shape, lambda *i: out(*i).astype("float16"), name="out")])


@pytest.mark.parametrize(("bounds", "sees"), [r[1:] for r in RANGES], ids=[r[0] for r in RANGES])
def test_ranges_of_keys_are_found(bounds, sees):
    """The comparisons are bounds of the shape, and no function of each score is left of them."""
    func = of_range(sees)
    shape = attention_in(func, "out").shape
    assert (shape.since, shape.until, shape.scored) == (*bounds, False)
    i, j = np.indices((128, 192))
    since, until = (-1000 if bounds[0] is None else bounds[0]), (1000 if bounds[1] is None else bounds[1])
    mask = (j - i >= since) & (j - i <= until)
    assert shape.pairs == mask.sum()
    for groups, keys in ((1, 64), (2, 64), (1, 128)):
        tall = 64 * groups
        blocks = [mask[b : b + tall] for b in range(0, 128, tall)]
        spans = [np.flatnonzero([m[:, t : t + keys].any() for t in range(0, 192, keys)]) for m in blocks]
        read = sum(max(1, np.ptp(span) + 1 if len(span) else 1) for span in spans)
        assert tiles_of_keys(shape, AttentionTiles(groups, keys)) == read
    sch = Schedule(func)
    sch.online_softmax("out", 1, 64)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, n, 64)).astype("float16") for n in (128, 192, 192))
    out = np.zeros((1, 128, 64), "float16")
    tw.build(sch, "gpu-sim")(q, k, v, out)
    close(out, expected(q, k, v, mask=mask))


@pytest.mark.parametrize("window", [40, 200])
def test_tiles_outside_of_a_window_are_not_read(window):
    """Keys and values that no query of a block sees are NaN, and the blocks move the bytes of the tiles that are left."""
    func = attention((1,), 64, 1024, dtype="float16", causal=True, window=window)
    sch = Schedule(func)
    sch.online_softmax("attention", 1, 64)
    (q, k, v), _, out = given(func)
    first = (1024 - 64 - window + 1) // 64 * 64
    k[:, :first] = v[:, :first] = np.nan
    module = tw.build(sch, "gpu-sim")
    module(q, k, v, out)
    seen = (q, k[:, first:], v[:, first:])
    close(out, expected(*seen, causal=True, window=window))
    (counts,) = module.bind(q, k, v, out).counted()
    read = q.nbytes + 2 * 64 * 2 * (1024 - first)
    assert read <= counts["l2_bytes"] <= read + out.nbytes


def test_a_table_of_distances_is_read_where_it_is():
    """The condition says where an index is inside of the table, so it stays with the score."""
    q, k, v = (te.placeholder((1, 128, 64), "float16", name) for name in "qkv")
    table = te.placeholder((128,), "float32", "table")
    s = te.ops.matmul(q, k, transpose_b=True, out_dtype="float32")
    never = te.const(float("-inf"), "float32")
    by = te.compute(s.shape, lambda h, i, j: te.if_then_else(j <= i, s[h, i, j] + table[i - j], never), name="by")
    out = te.ops.matmul(te.ops.softmax(by), te.ops.cast(v, "float32"))
    func = te.create_prim_func([q, k, v, table, te.compute(q.shape, lambda *i: out(*i).astype("float16"), name="out")])
    assert attention_in(func, "out") == "a mask is read under a condition"


def by_position(q, k, v):
    """Attention of stages written by hand, in a window of 40 keys, whose scores a hyperbolic tangent bounds."""
    heads, n, d = [int(e) for e in q.shape]
    r, m = te.reduce_axis((0, d), name="r"), te.reduce_axis((0, n), name="m")
    wide = lambda x: x.astype("float32")  # noqa: E731
    s = te.compute((heads, n, n), lambda h, i, j: te.sum(wide(q[h, i, r]) * wide(k[h, j, r]), axis=r), name="s")
    never = te.const(float("-inf"), "float32")
    near = te.compute(
        s.shape,
        lambda h, i, j: te.if_then_else(te.all(j <= i, i - j < 40), te.tanh(s[h, i, j] * 0.125) * 8.0, never), name="near",
    )  # fmt: skip
    p = te.ops.softmax(near)
    total = te.compute(q.shape, lambda h, i, e: te.sum(p[h, i, m] * wide(v[h, m, e]), axis=m), name="total")
    return te.compute(q.shape, lambda *i: total(*i).astype("float16"), name="out")


def near(q, k, v):
    q, k, v = (x.astype("float64") for x in (q, k, v))
    i, j = np.indices((q.shape[1],) * 2)
    e = np.where((j <= i) & (i - j < 40), np.exp(np.tanh(q @ k.swapaxes(1, 2) * 0.125) * 8.0), 0)
    return e / e.sum(-1, keepdims=True) @ v


def turn(x):
    return te.ops.transpose(x, (0, 2, 1, 3))


def apart(x):
    return turn(te.ops.reshape(x, (2, 100, 2, 64)))


def split_heads(x):
    return x.reshape(2, 100, 2, 64).swapaxes(1, 2)


FORMS = [
    ("a window, and a function of scores", [(2, 130, 64)] * 3, by_position, near),
    ("grouped queries", [(1, 8, 70, 64), (1, 2, 70, 64), (1, 2, 70, 64)],
     lambda q, k, v: te.ops.attention(q, te.ops.repeat(k, 4, 1), te.ops.repeat(v, 4, 1), causal=True),
     lambda q, k, v: expected(q, k.repeat(4, 1), v.repeat(4, 1), causal=True)),
    ("heads behind positions", [(2, 100, 2, 64)] * 3,
     lambda q, k, v: turn(te.ops.attention(turn(q), turn(k), turn(v))),
     lambda q, k, v: expected(*(x.swapaxes(1, 2) for x in (q, k, v))).swapaxes(1, 2)),
    ("heads beside each other", [(2, 100, 128)] * 3,
     lambda q, k, v: te.ops.reshape(turn(te.ops.attention(apart(q), apart(k), apart(v))), (2, 100, 128)),
     lambda q, k, v: expected(*(split_heads(x) for x in (q, k, v))).swapaxes(1, 2).reshape(2, 100, 128)),
    ("stages of float16", [(2, 128, 64)] * 3,
     lambda q, k, v: te.ops.matmul(te.ops.softmax(te.ops.multiply(te.ops.matmul(q, k, transpose_b=True), 0.125)), v),
     lambda q, k, v: expected(q, k, v)),
]  # fmt: skip


@pytest.mark.parametrize(("shapes", "make", "want"), [f[1:] for f in FORMS], ids=[f[0] for f in FORMS])
def test_other_forms(shapes, make, want):
    arrays = [te.placeholder(shape, "float16", name) for shape, name in zip(shapes, "qkv", strict=True)]
    func = te.create_prim_func([*arrays, make(*arrays)])
    assert all(s.name.startswith("online_") for s in Space(func, "gpu-sim -arch=sm_90a").sketches)
    rng = np.random.default_rng(0)
    stored = [rng.standard_normal(shape).astype("float16") for shape in shapes]
    out = np.zeros([int(n) for n in func.buffers[-1].shape], "float16")
    tw.build(func, "gpu-sim -arch=sm_90a")(*stored, out)
    expect = want(*stored)
    np.testing.assert_allclose(out.astype("float64"), expect, rtol=0, atol=2**-9 * abs(expect).max())


def test_large_scores_do_not_overflow():
    func = attention()
    sch = Schedule(func)
    sch.online_softmax("attention")
    stored, numbers, out = given(func, spread=20.0)
    tw.build(sch, "gpu-sim")(*stored, out)
    close(out, expected(*numbers))


def test_stages_may_be_inlined_before():
    """It is found whichever element-wise stages stand by themselves."""
    sch = Schedule(attention(causal=True))
    for stage in ("attention_scores", "attention_softmax_scale", "attention_softmax_norm"):
        sch.compute_inline(stage)
    sch.online_softmax("attention")
    trace = sch.trace
    again = Schedule(attention(causal=True))
    trace.apply_to_schedule(again)
    assert tw.tir.structural_equal(again.func, sch.func)


def test_text_is_read_again():
    sch = Schedule(attention())
    sch.online_softmax("attention")
    assert tw.tir.structural_equal(tw.tir.parse(sch.func.script()), sch.func)


def test_the_rule_takes_it():
    func = attention(lead=(8,), queries=256, keys=256, causal=True)
    (sketch,) = Space(func, "gpu-sim -arch=sm_90a").sketches
    assert sketch.name == "online_attention"
    module = tw.build(func, "gpu-sim -arch=sm_90a")
    stored, numbers, out = given(func)
    module(*stored, out)
    close(out, expected(*numbers, causal=True))


OTHERS = [
    ("float32", lambda: attention(dtype="float32")),
    ("few queries", lambda: attention(queries=7)),
    ("features", lambda: attention(depth=44)),
]


@pytest.mark.parametrize("made", [row[1] for row in OTHERS], ids=[row[0] for row in OTHERS])
def test_the_rule_leaves_the_rest(made):
    assert all(not s.name.startswith("online") for s in Space(made(), "gpu-sim -arch=sm_90a").sketches)
    assert all(not s.name.startswith("online") for s in Space(attention(), "gpu-sim").sketches)


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize("causal", [False, True])
def test_registers_suffice(causal):
    """The products go on beside the softmax: the assembler does not run them one after the other, and nothing is spilled."""
    sch = Schedule(attention((4,), 1024, 1024, 128, 128, causal=causal))
    sch.online_softmax("attention", 2, 128)
    (text,) = tw.build(sch, "cuda -arch=sm_90a").ptx.values()
    (report,), _ = run_ptxas(text, "sm_90a")
    assert report.spill_bytes == report.stack_bytes == 0 and not report.warnings


def softmax_alone():
    x = te.placeholder((128, 64), "bfloat16", "x")
    soft = te.ops.softmax(x, name="soft")
    return te.create_prim_func([x, te.compute((128, 64), lambda i, j: soft[i, j], "attention")])


REFUSED = [
    ("another chain", softmax_alone, (2, 128), "does not store the result of attention"),
    ("float32", lambda: attention(dtype="float32"), (2, 128), "does not store the result of attention"),
    ("features", lambda: attention(depth=44), (2, 128), "the features of . do not begin at multiples of 16 bytes"),
    ("wide values", lambda: attention(width=320), (2, 128), "features are 64 and 320"),
    ("tiles", attention, (2, 100), "100 keys in a tile"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "tiles", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(made, tiles, words):
    sch = Schedule(made())
    with pytest.raises(ScheduleError, match=words):
        sch.online_softmax("attention", *tiles)


def test_a_result_in_between_that_is_used_elsewhere():
    """Weights that are an output as well stay."""
    q, k, v = (te.placeholder((2, 128, 64), "bfloat16", name) for name in "qkv")
    func = te.create_prim_func([q, k, v, te.ops.attention(q, k, v)])
    text = func.script().replace(
        'attention: T.Buffer((2, 128, 64), "bfloat16")):',
        'attention: T.Buffer((2, 128, 64), "bfloat16"), attention_softmax_norm: T.Buffer((2, 128, 128), "float32")):',
    )
    text = "\n".join(line for line in text.split("\n") if "attention_softmax_norm = T.alloc_buffer" not in line)
    sch = Schedule(tw.tir.parse(text))
    with pytest.raises(ScheduleError, match="does not store the result of attention"):
        sch.online_softmax("attention")


def test_each_number_has_its_own_place_in_the_mask():
    """The 64 scores that a thread holds of a tile of 128 keys are compared one by one, each with another condition."""
    sch = Schedule(attention((2,), 512, 512, causal=True))
    sch.online_softmax("attention", 2, 128)
    text = tw.build(sch, "cuda -arch=sm_90a").get_source()
    conditions = re.findall(r"selp\.f32 .*(%p\d+);", text)
    assert len(conditions) >= 128 and len(set(conditions)) == len(conditions)
