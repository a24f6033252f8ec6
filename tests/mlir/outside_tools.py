"""Compilers of MLIR that are not ours: IREE (pip), and mlir-opt with mlir-translate (Debian's mlir-tools)."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

IREE = (
    find_spec("iree") is not None and find_spec("iree.compiler") is not None and find_spec("iree.runtime") is not None
)
"""Whether iree-base-compiler and iree-base-runtime are installed."""


def tool(name: str) -> str | None:
    """Return the path of one of LLVM's MLIR tools of version 19 or later."""
    return next((found for n in ("", *[f"-{v}" for v in range(25, 18, -1)]) if (found := shutil.which(name + n))), None)


MLIR_OPT, MLIR_TRANSLATE = tool("mlir-opt"), tool("mlir-translate")
_LOWERING = (
    "--convert-linalg-to-loops", "--convert-vector-to-scf", "--lower-affine", "--convert-scf-to-cf",
    "--expand-strided-metadata", "--memref-expand", "--arith-expand", "--convert-vector-to-llvm",
    "--convert-math-to-llvm", "--convert-math-to-libm", "--convert-arith-to-llvm", "--finalize-memref-to-llvm",
    "--convert-cf-to-llvm", "--convert-func-to-llvm", "--convert-vector-to-llvm", "--reconcile-unrealized-casts",
)  # fmt: skip


class IreeModule:
    """Functions on tensors, compiled by IREE for this processor."""

    def __init__(self, text: str) -> None:
        import iree.compiler.tools as compiler
        import iree.runtime as runtime

        flags = ["--iree-llvmcpu-target-cpu=host"]
        binary = compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=flags)
        self.module = runtime.load_vm_flatbuffer(binary, driver="local-sync")

    def __call__(self, name: str, *args: Any) -> list[np.ndarray[Any, Any]]:
        """Return the results of a function as arrays."""
        got = self.module[name](*args)
        return [np.asarray(g.to_host()) for g in (got if isinstance(got, (tuple, list)) else (got,))]


def run_mlir_opt(text: str) -> str:
    """Return what mlir-opt, which verifies it, lowers functions over memory to: LLVM IR."""
    assert MLIR_OPT and MLIR_TRANSLATE
    lowered = _run([MLIR_OPT, *_LOWERING], text)
    return _run([MLIR_TRANSLATE, "--mlir-to-llvmir"], lowered)


def verified_by_mlir_opt(text: str) -> str:
    """Return the text as mlir-opt prints it; RuntimeError with its words when it is not valid."""
    assert MLIR_OPT
    return _run([MLIR_OPT], text)


def _run(command: Sequence[str], text: str) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[:2000])
    return done.stdout


class LlvmModule:
    """Functions over memory, lowered by mlir-opt and compiled by LLVM in this process."""

    def __init__(self, text: str) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.load_library_permanently("libm.so.6")
        module = llvm.parse_assembly(run_mlir_opt(text))
        module.verify()
        features = llvm.get_host_cpu_features().flatten()  # half floats need the processor's conversions
        machine = llvm.Target.from_default_triple().create_target_machine(llvm.get_host_cpu_name(), features, opt=1)
        self.engine = llvm.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()

    def __call__(self, name: str, *args: Any) -> None:
        """Call a function on arrays and numbers; arrays are written in place."""
        values: list[Any] = []
        for a in args:
            if isinstance(a, np.ndarray):
                data = ctypes.c_void_p(a.ctypes.data)
                sizes = [*a.shape, *[s // a.itemsize for s in a.strides]]
                values += [data, data, ctypes.c_int64(0), *map(ctypes.c_int64, sizes)]
            else:
                values.append(a)
        address = self.engine.get_function_address(name)
        ctypes.CFUNCTYPE(None, *[type(v) for v in values])(address)(*values)
