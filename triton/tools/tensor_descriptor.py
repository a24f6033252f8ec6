"""Windows on tensors that the host makes and kernels take as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class TensorDescriptor:
    """A tensor, and the shape of the blocks that a kernel loads and stores of it.

    ``base`` is the array; ``strides`` count elements, and the last one is 1. ``padding`` says what lies outside: zero or nan.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"

    def __post_init__(self) -> None:
        self.shape, self.strides = list(map(int, self.shape)), list(map(int, self.strides))
        self.block_shape = list(map(int, self.block_shape))
        if not 1 <= len(self.shape) <= 5 or not len(self.shape) == len(self.strides) == len(self.block_shape):
            raise ValueError(
                f"a window of the shape {self.shape} has as many strides and sizes of blocks, one to five, not {self.strides} and {self.block_shape}"
            )
        if self.strides[-1] != 1 or any(n < 0 for n in self.strides):
            raise ValueError(f"the strides {self.strides} of a window are not negative, and the last one is 1")
        if self.padding not in ("zero", "nan"):
            raise ValueError(f"padding={self.padding!r}; there are zero and nan")

    def __repr__(self) -> str:
        return f"TensorDescriptor({self.shape}, blocks of {self.block_shape})"

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Sequence[int], padding: str = "zero") -> TensorDescriptor:
        """Return the window on a whole array or tensor."""
        if hasattr(tensor, "__array_interface__"):
            strides = [s // tensor.itemsize for s in tensor.strides]
        else:
            strides = list(tensor.stride())
        return TensorDescriptor(tensor, list(tensor.shape), strides, block_shape, padding)
