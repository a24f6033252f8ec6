"""This module describes a function for schedule rules: its blocks, their axes, their accesses, producers and
consumers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from heapq import heappop, heappush
from operator import or_
from types import MappingProxyType
from typing import Any

from ..codegen.packing import layout_free_params
from ..tir.analysis.access import Access, accesses
from ..tir.arith import Analyzer
from ..tir.arith.normal_form.forms import Linear, collect, expression_key
from ..tir.cost import instructions_of
from ..tir.expr import (
    BufferLoad,
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Range,
    Var,
    is_const_int,
    reads_memory,
    value_key,
)
from ..tir.stmt import Block, BlockRealize, Buffer, BufferStore, For, PrimFunc, SeqStmt, Stmt, children_of
from ..tir.walk import blocks_of, loads_and_stores, pre_order, uses_var, vars_in


def affine(expr: Expr) -> Linear | None:
    """Returns an affine index as a sum; None when it is not affine.

    >>> i = Var("i")
    >>> form = affine(i * 2 + 1)
    >>> form.const, list(form.terms.values())
    (1, [2])
    """
    return collect(expr, _axis)


def _axis(e: Expr) -> Linear | None:
    if isinstance(e, Var):
        return Linear(0, {e: 1})
    return collect(e.value, _axis) if isinstance(e, Cast) else None


@dataclass(frozen=True)
class Use:
    """A load or a store with the coefficients of its indices. For each dimension of its buffer they are those of the
    block's axes (None: not affine) and the constant in ``offsets``. ``unknown`` are the variables in each index that is not affine;
    ``looked_up`` says which indices are read from memory. Those ``x // s + c`` and ``x % s`` of a dimension of ``s`` elements count as
    ``c`` and ``x``, as elements are in line along x; ``joined`` has the numbers of the first of two such dimensions.
    """

    buffer: Buffer
    dims: tuple[Mapping[Var, int] | None, ...]
    offsets: tuple[int, ...] = ()
    unknown: tuple[frozenset[Var], ...] = ()
    looked_up: tuple[bool, ...] = ()
    joined: frozenset[int] = frozenset()

    @property
    def affine(self) -> bool:
        """Returns whether every index is affine."""
        return all(dim is not None for dim in self.dims)

    def axes(self) -> frozenset[Var]:
        """Returns the axes in the indices; those of a non-affine index are not known."""
        return self._axes

    @cached_property
    def _axes(self) -> frozenset[Var]:
        return frozenset([var for dim in self.dims if dim for var, factor in dim.items() if factor])

    @property
    def plain(self) -> bool:
        """Returns whether each index is one axis plus a constant, and each axis one index."""
        single = [
            next(iter(dim)) for dim in self.dims if dim is not None and len(dim) == 1 and set(dim.values()) == {1}
        ]
        return len(single) == len(self.dims) == len(set(single)) and not self.joined

    @cached_property
    def lines(self) -> tuple[tuple[Mapping[Var, int] | None, int | None], ...]:
        """The terms and the size of each dimension, where joined ones are one."""
        out: list[tuple[Mapping[Var, int] | None, int | None]] = []
        for n, (dim, extent) in enumerate(zip(self.dims, self.buffer.shape, strict=True)):
            size = getattr(extent, "value", None)
            if n - 1 in self.joined:
                outer, rows = out.pop()
                if dim is not None and outer is not None and size is not None:
                    dim = {**{v: k * size for v, k in outer.items()}, **dim}
                else:
                    dim = None
                size = None if size is None or rows is None else size * rows
            out.append((dim, size))
        return tuple(out)

    def is_at(self, axes: Sequence[Var], extents: Mapping[Var, int]) -> bool:
        """Returns whether the indices are exactly ``axes``, in order; a 0 stands for an axis of one value as well."""
        if len(self.lines) != len(axes) or any(self.offsets):
            return False
        return all(
            dim is not None and (dict(dim) == {axis: 1} or (not dim and extents[axis] == 1))
            for (dim, _), axis in zip(self.lines, axes, strict=True)
        )

    def fills(self, axes: Sequence[Var], extents: Mapping[Var, int]) -> bool:
        """Returns whether the indices go through the whole buffer in the order of ``axes``. Each index is one of them, or
        a sum over neighbouring ones that are its digits."""
        left = [axis for axis in reversed(axes) if extents[axis] > 1]
        for dim, size in reversed(self.lines):
            step, terms = 1, {axis: k for axis, k in (dim or {}).items() if k and extents.get(axis, 0) != 1}
            while left and terms.get(left[0]) == step:
                step *= extents[left[0]]
                del terms[left.pop(0)]
            if dim is None or terms or size != step:
                return False
        return not left and not any(self.offsets)

    def stride(self, axis: Var) -> int | None:
        """Returns how many elements one step of ``axis`` moves; None when that is not known."""
        total, stride = 0, 1
        for dim, extent in zip(reversed(self.dims), reversed(self.buffer.shape), strict=True):
            if dim is None or not isinstance(extent, IntImm):
                return None
            total += dim.get(axis, 0) * stride
            stride *= extent.value
        return total

    def step(self, axis: Var) -> int | None:
        """Returns how many elements one step of ``axis`` moves, whatever indices without it are; None: not known."""
        if any(axis in variables for variables in self.unknown):
            return None
        shape = [extent.value if isinstance(extent, IntImm) else None for extent in self.buffer.shape]
        total = 0
        for n, dim in enumerate(self.dims):
            if dim and dim.get(axis):
                inside = shape[n + 1 :]
                if None in inside:
                    return None
                total += dim[axis] * math.prod(extent for extent in inside if extent is not None)
        return total

    def dim_of(self, axis: Var) -> int | None:
        """Returns the dimension whose index is exactly ``axis`` and where alone it appears, or None."""
        where = [n for n, dim in enumerate(self.dims) if dim is not None and dim.get(axis)]
        if len(where) == 1 and dict(self.dims[where[0]] or {}) == {axis: 1}:
            return where[0]
        return None


def _largest(extent: Expr, loops: Sequence[For]) -> int:
    """Returns the largest value of ``extent`` inside ``loops``; 0 when it is not known."""
    if isinstance(extent, IntImm):
        return extent.value
    analyzer = Analyzer()
    for loop in loops:
        analyzer.bind(loop.loop_var, Range(loop.min, loop.extent))
    return analyzer.const_int_bound(extent)[1] or 0


def _begins_later(value: Expr, loop: For, outer: Sequence[For]) -> bool:
    """Returns whether ``value`` is the variable of ``loop`` plus a sum over those of outer loops."""
    form = affine(value)
    allowed = {other.loop_var for other in outer} | {loop.loop_var}
    return form is not None and form.terms.get(loop.loop_var) == 1 and form.terms.keys() <= allowed


class BlockInfo:
    """A leaf block of the program with its ``loops``, outermost first. The first ``shared`` of them hold other
    statements as well. Where the extent of an axis depends on a loop, ``extents`` has the largest one.
    ``packed_ahead``: what may be packed before the function is called. ``distances``: for each buffer, the bytes that were touched
    since a block last had it."""

    packed_ahead: frozenset[Buffer] = frozenset()
    distances: Mapping[Buffer, int] = MappingProxyType({})

    def __init__(self, realize: BlockRealize, loops: Sequence[For] = (), shared: int = 0) -> None:
        self.realize = realize
        self.loops, self.shared = tuple(loops), shared
        self.block: Block = realize.block
        self.name = self.block.name_hint
        moving = () if self._single else self.block.iter_vars
        self.axes = tuple(iv.var for iv in moving)
        self.extents = {iv.var: _largest(iv.dom.extent, self.loops) for iv in moving}
        self.spatial = tuple(iv.var for iv in moving if iv.kind == "spatial")
        self.reduce = tuple(iv.var for iv in moving if iv.kind == "reduce")

    def __repr__(self) -> str:
        return f"BlockInfo({self.name})"

    def likeness(self, numbers: dict[Buffer, int]) -> Hashable:
        """Returns what costs see of the block, in numbers: its axes, its accesses, its arithmetic. ``numbers`` gets one
        for each buffer, so that blocks which share buffers are alike only where others share theirs."""
        places = {v: n for n, v in enumerate(self.axes)}

        def seen(use: Use) -> Hashable:
            buffer = use.buffer
            shape = tuple([extent.value if isinstance(extent, IntImm) else None for extent in buffer.shape])
            dims = [
                None if dim is None else tuple([(places.get(v, -1), c) for v, c in dim.items()]) for dim in use.dims
            ]
            ahead, number = buffer in self.packed_ahead, numbers.setdefault(buffer, len(numbers))
            return number, shape, str(buffer.dtype), tuple(dims), use.offsets, ahead, self.distances.get(buffer)

        kinds = tuple([(self.extents[v], v in self.spatial, v in self.reduce) for v in self.axes])
        uses = tuple([seen(use) for use in self.loads]), tuple([seen(use) for use in self.stores])
        return kinds, uses, self.operations, self.itemsize

    @property
    def _single(self) -> bool:
        """Returns whether the block has one instance. It has no loops, and axes of one value that its body does not
        use."""
        axes = {iv.var for iv in self.block.iter_vars}
        one = all(iv.kind == "spatial" and is_const_int(iv.dom.extent, 1) for iv in self.block.iter_vars)
        return not self.loops and bool(axes) and one and not uses_var(self.block.body, lambda v: v in axes)

    @property
    def is_reduction(self) -> bool:
        """Returns whether the block reduces."""
        return bool(self.reduce)

    @cached_property
    def obstacle(self) -> str | None:
        """Returns why no rule can schedule the block, or None."""
        values = () if self._single else self.realize.iter_values
        cost = (
            "so it runs as plain loops, without vectors, tiles and threads; a stage whose axes are its loops gets them"
        )
        if len(values) != len(self.loops):
            return f"it has {len(values)} axes and {len(self.loops)} loops, {cost}"
        for n, (iv, v, loop) in enumerate(zip(self.block.iter_vars, values, self.loops, strict=False)):
            if v is not loop.loop_var and not (self.keeps_order and _begins_later(v, loop, self.loops[:n])):
                return f"its axis {iv.var.name} is {v}, not the loop {loop.loop_var.name}, {cost}"
        for iv in self.block.iter_vars:
            if self.extents.get(iv.var, 1) <= 0:
                return f"the extent {iv.dom.extent} of its axis {iv.var.name} has no upper limit above zero"
        return None

    @cached_property
    def keeps_order(self) -> bool:
        """Returns whether the loops have to stay as they are nested. They do where an axis is neither spatial nor
        reduced (a scan), the extent of a loop depends on another one (a triangle), or loops hold other statements as
        well."""
        return (
            self.shared > 0
            or len(self.spatial) + len(self.reduce) < len(self.axes)
            or not all(isinstance(loop.extent, IntImm) for loop in self.loops)
        )

    @cached_property
    def stores(self) -> tuple[Use, ...]:
        """Returns the stores of the body."""
        return tuple([_use(a, in_line=True) for a in accesses(self.block.body) if a.is_store])

    @cached_property
    def loads(self) -> tuple[Use, ...]:
        """Returns the loads of the body without the accumulator of a reduction; equal reads of a buffer count once."""
        own = {use.buffer for use in self.stores} if self.is_reduction else set()
        found = [a for a in accesses(self.block.body) if not a.is_store and a.buffer not in own]
        in_line = self.is_reduction
        return tuple({(a.buffer, *map(expression_key, a.indices)): _use(a, in_line) for a in found}.values())

    @cached_property
    def with_chosen_as_own(self) -> BlockInfo:
        """Returns the block as if an index that is looked up along an outer axis were that axis.

        ``B[own[p], k, j]`` counts as ``B[p, k, j]``, one matrix for each p, which is how loops outside p's see it. Along the
        innermost one vectors gather. Itself where there is no such index.
        """

        def chosen(use: Use) -> Use:
            dims = list(use.dims)
            for n, (looked_up, variables) in enumerate(zip(use.looked_up, use.unknown, strict=True)):
                along = variables & set(self.axes)
                outer = set(self.spatial) - {next((v for v in reversed(self.spatial) if self.extents[v] > 1), None)}
                if looked_up and len(along) == 1 and along <= outer and not along & use.axes():
                    dims[n] = dict.fromkeys(along, 1)
            known = tuple([frozenset() if dim is not None else v for dim, v in zip(dims, use.unknown, strict=True)])
            return use if tuple(dims) == use.dims else replace(use, dims=tuple(dims), unknown=known)

        loads = tuple([chosen(use) for use in self.loads])
        if all(a is b for a, b in zip(loads, self.loads, strict=True)):
            return self
        out = copy(self)
        out.__dict__.pop("is_joined", None)
        out.__dict__["loads"] = loads
        return out

    def elements_of(self, use: Use) -> int:
        """Returns how many elements an access goes through along its axes."""
        return math.prod(self.extents[v] for v in use.axes() if v in self.extents)

    @cached_property
    def is_joined(self) -> bool:
        """Returns whether one axis goes through two dimensions of what the block reads or writes."""
        return any(use.joined for use in (*self.loads, *self.stores))

    @cached_property
    def operations(self) -> int:
        """Returns the arithmetic operations of one instance; what stands in several places counts once. Functions such as
        exp, divisions and roots count as many as their code has. Conditions on axes do not count, for they become masks or
        are hoisted; those on what is loaded do, with their comparisons."""
        number = _Numbers()
        found: dict[int, int] = {}
        for node in reversed(list(self._value_nodes())):  # operands first
            if isinstance(node, Expr):
                found[number(node)] = instructions_of(node)
        return max(1, sum(found.values()))

    @cached_property
    def chain(self) -> int:
        """Returns how many of the :attr:`operations` of one instance follow one another at most."""
        found: dict[int, int] = {}
        for node in reversed(list(self._value_nodes())):
            if isinstance(node, Expr):
                below = max([found.get(id(child), 0) for child in node.children()], default=0)
                found[id(node)] = below + instructions_of(node)
        return max(1, *found.values()) if found else 1

    def _value_nodes(self) -> Iterator[object]:
        for node in pre_order(self.block.body):
            if isinstance(node, BufferStore):
                yield from _computed(node.value)

    @property
    def computes_with_reduced(self) -> bool:
        """Returns whether an axis that it reduces stands in a value or a condition, not only in indices of loads."""
        values = [node.value for node in pre_order(self.block.body) if isinstance(node, BufferStore)]
        return any(n in self.reduce for v in values for n in pre_order(v, _around_loads) if isinstance(n, Var))

    @cached_property
    def spatial_size(self) -> int:
        """Returns the instances per reduction step."""
        return math.prod(self.extents[v] for v in self.spatial)

    @cached_property
    def reduce_size(self) -> int:
        """Returns the reduction steps per output element."""
        return math.prod(self.extents[v] for v in self.reduce)

    @property
    def flops(self) -> float:
        """Returns the operations of the whole block."""
        return float(self.operations) * self.spatial_size * self.reduce_size

    @cached_property
    def array_bytes(self) -> int:
        """Returns the bytes of all arrays that it reads and writes; those of unknown size do not count."""
        return sum(buffer.num_bytes() or 0 for buffer in {use.buffer for use in (*self.loads, *self.stores)})

    def bytes_from_beyond(self, cache_bytes: float) -> float:
        """Returns the bytes of those arrays that a cache of that size no longer holds when the block starts."""
        buffers = {use.buffer for use in (*self.loads, *self.stores)}
        own, far = self.array_bytes, self.distances
        return float(sum(b.num_bytes() or 0 for b in buffers if max(own, far.get(b, 0)) > cache_bytes))

    @cached_property
    def itemsize(self) -> int:
        """Returns the bytes of the widest element that it loads or stores. When only functions that it calls access
        memory, its declared regions count."""
        touched = [use.buffer for use in (*self.stores, *self.loads)]
        named = [region.buffer for region in (*self.block.writes, *self.block.reads)]
        return max([buffer.dtype.bytes for buffer in touched or named], default=1)

    @cached_property
    def writes_in_order(self) -> bool:
        """Returns whether it writes one buffer at exactly its spatial axes, in order."""
        if len({use.buffer for use in self.stores}) != 1:
            return False
        return self.stores[0].is_at(self.spatial, self.extents)

    @cached_property
    def fills_in_order(self) -> bool:
        """Returns whether it writes one buffer in the order of its spatial axes. Several of them may make one index of a
        buffer whose shape is given."""
        if len({use.buffer for use in self.stores}) != 1:
            return False
        return self.writes_in_order or (not self.is_reduction and self.stores[0].fills(self.spatial, self.extents))


def _use(access: Access, in_line: bool) -> Use:
    """Returns an access in numbers; ``in_line``: dimensions that one axis goes through are joined."""
    found, joined = [affine(i) for i in access.indices], set[int]()
    for n in range(len(found) - 1) if in_line else ():
        both = None
        if found[n] is None and found[n + 1] is None:
            both = _in_line(access.indices[n], access.indices[n + 1], access.buffer.shape[n + 1])
        if both is not None:
            found[n], found[n + 1] = both
            joined.add(n)
    dims = tuple([None if f is None else f.terms for f in found])
    unknown = tuple(
        [frozenset(vars_in(i)) if f is None else frozenset() for i, f in zip(access.indices, found, strict=True)]
    )
    looked_up = tuple([f is None and reads_memory(i) for i, f in zip(access.indices, found, strict=True)])
    offsets = tuple([0 if f is None else f.const for f in found])
    return Use(access.buffer, dims, offsets, unknown, looked_up, frozenset(joined))


def _in_line(outer: Expr, inner: Expr, size: Expr) -> tuple[Linear, Linear] | None:
    """Returns ``c`` and ``x`` of the indices ``x // s + c`` and ``x % s`` into a dimension of ``s`` elements."""
    if not (isinstance(inner, FloorMod) and isinstance(inner.a, Var) and isinstance(size, IntImm)):
        return None
    axis, row = inner.a, Var("row", inner.dtype)
    if not is_const_int(inner.b, size.value):
        return None

    def term(e: Expr) -> Linear | None:
        if isinstance(e, FloorDiv) and e.a is axis and is_const_int(e.b, size.value):
            return Linear(0, {row: 1})
        return None if e is axis else _axis(e)

    rest = collect(outer, term)
    if rest is None or rest.terms.get(row) != 1:
        return None
    return Linear(rest.const, {v: k for v, k in rest.terms.items() if v is not row}), Linear(0, {axis: 1})


class _Numbers:
    """Numbers expressions: equal ones have one number."""

    def __init__(self) -> None:
        self._of_key: dict[Hashable, int] = {}
        self._known: dict[Any, int] = {}

    def __call__(self, e: Any) -> int:
        found = self._known.get(e)
        if found is None:
            found = self._known[e] = self._of_key.setdefault(value_key(e, self), len(self._of_key))
        return found


def _around_loads(node: object) -> bool:
    return not isinstance(node, BufferLoad)


def _computed(value: Expr) -> Iterator[object]:
    """Returns the nodes of ``value`` that cost arithmetic: no indices, no conditions on axes alone."""

    def inside(node: object) -> bool:
        return not isinstance(node, BufferLoad) and not (isinstance(node, Call) and node.op == "tir.if_then_else")

    for node in pre_order(value, inside):
        yield node
        if isinstance(node, Call) and node.op == "tir.if_then_else":
            for part in node.args if reads_memory(node.args[0]) else node.args[1:]:
                yield from _computed(part)


def divisors_of(block: BlockInfo) -> list[set[int]]:
    """Returns for each axis the numbers that it is divided by in indices. In ``h // 4 % 2`` they are 4 and 8."""
    found: dict[Var, set[int]] = {v: set() for v in block.axes}
    for access in accesses(block.block.body):
        for node in [n for index in access.indices for n in pre_order(index)]:
            if isinstance(node, (FloorDiv, FloorMod)) and isinstance(node.b, IntImm):
                inner, by = node.a, node.b.value
                if isinstance(inner, FloorDiv) and isinstance(inner.b, IntImm):
                    outer = inner.b.value
                    if isinstance(inner.a, Var) and inner.a in found:
                        found[inner.a].add(outer)
                    inner, by = inner.a, by * outer
                if isinstance(inner, Var) and inner in found:
                    found[inner].add(by)
    return [found[v] for v in block.axes]


def periods_of(block: BlockInfo) -> list[set[int]]:
    """Returns for each axis the numbers of its steps after which quotients and remainders repeat, up to whole numbers.

    The parts of ``(c - i) // 4`` and ``(2 * i + 8 * j) % 8`` repeat after 4 steps of ``i``. What another axis moves by no
    multiple of the divisor repeats nowhere.
    """
    found = divisors_of(block)
    for access in accesses(block.block.body):
        for node in [n for index in access.indices for n in pre_order(index)]:
            if isinstance(node, (FloorDiv, FloorMod)) and isinstance(node.b, IntImm) and (by := node.b.value) > 1:
                form = affine(node.a)
                moved = [] if form is None else [(v, step) for v, step in form.terms.items() if step % by]
                if len(moved) == 1 and moved[0][0] in block.axes:
                    found[block.axes.index(moved[0][0])].add(by // math.gcd(moved[0][1], by))
    return found


def splits_into_affine(block: BlockInfo) -> bool:
    """Returns whether all indices are affine once each axis is split by the numbers that it is divided by."""
    by = dict(zip(block.axes, divisors_of(block), strict=True))
    split = {v for v, numbers in by.items() if numbers and factors_of(numbers, {block.extents[v]})}
    indices = [index for access in accesses(block.block.body) for index in access.indices]
    return all(affine(index) is not None or _divides_only(index, split) for index in indices)


def _divides_only(index: Expr, axes: Collection[Var]) -> bool:
    """Returns whether an index is a sum over quotients and remainders of ``axes``, and axes themselves."""

    def term(e: Expr) -> Linear | None:
        if isinstance(e, (FloorDiv, FloorMod)) and isinstance(e.b, IntImm):
            inner = e.a.a if isinstance(e.a, FloorDiv) and isinstance(e.a.b, IntImm) else e.a
            return Linear(0, {}) if isinstance(inner, Var) and inner in axes else None
        return _axis(e)

    return collect(index, term) is not None


def factors_of(divisors: Iterable[int], extents: Collection[int]) -> tuple[int, ...]:
    """Returns the factors of axes of one extent that are divided by these numbers.

    There are none where one number does not divide the next.

    >>> factors_of({4, 8}, {64}), factors_of({4, 6}, {24}), factors_of({4}, {30})
    ((2, 4), (), ())
    """
    (extent,) = extents if len(extents) == 1 else (0,)
    below, out = 1, list[int]()
    for divisor in [*sorted(d for d in divisors if d != extent), extent]:
        if divisor <= below or divisor % below:
            return ()
        out.append(divisor // below)
        below = divisor
    return tuple(reversed(out[:-1]))


def copies(block: BlockInfo) -> bool:
    """Returns whether each element is a copy of another one (transpose, reshape, broadcast), under no condition."""
    body = block.block.body
    return isinstance(body, BufferStore) and isinstance(body.value, BufferLoad)


def pads(block: BlockInfo) -> bool:
    """Returns whether each element is chosen by a condition, as in a padded copy."""
    body = block.block.body
    return isinstance(body, BufferStore) and isinstance(body.value, Call) and body.value.op == "tir.if_then_else"


def _leaves(stmt: Stmt, loops: tuple[For, ...] = (), shared: int = 0) -> list[BlockInfo] | None:
    """Returns the blocks below ``stmt``; None when there is anything but loops and blocks that hold no others."""
    if isinstance(stmt, For):
        return _leaves(stmt.body, (*loops, stmt), shared)
    if isinstance(stmt, BlockRealize):
        return [BlockInfo(stmt, loops, shared)] if sum(1 for _ in blocks_of(stmt)) == 1 else None
    if not isinstance(stmt, SeqStmt):
        return None
    out: list[BlockInfo] = []
    for part in stmt.seq:
        below = _leaves(part, loops, len(loops))
        if below is None:
            return None
        out += below
    return out


class ProgramInfo:
    """The leaf blocks of ``func`` in program order, with their loops.

    ``blocks`` are those that rules may schedule; ``left`` has a line for everything else, with the reason.
    """

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.left: list[str] = []
        self._read_elsewhere: set[Buffer] = set()
        found: list[BlockInfo] = []
        packed_ahead = frozenset([func.buffer_map[func.params[n]] for n in layout_free_params(func)])
        for stmt in self._statements():
            leaves = _leaves(stmt)
            if leaves is None:
                self._leave(stmt, "its loops hold more than loops and blocks")
            else:
                found += leaves
        names = Counter(r.block.name_hint for r in blocks_of(func))
        for info in found:
            info.packed_ahead = frozenset() if info.shared else packed_ahead
            obstacle = "another block has the same name" if names[info.name] > 1 else info.obstacle
            if obstacle is not None:
                self._leave(info.realize, obstacle)
        self.blocks = tuple([info for info in found if names[info.name] == 1 and info.obstacle is None])
        self._tell_distances()

    def _statements(self) -> Sequence[Stmt]:
        root = self.func.body
        if not isinstance(root, BlockRealize) or root.block.iter_vars:
            self._leave(root, "the body of the function is not a root block")
            return ()
        body = root.block.body
        return children_of(body)

    def _leave(self, stmt: Stmt, reason: str) -> None:
        """Record that ``stmt`` stays as it is, and why."""
        names = [realize.block.name_hint for realize in blocks_of(stmt) if realize is not self.func.body]
        what = f"block {', '.join(names[:4])}" if names else "a statement outside of blocks"
        self.left.append(f"{what}: {reason}")
        self._read_elsewhere.update(n.buffer for n in loads_and_stores(stmt) if isinstance(n, BufferLoad))

    def _tell_distances(self) -> None:
        """Tell each block how many bytes were touched since a block last had each of its buffers.

        Calls follow each other: what the first block reads, the last one to touch it left in the call before.
        """
        at, before, last = 0, dict[BlockInfo, int](), dict[Buffer, int]()
        for block in self.blocks:
            before[block] = at
            at += block.array_bytes
            last.update(dict.fromkeys([use.buffer for use in (*block.loads, *block.stores)], before[block]))
        last = {buffer: place - at for buffer, place in last.items()}
        for block in self.blocks:
            touched = dict.fromkeys([use.buffer for use in (*block.loads, *block.stores)])
            block.distances = {buffer: before[block] - last[buffer] for buffer in touched}
            last.update(dict.fromkeys(touched, before[block]))

    @cached_property
    def writer(self) -> dict[Buffer, BlockInfo]:
        """Returns the block that writes each buffer (the last one when there are several)."""
        return {use.buffer: b for b in self.blocks for use in b.stores}

    @cached_property
    def outputs(self) -> set[Buffer]:
        """Returns the parameters that are written."""
        return {buffer for buffer in self.func.buffers if buffer in self.writer}

    @cached_property
    def _places(self) -> dict[BlockInfo, int]:
        return {b: n for n, b in enumerate(self.blocks)}

    @cached_property
    def _readers(self) -> dict[Buffer, list[BlockInfo]]:
        out: dict[Buffer, list[BlockInfo]] = {}
        for b in self.blocks:
            for buffer in dict.fromkeys([use.buffer for use in b.loads]):
                out.setdefault(buffer, []).append(b)
        return out

    @cached_property
    def _writers(self) -> dict[Buffer, list[BlockInfo]]:
        out: dict[Buffer, list[BlockInfo]] = {}
        for b in self.blocks:
            for buffer in dict.fromkeys([use.buffer for use in b.stores]):
                out.setdefault(buffer, []).append(b)
        return out

    def _in_order(self, found: dict[Buffer, list[BlockInfo]], uses: Sequence[Use], block: BlockInfo) -> list[BlockInfo]:
        others = {b for buffer in {use.buffer for use in uses} for b in found.get(buffer, ()) if b is not block}
        return sorted(others, key=self._places.__getitem__)

    def producers(self, block: BlockInfo) -> list[BlockInfo]:
        """Returns the blocks whose results ``block`` reads, in program order."""
        return self._in_order(self._writers, block.loads, block)

    def consumers(self, block: BlockInfo) -> list[BlockInfo]:
        """Returns the blocks that read what ``block`` writes, in program order."""
        return self._in_order(self._readers, block.stores, block)

    def epilogue_of(self, block: BlockInfo, free: Collection[BlockInfo]) -> BlockInfo | None:
        """Returns the element-wise stage among ``free`` that alone reads the result of ``block``, element by element."""
        consumers = self.consumers(block)
        if len(consumers) != 1 or self.is_output(block):
            return None
        consumer = consumers[0]
        if consumer.is_reduction or consumer not in free or not consumer.fills_in_order:
            return None
        written = block.stores[0].buffer
        for use in consumer.loads:
            if use.buffer is written and not use.is_at(consumer.spatial, consumer.extents):
                return None
            writer = self.writer.get(use.buffer, block)
            if writer is not block and not self.comes_before(writer, block):  # another operand does not exist yet
                return None
        return consumer

    def comes_before(self, block: BlockInfo, other: BlockInfo) -> bool:
        """Returns whether ``block`` stands before ``other`` in the program."""
        return self._places[block] < self._places[other]

    def ordered(self, blocks: Iterable[BlockInfo]) -> list[BlockInfo]:
        """Returns ``blocks`` in program order."""
        return sorted(blocks, key=self._places.__getitem__)

    def upwards(self, last: BlockInfo, members: Collection[BlockInfo]) -> Iterator[BlockInfo]:
        """Yields the blocks before ``last`` that write what ``members`` read, the latest first. When the caller makes a
        block one of the members, those that write what it reads follow as well."""
        seen, waiting = set(members), list[int]()

        def add(block: BlockInfo) -> None:
            for producer in self.producers(block):
                place = self._places[producer]
                if producer not in seen and place < min(self._places[block], self._places[last]):
                    seen.add(producer)
                    heappush(waiting, -place)

        for member in list(members):
            add(member)
        while waiting:
            block = self.blocks[-heappop(waiting)]
            yield block
            if block in members:
                add(block)

    @cached_property
    def results(self) -> list[BlockInfo]:
        """Returns the blocks whose results are read outside, in program order."""
        return [b for b in self.blocks if self.is_output(b)]

    def sources(self, block: BlockInfo) -> int:
        """Returns the buffers that a block reads, and those that they are computed of, as the bits of a number."""
        return self._sources[block]

    @cached_property
    def _sources(self) -> dict[BlockInfo, int]:
        bits: dict[Buffer, int] = {}
        for block in self.blocks:
            for use in block.loads:
                bits.setdefault(use.buffer, 1 << len(bits))
        found = {b: reduce(or_, [bits[use.buffer] for use in b.loads], 0) for b in self.blocks}
        waiting, done = list(self.blocks[::-1]), set[BlockInfo]()
        while waiting:  # once for each block, but where one reads what a later one writes
            block = waiting.pop()
            before = found[block]
            found[block] = reduce(or_, [found[p] for p in self.producers(block)], before)
            done.add(block)
            if found[block] != before:
                waiting += [c for c in self.consumers(block) if c in done]
        return found

    def other_writers(self, block: BlockInfo) -> list[BlockInfo]:
        """Returns the other blocks that write what ``block`` writes, in program order."""
        return self._in_order(self._writers, block.stores, block)

    def is_output(self, block: BlockInfo) -> bool:
        """Returns whether the block writes a parameter, or a buffer that a statement outside ``blocks`` reads."""
        return any(use.buffer in self.outputs or use.buffer in self._read_elsewhere for use in block.stores)
