"""This module simulates a multiply-accumulate unit that a TOML file describes: its results and its cycles.

The unit has four kinds of instructions: ``load`` brings a tile into the scratchpad, ``zero`` clears a tile of sums,
``matmul`` adds the product of two tiles to it, and ``store`` writes it to main memory, through an activation if one is
named. :class:`Machine` executes them on NumPy arrays and keeps a trace; :func:`cycles` says how long the trace takes.

Run it: ``python examples/tensor_unit_simulator.py`` multiplies two tiles and prints the timeline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pytest brings tomli there
    import tomli as tomllib

FILE = Path(__file__).with_suffix("").with_name("tensor_unit.toml")


@dataclass(frozen=True)
class Unit:
    """The figures of a unit: sizes of tiles in elements, speeds in bytes and cycles."""

    name: str
    clock_hz: int
    rows: int
    columns: int
    steps: int
    fill_cycles: int
    dtype: str
    sums: str
    activations: tuple[str, ...]
    bytes_per_cycle: int
    latency: int
    scratchpad_bytes: int
    sums_bytes: int

    @staticmethod
    def read(path: Path = FILE) -> Unit:
        """Return the unit that a file describes. ValueError names a figure that is missing or not positive."""
        found = tomllib.loads(path.read_text())
        try:
            array, dma, pad = found["array"], found["dma"], found["scratchpad"]
            unit = Unit(
                found["name"], found["clock_hz"], array["rows"], array["columns"], array["steps"],
                array["fill_cycles"], array["dtype"], array["sums"], tuple(array["activations"]),
                dma["bytes_per_cycle"], dma["latency"], pad["bytes"], pad["sums_bytes"],
            )  # fmt: skip
        except KeyError as key:
            raise ValueError(f"{path.name}: {key} is missing") from None
        for key, value in vars(unit).items():
            if isinstance(value, int) and value < (0 if key in ("fill_cycles", "latency") else 1):
                raise ValueError(f"{path.name}: {key} is {value}")
        return unit


class TooSmall(ValueError):
    """Raised for a program whose tiles do not fit the unit's memories."""


@dataclass(frozen=True)
class Step:
    """One instruction: the tile that it writes, the tiles that it reads, and the bytes that it moves."""

    kind: str
    writes: int = 0
    reads: tuple[int, ...] = ()
    bytes: int = 0


@dataclass
class Machine:
    """A machine executes instructions. A tile arrives as the memory from its first element on; inside the unit its
    address is its name."""

    unit: Unit
    trace: list[Step] = field(default_factory=list)

    def load(self, tile: np.ndarray, count: int, width: int, source: np.ndarray, pitch: int) -> None:
        """Copy ``count`` rows of ``width`` elements, ``pitch`` apart in main memory."""
        for row in range(count):
            tile[row * width : (row + 1) * width] = source[row * pitch : row * pitch + width]
        self.trace.append(Step("load", _address(tile), (), count * width * tile.itemsize))

    def zero(self, sums: np.ndarray) -> None:
        sums[: self.unit.rows * self.unit.columns] = 0
        self.trace.append(Step("zero", _address(sums)))

    def matmul(self, sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        u = self.unit
        left = a[: u.rows * u.steps].reshape(u.rows, u.steps).astype(u.sums)
        right = b[: u.steps * u.columns].reshape(u.steps, u.columns).astype(u.sums)
        sums[: u.rows * u.columns] += (left @ right).reshape(-1)
        self.trace.append(Step("matmul", _address(sums), (_address(sums), _address(a), _address(b))))

    def store(self, target: np.ndarray, pitch: int, sums: np.ndarray, activation: str) -> None:
        u = self.unit
        for row in range(u.rows):
            values = sums[row * u.columns : (row + 1) * u.columns]
            target[row * pitch : row * pitch + u.columns] = np.maximum(values, 0) if activation == "relu" else values
        self.trace.append(Step("store", 0, (_address(sums),), u.rows * u.columns * sums.itemsize))

    def instructions(self) -> dict[str, object]:
        """Return the functions behind the names that schedules call."""
        stores = {f"unit_store_{a}": self._store(a) for a in self.unit.activations}
        return {"unit_load": self.load, "unit_zero": self.zero, "unit_matmul": self.matmul, **stores}

    def _store(self, activation: str) -> object:
        return lambda target, pitch, sums: self.store(target, pitch, sums, activation)


def _address(tile: np.ndarray) -> int:
    return int(tile.__array_interface__["data"][0])


def cycles(trace: list[Step], unit: Unit, timeline: list[tuple[str, int, int]] | None = None) -> int:
    """Return the cycles of a program; ``timeline`` gets the begin and the end of each instruction.

    :class:`TooSmall` when a program needs tiles that do not fit together.
    """
    _check_sums(trace, unit)
    clock = _Clock(unit, _last_uses(trace))
    found = [(step.kind, *clock.run(number, step)) for number, step in enumerate(trace)]
    if timeline is not None:
        timeline.extend(found)
    return max([end for _, _, end in found], default=0)


class _Clock:
    """The copy engine and the array work side by side, each on its instructions in order.

    The engine's requests overlap except for their bytes. A tile may be loaded as soon as the scratchpad has room: a
    tile leaves it after the last product that reads it. Products that add to one tile of sums follow each other without
    waiting for the sums; a store waits for them.
    """

    def __init__(self, unit: Unit, last_uses: set[tuple[int, int]]) -> None:
        self.unit, self.last_uses = unit, last_uses
        self.ready: dict[int, int] = {}  # when a tile is complete, by address
        self.engine = self.array = 0  # when they are free
        self.held = 0  # bytes in the scratchpad
        self.sizes: dict[int, int] = {}
        self.leaves: list[tuple[int, int]] = []  # when a tile leaves the scratchpad, and its bytes

    def run(self, number: int, step: Step) -> tuple[int, int]:
        """Return the begin and the end of an instruction."""
        if step.kind == "load":
            return self.load(step)
        if step.kind == "store":
            begin = max(self.engine, self.ready[step.reads[0]])
            self.engine = self.ready[step.reads[0]] = begin + -(-step.bytes // self.unit.bytes_per_cycle)
            return begin, self.engine + self.unit.latency
        if step.kind == "zero":
            begin = max(self.array, self.ready.get(step.writes, 0))
            self.array = self.ready[step.writes] = begin + 1
            return begin, self.array
        begin = max([self.array, *[self.ready[tile] for tile in step.reads[1:]]])
        self.array = begin + self.unit.steps
        self.ready[step.writes] = self.array + self.unit.fill_cycles
        self.leaves += [(self.array, self.sizes[tile]) for tile in step.reads[1:] if (tile, number) in self.last_uses]
        return begin, self.ready[step.writes]

    def load(self, step: Step) -> tuple[int, int]:
        begin, room = self.engine, self.unit.scratchpad_bytes
        while self.held + step.bytes > room:
            if not self.leaves:
                raise TooSmall(f"the scratchpad has {room} bytes, and {self.held + step.bytes} are in use at a time")
            self.leaves.sort()
            when, size = self.leaves.pop(0)
            begin, self.held = max(begin, when), self.held - size
        self.held += step.bytes
        self.sizes[step.writes] = step.bytes
        self.engine = begin + -(-step.bytes // self.unit.bytes_per_cycle)
        self.ready[step.writes] = self.engine + self.unit.latency
        return begin, self.ready[step.writes]


def _last_uses(trace: list[Step]) -> set[tuple[int, int]]:
    """Return the pairs of tile and instruction that is the last to read it before it is loaded again."""
    last: dict[int, int] = {}
    found = set()
    for number, step in enumerate(trace):
        if step.kind == "load" and step.writes in last:
            found.add((step.writes, last.pop(step.writes)))
        for tile in step.reads[1:] if step.kind == "matmul" else ():
            last[tile] = number
    return found | set(last.items())


def _check_sums(trace: list[Step], unit: Unit) -> None:
    """TooSmall when more tiles of sums are open at a time than the unit has room for."""
    size = unit.rows * unit.columns * np.dtype(unit.sums).itemsize
    live: set[int] = set()
    for step in trace:
        if step.kind == "zero":
            live.add(step.writes)
        elif step.kind == "store":
            live.discard(step.reads[0])
        if len(live) * size > unit.sums_bytes:
            raise TooSmall(f"{len(live)} tiles of sums have {len(live) * size} bytes, the unit {unit.sums_bytes}")


def main() -> list[tuple[str, int, int]]:
    """Multiply two tiles by hand; returns the timeline."""
    unit = Unit.read()
    machine = Machine(unit)
    rng = np.random.default_rng(0)
    a = rng.integers(-9, 9, (unit.rows, unit.steps)).astype(unit.dtype)
    b = rng.integers(-9, 9, (unit.steps, unit.columns)).astype(unit.dtype)
    left, right = np.empty(a.size, unit.dtype), np.empty(b.size, unit.dtype)
    sums, out = np.empty(unit.rows * unit.columns, unit.sums), np.empty(unit.rows * unit.columns, unit.sums)
    machine.load(left, unit.rows, unit.steps, a.reshape(-1), unit.steps)
    machine.load(right, unit.steps, unit.columns, b.reshape(-1), unit.columns)
    machine.zero(sums)
    machine.matmul(sums, left, right)
    machine.store(out, unit.columns, sums, "relu")
    assert np.array_equal(out.reshape(unit.rows, unit.columns), np.maximum(a.astype(unit.sums) @ b, 0))
    timeline: list[tuple[str, int, int]] = []
    total = cycles(machine.trace, unit, timeline)
    for kind, begin, end in timeline:
        print(f"{kind:8} {begin:5} to {end:5}")
    print(f"{total} cycles, {unit.rows * unit.columns * unit.steps} multiply-adds")
    return timeline


if __name__ == "__main__":
    main()
