"""Packs the layout-free parameters of compiled functions ahead of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tir.expr import array_bytes, to_numpy
from ..backend.storage import CACHE_LINE

if TYPE_CHECKING:
    from .module import Module


def pack_weights(module: Module, weights: Sequence[Any], name: str) -> Any:
    """Returns the weights of the function ``name`` in the layout that it takes: see :meth:`.module.Module.pack_weights`."""
    steps = module._packing.get(name, {})
    if not steps:
        raise ValueError(f"{name} has no layout-free parameters; its PrimFunc's layout_free_buffers would name them")
    if len(weights) != len(steps):
        own = module._lowered[name].params
        which = ", ".join(
            module._lowered[step].params[0].name if step else own[n].name for n, step in sorted(steps.items())
        )
        raise ValueError(f"{name} packs {len(steps)} arrays ({which}), not {len(weights)}")
    packed = [_packed(module, steps[n], w) for n, w in zip(sorted(steps), weights, strict=True)]
    return packed[0] if len(packed) == 1 else tuple(packed)


def _packed(module: Module, step: str, weight: Any) -> Any:
    if not step:
        return weight
    made = module._lowered[step].params[1].buffer
    assert made is not None
    shape = [int(e) for e in made.shape]  # type: ignore[call-overload]
    size = array_bytes(shape, made.dtype.element)
    room = np.zeros(size + CACHE_LINE, np.uint8)  # panels that begin at a cache line need no reads across lines
    out = room[-room.ctypes.data % CACHE_LINE :][:size].view(to_numpy(made.dtype)).reshape(shape)
    module[step](weight, out)
    return out


def packed_arguments(module: Module, arguments: Sequence[Any]) -> list[Any]:
    """Returns the arguments of the only function with its layout-free parameters packed."""
    steps = module._packing.get(module._main(), {})
    return [_packed(module, steps[n], a) if n in steps else a for n, a in enumerate(arguments)]
