"""This module defines the decorator that makes a function over PrimFuncs a method of ``Schedule``.

It also checks the arguments of a primitive, and brings them into the form that a trace keeps.

They are checked against the types in its signature. Names of buffers become numbers, index maps become texts.

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
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from ..tir.analysis.tree import symbols_of, tree_of
from ..tir.expr import Expr, IntImm, Var
from ..tir.expr.deep_recursion import with_room
from ..tir.stmt import Block, Buffer, PrimFunc
from .errors import bad_argument
from .handles import BlockRV
from .index_map import IndexMap

_WORDS = {
    str: "a name",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    Var: "a loop",
    Expr: "a size",
    IntImm: "a constant",
    type(None): "None",
}


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, with whole numbers for integer constants where the signature takes only those.

    An argument that is not of the type in the signature is a ScheduleError (a TypeError and a ValueError too). Blocks are
    names and sampled numbers are values here. Types other than those of the table above are not checked.
    """
    expected = _types_of(function)
    out = dict(arguments)
    for name, value in arguments.items():
        if name not in expected or _fits(value, expected[name]):
            continue
        out[name] = _without_constants(value)
        if not _fits(out[name], expected[name]):
            raise bad_argument(
                f"the argument {name} must be {_words(expected[name])}, not {_shown(value)}",
                hint=_hint(function, name, value),
            )
    return out


def _without_constants(value: Any) -> Any:
    """Return the value of an integer constant of any type, also in lists."""
    if isinstance(value, (list, tuple)):
        return [_without_constants(item) for item in value]
    return value.value if isinstance(value, IntImm) else value


def _hint(function: Callable[..., Any], name: str, value: Any) -> str:
    """Returns how the call is written instead, where that is known."""
    if name == "factors" and isinstance(value, (int, IntImm)):
        return f"write factor={value} or factors=[None, {value}] for inner loops of {value}, nparts={value} for {value} outer iterations"
    called = ", ".join(list(inspect.signature(function).parameters)[1:])
    return f"it is {function.__name__}({called}); its documentation says what the arguments are"


@lru_cache(maxsize=256)
def _types_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        hints = get_type_hints(function)
    except Exception:  # a user's primitive may use names that only a type checker knows
        return {}
    variadic = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    return {
        name: t if name in variadic else types.GenericAlias(list, (t,)) for name, t in hints.items() if name != "return"
    }


@lru_cache(maxsize=256)
def _options(t: Any) -> tuple[Any, ...]:
    return get_args(t) if get_origin(t) in (Union, types.UnionType) else (t,)


@lru_cache(maxsize=256)
def _item_type(t: Any) -> Any:
    """Return the type of the items of a list or sequence; None for another type."""
    return get_args(t)[0] if get_origin(t) in (list, Sequence) else None


def _fits(value: Any, expected: Any) -> bool:
    return any(_is(value, option) for option in _options(expected))


def _is(value: Any, t: Any) -> bool:
    item_type = _item_type(t)
    if item_type is not None:
        return isinstance(value, (list, tuple)) and all(_fits(item, item_type) for item in value)
    if t is float:
        return isinstance(value, (int, float))
    if t is bool:
        return isinstance(value, (bool, int))
    return isinstance(value, t) if t in _WORDS else True


def _words(expected: Any) -> str:
    said = [
        _WORDS[t] if _item_type(t) is None else f"a list with {_words(_item_type(t))} in each place"
        for t in _options(expected)
    ]
    return ", ".join(said[:-1]) + " or " + said[-1] if len(said) > 1 else said[0]


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


BLOCK_PARAMETERS = frozenset((
    "block", "block_or_loop", "blocks", "consumer_blocks", "epilogue_block", "reduction_block", "scope_block", "target",
))  # fmt: skip
"""These parameters of primitives take blocks by name (beside the one of ``get_block``)."""

BUFFER_PARAMETERS = {
    "buffer": "either", "buffer_index": "write", "read_buffer_index": "read", "write_buffer_index": "write",
}  # fmt: skip
"""These parameters take buffers by name; the value says whether the block reads or writes the buffer, unless ``buf_type`` does."""


def buffer_number(parameter: str, given: str | Buffer, block: Block, buf_type: str | None = None) -> Any:
    """Return the number of a buffer, or of a buffer's name, among those that ``block`` reads or writes.

    Traces keep this number.

    For the parameter ``buffer`` it is a pair, ``["read", 0]``. An unknown name or buffer is returned as it is.
    """
    kind = buf_type or BUFFER_PARAMETERS[parameter]
    for which, regions in (("write", block.writes), ("read", block.reads)):
        if kind in ("either", which):
            for number, region in enumerate(regions):
                if region.buffer is given or region.buffer.name == given:
                    return [which, number] if parameter == "buffer" else number
    return given


def as_recorded(func: PrimFunc, index_map: Any, ndim: int | None) -> Any:
    """Return the recorded form of an index map over ``ndim`` indices; it may use scalar parameters and sizes of
    ``func``."""
    return index_map if isinstance(index_map, str) else IndexMap.of(index_map, ndim, symbols_of(func)).recorded()


def map_of_axes(func: PrimFunc, block: Any, index_map: Any) -> Any:
    """Return the recorded form of a map over the axes of ``block``, which may be a function of ``*axes``."""
    found = tree_of(func).blocks.get(block_name(block))
    return as_recorded(func, index_map, len(found[0].block.iter_vars) if found else None)


def prepared_map(func: PrimFunc, block: Any, index_map: Any, **_: Any) -> dict[str, Any]:
    """Return the argument ``index_map``, a map over the axes of ``block``, in recorded form; for ``prepare``."""
    return {"index_map": map_of_axes(func, block, index_map)}


def block_name(block: Any) -> str:
    """Return the name of a block that is given by name or handle."""
    return block.name if isinstance(block, BlockRV) else str(block)


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
