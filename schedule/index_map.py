"""This module defines index maps: where the element at some indices goes, as a Python function of the indices.

>>> m = IndexMap.from_func(lambda k, j: (j // 48, k, j % 48))
>>> m.as_text()
'lambda k, j: (j // 48, k, j % 48)'
>>> [int(e) for e in m.map_shape((64, 255))]
[6, 64, 48]

A map is kept in traces as its text, which the parser of TIR reads back; nothing is executed. A map that uses scalar parameters or sizes of the function is kept as its text and these, by the names that the text has for them:
``["lambda i: (i + n,)", {"n": n}]``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..tir.arith import Analyzer, eval_interval
from ..tir.arith.itermap import invert_sums
from ..tir.expr import (
    INDEX_TYPES,
    Add,
    BinaryOp,
    Cast,
    Expr,
    ExprLike,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Range,
    Reason,
    Sub,
    Var,
    const,
    convert,
    is_const_int,
    make_binary,
    match_types,
    max_value,
)
from ..tir.parser import parse_expression
from ..tir.printer_expr import ExprPrinter
from ..tir.walk import pre_order, substitute, uses_var
from .errors import ScheduleError, bad_argument

_LONGEST = 2000
_LAMBDA = re.compile(r"\s*lambda\b\s*((?:[^\W\d]\w*\s*,\s*)*(?:[^\W\d]\w*)?)\s*:(.*)", re.DOTALL)
_ARITHMETIC = (Add, Sub, Mul, FloorDiv, FloorMod)


@dataclass(frozen=True)
class IndexMap:
    """An ``IndexMap`` maps ``initial_indices`` (variables) to ``final_indices`` (expressions of them).

    ``IndexMap.AXIS_SEPARATOR`` among the results of a function says where, in the new layout, one physical axis ends
    and the next begins (see ``set_axis_separator``): ``axis_separators`` counts the indices before each.
    """

    initial_indices: tuple[Var, ...]
    final_indices: tuple[Expr, ...]
    axis_separators: tuple[int, ...] = ()

    AXIS_SEPARATOR: ClassVar[str] = "AXIS_SEPARATOR"

    @staticmethod
    def of(given: Any, ndim: int | None = None, sizes: Collection[Var] = ()) -> IndexMap:
        """Return the map that ``given`` stands for: a map, a function, or the recorded form of a map.

        ``sizes`` are variables that it may use beside its indices. ScheduleError (a TypeError too) is raised for
        anything else, and when the function fails.
        """
        if isinstance(given, IndexMap):
            return given.checked(sizes)
        if isinstance(given, str):
            return IndexMap.from_text(given)
        if callable(given):
            try:
                return IndexMap.from_func(given, ndim, sizes)
            except ScheduleError:
                raise
            except Exception as error:
                raise bad_argument(
                    f"the index map {getattr(given, '__name__', given)} fails: {error} ({type(error).__name__})",
                    hint="it gets a variable for each index and returns expressions of these, e.g. lambda i, j: (j, i)",
                ) from error
        if isinstance(given, (list, tuple)) and len(given) == 2 and isinstance(given[0], str):
            text, named = given
            if isinstance(named, Mapping) and all(isinstance(v, (Var, int)) for v in named.values()):
                return IndexMap.from_text(text, named).checked(sizes)
        raise bad_argument(
            f"an index map is a function, its text or an IndexMap, not {type(given).__name__}",
            hint="give e.g. lambda i, j: (j, i)",
        )

    @staticmethod
    def from_func(func: Callable[..., Any], ndim: int | None = None, sizes: Collection[Var] = ()) -> IndexMap:
        """Return the map of a Python function; ``ndim`` is needed when it takes ``*indices``. It may use ``sizes`` as
        well."""
        parameters = list(inspect.signature(func).parameters.values())
        alone = sum(p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
        variables: list[Var] = []
        positional: list[Var] = []
        named: dict[str, Var] = {}
        for p in parameters:
            if p.kind is p.VAR_KEYWORD:
                raise ValueError(f"the index map takes **{p.name}; its indices need names")
            if p.kind is p.VAR_POSITIONAL:
                if ndim is None:
                    raise ValueError(f"the index map takes *{p.name}; say ndim")
                more = [Var(f"{p.name}_{i}") for i in range(ndim - alone)]
                variables += more
                positional += more
                continue
            variables.append(Var(p.name))
            if p.kind is p.KEYWORD_ONLY:
                named[p.name] = variables[-1]
            else:
                positional.append(variables[-1])
        result = func(*positional, **named)
        parts = result if isinstance(result, (tuple, list)) else (result,)
        return _from_parts(tuple(variables), [p if _is_separator(p) else convert(p) for p in parts], sizes)

    @staticmethod
    def from_text(text: str, sizes: Mapping[str, Any] | None = None) -> IndexMap:
        """Return the map whose text :meth:`as_text` wrote; ScheduleError for any other text.

        ``sizes`` gives the variables that the text uses beside its indices, by name.
        """
        problem = ScheduleError(
            f"{text[:80]!r} is not an index map", hint="write e.g. 'lambda i, j: (i // 16, j, i % 16)'"
        )
        header = _LAMBDA.fullmatch(text)
        if header is None or len(text) > _LONGEST:
            raise problem
        indices = {name: Var(name) for name in header[1].replace(",", " ").split()}
        named = {name: convert(e) for name, e in (sizes or {}).items()}
        separator = IndexMap.AXIS_SEPARATOR
        try:
            body = parse_expression(header[2], {separator: separator, **named, **indices})
            parts = [
                p if _is_separator(p) else convert(p) for p in (body if isinstance(body, (tuple, list)) else (body,))
            ]
        except (ValueError, TypeError, OverflowError):
            raise problem from None
        return _from_parts(tuple(indices.values()), parts, [e for e in named.values() if isinstance(e, Var)])

    @property
    def sizes(self) -> list[Var]:
        """Return the variables that the map uses beside its indices, each once."""
        found = {n: None for e in self.final_indices for n in pre_order(e) if isinstance(n, Var)}
        indices = set(self.initial_indices)
        return [v for v in found if v not in indices]

    def checked(self, sizes: Collection[Var] = ()) -> IndexMap:
        """Return the map in one integer type; ScheduleError when it uses more than its indices, ``sizes`` and integer
        arithmetic."""
        allowed = {*self.initial_indices, *sizes}
        plain = self._in_one_type()
        allowed.update(plain.initial_indices)
        for e in plain.final_indices:
            for n in pre_order(e):
                if isinstance(n, Var) and n not in allowed:
                    raise bad_argument(
                        f"the index map uses {n.name}, which is not one of its indices",
                        hint="use the map's own indices, numbers, and scalar parameters or sizes of the function only",
                    )
                if not isinstance(n, (Var, IntImm, *_ARITHMETIC)):
                    raise bad_argument(
                        f"the index map uses {n}; it may use +, -, *, // and % only",
                        hint="compute anything else in a block of its own",
                    )
                if isinstance(n, (FloorDiv, FloorMod)) and is_const_int(n.b, 0):
                    raise bad_argument(
                        f"{e} is not an index map: it divides by zero", hint="divide by a positive number"
                    )
        return plain

    def _in_one_type(self) -> IndexMap:
        """Return the map without casts between int32 and int64, such as ``i // np.int64(4)`` brings in.

        The type is the wider one when an index or a size has it, or a number needs it.
        """
        nodes = [n for e in self.final_indices for n in pre_order(e) if isinstance(n, Expr)]
        parts = {n for n in nodes if n.dtype in INDEX_TYPES}
        if not any(isinstance(n, Cast) or n.dtype == "int64" for n in parts):
            return self
        wide = any(
            n.dtype == "int64" if isinstance(n, Var) else isinstance(n, IntImm) and abs(n.value) > max_value("int32")
            for n in (*self.initial_indices, *parts)
        )
        dtype = "int64" if wide else "int32"
        fresh = {v: v if v.dtype == dtype else Var(v.name, dtype) for v in self.initial_indices}

        def walk(e: Expr) -> Expr:
            if isinstance(e, BinaryOp):
                return make_binary(type(e), walk(e.a), walk(e.b))
            if isinstance(e, Cast) and {str(e.dtype), str(e.value.dtype)} <= {"int32", "int64"}:
                return walk(e.value)
            if isinstance(e, IntImm) and e.dtype in INDEX_TYPES:
                return const(e.value, dtype)
            return fresh.get(e, e) if isinstance(e, Var) else e

        try:
            return IndexMap(tuple(fresh.values()), tuple([walk(e) for e in self.final_indices]), self.axis_separators)
        except TypeError:  # sizes of different types
            return self

    def as_text(self) -> str:
        """Return the map as a Python lambda."""
        printer = self._printer()
        parts = [printer.text(e) for e in self.final_indices]
        for n in reversed(self.axis_separators):
            parts.insert(n, self.AXIS_SEPARATOR)
        body = ", ".join(parts) + ("," if len(parts) == 1 else "")
        return f"lambda {printer.many(self.initial_indices)}: ({body})"

    def recorded(self) -> str | list[Any]:
        """Return the map as a trace keeps it: its text, together with the sizes that it uses, if any."""
        names = self._printer().names.texts
        sizes: dict[str, Var] = {names[v]: v for v in self.sizes}
        return [self.as_text(), sizes] if sizes else self.as_text()

    def _printer(self) -> ExprPrinter:
        """Return a printer that has a name for each variable; different variables have different names."""
        printer = ExprPrinter(typed=False)
        for v in (*self.initial_indices, *self.sizes):
            printer.names.define(v, v.name)
        return printer

    __str__ = as_text

    def map_indices(
        self, indices: Sequence[ExprLike], analyzer: Analyzer | None = None, keep_constants: bool = True
    ) -> tuple[Expr, ...]:
        """Return the simplified results of the map for ``indices``.

        A result that can only be one number is left unsimplified, or with ``keep_constants`` false only when it is a
        variable.
        """
        if len(indices) != len(self.initial_indices):
            raise bad_argument(
                f"the index map {self} takes {len(self.initial_indices)} indices, the buffer or block has {len(indices)}",
                hint="take as many indices as there are dimensions, or axes",
            )
        values = [convert(i) for i in indices]
        mine = self._typed([i.dtype for i in values])
        at = dict(zip(mine.initial_indices, values, strict=True))
        an = Analyzer() if analyzer is None else analyzer
        there = [substitute(e, at) for e in mine.final_indices]
        if keep_constants:
            return tuple([simplify_unless_constant(an, e) for e in there])
        return tuple([e if isinstance(e, Var) else an.simplify(e) for e in there])

    def _typed(self, dtypes: Sequence[str]) -> IndexMap:
        """Return this map over indices of other data types; the map itself when they are the same."""
        if all(v.dtype == d for v, d in zip(self.initial_indices, dtypes, strict=True)):
            return self
        fresh = {v: Var(v.name, d) for v, d in zip(self.initial_indices, dtypes, strict=True)}

        def walk(e: Expr) -> Expr:
            if isinstance(e, BinaryOp):
                return make_binary(type(e), *match_types(walk(e.a), walk(e.b)))
            return fresh.get(e, e) if isinstance(e, Var) else e

        return IndexMap(tuple(fresh.values()), tuple([walk(e) for e in self.final_indices]), self.axis_separators)

    def _bound(self, shape: Sequence[ExprLike], analyzer: Analyzer) -> tuple[IndexMap, dict[Var, Range]]:
        """Return the map on indices of the types of ``shape``, and their ranges, which ``analyzer`` knows from now on."""
        mine = self._typed([convert(e).dtype for e in shape])
        ranges = {v: Range.from_extent(e) for v, e in zip(mine.initial_indices, shape, strict=True)}
        for v, r in ranges.items():
            analyzer.bind(v, r)
        return mine, ranges

    def map_shape(self, shape: Sequence[ExprLike], analyzer: Analyzer | None = None) -> tuple[Expr, ...]:
        """Return the shape that contains the results for all indices of ``shape``; a remainder by ``c`` takes up
        ``c``."""
        if len(shape) != len(self.initial_indices):
            raise bad_argument(
                f"the index map {self} takes {len(self.initial_indices)} indices, the shape has {len(shape)}",
                hint="take as many indices as the shape has dimensions",
            )
        an = Analyzer() if analyzer is None else analyzer
        mine, ranges = self._bound(shape, an)
        out = []
        plain = Analyzer()
        with an.nonempty(*[r.extent for r in ranges.values()]):
            mine._check_divisors(an)
            for e in mine.final_indices:
                ends = eval_interval(an.simplify(_whole_remainders(plain.simplify(e), an, ranges)), ranges, an)
                if ends is None or not an.can_prove(ends[0] >= 0):
                    raise ScheduleError(
                        f"the index map {self} sends some index to {e}, which is not known to be >= 0",
                        hint="add what keeps it from going below 0, or divide and take remainders only",
                    )
                out.append(an.simplify(ends[1] + 1))
        return tuple(out)

    def divisors(self) -> list[Expr]:
        """Return the divisors in the map that are not constants."""
        found = [n.b for e in self.final_indices for n in pre_order(e) if isinstance(n, (FloorDiv, FloorMod))]
        return [e.value if isinstance(e, Cast) else e for e in found if not isinstance(e, IntImm)]

    def _check_divisors(self, analyzer: Analyzer) -> None:
        for e in self.divisors():
            if not analyzer.can_prove(e >= 1):
                raise ScheduleError(
                    f"the index map {self} divides by {e}, which is not known to be at least 1",
                    hint="divide by numbers, or by sizes of what is mapped; other sizes and scalar parameters may be 0, "
                    "unless the function begins with an assertion that they are not",
                )

    def inverse(
        self, shape: Sequence[ExprLike], variables: Sequence[Var], analyzer: Analyzer | None = None
    ) -> tuple[tuple[Expr, ...], list[Expr]]:
        """Return the indices that map to ``variables``, and the conditions under which these exist within ``shape``.

        ScheduleError is raised when the map cannot be inverted, so that two elements might share one place.
        ``variables`` must be bound in ``analyzer``.
        """
        an = Analyzer() if analyzer is None else analyzer
        mine, doms = self._bound(shape, an)
        with an.nonempty(*[r.extent for r in doms.values()]):
            found = invert_sums(an, doms, mine.final_indices, variables, as_written=True)
            if isinstance(found, Reason):
                found = invert_sums(an, doms, mine.final_indices, variables, as_written=False)
            if isinstance(found, Reason):
                raise ScheduleError(
                    f"the index map {self} is not known to send each index to a place of its own: {found}",
                    hint="use splits, fusions and a reordering of the indices",
                )
            solved, tests = found
            forth = {v: e for v, e in zip(variables, mine.final_indices, strict=True)}
            for v, e in solved.items():  # the inverse of the result for v must be v
                if not an.can_prove_equal(substitute(e, forth), v):
                    raise ScheduleError(
                        f"the index map {self} is not known to send each index to a place of its own",
                        hint="use splits, fusions and a reordering of the indices",
                    )
        shorten = Analyzer() if tests else an
        back = [solved[v] if isinstance(solved[v], Var) else shorten.simplify(solved[v]) for v in mine.initial_indices]
        return tuple(back), [an.simplify(t) for t in tests]


def _whole_remainders(e: Expr, analyzer: Analyzer, ranges: dict[Var, Range]) -> Expr:
    """Return ``e`` with each ``x % c`` replaced by a new variable from 0 to c - 1. That holds even where x is
    smaller."""
    if isinstance(e, FloorMod) and not uses_var(e.b, lambda v: v in ranges) and analyzer.can_prove(e.b >= 1):
        var = Var("r", e.dtype)
        ranges[var] = Range.from_extent(e.b)
        analyzer.bind(var, ranges[var])
        return var
    if isinstance(e, BinaryOp):
        a, b = _whole_remainders(e.a, analyzer, ranges), _whole_remainders(e.b, analyzer, ranges)
        return e if a is e.a and b is e.b else make_binary(type(e), a, b)
    return e


def simplify_unless_constant(analyzer: Analyzer, e: Expr) -> Expr:
    """Return ``e`` simplified, but unchanged when it can only be one number, so that it still names its axis."""
    short = analyzer.simplify(e)
    return e if isinstance(short, IntImm) else short


def _is_separator(part: Any) -> bool:
    return isinstance(part, str) and part == IndexMap.AXIS_SEPARATOR


def _from_parts(variables: tuple[Var, ...], parts: Sequence[Any], sizes: Collection[Var] = ()) -> IndexMap:
    """Return the map with these results, which may include axis separators."""
    indices: list[Expr] = []
    separators: list[int] = []
    for part in parts:
        if _is_separator(part):
            separators.append(len(indices))
        else:
            indices.append(part)
    return IndexMap(variables, tuple(indices), tuple(separators)).checked(sizes)
