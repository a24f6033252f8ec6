"""This module takes StableHLO programs from whatever holds them: exported functions of JAX, files, text, MLIR modules."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import te
from .jaxlib_package import StableHloError, load_jaxlib

_PORTABLE = b"ML\xefR"
"""The first bytes of MLIR's bytecode, in which portable artifacts are written."""


def module_of(program: Any) -> Any:
    """Returns a program as a module of MLIR, with its functions in its body. StableHloError for anything else."""
    ir = load_jaxlib("ir")
    if isinstance(program, ir.Module):
        return program
    if is_exported(program):
        return _parsed(ir, str(program.mlir_module()))
    if isinstance(program, Path) or (isinstance(program, str) and "\n" not in program and "(" not in program):
        if not Path(program).is_file():
            raise StableHloError(f"there is no file {program}")
        program = Path(program).read_bytes()
    if isinstance(program, (bytes, bytearray)) and not bytes(program).startswith(_PORTABLE):
        if b"\0" in program:
            return _parsed(ir, str(_unpacked(program).mlir_module()))
        program = bytes(program).decode(errors="replace")
    if isinstance(program, (str, bytes, bytearray)):
        return _parsed(ir, program if isinstance(program, str) else bytes(program))
    raise StableHloError(
        f"{type(program).__name__} is not a StableHLO program; jax.export.export(jax.jit(f))(x) makes one"
    )


def is_exported(program: Any) -> bool:
    """Returns whether a program is an exported function of JAX."""
    return hasattr(program, "mlir_module") and hasattr(program, "in_avals")


def exported_of(program: Any) -> Any:
    """Returns the exported function of JAX in a file that its ``serialize`` wrote; other programs as they are."""
    if isinstance(program, (str, Path)) and Path(program).suffix == ".jax":
        if not Path(program).is_file():
            raise StableHloError(f"there is no file {program}")
        return _unpacked(Path(program).read_bytes())
    return program


def _unpacked(data: bytes | bytearray) -> Any:
    try:
        return importlib.import_module("jax.export").deserialize(bytearray(data))
    except Exception as error:  # damaged data raises whatever the reader of the format raises
        raise StableHloError(f"the data is not a program that jax.export wrote: {error}") from error


def _parsed(ir: Any, text: str | bytes) -> Any:
    stablehlo, chlo = load_jaxlib("dialects.stablehlo"), load_jaxlib("dialects.chlo")
    registry = ir.DialectRegistry()
    load_jaxlib("_mlir_libs._jax_mlir_ext").register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)
    context.allow_unregistered_dialects = True  # attributes of others say where arrays are kept, which is nothing here
    try:
        if isinstance(text, bytes):
            return stablehlo.deserialize_portable_artifact(context, text)
        return ir.Module.parse(text, context)
    except Exception as error:  # the bindings raise errors of several classes
        problem = str(error).strip().splitlines()
        raise StableHloError(f"the text is not a StableHLO program: {' '.join(problem[:2])[:300]}") from error


class Sizes:
    """The symbolic sizes of one program, one variable per name."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def named(self, name: str) -> Any:
        """Returns the variable of a name."""
        return self.known.setdefault(name, te.var(name))

    def of(self, dim: Any) -> Any:
        """Returns an extent of JAX: a number, or an expression such as ``2*b + 1``."""
        if isinstance(dim, int):
            return dim
        return self._read(ast.parse(str(dim).replace("^", "**"), mode="eval").body, str(dim))

    def _read(self, node: ast.expr, text: str) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return self.named(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return 0 - self._read(node.operand, text)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return _ARITHMETIC[type(node.op)](self._read(node.left, text), self._read(node.right, text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
            function = _ARITHMETIC.get(node.func.id)
            if function is not None:
                return function(*[self._read(a, text) for a in node.args])
        raise StableHloError(f"the size {text} is not supported")


def _power(a: Any, b: Any) -> Any:
    out = 1
    for _ in range(b):
        out = a * out
    return out


_ARITHMETIC: Mapping[Any, Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Pow: _power,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}
