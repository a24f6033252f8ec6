"""A language model of Llama's form with seeded random weights, which generates words with a cache.

Run it: ``python examples/decoder.py [--bits 4] [--cache int8] [--words 20]``.

A layer is RMS norm, products for queries, keys and values, rotary position embedding, attention in which groups of heads share
keys, and a gated feed-forward part (SwiGLU). It is built as two networks, before and after attention, for any number of words
up to the longest prompt. Between them the new keys and values are written into the cache, whose arrays stay where they are,
and one kernel computes attention over the filled part of it (``te.ops.attention_cached``). ``bits`` of 8 or 4 quantize the
weights of all products (``tw.quantize``).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.graph import Builder, Graph, Value

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model. ``bound``: the positions of its cache; ``prompt``: the words that it takes at a time."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    groups: int = 4
    inner: int = 2048
    words: int = 32000
    bound: int = 1024
    prompt: int = 512

    @property
    def depth(self) -> int:
        """Returns the features of a head."""
        return self.width // self.heads


TINY = Sizes(layers=2, width=64, heads=4, groups=2, inner=96, words=50, bound=40, prompt=16)


def random_weights(sizes: Sizes, seed: int = 0) -> dict[str, Array]:
    """Returns the weights by name; products have (inputs, outputs)."""
    rng, s = np.random.default_rng(seed), sizes
    shapes: dict[str, tuple[int, ...]] = {"embedding": (s.words, s.width), "norm": (s.width,)}
    for n in range(s.layers):
        joined = (s.heads + 2 * s.groups) * s.depth
        shapes |= {f"{n}.qkv": (s.width, joined), f"{n}.out": (s.width, s.width), f"{n}.gate": (s.width, s.inner),
                   f"{n}.up": (s.width, s.inner), f"{n}.down": (s.inner, s.width)}  # fmt: skip
        shapes |= {f"{n}.norm1": (s.width,), f"{n}.norm2": (s.width,)}
    shapes["head"] = (s.width, s.words)

    def drawn(shape: tuple[int, ...]) -> Array:
        if len(shape) == 1:
            return 1 + 0.1 * rng.standard_normal(shape, dtype=np.float32)
        return rng.standard_normal(shape, dtype=np.float32) / np.float32(shape[0] ** 0.5)

    return {name: drawn(shape) for name, shape in shapes.items()}


def angles(sizes: Sizes) -> tuple[Array, Array]:
    """Returns the cosines and sines of the rotary embedding, (bound, depth)."""
    pairs = np.arange(sizes.depth // 2, dtype=np.float32)
    each = np.arange(sizes.bound, dtype=np.float32)[:, None] / 10000 ** (pairs * 2 / sizes.depth)
    both = np.concatenate([each, each], 1)
    return np.cos(both), np.sin(both)


def before_attention(sizes: Sizes, weights: dict[str, Array], n: int, rows: Any) -> Graph:
    """Returns the part of layer ``n`` that makes queries, keys and values, each (heads, rows, depth)."""
    s, b = sizes, Builder(f"before{n}")
    x = b.input("x", (rows, s.width))
    cos, sin = b.input("cos", (rows, s.depth)), b.input("sin", (rows, s.depth))
    normed = b.op("rms_norm", x, b.constant(weights[f"{n}.norm1"]))
    flat = b.op("matmul", normed, b.constant(weights[f"{n}.qkv"], "qkv"))
    split = b.op("reshape", flat, shape=(rows, s.heads + 2 * s.groups, s.depth))
    turned = b.op("transpose", split, axes=(1, 0, 2))

    def part(first: int, count: int) -> Value:
        begin, size = (first, 0, 0), (count, rows, s.depth)
        return b.op("strided_slice", turned, begin=begin, end=size, slice_mode="size")

    q, k = (b.op("rotary", part(first, count), cos, sin) for first, count in ((0, s.heads), (s.heads, s.groups)))
    return b.graph([q, k, part(s.heads + s.groups, s.groups)])


def after_attention(sizes: Sizes, weights: dict[str, Array], n: int, rows: Any) -> Graph:
    """Returns the part of layer ``n`` behind attention."""
    s, b = sizes, Builder(f"after{n}")
    attended, x = b.input("attended", (s.heads, rows, s.depth)), b.input("x", (rows, s.width))

    def product(data: Value, name: str) -> Value:
        return b.op("matmul", data, b.constant(weights[f"{n}.{name}"], name))

    joined = b.op("reshape", b.op("transpose", attended, axes=(1, 0, 2)), shape=(rows, s.width))
    x = b.op("add", x, product(joined, "out"))
    normed = b.op("rms_norm", x, b.constant(weights[f"{n}.norm2"]))
    gated = b.op("swiglu", product(normed, "gate"), product(normed, "up"))
    return b.graph([b.op("add", x, product(gated, "down"))])


def to_words(sizes: Sizes, weights: dict[str, Array]) -> Graph:
    """Returns the last part of the model: a number for each word, from the last row."""
    b = Builder("to_words")
    x = b.input("x", (1, sizes.width))
    normed = b.op("rms_norm", x, b.constant(weights["norm"]))
    return b.graph([b.op("matmul", normed, b.constant(weights["head"], "head"))])


class Decoder:
    """A built model with its cache. ``bits``: 32 for float32 weights, 8 or 4 for quantized ones. ``cache``: the type of keys
    and values, float32, float16, or int8 with a scale for each position of a group."""

    def __init__(
        self, sizes: Sizes, weights: dict[str, Array], bits: int = 32, target: str = "native", cache: str = "float32"
    ) -> None:
        s, rows, length = sizes, te.var("rows"), te.var("length")

        def built(graph: Graph) -> Any:
            if bits < 32:
                graph = tw.quantize(graph, f"int{bits}-weights")
            symbolic = not all(v.is_static for v in graph.inputs)
            return tw.build(graph, target, bounds={"rows": [1, s.prompt]} if symbolic else {})

        self.sizes, self.embedding = s, weights["embedding"]
        self.before = [built(before_attention(s, weights, n, rows)) for n in range(s.layers)]
        self.after = [built(after_attention(s, weights, n, rows)) for n in range(s.layers)]
        self.to_words = built(to_words(s, weights))
        past = [te.placeholder((s.groups, s.bound, s.depth), cache, name) for name in ("keys", "values")]
        scales = [te.placeholder((s.groups, s.bound), name=f"{t.name}_scales") for t in past if cache == "int8"]
        self.attention = []
        for count in (1, rows):
            q = te.placeholder((s.heads, count, s.depth), name="q")
            attended = te.ops.attention_cached(q, *past, length, *scales)
            self.attention.append(tw.build([q, *past, *scales, length, attended], target))
        self.cos, self.sin = angles(s)
        self.cache = np.zeros((s.layers, 2, s.groups, s.bound, s.depth), cache)
        self.scales = np.zeros((s.layers, len(scales), s.groups, s.bound), np.float32)
        self.length = 0

    def __call__(self, words: Sequence[int]) -> Array:
        """Returns a number for each word that may come next, after ``words`` have been added to what was read."""
        first, end = self.length, self.length + len(words)
        if not 0 < len(words) <= self.sizes.prompt or end > self.sizes.bound:
            raise ValueError(
                f"{len(words)} words after {first}: the model takes 1 to {self.sizes.prompt} at a time, "
                f"{self.sizes.bound} in all; reset() begins anew"
            )
        x, cos, sin = self.embedding[list(words)], self.cos[first:end], self.sin[first:end]
        attention = self.attention[len(words) > 1]
        for before, after, past, scales in zip(self.before, self.after, self.cache, self.scales, strict=True):
            q, *new = before(x, cos, sin)
            for n, rows in enumerate(new):
                if len(scales):
                    scales[n, :, first:end] = np.abs(rows).max(-1) / np.float32(127)
                    rows = np.rint(rows / np.maximum(scales[n, :, first:end, None], np.float32(1e-30)))
                past[n, :, first:end] = rows
            attended = np.empty_like(q)
            attention(q, *past, *scales, end, attended)
            x = after(attended, x)
        self.length = end
        return self.to_words(x[-1:])[0]  # type: ignore[no-any-return]

    def reset(self) -> None:
        """Forget what was read."""
        self.length = 0


def generate(model: Decoder, prompt: Sequence[int], count: int) -> Iterator[int]:
    """Yields the ``count`` words that are most likely to follow the prompt, one after the other."""
    scores = model(prompt)
    for n in range(count):
        word = int(scores.argmax())
        yield word
        if n + 1 < count:
            scores = model([word])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=32, choices=(32, 8, 4))
    parser.add_argument("--cache", default="float32", choices=("float32", "float16", "int8"))
    parser.add_argument("--words", type=int, default=20)
    chosen = parser.parse_args()
    print(
        *generate(Decoder(TINY, random_weights(TINY), chosen.bits, cache=chosen.cache), [3, 1, 4, 1, 5], chosen.words)
    )
