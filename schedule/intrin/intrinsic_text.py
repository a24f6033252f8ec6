"""This module makes the two functions of a tensor intrinsic from text with words to fill in."""

from __future__ import annotations

from ...tir.parser import parse
from ...tir.stmt import PrimFunc


def pair(head: str, description: str, implementation: str, **words: object) -> tuple[PrimFunc, PrimFunc]:
    """Returns what an intrinsic computes and how: ``head`` with each of the two bodies, where ``role`` is desc or impl."""
    bodies = (("desc", description), ("impl", implementation))
    desc, impl = [parse((head + body.lstrip("\n")).format(role=role, **words)) for role, body in bodies]
    assert isinstance(desc, PrimFunc) and isinstance(impl, PrimFunc)
    return desc, impl
