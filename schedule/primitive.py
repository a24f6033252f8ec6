"""This module defines the decorator that makes a function over PrimFuncs a method of ``Schedule``.

    @primitive
    def parallel(func: PrimFunc, loop: Var) -> PrimFunc: ...

makes ``Schedule.parallel(loop)``. The method takes its name, arguments and documentation from the function. The step is
recorded in the trace, and a :class:`ScheduleError` from the function gets the primitive's name and the program. What a
function receives and returns:

=========  ======================================================  ================================================
kind       called as                                               returns
=========  ======================================================  ================================================
rewrite    ``f(func, ...)``                                        the new function; or (function, outputs); or
                                                                   (function, outputs, renamed) with ``renamed``
                                                                   mapping old block names to new ones, so that
                                                                   handles of a renamed block stay valid
query      ``f(func, ...)``                                        outputs; the function stays
sample     ``f(func, ..., decision=None, rng)``                    (decision, outputs); the function stays
=========  ======================================================  ================================================

Blocks arrive as names (``str``), loops as variables, sampled numbers as their values. Outputs are a handle, a value
or a list of them: :class:`BlockRV` for a block, a loop's ``Var`` for a loop.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from ..tir.expr.deep_recursion import with_room

F = TypeVar("F", bound=Callable[..., Any])

KINDS = ("rewrite", "query", "sample")


@dataclass(frozen=True, eq=False)
class Primitive:
    """A registered primitive: ``function`` as it was written, and ``signature`` as the method has it."""

    name: str
    function: Callable[..., Any]
    kind: str
    signature: inspect.Signature
    binder: Callable[..., dict[str, Any]]
    prepare: Callable[..., dict[str, Any]] | None = None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, defaults filled in, ``*args`` as a tuple; TypeError when they do not fit."""
        try:
            return self.binder(*args, **kwargs)
        except TypeError:
            try:
                self.signature.bind(*args, **kwargs)  # it says better than a call what does not fit
            except TypeError as error:
                binding = error
            plain = [p.replace(annotation=p.empty) for p in self.signature.parameters.values()]
            raise TypeError(f"{self.name}: {binding}; it is {self.name}{inspect.Signature(plain)}") from None

    def complete(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments that were given by name (``*args`` as a sequence) in the form of :meth:`bind`; TypeError
        likewise."""
        out: dict[str, Any] = {}
        for name, parameter in self.signature.parameters.items():
            if name in named:
                out[name] = named[name]
            elif parameter.kind is parameter.VAR_POSITIONAL:
                out[name] = ()
            elif parameter.default is parameter.empty:
                raise TypeError(f"{self.name}: the argument {name!r} is missing")
            else:
                out[name] = parameter.default
        unknown = [name for name in named if name not in out]
        if unknown:
            raise TypeError(f"{self.name} has no argument {unknown[0]!r}")
        return out

    def said(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that differ from their defaults, for a message."""
        out = {}
        for name, parameter in self.signature.parameters.items():
            value = arguments.get(name, parameter.default)
            if parameter.kind is parameter.VAR_POSITIONAL:
                out[f"*{name}"] = value
            elif not _is_default(value, parameter.default):
                out[name] = value
        return out

    @with_room
    def call(self, func: Any, arguments: dict[str, Any], **extra: Any) -> Any:
        """Call the function on ``func`` with arguments in the form of :meth:`bind`."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, parameter in self.signature.parameters.items():
            value = arguments[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional.extend(value)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                named[name] = value
            else:
                positional.append(value)
        return self.function(func, *positional, **named, **extra)


class _Source(str):
    """A ``_Source`` shows itself as it is written in a program."""

    __repr__ = str.__str__


def _binder(parameters: list[inspect.Parameter]) -> Callable[..., dict[str, Any]]:
    """Return a function with these parameters that returns its arguments by name, in their order."""
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    texts = {name: _Source(f"defaults[{name!r}]") for name in defaults}
    plain = [p.replace(annotation=p.empty, default=texts.get(p.name, p.empty)) for p in parameters]
    named = ", ".join([f"{p.name!r}: {p.name}" for p in parameters])
    source = f"lambda {str(inspect.Signature(plain))[1:-1]}: {{{named}}}"
    made: Callable[..., dict[str, Any]] = eval(source, {"defaults": defaults})
    return made


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (
        isinstance(value, (str, int, tuple)) and type(value) is type(default) and value == default
    )


REGISTRY: dict[str, Primitive] = {}
"""All primitives by name: what a trace may name, and nothing else."""


class PrimitiveMethods:
    """The base class of ``Schedule``, to which :func:`primitive` adds the methods."""

    def _apply(self, step: Primitive, arguments: dict[str, Any]) -> Any:
        raise NotImplementedError


@overload
def primitive(function: F) -> F: ...
@overload
def primitive(*, kind: str = ..., prepare: Callable[..., dict[str, Any]] | None = ...) -> Callable[[F], F]: ...
def primitive(
    function: Any = None, *, kind: str = "rewrite", prepare: Callable[..., dict[str, Any]] | None = None
) -> Any:
    """Register a function as a primitive, and give ``Schedule`` a method of its name; the function itself is unchanged.

    ``prepare(func, **arguments)`` returns the arguments to change before the step is recorded, to turn a value
    that a trace cannot hold (a Python callable) into one that it can (its text).
    """
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r}; there are {KINDS}")

    def register(function: F) -> F:
        name = function.__name__
        signature = inspect.signature(function)
        hidden = ("rng",) if kind == "sample" else ()
        parameters = [p for p in list(signature.parameters.values())[1:] if p.name not in hidden]
        step = Primitive(
            name,
            function,
            kind,
            signature.replace(parameters=parameters),
            _binder(parameters),
            prepare,
        )
        if name in REGISTRY and REGISTRY[name].function.__module__ != function.__module__:
            raise ValueError(f"there is already a primitive {name!r}, in {REGISTRY[name].function.__module__}")
        REGISTRY[name] = step

        @functools.wraps(function)
        def method(self: PrimitiveMethods, *args: Any, **kwargs: Any) -> Any:
            return self._apply(step, step.bind(args, kwargs))

        self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        method.__signature__ = step.signature.replace(parameters=[self_parameter, *parameters])  # type: ignore[attr-defined]
        del method.__wrapped__  # the signature above is the method's
        setattr(PrimitiveMethods, name, method)
        return function

    return register if function is None else register(function)
