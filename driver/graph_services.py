"""This module provides what passes over graphs ask of the compiler and of the tuner's analytic model."""

from __future__ import annotations

import math
from typing import Any

from ..codegen import Target, compile
from ..graph.services import Services
from ..tir.stmt import PrimFunc
from ..tuner import Space


def graph_services(machine: Target) -> Services:
    """Returns services that compile functions for this machine, and predict their times on ``machine``."""

    def run(func: PrimFunc, *arrays: Any) -> None:
        compile(func)(*arrays)

    def seconds(func: PrimFunc) -> float:
        return min((variant.seconds for variant in Space(func, machine).variants), default=math.inf)

    return Services(run, seconds)
