"""Workloads are named computations with parameters, which the command line can set.

``workload_definition``: what a workload is. ``catalog``: the built-in ones, with their NumPy counterparts. ``workload_specs``:
the text that names a workload with its parameters, and where workloads are found.
"""

from .workload_definition import Parameter, Workload, WorkloadCase, WorkloadError, workload
from .workload_specs import all_workloads, find_workload, parse_spec

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
