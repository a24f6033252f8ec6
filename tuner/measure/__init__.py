"""Measuring candidates in worker processes with limits on time and memory.

``statistics``: what repeated timings say. ``protocol``: messages over pipes, without pickle. ``process``: one worker as
the tuner sees it. ``worker``: the program it runs. ``inputs``: arguments and the comparison with the reference.
``runner``: batches of traces in, statuses and timings out.
"""

from .runner import LocalRunner, MeasureResult, ReferenceFailed, Runner
from .statistics import estimate, interval, separated

__all__ = ["LocalRunner", "MeasureResult", "ReferenceFailed", "Runner", "estimate", "interval", "separated"]
