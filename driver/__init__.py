"""This package builds, tunes and benchmarks from end to end with the layers below it.

:func:`build` compiles the best schedule on record, :func:`tune` finds one, :func:`bench` compares. :mod:`.building`
brings their inputs into one form; :func:`build_graph` compiles a network; :mod:`.workloads` are named computations with
parameters; :mod:`.machine_report` measures what this machine can do.
"""

from .any_size import SizesTuneResult
from .benching import BenchResult, BenchRow, ModelBenchResult, bench
from .building import BuildError, NoRecordError, Plan, TuneError, build, plan
from .mlir_modules import from_mlir, to_mlir
from .models.model import Model, Profile
from .models.model_building import GraphOptions, build_graph
from .models.model_tuning import ModelProgress, ModelTuneResult, ModelTuningInterrupted
from .quantizing import QuantizationReport, quantization_report, quantize
from .tuning import tune
from .workloads import (
    Parameter,
    Workload,
    WorkloadCase,
    WorkloadError,
    all_workloads,
    find_workload,
    parse_spec,
    workload,
)

__all__ = [
    "BenchResult",
    "BenchRow",
    "BuildError",
    "GraphOptions",
    "Model",
    "ModelBenchResult",
    "ModelProgress",
    "ModelTuneResult",
    "ModelTuningInterrupted",
    "NoRecordError",
    "Parameter",
    "Plan",
    "Profile",
    "QuantizationReport",
    "SizesTuneResult",
    "TuneError",
    "Workload",
    "WorkloadCase",
    "WorkloadError",
    "all_workloads",
    "bench",
    "build",
    "build_graph",
    "find_workload",
    "from_mlir",
    "parse_spec",
    "plan",
    "quantization_report",
    "quantize",
    "to_mlir",
    "tune",
    "workload",
]
