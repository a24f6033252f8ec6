"""Rewrite rules over graphs: a pattern of operators, and a function that returns what takes its place.

>>> from tilewright.graph import Builder
>>> from tilewright.graph.rules import any_value, number, rewritten, rule
>>> @rule(any_value("x") * number(1.0))
... def times_one(m):
...     return m["x"]
>>> b = Builder()
>>> x = b.input("x", (3,))
>>> print(rewritten(b.graph([b.op("relu", b.op("multiply", b.constant(1.0), x))]), [times_one]))
def main(x: float32[3]):
    relu: float32[3] = relu(x)
    return relu

Patterns stand in :mod:`.pattern`, what a rule may ask and make in :mod:`.rewriter`.
"""

from .pattern import Pattern, any_value, constant, either, number, numbers_of, op, optional, produced
from .rewriter import Match, Rule, rewritten, rule

__all__ = [
    "Match", "Pattern", "Rule", "any_value", "constant", "either", "number", "numbers_of", "op", "optional", "produced", "rewritten",
    "rule",
]  # fmt: skip
