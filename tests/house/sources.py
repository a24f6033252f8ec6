"""This module reads the imports of the library's files within the library."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

LAYERS = (
    "pages",
    "exported",
    "tir",
    "schedule",
    "codegen",
    "gpu",
    "circuits",
    "mlir",
    "te",
    "tuning_db",
    "tuner",
    "graph",
    "frontends",
    "driver",
    "doors",
    "triton",
    "cli",
)
"""The folders of the library, from the bottom up."""


@dataclass(frozen=True)
class Source:
    """One file of the library. ``name`` is its module, as ``tir.arith.analyzer``; a front page has its folder's name."""

    root: Path
    path: Path

    @property
    def place(self) -> str:
        """Returns the path within the library, ``tir/arith/analyzer.py``."""
        return self.path.relative_to(self.root).as_posix()

    @property
    def name(self) -> str:
        parts = self.place.removesuffix(".py").split("/")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def folder(self) -> str:
        return self.place.rpartition("/")[0]

    @property
    def is_front_page(self) -> bool:
        return self.path.name == "__init__.py"

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def imported(self, names: frozenset[str]) -> set[str]:
        """Returns the modules among ``names`` that the file imports when it is loaded; types alone do not count."""
        package = self.name.split(".") if self.is_front_page else self.name.split(".")[:-1]
        ignored: set[ast.AST] = set()
        for node in ast.walk(self.tree):
            late = isinstance(node, ast.FunctionDef)  # imports in functions run when the module is whole
            if late or isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                ignored.update(ast.walk(node))
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.level and node not in ignored:
                base = [*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else [])]
                for alias in node.names:
                    whole = ".".join([*base, alias.name])
                    found.add(whole if whole in names else ".".join(base))
        return (found & names) - {self.name}


def library(root: Path) -> dict[str, Source]:
    """Returns the files of the library by module name; the top front page is not among them."""
    found = [Source(root, path) for layer in LAYERS for path in sorted((root / layer).rglob("*.py"))]
    return {source.name: source for source in found}


def import_graph(files: dict[str, Source]) -> dict[str, set[str]]:
    """Returns what each module imports from the library."""
    names = frozenset(files)
    return {name: source.imported(names) for name, source in files.items()}


def inside(folder: str, files: dict[str, Source], graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Returns the imports among the parts of a folder: its files, except the front page, and the folders in it."""
    parts: dict[str, str] = {}
    for name, source in files.items():
        if source.folder == folder and not source.is_front_page:
            parts[name] = source.path.stem
        elif source.folder.startswith(folder + "/"):
            parts[name] = source.folder.removeprefix(folder + "/").split("/")[0] + "/"
    out: dict[str, set[str]] = {part: set() for part in parts.values()}
    for name, part in parts.items():
        out[part].update(parts[other] for other in graph[name] if other in parts and parts[other] != part)
    return out


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Returns parts that import each other in a circle, or an empty list."""
    done: set[str] = set()

    def visit(part: str, way: list[str]) -> list[str]:
        if part in way:
            return way[way.index(part) :]
        if part in done:
            return []
        for other in sorted(graph[part]):
            if found := visit(other, [*way, part]):
                return found
        done.add(part)
        return []

    return next((found for part in sorted(graph) if (found := visit(part, []))), [])
