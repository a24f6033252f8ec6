"""What is mutated, and which tests have to notice it; what computes the same as the library although it is changed."""

from __future__ import annotations

__all__ = ["GROUPS", "MORE", "SAME", "TESTS"]

GROUPS: dict[str, tuple[str, ...]] = {
    "simplifier": (
        "tir/arith/analyzer.py", "tir/arith/normal_form/facts.py", "tir/arith/normal_form/canonical.py",
        "tir/arith/itermap/iter_map.py", "tir/arith/itermap/inverse_map.py", "tir/analysis/regions.py",
        "tir/arith/rewrite_rules.py", "tir/arith/itermap/subspace.py", "tir/arith/normal_form/forms.py",
        "tir/expr/op.py", "tir/expr/equal.py",
    ),
    "legality": (
        "tir/analysis/access.py", "tir/analysis/scope.py", "tir/analysis/dependence.py",
        "schedule/primitives/loops.py", "tir/analysis/footprint.py", "schedule/require/block_preconditions.py",
        "tir/analysis/region_cover.py", "schedule/primitives/compute_at.py", "schedule/edit/inlining.py",
        "schedule/require/loop_preconditions.py", "schedule/primitives/rfactor.py",
    ),
    "lowering": (
        "codegen/lower/compact_buffers.py", "codegen/lower/flatten_blocks.py", "codegen/lower/hoist_guards.py",
        "codegen/lower/horizontal_reductions.py", "codegen/lower/legalize_loops.py", "codegen/lower/lanes.py",
        "codegen/lower/promote_registers.py", "codegen/lower/transpose_in_registers.py",
        "codegen/lower/unroll_loops.py", "codegen/lower/vectorize_loops.py",
    ),
    "back ends": (
        "codegen/backend/emitter.py", "codegen/lane_offsets.py", "codegen/backend/analyses.py",
        "codegen/llvm/llvm_expr.py", "codegen/llvm/llvm_scope.py", "codegen/llvm/loads_stores.py",
        "codegen/llvm/llvm_stmt.py", "codegen/c/c_expr.py", "codegen/c/c_stmt.py", "codegen/c/inline_functions.py",
    ),
}  # fmt: skip
"""Files by group."""

MORE: dict[str, tuple[str, ...]] = {
    "arithmetic": (
        "tir/arith/affine.py", "tir/arith/pointwise.py", "tir/analysis/simplify.py",
        "tir/arith/itermap/digit_variables.py", "tir/arith/itermap/iter_map.py", "tir/arith/itermap/subspace.py",
        "tir/arith/normal_form/forms.py",
    ),
    "primitives": (
        "schedule/primitives/annotate.py", "schedule/primitives/blockize.py", "schedule/primitives/buffer_storage.py",
        "schedule/primitives/cache_index.py", "schedule/primitives/cache_read_write.py",
        "schedule/primitives/compute_at.py", "schedule/primitives/padding.py", "schedule/primitives/epilogue.py",
        "schedule/primitives/equal_results.py", "schedule/primitives/expand_offsets.py", "schedule/primitives/pad_before_offset.py",
        "schedule/edit/sums_of_products.py",
        "schedule/primitives/loop_partition.py", "schedule/primitives/read_write_at.py",
        "schedule/primitives/reindex.py", "schedule/primitives/rolling_buffer.py", "schedule/primitives/sampling.py",
        "schedule/primitives/shift_operand.py", "schedule/primitives/tensorize.py",
        "schedule/primitives/transform_layout.py",
    ),
    "passes": (
        "codegen/lower/align_tiles.py", "codegen/lower/form_fma.py", "codegen/lower/insert_prefetches.py", "codegen/lower/join_split_indices.py",
        "codegen/lower/nontemporal_stores.py", "codegen/lower/pipeline.py", "codegen/lower/promote_registers.py",
        "codegen/lower/tile_accesses.py", "codegen/lower/transpose_in_registers.py",
        "codegen/lower/transpose_steps.py",
        "codegen/lower/widen_half_floats.py",
    ),
    "graph": (
        "graph/entry.py", "graph/graph.py", "graph/graph_operators.py", "graph/kernels.py", "graph/memory_plan.py",
        "graph/text.py", "graph/reference.py", "graph/builder.py",
    ),
    "rules": (
        "graph/algebra.py", "graph/passes/fold_scales.py", "graph/passes/fold_constants.py",
        "graph/passes/join_products.py", "graph/passes/join_extremes.py", "graph/passes/split_transposed.py", "graph/passes/hoist_from_loops.py", "graph/passes/drop_states.py",
        "graph/passes/tables_of_bytes.py",
        "graph/patterns.py", "graph/passes/choose_layouts.py", "graph/rules.py",
    ),
    "ONNX": (
        "frontends/onnx/control_flow.py", "frontends/onnx/importer.py", "frontends/onnx/known_values.py",
        "frontends/onnx/products.py", "frontends/onnx/quantized.py", "frontends/onnx/recurrent.py",
        "frontends/onnx/reductions.py", "frontends/onnx/shapes.py", "frontends/onnx/single_elements.py",
        "frontends/onnx/resizing.py", "frontends/onnx/trees.py",
    ),
    "readers": (
        "frontends/torch/aten_elements.py", "frontends/torch/aten_shapes.py", "frontends/torch/aten_products.py",
        "frontends/torch/aten_reductions.py", "frontends/torch/program_reader.py",
        "frontends/stablehlo/hlo_elements.py", "frontends/stablehlo/hlo_control.py",
        "frontends/stablehlo/hlo_shapes.py", "frontends/stablehlo/hlo_products.py",
        "frontends/stablehlo/hlo_reductions.py", "frontends/common/arithmetic.py", "frontends/common/indexing.py",
        "frontends/common/windows.py",
    ),
    "measuring": (
        "tuner/measure/runner.py", "tuner/measure/inputs.py", "tuner/measure/reference.py",
        "tuner/measure/measuring_worker.py", "tuner/measure/process.py", "tuner/search/session.py",
    ),
}  # fmt: skip
"""Further files by group, which ``--more`` draws from."""

TESTS: dict[str, tuple[str, ...]] = {
    "simplifier": ("tests/tir", "tests/te", "tests/conformance"),
    "legality": ("tests/schedule", "tests/conformance"),
    "lowering": ("tests/codegen", "tests/gpu"),
    "back ends": ("tests/codegen", "tests/gpu"),
    "arithmetic": ("tests/tir", "tests/te", "tests/schedule", "tests/conformance"),
    "primitives": ("tests/schedule", "tests/conformance"),
    "passes": ("tests/codegen", "tests/gpu"),
    "graph": ("tests/graph", "tests/frontends"),
    "rules": ("tests/graph", "tests/frontends"),
    "ONNX": ("tests/frontends",),
    "readers": ("tests/frontends",),
    "measuring": ("tests/tuner", "tests/driver"),
}
"""Tests by group, in the order in which they run; the first failure ends the run."""

SAME: dict[tuple[str, str, str, str, int], str] = {
    ("tir/arith/normal_form/canonical.py", "_trunc", "0", "(1)", 2): "the sign of a quotient of 0 makes no difference",
    ("tir/arith/normal_form/canonical.py", "_trunc", "0", "(1)", 3): "a divisor of 0 was left out before",
    (
        "tir/arith/normal_form/facts.py", "mono_bound", "m[i] == m[i - 1] and (i < 2 or m[i - 2] != m[i])",
        "(m[i] == m[i - 1])", 0,
    ): "both branches did the same for a third factor",
    ("schedule/primitives/compute_at.py", "_distinct", "a.loops == b.loops", "(a.loops != b.loops)", 0):
        "accesses with equal indices and conditions under other loops have the same box",
    ("codegen/lower/unroll_loops.py", "_find_varying", "isinstance(s, Allocate) and unrolled", "(isinstance(s, Allocate))", 0):
        "names that never differ take part in the keys of results, nothing else",
    ("codegen/lower/compact_buffers.py", "_compact", "extent.value >= full.value", "(extent.value > full.value)", 0):
        "the buffer gets the shape that it has",
    ("codegen/llvm/llvm_expr.py", "reduce_rows", "1", "(2)", 1):
        "n & (n - 2) is 0 for the same n as n & (n - 1), from 2 on; fewer lanes are left out behind it",
    (
        "tir/arith/itermap/subspace.py", "iter_map_simplify", "not found.surjective and predicate is not None",
        "(not found.surjective)", 0,
    ): "without a predicate the second search is the first one again",
    ("schedule/primitives/read_write_at.py", "read", "hi <= last", "(hi < last)", 0):
        "the lesser of two equal ends is either",
    ("schedule/primitives/loop_partition.py", "_nests", "0", "(1)", 0): "every path begins with the block of the function",
    (
        "codegen/lower/transpose_in_registers.py", "_plan",
        "walks(sources, i) and walks(places, j) and not walks(sources, j) and not walks(places, i)",
        "(walks(sources, i) and walks(places, j) and (not walks(sources, j)))", 0,
    ): "where two loops walk through the destination, they write the same elements, which was left out before",
    ("codegen/lower/insert_prefetches.py", "place", "len(self.rows) - 1", "(len(self.rows) + 1)", 0):
        "the quotient by the last extent is 0 for every line that there is",
    ("tuner/measure/process.py", "receive", "left <= 0", "(left < 0)", 0):
        "a wait of no time returns at once as well",
}  # fmt: skip
"""Mutants that are no bugs: ``Mutant.key()`` and why nothing computes otherwise."""
