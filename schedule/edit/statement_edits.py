"""This module replaces, inserts and annotates statements of a function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ...tir.analysis.tree import Tree, tree_of
from ...tir.expr import Var
from ...tir.stmt import Block, BlockRealize, Buffer, For, PrimFunc, SeqStmt, Stmt, children_of
from ..require.lookup import find_block, find_loop


def insert_in(body: Stmt, position: int, new: Stmt) -> SeqStmt:
    """Return ``body`` as a sequence with ``new`` inserted before statement number ``position``."""
    old = children_of(body)
    return SeqStmt((*old[:position], *children_of(new), *old[position:]))


def allocating(*buffers: Buffer) -> Callable[[Block], Stmt]:
    """Return the change of a block that lets it allocate ``buffers`` as well; for :meth:`Tree.replace`."""
    return lambda block: block.with_(alloc_buffers=(*block.alloc_buffers, *buffers))


def freeing(buffers: Collection[Buffer]) -> Callable[[Block], Stmt]:
    """Return the change of a block that no longer allocates ``buffers``; for :meth:`Tree.replace`."""
    return lambda block: block.with_(alloc_buffers=tuple([b for b in block.alloc_buffers if b not in buffers]))


def with_annotation(func: PrimFunc, block_or_loop: str | Var, ann_key: str, ann_val: Any) -> PrimFunc:
    """Return the function with an annotation of a block or loop, replacing an earlier one of that name."""
    tree, node = annotation_target(func, block_or_loop)
    return with_annotations(tree, node, {**node.annotations, str(ann_key): ann_val})


def annotation_target(func: PrimFunc, which: str | Var) -> tuple[Tree, For | Block]:
    """Return the index of the function, and the loop or block that is annotated."""
    tree = tree_of(func)
    return tree, find_loop(tree, which) if isinstance(which, Var) else find_block(tree, which).block


def with_annotations(tree: Tree, node: For | Block, annotations: Mapping[str, Any]) -> PrimFunc:
    """Return the function with these annotations of a loop or block in place of all it had."""
    if isinstance(node, For):
        return tree.replace({node: node.with_(annotations=annotations)})
    realize = tree.parent[node]
    assert isinstance(realize, BlockRealize)
    block = node.with_(annotations=annotations)
    return tree.replace({realize: BlockRealize(realize.iter_values, realize.predicate, block)})
