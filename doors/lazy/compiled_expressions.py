"""This module has expressions, which are data or an operator applied to other expressions, and computes them.

They become a graph, which is compiled once for all expressions of one structure. Python numbers are constants of the
compiled graph at first. When the same structure comes with other numbers, it is compiled once more with the numbers as
inputs, so that a loop with a changing number compiles twice and not each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...driver.models.model_building import build_graph
from ...graph.attribute_keys import attributes_key
from ...graph.builder import Builder
from ...graph.graph import Graph, Value

_MOST = 1024
"""How many structures are kept."""


@dataclass(slots=True, eq=False)
class Expression:
    """An expression has a data type and a shape, and either ``data`` or what computes it.

    ``which`` is the number of the result of an operator with several. ``is_number``: the data is a Python number, which
    may become a constant. ``holder`` returns the array that stands for the expression, as long as somebody has it.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: Any = None
    is_number: bool = False
    op: str = ""
    inputs: tuple[Expression, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    which: int = 0
    depth: int = 0
    holder: Callable[[], Any] = type(None)

    def known(self, data: Any) -> None:
        """Set the value; what computed it is forgotten."""
        self.data, self.inputs, self.attrs, self.depth = data, (), {}, 0


def _unknown_in_order(asked: Iterable[Expression]) -> list[Expression]:
    """Returns the expressions to compute for those asked for, each after its operands, which are less deep."""
    found: dict[Expression, None] = {}
    waiting = list(asked)
    while waiting:
        e = waiting.pop()
        if e.data is None and e not in found:
            found[e] = None
            waiting += e.inputs
    return sorted(found, key=lambda e: e.depth)


settings = SimpleNamespace(target="native", db=None, compiled={})
"""What :func:`configure` sets, and the compiled graphs by structure: the numbers built in, and the model."""


def configure(*, target: Any = "native", db: Any = None) -> None:
    """Compile from now on for ``target``, with the records of ``db`` (a file)."""
    settings.target, settings.db, settings.compiled = target, db, {}


class Recording:
    """The expressions to compute for those asked for, and the data that they are made of. Outputs are those asked for, and
    others that somebody holds, whose values are worth keeping; those made of numbers alone are not."""

    def __init__(self, asked: Sequence[Expression]) -> None:
        self.order = _unknown_in_order(asked)
        held = [e for e in self.order if e.holder() is not None and not all(i.is_number for i in e.inputs)]
        self.outputs = list(dict.fromkeys([*[e for e in asked if e.data is None], *held]))
        self.known = list(dict.fromkeys([e for one in self.order for e in one.inputs if e.data is not None]))

    def structure(self) -> Any:
        """Returns a key that recordings share when they differ in data and numbers alone."""
        place = {e: n for n, e in enumerate([*self.known, *self.order])}
        given = [(e.dtype.name, e.shape, e.is_number) for e in self.known]
        steps = [(e.op, e.which, tuple([place[i] for i in e.inputs]), attributes_key(e.attrs)) for e in self.order]
        return tuple(given), tuple(steps), tuple([place[e] for e in self.outputs])

    def graph(self, numbers_inside: bool) -> Graph:
        """Returns the graph. Its inputs are the data, without the numbers if they are ``numbers_inside``."""
        b = Builder("lazy")
        values: dict[Expression, Value] = {}
        for e in self.known:
            inside = e.is_number and numbers_inside
            values[e] = b.constant(e.data) if inside else b.input(b.unused("x"), e.shape, e.dtype.name)
        for e in self.order:
            values[e] = b.several(e.op, *[values[i] for i in e.inputs], **e.attrs)[e.which]
        return b.graph([values[e] for e in self.outputs])


def compute(*asked: Expression) -> None:
    """Give all these expressions their data, and those that they are made of and somebody has."""
    now = Recording(asked)
    if not now.order:
        return
    structure, numbers = now.structure(), b"".join([e.data.tobytes() for e in now.known if e.is_number])
    built = settings.compiled.setdefault((structure, "numbers inside"), [numbers, None])
    if built[0] != numbers:
        built = settings.compiled.setdefault((structure, "numbers given"), [None, None])
    inside, model = built
    if model is None:
        model = built[1] = build_graph(now.graph(inside is not None), settings.target, db=settings.db, processes=0)
        while len(settings.compiled) > _MOST:
            settings.compiled.pop(next(iter(settings.compiled)))
    given = [np.require(e.data, requirements=["C", "A"]) for e in now.known if not (e.is_number and inside is not None)]
    made = [np.empty(e.shape, e.dtype) for e in now.outputs]
    model(*given, out=made)
    for e, data in zip(now.outputs, made, strict=True):
        e.known(data)


def graph_of(*arrays: Any) -> Graph:
    """Returns the graph that computes lazy arrays, and others that are held, from data that is there."""
    return Recording([a.expression for a in arrays]).graph(True)
