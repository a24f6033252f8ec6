"""What stands outside of the rings: leaves, the floors that leaves share, and parts of the library that come and go as one.

Each folder with modules outside of the rings stands in exactly one of three tables:

- :data:`LEAVES`: its modules are leaves. Nothing but a table imports a leaf: no ring, no other leaf, no layer above. What is
  imported in such a folder all the same is a floor below its leaves, and stands in the row with the reason.
- :data:`SHARED`: its modules are a floor below leaves of other folders, for the reason that the row gives.
- :data:`PARTS`: its modules are a part of the library that comes and goes as one, such as a front end. Within a part
  modules import each other.
"""

from __future__ import annotations

LISTS = {
    "cli.main": "the commands",
    "codegen.c.c_source": "the writers of C",
    "codegen.gpu.launch.gpu_passes": "the passes of kernels for GPUs",
    "codegen.math.expansions": "the functions as vector code",
    "codegen.mlir.mlir_passes": "the passes before MLIR is written",
    "codegen.verilog.hardware_passes": "the passes of circuits",
    "frontends.onnx.importer": "the converters of ONNX",
    "frontends.stablehlo.hlo_reader": "the converters of StableHLO",
    "frontends.torch.program_reader": "the converters of ATen",
    "graph.passes.pass_order": "the passes of graphs",
}
"""Modules that are tables as :data:`.ring.TABLES` are, and are themselves outside of the rings; and what they list."""

LEAVES: dict[str, dict[str, str]] = {
    "cli": {
        "bench_model options output": "commands that take a model or print a table share them",
        "exit_codes settings": "every command ends with an exit code and reads settings",
        "progress tune_model": "the commands that measure show their progress",
    },
    "codegen": {"constant_lanes": "passes and back ends ask for lanes that are constant"},
    "codegen/backend": {
        "captures": "both back ends call the bodies of parallel loops as functions",
        "expand_dots": "targets without an instruction for a dot product of lanes write it out",
        "registry": "exports look a back end up by its name",
        "value_ranges": "back ends ask whether a value is known to be nonnegative",
    },
    "codegen/c": {
        "c_expr c_stmt c_scope": "the kinds of C (GNU's, strict, freestanding, of HLS) change some of their rows",
        "c_header c_source": "exported libraries and models have a header and C of their own",
        "inline_functions shared_values": "all writers of C define helpers and name shared values",
        "portable_scope struct_vectors": "strict and freestanding C have vectors as structures",
    },
    "codegen/llvm": {
        "external_calls": "matrix units and intrinsics of targets are calls that one function declares",
        "legalize_vectors": "scaling and lookups cut vectors to those that a target has",
        "microbenchmarks": "the driver measures the machine with them",
        "reduction_network": "reductions of lanes are written as a network of shuffles",
        "wasm_fills wasm_offsets": "one module applies both changes of WebAssembly to a text that is printed once",
    },
    "codegen/lower": {
        "bound_checks": "two passes ask which bound a guard checks",
        "compact_buffers": "kernels of GPUs narrow their buffers further",
        "hardware_annotations": "the passes and the writers of circuits read the same annotations",
        "prefetched_lines": "the pass that prefetches asks for the lines of an access",
        "register_partition": "promotion to registers divides a buffer by it",
        "stride_alignment": "places of buffers and their compaction align strides alike",
        "tile_accesses": "passes and targets ask what a tile of a matrix unit accesses",
        "transpose_network": "transposes in registers are a network of shuffles",
    },
    "codegen/machine": {
        "cpu_features cpu_names missing_abilities triples vector_widths": "descriptions of processors consist of them",
        "described_targets": "the command line and the pages list targets and their options",
        "gpu_figures": "GPU passes, the simulation and the cost models know a GPU by the same figures",
        "installed_targets": "targets of other packages are built and exported like ours",
    },
    "codegen/math": {
        "exp log normal trig": "pow and the sigmoid are made of exp and log; lowering and cold paths call two by themselves",
        "lookup_tables math_builder": "all functions are built from them",
    },
    "codegen/runtime": {
        "array_libraries completed_arguments dlpack_views functions_by_name": "modules of each target take arrays alike",
        "entry_ir export line_tables linked_library model_source": "the files of kernels and models are of one form",
    },
    "codegen/runtime/parts": {},
    "driver/workloads": {"numpy_references": "the workloads of the catalog name their references in NumPy"},
    "frontends/onnx": {
        "call package table types": "converters read a node, its types and constants by them",
        "control_flow": "loops and sequences stack tensors alike",
        "sums_of_products": "products, convolutions, transforms and quantized products are sums of products",
        "missing_operators node_attributes": "the text part reads nodes by them",
    },
    "frontends/onnx/text": {"text_call": "operators on texts are rows of one table"},
    "frontends/stablehlo": {
        "hlo_call hlo_table jaxlib_package known_arrays": "converters read an operation and its constants by them",
        "hlo_reader": "the door to JAX reads programs",
        "hlo_regions hlo_stacks": "converters with regions ask what the region computes, and which rows a loop sets",
        "hlo_shapes": "products and windows move and cut arrays",
    },
    "frontends/torch": {
        "aten_call aten_table torch_package": "converters read a call by them",
        "aten_products": "gradients and pooling are products with other operands",
        "decompositions program_reader": "the door to PyTorch reads programs",
    },
    "graph": {
        "attribute_keys builder entry fuse graph graph_operators host_graph kernel_order kernels memory_plan": "graphs and their kernels, which passes, rules and front ends use",
        "permutations reduced_axes reference rewrite scan_operator services verify_graph weighted whole_function": "the same: what is shared below passes and rules",
    },
    "graph/algebra": {},
    "graph/passes": {"pass_order": "the driver asks for the passes"},
    "graph/patterns": {},
    "schedule": {
        "index_map": "primitives that change layouts take one",
        "storage_scopes": "primitives that copy ask which threads share a memory",
        "tensor_intrin": "tensorize of schedules and of stages takes one",
    },
    "schedule/intrin": {
        "intrinsic_text": "descriptions of intrinsics are texts of one form",
        "warp_group_units": "the recipe for warp groups asks for the steps of a product",
    },
    "schedule/primitives": {},
    "te": {"scan": "the classic schedule and the nests of scans read it"},
    "te/ops": {"winograd": "the pass of graphs that chooses Winograd transforms weights ahead"},
    "te/reads": {"decided_conditions": "bounds of reads hold where conditions of the reader are decided"},
    "tir": {
        "index_retyping": "tensorize and wider indices give indices another type",
        "index_width": "readers of MLIR and passes of targets widen indices",
    },
    "tir/analysis": {
        "declared_regions footprint region_cover region_union required_domain": "primitives ask what statements access",
    },
    "tir/arith": {"pointwise": "footprints take bounds point by point"},
    "tir/arith/itermap": {"digit_variables inverse_map subspace": "primitives and regions invert and divide index maps"},
    "tir/expr": {"position_reducers": "operators that return positions reduce by them"},
    "tir/expr/base": {},
    "tir/expr/intrinsics": {
        "atomic_operations fixed_point integer_operations": "passes, targets and operators name their rows",
        "group_matrix_operations tile_operations tiles_in_memory warp_matrix_operations": "units of matrices name theirs",
    },
    "tir/interpret": {"interpret_llvm": "calls of LLVM's intrinsics are interpreted by it"},
    "tir/script": {"decorators": "T and I have the same decorators"},
    "tuner/rules": {},
    "tuner/search": {},
}  # fmt: skip
"""Folders of leaves, and the modules in them that are a floor below leaves, with the reason."""

SHARED = {
    "codegen/jit": "compiled code is kept on disk for kernels, models and measurements alike",
    "frontends": "converters of all front ends build graphs and refuse operators alike",
    "graph/layouts": "orders of dimensions, which the pass that chooses layouts asks for",
    "graph/rules": "the rules of patterns and of algebra are written with them",
    "pages": "all that is shown as HTML or SVG is made of them",
    "schedule/edit": "rewrites that several primitives make",
    "schedule/require": "preconditions that several primitives have",
    "te/ops/blocks": "checks and stages that several operators have",
    "tuner/cost": "models of costs, by which rules order their rows",
    "tuner/recipes": "schedules of kinds of kernels, which rules call as programs by hand do",
    "tuning_db": "tables of records, which results of a search show",
}
"""Folders whose modules are a floor below leaves of other folders, and why."""

PARTS: dict[str, set[str]] = {
    "codegen/gpu": set(),
    "codegen/mlir": set(),
    "codegen/verilog": set(),
    "doors": {"driver"},
    "driver": {"codegen/gpu"},
    "te/classic": set(),
    "tuner/remote": set(),
}
"""Folders that are one part, with all folders below them that no other table has; and the parts that they import."""
