"""This module makes keys of attributes, by which operators are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tir.expr import Expr


def attributes_key(attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns a key that equal attributes share, whatever their order; 1, 1.0 and True differ."""
    return tuple(sorted([(name, _key(value)) for name, value in attrs.items()], key=lambda item: item[0]))


def _key(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return ("tuple", *[_key(v) for v in value])
    if isinstance(value, Expr):
        return ("expression", id(value))
    return (type(value).__name__, value)
