"""Tilewright: declare a computation once, schedule it separately, and let a tuner find the fastest schedule.

    import tilewright as tw
    from tilewright import te

    tw.tune("matmul:M=512,N=512,K=512", trials=64, db="tuning.db")
    f = tw.build("matmul:M=512,N=512,K=512", db="tuning.db")
    f(a, b, c)  # NumPy arrays, outputs last

Everything loads when first used.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright import circuits, codegen, driver, gpu, graph, mlir, schedule, te, tir, triton, tuner, tuning_db
    from tilewright import frontends as frontends
    from tilewright import tvm_names as tvm_names
    from tilewright.codegen import Target
    from tilewright.doors import jax_door as jax
    from tilewright.doors import lazy_door as lazy
    from tilewright.doors import torch_door as torch
    from tilewright.driver import bench, build, from_mlir, quantization_report, quantize, to_mlir, tune, workload
    from tilewright.driver import build as compile
    from tilewright.exported import load_module
    from tilewright.frontends.onnx import from_onnx
    from tilewright.frontends.stablehlo import from_stablehlo
    from tilewright.frontends.torch import from_torch
    from tilewright.graph import Graph
    from tilewright.schedule import Schedule, ScheduleError
    from tilewright.tir import IRModule, PrimFunc
    from tilewright.tuning_db import Database
    from tilewright.tvm_names import ir, meta_schedule, nd, runtime, script, target, testing, tir_integration, topi
    from tilewright.tvm_names.classic import lower
    from tilewright.tvm_names.nd import cpu, device

__version__ = "0.1.0"

__all__ = [
    "Database",
    "Graph",
    "IRModule",
    "PrimFunc",
    "Schedule",
    "ScheduleError",
    "Target",
    "__version__",
    "bench",
    "build",
    "circuits",
    "codegen",
    "compile",
    "cpu",
    "device",
    "driver",
    "from_mlir",
    "from_onnx",
    "from_stablehlo",
    "from_torch",
    "gpu",
    "graph",
    "ir",
    "jax",
    "lazy",
    "load_module",
    "lower",
    "meta_schedule",
    "mlir",
    "nd",
    "quantization_report",
    "quantize",
    "runtime",
    "schedule",
    "script",
    "target",
    "te",
    "testing",
    "tir",
    "tir_integration",
    "to_mlir",
    "topi",
    "torch",
    "triton",
    "tune",
    "tuner",
    "tuning_db",
    "workload",
]

_HOMES = {
    "Database": "tuning_db",
    "Graph": "graph",
    "IRModule": "tir",
    "PrimFunc": "tir",
    "Schedule": "schedule",
    "ScheduleError": "schedule",
    "Target": "codegen",
    "bench": "driver",
    "build": "driver",
    "compile": "driver:build",
    "from_mlir": "driver",
    "from_onnx": "frontends.onnx",
    "from_stablehlo": "frontends.stablehlo",
    "from_torch": "frontends.torch",
    "load_module": "exported",
    "quantization_report": "driver",
    "quantize": "driver",
    "to_mlir": "driver",
    "tune": "driver",
    "workload": "driver",
}
_LAYERS = (
    "circuits",
    "codegen",
    "driver",
    "exported",
    "frontends",
    "gpu",
    "graph",
    "mlir",
    "schedule",
    "te",
    "tir",
    "triton",
    "tuner",
    "tuning_db",
    "tvm_names",
)
_DOORS = {"jax": "doors.jax_door", "lazy": "doors.lazy_door", "torch": "doors.torch_door"}
_TVM = {"cpu": "nd", "device": "nd", "lower": "classic"}
_TVM_MODULES = ("ir", "meta_schedule", "nd", "runtime", "script", "target", "testing", "tir_integration", "topi")


def _tvm_finders() -> Any:
    return importlib.import_module("tilewright.tvm_names.module_finders")


class _TvmModules:
    """Finds ``tilewright.testing`` and others of TVM's modules, for programs that import them by their full names."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        package, _, rest = name.partition(".")
        known = package == "tilewright" and rest.partition(".")[0] in _TVM_MODULES
        return _tvm_finders().spec_of(name) if known else None


class _AbsentModules:
    """Says what takes the place of a module of TVM that there is not."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        package, _, word = name.partition(".")
        if package == "tilewright" and word.isidentifier() and word != "tvm_names":
            _tvm_finders().refuse(word)


if __name__ == "tilewright":
    sys.meta_path.insert(0, _TvmModules())  # before the finder that would load tvm_names/ir/module.py a second time
    sys.meta_path.append(_AbsentModules())


def _loaded(module: str) -> Any:
    """Returns a module, loaded without a search for cyclic garbage: what loading makes stays, and would be visited often."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if was_on:
            gc.enable()


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _TVM_MODULES:
            return importlib.import_module(f"tilewright.tvm_names.{name}")
        if name in _TVM:
            return getattr(importlib.import_module(f"tilewright.tvm_names.{_TVM[name]}"), name)
        if name in _LAYERS:
            return _loaded(f"tilewright.{name}")
        if name in _DOORS:
            return importlib.import_module(f"tilewright.{_DOORS[name]}")
        if name in _HOMES:
            home, _, own = _HOMES[name].partition(":")
            value = getattr(_loaded(f"tilewright.{home}"), own or name)
            globals()[name] = value
            return value
        hint = None if name.startswith("_") else _tvm_finders().place_of(name)
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}{f': {hint}' if hint else ''}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
