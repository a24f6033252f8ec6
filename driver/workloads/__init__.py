"""Workloads are named computations with parameters, which the command line can set.

``workload_definition``: what a workload is, and the text that names one with its parameters. ``catalog``: the built-in ones,
with their NumPy counterparts (``numpy_references``).
"""

from . import catalog as _catalog  # noqa: F401  (adds the built-in workloads)
from .workload_definition import (
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
    "Parameter",
    "Workload",
    "WorkloadCase",
    "WorkloadError",
    "all_workloads",
    "find_workload",
    "parse_spec",
    "workload",
]
