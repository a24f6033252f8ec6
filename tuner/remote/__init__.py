"""Candidates are measured on other machines, or by what other packages offer.

``runner_addresses``: finds a runner by an address. ``dask_runner``: measures on workers of Dask.distributed.
``measuring``: such a worker; requests and answers as text, and where one candidate at a time is timed.
"""

from .runner_addresses import runner_for

__all__ = ["runner_for"]
