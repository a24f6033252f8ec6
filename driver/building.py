"""This module builds whatever says what to compute: a function, several functions, a graph, or the file of a model.

A model becomes a :class:`~.models.model.Model` (:mod:`.models.model_building`); for a function :mod:`.planning` finds a schedule.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from .. import te
from ..codegen import Module, Target, compile
from ..graph.graph import Graph
from ..tir.expr import Var
from ..tuning_db import Database
from .models.model import Model
from .models.model_building import READING, GraphOptions, build_graph, is_model, load_model
from .planning import BuildError as BuildError
from .planning import Plan, in_order, plan_request, request, requests, require_known

log = logging.getLogger("tilewright")


@overload
def build(
    inputs: Graph | os.PathLike[str],
    target: str | Target = "native",
    *,
    name: str | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    **options: Any,
) -> Model: ...


@overload
def build(
    inputs: Any,
    target: str | Target = "native",
    *,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    name: str | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
) -> Module: ...


@overload
def build(
    inputs: te.Schedule,
    args: Sequence[te.Tensor | Var],
    target: str | Target = "native",
    *,
    name: str | None = None,
) -> Module: ...


def build(
    inputs: Any,
    *where: Any,
    target: str | Target | None = None,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    name: str | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    **options: Any,
) -> Any:
    """Compile ``inputs`` for ``target``; the result is callable on NumPy arrays, outputs last.

    ``build(inputs, target)``, and for a te schedule ``build(s, [A, B, C], target)``. ``inputs``: what
    :func:`.planning.request` takes; with a te schedule or a spec ``args`` are its tensors or parameters. Of a module of
    several functions, or a mapping of such inputs by name, all are built, and the result has them by name. A function
    that is not scheduled gets the best schedule that ``db`` has for it, else that of a near size, else the analytic
    model's best (:class:`~tilewright.tuner.Space` has all candidates), and ``module.origin`` says which. Records that this code generator measured come before those of other versions.
    ``require_tuned``: :class:`NoRecordError` instead of the analytic model's schedule. ``name`` is the symbol of the
    compiled function.

    A :class:`~tilewright.graph.Graph`, and a model that a front end reads (``model.onnx``, or an ONNX model in memory),
    become a :class:`~.models.model.Model`, which takes inputs and returns outputs. ``options`` are for them: ``shapes``
    and ``constants`` of inputs by name, which front ends take, and those of :class:`~.models.model_building.GraphOptions`.

    >>> import numpy as np
    >>> f = build("relu:M=1,N=4")
    >>> x, y = np.array([[-1, 2, -3, 4]], np.float32), np.empty((1, 4), np.float32)
    >>> f(x, y)
    >>> y.tolist()
    [[0.0, 2.0, 0.0, 4.0]]
    """
    machine, args = in_order(where, target, args)
    if is_model(inputs):
        if args is not None:
            raise TypeError("args for a model, which takes none; shapes= gives the shapes of its inputs")
        reading = {key: options.pop(key) for key in READING if key in options}
        require_known(options, GraphOptions, READING, "build")
        graph = load_model(inputs, **reading)
        graph = graph if name is None else replace(graph, name=name)
        return build_graph(graph, machine, db=db, require_tuned=require_tuned, **options)
    if options:
        unread = {key: value for key, value in options.items() if key not in READING}
        require_known(unread, GraphOptions, ("args", "db", "name", "target", *READING), "build")
        raise TypeError(f"build() takes {', '.join(options)} for models only, not for {type(inputs).__name__}")
    several = requests(inputs)
    if several is not None:
        if name is not None:
            raise ValueError(f"a name for {len(several)} functions; they keep their own")
        if args is not None:
            raise TypeError(f"args for {len(several)} functions, which take none")
        return _compile_together({key: plan_request(one, machine, db, require_tuned) for key, one in several.items()})
    made = plan_request(request(inputs, args, name), machine, db, require_tuned)
    log.info("%s: %s", made.request.func.name, made.origin)
    return made.compile()


def _compile_together(plans: Mapping[str, Plan]) -> Module:
    """Returns one module of several functions; its ``origin`` says where the schedule of each came from."""
    for name, made in plans.items():
        log.info("%s: %s", name, made.origin)
    target = next((made.target for made in plans.values()), "native")
    module = compile({name: made.scheduled for name, made in plans.items()}, target)
    module.origin = "; ".join([f"{name}: {made.origin}" for name, made in plans.items()])
    return module
