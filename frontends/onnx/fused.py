"""Converters of ONNX Runtime's own operators (domain com.microsoft) that its optimizer and exporters of transformers write.

They are products and convolutions with what follows them, normalizations of sums, rotary embeddings, and attention. Those on quantized
numbers are in :mod:`.quantized`. Sizes are B for the batch, N for the heads, S and L for the positions of queries and of new keys, P for
those of earlier keys, T = P + L, and H for the features of a head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...graph.graph import Value, dims, same_shape
from ...tir.expr import convert, max_
from ..common import looked_up, product
from .call import CONVERTERS, OnnxCall, contributed
from .products import channels_first, channels_last, convolution, gemm, windows_of

# single elements


@contributed("Gelu", "BiasGelu", "FastGelu")
def gelu(c: OnnxCall) -> Value:
    x = c.input(0) if not c.has(1) else c.op("add", c.input(0), c.input(1))
    return c.op("gelu", x, approximate="tanh" if c.op_type == "FastGelu" else "none")


@contributed("QuickGelu")
def quick_gelu(c: OnnxCall) -> Value:
    x, alpha = c.input(0), float(c.attr("alpha", 1.702))
    return c.op("multiply", x, c.op("sigmoid", c.op("multiply", x, c.like(alpha, x))))


@contributed("BiasSplitGelu")
def bias_split_gelu(c: OnnxCall) -> Value:
    x = c.op("add", c.input(0), c.input(1))
    half, last = x.shape[-1] // 2, x.ndim - 1
    return c.op("multiply", c.part(x, last, 0, half), c.op("gelu", c.part(x, last, half, half)))


# products


@contributed("FusedMatMul", "TransposeMatMul")
def fused_matmul(c: OnnxCall) -> Value:
    a, b = [_turned(c, c.input(n), name) for n, name in enumerate("AB")]
    out, alpha = product(c, a, b), float(c.attr("alpha", 1.0))
    return out if alpha == 1 else c.op("multiply", out, c.like(alpha, out))


def _turned(c: OnnxCall, x: Value, name: str) -> Value:
    """Returns a factor with its axes in the order in which they are multiplied."""
    order = list(range(x.ndim))
    if c.attr(f"transBatch{name}", 0) and x.ndim > 2:  # the first axis is that of the rows, and the others move up
        order = [*order[1:-1], 0, order[-1]]
    if c.attr(f"trans{name}", 0) and x.ndim > 1:
        order[-2:] = reversed(order[-2:])
    return x if order == sorted(order) else c.op("transpose", x, axes=tuple(order))


@contributed("FusedGemm")
def fused_gemm(c: OnnxCall) -> Value:
    told = {name: c.attr(f"activation_{name}") for name in ("alpha", "beta", "gamma")}
    return _activated(c, gemm(c), {name: value for name, value in told.items() if value is not None})


@contributed("FusedConv", "NhwcConv", "NhwcFusedConv")
def fused_convolution(c: OnnxCall) -> Value:
    """A convolution, to which a fourth input and then an activation may be applied."""
    x, last = c.input(0), c.op_type.startswith("Nhwc")
    out = convolution(c, channels_first(c, x) if last else x, c.input(1), c.optional(2))
    out = channels_last(c, out) if last else out
    if c.has(3):
        out = c.op("add", out, c.input(3))
    names = {"HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max")}.get(c.attr("activation", ""), ("alpha",))
    return _activated(c, out, dict(zip(names, c.attr("activation_params", ()), strict=False)))


_ACTIVATIONS = frozenset(
    "Celu Clip Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Selu Sigmoid Softplus Softsign Tanh ThresholdedRelu".split()
)


def _activated(c: OnnxCall, x: Value, attributes: Mapping[str, Any]) -> Value:
    """Returns the node's activation, an operator of ONNX, of ``x``; ``x`` where it has none."""
    name = c.attr("activation", "")
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise c.error(f"the activation {name!r} is not supported; there are {', '.join(sorted(_ACTIVATIONS))}")
    inner = OnnxCall(c.builder, name, c.label, [x], attributes, c.opset, 1)
    return CONVERTERS["", name](inner)  # type: ignore[no-any-return]


@contributed("NhwcMaxPool")
def pool_of_last_channels(c: OnnxCall) -> Value:
    made = windows_of(c, channels_first(c, c.input(0)), "MaxPool")
    return channels_last(c, made[0] if isinstance(made, tuple) else made)


# normalizations

_TINY = 1e-12
"""The epsilon where a node has none."""


@contributed("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_normalization(c: OnnxCall) -> tuple[Value | None, ...]:
    """A normalization of a sum, which is the fourth result. The second and the third, for training, are not computed."""
    scale, epsilon, simple = c.input(2), float(c.attr("epsilon", _TINY)), c.op_type != "SkipLayerNormalization"
    total = c.op("add", c.input(0), c.input(1))
    bias = c.optional(3 if simple else 4)
    if bias is not None:
        total = c.op("add", total, bias)
    axis = total.ndim - 1
    if simple:
        return c.op("rms_norm", total, scale, axis=axis, epsilon=epsilon), None, None, total
    return c.op("layer_norm", total, scale, c.optional(3), axis=axis, epsilon=epsilon), None, None, total


@contributed("EmbedLayerNormalization")
def embedding_normalization(c: OnnxCall) -> tuple[Value, ...]:
    """A normalization of summed embeddings, the number of words that a mask leaves, and the sum."""
    words, segments, mask, places = c.input(0), c.optional(1), c.optional(7), c.optional(8)
    batch, positions = words.shape
    total = _rows(c, c.input(2), words)
    at = c.places(positions) if places is None else places
    total = c.op("add", total, _rows(c, c.input(3), at))
    if segments is not None:
        total = c.op("add", total, _rows(c, c.input(4), segments))
    out = c.op("layer_norm", total, c.input(5), c.input(6), axis=2, epsilon=float(c.attr("epsilon", _TINY)))
    if mask is None:
        return out, c.op("broadcast_to", c.constant(0, "int32"), shape=(batch,)), total
    ones = c.op("equal", mask, c.constant(1, mask.dtype))
    return out, c.op("sum", c.op("cast", ones, dtype="int32"), axis=1), total


def _rows(c: OnnxCall, table: Value, indices: Value) -> Value:
    return c.op("take", table, c.from_the_start(indices, table.shape[0]), axis=0)


# rotary embeddings


@contributed("RotaryEmbedding")
def rotary_embedding(c: OnnxCall) -> Value:
    x, places, cos, sin = [c.input(n) for n in range(4)]
    if c.attr("is_packed_batching", 0):
        raise c.error("is_packed_batching=1 is not supported; give each sequence a row of the batch")
    heads, width = c.attr("num_heads", 0), c.attr("rotary_embedding_dim", 0)
    if x.ndim == 4:
        return _rotated(c, x, places, cos, sin, axis=2, interleaved=bool(c.attr("interleaved", 0)))
    if width and not heads:
        raise c.error("rotary_embedding_dim needs num_heads")
    count = heads if width else x.shape[2] // (2 * cos.shape[1])
    apart = c.op("reshape", x, shape=(x.shape[0], x.shape[1], count, x.shape[2] // count))
    turned = _rotated(c, apart, places, cos, sin, axis=1, interleaved=bool(c.attr("interleaved", 0)))
    return c.op("reshape", turned, shape=x.shape)


def _rotated(c: OnnxCall, x: Value, places: Value, cos: Value, sin: Value, axis: int, interleaved: bool) -> Value:
    """Returns heads with each pair of features turned.

    ``x`` is (B, N, S, H) or (B, S, N, H), as the ``axis`` of positions says. ``places`` are (B, S), or the place of the
    first position; features beyond those that the angles turn stay as they are.
    """
    half, positions = cos.shape[1], x.shape[axis]
    if places.ndim < 2:
        first = c.op("reshape", places, shape=(1, 1))
        places = c.op("add", first, c.places(positions, places.dtype, 1, 2))
    shape = [places.shape[0], 1, 1, half]
    shape[axis] = positions
    angles = [c.op("reshape", _rows(c, table, places), shape=tuple(shape)) for table in (cos, sin)]
    used = x if x.shape[3] == 2 * half else c.part(x, 3, 0, 2 * half)
    if interleaved:
        pairs = c.op("reshape", used, shape=(*used.shape[:3], half, 2))
        cosine, sine = [c.op("expand_dims", angle, axis=4) for angle in angles]
        other = c.op("multiply", sine, c.constant(np.array([-1, 1]), x.dtype))
        sums = c.op("add", c.op("multiply", pairs, cosine), c.op("multiply", c.op("flip", pairs, axis=4), other))
        turned = c.op("reshape", sums, shape=used.shape)
    else:
        turned = c.op("rotary", used, *[c.op("concatenate", angle, angle, axis=3) for angle in angles])
    if used is x:
        return turned
    return c.op("concatenate", turned, c.part(x, 3, 2 * half, x.shape[3] - 2 * half), axis=3)


# attention

_HIDDEN = -10000.0
"""What is added to the scores of positions that a mask hides, where a node does not say it."""


@contributed("Attention")
def merged_attention(c: OnnxCall) -> tuple[Value, ...]:
    """Attention with the products that make queries, keys and values of one input."""
    _refuse(c, "do_rotary", "past_present_share_buffer")
    heads, x, weights, past = c.attr("num_heads"), c.input(0), c.input(1), c.optional(4)
    widths = c.attr("qkv_hidden_sizes") or (weights.shape[1] // 3,) * 3
    whole = product(c, x, weights)
    if c.has(2):
        whole = c.op("add", whole, c.input(2))
    starts = (0, widths[0], widths[0] + widths[1])
    parts = [_heads(c, c.part(whole, 2, b, w), heads) for b, w in zip(starts, widths, strict=True)]
    earlier: list[Value | None] = [None, None]
    if past is not None:
        earlier = [c.op("squeeze", c.part(past, 0, n, 1), axis=0) for n in (0, 1)]
    out, keys, values = _attended(c, parts, earlier, c.optional(3), c.optional(5))
    if c.outputs < 2:
        return (out,)
    return out, c.op("concatenate", *[c.op("expand_dims", v, axis=0) for v in (keys, values)], axis=0)


@contributed("MultiHeadAttention")
def multi_head_attention(c: OnnxCall) -> tuple[Value, ...]:
    """Attention of queries, keys and values that are given apart, or packed in one or two inputs."""
    heads, query, key, value, bias = c.attr("num_heads"), c.input(0), *[c.optional(n) for n in (1, 2, 3)]
    if c.has(8) or c.has(9):
        raise c.error("past_sequence_length and cache_indirection are not supported; give past_key and past_value as long as they are filled")  # fmt: skip
    if query.ndim == 5:
        given = [_unpacked(c, query, n) for n in range(3)]
    else:
        if key is not None and key.ndim == 5:
            given = [query, _unpacked(c, key, 0), _unpacked(c, key, 1)]
        elif key is None or value is None:
            raise c.error(f"the query {query.type_text} comes without keys or values")
        else:
            given = [query, key, value]
    if bias is not None:
        begin = 0
        for n, v in enumerate(given):
            width = v.shape[2] if v.ndim == 3 else heads * v.shape[3]
            given[n], begin = c.op("add", v, c.part(bias, 0, begin, width)), begin + width
    parts = [_heads(c, v, heads) if v.ndim == 3 else v for v in given]
    return _attended(c, parts, [c.optional(6), c.optional(7)], c.optional(4), c.optional(5))


def _refuse(c: OnnxCall, *names: str) -> None:
    """Raise OnnxError for an attribute that is set and not supported."""
    for name in names:
        if c.attr(name, 0):
            raise c.error(f"{name}={c.attr(name)} is not supported; export the model without it")


def _heads(c: OnnxCall, x: Value, heads: int) -> Value:
    """Returns (B, S, N · H) as (B, N, S, H)."""
    apart = c.op("reshape", x, shape=(x.shape[0], x.shape[1], heads, x.shape[2] // heads))
    return c.op("transpose", apart, axes=(0, 2, 1, 3))


def _joined(c: OnnxCall, x: Value) -> Value:
    """Returns (B, N, S, H) as (B, S, N · H)."""
    turned = c.op("transpose", x, axes=(0, 2, 1, 3))
    return c.op("reshape", turned, shape=(x.shape[0], x.shape[2], x.shape[1] * x.shape[3]))


def _unpacked(c: OnnxCall, packed: Value, n: int) -> Value:
    """Returns what (B, S, N, count, H) has at ``n`` as (B, S, N · H)."""
    batch, positions, heads, _, width = packed.shape
    return c.op("reshape", c.part(packed, 3, n, 1), shape=(batch, positions, heads * width))


def _attended(
    c: OnnxCall, parts: list[Value], earlier: list[Value | None], mask: Value | None, bias: Value | None
) -> tuple[Value, Value, Value]:
    """Returns attention as (B, S, N · H), and all keys and values: the earlier ones, then the new ones."""
    query, new, _ = parts
    past = earlier[0].shape[2] if earlier[0] is not None else 0
    keys, values = [
        v if e is None else c.op("concatenate", e, v, axis=2) for e, v in zip(earlier, parts[1:], strict=True)
    ]
    rows, columns = query.shape[2], keys.shape[2]
    causal = bool(c.attr("unidirectional", 0)) and rows != 1
    added = None if mask is None else _hidden(c, mask, query, columns)
    if bias is not None:
        added = bias if added is None else c.op("add", bias, added)
    if causal and new.shape[2] != rows:  # position s sees t ≤ s + P, and the last one sees all, as in ONNX Runtime
        at = c.places(rows, "int64", 2, 4)
        visible = c.op("less_equal", c.places(columns, "int64", 3, 4), c.op("add", at, c.size(past, "int64")))
        visible = c.op("logical_or", visible, c.op("equal", at, c.size(rows - 1, "int64")))
        other = c.like(0, query) if added is None else added
        added, causal = c.op("where", visible, other, c.like(-math.inf, query)), False
    scale = float(c.attr("scale", 0.0)) or None
    return _joined(c, c.op("attention", query, keys, values, added, scale=scale, causal=causal)), keys, values


def _hidden(c: OnnxCall, mask: Value, query: Value, columns: Any) -> Value | None:
    """Returns what is added to scores (B, N, S, T) for a mask; None where it hides nothing."""
    batch = query.shape[0]
    if mask.ndim == 1:
        places = c.places(columns, mask.dtype, 1, 2)
        if mask.shape[0] == batch:
            visible = c.op("less", places, c.op("expand_dims", mask, axis=1))
        elif mask.shape[0] == 2 * batch:
            end, start = [c.op("expand_dims", c.part(mask, 0, n * batch, batch), axis=1) for n in (0, 1)]
            visible = c.op("logical_and", c.op("greater_equal", places, start), c.op("less", places, end))
        else:
            raise c.error(f"the mask {mask.type_text} is not supported for a batch of {batch}; lengths, ends and starts, or 0 and 1 for each position are")  # fmt: skip
    elif mask.ndim in (2, 3):
        if mask.ndim == 2 and mask.shape[1] == 1 and columns != 1:
            return None
        visible = c.op("greater", mask, c.like(0, mask))
    else:
        raise c.error(f"the mask {mask.type_text} is not supported; attention_bias takes one with four dimensions")
    added = c.op("where", visible, c.like(0, query), c.like(float(c.attr("mask_filter_value", _HIDDEN)), query))
    wide = c.op("expand_dims", added, axis=1)
    return wide if wide.ndim == 4 else c.op("expand_dims", wide, axis=1)


# attention over a cache

_CACHE_INPUTS = {12: "k_scale", 13: "v_scale", 14: "q_norm_weight", 15: "k_norm_weight", 16: "query_seqlens"}
"""The inputs of GroupQueryAttention that are not supported."""


@contributed("GroupQueryAttention")
def group_query_attention(c: OnnxCall) -> tuple[Value, ...]:
    """Attention of heads that share keys in groups, over a cache of which each sequence has filled a part.

    A call that gives all positions begins the cache; another one appends its keys to what ``seqlens_k`` says is filled. The cache that comes
    back is as long as the longest sequence, or as the one given where that is longer; what is not filled is 0.
    """
    _refuse(c, "sliding_window_cache", "qk_output")
    if not c.attr("causal", 1):
        raise c.error("causal=0 is not supported; MultiHeadAttention sees all positions")
    for n, name in _CACHE_INPUTS.items():
        if c.has(n):
            raise c.error(f"its input {name} is not supported; export the model without it")
    heads, groups, query = c.attr("num_heads"), c.attr("kv_num_heads"), c.input(0)
    if c.has(1):
        parts = [query, c.input(1), c.input(2)]
    else:
        width = query.shape[2] // (heads + 2 * groups)
        ends = [0, heads * width, (heads + groups) * width, (heads + 2 * groups) * width]
        parts = [c.part(query, 2, a, b - a) for a, b in zip(ends, ends[1:], strict=False)]
    query, *new = [_heads(c, v, count) for v, count in zip(parts, (heads, groups, groups), strict=True)]
    rows = query.shape[2]
    earlier = [c.optional(n) for n in (3, 4)]
    filled = _filled_before(c, query, earlier[0])
    if c.attr("do_rotary", 0):
        at = c.cast(c.input(9), "int64") if c.has(9) else c.op("add", filled, c.places(rows, "int64", 1, 2))
        pairs = bool(c.attr("rotary_interleaved", 0))
        query, new[0] = [_rotated(c, v, at, c.input(7), c.input(8), 2, pairs) for v in (query, new[0])]
    keys, values = [v if e is None else _appended(c, e, v, filled) for e, v in zip(earlier, new, strict=True)]
    out = _shared(c, query, keys, values, filled)
    return _joined(c, out), keys, values


def _filled_before(c: OnnxCall, query: Value, earlier: Value | None) -> Value:
    """Returns how many positions of the cache are filled before the call, as (B, 1) of int64."""
    batch, _, rows, _ = query.shape
    begins = c.constant([[0]], "int64")
    if earlier is None:
        return begins
    (total,) = c.dims(6)
    if total is rows or (isinstance(total, int) and total == rows):
        return begins
    ends = c.cast(c.op("reshape", c.input(5), shape=(batch, 1)), "int64")
    before = c.op("subtract", ends, c.size(rows - 1, "int64"))
    if isinstance(total, int) and isinstance(rows, int):
        return before
    first = c.op("equal", c.size(total, "int64"), c.size(rows, "int64"))
    return c.op("where", first, begins, before)


def _appended(c: OnnxCall, earlier: Value, new: Value, filled: Value) -> Value:
    """Returns a cache (B, G, C, H) with new rows behind those that are filled, and 0 after these."""
    (total,), bound, rows = c.dims(6), earlier.shape[2], new.shape[2]
    longest = max(total, bound) if isinstance(total, int) and isinstance(bound, int) else dims([max_(convert(total), convert(bound))])[0]  # fmt: skip
    shape = (earlier.shape[0], earlier.shape[1], longest, earlier.shape[3])
    at = c.op("subtract", c.places(longest, "int64", 1, 2), filled)
    last = c.op("minimum", at, c.size(rows - 1, "int64"))
    behind = c.op("add", c.op("maximum", last, c.like(0, last)), c.size(bound, "int64"))
    old = c.op("less", at, c.like(0, at))
    index = c.op("where", old, c.places(longest, "int64", 1, 2), behind)
    place = c.op("reshape", index, shape=(*index.shape[:1], 1, longest, 1))
    found = looked_up(c, c.op("concatenate", earlier, new, axis=2), [0, 1, place, 3], shape)
    written = c.op("less", at, c.size(rows, "int64"))
    return c.op("where", c.op("reshape", written, shape=place.shape), found, c.like(0, found))


def _shared(c: OnnxCall, query: Value, keys: Value, values: Value, filled: Value) -> Value:
    """Returns attention (B, N, S, H) of queries that follow what is filled over keys that groups of heads share."""
    (heads, rows), (groups, columns) = query.shape[1:3], keys.shape[1:3]
    keys, values = [v if heads == groups else c.op("repeat", v, repeats=heads // groups, axis=1) for v in (keys, values)]  # fmt: skip
    window, bias, sink = c.attr("local_window_size", -1), c.optional(10), c.optional(11)
    cap, scale = float(c.attr("softcap", 0.0)), float(c.attr("scale", 0.0)) or None
    at = c.op("add", c.op("reshape", filled, shape=(*filled.shape[:1], 1, 1, 1)), c.places(rows, "int64", 2, 4))
    places = c.places(columns, "int64", 3, 4)
    visible = c.op("less_equal", places, at)
    if window > 0:
        visible = c.op("logical_and", visible, c.op("greater", places, c.op("subtract", at, c.like(window, at))))
    elif window != -1:
        raise c.error(
            f"local_window_size={window} is not supported; it is -1, or the number of positions that are seen"
        )
    if bias is not None and not same_shape(bias.shape[3:], (columns,)):
        bias = c.op("pad", bias, pad_before=(0,) * 4, pad_after=(0, 0, 0, columns - bias.shape[3]))
    if not cap and sink is None and not c.attr("smooth_softmax", 0):
        added = visible if bias is None else c.op("where", visible, bias, c.like(-math.inf, bias))
        return c.op("attention", query, keys, values, added, scale=scale)
    scores = c.op("matmul", c.cast(query, "float32"), c.op("transpose", c.cast(keys, "float32"), axes=(0, 1, 3, 2)))
    scores = c.op("multiply", scores, c.like(scale or 1 / math.sqrt(query.shape[3]), scores))
    if cap:
        scores = c.op("multiply", c.op("tanh", c.op("divide", scores, c.like(cap, scores))), c.like(cap, scores))
    if bias is not None:
        scores = c.op("add", scores, c.cast(bias, "float32"))
    scores = c.op("where", visible, scores, c.like(-math.inf, scores))
    if sink is None and not c.attr("smooth_softmax", 0):
        weights = c.op("softmax", scores, axis=3)
    else:  # one more score, whose weight is dropped
        more = c.like(0, scores) if sink is None else c.op("reshape", c.cast(sink, "float32"), shape=(1, heads, 1, 1))
        more = c.op("broadcast_to", more, shape=(*scores.shape[:3], 1))
        weights = c.part(c.op("softmax", c.op("concatenate", scores, more, axis=3), axis=3), 3, 0, columns)
    return c.cast(c.op("matmul", weights, c.cast(values, "float32")), query.dtype)
