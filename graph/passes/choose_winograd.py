"""This pass lets convolutions of 3 x 3 windows use fewer multiplications where that is predicted to be faster."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...te.ops import winograd_weights
from ..graph import Graph, Node, Value
from ..kernels import Services, kernel_alone
from ..rules import Match, any_value, constant, either, op, rewritten, rule

_FASTER = 1.2
"""How many times as fast as the convolution it replaces Winograd's method has to be by prediction."""

_BANDWIDTH = 2e10
"""Bytes of weights that arrive from memory in a second. Predictions take weights to be in a cache, and these are more."""

_TILES = (4, 2)

_ERRORS = {4: 2.5e-7, 2: 4e-8}
"""The root mean square of the errors of float32 results, relative to that of the results, over the root of the number of
channels. Measured against float64 from 16 to 1024 channels, with uniform and with rectified normal data; the plain
convolution has 5.5e-8."""


def winograd_error(tile: int, channels: int) -> float:
    """Returns the root mean square error of a convolution by tiles of that size, relative to its results.

    The errors of single results are about normal: in a large layer the largest is five times as much and more.

    >>> f"{winograd_error(4, 256):.1e}, {winograd_error(2, 256):.1e}"
    '4.0e-06, 6.4e-07'
    """
    return _ERRORS[tile] * math.sqrt(channels)


def choose_winograd(graph: Graph, services: Services = Services()) -> Graph:
    """Compute convolutions by Winograd's method where that is predicted to be clearly faster.

    Before::

        y = conv2d(x, w, bias, layout="NHWC", padding=1)

    After::

        y = winograd_conv2d(x, w_1, bias, padding=1)

    Only float32 with constant, finite weights and constant sizes, but for the number of images, and tiles up to those that ``services`` allow, by
    their size and by the accuracy that was asked for.
    """
    if not services.winograd or services.seconds is None:
        return graph
    seconds = services.seconds
    known: dict[object, int] = {}
    made: dict[tuple[Value, int], np.ndarray[Any, Any]] = {}

    def predicted(node: Node, name: str, weight: Value) -> float:
        attrs = node.attrs if name == node.op else {"padding": node.attrs.get("padding", 0)}
        inputs = [_of_one(next(node.given)), weight, *node.inputs[2:]]
        more = weight.bytes / _BANDWIDTH
        return more + seconds(kernel_alone("convolution", name, inputs, attrs))

    def best_tile(node: Node, weight: Value) -> int:
        """Returns the size of the tiles; 0 where the convolution stays as it is."""
        key = *[(v.dtype, v.shape) for v in node.given], str(node.attrs.get("padding", 0))
        if key not in known:
            times = {0: predicted(node, node.op, weight) / _FASTER}
            for tile in _TILES:
                error = winograd_error(tile, int(weight.shape[2]))
                if tile <= services.winograd and (services.accuracy is None or error <= services.accuracy):
                    shape = (tile + 2, tile + 2, *weight.shape[2:])
                    times[tile] = predicted(node, "winograd_conv2d", Value("u", weight.dtype, shape))
            known[key] = min(times, key=times.__getitem__)
        return known[key]

    @rule(
        either(op("conv2d", any_value("x"), constant("w")), op("conv2d", any_value("x"), constant("w"), any_value("b")))
    )
    def fewer_products(m: Match) -> Value | None:
        """A convolution is products of transformed pieces of the data, and of transformed weights."""
        if not _is_plain(m.root):
            return None
        tile = best_tile(m.root, m["w"])
        if not tile:
            return None
        key = m["w"], tile  # convolutions that share their weights share them transformed as well
        made[key] = made[key] if key in made else winograd_weights(m.array("w"), tile)
        if not np.isfinite(made[key]).all():
            return None
        weight = m.constant(made[key], m["w"].dtype)
        padding = m.root.attrs.get("padding", 0)
        return m.op("winograd_conv2d", m.root.inputs[0], weight, *m.root.inputs[2:], padding=padding)

    return rewritten(graph, (fewer_products,))


def _is_plain(node: Node) -> bool:
    """Returns whether Winograd's method can compute the convolution."""
    weight, given = node.inputs[1], list(node.given)
    assert weight is not None
    ones = all(_every(node.attrs.get(name, 1)) == {1} for name in ("stride", "dilation", "groups"))
    return (
        ones
        and weight.shape[:2] == (3, 3)
        and node.attrs.get("layout") == "NHWC"
        and not node.attrs.get("kernel_layout")
        and not node.attrs.get("out_dtype")
        and all(v.dtype == "float32" for v in given)
        and all(v.is_static for v in (_of_one(given[0]), *given[1:]))
        and math.prod(_of_one(node.output).shape) > 0
    )


def _of_one(data: Value) -> Value:
    """Returns data of one image where their number is symbolic."""
    return data if isinstance(data.shape[0], int) else Value(data.name, data.dtype, (1, *data.shape[1:]))


def _every(value: object) -> set[object]:
    return set(value) if isinstance(value, (tuple, list)) else {value}
