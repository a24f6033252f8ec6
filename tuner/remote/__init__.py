"""Candidates are measured on other machines.

``runner_choice``: runners by address, and those of installed packages. ``dask_runner``: measures on workers of
Dask.distributed. ``measuring``: such a worker; requests and answers as text, and where one candidate at a time is timed.
"""

from .runner_choice import runner_for

__all__ = ["runner_for"]
