"""Draws mutants: places in the source where one operator, constant or guard is changed."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Mutant", "draw", "found_again", "mutants_of"]

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.FloorDiv: ast.Mod, ast.Mod: ast.FloorDiv, ast.Mult: ast.Add,
}  # fmt: skip
_NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}
_SILENT = (ast.FunctionDef, ast.ClassDef, ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
"""What is left alone: other functions, and whatever only makes a text."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug: in ``file`` (relative to the root) the bytes ``start:end``, which say ``old``, become ``new``."""

    group: str
    file: str
    function: str
    line: int
    start: int
    end: int
    old: str
    new: str
    occurrence: int = 0
    """How many such places stand before it in the function."""

    def key(self) -> tuple[str, str, str, str, int]:
        """What names the mutant while lines move."""
        return self.file, self.function, self.old, self.new, self.occurrence

    def planted(self, source: bytes) -> bytes:
        """The source with the bug."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def probed(self, source: bytes, number: int) -> bytes:
        """The source as it is, but the place tells ``probe.seen`` what stands there and what the bug would make of it."""
        call = f'__import__("tilewright.tests.mutation.probe", fromlist=["seen"]).seen({number}, ('
        between = f"), lambda: {self.new})"
        return b"".join(
            (source[: self.start], call.encode(), source[self.start : self.end], between.encode(), source[self.end :])
        )


def draw(
    root: Path,
    groups: Mapping[str, Sequence[str]],
    count: int,
    seed: int,
    without: Container[tuple[str, str, str, str, int]],
) -> list[Mutant]:
    """``count`` mutants, as many of each group, no two of one function; the same for a seed and a source.

    Those whose key is in ``without`` are passed over.
    """
    rng = random.Random(seed)
    chosen: list[Mutant] = []
    for number, (group, files) in enumerate(groups.items()):
        pool = [m for file in sorted(files) for m in mutants_of(root, group, file)]
        rng.shuffle(pool)
        share = count // len(groups) + (number < count % len(groups))
        functions: set[tuple[str, str]] = set()
        for mutant in pool:
            place = (mutant.file, mutant.function)
            if share and place not in functions and mutant.key() not in without:
                functions.add(place)
                chosen.append(mutant)
                share -= 1
    return chosen


def found_again(root: Path, records: Iterable[Mapping[str, Any]]) -> dict[int, Mutant]:
    """Mutants that were written down (``Outcome.record``) in today's source, by number; KeyError names one that is gone."""
    again = {}
    for r in records:
        key = r["file"], r["function"], r["old"], r["new"], r["occurrence"]
        here = {m.key(): m for m in mutants_of(root, r["group"], r["file"])}
        if key not in here:
            raise KeyError(
                f"nothing in {r['file']}, {r['function']} says {r['old']} now: draw another for {r['number']}"
            )
        again[r["number"]] = here[key]
    return again


def mutants_of(root: Path, group: str, file: str) -> list[Mutant]:
    """All mutants of one file, in the order of the source."""
    raw = (root / file).read_bytes()
    starts = [0]
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Mutant] = []
    before: Counter[tuple[str, str, str]] = Counter()
    for function, node, new in _sites(ast.parse(raw)):
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        old = " ".join(raw[start:end].decode().split())
        text = new if isinstance(new, str) else ast.unparse(new)
        place = function, old, text
        found.append(Mutant(group, file, function, node.lineno, start, end, old, f"({text})", before[place]))
        before[place] += 1
    return found


def _sites(tree: ast.Module) -> Iterator[tuple[str, ast.expr, ast.expr | str]]:
    """(function, node, what stands in its place) for every place inside a function."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                if not isinstance(statement, _SILENT):
                    yield from ((function.name, node, new) for node, new in _below(statement))


def _below(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | str]]:
    if isinstance(node, ast.If) and any(isinstance(s, ast.Raise) for s in node.body):
        yield node.test, "False"  # a refusal that never comes
    for new in _changed(node):
        assert isinstance(node, ast.expr)
        yield node, new
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "keywords", "slice", "func"):
            continue
        children: Iterable[object] = value if isinstance(value, list) else [value]
        for child in children:
            if isinstance(child, ast.AST) and not isinstance(child, _SILENT):
                yield from _below(child)


def _changed(node: ast.AST) -> Iterator[ast.expr | str]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        yield ast.Compare(node.left, [_COMPARE[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        yield ast.BoolOp(node.op, node.values[:-1]) if len(node.values) > 2 else node.values[0]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        if not any(
            isinstance(x, (ast.List, ast.Tuple, ast.Constant)) and not _number(x) for x in (node.left, node.right)
        ):
            yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int):
            yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES:
        yield ast.Call(ast.Name(_NAMES[node.func.id]), node.args, node.keywords)


def _number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)
