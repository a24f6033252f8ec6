"""This module provides what passes over graphs ask of the compiler and of the tuner's analytic model."""

from __future__ import annotations

import math
from typing import Any

from ..codegen import Target, compile
from ..graph.services import Services
from ..tir.stmt import PrimFunc
from ..tuner import Space, default_rules


def graph_services(machine: Target) -> Services:
    """Returns services that compile functions for this machine, and predict their times on ``machine``."""

    def run(func: PrimFunc, *arrays: Any) -> None:
        compile(func)(*arrays)

    def seconds(func: PrimFunc) -> float:
        apart = [
            rule for rule in default_rules() if not rule.fuses
        ]  # what is fused is for the kernels, not for layouts
        return min((variant.seconds for variant in Space(func, machine, rules=apart).variants), default=math.inf)

    return Services(run, seconds)
