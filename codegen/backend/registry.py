"""The table of back ends: what turns lowered functions into text, by the word that asks for it.

:meth:`Module.get_source` finds a back end by its name, :meth:`Module.export` by the suffix of the file. docs/guides/toy-target.md
has a back end of 150 lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...pages.short_repr import short_repr
from ..late_table import LateTable, Place, load_installed
from ..lowered import LoweredFunc


@dataclass(frozen=True, slots=True)
class Backend:
    """A back end writes functions as text.

    ``emit`` returns the text of several functions. ``header``, if there is one, returns what is written beside an
    exported file, with the suffix ``.h``, from the functions and its own name.
    """

    name: str
    suffix: str
    emit: Callable[[Sequence[LoweredFunc]], str]
    header: Callable[[Sequence[LoweredFunc], str], str] | None = None

    __repr__ = short_repr()


BACKENDS: LateTable[Backend] = LateTable({"c": Place("codegen.c", "C"), "mlir": Place("mlir", "MLIR")})
"""The back ends by name, each loaded when it is first used. LLVM, which makes machine code as well, is not among them: :mod:`..runtime.export` knows its
files."""


def register_backend(backend: Backend) -> Backend:
    """Add a back end, and return it. ValueError when there is one of this name or suffix."""
    for known in BACKENDS.values():
        if backend.name == known.name or backend.suffix == known.suffix:
            raise ValueError(f"there is a back end {known.name} with the suffix {known.suffix} already")
    BACKENDS[backend.name] = backend
    return backend


def backend_of_suffix(suffix: str) -> Backend | None:
    """Return the back end that writes files with this suffix, which an installed package may add."""
    found = [backend for backend in BACKENDS.values() if backend.suffix == suffix]
    if not found:
        load_installed()
        found = [backend for backend in BACKENDS.values() if backend.suffix == suffix]
    return found[0] if found else None
