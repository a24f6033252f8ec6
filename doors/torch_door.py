"""This module has the doors between PyTorch and Tilewright; ``tilewright.torch`` is another name of it.

:func:`backend` serves ``torch.compile(model, backend="tilewright")``; :func:`from_torch` reads an exported program;
:func:`op` registers a converter for an operator; :func:`custom_op` makes one kernel an operator of PyTorch, which works
under torch.compile and torch.export.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..frontends.torch import TorchError as TorchError
from ..frontends.torch import UnsupportedTorchOperators as UnsupportedTorchOperators
from ..frontends.torch import from_torch as from_torch
from ..frontends.torch import load_torch
from ..frontends.torch import op as op
from .compile_backend import backend as backend
from .kernel_signature import KernelSignature, SignatureError


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
    try:
        kernel = KernelSignature.of(name, workload, target, db)
    except SignatureError as error:
        raise TorchError(str(error)) from error
    given = ", ".join(f"Tensor {p.name}" for p in kernel.inputs)
    results = "Tensor" if len(kernel.outputs) == 1 else f"({', '.join('Tensor' for _ in kernel.outputs)})"

    def empty(tensors: tuple[Any, ...]) -> list[Any]:
        try:
            made = kernel.results([(t.shape, str(t.dtype).removeprefix("torch.")) for t in tensors])
        except SignatureError as error:
            raise TorchError(f"{name}: {error}") from error
        return [tensors[0].new_empty(shape, dtype=getattr(torch, dtype)) for shape, dtype in made]

    def run(*tensors: Any) -> Any:
        made = empty(tensors)
        kernel.run([t.detach().contiguous() for t in tensors], made)
        return made[0] if len(made) == 1 else tuple(made)

    def described(*tensors: Any) -> Any:
        made = empty(tensors)
        return made[0] if len(made) == 1 else tuple(made)

    operator = torch.library.custom_op(name, run, mutates_args=(), schema=f"({given}) -> {results}")
    operator.register_fake(described)
    if backward is not None:
        operator.register_autograd(backward, setup_context=setup_context)
    return operator
