"""This module writes as MLIR what can be built, and makes functions of MLIR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..codegen import Target
from ..graph.graph import Graph
from ..graph.kernels import whole_function
from ..tir.stmt import IRModule, PrimFunc
from .building import request


def to_mlir(inputs: Any, form: str = "linalg", *, target: str | Target = "native", named: bool = False) -> Any:
    """Returns a program as a module of xDSL, verified; ``str`` of it is MLIR's text.

    ``inputs`` are those of :func:`.building.build`, several functions by name, or a :class:`~tilewright.Graph`, whose constants
    become arguments after its inputs. ``form`` is ``linalg`` (functions on tensors, as te makes them) or ``loops`` (scheduled
    functions over memory, with vectors as wide as those of ``target``). ``named``: linalg's ``matmul``, ``batch_matmul``,
    ``conv_2d_nchw_fchw``, ``conv_2d_nhwc_hwcf``, ``transpose`` and ``reduce`` stand where a block is exactly one.
    :class:`~..mlir.MlirError` names the block or the operation that has no counterpart. Needs ``pip install 'tilewright[mlir]'``.
    """
    if form not in ("linalg", "loops"):
        raise ValueError(f"form={form!r}: there are linalg and loops")
    from ..mlir import to_linalg, to_loops

    functions = _functions(inputs)
    if form == "linalg":
        return to_linalg(functions, named)
    return to_loops(functions, Target.of(target))


def _functions(inputs: Any) -> Sequence[PrimFunc]:
    if isinstance(inputs, Graph):
        return [whole_function(inputs)]
    several = inputs.functions if isinstance(inputs, IRModule) else inputs
    if isinstance(several, Mapping):
        return [request(f).func.with_attr("global_symbol", name) for name, f in several.items()]
    return [request(inputs).func]


def from_mlir(source: Any, *, blocks: bool | None = None) -> PrimFunc | IRModule:
    """Returns the function of MLIR's text, or of a module of xDSL; several functions become an IRModule.

    Functions on tensors hold operations of ``linalg``, functions over memory loops of ``scf`` and ``affine``. ``blocks``
    says whether loops become blocks, which a schedule needs; by default all do but those that :func:`to_mlir` lowered.
    :class:`~..mlir.MlirError` names the operation that is not supported, and its place.
    """
    from ..mlir import read_mlir

    functions = read_mlir(source, blocks)
    if len(functions) == 1:
        return functions[0]
    return IRModule({f.name: f for f in functions})
