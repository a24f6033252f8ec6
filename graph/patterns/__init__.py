"""Finds operators that exporters write out in parts, and puts one operator in their place.

:data:`RULES` has the rules of :mod:`.written_out`, :mod:`.network_patterns` and :mod:`.quantized_pattern`.
"""

from ..rules import Rule
from . import network_patterns, quantized_pattern, written_out

RULES: list[Rule] = [*written_out.RULES, *network_patterns.RULES, *quantized_pattern.RULES]

__all__ = ["RULES"]
