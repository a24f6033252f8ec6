"""Arguments by name, and new arrays for those that a function writes and that were not given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...tir.analysis.known_sizes import evaluate
from ...tir.expr import Var, to_numpy
from ..lowered import Param
from .arguments import ArgumentError, Arguments, check_not_negative


def completed(
    arguments: Arguments, args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], list[np.ndarray]]:
    """Return all arguments in order, and those made here: arrays that are written and were not given.

    ``args`` come first, ``named`` by the names of the parameters. ArgumentError when an input is missing, and for a
    name that there is not or that is given twice.
    """
    names = [p.name for p in arguments.given]
    places: dict[int, Any] = dict(enumerate(args))
    for name, value in named.items():
        if names.count(name) != 1:
            raise ArgumentError(f"{arguments.name} has no argument {name!r}; it is {arguments.signature()}")
        if names.index(name) in places:
            raise ArgumentError(f"{arguments.name}: the argument {name} is given twice")
        places[names.index(name)] = value
    missing = [index for index in range(len(arguments.given)) if index not in places]
    if len(args) > len(arguments.given) or any(not arguments.given[index].writes for index in missing):
        raise ArgumentError(
            f"{arguments.name} takes {len(arguments.given)} arguments, {len(places)} were given; it is {arguments.signature()}"
        )
    known = _known_sizes(arguments, places)
    told = arguments.told_sizes([places.get(index) for index in range(len(arguments.given))])
    fresh = {index: _fresh(arguments, arguments.given[index], known, told) for index in missing}
    return [{**places, **fresh}[index] for index in range(len(arguments.given))], list(fresh.values())


def _known_sizes(arguments: Arguments, places: Mapping[int, Any]) -> dict[Var, int]:
    """Return the sizes that the given arguments tell."""
    known: dict[Var, int] = {}
    arrays = []
    for index, arg in places.items():
        param = arguments.given[index]
        if param.kind == "buffer":
            arrays.append((index, param, arguments.view(index, param, arg)))
        else:
            arguments.scalar(index, param, arg, known)
    arguments.bind_sizes(arrays, known)
    return known


def _fresh(arguments: Arguments, param: Param, known: dict[Var, int], told: Mapping[Var, str]) -> np.ndarray:
    assert param.buffer is not None
    shape = [evaluate(extent, known) for extent in param.buffer.shape]
    if param.buffer.strides or None in shape:
        raise ArgumentError(
            f"{arguments.name}: the array {param.name} has to be given: its "
            f"{'strides are its own' if param.buffer.strides else 'shape does not follow from the others'}"
        )
    check_not_negative(arguments.name, param.name, param.buffer.shape, [n for n in shape if n is not None], told)
    return np.zeros([n for n in shape if n is not None], to_numpy(param.dtype))
