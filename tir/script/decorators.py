"""This module defines ``@T.prim_func`` and ``@I.ir_module``, which parse the source of Python functions and classes."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

from ..expr import plain
from ..parser import parse_source
from ..parser.function_parser import Macro
from ..parser.parser_base import Source
from ..stmt import IRModule, PrimFunc

MODULE_ATTRS = "__tir_module_attrs__"


def prim_func(func: Any = None, *, private: bool = False, check_well_formed: bool = True, s_tir: bool = True) -> Any:
    """Return the PrimFunc that a Python function's source describes.

    Names that the function does not define itself are looked up at the place of its definition: closures, the scope of
    the definition, globals. ``private`` leaves out the global symbol. ``s_tir`` and ``check_well_formed`` are accepted
    for TVM's sake. Raises :class:`tilewright.tir.parser.ParseError` with the line in the file.
    """
    frame = sys._getframe(1)
    if func is None:
        return lambda f: _from_function(f, frame)
    return _from_function(func, frame)


def macro(func: Any = None, *, hygienic: bool = True) -> Any:
    """Return a macro: its body replaces each call of it inside functions under :func:`prim_func`.

    Names that are not its parameters are looked up where it is called, as with TVM's ``hygienic=False``; the option is
    accepted for TVM's sake.
    """
    if func is None:
        return macro
    tree = ast.parse(textwrap.dedent(inspect.getsource(func))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise TypeError(f"@T.macro stands before a function, not before {func!r}")
    return Macro(tree)


def ir_module(cls: type) -> IRModule:
    """Return the module of the functions of a class, each decorated with ``@T.prim_func``."""
    functions: dict[str, PrimFunc] = {}
    for name, value in vars(cls).items():
        if isinstance(value, PrimFunc):
            functions[name] = value
        elif inspect.isfunction(value):
            raise TypeError(f"`{name}` in the module `{cls.__name__}` lacks the decorator @T.prim_func")
    attrs = {k: plain(v) for k, v in vars(cls).get(MODULE_ATTRS, {}).items()}
    return IRModule(functions, attrs)


def _from_function(func: Any, frame: FrameType) -> PrimFunc:
    if isinstance(func, PrimFunc):
        return func
    if not isinstance(func, FunctionType):
        raise TypeError(f"@T.prim_func stands before a function, not before {func!r}")
    try:
        lines, first = inspect.getsourcelines(func)
    except (OSError, TypeError) as e:
        raise ValueError(
            f"the source of `{func.__name__}` cannot be read ({e}); @T.prim_func needs a file or a notebook cell, "
            "tir.parse takes text"
        ) from None
    source = Source(textwrap.dedent("".join(lines)), inspect.getsourcefile(func) or "<source>", max(first, 1))
    out = parse_source(source, _names(func, frame))
    if not isinstance(out, PrimFunc):
        raise TypeError(f"`{func.__name__}` is not a function")
    return out


def _names(func: FunctionType, frame: FrameType) -> Callable[[str], Any]:
    closed = {}
    for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
        try:
            closed[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    places: list[Any] = [closed, dict(frame.f_locals)]
    if "__qualname__" in frame.f_locals and frame.f_back is not None:  # in a class body the scope around it counts, too
        places.append(dict(frame.f_back.f_locals))
    places.append(func.__globals__)

    def find(name: str) -> Any:
        for place in places:
            if name in place:
                return place[name]
        return NotImplemented

    return find
