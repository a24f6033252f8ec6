"""The C back end: its words and tables, and a source file for lowered functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...tir.expr.deep_recursion import with_room
from ..backend.emitter import EXPRESSIONS, STATEMENTS, EmitterTables, constant_elements
from ..lowered import LoweredFunc
from . import c_expr, c_stmt, freestanding_words, hls_words, portable_words
from .c_expr import PLAIN_CALLS, TILE_CALLS, library_call
from .c_header import c_names, c_prototype
from .c_stmt import CScope, CUnit
from .freestanding_words import FREESTANDING_CALLS, STACK_BYTES, FreestandingScope, Workspace
from .hls_words import HlsScope, arrays_inside, divided_arrays, hls_prototype, partition_lines
from .inline_functions import Helpers
from .portable_words import PORTABLE_CALLS, PortableScope, StructHelpers

_HEAD = """/* Made by Tilewright. Needs GCC 12 or Clang 14 and, for parallel loops, -fopenmp (they run serially without).
   Compile with -O3 and -march=…; link with -lm. float16 and bfloat16 are uint16_t bits. Multiply-adds of vectors are
   left to the compiler to fuse, which GCC and Clang do unless -ffp-contract=off forbids it. */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
"""


_PORTABLE_HEAD = """/* Made by Tilewright. Strict ISO C99; link with -lm. With -fopenmp, parallel loops are distributed where the target
   has -openmp. float16 and bfloat16 are uint16_t bits. Optimize with -O3 and, for vectors, -march=…. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
"""

_FREESTANDING_HEAD = """/* Made by Tilewright. Strict ISO C99 without a heap and without libm; memcpy alone is called. The workspace has
   NUMBER bytes, static, for one call at a time. float16 and bfloat16 are uint16_t bits. */
#include <math.h> /* INFINITY and NAN */
#include <stdint.h>
#include <string.h>
#define TILEWRIGHT_WORKSPACE_BYTES NUMBER
"""

TABLES = EmitterTables(STATEMENTS, EXPRESSIONS, {**PLAIN_CALLS, **TILE_CALLS})
PORTABLE = EmitterTables(STATEMENTS, EXPRESSIONS, {**TABLES.calls, **PORTABLE_CALLS})
FREESTANDING = EmitterTables(STATEMENTS, EXPRESSIONS, {**PORTABLE.calls, **FREESTANDING_CALLS})


class CEmitter(CScope):
    """A writer of C with GCC's vector types."""

    arithmetic = c_expr.arithmetic
    assertion = c_stmt.assertion
    branch = c_stmt.branch
    choice = c_expr.choice
    comparison = c_expr.comparison
    conversion = c_expr.conversion
    converted = c_expr.converted
    evaluated = c_stmt.evaluated
    extreme = c_expr.extreme
    floating = c_expr.floating
    free = c_stmt.free
    integer = c_expr.integer
    let = c_expr.let
    library_call = library_call
    load = c_expr.load
    logical = c_expr.logical
    named = c_expr.named
    negation = c_expr.negation
    new_register = c_stmt.new_register
    parallel_loop = c_stmt.parallel_loop
    quotient = c_expr.quotient
    ramp = c_expr.ramp
    scratch_memory = c_stmt.scratch_memory
    serial_loop = c_stmt.serial_loop
    set_register = c_stmt.set_register
    shuffle = c_expr.shuffle
    splat = c_expr.splat
    stack_memory = c_stmt.stack_memory
    store = c_stmt.store
    while_loop = c_stmt.while_loop


class PortableEmitter(CEmitter, PortableScope):
    """A writer of strict ISO C99."""

    arithmetic = portable_words.arithmetic
    comparison = portable_words.comparison
    converted = portable_words.converted
    floating = portable_words.floating
    let = portable_words.let
    load = portable_words.load
    logical = portable_words.logical
    named = portable_words.named
    negation = portable_words.negation
    new_register = portable_words.new_register
    quotient = portable_words.quotient
    ramp = portable_words.ramp
    scratch_memory = portable_words.scratch_memory
    shuffle = portable_words.shuffle
    splat = portable_words.splat
    stack_memory = portable_words.stack_memory
    store = portable_words.store
    while_loop = portable_words.while_loop


class FreestandingEmitter(PortableEmitter, FreestandingScope):
    """A writer of strict C99 for a microcontroller."""

    free = freestanding_words.free
    library_call = freestanding_words.library_call
    scratch_memory = freestanding_words.scratch_memory

    def __init__(self, unit: CUnit, workspace: Workspace) -> None:
        super().__init__(unit)
        self.workspace, self.places = workspace, {}
        small = [b for b in unit.on_stack if (constant_elements(b) or 0) * b.dtype.bytes <= STACK_BYTES]
        unit.on_stack = frozenset(small)


class HlsEmitter(PortableEmitter, HlsScope):
    """A writer of strict C99 for high-level synthesis."""

    serial_loop = hls_words.serial_loop
    stack_memory = hls_words.stack_memory

    def __init__(self, unit: CUnit, lowered: LoweredFunc) -> None:
        super().__init__(unit)
        self.divided = divided_arrays(lowered)
        unit.on_stack = arrays_inside(lowered)


@dataclass(frozen=True)
class CSource:
    """The text of a C file, and the bytes of static memory that it takes."""

    text: str
    static_bytes: int


def emit_c(functions: Sequence[LoweredFunc]) -> str:
    """Return the source of ``functions``, each with the C signature that its header declares.

    Raises :class:`CEmitError` for constructs without a form in C: GCC's vectors have 2, 4, 8 … lanes.
    """
    return c_source(functions).text


@with_room
def c_source(functions: Sequence[LoweredFunc], hidden: bool = False, further_bytes: int = 0) -> CSource:
    """Return the source of functions, which may call each other, those that are called first.

    ``hidden``: no other file sees them. ``further_bytes``: static memory of what is added to the text.
    """
    portable = all([func.target.is_portable_c for func in functions])
    helpers = StructHelpers() if portable else Helpers()
    helpers.defined = frozenset([func.name for func in functions])
    shown = "static " if hidden else ""
    bodies, workspace = [], Workspace()
    freestanding = portable and any([func.target.is_freestanding for func in functions])
    for func in functions:
        em: CEmitter
        if freestanding:
            em = FreestandingEmitter(CUnit(func, FREESTANDING, helpers), workspace)
        elif func.target.is_hls:
            em = HlsEmitter(CUnit(func, PORTABLE, helpers), func)
        else:
            em = (PortableEmitter if portable else CEmitter)(CUnit(func, PORTABLE if portable else TABLES, helpers))
        names = c_names(func.params)
        em.unit.taken.update(names)
        em.bind_parameters(func.params, names)
        if not func.target.is_hls:
            c_stmt.check_arrays(em, func.params, names)
        em.stmt(func.func.body)
        text = "".join(f"{line}\n" for line in em.lines)
        unused = [name for name in names if portable and not re.search(rf"\b{name}\b", text)]
        text = (
            "".join(f"  {line}\n" for line in [*[f"(void){name};" for name in unused], *partition_lines(func)]) + text
        )
        bodies.append(f"{shown}{_prototype(func)} {{\n{text}  return 0;\n}}\n")
    if not portable:
        return CSource("\n".join([_HEAD, helpers.text(), "", *bodies]), 0)
    prototypes = [f"{shown}{_prototype(func)};" for func in functions]
    head, static_bytes = _PORTABLE_HEAD, workspace.bytes + further_bytes
    if freestanding:
        head = _FREESTANDING_HEAD.replace("NUMBER", str(static_bytes)) + workspace.text()
    return CSource("\n".join([head, helpers.text(), "", *prototypes, "", *bodies]), static_bytes)


def _prototype(func: LoweredFunc) -> str:
    return hls_prototype(func) if func.target.is_hls else c_prototype(func, restrict=True)
