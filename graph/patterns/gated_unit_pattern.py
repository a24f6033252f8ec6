"""The gated unit of language models, SwiGLU (Shazeer, 2020): silu of one product times another one."""

from __future__ import annotations

from ..graph import Value
from ..rules import Match, any_value, op, rule


@rule(op("silu", any_value("gate")) * any_value("up"))
def swiglu(m: Match) -> Value | None:
    """silu(gate) · up, of one shape, exactly, for all types of floats"""
    if m["gate"].shape != m["up"].shape or m["gate"].dtype != m["up"].dtype or m["gate"] is m["up"]:
        return None
    return m.op("swiglu", m["gate"], m["up"])


RULES = (swiglu,)
