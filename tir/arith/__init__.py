"""This package simplifies index arithmetic and proves statements about it.

:class:`Analyzer` simplifies and proves; it brings int32 and int64 expressions into a normal form (:mod:`.normal_form`)
under known ranges and conditions, and has rules for everything else (:mod:`.rewrite_rules`). :mod:`.affine` finds
linear forms and symbolic intervals; :func:`lies_between` evaluates bounds at each point of a small grid, floating-point
arithmetic included; :mod:`.itermap` analyzes index maps as numbers in a mixed radix, of which :func:`detect_iter_map`
tells whether they are one to one. Whole programs are simplified by :func:`tilewright.tir.analysis.simplify.simplify`.

``Analyzer.bind`` gives a variable its range or value, ``constraint`` a condition; ``simplify``, ``can_prove``, ``can_prove_equal`` and
``const_int_bound`` ask. ``itermap.divide_subspace`` and ``itermap.invert`` divide and invert index maps.
"""

from ..expr import conjuncts
from .affine import Ends, constant_coefficients, eval_interval, linear_coefficients
from .analyzer import Analyzer
from .itermap import (
    DivisionForm,
    IterMap,
    IterMark,
    IterSplit,
    IterSum,
    Subspace,
    detect_iter_map,
    divide_subspace,
    iter_map_simplify,
)
from .pointwise import lies_between

__all__ = [
    "Analyzer", "DivisionForm", "Ends", "IterMap", "IterMark", "IterSplit", "IterSum", "Subspace", "conjuncts", "constant_coefficients",
    "detect_iter_map", "divide_subspace", "eval_interval", "iter_map_simplify", "lies_between", "linear_coefficients",
]  # fmt: skip
