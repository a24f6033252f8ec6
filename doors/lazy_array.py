"""This module has the lazy array. Its operators record functions of the namespace, and any use of its values computes
them.

What is recorded is an :class:`Expression`, data or an operator applied to other expressions. To compute them, they become a
graph, which is compiled once for all expressions of one structure. Python numbers are constants of the compiled graph at
first. When the same structure comes with other numbers, it is compiled once more with the numbers as inputs, so that a loop
with a changing number compiles twice and not each time.
"""

from __future__ import annotations

import math
import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..driver.models.model_building import build_graph
from ..graph.builder import Builder
from ..graph.graph import Graph, Value
from ..graph.graph_operators import attributes_key, infer

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
    """Compute the data of these expressions, and of those among their operands whose arrays are still in use."""
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


DType = np.dtype[Any]

NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
"""The names of the data types."""

DEEPEST = 256
"""Expressions of more operators one on the other are computed in pieces."""

BY_UFUNC: dict[Any, Callable[..., Any]] = {}
"""The namespace's functions by those of NumPy that operators of arrays stand for."""


def namespace() -> Any:
    """Returns the module with the functions."""
    return sys.modules[__name__.replace("lazy_array", "lazy_door")]


def _of_value(convert: Callable[[Any], Any]) -> Any:
    """Returns the method that computes the array and converts its only element."""
    return lambda self: convert(np.asarray(self))


class Array(NDArrayOperatorsMixin):
    """A lazy array has a data type and a shape; its values are computed when they are first used.

    ``float(x)``, ``print(x)``, ``numpy.asarray(x)`` and ``__dlpack__`` are such uses. Arrays are values: an assignment to
    elements makes a new value for this array, and others that were made of it stay as they are.
    """

    __slots__ = ("__weakref__", "expression")

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        if expression.holder() is None:
            expression.holder = weakref.ref(self)
        if expression.depth > DEEPEST:
            compute(expression)

    dtype = property(lambda self: self.expression.dtype, doc="The data type.")
    shape = property(lambda self: self.expression.shape, doc="The shape.")
    ndim = property(lambda self: len(self.shape), doc="The number of dimensions.")
    size = property(lambda self: math.prod(self.shape), doc="The number of elements.")
    device = property(lambda self: "cpu", doc="The device, ``cpu``.")
    mT = property(lambda self: namespace().matrix_transpose(self), doc="The array, its last dimensions exchanged.")
    T = property(lambda self: namespace().permute_dims(self, (1, 0)), doc="The transposed matrix.")

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """Returns the array itself; there is one device."""
        np.empty(0).to_device(device)  # ValueError for others
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        compute(self.expression)
        view = self.expression.data.view()
        view.flags.writeable = False
        return view.astype(dtype or view.dtype, copy=bool(copy))

    def __dlpack__(self, *, max_version: Any = None, copy: bool | None = None, **more: Any) -> Any:
        is_told = (max_version or (0,))[0] >= 1  # older consumers would take it for one to write to
        return self.__array__(copy=copy or not is_told).__dlpack__(max_version=max_version, **more)

    def __array_namespace__(self, /, *, api_version: Any = None) -> Any:
        np.empty(0).__array_namespace__(api_version=api_version)  # ValueError for versions that are not supported
        return namespace()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **more: Any) -> Any:
        """Returns the result of a function of NumPy on lazy arrays; operators arrive here too, through NumPy's mixin.

        ``a += b`` binds the name ``a`` to a new array; no other ``out`` is written.
        """
        kept = out is None or (len(out) == 1 and isinstance(out[0], Array) and out[0] is inputs[0])
        is_plain = method == "__call__" and not more and kept and ufunc in BY_UFUNC
        return BY_UFUNC[ufunc](*inputs) if is_plain else NotImplemented

    def __len__(self) -> int:
        return len(np.broadcast_to(0, self.shape))

    def __iter__(self) -> Iterator[Array]:
        return (self[n] for n in range(len(self)))

    __bool__, __int__, __float__, __complex__ = [_of_value(kind) for kind in (bool, int, float, complex)]
    __index__, __dlpack_device__ = _of_value(operator.index), _of_value(np.ndarray.__dlpack_device__)
    __repr__ = _of_value(lambda data: "Array" + repr(data)[len("array") :])

    def __getitem__(self, key: Any) -> Array:
        """Returns a part. Arrays in the key are computed at once, since masks decide the shape."""
        keys = _plain(key)
        if self.expression.data is not None:
            return leaf(np.asarray(self.expression.data[keys]))
        if not {type(k) for k in keys} <= {int, slice, type(None), type(...)}:
            return gathered(self, lambda data: data[keys])
        shape = np.broadcast_to(0, self.shape)[keys].shape
        named = [k for k in (keys if ... in keys else (*keys, ...)) if k is not None]
        at = named.index(...)
        named[at : at + 1] = [slice(None)] * (self.ndim - len(named) + 1)
        spans = [k if isinstance(k, slice) else slice(k, k + 1 or None) for k in named]
        begin, end, strides = [[_number(getattr(s, n)) for s in spans] for n in ("start", "stop", "step")]
        return record("reshape", record("strided_slice", self, begin=begin, end=end, strides=strides), shape=shape)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Let this array be one with other elements: each is the old one, or that of ``value`` which belongs there."""
        chosen = np.arange(self.size).reshape(self.shape)[_plain(key)]
        source = np.full(self.shape, -1)
        np.put(source, chosen, np.arange(chosen.size))
        if chosen.size:
            spread = broadcast_to(asarray(value, dtype=self.dtype), chosen.shape)
            new = namespace().where(leaf(source) < 0, self, gathered(spread, lambda data: np.take(data, source)))
            self.expression, old = new.expression, self.expression
            self.expression.holder, old.holder = weakref.ref(self), type(None)


def leaf(data: Any) -> Array:
    """Returns an array of data that is there."""
    return Array(Expression(data.dtype, data.shape, data))


def record(op: str, *arrays: Any, which: int = 0, **attrs: Any) -> Array:
    """Returns the result of an operator; :class:`~tilewright.graph.GraphError` where it does not fit its operands."""
    inputs = tuple([asarray(x).expression for x in arrays])
    dtype, shape = infer(op, [Value("x", e.dtype.name, e.shape) for e in inputs], attrs)[which]
    depth = 1 + max([e.depth for e in inputs], default=0)
    out = Expression(np.dtype(dtype), shape, None, False, op, inputs, attrs, which, depth)
    if 0 in shape:
        out.known(np.empty(shape, out.dtype))
    return Array(out)


def dtype_of(given: Any) -> DType:
    """Returns a data type that arrays may have; TypeError for others."""
    found = np.dtype(given).newbyteorder("=")
    if found.name not in NAMES:
        raise TypeError(f"arrays of {found} are not supported; there are {', '.join(NAMES)}")
    return found


def default_dtype(value: Any) -> DType:
    """Returns the data type of Python numbers (bool, int64 or float32), or else of the data itself."""
    found = np.asarray(value).dtype
    return np.dtype({"b": "bool", "i": "int64", "f": "float32"}.get(found.kind) or dtype_of(found))


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Array:
    """Returns an array of data. What its owner may change is copied, unless ``copy`` is False.

    Python numbers become bool, int64 or float32.
    """
    if isinstance(obj, Array):
        wanted = dtype_of(dtype or obj.dtype)
        return obj if not copy and wanted == obj.dtype else record("cast", obj, dtype=wanted.name)
    shared = hasattr(obj, "__array__") or hasattr(obj, "__dlpack__")
    data = np.asarray(obj if hasattr(obj, "__array__") or not shared else np.from_dlpack(obj))
    wanted = dtype_of(dtype or (data.dtype if shared else default_dtype(data)))
    if copy is False and (not shared or data.dtype != wanted):
        raise ValueError(f"data of {data.dtype} becomes an array of {wanted} by a copy only")
    if isinstance(obj, (bool, int, float)) and not shared:
        return Array(Expression(wanted, (), np.asarray(obj, wanted), is_number=True))
    return leaf(data.astype(wanted, copy=not shared or copy or (copy is None and data.flags.writeable)))


def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Array:
    """Returns the array repeated along new dimensions and along those of extent 1; itself when it has that shape."""
    return asarray(x) if x.shape == tuple(shape) else record("broadcast_to", x, shape=tuple(shape))


def gathered(x: Array, f: Callable[[Any], Any]) -> Array:
    """Returns the elements from the places to which ``f`` moves their positions in the flat array."""
    places = np.asarray(f(np.arange(x.size).reshape(x.shape)), np.int64)
    return record("take", record("reshape", x, shape=(x.size,)), leaf(places), axis=0, mode="fast")


def _number(end: Any) -> int | None:
    """Returns an end of a slice as a Python number."""
    return None if end is None else operator.index(end)


def _plain(key: Any) -> tuple[Any, ...]:
    """Returns a key as a tuple with arrays of NumPy."""
    return tuple(
        [np.asarray(k) if isinstance(k, (Array, list)) else k for k in (key if isinstance(key, tuple) else (key,))]
    )
