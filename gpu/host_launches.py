"""The host's part of a function: loops, conditions and memory around the kernels that it launches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from ..codegen.lowered import LoweredFunc, Param
from ..tir.expr import Expr, Var, to_numpy
from ..tir.stmt import Allocate, AssertStmt, AttrStmt, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt
from .launch.kernels import GpuKernel
from .launch.launch_form import GpuError, tag_of
from .simulation.lane_values import evaluate

DeviceMemory = TypeVar("DeviceMemory")
"""What stands for memory of a device: an address, or an object of its library."""


class ReadNumbers(dict[Var, Any]):
    """The numbers that the host has. ``read`` are those that decided which kernels it launches, and how."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[Var] = set()

    def __getitem__(self, var: Var) -> Any:
        self.read.add(var)
        return super().__getitem__(var)


class HostLaunches(ABC, Generic[DeviceMemory]):
    """The launches of a function on certain arguments, found once by :meth:`prepare`. They may run again and again.

    ``kernels`` are those of the function. A device says how memory between kernels is made, and how a kernel is launched.
    """

    def __init__(self, kernels: Sequence[GpuKernel]) -> None:
        self.kernels = {kernel.loop: kernel for kernel in kernels}
        self.values = ReadNumbers()
        self.pointers: dict[Var, DeviceMemory] = {}
        self._prepared: list[Callable[[], Any]] = []

    @abstractmethod
    def allocated(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceMemory:
        """Return memory of the device, which lives as long as these launches."""

    @abstractmethod
    def launched(self, kernel: GpuKernel, grid: Sequence[int]) -> Callable[[], Any]:
        """Return what launches a kernel with the arguments that :meth:`argument` has now."""

    def __call__(self) -> None:
        """Launch the kernels."""
        for launch in self._prepared:
            launch()

    def prepare(self, lowered: LoweredFunc, body: Stmt, values: Sequence[Any]) -> None:
        """Find the launches; ``values`` are the parameters of the function, arrays as memory of the device."""
        for param, value in zip(lowered.params, values, strict=True):
            if param.buffer is not None:
                self.pointers[param.buffer.data] = value
            else:
                self.values[param.var] = np.int64(value) if isinstance(value, int) else value
        self.stmt(body)

    def number(self, e: Expr) -> int:
        """Return the value of an integer expression of the host."""
        return int(evaluate(e, self, True))  # type: ignore[arg-type]

    def argument(self, p: Param) -> Any:
        """Return what a kernel is given for one of its parameters."""
        if p.buffer is not None:
            return self.pointers[p.buffer.data]
        value = dict.__getitem__(self.values, p.var)  # what a kernel is given decides no launch
        return int(value) if p.dtype.is_int else value

    def stmt(self, s: Stmt) -> None:
        """Run a statement of the host."""
        if isinstance(s, For) and tag_of(s):
            kernel = self.kernels[s]
            grid = [n if isinstance(n, int) else self.number(n) for n in kernel.grid]
            if 0 not in grid:
                self._prepared.append(self.launched(kernel, grid))
        elif isinstance(s, For):
            low = self.number(s.min)
            for n in range(low, low + self.number(s.extent)):
                self.values[s.loop_var] = np.int64(n)
                self.stmt(s.body)
        elif isinstance(s, SeqStmt):
            for child in s.seq:
                self.stmt(child)
        elif isinstance(s, IfThenElse):
            chosen = s.then_case if self.number(s.condition) else s.else_case
            if chosen is not None:
                self.stmt(chosen)
        else:
            self._scope(s)

    def _scope(self, s: Stmt) -> None:
        if isinstance(s, Allocate):
            shape = tuple([self.number(e) for e in s.buffer.shape])
            self.pointers[s.buffer.data] = self.allocated(shape, to_numpy(s.buffer.dtype))
        elif isinstance(s, LetStmt):
            self.values[s.var] = evaluate(s.value, self, True)  # type: ignore[arg-type]
        elif isinstance(s, AssertStmt) and not self.number(s.condition):
            raise GpuError(s.message)
        if isinstance(s, (Allocate, LetStmt, AssertStmt, AttrStmt)):
            self.stmt(s.body)
        elif not isinstance(s, Evaluate):
            raise GpuError(f"the host cannot run {type(s).__name__}")
