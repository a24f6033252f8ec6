"""What a converter gets, one call of an operator of PyTorch, and the table of converters.

The package torch loads when it is needed; its data types are mapped to those of TIR.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...graph.builder import Builder
from ...graph.graph import Value
from ...te.ops.elements import ELEMENTS, ElementOperator
from ...tir.expr import DType, Expr, to_numpy
from ..common.graph_call import C, Converter, GraphCall, entering


class TorchError(ValueError):
    """Raised for a program of PyTorch that cannot be read."""


def load_torch(module: str = "") -> Any:
    """Returns the package torch, or a module of it; TorchError with the pip command when it is not installed."""
    try:
        return importlib.import_module(f"torch.{module}" if module else "torch")
    except ImportError as error:
        raise TorchError("reading PyTorch programs needs the package torch: pip install 'tilewright[torch]'") from error


DTYPES = frozenset(
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64".split()
)
"""The data types that are supported; PyTorch's names are those of TIR."""


def dtype_name(dtype: Any) -> str:
    """Returns a data type of PyTorch as TIR names it; TorchError for one that is not supported."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TorchError(f"the data type {name} is not supported")
    return name


def to_array(tensor: Any) -> Any:
    """Returns a tensor's elements as an array that shares its memory where it is contiguous. TorchError for a sparse
    tensor."""
    torch = load_torch()
    if tensor.layout is not torch.strided:
        raise TorchError(f"a tensor of the layout {tensor.layout} is not supported")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.uint16).numpy().view(to_numpy("bfloat16"))
    if plain.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        return plain.view(torch.uint8).numpy()
    return plain.numpy()


class AtenCall(GraphCall):
    """One call of an operator. ``results`` are PyTorch's own descriptions of what it returns, ``given`` those of the
    arguments; ``used`` are the numbers of the results that are read, None when all may be. ``reader`` reads sizes, and the
    graphs of loops and branches."""

    failure = TorchError

    def __init__(
        self,
        builder: Builder,
        label: str,
        results: Sequence[Any],
        given: Sequence[Any],
        used: set[int] | None,
        reader: Any,
    ) -> None:
        super().__init__(builder, label)
        self.given, self.used = given, used
        self._results, self._reader = results, reader

    @property
    def dtype(self) -> str:
        """Returns the data type of the first result."""
        return self.dtype_of(0)

    def dtype_of(self, n: int) -> str:
        """Returns the data type of result ``n``."""
        return dtype_name(self._results[n].dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Returns the shape of the first result: numbers, and expressions of symbolic sizes."""
        return self.shape_of(0)

    def shape_of(self, n: int) -> tuple[Any, ...]:
        """Returns the shape of result ``n``."""
        return tuple(self._reader.dim(d) for d in self._results[n].shape)

    def run(self, module: Any, given: Sequence[Any]) -> list[Any]:
        """Returns the results of a graph of the program, whose calls are added with these arguments."""
        return list(self._reader.run(module, given))

    @property
    def result_count(self) -> int:
        """Returns the number of results."""
        return len(self._results)

    def needs(self, n: int) -> bool:
        """Returns whether something reads result ``n``."""
        return self.used is None or n in self.used

    def value(self, x: Any, dtype: str) -> Value:
        """Returns a tensor or a number as a value of that data type."""
        return self.cast(x, dtype) if isinstance(x, Value) else self.number(x, dtype)

    def number(self, n: Any, dtype: str) -> Value:
        """Returns a number, or an expression of sizes, as a scalar. Integers wrap to the type, as PyTorch's do."""
        if isinstance(n, int) and DType(dtype).kind in ("int", "uint"):
            n = int(np.asarray(n).astype(dtype))
        return self.size(n, dtype) if isinstance(n, Expr) else self.constant(n, dtype)

    def require_numbers(self, *sizes: Any) -> None:
        """Raise TorchError where a size is symbolic."""
        symbolic = [str(e) for e in sizes if isinstance(e, Expr)]
        if symbolic:
            raise self.error(f"the sizes {', '.join(symbolic)} have to be numbers here; shapes= can give them")

    def common(self, *positions: int) -> str:
        """Returns the data type to which PyTorch promotes these arguments."""
        torch = load_torch()
        first, *rest = [self.given[n] for n in positions]
        out = first
        for other in rest:
            out = torch.empty((), dtype=torch.result_type(out, other), device="meta")
        return dtype_name(out.dtype)

    def together(self, values: Sequence[Value]) -> tuple[Any, ...]:
        """Returns the shape to which values broadcast. Where a number meets a symbolic size, PyTorch knows that they agree."""
        rank = max(v.ndim for v in values)
        rows = [(*[1] * (rank - v.ndim), *v.shape) for v in values]
        wide = [[e for e in column if not isinstance(e, int) or e != 1] for column in zip(*rows, strict=True)]
        return tuple([min(column, key=lambda e: not isinstance(e, int)) if column else 1 for column in wide])

    def full(self, shape: Sequence[Any], number: Any, dtype: str) -> Value:
        """Returns an array of one number."""
        one = self.number(number, dtype)
        return self.op("broadcast_to", one, shape=tuple(shape)) if len(shape) else self.op("identity", one)

    def axis(self, axis: int, x: Value) -> int:
        """Returns an axis counted from the front."""
        return axis % max(x.ndim, 1)

    def axes(self, axes: Any, x: Value) -> tuple[int, ...]:
        """Returns axes counted from the front; all for None and for an empty list."""
        if axes is None or (isinstance(axes, (list, tuple)) and not axes):
            return tuple(range(x.ndim))
        return tuple(sorted({a % max(x.ndim, 1) for a in (axes if isinstance(axes, (list, tuple)) else [axes])}))


CONVERTERS: dict[str, Converter] = {}
"""All converters by the operator's full name, such as ``aten.add.Tensor``. They take an :class:`.aten_call.AtenCall` and the
operator's arguments, with values in place of tensors."""


_OVERLOADS = ("default", "Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor")


def operators_of_table() -> Iterator[tuple[str, ElementOperator, dict[str, Any]]]:
    """Yields the full names of the operators that are rows of the table of element-wise operators, with their defaults."""
    for row in ELEMENTS.values():
        for name, told in row.names("aten"):
            yield from (
                (f"aten.{n}", row, told) for n in ([name] if "." in name else [f"{name}.{o}" for o in _OVERLOADS])
            )


def op(*names: str) -> Callable[[C], C]:
    """Returns a decorator that enters a converter under the full names of operators.

    >>> @op("example.twice.default")
    ... def twice(c, x):
    ...     return c.op("add", x, x)
    >>> del CONVERTERS["example.twice.default"]
    """
    return entering(CONVERTERS, *names)


def aten(*names: str) -> Callable[[C], C]:
    """Returns :func:`op` for names of ``aten``, in which the overload ``default`` is left out."""
    return op(*[f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names])
