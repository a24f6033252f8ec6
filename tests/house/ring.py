"""The two rings: the parts of the library that are read first, and that stand without the rest.

The *core ring* declares a matrix product, schedules it with three kinds of primitives (split, reorder, loop kinds), verifies
and interprets it, lowers it, compiles it and calls it. :data:`RING` is its only list. The *outer ring*, :data:`OUTER_RING`,
stands on it: it prints and parses programs, writes and replays traces, tunes, records what it found and builds from the
records. Everything else is a leaf.

A leaf is named in tables alone: the front pages (``__init__.py``) and :data:`TABLES`. Taking a leaf out of the library
means to delete its file and its rows in tables, which :func:`reduce_to` does in a copy. The outer ring can be taken out of
the core ring in the same way.
"""

from __future__ import annotations

import ast
from pathlib import Path

from .sources import Source

TABLES = ("codegen.llvm.emit", "codegen.lower.pipeline", "codegen.runtime.runtime_ir")
"""Modules that name leaves although they are no front pages: each has a table with one row for a leaf."""

RING: dict[str, str] = {
    "codegen": "compile lowered version",
    "codegen/backend": "effects emitter expressions lane_offsets statements storage",
    "codegen/jit": "elf_symbols",
    "codegen/llvm": (
        "casts emit function_builder integer_division jit linear_sums llvm_calls llvm_expr "
        "llvm_scope llvm_stmt llvm_types loads_stores"
    ),
    "codegen/lower": (
        "flatten_blocks lanes legalize_loops loop_annotations masks pipeline place_init "
        "program_contents scoped_transform vector_expressions vectorize_loops"
    ),
    "codegen/machine": "cpu target target_kinds target_text",
    "codegen/runtime": "arguments array_views call_services loader module runtime_ir",
    "codegen/runtime/parts": "runtime_part",
    "schedule": "errors handle_table handles instruction name_parameters primitive primitive_arguments schedule trace_data",
    "schedule/edit": "bindings empty_reductions",
    "schedule/primitives": "loop_kinds query reorder split_fuse",
    "schedule/require": "independence lookup nest_preconditions",
    "te": "compute create_prim_func operation reduce reduction_body tensor",
    "tir": "annotations fresh_copy index_form reduction_init verify walk",
    "tir/analysis": (
        "access access_regions accessed_boxes dependence harmless_conflicts known_ranges reduction_updates scope "
        "simplify tree undeclared_accesses"
    ),
    "tir/arith": "affine analyzer compare inequality rewrite_rules solver",
    "tir/arith/itermap": "digit_sums iter_map iter_predicates iter_simplify iter_sums mixed_radix",
    "tir/arith/normal_form": "canonical facts floor_division interval linear polynomial",
    "tir/expr": "equal expression_types reducers traversal",
    "tir/expr/base": "deep_recursion dtype node node_methods operators reason rounding slot",
    "tir/expr/intrinsics": "control_and_memory numpy_values operation_row type_rules",
    "tir/expr/nodes": "arithmetic conditions constants expr index_types op ranges sizes",
    "tir/interpret": "interpret_expr interpret_memory interpret_stmt",
    "tir/stmt": "buffer function statement_walks stmt",
}
"""The modules of the ring by folder. The front pages of these folders belong to it as well."""

OUTER_RING: dict[str, str] = {
    "codegen": "packing symbol_names",
    "codegen/runtime": "bound_calls native_glue timing weight_packing",
    "codegen/runtime/parts": "memory_ir timing_ir",
    "driver": "example_sizes planning request",
    "driver/workloads": "spec workload_definition",
    "pages": "figures short_repr written_files",
    "schedule": "formula_text trace trace_json trace_python trace_renaming",
    "te": "tensor_text",
    "tir": "cost difference expr_length program_key",
    "tir/expr/base": "garbage_collection",
    "tir/expr/intrinsics": "float_operations foreign_calls numpy_meaning",
    "tir/parser": (
        "access_parser assignment_parser block_parser expression_parser function_parser loop_parser "
        "memory_statements older_spellings parse_errors parser_base parser_values statement_parser text_limits"
    ),
    "tir/printer": "printer printer_expr printer_func printer_names printer_stmt",
    "tir/vocabulary": "expression_words statement_words type_words",
    "tuner": "program",
    "tuner/cost": "cost_features cost_model feature_names machine_model step_sizes vector_choice",
    "tuner/measure": "fork_server inputs measuring_worker process protocol runner serving statistics",
    "tuner/recipes": "element_sweep loop_steps",
    "tuner/rules": "elementwise_rule schedule_rule sketch_part stages_to_inline",
    "tuner/search": (
        "early_end final_race ledger model_guided nearest_shapes outcome run_request session strategy tune_options "
        "tune_result warm_start"
    ),
    "tuner/space": "default_choice restriction row_table rule_guard search_space sketch",
    "tuning_db": "connection database database_errors exchange keys lock lost_sessions opening records schema upkeep",
}
"""The modules that print and parse programs, tune, record and build again; they stand on the core ring, and on nothing else."""


def modules_of(*rings: dict[str, str]) -> set[str]:
    """Returns the names of the modules in lists such as :data:`RING`, without front pages."""
    return {f"{folder.replace('/', '.')}.{name}" for ring in rings for folder, names in ring.items() for name in names.split()}  # fmt: skip


def kept(files: dict[str, Source], *rings: dict[str, str]) -> set[str]:
    """Returns the modules of rings with the front pages of their folders and of the folders around them."""
    ring = modules_of(*rings)
    around = {name.rsplit(".", k)[0] for name in ring for k in range(1, name.count(".") + 1)}
    return ring | (around & files.keys())


def needs(source: Source, files: dict[str, Source]) -> set[str]:
    """Returns the modules that a file needs: where it imports a name from a front page, the module that defines it."""
    package = source.name.split(".") if source.is_front_page else source.name.split(".")[:-1]
    ignored = {
        inner
        for node in ast.walk(source.tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.level and node not in ignored:
            base = _base(node, package)
            found.update(_home(base, alias.name, files) for alias in node.names)
    return (found & files.keys()) - {source.name}


def _base(node: ast.ImportFrom, package: list[str]) -> str:
    return ".".join([*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else [])])


def _home(base: str, name: str, files: dict[str, Source]) -> str:
    """Returns the module that ``from base import name`` refers to, through front pages."""
    if f"{base}.{name}" in files:
        return f"{base}.{name}"
    page = files.get(base)
    if page is not None and page.is_front_page:
        for node in page.tree.body:
            if isinstance(node, ast.ImportFrom) and node.level:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return _home(_base(node, base.split(".")), alias.name, files)
    return base


def reduce_to(keep: set[str], root: Path, files: dict[str, Source]) -> int:
    """Delete all but the modules ``keep`` below ``root``, a copy of the library, and their rows in tables; returns how many
    there were."""
    leaves = files.keys() - keep
    for name in leaves:
        (root / files[name].place).unlink()
    names = {(leaf, "") for leaf in leaves}
    tables = [name for name in keep if files[name].is_front_page or name in TABLES]
    while True:  # a name that a table does not pass on is gone from other tables as well
        before = len(names)
        for name in tables:
            names |= {(name, gone) for gone in _struck(files[name], names, files)}
        if len(names) == before:
            break
    for name in tables:
        source = files[name]
        gone = _struck(source, names, files)
        (root / source.place).write_text(
            ast.unparse(ast.fix_missing_locations(_Strike(gone).visit(ast.parse(source.text))))
        )
    return len(leaves)


def _struck(source: Source, names: set[tuple[str, str]], files: dict[str, Source]) -> set[str]:
    """Returns the names that a table can no longer import."""
    package = source.name.split(".") if source.is_front_page else source.name.split(".")[:-1]
    out: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = _base(node, package)
            for alias in node.names:
                missing = (base, "") in names or (base, alias.name) in names or (f"{base}.{alias.name}", "") in names
                if missing or (base not in files and f"{base}.{alias.name}" not in files):
                    out.add(alias.asname or alias.name)
    return out


class _Strike(ast.NodeTransformer):
    """Removes names from a table: their imports, the elements of lists and dictionaries that use them, ``__all__``, methods."""

    def __init__(self, gone: set[str]) -> None:
        self.gone = gone

    def _uses(self, node: ast.AST | None) -> bool:
        return node is not None and any(isinstance(n, ast.Name) and n.id in self.gone for n in ast.walk(node))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        node.names = [a for a in node.names if not node.level or (a.asname or a.name) not in self.gone]
        return node if node.names else None

    def visit_Try(self, node: ast.Try) -> ast.AST:
        """An import that is gone fails as the absent module would."""
        self.generic_visit(node)
        node.body = node.body or ast.parse("raise ModuleNotFoundError").body
        return node

    def _elements(self, node: ast.List | ast.Tuple) -> ast.AST:
        node.elts = [
            e for e in node.elts
            if not self._uses(e) and not (isinstance(e, ast.Constant) and e.value in self.gone)
        ]  # fmt: skip
        return node

    visit_List = visit_Tuple = _elements  # type: ignore[assignment]

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        rows = [(k, v) for k, v in zip(node.keys, node.values, strict=True) if not self._uses(k) and not self._uses(v)]
        node.keys, node.values = [k for k, _ in rows], [v for _, v in rows]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        """A method of a class that a leaf defines."""
        return None if isinstance(node.value, ast.Name) and node.value.id in self.gone else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if self._uses(node) else node
