"""This package measures candidates in worker processes with limits on time and memory.

``process`` starts and stops one worker, and sends messages over pipes, without pickle. ``measuring_worker`` is the program
that it runs. ``inputs`` makes arguments and compares results with the reference, which ``reference`` computes. ``runner``
measures batches of scheduled programs, each as its text, returns statuses and timings, and estimates from repeated timings.
"""

from .runner import LocalRunner, MeasureResult, ReferenceFailed, Runner, estimate, interval

__all__ = ["LocalRunner", "MeasureResult", "ReferenceFailed", "Runner", "estimate", "interval"]
