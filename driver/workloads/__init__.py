"""Workloads are named computations with parameters, which the command line can set.

``workload_definition``: what a workload is. ``catalog``: the built-in ones, with their NumPy counterparts, and how
the text that names a workload with its parameters is read.
"""

from .catalog import all_workloads, find_workload, parse_spec
from .workload_definition import Parameter, Workload, WorkloadCase, WorkloadError, workload

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
