"""A model of which Python computes a part: the steps that work on texts, around a compiled graph."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ...codegen import ExportError, Target
from ...codegen.runtime.arguments import ArgumentError
from ...graph.graph import Graph, GraphError
from ...graph.host_graph import HostGraph
from ...tuning_db import Database
from .model import Model, inputs_in_order
from .model_building import build_graph
from .model_profile import Profile, profile_of


class HostModel:
    """A ``HostModel`` is called as a :class:`~.model.Model` is: with inputs in order or by name. Texts are arrays of
    Python's ``str``. ``model`` is the compiled part, None where Python computes all of it."""

    def __init__(self, graph: HostGraph, model: Model | None, target: Target | str) -> None:
        self.graph, self.model, self.target = graph, model, Target.of(target)
        self.name, self.inputs, self.outputs = graph.name, graph.inputs, graph.outputs
        self.steps = () if model is None else model.steps

    def __repr__(self) -> str:
        inputs = ", ".join(map(repr, self.inputs))
        outputs = ", ".join([v.type_text for v in self.outputs])
        return f"<HostModel {self.name}({inputs}) -> {outputs}: {self.origin} for {self.target}>"

    @property
    def origin(self) -> str:
        """Returns how many steps Python computes, and what :attr:`.model.Model.origin` says of the others."""
        told = f"{len(self.graph.steps)} steps in Python"
        return told if self.model is None else f"{told}, {self.model.origin}"

    def __call__(self, *inputs: Any, out: Any = None, **named: Any) -> Any:
        made = self._run(inputs, named, self.model)
        if out is not None:
            outs = list(out) if isinstance(out, (tuple, list)) else [out]
            if [np.shape(o) for o in outs] != [m.shape for m in made]:
                raise ArgumentError(f"{self.name}: out= has other shapes than {[list(m.shape) for m in made]}")
            for given, array in zip(outs, made, strict=True):
                given[...] = array
            made = tuple(outs)
        return made[0] if len(made) == 1 else made

    def profile(self, *inputs: Any, repeat: int = 10, **named: Any) -> Profile:
        """Returns how long each kernel of the compiled part takes; what Python computes is not counted."""
        model = self.model
        if model is None:
            return profile_of(self.name, [], self.target, {})
        found: list[Profile] = []

        def timed(*arrays: Any) -> Any:
            found.append(model.profile(*arrays, repeat=repeat))
            return model(*arrays)

        self._run(inputs, named, timed)
        return found[0]

    def export(self, path: str | os.PathLike[str], *_: Any, **__: Any) -> list[Path]:
        """Raise ExportError: a library has no Python for the steps."""
        step = self.graph.steps[0]
        raise ExportError(
            f"cannot export {self.name} to {Path(path).name!r}: {step.label} works on texts, which Python computes; "
            "a library has the compiled part only, and model.model is that part, where there is one"
        )

    def _run(self, inputs: Any, named: Any, compute: Any) -> tuple[Any, ...]:
        try:
            return self.graph.run(inputs_in_order(self.name, self.inputs, inputs, named), compute)
        except GraphError as error:
            raise ArgumentError(f"{self.name}: {error}") from error


def build_model(
    graph: Graph | HostGraph,
    target: str | Target = "native",
    *,
    db: Database | str | os.PathLike[str] | None = None,
    **options: Any,
) -> Model | HostModel:
    """Returns the compiled graph, with the steps around it that Python computes. See :func:`.model_building.build_graph`."""
    if isinstance(graph, Graph):
        return build_graph(graph, target, db=db, **options)
    model = None if graph.graph is None else build_graph(graph.graph, target, db=db, **options)
    return HostModel(graph, model, Target.of(target))
