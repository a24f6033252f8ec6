"""The decoder of ``examples``: the numbers of a model in NumPy, the same words, with and without quantized weights."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.graph.reference import evaluate

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
ONE = "native -num-cores=1"


@pytest.fixture(scope="module")
def example():
    return importlib.import_module("decoder")


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def scores_of(sizes, weights, words):
    """Returns what follows all of ``words``, computed at once in float64, without a cache."""
    w, s, count = {name: a.astype(np.float64) for name, a in weights.items()}, sizes, len(words)
    turns = np.outer(np.arange(count), 10000.0 ** (-np.arange(s.depth // 2) * 2 / s.depth))
    turn = np.exp(1j * turns)[:, None]

    def rotated(x):
        a, b = np.split(x, 2, -1)
        z = (a + 1j * b) * turn
        return np.concatenate([z.real, z.imag], -1)

    x = w["embedding"][list(words)]
    for n in range(s.layers):
        parts = (norm(x, w[f"{n}.norm1"]) @ w[f"{n}.qkv"]).reshape(count, -1, s.depth)
        q, k, v = np.split(parts, [s.heads, s.heads + s.groups], 1)
        q, k = rotated(q), rotated(k)
        k, v = (np.repeat(a, s.heads // s.groups, 1) for a in (k, v))
        scores = np.einsum("shd,thd->hst", q, k) / np.sqrt(s.depth)
        scores[:, ~np.tri(count, dtype=bool)] = -np.inf
        p = np.exp(scores - scores.max(-1, keepdims=True))
        attended = np.einsum("hst,thd->shd", p / p.sum(-1, keepdims=True), v).reshape(count, -1)
        x = x + attended @ w[f"{n}.out"]
        h = norm(x, w[f"{n}.norm2"])
        gate = h @ w[f"{n}.gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[f"{n}.up"])) @ w[f"{n}.down"]
    return norm(x[-1], w["norm"]) @ w["head"]


def apart(x, want):
    """Returns the root mean square of the differences over that of ``want``."""
    return np.sqrt(((x - want) ** 2).mean() / (want**2).mean())


@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_parts_compute_what_their_graphs_say(example, bits):
    rng, rows = np.random.default_rng(0), te.var("rows")
    sizes, weights = example.TINY, example.random_weights(example.TINY)
    for part in (example.before_attention, example.after_attention):
        graph = tw.quantize(part(sizes, weights, 0, rows), f"int{bits}-weights", activations="float32")
        assert "dense_nbits" in str(graph)
        run = tw.build(graph, ONE, bounds={"rows": [1, sizes.prompt]})
        for count in (1, 3):
            shapes = [[d if isinstance(d, int) else count for d in v.shape] for v in graph.inputs]
            given = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
            got = run(*given)
            for a, b in zip(got if isinstance(got, tuple) else [got], evaluate(graph, *given), strict=True):
                assert apart(a, b) < 1e-6


@pytest.mark.parametrize(
    ("bits", "kind", "error"),
    [(32, "float32", 1e-5), (8, "float32", 0.05), (4, "float32", 0.5), (32, "float16", 1e-3), (32, "int8", 0.02)],
)
def test_the_numbers_and_words_of_the_model(example, bits, kind, error):
    sizes, weights = example.TINY, example.random_weights(example.TINY)
    model = example.Decoder(sizes, weights, bits, ONE, kind)
    cache = model.cache
    words = [3, 1, 4, 1, 5, 9, 2]
    for _ in range(2 if error < 1e-4 else 1):  # again after a reset
        want = scores_of(sizes, weights, words)
        assert apart(model(words), want) <= error
        read = list(words)
        for word in (7, 0, 49):  # one by one, then several after what was read
            read.append(word)
            want = scores_of(sizes, weights, read)
            assert apart(model([word]), want) <= error
        want = scores_of(sizes, weights, [*read, 8, 8, 12])
        assert apart(model([8, 8, 12]), want) <= error
        assert model.cache is cache and cache[:, :, :, : model.length].any((0, 1, 2, 4)).all()
        model.reset()
    if error < 1e-4:
        read = list(words)
        for word in example.generate(model, words, sizes.bound - len(words)):  # to the end of the cache
            assert word == scores_of(sizes, weights, read).argmax()
            read.append(word)
        with pytest.raises(ValueError, match="2 words after 39: the model takes 1 to 16 at a time, 40 in all"):
            model([1, 2])
