"""This module reads the attributes of nodes, and puts a function's attributes into the nodes of its body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def attributes(onnx: Any, node: Any, tensor: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns the attributes by name: texts as ``str``, lists as tuples, tensors as ``tensor`` reads them."""
    kinds = onnx.AttributeProto
    out: dict[str, Any] = {}
    for a in node.attribute:
        value = onnx.helper.get_attribute_value(a)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif a.type == kinds.TENSOR:
            value = tensor(value)
        elif isinstance(value, (list, tuple)) or a.type in (kinds.INTS, kinds.FLOATS):
            value = tuple([v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value])
        out[a.name] = value
    return out


def bind(onnx: Any, node: Any, given: Mapping[str, Any]) -> None:
    """Put the function's attributes in the place of references to them, also in the graphs inside the node."""
    kept = []
    for a in node.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name not in given:
                continue
            actual = onnx.AttributeProto()
            actual.CopyFrom(given[a.ref_attr_name])
            actual.name = a.name
            a = actual
        kept.append(a)
    copies = [type(a).FromString(a.SerializeToString()) for a in kept]
    for a in copies:
        for graph in (a.g, *a.graphs) if a.type in (a.GRAPH, a.GRAPHS) else ():
            for inner in graph.node:
                bind(onnx, inner, given)
    del node.attribute[:]
    node.attribute.extend(copies)
