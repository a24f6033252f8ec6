"""Kernels written in blocks, under Triton's names: ``import tilewright.triton as triton``.

:func:`jit` makes a kernel from a Python function over blocks (:mod:`.language`, ``tl``), and ``kernel[grid](…)`` runs it on NumPy
arrays and CPU tensors (:mod:`.launch`). :mod:`.reader` reads the function's source (:mod:`.kernel_source`, :mod:`.liveness`);
:mod:`.kernel_builder` makes loops of its values (:mod:`.block_values`), for GPUs :mod:`.threaded_builder`, which spreads them over threads
(:mod:`.thread_layout`) and lets loads run ahead (:mod:`.staged_loops`). :func:`autotune` and :func:`heuristics` choose constants
(:mod:`.autotuning`), and :mod:`.testing` measures. Nothing of the core imports this package.
"""

from __future__ import annotations

from . import language, testing
from .autotuning import Autotuner, Config, Heuristics, autotune, heuristics
from .kernel_source import KernelError
from .launch import (
    CompiledKernel,
    JitFunction,
    cdiv,
    constexpr_function,
    jit,
    next_power_of_2,
    set_allocator,
    set_target,
)

__all__ = [
    "Autotuner",
    "CompiledKernel",
    "Config",
    "Heuristics",
    "JitFunction",
    "KernelError",
    "autotune",
    "cdiv",
    "constexpr_function",
    "heuristics",
    "jit",
    "language",
    "next_power_of_2",
    "set_allocator",
    "set_target",
    "testing",
]
