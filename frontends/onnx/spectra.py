"""Converters of Fourier transforms, as products with matrices of sines and cosines."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.graph import Value
from ..common import product
from .call import LARGEST_TABLE, OnnxCall, converter

_LONGEST = 1 << 14
"""Longer transforms would need too large a matrix."""


@converter("DFT")
def dft(c: OnnxCall) -> Value:
    x = c.input(0)
    axis = c.attr("axis", 1) if c.opset < 20 else -2 if c.optional(2) is None else int(np.ravel(c.known(2))[0])
    if not -x.ndim <= axis < x.ndim - 1 or axis == -1:
        raise c.error(f"axis {axis} of {x.type_text}")
    axis %= x.ndim
    inverse, onesided = bool(c.attr("inverse", 0)), bool(c.attr("onesided", 0))
    extent = x.shape[axis]
    if not isinstance(extent, int):
        raise c.error(f"axis {axis} of {x.type_text} has no known size")
    usual = 2 * (extent - 1) if inverse and onesided else extent
    length = usual if c.optional(1) is None else int(np.ravel(c.known(1))[0])
    order = [*[d for d in range(x.ndim - 1) if d != axis], axis, x.ndim - 1]
    turned = x if axis == x.ndim - 2 else c.op("transpose", x, axes=tuple(order))
    out = transformed(c, turned, length, inverse, onesided)
    return out if axis == x.ndim - 2 else c.op("transpose", out, axes=tuple([order.index(d) for d in range(x.ndim)]))


def transformed(c: OnnxCall, x: Value, length: int, inverse: bool, onesided: bool) -> Value:
    """Returns the transform along the last but one axis. The last axis has the real, or the real and imaginary
    parts."""
    parts, extent = x.shape[-1], x.shape[-2]
    if parts not in (1, 2) or not isinstance(extent, int) or not 0 < length <= _LONGEST:
        raise c.error(f"a transform of length {length} of {x.type_text} is not supported")
    used = min(extent, length // 2 + 1 if inverse and onesided else length)
    if used < extent:
        x = c.op("strided_slice", x, begin=(0,) * x.ndim, end=(*x.shape[:-2], used, parts))
    c.limit((used, length), 1 << 25)
    matrix = _matrix(used, parts, length, inverse, onesided)
    count = matrix.shape[2]
    flat = c.op("reshape", x, shape=(*x.shape[:-2], used * parts))
    made = product(c, flat, c.constant(matrix.reshape(used * parts, -1), x.dtype))
    return c.op("reshape", made, shape=(*x.shape[:-2], count, matrix.shape[3]))


def _matrix(used: int, parts: int, length: int, inverse: bool, onesided: bool) -> Any:
    """Returns the share of each part of each input in each part of each output: (input, part, output, part)."""
    outputs = length if inverse or not onesided else length // 2 + 1
    angle = 2 * np.pi * ((np.arange(used)[:, None] * np.arange(outputs)[None, :]) % length) / length
    cos, sin = np.cos(angle), np.sin(angle) * (-1 if inverse else 1)
    matrix = np.empty((used, 2, outputs, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cos, -sin
    matrix[:, 1, :, 0], matrix[:, 1, :, 1] = sin, cos
    if inverse:
        matrix /= length
    if inverse and onesided:  # what is left out is the conjugate of what is there
        twice = np.full(used, 2.0)
        twice[0] = 1
        if length % 2 == 0 and used == length // 2 + 1:
            twice[-1] = 1
        return (matrix * twice[:, None, None, None])[:, :parts, :, :1]
    return matrix[:, :parts]


@converter("STFT")
def stft(c: OnnxCall) -> Value:
    x, window = c.input(0), c.optional(2)
    step = int(np.ravel(c.known(1))[0])
    extent = x.shape[1]
    length = window.shape[0] if window is not None else extent
    if c.optional(3) is not None:
        length = int(np.ravel(c.known(3))[0])
    if not isinstance(extent, int) or not isinstance(length, int) or step < 1 or not 0 < length <= extent:
        raise c.error(f"frames of {length} elements, {step} apart, of {x.type_text}")
    frames = (extent - length) // step + 1
    c.limit((frames, length), LARGEST_TABLE)
    index = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    cut = c.op("take", x if x.ndim == 3 else c.op("expand_dims", x, axis=x.ndim), c.constant(index), axis=1)
    if window is not None:
        cut = c.op("multiply", cut, c.op("reshape", window, shape=(length, 1)))
    return transformed(c, cut, length, False, bool(c.attr("onesided", 1)))
