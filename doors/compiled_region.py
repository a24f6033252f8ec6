"""This module runs one graph of torch.compile: it is built when it is called first, and again for other threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..frontends.torch import load_torch
from .compile_options import CompileOptions
from .compiled_graph import CompiledGraph, FixedGraph, SymbolicGraph, Traced
from .said_once import say

_MOST_CHANGES = 3
"""After so many changes, parameters are inputs of the library and no longer its constants."""


class Region:
    """A region of a program. It is built when it is called first, since only then the parameters are there; an error
    makes it run eagerly from then on. ``single``: the graph returns one value, not a list.

    One library serves all sizes of dynamic dimensions up to a bound, and is made again for larger ones. Where a graph
    cannot be read so, there is a library for each size.
    """

    def __init__(self, gm: Any, options: CompileOptions) -> None:
        self.traced = Traced.of(gm, options)
        self.single = self.traced.single
        self.is_fixed = all(_is_fixed(n.meta.get("val")) for n in self.traced.holders)
        self.is_symbolic = not self.is_fixed
        self.held: list[int] | None = None
        self.changes = 0
        self.built: dict[Any, CompiledGraph] = {}
        self.failed = False
        self._threads = load_torch().get_num_threads
        self._last: CompiledGraph | None = None

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        last = self._last
        try:
            if last is not None and last.threads == self._threads() and last.fits(args):
                return last.run(args)
            if not self.failed:
                found = self._found(args)
                self._last = found if found.checks_sizes or self.is_fixed else None
                return found.run(args)
        except Exception as error:  # an error here must not take the user's program down
            if self.traced.options.strict:
                raise
            self.failed, self._last = True, None
            say(f"a graph runs eagerly: {type(error).__name__}: {error}")
        out = self.traced.gm(*args)
        return out if isinstance(out, (list, tuple)) else [out]

    def _found(self, args: Sequence[Any]) -> CompiledGraph:
        """Returns what was built for such inputs before, or builds it."""
        threads = self._threads()
        if self.held is None:
            self.held = [n for n, a in enumerate(args) if _is_held(a)]
        key = threads if self.is_fixed or self.is_symbolic else (threads, *[_size(a) for a in args])
        built = self.built.get(key)
        if built is not None and built.fits(args):
            return built
        if built is not None and built.is_outdated(args):
            self._changed()
        made = self._symbolic(args, threads) if self.is_symbolic else None
        if made is None:
            key = threads if self.is_fixed else (threads, *[_size(a) for a in args])
            made = FixedGraph(self.traced, args, self.held, threads)
        self.built[key] = made
        return made

    def _symbolic(self, args: Sequence[Any], threads: int) -> CompiledGraph | None:
        """Returns the graph built for all sizes up to a bound; None where it cannot be read so."""
        try:
            return SymbolicGraph(self.traced, args, self.held or [], threads)
        except Exception:  # converters raise errors of many classes for sizes that are no numbers
            self.is_symbolic = False
            return None

    def _changed(self) -> None:
        """Count a change of parameters; those that change often become inputs."""
        self.changes += 1
        if self.changes >= _MOST_CHANGES:
            self.held = []


def _is_fixed(val: Any) -> bool:
    """Returns whether a graph's input always has the same sizes."""
    if not hasattr(val, "dtype"):
        return isinstance(val, (int, float, bool)) or val is None
    return all(isinstance(d, int) for d in val.shape)


def _is_held(a: Any) -> bool:
    """Returns whether an input is a parameter or a buffer that is not trained now."""
    kept = type(a).__name__ == "Parameter" or hasattr(a, "_dynamo_static_input_type")
    return kept and not load_torch().is_grad_enabled()


def _size(a: Any) -> Any:
    return (a.shape, a.dtype) if hasattr(a, "dtype") else a
