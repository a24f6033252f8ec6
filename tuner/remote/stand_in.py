"""A stand-in for measuring: it answers at once with times that follow from the programs, to rehearse a cluster."""

from __future__ import annotations

import hashlib
import os
import signal
import time

from ..measure import MeasureResult
from .measuring import machine_facts
from .payload import Answer, Request

SECONDS = 0.05
FATAL = "!"
"""A program that begins so ends the process of the worker."""


def pretend(text: str) -> str:
    """Returns an answer to a request after 50 milliseconds for each program."""
    results = []
    for program in Request.loads(text).programs:
        if program.startswith(FATAL):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(SECONDS)
        share = int(hashlib.sha256(program.encode()).hexdigest()[:6], 16) / 2**24
        results.append(MeasureResult("ok", "", (1e-3 * (1 + share),) * 2))
    return Answer(tuple(results), machine_facts()).dumps()
