"""Candidates are measured on other machines.

``dask_runner``: measures on workers of Dask.distributed. ``measuring``: such a worker; requests and answers as text,
and where one candidate at a time is timed.
"""

from ..measure.runner import runner_for

__all__ = ["runner_for"]
