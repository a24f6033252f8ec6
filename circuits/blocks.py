"""The parts of circuits: memories, blocks of operations, and the loops and branches around them.

A buffer is a memory of banks, each with a port to read and one to write. Blocks have no loops, and run in stages.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..codegen.backend.emitter import EmitError
from ..tir.arith import Analyzer
from ..tir.expr import Expr, FloorDiv, FloorMod, IntImm
from ..tir.stmt import Buffer
from .nets import Net, ends_of


class HardwareError(EmitError):
    """Raised for what a circuit cannot be: floats, sizes that are not known, pipelines that are asked too much."""


@dataclass(frozen=True, slots=True, eq=False)
class Bank:
    """A bank is one memory: ``words`` of ``width`` bits, with one port to read and one to write. The word that is read
    is there in the next cycle. ``outside``: the module has its ports, and the memory is the user's."""

    name: str
    words: int
    width: int
    low: int
    high: int
    outside: bool
    reads: bool = True
    writes: bool = True

    @property
    def address_width(self) -> int:
        """The number of wires of an address."""
        return max(1, (self.words - 1).bit_length())


@dataclass(slots=True)
class BankedMemory:
    """A memory holds a buffer in ``banks``. An element is in the bank whose numbers are its indices modulo ``factors``,
    at the place that the quotients have in row-major order."""

    buffer: Buffer
    shape: tuple[int, ...]
    factors: tuple[int, ...]
    banks: dict[tuple[int, ...], Bank] = field(default_factory=dict)

    @property
    def bank_shape(self) -> tuple[int, ...]:
        """The extents of a bank."""
        return tuple([-(-n // f) for n, f in zip(self.shape, self.factors, strict=True)])


def memory_of(
    buffer: Buffer, name: str, partition: Mapping[str, Mapping[int, int]], outside: bool, ports: tuple[bool, bool]
) -> BankedMemory:
    """Returns the memory of a buffer. ``partition``: factors by dimension, of buffers by name; ``ports``: whether it is
    read and written. HardwareError for sizes that are not constant."""
    for e in (*buffer.shape, *buffer.strides):
        if not isinstance(e, IntImm):
            raise HardwareError(f"buffer {buffer.name} has the size {e}; memories in hardware have constant sizes")
    shape = [e.value for e in buffer.shape if isinstance(e, IntImm)]
    wanted = partition.get(buffer.name, {})
    for dim, factor in wanted.items():
        if not 0 <= dim < len(shape) or factor < 0:
            raise HardwareError(
                f"pragma_array_partition: {buffer.name} has {len(shape)} dimensions, none of number {dim}"
                if factor >= 0 else f"pragma_array_partition: {buffer.name} in {factor} parts"
            )  # fmt: skip
    if buffer.strides and wanted:
        raise HardwareError(f"pragma_array_partition: {buffer.name} has strides of its own")
    if buffer.strides:  # one row of all elements
        strides = [e.value for e in buffer.strides if isinstance(e, IntImm)]
        shape = [1 + sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)]) if 0 not in shape else 0]
    factors = [min(wanted.get(d, 1) or n, max(n, 1)) if d in wanted else 1 for d, n in enumerate(shape)]
    memory = BankedMemory(buffer, tuple(shape), tuple(factors))
    low, high = _ends(buffer)
    words = max(1, math.prod(memory.bank_shape))
    for numbers in itertools.product(*[range(f) for f in factors]):
        parts = [str(n) for n, f in zip(numbers, factors, strict=True) if f > 1]
        bank = Bank("_".join([name, *parts]), words, buffer.dtype.bits, low, high, outside, *ports)
        memory.banks[numbers] = bank
    return memory


def _ends(buffer: Buffer) -> tuple[int, int]:
    dtype = buffer.dtype
    if dtype.lanes != 1 or not (dtype.is_int or dtype.is_bool):
        raise HardwareError(
            f"buffer {buffer.name} holds {dtype}; memories in hardware hold integers and truth values, fixed-point "
            "numbers as integers"
        )
    return ends_of(dtype)


def banked(
    memory: BankedMemory, buffer: Buffer, indices: tuple[Expr, ...], analyzer: Analyzer
) -> tuple[list[int | Expr], Expr]:
    """Returns the number of the bank in each dimension and the address in the bank. The number is a constant where one
    is known.

    ``buffer`` is the memory's, or another view of it."""
    if buffer.strides or buffer is not memory.buffer:
        if len(memory.banks) > 1:
            raise HardwareError(f"pragma_array_partition: {memory.buffer.name} is accessed as {buffer.name} as well")
        offset = buffer.elem_offset
        for index, step in zip(indices, buffer.element_strides(), strict=True):
            offset = offset + index * step
        return [0] * len(memory.factors), analyzer.simplify(offset)
    numbers: list[int | Expr] = []
    address: Expr = IntImm(0)
    for index, factor, extent in zip(indices, memory.factors, memory.bank_shape, strict=True):
        number = analyzer.simplify(FloorMod(index, IntImm(factor, index.dtype))) if factor > 1 else IntImm(0)
        numbers.append(number.value if isinstance(number, IntImm) else number)
        place = analyzer.simplify(FloorDiv(index, IntImm(factor, index.dtype))) if factor > 1 else index
        address = address * extent + place
    return numbers, analyzer.simplify(address + buffer.elem_offset)


@dataclass(slots=True, eq=False)
class Load:
    """A word that is read; ``after`` are the stores that come before and may concern the same word."""

    bank: Bank
    address: Net
    after: list[Store] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Store:
    """A word that is written where ``predicate`` holds. ``loads`` and ``stores`` come before and may concern the same
    word."""

    bank: Bank
    address: Net
    value: Net
    predicate: Net
    loads: list[Net] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Register:
    """A register keeps an integer between blocks."""

    name: str
    low: int
    high: int


@dataclass(slots=True, eq=False)
class Write:
    """A new value of a register."""

    register: Register
    value: Net


Item = Net | Store | Write


@dataclass(slots=True, eq=False)
class OperationBlock:
    """A block runs its ``items``, each after those before it that it needs."""

    items: list[Item] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Counter:
    """The counter of a loop, from ``low`` to ``last``, which are numbers or registers that hold them. ``empty`` holds
    whether a loop with registers has no iterations."""

    register: Register
    low: int | Register
    last: int | Register
    empty: Register | None = None


@dataclass(slots=True, eq=False)
class CircuitLoop:
    """A loop runs ``body`` for each value of its counter."""

    counter: Counter
    body: Sequence[Region]


@dataclass(slots=True, eq=False)
class Pipeline:
    """A pipeline starts ``block`` anew every ``interval`` cycles, or as often as possible where that is 0. It does so
    for all values of its counters, the last of which runs fastest."""

    counters: Sequence[Counter]
    block: OperationBlock
    interval: int
    name: str


@dataclass(slots=True, eq=False)
class Branch:
    """A branch runs one of two sequences, as a register says."""

    test: Register
    yes: Sequence[Region]
    no: Sequence[Region]


Region = OperationBlock | CircuitLoop | Pipeline | Branch
