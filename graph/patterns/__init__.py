"""Finds operators that exporters write out in parts, and puts one operator in their place.

:data:`RULES` has the rules of :mod:`.network_patterns` and :mod:`.quantized_pattern`.
"""

from ..rules import Rule
from . import network_patterns, quantized_pattern

RULES: list[Rule] = [*network_patterns.RULES, *quantized_pattern.RULES]

__all__ = ["RULES"]
