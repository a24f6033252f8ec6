"""Requests to a worker and its answers are JSON texts: programs, targets, limits, statuses and times, never a pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ... import __version__
from ...codegen import CODEGEN_VERSION
from ..measure import MeasureResult

VERSION = f"{__version__}, code generator {CODEGEN_VERSION}"
"""The version that client and worker must share, for their times and programs to mean the same."""


@dataclass(frozen=True)
class Request:
    """A request to measure ``programs`` (texts) that schedule the workload ``func``. The ``limits`` are those of a
    :class:`.LocalRunner`, ``best_seconds`` is the best so far (None: nothing yet), ``seconds`` the time that is
    left."""

    func: str
    target: str
    programs: tuple[str, ...]
    seed: int = 0
    verify: bool = True
    best_seconds: float | None = None
    seconds: float | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    version: str = VERSION

    def dumps(self) -> str:
        """Returns the text."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Request:
        """Returns the request that :meth:`dumps` wrote; ValueError for anything else."""
        data = _object(text)
        try:
            return Request(**{**data, "programs": tuple(data["programs"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a request: {error}") from None


@dataclass(frozen=True)
class Answer:
    """An answer: the results of the programs, and ``machine``: the worker's host, CPU, frequency, load and versions.

    ``refused`` says why nothing was measured: ``version``, ``reference`` (the unscheduled function does not run), ``time``
    or ``request``, and ``reason`` says it in words.
    """

    results: tuple[MeasureResult, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
    reason: str = ""

    def dumps(self) -> str:
        """Returns the text."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Answer:
        """Returns the answer that :meth:`dumps` wrote; ValueError for anything else."""
        data = _object(text)
        try:
            results = tuple([MeasureResult(**{**r, "times": tuple(map(float, r["times"]))}) for r in data["results"]])
            return Answer(results, dict(data["machine"]), str(data["refused"]), str(data["reason"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not an answer: {error}") from None


def _object(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return data
