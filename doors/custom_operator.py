"""This module makes one kernel an operator of PyTorch, which works under torch.compile and torch.export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..codegen.lowered import Param
from ..codegen.runtime.arguments import evaluate
from ..driver.building import build
from ..frontends.torch import TorchError, load_torch
from ..tir.expr import Var


def custom_op(
    name: str,
    workload: Any,
    *,
    target: Any = "native",
    db: Any = None,
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
) -> Any:
    """Returns an operator ``namespace::name`` of ``torch.library`` that runs a workload on tensors.

    ``workload`` is what :func:`tilewright.build` takes. The operator takes the inputs in their order and returns new
    tensors for the outputs, one or a tuple. ``backward`` and ``setup_context`` are those of
    ``torch.library.register_autograd``. TorchError for a workload with arguments that are no tensors.
    """
    torch = load_torch()
    kernel = build(workload, target, db=db)
    function = kernel if hasattr(kernel, "params") else kernel[next(iter(kernel))]
    params = function.params
    if any(p.buffer is None for p in params):
        raise TorchError(f"{name}: the workload has arguments that are not tensors")
    inputs = [p for p in params if not p.writes]
    outputs = [p for p in params if p.writes]
    given = ", ".join(f"Tensor {p.name}" for p in inputs)
    results = "Tensor" if len(outputs) == 1 else f"({', '.join('Tensor' for _ in outputs)})"

    def empty(tensors: tuple[Any, ...]) -> list[Any]:
        return _empty(torch, inputs, outputs, tensors)

    def run(*tensors: Any) -> Any:
        made = empty(tensors)
        fed, fresh = iter(tensors), iter(made)
        plain = [
            t.detach().contiguous() if not p.writes else t
            for p, t in ((p, next(fresh if p.writes else fed)) for p in params)
        ]
        function(*plain)
        return made[0] if len(made) == 1 else tuple(made)

    def described(*tensors: Any) -> Any:
        made = empty(tensors)
        return made[0] if len(made) == 1 else tuple(made)

    operator = torch.library.custom_op(name, run, mutates_args=(), schema=f"({given}) -> {results}")
    operator.register_fake(described)
    if backward is not None:
        operator.register_autograd(backward, setup_context=setup_context)
    return operator


def _empty(torch: Any, inputs: list[Param], outputs: list[Param], tensors: tuple[Any, ...]) -> list[Any]:
    """Returns new tensors for the outputs; their sizes follow from those of the inputs."""
    known: dict[Var, Any] = {}
    for p, tensor in zip(inputs, tensors, strict=True):
        assert p.buffer is not None
        if tensor.dim() != len(p.buffer.shape) or tensor.dtype != getattr(torch, str(p.buffer.dtype)):
            raise TorchError(
                f"{p.name} is {tuple(tensor.shape)} {tensor.dtype}; {p.buffer.dtype}{p.buffer.shape} is expected"
            )
        known.update({e: d for e, d in zip(p.buffer.shape, tensor.shape, strict=True) if isinstance(e, Var)})
    made = []
    for p in outputs:
        assert p.buffer is not None
        shape = [evaluate(e, known) for e in p.buffer.shape]
        made.append(tensors[0].new_empty(shape, dtype=getattr(torch, str(p.buffer.dtype))))
    return made
