"""Candidates are measured on other machines.

``runner_choice``: runners by address, and those of installed packages.
``measuring``: requests and answers as text, what a worker does with a request, and where one candidate at a time is timed.
``dask_runner``: workers of Dask.distributed. ``dask_worker``: one worker.
"""

from .runner_choice import runner_for

__all__ = ["runner_for"]
