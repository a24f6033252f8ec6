"""What is mutated, and which tests have to notice it; what computes the same as the library although it is changed."""

from __future__ import annotations

__all__ = ["GROUPS", "SAME", "TESTS"]

GROUPS: dict[str, tuple[str, ...]] = {
    "simplifier": (
        "tir/arith/analyzer.py", "tir/arith/bounds.py", "tir/arith/canonical.py", "tir/arith/compare.py",
        "tir/arith/division.py", "tir/arith/iter_map.py", "tir/arith/region.py", "tir/arith/rules.py",
        "tir/arith/subspace.py", "tir/arith/terms.py", "tir/structure.py",
    ),
    "legality": (
        "schedule/analysis.py", "schedule/bindings.py", "schedule/boxes.py", "schedule/dependence.py",
        "schedule/regions.py", "schedule/turns.py", "schedule/primitives/compute_at.py",
        "schedule/primitives/inline.py", "schedule/primitives/kinds.py", "schedule/primitives/loops.py",
        "schedule/primitives/order.py", "schedule/primitives/reduction.py", "schedule/primitives/rfactor.py",
    ),
    "lowering": (
        "codegen/lower/blocks.py", "codegen/lower/compact.py", "codegen/lower/guards.py",
        "codegen/lower/horizontal.py", "codegen/lower/loops.py", "codegen/lower/masks.py",
        "codegen/lower/reduction.py", "codegen/lower/registers.py", "codegen/lower/transpose.py",
        "codegen/lower/unroll.py", "codegen/lower/vectorize.py",
    ),
    "back ends": (
        "codegen/llvm/casts.py", "codegen/llvm/expr.py", "codegen/llvm/halves.py", "codegen/llvm/index.py",
        "codegen/llvm/memory.py", "codegen/llvm/rows.py", "codegen/llvm/stmt.py", "codegen/c/calls.py",
        "codegen/c/emit.py", "codegen/c/expr.py", "codegen/c/helpers.py",
    ),
}  # fmt: skip
"""Files by group."""

TESTS: dict[str, tuple[str, ...]] = {
    "simplifier": ("tests/tir", "tests/te", "tests/conformance"),
    "legality": ("tests/schedule", "tests/conformance"),
    "lowering": ("tests/codegen",),
    "back ends": ("tests/codegen",),
}
"""Tests by group, in the order in which they run; the first failure ends the run."""

SAME: dict[tuple[str, str, str, str], str] = {}
"""Mutants that are no bugs: ``Mutant.key()`` and why nothing computes otherwise."""
