"""This module says what this machine lacks to run code for a processor."""

from __future__ import annotations

from typing import Any, Protocol

from .cpu import host
from .cpu_features import IMPLIES
from .triples import address_bits, arch_of, system_of


class Processor(Protocol):
    """The attributes of a target that the functions of this file read."""

    kind: str
    triple: str

    def describe(self) -> dict[str, Any]: ...


def missing_of_processor(target: Processor) -> list[str]:
    """Returns the features, architecture or system that this machine lacks to run code for ``target``, or nothing."""
    here = host()
    if arch_of(target.triple) != arch_of(here.triple):
        return [f"{arch_of(target.triple)} processor"]
    if system_of(target.triple) not in ("unknown", system_of(here.triple)):
        return [f"{system_of(target.triple)} system"]
    if address_bits(target.triple) != address_bits(here.triple):
        return [f"{address_bits(target.triple)} bits of address"]
    if target.kind == "native":
        return []
    have = frozenset(f[1:] for f in here.features if f[0] == "+")
    return sorted(f for f in set(target.describe()["features"]) - have if f in IMPLIES)
