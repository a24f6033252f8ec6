"""Attention over a cache of keys and values: every length up to the bound, grouped heads, narrow caches."""

import math
import re

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target
from tilewright.codegen.lower import lower
from tilewright.driver.building import plan
from tilewright.graph import Builder
from tilewright.te import ops

ONE = "native -num-cores=1"


def expected(q, k, v, length, causal=True):
    """Returns attention in float64 by the definition, head by head."""
    out = np.zeros((*q.shape[:2], v.shape[2]))
    for h in range(q.shape[0]):
        g = h // (q.shape[0] // k.shape[0])
        for i in range(q.shape[1]):
            seen = i + length - q.shape[1] + 1 if causal else length
            scores = k[g, :seen].astype(np.float64) @ q[h, i].astype(np.float64) / np.sqrt(q.shape[2])
            weights = np.exp(scores - scores.max())
            out[h, i] = weights / weights.sum() @ v[g, :seen].astype(np.float64)
    return out


def quantized(x):
    """Returns rows as int8 and their scales."""
    scales = np.abs(x).max(-1) / np.float32(127)
    return np.rint(x / scales[..., None]).astype(np.int8), scales.astype(np.float32)


def cache(rng, dtype, *shape):
    """Returns numbers of the cache's type, their scales if there are any, and what they stand for."""
    x = rng.standard_normal(shape, dtype=np.float32)
    if dtype == "int8":
        codes, scales = quantized(x)
        return [codes, scales], codes * scales[..., None]
    return [x.astype(dtype)], x.astype(dtype).astype(np.float32)


def operands(dtype, shape):
    heads, groups, rows, bound, depth, width = shape
    Q = te.placeholder((heads, rows, depth), name="Q")
    K, V = te.placeholder((groups, bound, depth), dtype, "K"), te.placeholder((groups, bound, width), dtype, "V")
    scales = [te.placeholder((groups, bound), name=n) for n in ("KS", "VS")] if dtype == "int8" else []
    return Q, K, V, scales


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(
    "shape", [(4, 2, 1, 67, 16, 16), (3, 3, 5, 21, 8, 7), (6, 1, 2, 40, 13, 5), (4, 2, 17, 33, 16, 16)], ids=str
)
def test_every_length(dtype, shape):
    heads, groups, rows, bound, depth, width = shape
    rng, n = np.random.default_rng(1), te.var("n")
    Q, K, V, scales = operands(dtype, shape)
    run = tw.build([Q, K, V, *scales, n, ops.attention_cached(Q, K, V, n, *scales)], ONE)
    q = rng.standard_normal((heads, rows, depth), dtype=np.float32)
    (k, *ks), keys = cache(rng, dtype, groups, bound, depth)
    (v, *vs), values = cache(rng, dtype, groups, bound, width)
    for length in range(rows, bound + 1):
        filled = [a.copy() for a in (k, v, *ks, *vs)]
        for a in filled:  # what is not filled is not read
            a[:, length:] = np.nan if a.dtype.kind == "f" else 99
        out = np.full((heads, rows, width), np.nan, np.float32)
        run(q, *filled, length, out)
        np.testing.assert_allclose(out, expected(q, keys, values, length), rtol=2e-5, atol=2e-6, err_msg=str(length))
    for wrong in (rows - 1, bound + 1):
        with pytest.raises((ValueError, RuntimeError), match="has to be at most"):
            run(q, k, v, *ks, *vs, wrong, out)


def test_all_positions_are_seen_without_causal():
    rng = np.random.default_rng(2)
    Q, K, V, _ = operands("float32", (2, 1, 4, 9, 8, 8))
    run = tw.build([Q, K, V, ops.attention_cached(Q, K, V, 3, causal=False)], ONE)
    q, k, v = (rng.standard_normal([int(d) for d in t.shape], dtype=np.float32) for t in (Q, K, V))
    out = np.zeros((2, 4, 8), np.float32)
    run(q, k, v, out)
    np.testing.assert_allclose(out, expected(q, k, v, 3, causal=False), rtol=2e-5, atol=2e-6)


def test_one_schedule_takes_the_stages_together():
    for rows in (1, 64):
        n = te.var("n")
        Q, K, V, scales = operands("int8", (8, 2, rows, 256, 64, 64))
        made = plan([Q, K, V, *scales, n, ops.attention_cached(Q, K, V, n, *scales)], target=ONE)
        assert made.origin.startswith("the analytic model's best schedule for n = 128")
        text = made.scheduled.script()
        assert "tir.horizontal_reduce" in text and "K_global = T.alloc_buffer((2, (n + " in text
        kept = re.findall(r"_(?:qk|exp|norm) = T.decl_buffer\(\((.*)\)\)", lower(made.scheduled, Target(ONE)).script())
        sizes = [[int(e) for e in one.split(", ")[:-1]] for one in kept if one.endswith("n")]
        assert sizes and all(math.prod(one) <= 8 for one in sizes)  # the scores of a few rows, never of all


def test_symbolic_queries():
    rng, n, s = np.random.default_rng(5), te.var("n"), te.var("s")
    Q, K, V = te.placeholder((4, s, 16), name="Q"), *(te.placeholder((2, 90, 16), name=x) for x in "KV")
    run = tw.build([Q, K, V, n, ops.attention_cached(Q, K, V, n)], ONE)
    k, v = (rng.standard_normal((2, 90, 16), dtype=np.float32) for _ in range(2))
    for rows, length in ((1, 1), (1, 90), (7, 7), (16, 40), (33, 90), (90, 90)):
        q = rng.standard_normal((4, rows, 16), dtype=np.float32)
        out = np.full((4, rows, 16), np.nan, np.float32)
        run(q, k, v, length, out)
        np.testing.assert_allclose(out, expected(q, k, v, length), rtol=2e-5, atol=2e-6)


def test_the_same_as_torch():
    torch = pytest.importorskip("torch")
    rng, n = np.random.default_rng(3), te.var("n")
    Q, K, V, _ = operands("float32", (8, 2, 1, 100, 32, 32))
    run = tw.build([Q, K, V, n, ops.attention_cached(Q, K, V, n, scale=0.2)], ONE)
    q, k, v = (rng.standard_normal([int(d) for d in t.shape], dtype=np.float32) for t in (Q, K, V))
    for length in (1, 50, 100):
        given = [torch.tensor(a)[None] for a in (q, k[:, :length], v[:, :length])]
        want = torch.nn.functional.scaled_dot_product_attention(*given, scale=0.2, enable_gqa=True)
        out = np.zeros((8, 1, 32), np.float32)
        run(q, k, v, length, out)
        np.testing.assert_allclose(out, want[0].numpy(), rtol=2e-5, atol=2e-6)


def test_in_a_network_a_vector_tells_the_length():
    rng, n = np.random.default_rng(4), te.var("n")
    b = Builder("net")
    q, k, v = b.input("q", (4, 1, 16)), b.input("k", (2, 70, 16)), b.input("v", (2, 70, 16))
    filled = b.input("filled", (n,), "int8")
    run = tw.build(b.graph([b.op("relu", b.op("attention_cached", q, k, v, filled))]), ONE, bounds={"n": 70})
    data = [rng.standard_normal(x.shape, dtype=np.float32) for x in (q, k, v)]
    for length in (1, 2, 17, 64, 70):
        want = np.maximum(expected(*data, length), 0)
        np.testing.assert_allclose(run(*data, np.zeros(length, np.int8)), want, rtol=2e-5, atol=2e-6)


def test_what_does_not_fit_is_named():
    Q, K, V, scales = operands("int8", (4, 2, 1, 8, 16, 16))
    with pytest.raises(ValueError, match="a key of int8 comes with key_scales"):
        ops.attention_cached(Q, K, V, 8)
    with pytest.raises(ValueError, match="4 heads do not share the keys of 3"):
        ops.attention_cached(Q, te.placeholder((3, 8, 16)), te.placeholder((3, 8, 16)), 8)
    with pytest.raises(ValueError, match="the length, 9, is larger than the positions of the cache, 8"):
        ops.attention_cached(Q, K, V, 9, *scales)
    with pytest.raises(TypeError, match="the length is 2.5, not a number"):
        ops.attention_cached(Q, K, V, 2.5, *scales)
    with pytest.raises(TypeError, match="the key is int16"):
        ops.attention_cached(Q, te.placeholder((2, 8, 16), "int16"), V, 8, *scales)
