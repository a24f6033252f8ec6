"""This module has all walks over programs under one name: visits, rewrites and searches.

Those of nodes of all kinds are in :mod:`.expr.traversal`, those that look for statements in :mod:`.stmt.statement_walks`.
"""

# isort: skip_file
from .expr.traversal import (
    LEAVES, all_nodes, distinct, free_vars, nodes_by_type, post_order, pre_order, reads_memory, replace_node, substitute,
    transform, transform_statements, uses_var, vars_in,
)  # fmt: skip
from .stmt.statement_walks import blocks_of, loads_and_stores, memory_in, replace_buffers, statements

__all__ = [
    "LEAVES", "all_nodes", "blocks_of", "distinct", "free_vars", "loads_and_stores", "memory_in", "nodes_by_type", "post_order", "pre_order",
    "reads_memory", "replace_buffers", "replace_node", "statements", "substitute", "transform", "transform_statements",
    "uses_var", "vars_in",
]  # fmt: skip
