"""This module takes parts of arrays, and sets them; keys are those of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from .expression import Expression, leaf, number, record
from .lazy_types import promoted
from .operands import broadcast, cast, operand


def moved(e: Expression, places: Any) -> Expression:
    """Returns the elements at ``places``, an array of positions in the flat array."""
    flat = record("reshape", e, shape=(int(np.prod(e.shape)),))
    return record("take", flat, leaf(np.asarray(places, np.int64)), axis=0, mode="fast")


def positions(shape: tuple[int, ...]) -> Any:
    """Returns the position of each element in the flat array."""
    return np.arange(int(np.prod(shape))).reshape(shape)


def part(e: Expression, key: Any) -> Expression:
    """Returns ``e[key]``. Arrays in the key are computed at once, since masks decide the shape."""
    keys = _plain(key)
    if e.data is not None:
        return leaf(np.asarray(e.data[keys]))
    if any(not (k is None or k is Ellipsis or isinstance(k, (int, slice))) for k in keys):
        return moved(e, positions(e.shape)[keys])
    shape = np.broadcast_to(0, e.shape)[keys].shape
    named = [k for k in keys if k is not None]
    at = named.index(Ellipsis) if Ellipsis in named else len(named)
    every = [slice(None)] * (len(e.shape) - len(named) + (at < len(named)))
    spans = []
    for k, extent in zip([*named[:at], *every, *named[at + 1 :]], e.shape, strict=True):
        first, last, step = (k if isinstance(k, slice) else slice(k % extent, k % extent + 1)).indices(extent)
        spans.append((first, last if last >= 0 else -extent - 1, step))
    begin, end, strides = zip(*spans, strict=True) if spans else ((), (), ())
    return record("reshape", record("strided_slice", e, begin=begin, end=end, strides=strides), shape=shape)


def with_part(e: Expression, key: Any, value: Any) -> Expression:
    """Returns ``e`` with ``value`` at ``key``: each element is the old one, or that of the value which belongs there."""
    chosen, new = positions(e.shape)[_plain(key)], operand(value, e.dtype)
    if promoted(e.dtype, new.dtype) != e.dtype:
        raise TypeError(f"elements of {e.dtype} cannot be set to {new.dtype}; convert it with astype")
    new = broadcast(cast(new, e.dtype), chosen.shape)
    if not chosen.size:
        return e
    source = np.full(e.shape, -1)
    source.reshape(-1)[chosen.reshape(-1)] = np.arange(chosen.size)
    old = record("less", leaf(source), number(0, source.dtype))
    return record("where", old, e, moved(new, np.maximum(source, 0)))


def _plain(key: Any) -> tuple[Any, ...]:
    keys = key if isinstance(key, tuple) else (key,)
    return tuple([np.asarray(k) if hasattr(k, "expression") or isinstance(k, list) else k for k in keys])
