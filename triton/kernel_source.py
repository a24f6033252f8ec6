"""The source of a kernel: its parsed function, its parameters, what it may name, and messages with the line marked."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from ..pages.messages import near_words
from .jumps import without_jumps
from .liveness import Liveness
from .rows import constexpr

_EMPTY = inspect.Parameter.empty


class KernelError(ValueError):
    """Says why a kernel is not compiled, with the place in its source."""


class KernelSource:
    """The source of one function with ``@jit``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        try:
            lines, self.first_line = inspect.getsourcelines(function)
        except (OSError, TypeError) as e:
            raise ValueError(
                f"the source of {self.name} is not found; @triton.jit reads functions that stand in a file"
            ) from e
        self.lines = textwrap.dedent("".join(lines)).splitlines()
        self.file = inspect.getsourcefile(function) or "?"
        self.signature = inspect.signature(function)
        self.defaults = {n: p.default for n, p in self.signature.parameters.items()}
        for p in self.signature.parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise TypeError(f"{self.name} takes {p}; a kernel has a fixed number of parameters")

    @cached_property
    def body(self) -> list[ast.stmt]:
        """The statements of the function, with one ``return`` at most, at their end."""
        return self.structured[0]

    @property
    def result(self) -> str:
        """The name of what the function returns where several statements return it."""
        return self.structured[1]

    @cached_property
    def structured(self) -> tuple[list[ast.stmt], str]:
        tree = ast.parse("\n".join(self.lines)).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise TypeError(f"{self.name} is no function that is defined by def")
        return without_jumps(tree.body)

    @cached_property
    def liveness(self) -> Liveness:
        return Liveness(self.body)

    @cached_property
    def constants(self) -> frozenset[str]:
        """The parameters with the annotation ``tl.constexpr``."""
        return frozenset(
            n for n, p in self.signature.parameters.items()
            if p.annotation is constexpr or (isinstance(p.annotation, str) and "constexpr" in p.annotation)
        )  # fmt: skip

    @property
    def closure(self) -> Mapping[str, Any]:
        """The variables of functions around this one that it names, as they are now."""
        cells = zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True)
        found = {}
        for name, cell in cells:
            try:
                found[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        return found

    def global_named(self, name: str, default: Any = None) -> Any:
        """Return what a name stands for outside of the function."""
        for place in (self.closure, self.function.__globals__, vars(builtins)):
            if name in place:
                return place[name]
        return default

    def bound(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the parameters in a call; TypeError where they do not fit."""
        values = dict(zip(self.defaults, args, strict=False))
        rest = len(values)
        values.update(named)
        if rest == len(args) and len(values) == rest + len(named) and values.keys() <= self.defaults.keys():
            ordered = {n: values.get(n, d) for n, d in self.defaults.items()}
            if not any([v is _EMPTY for v in ordered.values()]):
                return {n: v.value if type(v) is constexpr else v for n, v in ordered.items()}
        try:
            found = self.signature.bind(*args, **named)
        except TypeError as e:
            unknown = [n for n in named if n not in self.signature.parameters]
            near = [w for n in unknown for w in near_words(n, self.signature.parameters, 1, 0.6)]
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"{self.name}{self.signature}: {e}{hint}") from None
        raise AssertionError(f"{self.name}: {found} fits, and was not found to")

    def place(self, node: ast.AST | None) -> str:
        """Return ``file.py:12: source line`` of a part of the source."""
        line = getattr(node, "lineno", 1)
        return f"{self.file}:{self.first_line + line - 1}: {self.lines[line - 1].strip()}"

    def error(self, node: ast.AST, message: str) -> KernelError:
        """Return an error with the line of a part of the source, marked below."""
        line, start = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self.lines[line - 1]
        same_line = getattr(node, "end_lineno", line) == line
        end = (getattr(node, "end_col_offset", None) if same_line else None) or len(text)
        cut = len(text) - len(text.lstrip())
        marks = " " * (start - cut) + "^" * max(1, end - start)
        return KernelError(
            f"{self.name}: {message}\n{self.file}:{self.first_line + line - 1}\n    {text.strip()}\n    {marks}"
        )
