"""Kernels written in blocks, under Triton's names: ``import tilewright.triton as triton``.

:func:`jit` makes a kernel from a Python function over blocks (:mod:`.language`, ``tl``), and ``kernel[grid](…)`` runs it on NumPy
arrays and CPU tensors (:mod:`.launch`). :mod:`.reader` reads the function's source (:mod:`.kernel_source`, :mod:`.liveness`);
:mod:`.kernel_builder` makes loops of its values (:mod:`.block_values`). Nothing of the core imports this package.
"""

from __future__ import annotations

from . import language
from .kernel_source import KernelError
from .launch import CompiledKernel, JitFunction, cdiv, jit, next_power_of_2

__all__ = ["CompiledKernel", "JitFunction", "KernelError", "cdiv", "jit", "language", "next_power_of_2"]
