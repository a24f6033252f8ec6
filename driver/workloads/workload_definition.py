"""A workload is a Python function that returns te tensors, with parameters that the command line can set.

>>> from tilewright import te
>>> @workload
... def double(n: int = 16):
...     "Twice a vector."
...     A = te.placeholder((n,), name="A")
...     return [A, te.compute((n,), lambda i: A[i] + A[i], name="B")]
>>> case = double.case(n=7)
>>> case.spec, case.flops
('double:n=7', 7.0)
"""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np

from ... import te
from ...pages import did_you_mean
from ...tir.cost import count_bytes, count_flops
from ...tir.expr import DType, IntImm
from ...tir.stmt import PrimFunc

Reference = Callable[..., None]
_MAX_ELEMENTS = 2**36
"""The largest number of elements of a workload's tensors; a larger one is most likely a mistake in the spec."""


class WorkloadError(ValueError):
    """The workload does not exist, or it cannot take a parameter; the message says which one, and why."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a workload. ``kind``: ``size`` (at least 1), ``int``, ``count`` (at least 0), ``float``,
    ``bool``, ``dtype``, or ``text``; ``choices`` limits it further. ``default`` is None where it must be given."""

    name: str
    kind: str = "size"
    default: Any = None
    doc: str = ""
    choices: tuple[str, ...] = ()

    def read(self, value: Any) -> Any:
        """Returns ``value``, given as text or as it is, after a check; ValueError says why it does not fit."""
        if self.kind in ("size", "count", "int"):
            number = _whole(value)
            least = {"size": 1, "count": 0}.get(self.kind)
            if least is not None and number < least:
                what = "a dimension" if self.kind == "size" else "it"
                raise ValueError(f"{what} is at least {least}")
            value = number
        elif self.kind == "float":
            value = float(value)
        elif self.kind == "bool":
            text = str(value).lower()
            if text not in ("1", "0", "true", "false", "yes", "no"):
                raise ValueError("it is true or false")
            value = text in ("1", "true", "yes")
        else:
            value = str(value)
            if self.kind == "dtype":
                DType(value)
        if self.choices and str(value) not in self.choices:
            raise ValueError(f"it is one of {', '.join(self.choices)}")
        return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("it is not a whole number")
    try:
        return int(str(value)) if isinstance(value, str) else int(value)
    except (TypeError, ValueError):
        raise ValueError("it is not a whole number") from None


@dataclass(frozen=True, eq=False)
class Workload:
    """A named computation with parameters. Calling it calls the function; :meth:`case` fixes the parameters.

    ``build(**parameters)`` returns te tensors, inputs first, outputs last. ``reference(inputs, outputs,
    **parameters)``, where there is one, computes the same on NumPy arrays, as well as NumPy can, into ``outputs``.
    ``origin`` is the file of a user's workload.
    """

    name: str
    build: Callable[..., Sequence[Any]]
    parameters: tuple[Parameter, ...]
    doc: str = ""
    reference: Reference | None = None
    origin: str = ""

    def __call__(self, *args: Any, **values: Any) -> Any:
        return self.build(*args, **values)

    def __repr__(self) -> str:
        return f"Workload({self.signature})"

    @property
    def signature(self) -> str:
        """Returns the spec with all parameters: ``matmul:M=1024,N=1024,K=1024,dtype=float32``."""
        return f"{self.name}:{','.join([f'{p.name}={_text(p.default)}' for p in self.parameters])}"

    def case(self, **values: Any) -> WorkloadCase:
        """Returns the workload with its parameters fixed; those not given take their defaults. WorkloadError
        otherwise."""
        known = {p.name: p for p in self.parameters}
        for name in values:
            if name not in known:
                takes = ", ".join(known) or "none"
                raise WorkloadError(
                    f"{self.name} has no parameter {name!r}{did_you_mean(name, known, 3, listed=0)} (it takes: {takes})"
                )
        fixed = {}
        for parameter in self.parameters:
            value = values.get(parameter.name, parameter.default)
            if value is None:
                raise WorkloadError(f"{self.name}: {parameter.name} has no default; write {parameter.name}=…")
            try:
                fixed[parameter.name] = parameter.read(value)
            except (TypeError, ValueError) as error:
                raise WorkloadError(f"{self.name}: {parameter.name}={value}: {error}") from error
        return WorkloadCase(self, fixed)


@dataclass(frozen=True, eq=False)
class WorkloadCase:
    """A workload with its parameters fixed; ``func`` is what it computes."""

    workload: Workload
    values: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"WorkloadCase({self.spec})"

    @property
    def name(self) -> str:
        """Returns the workload's name."""
        return self.workload.name

    @property
    def spec(self) -> str:
        """Returns its spec on the command line, ``matmul:M=7,N=7,K=7``: sizes, and parameters that differ from their
        defaults."""
        known = [(p, self.values[p.name]) for p in self.workload.parameters]
        said = [f"{p.name}={_text(value)}" for p, value in known if p.kind == "size" or value != p.default]
        values = ",".join(said)
        place = f"{self.workload.origin}:" if self.workload.origin else ""
        return f"{place}{self.name}:{values}" if values else f"{place}{self.name}"

    @cached_property
    def tensors(self) -> tuple[Any, ...]:
        """Returns the te tensors, inputs first, outputs last."""
        try:
            tensors = self.workload.build(**self.values)
        except ValueError as error:
            raise WorkloadError(f"{self.spec}: {error}{_line_of(error, self.workload.origin)}") from error
        except (Exception, SystemExit) as error:
            if not self.workload.origin:
                raise
            where = _line_of(error, self.workload.origin)
            raise WorkloadError(f"{self.spec}: {type(error).__name__}: {error}{where}") from error
        if not isinstance(tensors, (list, tuple)) or not tensors or not all(_is_argument(t) for t in tensors):
            raise WorkloadError(
                f"{self.name} must return a list of te tensors, inputs first and outputs last; it returned {_shown(tensors)}"
            )
        for tensor in tensors:
            _check_size(self.spec, tensor)
        return tuple(tensors)

    @cached_property
    def func(self) -> PrimFunc:
        """Returns the PrimFunc, unscheduled, named after the workload."""
        return te.create_prim_func(list(self.tensors)).with_attr("global_symbol", self.name)

    @property
    def flops(self) -> float | None:
        """Returns the operations of one run; None when a shape is symbolic."""
        return count_flops(self.func)

    @property
    def bytes(self) -> float | None:
        """Returns the bytes of all arguments; None when a shape is symbolic."""
        return count_bytes(self.func)

    def run_reference(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bool:
        """Compute it with NumPy into ``outputs``; False when that is not possible: no reference, or bfloat16."""
        if self.workload.reference is None or any(b.dtype == "bfloat16" for b in self.func.buffers):
            return False
        self.workload.reference(inputs, outputs, **self.values)
        return True


def _line_of(error: BaseException, path: str) -> str:
    """Returns `` (file.py, line 3)``, the innermost line of the user's file that raised ``error``; empty without one."""
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if path and os.path.basename(f.filename) == os.path.basename(path)
    ]
    return f" ({path}, line {frames[-1].lineno})" if frames else ""


def _shown(value: Any) -> str:
    """Returns what a function returned in place of tensors, in a few words."""
    if isinstance(value, (list, tuple)) and value:
        return f"a {type(value).__name__} of {', '.join(dict.fromkeys([type(one).__name__ for one in value]))}"
    return "nothing" if value is None else f"an object of {type(value).__name__}" if value != [] else "an empty list"


def _is_argument(tensor: Any) -> bool:
    return hasattr(tensor, "dtype") and (hasattr(tensor, "op") or hasattr(tensor, "name"))


def _check_size(spec: str, tensor: Any) -> None:
    total = 1
    for extent in getattr(tensor, "shape", ()):
        if not isinstance(extent, IntImm):
            return
        total *= extent.value
    if total > _MAX_ELEMENTS:
        shape = "×".join(str(e.value) for e in tensor.shape)
        raise WorkloadError(f"{spec}: {tensor.name} has {shape} = {total} elements, more than memory holds")


@overload
def workload(function: Callable[..., Any], /) -> Workload: ...


@overload
def workload(
    *, name: str | None = None, reference: Reference | None = None
) -> Callable[[Callable[..., Any]], Workload]: ...


def workload(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, reference: Reference | None = None
) -> Any:
    """Mark a function that returns te tensors as a workload, which tune, build, bench and the command line take.

    The function's parameters become the workload's: an ``int`` (by annotation or default) is a dimension of at least
    1, a ``float``, ``bool`` or ``str`` is what it says, and a ``str`` called dtype is a data type. ``reference(inputs,
    outputs, **parameters)`` computes the same with NumPy, for comparison.
    """

    def mark(f: Callable[..., Any]) -> Workload:
        parameters = tuple([_parameter(p, f) for p in inspect.signature(f).parameters.values()])
        return Workload(name or f.__name__, f, parameters, inspect.getdoc(f) or "", reference)

    return mark if function is None else mark(function)


def _parameter(p: inspect.Parameter, f: Callable[..., Any]) -> Parameter:
    if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
        raise WorkloadError(f"workload {f.__name__}: parameter {p.name} must be an ordinary one, with a name")
    default = None if p.default is p.empty else p.default
    hint = p.annotation if p.annotation is not p.empty else type(default)
    word = hint if isinstance(hint, str) else getattr(hint, "__name__", "int")
    kind = {"int": "size", "float": "float", "bool": "bool", "str": "text"}.get(word, "size")
    if kind == "text" and "dtype" in p.name:
        kind = "dtype"
    if kind == "size" and isinstance(default, int) and default < 1:
        kind = "int" if default < 0 else "count"
    return Parameter(p.name, kind, default)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return "…" if value is None else str(value)
