"""This module builds models whose graph depends on values of inputs, for the values that calls bring.

A network that is read up to a question (``graph/value_dependent.py``) is read on with the answer of a call: the value of an
input, or what a compiled graph computes of the inputs. The last graph is built as any model, without the inputs that became
constants. What was built is kept by the answers, and runs again for calls that give the same ones.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codegen.runtime.arguments import ArgumentError
from ...codegen.runtime.native_glue import as_numpy
from ...graph.graph import Graph, Value
from ...graph.value_dependent import (
    LARGEST_ANSWER,
    Layout,
    OpenInput,
    Question,
    UnitSize,
    ValueDependentGraph,
    item_name,
)
from ...tir.expr import to_numpy
from ...tir.expr.dtype import kept_as_bits
from ..building import BuildError
from .model import Model, inputs_in_order

Answered = tuple[tuple[Any, ...] | bool | None, ...]
"""Shape and bytes of the answers so far, in the order of the questions; of lists the shapes alone, of sizes whether they
are 1."""


@dataclass(frozen=True)
class _Asking:
    """A question, and the model that answers it; None where an input does."""

    question: Question
    model: Model | None

    def answer(self, arrays: Mapping[str, Any]) -> Any:
        """Returns the answer for inputs by name."""
        value = self.question.value
        if isinstance(value, OpenInput):
            return _layout(value, arrays[value.name])
        if isinstance(value, UnitSize):
            return value.holds(_shapes(value, arrays))
        if self.model is None:
            return arrays[value.name]
        return np.asarray(_run(self.model, arrays))


class SpecializingModel:
    """A ``SpecializingModel`` is compiled when it is called, once for each of the values that decide its graph.

    It is called like a :class:`~.model.Model`. At most ``most`` of the models that it built are kept, those that were used
    last; a warning says that there were more. Several threads may call it; one of them builds at a time.
    """

    def __init__(self, source: ValueDependentGraph, build: Callable[[Graph], Model], most: int) -> None:
        if most < 1:
            raise BuildError(f"specializations={most}: at least one is kept")
        self.name, self.inputs, self.most = source.name, source.inputs, most
        self._source, self._build = source, build
        self._kept: OrderedDict[Answered, _Asking | Model] = OrderedDict()
        self._lock = threading.RLock()
        self._built = 0
        asked = source.question
        self._root = _Asking(asked, None if asked.graph is None else build(asked.graph))

    def __repr__(self) -> str:
        return f"<SpecializingModel {self.name}({', '.join(map(repr, self.inputs))}): {self.origin}>"

    @property
    def deciding(self) -> tuple[str, ...]:
        """Returns the names of the inputs whose values decide the graph, as far as calls have shown."""
        found = {name for question in self._questions() for name in question.inputs}
        return tuple([v.name for v in self.inputs if v.name in found])

    @property
    def specializations(self) -> int:
        """Returns how many specialized models are kept."""
        return sum(isinstance(one, Model) for one in self._now())

    @property
    def origin(self) -> str:
        """Returns how many specialized models are kept, by which inputs, and how many were built."""
        by = ", ".join(self.deciding)
        return f"{self.specializations} of at most {self.most} specializations by {by} ({self._built} built)"

    def __call__(self, *inputs: Any, out: Any = None, **named: Any) -> Any:
        given = inputs_in_order(self.name, self.inputs, inputs, named)
        return _run(self.specialized(*given), self._by_name(given), out)

    def specialized(self, *inputs: Any, **named: Any) -> Model:
        """Returns the compiled model for the deciding values in ``inputs``. It does not take the inputs that are built in."""
        given = inputs_in_order(self.name, self.inputs, inputs, named)
        arrays = self._by_name(given)
        path: Answered = ()
        answers: dict[str, Any] = {}
        found: _Asking | Model = self._root
        while isinstance(found, _Asking):
            question = found.question
            data = found.answer(arrays)
            if isinstance(question.value, (OpenInput, UnitSize)):
                path = (*path, data)
            else:
                data = self._checked(question.value, data)
                path = (*path, (data.shape, data.tobytes()))
            answers[question.name] = data
            found = self._kept_for(path, answers)
        return found

    def export(self, *arguments: Any, **options: Any) -> Any:
        """Raise BuildError: a library has one graph. It names the inputs whose values decide which."""
        by_size = self._deciding_sizes()
        values = [name for name in self.deciding if name not in by_size]
        given = ", ".join([f"{name!r}: …" for name in values or by_size])
        option, what = ("constants", "values") if values else ("shapes", "sizes")
        raise BuildError(
            f"cannot export {self.name}: its graph depends on the {what} of {', '.join(values or by_size)}; read it with "
            f"{option}={{{given}}}, or export specialized(…) for inputs with these {what}"
        )

    def profile(self, *inputs: Any, repeat: int = 10, **named: Any) -> Any:
        """Returns how long each kernel takes for these inputs, as :meth:`.Model.profile` does."""
        given = inputs_in_order(self.name, self.inputs, inputs, named)
        model = self.specialized(*given)
        arrays = self._by_name(given)
        return model.profile(*[arrays[v.name] for v in model.inputs], repeat=repeat)

    # -- inside --

    def _by_name(self, given: Sequence[Any]) -> dict[str, Any]:
        """Returns the inputs by name, and the items of lists by theirs."""
        arrays = dict(zip([v.name for v in self.inputs], given, strict=True))
        for v in self.inputs:
            if isinstance(v, OpenInput) and isinstance(arrays[v.name], (list, tuple)):
                arrays.update((item_name(v.name, n), x) for n, x in enumerate(arrays[v.name]))
        return arrays

    def _questions(self) -> list[Question]:
        return [one.question for one in (self._root, *self._now()) if isinstance(one, _Asking)]

    def _deciding_sizes(self) -> list[str]:
        """Returns the names of the inputs of which only sizes decide the graph."""
        asked = self._questions()
        by_value = {name for q in asked if not isinstance(q.value, UnitSize) for name in q.inputs}
        return [name for name in self.deciding if name not in by_value]

    def _now(self) -> list[_Asking | Model]:
        with self._lock:
            return list(self._kept.values())

    def _kept_for(self, path: Answered, answers: Mapping[str, Any]) -> _Asking | Model:
        """Returns what was built for these answers, or builds it."""
        with self._lock:
            found = self._kept.get(path)
            if found is not None:
                self._kept.move_to_end(path)
                return found
            made = self._made(self._source.read(dict(answers)))
            if isinstance(made, Model):
                self._built += 1
            self._kept[path] = made
            self._forget()
            return made

    def _forget(self) -> None:
        """Drop what was not used for the longest time, where there is too much."""
        while sum(isinstance(one, Model) for one in self._kept.values()) > self.most or len(self._kept) > 8 * self.most:
            self._kept.popitem(last=False)
            if self._built == self.most + 1:
                warnings.warn(
                    f"{self.name} was built for more than {self.most} different values of {', '.join(self.deciding)}; each "
                    "further one is a build, and the oldest are dropped (specializations= says how many are kept)",
                    RuntimeWarning,
                    stacklevel=5,
                )

    def _made(self, read: Graph | Question) -> _Asking | Model:
        if isinstance(read, Graph):
            return self._build(read)
        return _Asking(read, None if read.graph is None else self._build(read.graph))

    def _checked(self, value: Value, given: Any) -> Any:
        """Returns an answer as a graph has constants; ArgumentError for another data type or shape than the value has."""
        (taken,) = as_numpy([given]) or (None,)
        wanted = to_numpy(value.dtype)
        if not isinstance(taken, (np.ndarray, np.generic)):
            raise ArgumentError(
                f"{self.name}: {value.name} is {type(given).__name__}, not an array of {value.type_text}"
            )
        data = np.asarray(taken, order="C")
        if data.dtype.name == value.dtype and kept_as_bits(value.dtype):
            data = data.view(wanted)
        fits = data.ndim == value.ndim and all(
            not isinstance(d, int) or d == e for d, e in zip(value.shape, data.shape, strict=True)
        )
        if data.dtype != wanted or not fits:
            raise ArgumentError(f"{self.name}: {value.name} is {data.dtype}{list(data.shape)}, not {value.type_text}")
        if data.size > LARGEST_ANSWER:
            raise ArgumentError(
                f"{self.name}: {value.name} has {data.size} elements, and its values decide the graph; at most {LARGEST_ANSWER}"
            )
        return data


def _layout(value: OpenInput, given: Any) -> Layout:
    """Returns what an open input is in a call; ArgumentError where it cannot be that."""
    if given is None and "optional" in value.kind:
        return None
    if isinstance(given, (list, tuple)) == ("sequence" in value.kind) and given is not None:
        items = as_numpy(list(given) if isinstance(given, (list, tuple)) else [given])
        if items is not None and all(isinstance(one, np.ndarray | np.generic) for one in items):
            return ("list" if isinstance(given, (list, tuple)) else "tensor", *[tuple(one.shape) for one in items])
    raise ArgumentError(f"{value.name} is a {value.kind}; a call gives it {type(given).__name__}")


def _shapes(value: UnitSize, arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the inputs that tell a size; ArgumentError for one with fewer dimensions."""
    found = {}
    for name, d in value.places.values():
        found[name] = tuple(np.shape(arrays[name]) if not hasattr(arrays[name], "shape") else arrays[name].shape)
        if d >= len(found[name]):
            raise ArgumentError(f"{name} has {len(found[name])} dimensions; dimension {d} tells a size")
    return found


def _run(model: Model, arrays: Mapping[str, Any], out: Any = None) -> Any:
    """Returns the results of a model for those of the inputs that it takes."""
    given: Sequence[Any] = [arrays[v.name] for v in model.inputs]
    return model(*given, out=out)
