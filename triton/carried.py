"""What loops and branches carry: single values, and the parts of tuples and of block pointers.

A name that holds a tuple or a block pointer is carried by its parts, each under a name of its own (``p.0``, ``p.1``), which no
name of a kernel is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .block_values import BlockValue
from .memory_rows import BlockPointer


def parts_of(value: Any) -> list[Any]:
    """Return the parts of a value that may change: a tuple's, a block pointer's offsets, else the value."""
    if isinstance(value, tuple):
        return [part for item in value for part in parts_of(item)]
    return list(value.offsets) if isinstance(value, BlockPointer) else [value]


def with_parts(value: Any, parts: Iterator[Any]) -> Any:
    """Return a value with other parts, in the order of :func:`parts_of`."""
    if isinstance(value, tuple):
        return tuple([with_parts(item, parts) for item in value])
    if isinstance(value, BlockPointer):
        return BlockPointer(value.window, tuple([next(parts) for _ in value.offsets]))
    return next(parts)


def is_alike(a: Any, b: Any) -> bool:
    """Return whether two values have the same parts: tuples of one form, pointers to blocks of one tensor."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all([is_alike(x, y) for x, y in zip(a, b, strict=True)])
    if isinstance(a, BlockPointer) and isinstance(b, BlockPointer):
        return a.window is b.window
    return not isinstance(a, (tuple, BlockPointer)) and not isinstance(b, (tuple, BlockPointer))


class CarriedNames(dict[str, BlockValue]):
    """The values that are carried, by name; parts have names of their own.

    ``whole``: tuples and block pointers by name. ``fixed``: their parts that are no numbers, and stay.
    """

    def __init__(self, number: Callable[[Any], Any]) -> None:
        super().__init__()
        self.number = number
        self.whole: dict[str, Any] = {}
        self.fixed: dict[str, Any] = {}

    def add(self, name: str, value: Any) -> None:
        """Carry a name; TypeError for a single value that is no number."""
        if not isinstance(value, (tuple, BlockPointer)):
            self[name] = self.number(value)
            return
        self.whole[name] = value
        for n, part in enumerate(parts_of(value)):
            if isinstance(part, (BlockValue, bool, int, float)):
                self[f"{name}.{n}"] = self.number(part)
            else:
                self.fixed[f"{name}.{n}"] = part

    def part_names(self) -> list[str]:
        """Return the names of the parts of tuples and block pointers, in order."""
        return [f"{name}.{n}" for name, value in self.whole.items() for n in range(len(parts_of(value)))]

    def spread(self, names: dict[str, Any]) -> None:
        """Name the parts of what is carried; TypeError where a value has other parts than before."""
        for name, value in self.whole.items():
            now = names[name]
            if not is_alike(value, now):
                raise TypeError(f"{name} is {value!r} before and {now!r} after")
            for n, part in enumerate(parts_of(now)):
                key = f"{name}.{n}"
                if key in self.fixed and part != self.fixed[key]:
                    raise TypeError(f"{name} holds {self.fixed[key]!r} before and {part!r} after")
                names[key] = part

    def gather(self, names: dict[str, Any]) -> None:
        """Put what is carried together again from its parts."""
        for name, value in self.whole.items():
            count = len(parts_of(value))
            keys = [f"{name}.{n}" for n in range(count)]
            names[name] = with_parts(value, iter([self.fixed[k] if k in self.fixed else names[k] for k in keys]))
