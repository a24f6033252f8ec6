"""This module computes expressions: they become a graph, which is compiled once for all expressions of one structure.

Python numbers are constants of the compiled graph at first. When the same structure comes with other numbers, it is
compiled once more with the numbers as inputs, so that a loop with a changing number compiles twice and not each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...driver.models.model_building import build_graph
from ...graph.attribute_keys import attributes_key
from ...graph.builder import Builder
from ...graph.graph import Graph, Value
from .expression import Expression, unknown_in_order

_MOST = 1024
"""How many structures are kept."""


@dataclass
class Settings:
    """The settings of :func:`configure`, and the compiled graphs by structure: the numbers built in, and the model."""

    target: Any = "native"
    db: Any = None
    compiled: dict[Any, tuple[Any, Any]] = field(default_factory=dict)


settings = Settings()


def configure(*, target: Any = "native", db: Any = None) -> None:
    """Compile from now on for ``target``, with the records of ``db`` (a file)."""
    settings.target, settings.db, settings.compiled = target, db, {}


class Recording:
    """The expressions to compute for those asked for, which are the outputs together with others that are held."""

    def __init__(self, asked: Sequence[Expression]) -> None:
        self.order = unknown_in_order(list(asked))
        held = [e for e in self.order if e.is_held]
        self.outputs = list(dict.fromkeys([*[e for e in asked if e.data is None], *held]))
        known = dict.fromkeys([e for one in self.order for e in one.inputs if e.data is not None])
        self.numbers = [e for e in known if e.is_number]
        self.leaves = [e for e in known if not e.is_number]

    def structure(self) -> Any:
        """Returns a key that recordings share when they differ in data and numbers alone."""
        place = {e: n for n, e in enumerate([*self.numbers, *self.leaves, *self.order])}
        given = [(e.dtype.name, e.shape, e.is_number) for e in (*self.numbers, *self.leaves)]
        steps = [(e.op, e.which, tuple([place[i] for i in e.inputs]), attributes_key(e.attrs)) for e in self.order]
        return tuple(given), tuple(steps), tuple([place[e] for e in self.outputs])

    def graph(self, numbers_inside: bool) -> Graph:
        """Returns the graph. Its inputs are the numbers, unless they are ``numbers_inside``, and the leaves."""
        b = Builder("lazy")
        values: dict[Expression, Value] = {}
        for e in self.numbers:
            dtype = e.dtype.name
            values[e] = b.constant(e.data, dtype=dtype) if numbers_inside else b.input(b.unused("number"), (), dtype)
        for e in self.leaves:
            values[e] = b.input(b.unused("x"), e.shape, e.dtype.name)
        for e in self.order:
            values[e] = b.several(e.op, *[values[i] for i in e.inputs], **e.attrs)[e.which]
        return b.graph([values[e] for e in self.outputs])


def compute(*asked: Expression) -> None:
    """Give all these expressions their data, and those that they are made of and somebody has."""
    now = Recording(asked)
    if not now.order:
        return
    key, numbers = now.structure(), b"".join([e.data.tobytes() for e in now.numbers])
    inside, model = settings.compiled.get(key, (numbers, None))
    if inside != numbers:
        key, inside = (key, "numbers are inputs"), None
        model = settings.compiled.get(key, (None, None))[1]
    if model is None:
        if len(settings.compiled) >= _MOST:
            settings.compiled.pop(next(iter(settings.compiled)))
        model = build_graph(now.graph(inside is not None), settings.target, db=settings.db, processes=0)
        settings.compiled[key] = inside, model
    given = now.leaves if inside is not None else [*now.numbers, *now.leaves]
    made = [np.empty(e.shape, e.dtype) for e in now.outputs]
    model(*[np.ascontiguousarray(e.data).reshape(e.shape) for e in given], out=made)
    for e, data in zip(now.outputs, made, strict=True):
        e.known(data)


def graph_of(*arrays: Any) -> Graph:
    """Returns the graph that computes lazy arrays, and others that are held, from data that is there."""
    return Recording([a.expression for a in arrays]).graph(True)
