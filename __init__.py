"""Tilewright: declare a computation once, schedule it separately, and let a tuner find the fastest schedule.

    import tilewright as tw
    from tilewright import te

    tw.tune("matmul:M=512,N=512,K=512", trials=64, db="tuning.db")
    f = tw.build("matmul:M=512,N=512,K=512", db="tuning.db")
    f(a, b, c)  # NumPy arrays, outputs last

Everything loads when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright import codegen, driver, graph, schedule, te, tir, tuner, tuning_db
    from tilewright.codegen import Target
    from tilewright.doors import jax_door as jax
    from tilewright.doors import lazy_door as lazy
    from tilewright.doors import torch_door as torch
    from tilewright.driver import bench, build, from_mlir, to_mlir, tune, workload
    from tilewright.frontends.onnx import from_onnx
    from tilewright.frontends.stablehlo import from_stablehlo
    from tilewright.frontends.torch import from_torch
    from tilewright.graph import Graph
    from tilewright.schedule import Schedule, ScheduleError
    from tilewright.tir import IRModule, PrimFunc
    from tilewright.tuning_db import Database
    from tilewright.tvm_names import meta_schedule, nd, target, testing, tir_integration
    from tilewright.tvm_names.devices import cpu, device
    from tilewright.tvm_names.lowering import lower

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
    "codegen",
    "cpu",
    "device",
    "driver",
    "from_mlir",
    "from_onnx",
    "from_stablehlo",
    "from_torch",
    "graph",
    "jax",
    "lazy",
    "lower",
    "meta_schedule",
    "nd",
    "schedule",
    "target",
    "te",
    "testing",
    "tir",
    "tir_integration",
    "to_mlir",
    "torch",
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
    "from_mlir": "driver",
    "from_onnx": "frontends.onnx",
    "from_stablehlo": "frontends.stablehlo",
    "from_torch": "frontends.torch",
    "to_mlir": "driver",
    "tune": "driver",
    "workload": "driver",
}
_LAYERS = ("codegen", "driver", "frontends", "graph", "schedule", "te", "tir", "tuner", "tuning_db", "tvm_names")
_DOORS = {"jax": "doors.jax_door", "lazy": "doors.lazy_door", "torch": "doors.torch_door"}
_TVM = {"cpu": "devices", "device": "devices", "lower": "lowering"}
_TVM_MODULES = ("meta_schedule", "nd", "target", "testing", "tir_integration")


def __getattr__(name: str) -> Any:
    if name in _TVM_MODULES:
        return importlib.import_module(f"tilewright.tvm_names.{name}")
    if name in _TVM:
        return getattr(importlib.import_module(f"tilewright.tvm_names.{_TVM[name]}"), name)
    if name in _LAYERS:
        return importlib.import_module(f"tilewright.{name}")
    if name in _DOORS:
        return importlib.import_module(f"tilewright.{_DOORS[name]}")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"tilewright.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tilewright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
