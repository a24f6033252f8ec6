"""Prepares the host's part of a function: loops, conditions and memory around the kernels that it launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....tir.expr import Expr, Var, to_numpy
from ....tir.stmt import Allocate, AssertStmt, AttrStmt, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt
from ...lowered import LoweredFunc, Param
from ...runtime.arguments import c_types
from ..launch.thread_axes import GpuError, tag_of
from ..simulation.lane_values import evaluate
from .cuda_driver import CudaDriver
from .device_array import DeviceArray, as_ctypes
from .kernel_text import Kernel


class Launches:
    """The launches of a function on certain arguments, with the memory between its kernels. They may run again and again.

    ``functions``: the kernels in the driver, in the order of the program.
    """

    def __init__(
        self, driver: CudaDriver, kernels: Sequence[Kernel], functions: Mapping[str, int], stream: int = 0
    ) -> None:
        self.driver, self.functions, self.stream = driver, functions, stream
        self.kernels = {kernel.loop: kernel for kernel in kernels}
        self.values: dict[Var, Any] = {}
        self.pointers: dict[Var, int] = {}
        self._alive: list[DeviceArray] = []
        self._prepared: list[Callable[[], None]] = []

    def __call__(self) -> None:
        """Launch the kernels."""
        for launch in self._prepared:
            launch()

    def prepare(self, lowered: LoweredFunc, body: Stmt, values: Sequence[Any]) -> None:
        """Find the launches; ``values`` are the parameters of the function, arrays as addresses on the device."""
        for param, value in zip(lowered.params, values, strict=True):
            if param.buffer is not None:
                self.pointers[param.buffer.data] = value
            else:
                self.values[param.var] = np.int64(value) if isinstance(value, int) else value
        self.stmt(body)

    def number(self, e: Expr) -> int:
        """Return the value of an integer expression of the host."""
        return int(evaluate(e, self, True))  # type: ignore[arg-type]

    def stmt(self, s: Stmt) -> None:
        """Run a statement of the host."""
        if isinstance(s, For) and tag_of(s):
            self._launch(self.kernels[s])
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
            made = DeviceArray(shape, to_numpy(s.buffer.dtype), self.driver)
            self._alive.append(made)
            self.pointers[s.buffer.data] = made.pointer
        elif isinstance(s, LetStmt):
            self.values[s.var] = evaluate(s.value, self, True)  # type: ignore[arg-type]
        elif isinstance(s, AssertStmt) and not self.number(s.condition):
            raise GpuError(s.message)
        if isinstance(s, (Allocate, LetStmt, AssertStmt, AttrStmt)):
            self.stmt(s.body)
        elif not isinstance(s, Evaluate):
            raise GpuError(f"the host cannot run {type(s).__name__}")

    def _launch(self, kernel: Kernel) -> None:
        grid = [n if isinstance(n, int) else self.number(n) for n in kernel.grid]
        if 0 in grid:
            return
        kinds = c_types(kernel.params)
        values = [as_ctypes(self._value(p), kind) for p, kind in zip(kernel.params, kinds, strict=True)]
        self._prepared.append(
            self.driver.prepare(
                self.functions[kernel.name], grid, kernel.block, values, kernel.dynamic_shared, self.stream
            )
        )

    def _value(self, p: Param) -> Any:
        if p.buffer is not None:
            return self.pointers[p.buffer.data]
        value = self.values[p.var]
        return int(value) if p.dtype.is_int else value
