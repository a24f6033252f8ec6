"""What is mutated, and which tests have to notice it; what computes the same as the library although it is changed."""

from __future__ import annotations

__all__ = ["GROUPS", "SAME", "TESTS"]

GROUPS: dict[str, tuple[str, ...]] = {
    "simplifier": (
        "tir/arith/analyzer.py", "tir/arith/normal_form/facts.py", "tir/arith/normal_form/canonical.py", "tir/arith/compare.py",
        "tir/arith/normal_form/floor_division.py", "tir/arith/itermap/iter_map.py", "tir/arith/itermap/iter_sums.py", "tir/arith/itermap/inverse_map.py", "tir/analysis/region_union.py", "tir/arith/rewrite_rules.py",
        "tir/arith/itermap/subspace.py", "tir/arith/normal_form/polynomial.py", "tir/expr/nodes/conditions.py", "tir/expr/equal.py",
    ),
    "legality": (
        "tir/analysis/access.py", "tir/analysis/scope.py", "tir/analysis/dependence.py", "schedule/edit/bindings.py",
        "tir/analysis/footprint.py", "schedule/require/block_preconditions.py",
        "tir/analysis/region_cover.py", "tir/analysis/harmless_conflicts.py", "schedule/edit/moved_block.py",
        "schedule/edit/inlined_block.py", "schedule/require/independence.py", "schedule/primitives/split_fuse.py",
        "schedule/primitives/reorder.py", "schedule/primitives/decompose_reduction.py", "schedule/primitives/rfactor.py",
    ),
    "lowering": (
        "codegen/lower/allocation_places.py", "codegen/lower/flatten_blocks.py", "codegen/lower/compact_buffers.py", "codegen/lower/hoist_guards.py",
        "codegen/lower/horizontal_reductions.py", "codegen/lower/legalize_loops.py", "codegen/lower/lanes.py", "codegen/lower/masks.py",
        "codegen/lower/place_init.py", "codegen/lower/promote_registers.py", "codegen/lower/transpose_in_registers.py",
        "codegen/lower/unroll_loops.py", "codegen/lower/vector_expressions.py", "codegen/lower/vectorize_loops.py",
    ),
    "back ends": (
        "codegen/backend/emitter.py", "codegen/backend/expressions.py", "codegen/backend/lane_offsets.py",
        "codegen/backend/statements.py", "codegen/backend/value_ranges.py",
        "codegen/llvm/casts.py", "codegen/llvm/llvm_expr.py", "codegen/llvm/half_conversions.py", "codegen/llvm/llvm_scope.py",
        "codegen/llvm/loads_stores.py", "codegen/llvm/reduction_network.py", "codegen/llvm/llvm_stmt.py", "codegen/c/c_calls.py",
        "codegen/c/c_scope.py", "codegen/c/c_stmt.py", "codegen/c/c_expr.py", "codegen/c/inline_functions.py",
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
