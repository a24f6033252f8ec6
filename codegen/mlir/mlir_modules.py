"""This module makes whole modules of MLIR from functions, and functions from texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import builtin as B
from xdsl.dialects import func
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from ...tir.stmt import PrimFunc
from ...tir.verify import VerifyError, verify
from .loop_blocks import with_blocks
from .read.linalg_reader import read_linalg
from .read.loop_reader import read_loops
from .words.mlir_error import MlirError
from .words.wider_operations import context
from .write.linalg_writer import linalg_function
from .write.loop_writer import LOWERED, loop_function

_DAMAGED = (AssertionError, AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError)
"""What xDSL and readers raise for texts that do not hang together."""


def linalg_module(functions: Sequence[PrimFunc], named: bool = False) -> B.ModuleOp:
    """Returns a verified module of functions on tensors, from functions as te makes them."""
    return _verified([linalg_function(f, named) for f in functions])


def loop_module(functions: Sequence[PrimFunc]) -> B.ModuleOp:
    """Returns a verified module of functions over memory, from lowered functions."""
    return _verified([loop_function(f) for f in functions])


def _verified(ops: list[func.FuncOp]) -> B.ModuleOp:
    module = B.ModuleOp(ops)
    module.verify()
    return module


def read_functions(source: Any, blocks: bool | None = None) -> list[PrimFunc]:
    """Returns the functions of a text or of a module of xDSL, in order.

    ``blocks`` says whether loops over memory become blocks, which a schedule needs; None: where they were not lowered here.
    """
    module = _parsed(source) if isinstance(source, str) else source
    if not isinstance(module, B.ModuleOp):
        raise TypeError(f"expected the text of an MLIR module, or a module of xDSL, not {type(source).__name__}")
    out = []
    for op in module.ops:
        if not isinstance(op, func.FuncOp):
            raise MlirError(f"the module holds {op.name}; functions of the dialect func are read")
        if op.body.blocks:
            out.append(_function(op, blocks))
    if not out:
        raise MlirError("the module has no function with a body")
    return out


def _parsed(text: str) -> B.ModuleOp:
    try:
        module = Parser(context(), text, "MLIR").parse_module()
        module.verify()
    except (ParseError, VerifyException) as error:
        raise MlirError(f"no valid MLIR of the dialects that are read here: {str(error).strip()}") from None
    except _DAMAGED as error:
        raise MlirError(f"no valid MLIR: {type(error).__name__}: {error}") from None  # xDSL's parser on damaged texts
    assert isinstance(module, B.ModuleOp)
    return module


def _function(op: func.FuncOp, blocks: bool | None) -> PrimFunc:
    kinds = [*op.function_type.inputs, *op.function_type.outputs]
    on_memory = any(isinstance(k, B.MemRefType) for k in kinds)
    name = op.sym_name.data
    try:
        out = read_loops(op) if on_memory else read_linalg(op)
        if on_memory and (LOWERED not in op.attributes if blocks is None else blocks):
            out = with_blocks(out)
        verify(out)
    except (MlirError, VerifyError) as error:
        text = str(error)
        raise MlirError(text if name in text else f"function {name}: {text}") from None
    except _DAMAGED as error:
        raise MlirError(f"function {name} does not hang together: {type(error).__name__}: {error}") from error
    return out
