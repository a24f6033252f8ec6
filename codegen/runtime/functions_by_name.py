"""What modules have in common: functions by name, of which one is called when none is named."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

F = TypeVar("F")


class FunctionsByName(ABC, Generic[F]):
    """Functions by name. A call calls the only one, or the one named ``main``."""

    @property
    @abstractmethod
    def named(self) -> Mapping[str, Any]:
        """Return what functions are made of, by their names."""

    @abstractmethod
    def made(self, name: str) -> F:
        """Return the function of a name that is there."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.named)

    def __len__(self) -> int:
        return len(self.named)

    def __contains__(self, name: object) -> bool:
        return name in self.named

    def __getitem__(self, name: str) -> F:
        """Return a function. KeyError lists the available names."""
        if name not in self.named:
            raise KeyError(f"no function {name!r} in this module; there are {sorted(self.named)}")
        return self.made(name)

    @property
    def entries(self) -> list[str]:
        """Return the names that a call may mean."""
        return list(self.named)

    @property
    def entry_name(self) -> str:
        """Return the name of the only function, or ``main``. ValueError when there are several and none of that name."""
        names = self.entries
        if len(names) != 1 and "main" not in names:
            raise ValueError(f"this module has several functions, {sorted(names)}: pick one, module[name]")
        return names[0] if len(names) == 1 else "main"

    @property
    def entry(self) -> F:
        """Return the function :attr:`entry_name`."""
        return self[self.entry_name]

    def __call__(self, *args: Any, **named: Any) -> Any:
        function: Any = self.entry
        return function(*args, **named)
