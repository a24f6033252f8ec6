"""Conditions on the blocks below loops that are about to change their order or kind."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import gcd
from typing import Any

from ..tir.arith import Analyzer, linear_coefficients
from ..tir.expr import Expr, IntImm, Mul, Var
from ..tir.stmt import For
from ..tir.walk import pre_order
from .analysis import is_output_block
from .bindings import analyzer_above
from .errors import ScheduleError
from .tree import Tree, blocks_below

__all__ = ["check_blocks_of_nest"]


def check_blocks_of_nest(tree: Tree, nest: Sequence[For], kinds: Collection[str]) -> None:
    """ScheduleError unless the outermost blocks below the nest have axes of these kinds, bound quasi-affinely.

    Products of loops are not quasi-affine; and a block that writes what lives on after its scope may not leave holes in
    an axis's domain (``l * 16``).
    """
    analyzer: Analyzer | None = None
    for realize in blocks_below(nest[-1].body):
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if axis.kind not in kinds:
                raise ScheduleError(
                    f"axis {axis.var.name} of block {realize.block.name_hint!r} is {axis.kind}; here axes are "
                    f"{' or '.join(sorted(kinds))}",
                    where=realize,
                )
            if isinstance(value, (Var, IntImm)):
                continue
            loops = [loop.loop_var for loop in tree.loops_above(realize)]
            why = _not_affine(value, loops)
            if why is None and axis.dom.extent is not value and is_output_block(tree, realize):
                analyzer = analyzer or analyzer_above(tree, realize)
                why = _holes(analyzer, value, loops)
            if why is not None:
                raise ScheduleError(
                    f"axis {axis.var.name} of block {realize.block.name_hint!r} is bound to {value}, {why}",
                    where=realize,
                    hint="bindings are sums of loops times constants, or quotients and remainders of those",
                )


def _not_affine(value: Expr, loops: Sequence[Var]) -> str | None:
    for n in pre_order(value):
        if isinstance(n, Mul) and _mentions(n.a, loops) and _mentions(n.b, loops):
            return "which multiplies loops and so is not quasi-affine"
    return None


def _mentions(e: Any, loops: Sequence[Var]) -> bool:
    return any(isinstance(n, Var) and any(n is v for v in loops) for n in pre_order(e))


def _holes(analyzer: Analyzer, value: Expr, loops: Sequence[Var]) -> str | None:
    line = linear_coefficients(value, loops, analyzer)
    if line is None:
        return None
    factors = [c.value for c in line[0] if isinstance(c, IntImm) and c.value]
    if len(factors) != sum(not (isinstance(c, IntImm) and not c.value) for c in line[0]) or not factors:
        return None
    step = gcd(*factors)
    return f"which only takes every {step}th value" if step > 1 else None
