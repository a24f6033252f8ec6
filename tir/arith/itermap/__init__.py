"""This package analyzes index maps as numbers in a mixed radix.

:func:`detect_iter_map` finds the digits of loops in the bindings of block axes and whether the map is one to one;
:func:`iter_map_simplify` brings bindings to a normal form, :func:`divide_subspace` divides them into an outer and an
inner part, :func:`invert` solves them for the loops, and :func:`with_digit_variables` replaces digits by independent
variables.
"""

from .digit_variables import DigitSum, value_count, with_digit_variables, without_low_digits, write_digits
from .inverse_map import inverse, invert, invert_sums
from .iter_map import IterMap, IterMark, IterSplit, IterSum, detect_iter_map, digit_of
from .subspace import DivisionForm, Subspace, constant_form, divide_subspace, iter_map_simplify

__all__ = [
    "DigitSum", "DivisionForm", "IterMap", "IterMark", "IterSplit", "IterSum", "Subspace", "constant_form", "detect_iter_map",
    "digit_of", "divide_subspace", "inverse", "invert", "invert_sums", "iter_map_simplify", "value_count", "with_digit_variables", "without_low_digits",
    "write_digits",
]  # fmt: skip
