"""This module finds TVM's modules by their full names, and says what takes the place of absent ones.

The absent parts of TVM are modules, functions of ``tvm.te`` and methods of stages.
"""

from __future__ import annotations

import importlib
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

ABSENT = {
    "auto_scheduler": "te tensors are tuned by tilewright.tune([A, B, C]), which needs no template, and built by tilewright.build(…, db=)",
    "autotvm": "te tensors are tuned by tilewright.tune([A, B, C]), which needs no template, and built by tilewright.build(…, db=)",
    "contrib": "module.export('x.so') links a library by the compiler that is there; Schedule.call_blas and -libs=cblas call BLAS",
    "dlight": "functions without a schedule get the analytic model's: tilewright.build(func)",
    "micro": "C for microcontrollers comes from target 'c -mcpu=…' and module.export('x.c')",
    "register_func": "Python functions are not called from kernels; an operation of your own is tir.intrinsics.register_operation's",
    "get_global_func": "there is no registry of packed functions; the library's functions are imported by their names",
    "relax": "models come in by tilewright.from_onnx, from_torch and from_stablehlo",
    "relay": "models come in by tilewright.from_onnx, from_torch and from_stablehlo",
    "rpc": "tilewright worker and tune --runner dask://… measure on other machines",
    "s_tir": "TensorIR's names are in tilewright.tir and tilewright.Schedule",
    "transform": "lowering takes no configuration; tilewright.codegen.lower shows what each pass makes",
}

ABSENT_IN_TE = {
    "decl_tensor_intrin": "an instruction is a tilewright.schedule.TensorIntrin (a description and an implementation), which sch.tensorize takes",
    "decl_buffer": "tilewright.tir.decl_buffer",
    "gradient": "gradients come from torch.export or JAX programs that compute them",
    "hybrid": "programs with loops of their own are written as @T.prim_func, or as statements for te.extern",
    "nd": "tilewright.nd",
    "tag_scope": "te.compute(…, tag=…) gives a tag",
    "tag": "te.compute(…, tag=…) gives a tag",
    "TensorComputeOp": "a stage computes elements; instructions come in by sch.tensorize",
    "AutoDiff": "gradients come from torch.export or JAX programs that compute them",
}

ABSENT_IN_STAGES = {
    "set_store_predicate": "a stage's stores are guarded where its loops need it; a condition of your own is te.if_then_else in its body",
    "env_threads": "bind an axis to a thread: stage.bind(axis, te.thread_axis('threadIdx.x'))",
    "opengl": "shaders for OpenGL are not generated",
    "prefetch": "tilewright.Schedule has the annotation for prefetches; see the guide to schedules",
    "rolling_buffer": "tilewright.Schedule.rolling_buffer",
}


class _SameModule(Loader):
    """Gives ``tilewright.testing`` the module ``tilewright.tvm_names.testing``, which is loaded once."""

    def create_module(self, spec: ModuleSpec) -> Any:
        path, _, word = f"tilewright.tvm_names.{spec.name.partition('.')[2]}".rpartition(".")
        inside = getattr(importlib.import_module(path), word, None)  # a module of TVM's may be an attribute here
        module = inside if isinstance(inside, ModuleType) else importlib.import_module(f"{path}.{word}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        """Give the module, which has been loaded under its own name, its own description back."""
        module.__spec__ = module.__spec__.loader_state


def spec_of(name: str) -> ModuleSpec:
    """Returns how a module of TVM is loaded, by its full name here."""
    return ModuleSpec(name, _SameModule(), is_package=True)


def place_of(name: str) -> str | None:
    """Returns what takes the place of a part of TVM that there is not; None for other names."""
    return ABSENT.get(name)


def refuse(word: str) -> None:
    """Raise ImportError for a module of TVM that there is not, and say what takes its place."""
    hint = place_of(word)
    if hint is not None:
        raise ImportError(f"there is no tilewright.{word}: {hint}", name=f"tilewright.{word}")
