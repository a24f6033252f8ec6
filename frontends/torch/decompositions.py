"""This module takes operators apart that PyTorch's own tables leave whole.

They are layers, sums over bags of rows, special functions, order statistics, and scatters along diagonals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .aten_call import load_torch, operators_of_table


def core_decompositions() -> dict[Any, Callable[..., Any]]:
    """Returns PyTorch's decompositions into core operators, and those of this module."""
    return with_own(load_torch("_decomp").core_aten_decompositions())


def with_own(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Returns a table of decompositions with those of this module, and without those of operators that are one here.

    These are attention and the operators of the table of element-wise operators.
    """
    aten = load_torch().ops.aten
    whole = {name for name, _, _ in operators_of_table()}
    whole |= {"aten._scaled_dot_product_flash_attention_for_cpu.default", "aten._safe_softmax.default"}
    more = load_torch("_decomp").get_decompositions([aten.linalg_vector_norm, aten.dist, aten.adaptive_max_pool2d])
    return {
        **{operator: function for operator, function in {**table, **more}.items() if str(operator) not in whole},
        aten._native_multi_head_attention.default: heads_together,
        aten._transformer_encoder_layer_fwd.default: encoder_layer,
        aten._embedding_bag.default: embedding_bag,
        aten._embedding_bag_forward_only.default: embedding_bag,
        aten.i0.default: in_float64(bessel_i0),
        aten.special_i0e.default: in_float64(scaled_bessel_i0),
        aten.erfc.default: in_float64(erfc),
        aten.special_erfcx.default: in_float64(erfcx),
        aten.erfinv.default: in_float64(erfinv),
        aten.lgamma.default: in_float64(lgamma),
        aten.digamma.default: in_float64(digamma),
        aten.round.decimals: round_to_decimals,
        aten.var_mean.correction: variance_and_mean,
        aten.kthvalue.default: kth_value,
        aten.median.dim: median,
        aten.median.default: median_of_all,
        aten.nanmedian.dim: nan_median,
        aten.nanmedian.default: lambda x: median_of_all(x, nan_median),
        aten.mode.default: mode,
        aten.lcm.default: least_common_multiple,
        aten.searchsorted.Tensor: places_in_order,
        aten.searchsorted.Scalar: places_in_order,
        aten.bucketize.Tensor: lambda x, boundaries, **named: places_in_order(boundaries, x, **named),
        aten.bucketize.Scalar: lambda x, boundaries, **named: places_in_order(boundaries, x, **named),
        aten.histc.default: histogram,
        aten.unfold.default: unfold,
        aten.diagonal_scatter.default: diagonal_scatter,
    }


def histogram(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """Returns how many elements lie in each of ``bins`` parts from ``min`` to ``max``; equal ends: those of the data."""
    torch = load_torch()
    if not bins > 0 or not min <= max:
        return NotImplemented
    flat = x.reshape(-1)
    low, high = (flat.min(), flat.max()) if min == max and flat.numel() else (min, max)
    if min == max:
        alone = torch.as_tensor(low == high)
        low, high = torch.where(alone, low - 1, low), torch.where(alone, high + 1, high)
    place = ((flat - low) * bins / (high - low)).clamp(0, bins - 1).to(torch.int64)
    place = torch.where((flat >= low) & (flat <= high), place, bins)  # behind the last part: outside, and NaN
    counts = torch.zeros(bins + 1, dtype=torch.int64, device=x.device)
    return counts.scatter_add(0, place, torch.ones_like(place))[:bins].to(x.dtype)


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


def in_float64(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a function of numbers, computed in float64, with a result of the argument's data type, or float32 for integers."""

    def whole(x: Any) -> Any:
        torch = load_torch()
        kind = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
        return function(x.to(torch.float64)).to(kind)

    return whole


_I0_NEAR = (
    -4.4153416464793395e-18, 3.3307945188222384e-17, -2.431279846547955e-16, 1.715391285555133e-15,
    -1.1685332877993451e-14, 7.676185498604936e-14, -4.856446783111929e-13, 2.95505266312964e-12,
    -1.726826291441556e-11, 9.675809035373237e-11, -5.189795601635263e-10, 2.6598237246823866e-09,
    -1.300025009986248e-08, 6.046995022541919e-08, -2.670793853940612e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05, 0.00018850288509584165,
    -0.0005763755745385824, 0.0016394756169413357, -0.004324309995050576, 0.010546460394594998, -0.02373741480589947,
    0.04930528423967071, -0.09490109704804764, 0.17162090152220877, -0.3046826723431984, 0.6767952744094761,
)  # fmt: skip
_I0_FAR = (
    -7.233180487874754e-18, -4.830504485944182e-18, 4.46562142029676e-17, 3.461222867697461e-17,
    -2.8276239805165836e-16, -3.425485619677219e-16, 1.7725601330565263e-15, 3.8116806693526224e-15,
    -9.554846698828307e-15, -4.150569347287222e-14, 1.54008621752141e-14, 3.8527783827421426e-13,
    7.180124451383666e-13, -1.7941785315068062e-12, -1.3215811840447713e-11, -3.1499165279632416e-11,
    1.1889147107846439e-11, 4.94060238822497e-10, 3.3962320257083865e-09, 2.266668990498178e-08,
    2.0489185894690638e-07, 2.8913705208347567e-06, 6.889758346916825e-05, 0.0033691164782556943, 0.8044904110141088,
)  # fmt: skip
"""Chebyshev coefficients of exp(-x) · I₀(x) over x / 2 - 2, and of its product with √x over 32 / x - 2. The source is
Cephes, where 8 divides the two ranges."""


def scaled_bessel_i0(x: Any) -> Any:
    """Returns exp(-|x|) times the modified Bessel function of order 0."""
    torch = load_torch()
    x = x.abs()
    far = torch.clamp(x, min=8)
    near = _chebyshev(torch.clamp(x, max=8) / 2 - 2, _I0_NEAR)
    return torch.where(x <= 8, near, _chebyshev(32 / far - 2, _I0_FAR) / torch.sqrt(far))


def bessel_i0(x: Any) -> Any:
    """Returns the modified Bessel function of order 0."""
    return load_torch().exp(x.abs()) * scaled_bessel_i0(x)


def _chebyshev(x: Any, coefficients: Sequence[float]) -> Any:
    """Returns a sum of Chebyshev polynomials at ``x / 2``, by Clenshaw's recurrence; the first is of the highest order."""
    before, last, now = 0.0, 0.0, coefficients[0]
    for c in coefficients[1:]:
        before, last = last, now
        now = x * last - before + c
    return 0.5 * (now - before)


_ERFC = (
    -1.3026537197817094, 6.4196979235649026e-1, 1.9476473204185836e-2, -9.561514786808631e-3, -9.46595344482036e-4,
    3.66839497852761e-4, 4.2523324806907e-5, -2.0278578112534e-5, -1.624290004647e-6, 1.303655835580e-6, 1.5626441722e-8,
    -8.5238095915e-8, 6.529054439e-9, 5.059343495e-9, -9.91364156e-10, -2.27365122e-10, 9.6467911e-11, 2.394038e-12,
    -6.886027e-12, 8.94487e-13, 3.13092e-13, -1.12708e-13, 3.81e-16, 7.106e-15, -1.523e-15, -9.4e-17, 1.21e-16, -2.8e-17,
)  # fmt: skip


def erfc(x: Any) -> Any:
    """Returns ``1 - erf(x)`` without cancellation.

    A Chebyshev series of ``log(erfc(z) exp(z²) / t)`` in ``t = 2 / (2 + z)``, of Press et al., Numerical Recipes, 6.2.2.
    """
    z = x.abs()
    out = _scaled(z) * load_torch().exp(-z * z)
    return load_torch().where(x < 0, 2 - out, out)


def erfcx(x: Any) -> Any:
    """Returns ``exp(x²) erfc(x)`` without overflow."""
    out = _scaled(x.abs())
    return load_torch().where(x < 0, 2 * load_torch().exp(x * x) - out, out)


def _scaled(z: Any) -> Any:
    """Returns ``exp(z²) erfc(z)`` of numbers that are not negative."""
    t = 2 / (2 + z)
    y = 4 * t - 2
    last, before = t * 0, t * 0
    for c in _ERFC[:0:-1]:
        last, before = y * last - before + c, last
    return t * load_torch().exp(0.5 * (_ERFC[0] + y * last) - before)


def erfinv(x: Any) -> Any:
    """Returns the inverse of ``erf``: the approximation of Winitzki (2008), and three steps of Halley's method."""
    torch = load_torch()
    log, a = torch.log1p(-x * x), 0.147
    b = 2 / (math.pi * a) + log / 2
    y = torch.sign(x) * torch.sqrt((-log / a) / (torch.sqrt(b * b - log / a) + b))
    for _ in range(3):
        step = (torch.erf(y) - x) / (2 / math.sqrt(math.pi) * torch.exp(-y * y))
        y = y - step / (1 + y * step)
    return torch.where(x.abs() == 1, x * math.inf, y)


_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def lgamma(x: Any) -> Any:
    """Returns the logarithm of the absolute value of gamma: Lanczos' approximation, reflected below one half."""
    torch = load_torch()
    z = torch.where(x < 0.5, 1 - x, x) - 1
    t = z + 7.5
    series = z * 0 + _LANCZOS[0]
    for k, c in enumerate(_LANCZOS[1:], 1):
        series = series + c / (z + k)
    above = 0.5 * math.log(2 * math.pi) + ((z + 0.5) * torch.log(t) - t) + torch.log(series)
    sine = torch.sin(math.pi * (x - torch.floor(x)))
    out = torch.where(x < 0.5, math.log(math.pi) - torch.log(sine) - above, above)
    return torch.where(x.abs() == math.inf, math.inf, out)


_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""``B(2k) / 2k`` with the Bernoulli numbers, for the series of digamma."""


def digamma(x: Any) -> Any:
    """Returns the derivative of ``lgamma``: moved to 10 and above, where the series of Stirling holds; reflected below 0."""
    torch = load_torch()
    y = torch.where(x < 0, 1 - x, x)
    moved = y * 0
    for _ in range(10):
        low = y < 10
        moved = torch.where(low, moved - 1 / y, moved)
        y = torch.where(low, y + 1, y)
    inverse = 1 / (y * y)
    series = y * 0
    for c in reversed(_DIGAMMA):
        series = (series + c) * inverse
    out = torch.where(y == math.inf, y, torch.log(y) - 0.5 / y - series + moved)
    whole = x == torch.floor(x)
    reflected = torch.where(whole, math.nan, out - math.pi / torch.tan(math.pi * (x - torch.floor(x))))
    return torch.where(x == 0, -torch.copysign(torch.full_like(x, math.inf), x), torch.where(x < 0, reflected, out))


def round_to_decimals(x: Any, decimals: int = 0) -> Any:
    """Returns numbers rounded to so many digits after the point, halves to even as they are in binary."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    torch = load_torch()
    wide = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
    ten = 10.0 ** abs(decimals)
    return (torch.round(wide * ten) / ten if decimals >= 0 else torch.round(wide / ten) * ten).to(x.dtype)


def variance_and_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """Returns the variance and the mean. An infinity makes both NaN, as in PyTorch, whose running mean subtracts it from
    itself; the mean of a single element stays."""
    torch = load_torch()
    axes = list(range(x.dim())) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    variance, mean = torch.var(x, dim, correction=correction, keepdim=keepdim), x.mean(axes, keepdim)
    if x.is_complex() or all(x.shape[a] == 1 for a in axes if x.dim()):
        return variance, mean
    spread = torch.var(x, dim, correction=0, keepdim=keepdim)
    return variance, torch.where(spread.isnan(), math.nan, mean)


def _picked(x: Any, places: Any, dim: int, keepdim: bool) -> Any:
    values = x.gather(dim, places)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def kth_value(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Returns the k-th smallest element, and its place."""
    torch = load_torch()
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    return _picked(x, torch.sort(x, stable=True, dim=dim)[1].narrow(dim, k - 1, 1), dim, keepdim)


def median(x: Any, dim: int, keepdim: bool = False) -> Any:
    """Returns the lower median, and its place; NaN where there is one."""
    torch = load_torch()
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    places = torch.sort(x, stable=True, dim=dim)[1].narrow(dim, (x.shape[dim] - 1) // 2, 1)
    if x.dtype.is_floating_point:
        nan = torch.isnan(x)
        first = torch.argmax(nan.to(torch.uint8), dim, keepdim=True)
        places = torch.where(torch.any(nan, dim, keepdim=True), first, places)
    return _picked(x, places, dim, keepdim)


def median_of_all(x: Any, along: Any = median) -> Any:
    """Returns the lower median of all elements; NaN, or 0 of integers, where there are none."""
    if not x.numel():
        return x.new_full((), math.nan if x.dtype.is_floating_point else 0)
    return along(x.flatten(), 0)[0]


def mode(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """Returns the most frequent element, the smallest of several, and the last of its places. Each NaN counts alone."""
    torch = load_torch()
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, order = [t.movedim(dim, -1) for t in torch.sort(x, stable=True, dim=dim)]
    places = torch.arange(values.shape[-1])
    begins = torch.where(values[..., 1:] != values[..., :-1], places[1:], 0)
    begins = torch.cat([torch.zeros_like(begins[..., :1]) if begins.shape[-1] else torch.zeros_like(order), begins], -1)
    ends = torch.argmax(places - torch.cummax(begins, -1)[0], -1, keepdim=True)
    return _picked(x, order.gather(-1, ends).movedim(-1, dim), dim, keepdim)


def least_common_multiple(x: Any, y: Any) -> Any:
    """Returns the smallest number that both divide, 0 where one is 0."""
    torch = load_torch()
    divisor = torch.gcd(x, y)
    whole = torch.div(x, torch.where(divisor == 0, 1, divisor), rounding_mode="trunc")
    return (whole * y).abs()


def nan_median(x: Any, dim: int, keepdim: bool = False) -> Any:
    """Returns the lower median of what is not NaN, and its place."""
    torch = load_torch()
    if not x.dim() or not x.dtype.is_floating_point:
        return median(x, dim, keepdim)
    count = torch.sum(~torch.isnan(x), dim, keepdim=True)
    middle = torch.clamp((count - 1) // 2, min=0)
    return _picked(x, torch.sort(x, stable=True, dim=dim)[1].gather(dim, middle), dim, keepdim)


def places_in_order(
    row: Any, x: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None
) -> Any:
    """Returns how many elements of sorted rows lie before each number (or before and at it, from the ``right``)."""
    torch = load_torch()
    row = row if sorter is None else row.gather(-1, sorter)
    x = x if hasattr(x, "dtype") else torch.full((), x, dtype=torch.float64 if isinstance(x, float) else torch.int64)
    wide = row.unsqueeze(-2) if row.dim() > 1 else row
    above = wide > x.unsqueeze(-1) if right or side == "right" else wide >= x.unsqueeze(-1)
    return torch.sum(~above, -1).to(torch.int32 if out_int32 else torch.int64)


def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    """Returns windows along a dimension, whose elements lie along a new last one."""
    torch = load_torch()
    if not x.dim():
        return NotImplemented
    dim = dimension % x.dim()
    count = (x.shape[dim] - size) // step + 1
    places = torch.arange(count)[:, None] * step + torch.arange(size)
    windows = x.index_select(dim, places.reshape(-1))
    return windows.reshape(*x.shape[:dim], count, size, *x.shape[dim + 1 :]).movedim(dim + 1, -1)


def diagonal_scatter(x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Returns ``x`` with a diagonal from another array."""
    torch = load_torch()
    if source.numel() == 0:
        return x.clone()
    last = x.movedim((dim1, dim2), (-2, -1))
    row, column = torch.arange(last.shape[-2])[:, None], torch.arange(last.shape[-1])[None]
    place = (row if offset >= 0 else column).clamp(max=source.shape[-1] - 1)
    wide = source.to(x.dtype).index_select(-1, place.reshape(-1))
    shape = (last.shape[-2], 1) if offset >= 0 else (1, last.shape[-1])
    wide = wide.reshape(*source.shape[:-1], *shape)
    return torch.where(column - row == offset, wide, last).movedim((-2, -1), (dim1, dim2))
