"""This package is the ``T`` of TVMScript, the vocabulary of programs written by hand.

    from tilewright.tir import script as T

    @T.prim_func
    def add(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in T.serial(16):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = A[vi] + B[vi]

:data:`prim_func` reads the function's source, so nothing in it runs. Python's ``for``, ``while``, ``if``, ``with`` and
``assert`` are statements of the program; ``break``, ``continue`` and the ``else`` of a loop are not in the language. Words that make expressions (``T.exp``,
``T.float32``, ``T.Cast`` …) work in plain Python too; :mod:`tilewright.tir.vocabulary` defines them all.
"""

from __future__ import annotations

from typing import Any

from ..vocabulary import FUNCTIONS, WORDS, Axis, word_named
from . import ir
from .decorators import ir_module, macro, prim_func
from .ir import module_attrs

__all__ = ["axis", "ir", "ir_module", "macro", "module_attrs", "prim_func"]

axis = Axis


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return word_named(name)


def __dir__() -> list[str]:
    types = ["bool", "bfloat16", "float16", "float32", "float64", "handle", "int8", "int16", "int32", "int64", "uint8"]
    return sorted({*__all__, *FUNCTIONS, *types, *(word for word in WORDS if "." not in word)})
