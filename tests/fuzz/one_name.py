"""A mode in which every variable has the same name: nothing may depend on what a variable is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.tir.expr import Var
from tilewright.tir.stmt import Buffer


@contextmanager
def one_name(name: str = "v", buffers: bool = False) -> Iterator[None]:
    """Inside, every variable that is made is called ``name``, in programs and in what the primitives add to them;
    with ``buffers`` every buffer as well.

    The change holds for the whole process, so that nothing else should run in it.

    >>> with one_name():
    ...     [Var(text).name for text in ("i", "j")]
    ['v', 'v']
    """
    kinds: list[Any] = [Var, Buffer] if buffers else [Var]
    usual = {kind: kind.__init__ for kind in kinds}

    def renaming(make: Any) -> Any:
        def renamed(self: Any, *args: Any, **named: Any) -> None:
            make(self, name, *args[1:], **{key: value for key, value in named.items() if key != "name"})

        return renamed

    for kind, make in usual.items():
        kind.__init__ = renaming(make)
    try:
        yield
    finally:
        for kind, make in usual.items():
            kind.__init__ = make
