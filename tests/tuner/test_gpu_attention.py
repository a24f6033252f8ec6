"""Attention by online softmax: the primitive and the rule, on the simulated GPU against NumPy in float64, what the assembler says, what is refused."""

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.schedule import Schedule, ScheduleError
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


def expected(q, k, v, scale=None, causal=False):
    q, k, v = (x.astype("float64") for x in (q, k, v))
    s = q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if causal:
        i, j = np.indices(s.shape[-2:])
        s = np.where(j <= i + s.shape[-1] - s.shape[-2], s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def close(out, want):
    got = out.astype("float64") if out.dtype == "float16" else bfloat16_from_bits(out)
    step = 2**-8 if out.dtype != "float16" else 2**-11
    assert abs(got - want).max() < 2 * step * abs(want).max()


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
]


@pytest.mark.parametrize(("shape", "tiles", "options"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_equal_on_the_simulated_gpu(shape, tiles, options):
    func = attention(**shape)
    sch = Schedule(func)
    sch.online_softmax("attention", *tiles)
    stored, numbers, out = given(func)
    tw.build(sch, "gpu-sim")(*stored, out)
    close(out, expected(*numbers, **options))


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
    ("lengths", lambda: attention(queries=96)),
    ("features", lambda: attention(depth=80)),
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


def masked():
    q, k, v = (te.placeholder((2, 128, 64), "bfloat16", name) for name in "qkv")
    m = te.placeholder((128, 128), "float32", "m")
    return te.create_prim_func([q, k, v, m, te.ops.attention(q, k, v, m)])


def softmax_alone():
    x = te.placeholder((128, 64), "bfloat16", "x")
    soft = te.ops.softmax(x, name="soft")
    return te.create_prim_func([x, te.compute((128, 64), lambda i, j: soft[i, j], "attention")])


REFUSED = [
    ("a mask", masked, (2, 128), "does not store the result of attention"),
    ("another chain", softmax_alone, (2, 128), "does not store the result of attention"),
    ("float32", lambda: attention(dtype="float32"), (2, 128), "does not store the result of attention"),
    ("lengths", lambda: attention(queries=96), (2, 128), "128 queries of a block and 128 keys of a tile do not divide 96 and 256"),
    ("features", lambda: attention(depth=80), (2, 128), "features are 80 and 64"),
    ("tiles", attention, (2, 100), "100 keys in a tile"),
    ("negative scale", lambda: attention(scale=-1.0), (2, 128), "is not positive"),
    ("blind queries", lambda: attention(queries=256, keys=128, causal=True), (2, 128), "a query sees none of the 128 keys"),
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
