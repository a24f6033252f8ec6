"""Rules that put an element-wise operator in the place of a formula that is written out in others.

The formulas are the ``forms`` of the rows of :data:`tilewright.te.ops.elements.ELEMENTS`, for example ``x * sigmoid(x)`` of
``silu``. In a form stand the row's operands by their names, numbers, other operators as functions with attributes by keyword,
and ``either(f, g)`` where there are several ways. The name of a parameter stands for a constant number or an attribute; a form
with values, ``("relu6(x)", {"low": 0.0, "high": 6.0})``, says what the parameters are.

A form is replaced for floats, where no operand was broadcast or converted. The steps may overflow where the operator does
not, and float16 and bfloat16 are rounded once, at the end; docs/guides/models.md, "What rewriting may change", has the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...te.ops.elements import ELEMENTS, ElementOperator
from ...tir.expr import DType
from ..graph import GraphError, Value
from ..rules import Attribute, Match, Pattern, Rule, any_value, constant, either, is_rounded, op


class _FormNames(dict[str, Any]):
    """The names that a form may use: each operator by its name is a function of patterns."""

    def __missing__(self, name: str) -> Callable[..., Pattern]:
        def applied(*args: Pattern, **attrs: Any) -> Pattern:
            defaults = ELEMENTS[name].parameters if name in ELEMENTS else {}
            return op(name, *args, **{key: _attribute(value) for key, value in {**defaults, **attrs}.items()})

        return applied


def _attribute(value: Any) -> Any:
    """Returns an attribute of a pattern: parameters of the row bind, numbers may be near, the rest is equal."""
    if isinstance(value, Pattern):
        return Attribute(value.name)  # type: ignore[attr-defined]
    return Attribute(number=value) if isinstance(value, float) and is_rounded(value) else value


def _pattern(row: ElementOperator, operands: tuple[str, ...], form: str) -> Pattern:
    names = _FormNames({name: any_value(name) for name in operands})
    names |= {name: constant(name) for name in row.parameters}
    names["either"] = either
    found: Pattern = eval(form, {"__builtins__": {}}, names)  # a literal of the table
    return found


def _rule(
    name: str, row: ElementOperator, operands: tuple[str, ...], pattern: Pattern, values: Mapping[str, Any]
) -> Rule:
    def replace(m: Match) -> Value | None:
        inputs = [m[o] for o in operands]
        if not DType(m.out.dtype).is_float or not all(m.fits(v) for v in inputs) or len({*inputs}) < len(inputs):
            return None
        attrs = dict(values)
        for p in row.parameters:
            if p in m:
                found = _number(m, p)
                if found is None:
                    return None
                attrs[p] = found
        try:
            return m.op(row.name, *inputs, **attrs)
        except GraphError:  # numbers that the operator does not take
            return None

    return Rule(name, pattern, replace)


def _number(m: Match, name: str) -> float | None:
    """Returns the number that a parameter stands for: an attribute, or a constant that is the same everywhere."""
    given = m.attribute(name)
    if not isinstance(given, Value):
        return float(given)
    data = m.numbers(name)
    if given.dtype != m.out.dtype or not data.size or (data != data.reshape(-1)[0]).any():
        return None
    return float(data.reshape(-1)[0])


def _rules() -> Iterator[Rule]:
    for row in ELEMENTS.values():
        operands = row.operand_names
        by_values: dict[tuple[Any, ...], list[str]] = {}
        for form in row.forms:
            text, told = (form, {}) if isinstance(form, str) else form
            by_values.setdefault(tuple(told.items()), []).append(text)
        for values, texts in by_values.items():
            words = [f"{key}_{f'{v:g}' if isinstance(v, float) else v}" for key, v in values]
            name = "_".join([row.name, *words])
            yield _rule(name, row, operands, either(*[_pattern(row, operands, t) for t in texts]), dict(values))


RULES: tuple[Rule, ...] = tuple(_rules())
"""A rule for each operator with forms, and for each set of values of its parameters."""
