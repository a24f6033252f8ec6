"""This module chooses the stages that are computed where they are used instead of being stored."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen.lane_offsets import NEAR
from ...tir.annotations import NBITS, WINOGRAD
from ...tir.cost import Length, inlined_length
from ...tir.expr import Add, BufferLoad, Call, Expr, Mul, Sub, Var
from ...tir.stmt import Buffer, BufferStore
from ...tir.walk import pre_order
from ..program import BlockInfo, ProgramInfo, Use, copies, divisors_of, pads, splits_into_affine
from .recurrences import is_one_by_one, steps_in_a_row

_CHEAP = 8
"""The number of operations of an element up to which it may be computed more than once."""

_FEW = 16
"""The number of reads per element up to which a padded copy may also be inlined."""


_MUCH = 32
"""The same limit with the operations of the stages that were inlined into it."""

_REPEATED = 48
"""The number of operations that all reads of a stage in one element of its consumer may take together."""

_ROWS = 16
"""The number of rows of a product up to which its narrow operand is decoded where it is multiplied: the rows of a tile
share what is decoded."""

_READERS_OF_HALVES = 2
"""The number of stages up to which each may compute a result of float16 or bfloat16 again. A result is rounded to 16 bits
and converted back, which takes longer than a cheap operation and longer than to load it."""

_SHORT_ROW = 256
"""The bytes of a row of results below which it has too few vectors for functions such as exp to be computed side by side."""

_FULL = 16
"""The number of steps in a row up to which the vectors of a recurrence are partly empty."""

_AGAIN = 2
"""How often elements of a transpose are read at the least so that they are turned once, and stored."""

_GATHER = 4
"""The number of operations that a gather (a load at an index from memory) counts as."""

_LONG = 256
"""The number of nodes that an expression may have after inlining that more than doubles it. A chain of cheap stages is
stored after so many: a store takes little beside them, and the time to build is in proportion to the number of stages."""


def blocks_to_inline(program: ProgramInfo, weighed: Mapping[BlockInfo, bool] | None = None) -> list[str]:
    """Returns the names of the stages to inline, producers first.

    An element-wise stage goes into its consumers when that repeats no costly work: always when a single element-wise
    stage consumes it; into several, or into a reduction that reads each element once, when it is cheap; into a
    reduction that reads elements many times only when it merely moves data without a condition. The stages that are
    inlined already count: each level of stages that are read at several places doubles the work, and the length of the
    expression. With ``weighed``, the result of :func:`cheaper_inlined`, only stages of which each element is computed
    once, copies, and those that it says: what is stored stays in fast memory.
    """
    out: list[str] = []
    work: dict[Buffer, int] = {}  # operations of an element of what is inlined
    text: dict[Buffer, Length] = {}  # how long its expression is
    reads: dict[Buffer, _Reads] = {}  # how it reads what it is made of
    bits: dict[Buffer, int] = {}  # and what of each element it reads
    lengths: dict[BlockInfo, _ReaderLength] = {}  # and how long those of its readers are
    for block in program.blocks:
        mine = block.operations + sum(work.get(u.buffer, 0 if u.affine else _GATHER) for u in block.loads)
        weigh = None if weighed is None else weighed.get(block)
        again = weigh is None and not copies(block) and _times_read(program, block) > 1
        if weigh is False or (weighed is not None and again):
            continue
        shape = _Reads.of(block, block.loads, reads)
        if weigh is None and (
            _turns_several_places(program, block, shape, reads) or _gathers_more(program, block, shape)
        ):
            continue
        read = sum([bits.get(u.buffer, u.buffer.dtype.bits) for u in block.loads if u.axes() == set(block.spatial)])
        decodes = (
            0 < 2 * read <= block.stores[0].buffer.dtype.bits and len(block.spatial) > 1 if block.stores else False
        )
        if (weigh or _inline(program, block, decodes, mine)) and isinstance(block.block.body, BufferStore):
            added = {use.buffer: inlined_length(block.block.body.value, set(block.axes), text) for use in block.stores}
            if weigh or _stays_small(program, block, mine, lengths, text, added):
                out.append(block.name)
                reads.update({use.buffer: shape for use in block.stores})
                work.update({use.buffer: mine for use in block.stores})
                bits.update({use.buffer: read for use in block.stores})
                text.update(added)
    return out


_MOST_WEIGHED = 64
"""The number of stages that are weighed one by one. Programs of more stages are tables of windows, seldom pipelines."""

_LONGEST_WEIGHED = 4096
"""The number of nodes that an expression may have after such stages are inlined."""

_LOAD, _APART, _STORE = 0.5, 0.75, 1.0
"""The cycles of a load, of one that crosses lines of memory, and of a store; an operation takes half a cycle."""

Place = tuple[Any, ...]
"""Where a buffer is read: for each dimension its axes of the reader with their factors, and a constant."""


def cheaper_inlined(program: ProgramInfo) -> dict[BlockInfo, bool]:
    """Returns whether inlining takes less time, for the stages that element-wise stages read at constant distances.

    An inlined stage is computed at each place at which its readers read it, each place once, whichever of them reads it.
    A stage that is stored takes a store, and a load for each place. All are inlined at first. Then those are stored,
    producers first, with which the stages together take fewer cycles, and back, until nothing changes. Nothing is weighed
    where each stage is read at one place.
    """
    stages = [block for block in program.blocks if _has_windows(program, block)]
    several = any(_reads_of(consumer, block) > 1 for block in stages for consumer in program.consumers(block))
    if not several or len(stages) > _MOST_WEIGHED:
        return {}
    weighing = _Weighing(program)
    for block in stages:
        weighing.inlined.add(block)
        if weighing.longest > _LONGEST_WEIGHED:
            weighing.inlined.remove(block)
    best, changed = weighing.cycles, True
    while changed:
        changed = False
        for block in stages:
            weighing.inlined ^= {block}
            if (cycles := weighing.cycles) < best and weighing.longest <= _LONGEST_WEIGHED:
                best, changed = cycles, True
            else:
                weighing.inlined ^= {block}
    return {block: block in weighing.inlined for block in stages}


def _is_between(program: ProgramInfo, block: BlockInfo, consumers: Sequence[BlockInfo]) -> bool:
    """Returns whether a block is an element-wise stage whose result is for other stages alone, written in its order."""
    return not block.is_reduction and bool(consumers) and not program.is_output(block) and block.writes_in_order


def _has_windows(program: ProgramInfo, block: BlockInfo) -> bool:
    """Returns whether a stage is element-wise, and all that reads it are element-wise stages at constant distances."""
    consumers = program.consumers(block)
    if not _is_between(program, block, consumers) or copies(block):
        return False
    if program.other_writers(block) or not isinstance(block.block.body, BufferStore):
        return False
    if any(key in block.block.annotations for key in (WINOGRAD, NBITS)):
        return False
    written = {use.buffer for use in block.stores}
    uses = [use for c in consumers for use in c.loads if use.buffer in written]
    near = all(dim is not None and len(dim) <= 1 and set(dim.values()) <= {1} for use in uses for dim in use.dims)
    return near and not any(c.is_reduction for c in consumers)


class _Weighing:
    """How many cycles the element-wise stages of ``program`` take while those of ``inlined`` are not stored."""

    def __init__(self, program: ProgramInfo) -> None:
        self.inlined: set[BlockInfo] = set()
        self._counted: dict[int, tuple[set[BlockInfo], set[BlockInfo], float]] = {}
        self.blocks = [block for block in program.blocks if not block.is_reduction]
        self.writers = {use.buffer: block for block in self.blocks for use in block.stores}
        self.work = {block: _instructions(block) for block in self.blocks}
        nodes = {block: [n for n in pre_order(block.block.body) if isinstance(n, Expr)] for block in self.blocks}
        self.own = {block: len(found) for block, found in nodes.items()}
        self.reads = {
            block: Counter(
                [self.writers[n.buffer] for n in found if isinstance(n, BufferLoad) and n.buffer in self.writers]
            )
            for block, found in nodes.items()
        }
        summed = Counter([
            self.writers[e.buffer]
            for found in nodes.values() for n in found if isinstance(n, (Add, Sub))
            for e in (n.a, n.b) if isinstance(e, BufferLoad) and e.buffer in self.writers
        ])  # fmt: skip
        loads = sum(self.reads.values(), Counter[BlockInfo]())
        self.summands = {
            block for block in self.blocks
            if isinstance(block.block.body, BufferStore) and isinstance(block.block.body.value, Mul)
            and summed[block] == loads[block]
        }  # fmt: skip
        """The products that sums alone read: inlined, they are part of these."""

    @property
    def cycles(self) -> float:
        """The cycles of all stages that are stored, as of a vector at each of their elements."""
        return sum(
            block.spatial_size * self._cycles_of(n) for n, block in enumerate(self.blocks) if block not in self.inlined
        )

    def _cycles_of(self, number: int) -> float:
        """Returns the cycles of a stored stage, and of what is inlined into it. They are counted again only where
        something else is inlined than the last time."""
        seen, inlined, total = self._counted.get(number, (set(), set(), 0.0))
        if not seen or inlined != self.inlined & seen:
            seen, total = self._count(number)
            self._counted[number] = seen, self.inlined & seen, total
        return total

    def _count(self, number: int) -> tuple[set[BlockInfo], float]:
        """Returns the stages that a stored one reaches, the first stored ones included, and its cycles."""
        root = self.blocks[number]
        found: dict[BlockInfo, set[Place]] = {root: {tuple([(((v, 1),), 0) for v in root.spatial])}}
        loads: set[tuple[Buffer, Place]] = set()
        seen, total = {root}, _STORE
        for block in reversed(self.blocks[: number + 1]):
            places = found.get(block, set())
            total += 0.5 * len(places) * (self.work[block] - (block is not root and block in self.summands))
            for use in block.loads if places else ():
                producer = self.writers.get(use.buffer)
                seen.update([producer] if producer else ())
                there = {_place(use, block, place) for place in places}
                if producer is not None and producer in self.inlined:
                    found.setdefault(producer, set()).update(there)
                else:
                    loads.update([(use.buffer, place) for place in there])
        return seen, total + sum([_APART if place and place[-1][1] else _LOAD for _, place in loads])

    @property
    def longest(self) -> int:
        """The number of nodes of the longest expression after inlining."""
        lengths: dict[BlockInfo, int] = {}
        for block in self.blocks:
            inlined = [(p, count) for p, count in self.reads[block].items() if p in self.inlined and p in lengths]
            lengths[block] = self.own[block] + sum([count * lengths[p] for p, count in inlined])
        return max(lengths.values(), default=0)


def _place(use: Use, block: BlockInfo, place: Place) -> Place:
    """Returns where ``use`` reads when ``block`` computes its element at ``place``."""
    at: dict[Var, Any] = dict(zip(block.spatial, place, strict=True))
    found: list[Any] = []
    for dim, offset in zip(use.dims, use.offsets or (0,) * len(use.dims), strict=True):
        if dim is None:
            return (((id(use), place), 1),)  # a place of its own
        terms: Counter[Var] = Counter()
        for axis, factor in dim.items():
            inner, moved = at.get(axis, (((axis, 1),), 0))
            offset += factor * moved
            terms.update({v: factor * k for v, k in inner})
        found.append((tuple(terms.items()), offset))
    return tuple(found)


def _instructions(block: BlockInfo) -> int:
    """Returns the operations of an element, those of a sum and a product in it as one."""
    joined = [
        n
        for n in pre_order(block.block.body)
        if isinstance(n, (Add, Sub)) and (isinstance(n.a, Mul) or isinstance(n.b, Mul))
    ]
    return max(0, block.operations - len(joined))


def _stays_small(
    program: ProgramInfo,
    block: BlockInfo,
    work: int,
    lengths: dict[BlockInfo, _ReaderLength],
    text: dict[Buffer, Length],
    added: Mapping[Buffer, Length],
) -> bool:
    """Returns whether the block can be inlined without much more work or long expressions. ``work`` is its number of
    operations per element; ``added`` is the length of its expressions, beside those in ``text``."""
    grown = {}
    for consumer in program.consumers(block):
        reads = _reads_of(consumer, block)
        if reads > 1 and (work > _MUCH or reads * work > _REPEATED):
            return False
        if consumer not in lengths:
            lengths[consumer] = _ReaderLength(consumer)
        length = lengths[consumer]
        new = length.total + length.growth(text, added)
        if new > max(_LONG, 2 * length.total):
            return False
        grown[length] = new
    for length, new in grown.items():
        length.total = new
    return True


class _ReaderLength:
    """The length of a block's expressions is ``total``, with what was inlined so far. What a further stage adds is known
    from the loads that read it alone."""

    def __init__(self, block: BlockInfo) -> None:
        self.axes = set(block.axes)
        self.loads: dict[Buffer, list[BufferLoad]] = {}
        self.total = 0
        for store in pre_order(block.block.body):
            if isinstance(store, BufferStore):
                for node in pre_order(store.value, lambda n: not isinstance(n, BufferLoad)):
                    if isinstance(node, BufferLoad):
                        self._add(node)
                    else:
                        self.total += isinstance(node, Expr)

    def _add(self, load: BufferLoad) -> None:
        """Add a load that stands in the index of no other one. It also counts where loads in its indices read."""
        self.total += sum(inlined_length(load, self.axes, {}))
        for buffer in {n.buffer for n in pre_order(load) if isinstance(n, BufferLoad)}:
            self.loads.setdefault(buffer, []).append(load)

    def growth(self, text: dict[Buffer, Length], added: Mapping[Buffer, Length]) -> int:
        """Returns how much longer the expressions become when the buffers of ``added`` are inlined after those of ``text``."""
        after = ChainMap(dict(added), text)
        loads = {load: None for buffer in added for load in self.loads.get(buffer, ())}
        return sum(
            sum(inlined_length(load, self.axes, after)) - sum(inlined_length(load, self.axes, text)) for load in loads
        )


def paddings_to_inline(program: ProgramInfo) -> list[str]:
    """Returns the names of padded copies that a reduction reads few times per element. A padded copy is a stage that
    chooses between a load and a constant; pooling and depthwise convolutions read such copies. To mask the loads of the
    reduction may take less time than to store the copy, which the tuner measures."""
    out = []
    for block in program.blocks:
        consumers = program.consumers(block)
        if not _is_between(program, block, consumers) or len(consumers) > 1:
            continue
        consumer = consumers[0]
        reads = consumer.spatial_size * consumer.reduce_size * _reads_of(consumer, block)
        if consumer.is_reduction and pads(block) and reads <= _FEW * block.spatial_size:
            out.append(block.name)
    return out


def _inline(program: ProgramInfo, block: BlockInfo, decodes: bool, work: int) -> bool:
    """Returns whether to inline a stage. ``decodes``: it widens what it reads element by element, as weights of 8 bits
    are; to store it takes several times the traffic of what it reads. ``work``: the operations of an element, with those
    of the stages that were inlined into it."""
    consumers = program.consumers(block)
    if not _is_between(program, block, consumers):
        return False
    parts = [block.block.annotations[key] for key in (WINOGRAD, NBITS) if key in block.block.annotations]
    if parts:  # one rule computes the stages together, and reads the tiles of the result
        return bool(parts[0] == "taken")
    if program.other_writers(block):
        return False
    if copies(block) and all(use.affine for use in block.loads):
        if work <= _CHEAP or (len(consumers) == 1 and not _repeats(consumers[0], block)):
            return True
    elif copies(block) and any(consumer.is_reduction for consumer in consumers):
        return _comes_again(block, consumers)
    if _stands_between(program, block, consumers):
        return True
    for consumer in consumers:
        repeated = _repeats(consumer, block)
        if work > _MUCH and _is_turned_in_short_rows(consumer, block):
            return False
        if consumer.is_reduction and repeated and not (decodes and not _repeats(consumer, block, _ROWS)):
            return False
        if work > _CHEAP and (repeated or is_one_by_one(consumer)):
            return False
        if _waits_in_a_recurrence(block, consumer, work):
            return False
    if len(consumers) > _READERS_OF_HALVES and block.operations and _is_half(block):
        return False
    return len(consumers) == 1 or work <= _CHEAP


def _waits_in_a_recurrence(block: BlockInfo, consumer: BlockInfo, work: int) -> bool:
    """Returns whether a stage takes longer in the vectors of running sums along rows.

    These wait for each other. It is so for long functions, for others in vectors that are partly empty, and for what gathers
    along the row.
    """
    if not (steps := steps_in_a_row(consumer)):
        return False
    along = block.spatial[-1] if block.spatial else None
    far = along is not None and any(use.step(along) not in (0, 1, -1) for use in block.loads)
    return far or work > (_MUCH if steps >= _FULL else _CHEAP)


def _is_turned_in_short_rows(consumer: BlockInfo, block: BlockInfo) -> bool:
    """Returns whether an element-wise stage reads a block across its rows, in rows of few vectors of its own.

    Functions such as exp are computed there in vectors that are not full, and that wait for each other's results.
    """
    uses = [use for use in consumer.loads if any(use.buffer is store.buffer for store in block.stores)]
    long = [consumer.extents[v] for v in consumer.spatial if consumer.extents[v] > 1]
    short = bool(long) and long[-1] * block.itemsize < _SHORT_ROW
    return short and not consumer.is_reduction and _is_turned(consumer, uses)


def _comes_again(block: BlockInfo, consumers: Sequence[BlockInfo]) -> bool:
    """Returns whether a reduction that a copy is inlined into has equal steps, which are left out then.

    It reduces what the copy divides, and reads nothing else along that.
    """
    if len(consumers) != 1 or not splits_into_affine(block):
        return False
    reader, divided = consumers[0], [n for n, numbers in enumerate(divisors_of(block)) if numbers]
    uses = [use for use in reader.loads if use.buffer is block.stores[0].buffer]
    others = {v for use in reader.loads if use not in uses for v in (*use.axes(), *(v for i in use.unknown for v in i))}
    return all(
        use.plain
        and not any(use.offsets[n] for n in divided)
        and all(v in reader.reduce and v not in others for n in divided for v in use.dims[n] or ())
        for use in uses
    )


def _is_half(block: BlockInfo) -> bool:
    """Returns whether a stage stores float16 or bfloat16."""
    return any(use.buffer.dtype.is_float and use.buffer.dtype.bits == 16 for use in block.stores)


@dataclass(frozen=True)
class _Reads:
    """How a stage reads: whether it is a transpose, and at how many places.

    ``places`` counts those of arrays of several axes, ``gathered`` those of all arrays with an axis. What is inlined into it
    counts. A place that is read under a condition, as that of a padded array, counts as two, and so does one at an index that
    is not affine, such as a clamped one.
    """

    turned: bool
    places: int
    gathered: int

    @staticmethod
    def of(block: BlockInfo, loads: Sequence[Use], inlined: Mapping[Buffer, _Reads]) -> _Reads:
        by_buffer: dict[Buffer, list[Use]] = {}
        for use in loads:
            by_buffer.setdefault(use.buffer, []).append(use)
        one = _Reads(False, 1, 1)
        inner = {buffer: inlined.get(buffer, one) for buffer in by_buffer}
        conditional = any(isinstance(n, Call) and n.op == "tir.if_then_else" for n in pre_order(block.block.body))
        clamped = not (all(use.affine for use in loads) or splits_into_affine(block))

        def places(of: str, fewest: int, axes_of: Callable[[Use], Collection[Var]], apart: bool) -> int:
            """Returns the places of the arrays that are read along ``fewest`` axes or more, 2 at the least ``apart``."""
            read = {
                b: uses for b, uses in by_buffer.items()
                if max(sum(block.extents.get(v, 1) > 1 for v in axes_of(use)) for use in uses) >= fewest
            }  # fmt: skip
            return max(
                sum(_places(uses) * getattr(inner[b], of) for b, uses in read.items()), 2 if read and apart else 1
            )

        turned = _is_turned(block, loads) or any(r.turned for r in inner.values())
        several = places("places", 2, _variables, conditional or clamped)
        return _Reads(turned, several, places("gathered", 1, Use.axes, conditional))


def _variables(use: Use) -> set[Var]:
    """Returns the axes by which a place is found, those of indices that are not affine as well."""
    return set(use.axes()).union(*use.unknown)


def _turns_several_places(
    program: ProgramInfo, block: BlockInfo, reads: _Reads, inlined: Mapping[Buffer, _Reads]
) -> bool:
    """Returns whether an element-wise stage with this one inlined is a transpose of several places or arrays.

    It may read several places of this one, or another transpose, or turn what this one reads at several places. Or it repeats
    this one, as copies of a transpose along a new axis do.

    A tile of one place is transposed in fast memory. To store the stage takes less than to stride through the others, or to
    turn the same elements again.
    """
    for consumer in program.consumers(block):
        uses = [use for use in consumer.loads if any(use.buffer is store.buffer for store in block.stores)]
        if block.is_reduction or consumer.is_reduction or not uses:
            continue
        others = [use for use in consumer.loads if use not in uses]
        turned = _Reads.of(consumer, others, inlined).turned
        across = _is_turned(consumer, uses)
        again = not across and consumer.spatial_size >= _AGAIN * block.spatial_size
        if reads.turned and (_places(uses) > 1 or turned or again) or (reads.places > 1 and across):
            return True
    return False


def _gathers_more(program: ProgramInfo, block: BlockInfo, reads: _Reads) -> bool:
    """Returns whether one gather of what a stage stores takes the place of several.

    It is stored where it reads several arrays or places, and another stage reads it at indices from memory, at least half
    as often as it has elements. A stage that gathers a small part of it computes that part alone.
    """
    stored = {use.buffer for use in block.stores}
    return reads.gathered > 1 and any(
        2 * consumer.spatial_size * consumer.reduce_size >= block.spatial_size
        and any(use.buffer in stored and not use.affine for use in consumer.loads)
        for consumer in program.consumers(block)
    )


def _is_turned(block: BlockInfo, loads: Sequence[Use]) -> bool:
    """Returns whether the innermost axis of a block strides through what it loads, where another axis is contiguous."""
    long = [axis for axis in block.spatial if block.extents[axis] > 1]
    return any(
        use.affine and (use.stride(long[-1]) or 0) > NEAR and any(use.stride(axis) == 1 for axis in long[:-1])
        for use in loads
        if long
    )


def _places(loads: Sequence[Use]) -> int:
    """Returns at how many places loads of one buffer read."""
    found = {
        (use.offsets, tuple([None if dim is None else frozenset(dim.items()) for dim in use.dims])) for use in loads
    }
    return len(found)


def _stands_between(program: ProgramInfo, block: BlockInfo, consumers: Sequence[BlockInfo]) -> bool:
    """Returns whether the block computes one element, between a reduction and the element-wise stage that reads both.

    The stage could not be computed with the reduction, since the element does not exist yet. Its value does not change
    in the stage's loops, so the code generator computes it before them.
    """
    if block.axes or block.operations > _MUCH or any(c.is_reduction for c in consumers):
        return False
    read = [p for c in consumers for p in program.producers(c)]
    return any(p.is_reduction and p.spatial and program.comes_before(p, block) for p in read)


def _times_read(program: ProgramInfo, block: BlockInfo) -> float:
    reads = sum(c.spatial_size * c.reduce_size * _reads_of(c, block) for c in program.consumers(block))
    return reads / block.spatial_size


def _repeats(consumer: BlockInfo, block: BlockInfo, times: int = 1) -> bool:
    """Returns whether a stage reads each element of a block more than ``times``."""
    return consumer.spatial_size * consumer.reduce_size * _reads_of(consumer, block) > times * block.spatial_size


def _reads_of(consumer: BlockInfo, block: BlockInfo) -> int:
    written = {use.buffer for use in block.stores}
    return max(1, sum(1 for use in consumer.loads if use.buffer in written))
