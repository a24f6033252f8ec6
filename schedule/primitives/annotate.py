"""This module sets and removes annotations of loops and blocks, for the lowering and the tuner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tir.annotations import ATOMIC
from ...tir.expr import Expr, FloatImm, IntImm, StringImm, Var
from ...tir.stmt import Block, BlockRealize, PrimFunc
from ..edit.annotated_nodes import annotation_target, with_annotation, with_annotations
from ..errors import ScheduleError, bad_argument, nearest
from ..primitive import primitive
from ..require.independence import check_kinds_for


@primitive
def annotate(func: PrimFunc, block_or_loop: str | Var, ann_key: str, ann_val: Any) -> PrimFunc:
    """Set an annotation of a block or loop. An earlier one of that name is kept (unannotate it first to change it).

    ``ann_val`` is a number, a text, a list or a dict of those. Lowering reads the keys in
    :mod:`tilewright.tir.annotations`, and warns of other keys.
    """
    _, node = annotation_target(func, block_or_loop)
    value = _plain(ann_val)
    return func if ann_key in node.annotations else with_annotation(func, block_or_loop, ann_key, value)


@primitive
def unannotate(func: PrimFunc, block_or_loop: str | Var, ann_key: str) -> PrimFunc:
    """Remove an annotation of a block or loop; not ``atomic_update`` where the block's reduction runs on ``blockIdx``."""
    tree, node = annotation_target(func, block_or_loop)
    if ann_key not in node.annotations:
        raise ScheduleError(
            f"there is no annotation {ann_key!r} here", where=node, hint=nearest(ann_key, node.annotations)
        )
    left = {k: v for k, v in node.annotations.items() if k != ann_key}
    if ann_key == ATOMIC and isinstance(node, Block):  # loops of its reduction may run on blocks of a GPU
        realize = tree.parent[node]
        assert isinstance(realize, BlockRealize)
        check_kinds_for(tree, realize.with_(block=node.with_(annotations=left)), tree.loops_above(realize))
    return with_annotations(tree, node, left)


@primitive
def enter_postproc(func: PrimFunc) -> PrimFunc:
    """Mark in the trace that the steps from here on are post-processing, which replays may leave out."""
    return func


def _plain(value: Any) -> Any:
    if isinstance(value, (IntImm, FloatImm, StringImm)):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str, Expr)):
        return value
    raise bad_argument(
        f"an annotation is a number, a text, a list or a dict, not {type(value).__name__}",
        hint="write it as one of these, a function or an object as its text",
    )
