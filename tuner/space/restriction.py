"""A restriction leaves out candidates: it pins decisions, or limits them to some values."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..rules.sketch_part import Decision, Part

Where = Mapping[str, int | Collection[int]]
"""Allowed values by the name of a decision (``vectors``), or by those of a part and its decision (``tile_C_v1.vectors``)."""


def restricted(part: Part, where: Where) -> bool:
    """Limit the decisions of ``part`` to what ``where`` allows; False when a decision has no value left."""
    kept = []
    for decision in part.decisions:
        allowed = where.get(f"{part.name}.{decision.name}", where.get(decision.name))
        values = decision.candidates
        if allowed is not None:
            wanted = _wanted(allowed)
            values = tuple([v for v in values if v in wanted])
            if not values:
                return False
        kept.append(Decision(decision.name, values))
    part.decisions = tuple(kept)
    return True


def _wanted(allowed: int | Collection[int]) -> set[int]:
    return {allowed} if isinstance(allowed, int) else set(allowed)


def check_names(where: Where, known: Mapping[str, Collection[int]]) -> None:
    """Raise ValueError for a name that no part has. A decision that has none of its values in any part is an error as
    well. ``known``: the values by name. The name of a part and its decision may leave the part out."""
    for name, allowed in where.items():
        if name not in known:
            raise ValueError(f"where: no decision {name!r}; there are {', '.join(sorted(known))}")
        if "." not in name and not _wanted(allowed) & set(known[name]):
            there = ", ".join(map(str, sorted(known[name])))
            raise ValueError(f"where: {name!r} is never {allowed!r}; its values are {there}")
