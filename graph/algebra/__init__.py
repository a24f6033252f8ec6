"""Rules of algebra: each replaces operators by fewer or cheaper ones with the same result.

:data:`RULES` has them all. Products and sums of constants are regrouped, which may change the last bit of a float.
"""

from . import cast_rules, element_rules, sinking_rules, slice_rules, transpose_rules, view_rules

RULES = [
    *element_rules.RULES, *cast_rules.RULES, *view_rules.RULES, *transpose_rules.RULES, *slice_rules.RULES,
    *sinking_rules.RULES,
]  # fmt: skip

__all__ = ["RULES"]
