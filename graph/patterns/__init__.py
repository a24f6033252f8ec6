"""Finds operators that exporters write out in parts. Each file has the rules that find one of them and put it in their
place.

:data:`RULES` has the rules of all files. Larger patterns stand before those that are part of them.
"""

from ..rules import Rule
from . import (
    attention_pattern,
    gated_unit_pattern,
    gelu_pattern,
    norm_pattern,
    quantized_pattern,
    rotary_pattern,
    softmax_pattern,
    swish_pattern,
)

RULES: list[Rule] = [
    *gelu_pattern.RULES, *swish_pattern.RULES, *gated_unit_pattern.RULES, *norm_pattern.RULES, *softmax_pattern.RULES,
    *attention_pattern.RULES, *rotary_pattern.RULES, *quantized_pattern.RULES,
]  # fmt: skip

__all__ = ["RULES"]
