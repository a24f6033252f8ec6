"""This module takes operators apart that PyTorch's own tables leave whole: layers in one call, sums over bags of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .torch_package import load_torch


def core_decompositions() -> dict[Any, Callable[..., Any]]:
    """Returns PyTorch's decompositions into core operators, and those of this module."""
    return with_own(load_torch("_decomp").core_aten_decompositions())


def with_own(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Returns a table of decompositions with those of this module, and without attention's, which is one operator here."""
    aten = load_torch().ops.aten
    whole = (aten._scaled_dot_product_flash_attention_for_cpu.default, aten._safe_softmax.default)
    return {
        **{operator: function for operator, function in table.items() if operator not in whole},
        aten._native_multi_head_attention.default: heads_together,
        aten._transformer_encoder_layer_fwd.default: encoder_layer,
        aten._embedding_bag.default: embedding_bag,
        aten._embedding_bag_forward_only.default: embedding_bag,
    }


def heads_together(q: Any, k: Any, v: Any, width: int, heads: int, *rest: Any) -> Any:
    """Returns what ``torch.nn.MultiheadAttention`` computes in inference, and the weights; a call with a mask stays whole."""
    weight, bias, out_weight, out_bias, mask, need_weights, average = (*rest, *(None, True, True)[len(rest) - 4 :])[:7]
    if mask is not None:
        return NotImplemented
    f = load_torch("nn.functional")
    every = zip((q, k, v), weight.chunk(3), bias.chunk(3), strict=True)
    parts = [f.linear(x, w, b).unflatten(-1, (heads, width // heads)).transpose(1, 2) for x, w, b in every]
    if need_weights:
        weights = (parts[0] @ parts[1].transpose(-2, -1) * (width // heads) ** -0.5).softmax(-1)
        mixed, weights = weights @ parts[2], weights.mean(1) if average else weights
    else:
        mixed, weights = f.scaled_dot_product_attention(*parts), q.new_empty(0)
    return f.linear(mixed.transpose(1, 2).flatten(2), out_weight, out_bias), weights


def encoder_layer(x: Any, width: int, heads: int, *rest: Any) -> Any:
    """Returns what a layer of ``torch.nn.TransformerEncoder`` computes in inference; one with a mask stays whole."""
    qkv_weight, qkv_bias, out_weight, out_bias, use_gelu, norm_first, epsilon, *more = rest
    if any(mask is not None for mask in more[8:]):
        return NotImplemented
    f = load_torch("nn.functional")
    first, second = more[:2], more[2:4]
    up, up_bias, down, down_bias = more[4:8]

    def attention(x: Any) -> Any:
        parts = f.linear(x, qkv_weight, qkv_bias).chunk(3, -1)
        q, k, v = [t.unflatten(-1, (heads, width // heads)).transpose(1, 2) for t in parts]
        return f.linear(f.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2), out_weight, out_bias)

    def dense(x: Any) -> Any:
        inner = f.linear(x, up, up_bias)
        return f.linear(f.gelu(inner) if use_gelu else f.relu(inner), down, down_bias)

    for part, norm in ((attention, first), (dense, second)):
        if norm_first:
            x = x + part(f.layer_norm(x, (width,), *norm, epsilon))
        else:
            x = f.layer_norm(x + part(x), (width,), *norm, epsilon)
    return x


def embedding_bag(weight: Any, indices: Any, offsets: Any, *rest: Any) -> Any:
    """Returns sums (``mode`` 0) or means (1) of rows of a table over bags, and the bag of each row. Maxima stay whole.

    The bag of a row is the number of bags that begin before it, less one.
    """
    _, mode, _, weights, with_last, padding = (*rest, *(False, 0, False, None, False, -1)[len(rest) :])[:6]
    if mode not in (0, 1) or indices.dim() != 1:
        return NotImplemented
    torch = load_torch()
    begins = offsets[:-1] if with_last else offsets
    place = torch.arange(indices.shape[0], device=indices.device)
    bag = (place[:, None] >= begins[None, :]).sum(1) - 1
    rows = weight[indices]
    rows = rows if weights is None else rows * weights[:, None]
    one = torch.ones_like(indices)
    if padding >= 0:
        kept = indices != padding
        one, rows = kept.to(indices.dtype), torch.where(kept[:, None], rows, torch.zeros_like(rows))
    out = torch.zeros((begins.shape[0], weight.shape[1]), dtype=rows.dtype, device=rows.device)
    out = out.index_put((bag,), rows, accumulate=True)
    count = torch.zeros_like(begins).index_put((bag,), one.to(begins.dtype), accumulate=True)
    if mode == 1:
        out = out / count.clamp(min=1)[:, None].to(out.dtype)
    return out, bag, count, torch.zeros_like(begins)
