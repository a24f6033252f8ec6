"""Rules of algebra: each replaces operators by fewer or cheaper ones with the same result.

:data:`RULES` has them all. A rule holds for the types and the values that its docstring names, and is not applied to others:
NaN, the infinities and -0.0 stay what they are, integers wrap around as before, and a float changes by the roundings that
the docstring counts. Rules that move elements (views, transposes, slices, reshapes) are exact for all types and sizes.
"""

from . import element_rules, movement_rules

RULES = [*element_rules.RULES, *movement_rules.RULES]

__all__ = ["RULES"]
