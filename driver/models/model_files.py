"""This module reads models: a graph is one, and files and objects that a front end knows.

A front end is a function that returns a graph; it stands in the table by the suffix of its files. A package adds one by
an entry point of the group ``tilewright.frontends`` whose name is the suffix, as ``.onnx``.
"""

from __future__ import annotations

import errno
import importlib
import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from ...graph.graph import Graph

FRONTENDS: dict[str, str] = {
    ".onnx": "frontends.onnx:from_onnx",
    ".pt2": "frontends.torch:from_torch",
    ".jax": "frontends.stablehlo:from_stablehlo",
    ".mlir": "frontends.stablehlo:from_stablehlo",
    ".mlirbc": "frontends.stablehlo:from_stablehlo",
}
"""The front ends of this package: module and function, by the suffix of files."""

READING = ("shapes", "constants")
"""The options of building and tuning that front ends take."""

_OBJECTS = {
    ("onnx", "ModelProto"): ".onnx",
    ("torch", "ExportedProgram"): ".pt2",
    ("jax", "Exported"): ".jax",
    ("jaxlib", "Module"): ".mlir",
}
"""The classes whose objects are models, by package and name, and the suffix of their front end."""


def suffix_of(what: Any) -> str | None:
    """Returns the suffix of the front end that reads ``what``, or None when it is no model's file or object."""
    if isinstance(what, (str, os.PathLike)):
        suffix = Path(what).suffix.lower()
        return suffix if suffix in FRONTENDS or suffix in _plugins() else None
    return _OBJECTS.get((type(what).__module__.split(".")[0], type(what).__name__))


def is_model(what: Any) -> bool:
    """Returns whether :func:`load_model` takes ``what``."""
    return isinstance(what, Graph) or suffix_of(what) is not None


def load_model(what: Any, **options: Any) -> Graph:
    """Returns the graph of a model. ``options`` go to the front end, as ``shapes`` (of inputs, by name).

    TypeError for what is not a model, and for options with a graph.
    """
    if isinstance(what, Graph):
        if options:
            raise TypeError(f"a graph takes no {', '.join(options)}; they are for the file of a model")
        return what
    suffix = suffix_of(what)
    if suffix is None:
        raise TypeError(f"expected a Graph, or a model of {', '.join(FRONTENDS)}, not {type(what).__name__}")
    if isinstance(what, (str, os.PathLike)) and not os.path.exists(what):
        raise FileNotFoundError(errno.ENOENT, "there is no such file", os.fspath(what))
    frontend = _frontend(suffix)
    taken = inspect.signature(frontend).parameters
    untaken = [name for name in options if name not in taken]
    if untaken and not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        raise TypeError(f"models of the kind {suffix} take no {', '.join(untaken)}")
    graph = frontend(what, **options)
    assert isinstance(graph, Graph)
    return graph


def _frontend(suffix: str) -> Callable[..., Any]:
    if suffix not in FRONTENDS:
        return _plugins()[suffix]
    module, function = FRONTENDS[suffix].split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"...{module}", __package__), function)
    return found


_found: list[Mapping[str, Callable[..., Any]]] = []


def _plugins() -> Mapping[str, Callable[..., Any]]:
    """Returns the front ends of installed packages by suffix."""
    if not _found:
        out = {}
        for entry in entry_points(group="tilewright.frontends"):
            try:
                out[entry.name] = entry.load()
            except Exception as error:  # a plugin that raises any exception is left out
                package = entry.dist.name if entry.dist is not None else "?"
                warnings.warn(f"front end {entry.name!r} of the package {package!r} is broken: {error}", stacklevel=2)
        _found.append(out)
    return _found[0]
