"""Writes the C header of exported functions: prototypes, and the meaning of each argument."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...tir.expr import DType, shape_text
from ..lowered import FAILURES, KEYWORDS, LoweredFunc, Param
from .inline_functions import scalar_type


def c_prototype(func: LoweredFunc, restrict: bool = False) -> str:
    """Returns ``int32_t f(const float* A, float* B, int64_t n)``; with ``restrict`` in the form of the definition.
    ValueError for a function whose name is a keyword of C or C++."""
    if func.name in KEYWORDS:
        raise ValueError(
            f"{func.name!r} is a word of C or C++, so no function can have that name there; build it with another"
        )
    star = " *restrict " if restrict else "* "
    parameters = ", ".join(
        f"{argument_type(p)} {name}".replace("* ", star)
        for p, name in zip(func.params, c_names(func.params), strict=True)
    )
    return f"int32_t {func.name}({parameters or 'void'})"


def argument_type(p: Param) -> str:
    """Returns the C type of an argument, e.g. ``const float*`` or ``int64_t``."""
    base = scalar_type(p.dtype).replace(" ", "")
    return base if p.kind != "buffer" else f"{base}*" if p.writes else f"const {base}*"


def c_names(params: Sequence[Param]) -> list[str]:
    """Returns a distinct C identifier for each parameter, its own name where that is an identifier."""
    out: list[str] = []
    for p in params:
        name = re.sub(r"\W", "_", p.name, flags=re.ASCII)
        name = name if re.match(r"[A-Za-z_]", name) and name not in KEYWORDS else f"_{name}"
        base, n = name, 1
        while name in out:
            name, n = f"{base}_{n}", n + 1
        out.append(name)
    return out


def c_header(functions: Sequence[LoweredFunc], name: str, notes: Sequence[str] = ()) -> str:
    """Returns a header for C and C++ that declares the functions and explains arguments and return values. ``notes``
    are further lines."""
    guard = "TILEWRIGHT_" + re.sub(r"\W", "_", name, flags=re.ASCII).upper()
    lines = [
        "/* Made by Tilewright. Every function returns 0 for success. Arrays are row-major without gaps and aligned to",
        "   their elements; written arrays must not overlap any other. float16 and bfloat16 are uint16_t bits. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
    ]
    for func in functions:
        lines.append("/*")
        for p, cname in zip(func.params, c_names(func.params), strict=True):
            lines.append(f"   {cname}: {_meaning(p)}")
        lines += ["*/", f"{c_prototype(func)};", "", *_error_text(func), ""]
    lines += [*notes, *([""] if notes else []), "#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(lines)


def _error_text(func: LoweredFunc) -> list[str]:
    """Returns a function that explains the return values. It is part of the header, so that a program that does not call
    it has nothing of it."""
    codes = [*FAILURES.items(), *[(n, one.message) for n, one in enumerate(func.assertions(), 1)]]
    return [
        f"/* What a value that {func.name} returned means. */",
        f"static inline const char* {func.name}_error_text(int32_t code) {{",
        "  switch (code) {",
        '    case 0: return "success";',
        *[f"    case {code}: return {_c_string(text)};" for code, text in codes],
        '    default: return "an unknown code";',
        "  }",
        "}",
    ]


def _c_string(text: str) -> str:
    """Returns a text as a literal of C, in UTF-8."""
    return '"' + "".join([chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in text.encode()]) + '"'


def _meaning(p: Param) -> str:
    if p.kind == "size":
        return "a size that the shapes above name"
    if p.dtype == "handle":
        return "memory, or NULL"
    if p.buffer is None:
        return p.dtype
    shape = shape_text(p.buffer.shape)
    strides = f", strides [{', '.join(map(str, p.buffer.strides))}]" if p.buffer.strides else ""
    kept = ""
    if p.stored:
        per = DType(p.stored).per_byte
        kept = f", {f'{per} {p.stored} a byte, low bits first' if per > 1 else f'bits of {p.stored}'}"
    return f"{p.dtype}[{shape}]{strides}{kept}, {'written' if p.writes else 'read'}"
