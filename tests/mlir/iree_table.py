"""Runs each operator through IREE, and writes the table of docs/guides/mlir.md."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tilewright import te, to_mlir
from tilewright.mlir import MlirError
from tilewright.tir import PrimFunc
from tilewright.tir.interpret import interpret

from .outside_tools import IREE, IreeModule
from .programs import ROWS, arrays, operator_name, program

TOGETHER = 24
"""The number of functions that IREE compiles at once."""


def compared(func: PrimFunc, module: Any, given: list[np.ndarray[Any, Any]]) -> str:
    """Return ``equal`` when IREE's results are the interpreter's, within a few units in the last place, else what differs."""
    inputs = _inputs(func)
    want = [a.copy() for a in given]
    interpret(func, *want)
    got = module(func.name, *[_passed(b.dtype, a) for b, a in zip(func.buffers[:inputs], given, strict=False)])
    for buffer, a, b in zip(func.buffers[inputs:], got, want[inputs:], strict=True):
        left, right = _numbers(buffer.dtype, a), _numbers(buffer.dtype, b)
        loose = 1e-2 if buffer.dtype in ("float16", "bfloat16") else 3e-5
        if not np.allclose(left, right, rtol=loose, atol=loose / 10, equal_nan=True):
            return f"differs at {int(np.argmax(~np.isclose(left, right, rtol=loose, equal_nan=True)))}"
    return "equal"


def _inputs(func: PrimFunc) -> int:
    """Return the number of parameters that are inputs; they come first."""
    module = to_mlir(func)
    return len(next(iter(module.ops)).body.block.args)


def _passed(dtype: str, a: np.ndarray[Any, Any]) -> Any:
    if dtype == "bfloat16":
        import ml_dtypes

        return a.view(ml_dtypes.bfloat16)
    return a


def _numbers(dtype: str, a: np.ndarray[Any, Any]) -> Any:
    if dtype == "bfloat16":
        bits = a.view(np.uint16) if a.dtype.itemsize == 2 else a
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if dtype.startswith("uint"):
        return np.asarray(a).view(dtype).astype(np.int64)
    return a.astype(np.float64) if np.asarray(a).dtype != bool else a


def words_of(func: PrimFunc) -> str:
    """Return the operations of linalg that a function becomes, with their numbers."""
    found = Counter(op.name.removeprefix("linalg.") for op in next(iter(to_mlir(func).ops)).walk())
    names = [name for name in found if name in _WORDS]
    return ", ".join(name if found[name] == 1 else f"{found[name]} {name}" for name in sorted(names))


_WORDS = ("generic", "fill", "matmul", "conv_2d_nchw_fchw", "conv_2d_nhwc_hwcf", "pooling_nchw_max")


def results(rows: list[str]) -> dict[str, tuple[str, str]]:
    """Return for each row what it becomes, and how IREE's results compare."""
    out: dict[str, tuple[str, str]] = {}
    functions: dict[str, PrimFunc] = {}
    for n, row in enumerate(rows):
        func = program(row, f"f{n}")
        try:
            out[row] = (words_of(func), "not run: IREE is not installed")
            functions[row] = func
        except MlirError as error:
            out[row] = ("left out", str(error))
    if IREE:
        names = list(functions)
        for first in range(0, len(names), TOGETHER):
            _run({row: functions[row] for row in names[first : first + TOGETHER]}, out)
    return {row: out[row] for row in rows}


def _run(functions: dict[str, PrimFunc], out: dict[str, tuple[str, str]]) -> None:
    text = "\n".join(str(next(iter(to_mlir(f).ops))) for f in functions.values())
    try:
        module = IreeModule(text)
    except Exception as error:  # IREE's own error class
        if len(functions) > 1:
            rows = list(functions)
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                _run({row: functions[row] for row in half}, out)
            return
        (row,) = functions
        lines = [line for line in str(error).splitlines() if "error:" in line]
        out[row] = (out[row][0], f"IREE: {lines[0].partition('error:')[2].strip() if lines else 'not compiled'}")
        return
    for row, func in functions.items():
        out[row] = (out[row][0], compared(func, module, arrays(func)))


def table() -> str:
    """Return the table of all rows, and the operators without one."""
    lines = ["| operator | linalg | IREE |", "|---|---|---|"]
    lines += [f"| {row} | {words} | {how} |" for row, (words, how) in results(list(ROWS)).items()]
    rest = sorted({n for n in te.ops.__all__} - {operator_name(row) for row in ROWS})
    return "\n".join(lines) + f"\n\nWithout a row: {', '.join(rest)}."
