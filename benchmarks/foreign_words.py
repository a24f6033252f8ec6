"""This module declares the programs of ``affine_programs.py`` in other compilers: TVM's te, and Halide.

``declared(words, make, sizes)`` runs the same declaration with another library's words in place of ours.
"""

# mypy: ignore-errors
from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import affine_programs

LOWEST, HIGHEST = -3.0e38, 3.0e38


def declared(words: Any, make: Callable[..., Any], sizes: Sequence[int]) -> Any:
    """Returns the program that ``make`` declares, its ``func`` as ``words.create_prim_func`` made it."""
    before = affine_programs.te, affine_programs.choose
    affine_programs.te, affine_programs.choose = words, words.if_then_else
    try:
        return make(*sizes)
    finally:
        affine_programs.te, affine_programs.choose = before


def tvm_words() -> Any:
    """Returns TVM's te, with the words that it has elsewhere."""
    import tvm  # noqa: F401
    from tvm import te, tirx

    names = (
        "placeholder",
        "reduce_axis",
        "sum",
        "min",
        "all",
        "if_then_else",
        "create_prim_func",
        "exp",
        "sqrt",
    )
    found = {name: getattr(te, name) for name in names}
    return SimpleNamespace(
        **found, compute=lambda shape, element, name: te.compute(shape, lambda *at: element(*at), name=name),
        max=lambda a, b=None, axis=None: te.max(a, axis=axis) if b is None else tirx.max(a, b),
        select=lambda c, a, b: tirx.Select(c, _number(a), _number(b)), abs=tirx.abs,
        cast=lambda dtype, x: x.astype(dtype),
    )  # fmt: skip


def _number(x: Any) -> Any:
    from tvm import tirx

    return tirx.const(x, "float32" if isinstance(x, float) else "int32") if isinstance(x, int | float) else x


class Reduced:
    """A reduction that :meth:`HalideWords.compute` defines: what it starts from, how it goes on, its term and its axes."""

    def __init__(self, start: float, step: Callable[[Any, Any], Any], term: Any, axes: Sequence[int]) -> None:
        self.start, self.step, self.term, self.axes = start, step, term, tuple(axes)


class Tensor:
    """A function of Halide with a shape; indices are outermost first, as ours are."""

    def __init__(self, func: Any, shape: Sequence[int], param: Any = None) -> None:
        self.func, self.shape, self.param = func, tuple(map(int, shape)), param

    def __getitem__(self, at: Any) -> Any:
        at = at if isinstance(at, tuple) else (at,)
        return self.func[tuple(_plain(i) for i in reversed(at))]

    def __call__(self, *at: Any) -> Any:
        return self[at]


class Axis:
    """An axis of a reduction; its place in a common domain is known once all reductions are."""

    def __init__(self, number: int, extent: int, variable: Any) -> None:
        self.number, self.extent, self.variable = number, extent, variable


def _plain(i: Any) -> Any:
    return i.variable if isinstance(i, Axis) else i


for _name in ("add", "sub", "mul", "le", "lt", "ge", "gt"):

    def _apply(self: Axis, other: Any, what: Any = getattr(operator, _name)) -> Any:
        return what(self.variable, _plain(other))

    setattr(Axis, f"__{_name}__", _apply)
Axis.__radd__ = lambda self, other: other + self.variable
Axis.__rmul__ = lambda self, other: other * self.variable


class HalideWords:
    """Halide by the words of te. Axes that a reduction goes along together share a domain, so that a program is declared
    twice: first to see which do (``groups``)."""

    def __init__(self, groups: Sequence[Sequence[int]] | None = None) -> None:
        import halide as hl

        self.hl, self.known, self.groups, self.axes = hl, groups, [], []
        self.exp, self.sqrt, self.abs = hl.exp, hl.sqrt, hl.abs

    def placeholder(self, shape: Sequence[int], dtype: str, name: str) -> Tensor:
        kind = {"float32": self.hl.Float(32), "int32": self.hl.Int(32)}[dtype]
        param = self.hl.ImageParam(kind, len(shape), name)
        ends = [(0, e) for e in reversed(shape)]
        return Tensor(self.hl.BoundaryConditions.repeat_edge(param, ends), shape, param)

    def reduce_axis(self, bounds: tuple[int, int], name: str) -> Axis:
        number = len(self.axes)
        made = self.hl.Var(f"{name}{number}") if self.known is None else self._variable(number, bounds[1])
        self.axes.append(Axis(number, bounds[1], made))
        return self.axes[-1]

    def _variable(self, number: int, extent: int) -> Any:
        group, extents = next((g for g in self.known if number in g[0]), ((number,), (extent,)))
        key = ("domain", group)
        if key not in self.__dict__:
            self.__dict__[key] = self.hl.RDom([(0, e) for e in reversed(extents)])
        return self.__dict__[key][len(group) - 1 - group.index(number)]

    def _reduce(self, start: float, step: Callable[[Any, Any], Any], term: Any, axis: Any) -> Reduced:
        axes = list(axis) if isinstance(axis, list | tuple) else [axis]
        self.groups.append((tuple(a.number for a in axes), tuple(a.extent for a in axes)))
        return Reduced(start, step, term, [a.number for a in axes])

    def sum(self, term: Any, axis: Any) -> Reduced:
        return self._reduce(0, operator.add, term, axis)

    def max(self, a: Any, b: Any = None, axis: Any = None) -> Any:
        return self._reduce(LOWEST, self.hl.max, a, axis) if b is None else self.hl.max(a, b)

    def min(self, a: Any, b: Any = None, axis: Any = None) -> Any:
        return self._reduce(HIGHEST, self.hl.min, a, axis) if b is None else self.hl.min(a, b)

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        made = [self.hl.f32(x) if isinstance(x, float) else self.hl.i32(x) if isinstance(x, int) else x for x in (a, b)]
        return self.hl.select(condition, *made)

    if_then_else = select

    def all(self, *conditions: Any) -> Any:
        return functools.reduce(operator.and_, conditions)

    def cast(self, dtype: str, x: Any) -> Any:
        return self.hl.cast({"float32": self.hl.Float(32), "int32": self.hl.Int(32)}[dtype], _plain(x))

    def compute(self, shape: Sequence[int], element: Callable[..., Any], name: str) -> Tensor:
        variables = [self.hl.Var(f"v{n}") for n in range(len(shape))]
        func, place = self.hl.Func(name), tuple(reversed(variables))
        value = element(*variables)
        if not isinstance(value, Reduced):
            func[place] = value
        else:
            term = value.term if isinstance(value.term, self.hl.Expr) else self.hl.Expr(value.term)
            func[place] = self.hl.cast(term.type(), value.start)
            if self.known is not None:
                func[place] = value.step(func[place], term)
        return Tensor(func, shape)

    def create_prim_func(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the inputs and the outputs."""
        return [t for t in tensors if t.param is not None], [t for t in tensors if t.param is None]


def in_halide(make: Callable[..., Any], sizes: Sequence[int]) -> Any:
    """Returns a program whose ``func`` is the pair of Halide's inputs and outputs."""
    first = HalideWords()
    declared(first, make, sizes)
    return declared(HalideWords(first.groups), make, sizes)
