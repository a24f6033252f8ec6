"""Tables whose rows may stand in packages beside this one: kinds of targets (:data:`.target_kinds.TARGET_KINDS`) and back
ends (:data:`.registry.BACKENDS`).

A row is there from the beginning, as the :class:`Place` that has it, or it is registered. Installed packages register theirs
by entry points, which are called when a name is asked for that nothing else has.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar, cast

Row = TypeVar("Row")

GROUP = "tilewright.targets"
"""The group of entry points by which installed packages add targets."""


@dataclass(frozen=True)
class Place:
    """Where a row is: a module of the library and a name in it."""

    module: str
    name: str

    def load(self) -> Any:
        """Return the row, for which the module is loaded."""
        return getattr(importlib.import_module(f"..{self.module}", __package__), self.name)


class LateTable(MutableMapping[str, Row]):
    """A table of rows by name. Reading a row loads the package that has it; asking for names loads nothing."""

    def __init__(self, rows: Mapping[str, Row | Place]) -> None:
        self._rows = dict(rows)

    def __getitem__(self, name: str) -> Row:
        row = self._rows[name]
        if isinstance(row, Place):
            row = self._rows[name] = row.load()
        return cast(Row, row)

    def __setitem__(self, name: str, row: Row) -> None:
        self._rows[name] = row

    def __delitem__(self, name: str) -> None:
        del self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def find(self, name: str) -> Row | None:
        """Return the row of a name, which an installed package may add; None where there is none."""
        if name not in self:
            load_installed()
        return self.get(name)


@cache
def load_installed() -> tuple[str, ...]:
    """Call the entry points of the group ``tilewright.targets``, once, and return their names.

    Each is a function without parameters of an installed package, which registers kinds of targets and back ends. It is
    called when a target or a file names what is not known yet. One that fails is a warning, and the others go on.
    """
    found = []
    for point in entry_points(group=GROUP):
        try:
            point.load()()
            found.append(point.name)
        except Exception as error:  # a stranger's code may raise anything
            warnings.warn(f"the entry point {point.name} = {point.value} of {GROUP} failed: {error}", stacklevel=2)
    return tuple(found)
