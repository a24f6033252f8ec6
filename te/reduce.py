"""This module has reductions: axes, reducers, and the sums and extremes made with them.

>>> from tilewright import te
>>> A = te.placeholder((4, 8), name="A")
>>> k = te.reduce_axis((0, 8), name="k")
>>> B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")
>>> B.op.reduce_axis[0].var.name
'k'
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast, overload

from ..tir.expr import CommReducer, Expr, IntImm, IterVar, Range, Reduce, Var, const, convert, match_types
from ..tir.expr import all_ as all_of
from ..tir.expr import any_ as any_of
from ..tir.expr.reducers import ALL, ANY, MAX, MIN, PROD, SUM, Reducer


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "") -> IterVar:
    """Returns an axis to reduce over: ``dom`` is ``(begin, end)``, a :class:`Range`, or an extent."""
    if isinstance(dom, Range):
        extent = dom
    elif isinstance(dom, (tuple, list)):
        if len(dom) != 2:
            raise ValueError(f"reduce_axis {name}: the domain is (begin, end), got {len(dom)} items")
        begin, end = match_types(dom[0], dom[1])
        extent = Range(begin, end - begin)
    else:
        extent = Range.from_extent(dom)
    for end in (extent.min, extent.extent):
        if not end.dtype.is_int:
            raise TypeError(f"reduce_axis {name}: the domain is {end.dtype}, not an integer")
    if isinstance(extent.extent, IntImm) and extent.extent.value < 0:
        raise ValueError(f"reduce_axis {name}: the extent is {extent.extent.value}")
    return IterVar(extent, Var(name, extent.extent.dtype), IterVar.REDUCE, thread_tag)


class Reduction(Protocol):
    """What :func:`comm_reducer` returns: a reduction over axes, or a combination of several expressions."""

    @overload
    def __call__(
        self, expr: tuple[Any, ...] | list[Any], /, *args: Any, axis: Any = None, where: Any = None, init: Any = None
    ) -> tuple[Expr, ...]: ...
    @overload
    def __call__(
        self, expr: Expr | float, /, *args: Any, axis: Any = None, where: Any = None, init: Any = None
    ) -> Expr: ...


def comm_reducer(fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce") -> Reduction:
    """Returns a reducer from a commutative, associative function of two values, or of two tuples, and its identity.

    ``fidentity`` gets the data type of each value. The reducer is called as ``reducer(expr, axis, where=None,
    init=None)``, with a tuple of expressions when it combines tuples (it returns a tuple then); with expressions
    only, as ``reducer(a, b, …)``, it combines these.

    >>> from tilewright import te
    >>> argmax = te.comm_reducer(
    ...     lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
    ...     lambda ti, tv: (te.const(-1, ti), te.min_value(tv)), name="argmax")
    >>> val = te.placeholder((4, 8), name="val")
    >>> k = te.reduce_axis((0, 8), "k")
    >>> index, value = te.compute((4,), lambda i: argmax((k.var, val[i, k]), axis=k), name="T")
    >>> index.dtype, value.dtype
    ('int32', 'float32')
    """
    left_name, right_name = _two_names(fcombine, name)

    def reducer(expr: Any, *args: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
        more, axis, where, init = _arguments(name, args, axis, where, init)
        if axis is not None:
            return make_reduce(expr, axis, where, init)
        if not more:
            raise TypeError(f"{name}: give axis=, the reduce_axis to combine over, or several expressions")
        out = convert(expr)
        for other in more:
            out = fcombine(out, convert(other))
        return out

    def make_reduce(expr: Any, axis: Any, where: Any, init: Any) -> Any:
        many = isinstance(expr, (tuple, list))
        source = tuple([convert(e) for e in (expr if many else (expr,))])
        lhs = tuple([Var(f"{left_name}_{i}" if many else left_name, e.dtype) for i, e in enumerate(source)])
        rhs = tuple([Var(f"{right_name}_{i}" if many else right_name, e.dtype) for i, e in enumerate(source)])
        dtypes = [e.dtype for e in source]
        result = fcombine(lhs, rhs) if many else (fcombine(lhs[0], rhs[0]),)
        identity = fidentity(*dtypes) if many else (fidentity(dtypes[0]),)
        combiner = CommReducer(
            lhs, rhs, _checked(name, "combination", result, dtypes), _checked(name, "identity", identity, dtypes)
        )
        axes = _axes(name, axis)
        condition = const(True, "bool") if where is None else convert(where)
        if not condition.dtype.is_bool:
            raise TypeError(f"{name}: where= is {condition.dtype}, not bool")
        start: tuple[Expr, ...] = ()
        if init is not None:
            start = _checked(name, "init", init if isinstance(init, (tuple, list)) else (init,), dtypes)
        out = tuple([Reduce(combiner, source, axes, condition, i, start) for i in range(len(source))])
        return out if many else out[0]

    reducer.__name__ = name
    reducer.__doc__ = (
        f"Reduces an expression over axes: ``{name}(expr, axis, where=None, init=None)``; see :func:`comm_reducer`."
    )
    return cast(Reduction, reducer)


def _arguments(name: str, args: tuple[Any, ...], axis: Any, where: Any, init: Any) -> tuple[Any, ...]:
    """Returns the expressions to combine, and axis, where, init, which may be given by position as well."""
    given = {"axis": axis, "where": where, "init": init}
    if args and (isinstance(args[0], (IterVar, list, tuple)) or (args[0] is None and axis is None)):
        if len(args) > 3:
            raise TypeError(f"{name}: expressions beside an axis")
        for key, value in zip(given, args, strict=False):
            if given[key] is not None:
                raise TypeError(f"{name}: {key} is given twice")
            given[key] = value
        args = ()
    elif args and axis is not None:
        raise TypeError(f"{name}: expressions beside an axis")
    if given["axis"] is None and (given["where"] is not None or given["init"] is not None):
        raise TypeError(f"{name}: where= and init= are for a reduction; give axis= as well")
    return (args, *given.values())


def _two_names(fcombine: Callable[..., Any], name: str) -> tuple[str, str]:
    names = [p.name for p in inspect.signature(fcombine).parameters.values()]
    if len(names) != 2:
        raise TypeError(f"{name}: the combination takes two arguments, not {len(names)}")
    return names[0], names[1]


def _checked(name: str, what: str, values: Any, dtypes: Sequence[str]) -> tuple[Expr, ...]:
    if not isinstance(values, (tuple, list)) or len(values) != len(dtypes):
        raise ValueError(f"{name}: the {what} has to give {len(dtypes)} values, got {values!r}")
    out = []
    for value, dtype in zip(values, dtypes, strict=True):
        e = convert(value, dtype) if isinstance(value, (int, float)) else convert(value)
        if e.dtype != dtype:
            raise TypeError(f"{name}: the {what} gives {e.dtype} where the reduction is over {dtype}")
        out.append(e)
    return tuple(out)


def _axes(name: str, axis: Any) -> tuple[IterVar, ...]:
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if not axes:
        raise ValueError(f"{name}: no axis to reduce over")
    for a in axes:
        if not isinstance(a, IterVar):
            raise TypeError(f"{name}: axis= takes te.reduce_axis, got {a!r} ({type(a).__name__})")
        if a.kind != IterVar.REDUCE:
            raise ValueError(f"{name}: {a.var.name} is a {a.kind} axis; reduce over one made by te.reduce_axis")
    if len(set(map(id, axes))) != len(axes):
        raise ValueError(f"{name}: an axis is given twice")
    return axes


def reduction_by(reducer: Reducer) -> Reduction:
    """Returns the reduction by a known reducer, as :func:`comm_reducer` does for a combination of one's own."""
    if reducer.arity > 1:
        return comm_reducer(reducer.combine, lambda *dtypes: reducer.identity(dtypes), reducer.name)
    return comm_reducer(
        lambda x, y: reducer.combine((x,), (y,))[0], lambda dtype: reducer.identity((dtype,))[0], reducer.name
    )


sum_, prod = reduction_by(SUM), reduction_by(PROD)
max_, min_ = reduction_by(MAX), reduction_by(MIN)
_some, _every = reduction_by(ANY), reduction_by(ALL)


def any_(*conds: Any, axis: Any = None, where: Any = None, init: Any = None) -> Expr:
    """Returns whether one of the conditions holds; with ``axis=``, whether the condition holds somewhere along it.

    ``where=`` and ``init=`` as with every reducer: what is left out counts as false, ``init`` (false) begins.
    """
    return _logical("any", _some, any_of, conds, (axis, where, init))


def all_(*conds: Any, axis: Any = None, where: Any = None, init: Any = None) -> Expr:
    """Returns whether every condition holds; with ``axis=``, whether the condition holds everywhere along it.

    ``where=`` and ``init=`` as with every reducer: what is left out counts as true, ``init`` (true) begins.
    """
    return _logical("all", _every, all_of, conds, (axis, where, init))


def _logical(name: str, reducer: Any, plain: Any, conds: tuple[Any, ...], given: tuple[Any, Any, Any]) -> Expr:
    more, axis, where, init = _arguments(name, conds[1:], *given)
    if axis is None:
        return plain(*conds[:1], *more)
    if not conds:
        raise TypeError(f"{name}: a condition is reduced over axis=, got none")
    e = convert(conds[0])
    if not e.dtype.is_bool:
        raise TypeError(f"{name}: the condition is {e.dtype}, not bool")
    return reducer(e, axis=axis, where=where, init=init)
