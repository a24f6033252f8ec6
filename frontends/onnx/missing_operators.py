"""This module finds all operators of a model that nothing here can read, before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..unsupported_operators import UnsupportedOperators
from .call import OnnxError, shown


class UnsupportedOnnxOperators(UnsupportedOperators, OnnxError):
    """Raised when operators of a model have no converter; ``operators`` has their nodes by domain and operator."""

    what, adder = "model", "tilewright.frontends.onnx.register_onnx_operator"


def missing_operators(
    nodes: Iterable[Any], functions: Mapping[tuple[str, str], Any], is_known: Callable[[Any], bool]
) -> dict[str, list[str]]:
    """Returns the operators that are not known, with their nodes: also those in branches, loops and functions."""
    out: dict[str, list[str]] = {}
    waiting = [(nodes, "")]
    seen: set[tuple[str, str]] = set()
    while waiting:
        some, place = waiting.pop()
        for node in some:
            key = (node.domain, node.op_type)
            if key in functions and key not in seen:
                seen.add(key)
                waiting.append((functions[key].node, f" in the function {shown(node.op_type)}"))
            elif key not in functions and not is_known(node):
                domain = "" if node.domain in ("", "ai.onnx") else node.domain + "."
                out.setdefault(shown(domain + node.op_type, quoted=False), []).append(label_of(node) + place)
            for a in node.attribute:
                inner = [a.g, *a.graphs] if a.type in (a.GRAPH, a.GRAPHS) else []
                waiting += [(g.node, f" in {label_of(node)}") for g in inner]
    return out


def label_of(node: Any) -> str:
    """Returns the node as it is called in messages: its operator, and its name or its output's."""
    name = node.name or (node.output[0] if node.output else "")
    return f"{shown(node.op_type, quoted=False)} {shown(name)}"
