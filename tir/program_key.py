"""This module computes the keys of workloads and programs from their canonical text, and a hash."""

from __future__ import annotations

import hashlib
from typing import Any

from .expr import plain
from .expr.deep_recursion import with_room
from .printer import ProgramPrinter
from .printer_expr import Names
from .stmt import Block, BlockRealize, Buffer, IRModule, PrimFunc, Stmt


def structural_hash(node: Any) -> int:
    """Return a hash of 64 bits that is the same for equal nodes and in every process."""
    digest = hashlib.sha256(canonical_text(node, block_names=False).encode()).digest()
    return int.from_bytes(digest[:8], "big")


def workload_key(func: PrimFunc | IRModule) -> str:
    """Return the key of a workload: the SHA-256 of the canonical text in hex. It does not depend on names, like TVM's
    hash.

    Programs that differ in the names of blocks, variables, buffers or the function, or in the messages of assertions, have
    one workload key.
    """
    return hashlib.sha256(canonical_text(func, block_names=False).encode()).hexdigest()


EXAMPLE = "example_sizes"
"""The attribute of a function of symbolic sizes that has an example of them, numbers by their names."""


def family_key(func: PrimFunc | IRModule) -> str:
    """Return the :func:`workload_key` of a function without its example sizes; empty for one that has none.

    What is measured of a function of symbolic sizes at several examples belongs together by this key.
    """
    if not isinstance(func, PrimFunc) or EXAMPLE not in func.attrs:
        return ""
    return workload_key(func.without_attr(EXAMPLE))


def program_key(func: PrimFunc | IRModule) -> str:
    """Return the key of a program in a database: a :func:`workload_key` that depends on the names of blocks as well.

    A trace finds its blocks by their names, so a record belongs to the program that it was made for.
    """
    return hashlib.sha256(canonical_text(func).encode()).hexdigest()


@with_room
def canonical_text(node: Any, block_names: bool = True) -> str:
    """Return the printed text with names that do not matter. Variables are ``v0, v1, …`` and buffers ``b0, b1, …`` in
    the order in which they appear."""
    printer = _CanonicalPrinter(block_names)
    if isinstance(node, (Stmt, PrimFunc, IRModule)):
        printer.stmt(node)
        return "\n".join(printer.lines)
    return printer.text(node)


class _CanonicalNames(Names):
    def define(self, key: Any, hint: str) -> str:
        kind = "b" if isinstance(key, Buffer) else "v"
        number = self._next.get(kind, 0)
        self._next[kind] = number + 1
        text = f"{kind}{number}"
        self._scopes[self._into].append((key, self.texts.get(key), text, "", None))
        self.texts[key] = text
        return text


class _CanonicalPrinter(ProgramPrinter):
    def __init__(self, block_names: bool) -> None:
        super().__init__()
        self.names = _CanonicalNames()
        self.block_names = block_names

    def value(self, value: Any) -> str:
        return super().value(plain(value))

    def message(self, text: str) -> str:
        return ""  # it may hold names

    def mapping(self, items: Any) -> str:
        return super().mapping(dict(sorted((str(k), v) for k, v in items.items())))

    def func(self, f: PrimFunc, name: str | None = None) -> None:
        attrs = {k: v for k, v in f.attrs.items() if k != "global_symbol"}
        super().func(PrimFunc(f.params, f.body, f.buffer_map, attrs), name or "main")

    def module(self, m: IRModule) -> None:
        super().module(IRModule(dict(sorted(m.functions.items())), m.attrs))

    def _block(self, b: Block, realize: BlockRealize | None) -> None:
        super()._block(b if self.block_names else b.with_(name_hint=""), realize)
