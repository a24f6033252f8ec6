"""This module loads the package torch when it is needed, and maps its data types."""

from __future__ import annotations

import importlib
from typing import Any

from ...tir.expr import to_numpy


class TorchError(ValueError):
    """Raised for a program of PyTorch that cannot be read."""


def load_torch(module: str = "") -> Any:
    """Returns the package torch, or a module of it; TorchError with the pip command when it is not installed."""
    try:
        return importlib.import_module(f"torch.{module}" if module else "torch")
    except ImportError as error:
        raise TorchError("reading PyTorch programs needs the package torch: pip install 'tilewright[torch]'") from error


DTYPES = frozenset("bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64".split())
"""The data types that are supported; PyTorch's names are those of TIR."""


def dtype_name(dtype: Any) -> str:
    """Returns a data type of PyTorch as TIR names it; TorchError for one that is not supported."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TorchError(f"the data type {name} is not supported")
    return name


def to_array(tensor: Any) -> Any:
    """Returns a tensor's elements as an array that shares its memory where it is contiguous. TorchError for a sparse
    tensor."""
    torch = load_torch()
    if tensor.layout is not torch.strided:
        raise TorchError(f"a tensor of the layout {tensor.layout} is not supported")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.uint16).numpy().view(to_numpy("bfloat16"))
    return plain.numpy()
