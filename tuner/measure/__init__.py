"""This package measures candidates in worker processes with limits on time and memory.

``statistics`` estimates from repeated timings. ``protocol`` sends messages over pipes, without pickle. ``process``
starts and stops one worker. ``measuring_worker`` is the program that it runs. ``inputs`` makes arguments and compares results
with the reference. ``runner`` measures batches of traces and returns statuses and timings.
"""

from .runner import LocalRunner, MeasureResult, ReferenceFailed, Runner
from .statistics import estimate, interval

__all__ = ["LocalRunner", "MeasureResult", "ReferenceFailed", "Runner", "estimate", "interval"]
