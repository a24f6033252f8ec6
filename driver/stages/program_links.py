"""This module links the lines of a program before lowering to the lines of the lowered program.

A node that lowering left as it is has the same line there. Other loops are followed by their variables, and stores by the
memory that they write: a store of the scheduled program belongs to the lowered stores to the same array, initial values to
initial values. A line of a loop or block that is no longer there belongs to what the stores in it belong to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...codegen.lowered import REGISTER_SCOPE
from ...tir.expr import BufferLoad
from ...tir.expr.base.node import Node
from ...tir.printer import script_lines
from ...tir.stmt import Allocate, Block, BlockRealize, Buffer, BufferStore, For, PrimFunc, Stmt
from ...tir.walk import pre_order

Key = tuple[str, str]


class LoweredLines:
    """The lines of a lowered program, by nodes and by what they write or repeat; ``first``: the lines above it."""

    def __init__(self, func: PrimFunc, above: int = 0) -> None:
        self.func = func
        text, places = script_lines(func)
        self.text = text
        self.places = {node: [above + n for n in found] for node, found in places.items()}
        self.of: dict[Key, set[int]] = {}
        for node in statements_in(func.body):
            for key in keys(node):
                self.of.setdefault(key, set()).update(self.places.get(id(node), ()))

    def linked(self, node: Node) -> set[int]:
        """Return the lines that belong to a statement of an earlier stage."""
        exact = self.places.get(id(node))
        if exact is not None:
            return set(exact)
        for key in keys(node):
            if self.of.get(key):
                return self.of[key]
        if isinstance(node, Allocate | BufferStore):
            return set()
        return self.inside(node.children())

    def inside(self, nodes: Iterable[Node]) -> set[int]:
        """Return the lines that belong to the stores in some statements."""
        found: set[int] = set()
        for node in nodes:
            for inner in statements_in(node):
                if isinstance(inner, BufferStore):
                    found |= self.linked(inner)
        return found


def statements_in(node: Node) -> Iterable[Node]:
    """Returns the statements and blocks below a node, itself among them."""
    return [n for n in pre_order(node) if isinstance(n, Stmt | Block)]


def keys(node: Node) -> list[Key]:
    """Returns what a statement is followed by through lowering, the closest first."""
    if isinstance(node, For):
        return [("for", node.loop_var.name)]
    if isinstance(node, Allocate):
        return [("allocate", memory_name(node.buffer))]
    if isinstance(node, BufferStore):
        name = memory_name(node.buffer)
        again = any(isinstance(n, BufferLoad) and memory_name(n.buffer) == name for n in pre_order(node.value))
        return [("update" if again else "first", name), ("store", name)]
    return []


def memory_name(buffer: Buffer) -> str:
    """Returns the name of the array to which a buffer belongs; register values have a number behind it."""
    if buffer.scope == REGISTER_SCOPE:
        return re.sub(r"_\d+$", "", buffer.name)
    return buffer.data.name


def linked_lines(func: PrimFunc, lowered: LoweredLines) -> tuple[list[str], list[set[int]]]:
    """Returns the lines of a program, and for each the lines of the lowered program that belong to it."""
    text, places = script_lines(func)
    lines = text.splitlines()
    links: list[set[int]] = [set() for _ in lines]
    for node in statements_in(func.body):
        # a block's own line comes with the statement that realizes it
        whole = node.block.body if isinstance(node, BlockRealize) else node
        found = lowered.linked(whole) if not isinstance(node, Block | BlockRealize) else lowered.inside([whole])
        for number in places.get(id(node), ()):
            links[number - 1] |= found
    return lines, links


def tensor_links(name: str, lowered: LoweredLines) -> set[int]:
    """Returns the lines that write the array of a tensor."""
    found: set[int] = set()
    for kind in ("store", "first", "update"):
        found |= lowered.of.get((kind, name), set())
    return found


def own_lines(text: str, places: Mapping[int, list[int]]) -> tuple[list[str], list[set[int]]]:
    """Returns the lines of the lowered program itself; those where a statement begins are linked to themselves."""
    numbers = {n for found in places.values() for n in found}
    lines = text.splitlines()
    return lines, [{n} if n in numbers else set() for n in range(1, len(lines) + 1)]
