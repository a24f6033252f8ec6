"""This module holds the table of converters, by the name of the operator and its domain."""

from __future__ import annotations

from collections.abc import Callable

from ..converter_table import C, Converter, entering

CONVERTERS: dict[tuple[str, str], Converter] = {}
"""All converters by domain (empty for ONNX's own) and operator. They take a :class:`.call.Call`."""


def register_onnx_operator(name: str, convert: Converter, domain: str = "") -> None:
    """Add a converter: a function of a :class:`.call.Call` that returns the value of the result, or a tuple of values.

    An operator that is there already is replaced.

    >>> register_onnx_operator("Double", lambda c: c.op("add", c.input(0), c.input(0)), domain="example")
    >>> del CONVERTERS["example", "Double"]
    """
    CONVERTERS[domain, name] = convert


def converter(*names: str) -> Callable[[C], C]:
    """Returns a decorator that enters a function for operators of ONNX's own domain."""
    return entering(CONVERTERS, *[("", name) for name in names])


def contributed(*names: str) -> Callable[[C], C]:
    """Returns a decorator that enters a function for operators of ONNX Runtime's own domain."""
    return entering(CONVERTERS, *[("com.microsoft", name) for name in names])
