"""``tvm.tir.stmt_functor``: walks over programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import tir
from ..tir import walk

Visit = Callable[[Any], Any]


def post_order_visit(node: Any, visit: Visit) -> None:
    """Call ``visit`` with every node, inner ones first."""
    for one in walk.post_order(node):
        visit(one)


def pre_order_visit(node: Any, visit: Visit) -> None:
    """Call ``visit`` with every node, outer ones first; those inside are visited whatever it returns."""
    for one in walk.pre_order(node):
        visit(one)


def substitute(node: Any, values: Mapping[tir.Var, Any]) -> Any:
    """Returns ``node`` with values in the places of variables."""
    return walk.substitute(node, {var: tir.convert(value) for var, value in values.items()})


def ir_transform(node: Any, before: Visit | None, after: Visit | None, only_enable: Sequence[str] | None = None) -> Any:
    """Returns ``node`` with every node replaced by what ``after`` returns for it, where that is not None.

    ``only_enable``: names of node types, such as ``tir.For``, that ``after`` is called for. NotImplementedError for
    ``before``.
    """
    if before is not None:
        raise NotImplementedError(
            "ir_transform: nothing is called before the nodes inside; pass None and a second function"
        )
    kinds = None if only_enable is None else {name.rpartition(".")[2] for name in only_enable}

    def rewrite(one: Any) -> Any:
        return after(one) if after is not None and (kinds is None or type(one).__name__ in kinds) else None

    return walk.transform(node, rewrite)
