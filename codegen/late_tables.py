"""Tables whose rows may stand in packages beside this one: kinds of targets, and back ends.

A row is there from the beginning, as the :class:`Place` that has it, or it is registered. Installed packages register theirs
by entry points, which are called when a name is asked for that nothing else has.

Processors are the kinds ``native``, ``llvm`` and ``c``, which :mod:`.machine.described_targets` knows itself.

:meth:`Module.get_source` finds a back end by its name, :meth:`Module.export` by the suffix of the file. docs/guides/toy-target.md
has a back end of 150 lines.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar, cast

from ..pages.messages import short_repr
from .lowered import LoweredFunc

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


@dataclass(frozen=True)
class TargetKind:
    """A kind of target: the first word of its text.

    ``compile(functions, target)`` returns the module of functions by name, each as it was scheduled. ``triple`` and
    ``cpu`` are LLVM's words for the machine (an empty triple: this machine), ``words`` other names of options, as
    ``arch`` for ``mcpu``. ``as_written``: programs that nobody scheduled stay as they are.
    """

    name: str
    compile: Callable[[Mapping[str, Any], Any], Any] = field(repr=False)
    triple: str = ""
    cpu: str = "generic"
    words: Mapping[str, str] = field(default_factory=dict)
    gpu: bool = False
    warps: bool = False
    """Whether neighbouring threads of a GPU pass registers to each other, as those of NVIDIA's warps do."""
    fused: bool = True
    """Whether a GPU rounds a product and a sum once, by an instruction."""
    doubles: bool = True
    """Whether code may compute in float64 and int64 where float32 is asked for."""
    as_written: bool = False
    simulated: bool = False
    """Whether programs run on a simulated device, which has no clock."""
    missing: Callable[[Any], list[str]] | None = None
    """Returns what this machine lacks to run code for a target; None: what is known of its processor."""
    refuses: Callable[[Any, Any, bool], str] | None = None
    """Returns why a scheduled program, of a target, has no code; nothing where it has. Its last argument: parts of the program may
    not be scheduled yet, which is no reason. None: that code is made of every program."""
    cpus: tuple[str, ...] = ()
    """The names that ``-mcpu`` may have; without any, all names are taken."""
    summary: str = ""
    """What the targets of the kind are, in some words, for lists."""


TARGET_KINDS: LateTable[TargetKind] = LateTable(
    {
        "cuda": Place("gpu", "CUDA"),
        "gpu-sim": Place("gpu", "GPU_SIM"),
        "opencl": Place("gpu.opencl", "OPENCL"),
        "rocm": Place("gpu.rocm", "ROCM"),
        "verilog": Place("circuits", "VERILOG"),
        "webgpu": Place("gpu.wgsl", "WEBGPU"),
    }
)
"""The kinds by name. Those of this library stand in packages of their own, which load with the first target of the kind."""


def register_target_kind(kind: TargetKind) -> TargetKind:
    """Add a kind of target, and return it. ValueError when there is one of this name."""
    if kind.name in TARGET_KINDS or kind.name in ("native", "llvm", "c"):
        raise ValueError(f"there is a kind of target named {kind.name} already")
    TARGET_KINDS[kind.name] = kind
    return kind


def is_simulated(kind: str) -> bool:
    """Returns whether programs for targets of a kind run on a simulated device, which has no clock."""
    return kind in TARGET_KINDS and TARGET_KINDS[kind].simulated


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


BACKENDS: LateTable[Backend] = LateTable(
    {
        "c": Place("codegen.c", "C"),
        "mlir": Place("mlir", "MLIR"),
        "opencl": Place("gpu.opencl", "OPENCL_TEXT"),
        "wgsl": Place("gpu.wgsl", "WGSL_TEXT"),
    }
)
"""The back ends by name, each loaded when it is first used. LLVM, which makes machine code as well, is not among them: :mod:`.runtime.export` knows its
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
