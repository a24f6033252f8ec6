"""This module has functions of symbolic sizes at example sizes.

They are scheduled like the same function of example sizes, and measured there.

The schedule of the example is replayed on the function itself. Each step is checked there, and tiles that need not divide a
symbolic size get bounds checks, which lowering takes out of the tiles that are whole.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from operator import index, is_not
from typing import Any

from ..codegen.lowered import size_vars
from ..schedule import Schedule, ScheduleError, TraceError
from ..schedule.trace import Instruction, apply_instruction
from ..tir.analysis.known_ranges import asserted_sizes, evaluate, fitting_sizes
from ..tir.analysis.simplify import simplify
from ..tir.analysis.tree import tree_of
from ..tir.expr import BufferLoad, Expr, FloorDiv, FloorMod, IntImm, Var, const, is_const_int, shape_text
from ..tir.program_key import EXAMPLE as EXAMPLE
from ..tir.stmt import Block, BlockRealize, For, PrimFunc, Stmt
from ..tir.walk import (
    blocks_of,
    fresh_copy,
    loads_and_stores,
    pre_order,
    replace_buffers,
    substitute,
    uses_var,
    vars_in,
)

USUAL = 64
"""The example of a size that the attribute does not name and nothing bounds."""

ODD = 3
"""How much less the example is where the first one's schedule does not apply: a size that few tiles divide."""

LARGER = ODD - 4 * USUAL
"""How much less the last example is. It is larger than any tile, so that no loop of the schedule has one iteration."""


Bounds = Mapping[str, int | Sequence[int]]
"""The largest values of symbolic sizes by name, or several ends in ascending order: sizes up to each end have schedules
of their own."""


def unknown_sizes(func: PrimFunc) -> str | None:
    """Returns a sentence about a size that is known only at the call, or None. The extent of a loop may depend on the
    loops around it."""
    for buffer in func.buffers:
        if not all(isinstance(extent, IntImm) for extent in buffer.shape):
            return f"buffer {buffer.name} has the symbolic shape ({shape_text(buffer.shape)})"
    inside = {n.loop_var for n in pre_order(func.body) if isinstance(n, For)}
    inside |= {iv.var for n in pre_order(func.body) if isinstance(n, Block) for iv in n.iter_vars}
    for node in pre_order(func.body):
        if isinstance(node, For) and not isinstance(node.extent, IntImm):
            read = [n.buffer.name for n in pre_order(node.extent) if isinstance(n, BufferLoad)]
            if read or not vars_in(node.extent) <= inside:
                where = f"buffer {read[0]}" if read else "an argument"
                return f"the extent {node.extent} of loop {node.loop_var.name} is symbolic: {where} has it"
    return None


def ends_of(bound: int | Sequence[int]) -> list[int]:
    """Returns the ends of a size in ascending order: of a number, of any integer type, itself."""
    number = _number(bound)
    return sorted(map(index, bound)) if number is None else [number]  # type: ignore[arg-type]


def _number(bound: object) -> int | None:
    try:
        return index(bound)  # type: ignore[arg-type]
    except TypeError:
        return None


def examples_of(bounds: Bounds) -> list[dict[str, int]]:
    """Returns the example sizes of each part of the sizes that bounds make, parts of smaller sizes first.

    The example of a part is its end. A size with one bound has one part, and its example is the bound where that is small.
    """
    ends = [ends_of(b) if (n := _number(b)) is None else [min(n, USUAL)] for b in bounds.values()]
    return [dict(zip(bounds, sizes, strict=True)) for sizes in product(*ends)]


_FEW = 16
"""Elements of an extent made of a size, from which on an example says how a longer one is to be scheduled: a vector of lanes, or rows of
tiles."""


def raised_to_usual(
    sizes: Mapping[Var, int], extents: Iterable[Expr], largest: Mapping[Var, int]
) -> dict[Var, int]:  # fmt: skip
    """Returns examples that are raised where extents made of them are short.

    Of 64 samples a window of 400 makes no frame, and 64 rows are 2 after five halvings: what is the best for them is not for usual
    numbers. A size becomes at most what ``largest`` says; one that is not named there stays.

    >>> n = Var("n")
    >>> [*raised_to_usual({n: 64}, [n, (n - 400) // 160 + 1], {n: 16000}).values()]
    [4096]
    """
    out = dict(sizes)
    formulas = [e for e in extents if not isinstance(e, (IntImm, Var))]
    for v in [v for v in sizes if largest.get(v, 0) > sizes[v]] if formulas else ():
        made = [e for e in formulas if v in (free := vars_in(e)) and free <= out.keys()]

        def shortest(number: int, v: Var = v, made: Sequence[Expr] = tuple(made)) -> int:
            return min([min(evaluate(e, {**out, v: number}) or 0, _FEW) for e in made], default=_FEW)

        tries = [out[v] << n for n in range(1, 16)]
        tries = [out[v], *[n for n in tries if n < largest[v]], largest[v]]
        out[v] = max(tries, key=shortest)  # the first of those that are equally good
    return out


def largest_of(bounds: Bounds) -> dict[str, int]:
    """Returns the largest value of each size."""
    return {name: ends_of(b)[-1] for name, b in bounds.items()}


def with_example(func: PrimFunc, examples: Mapping[str, int]) -> PrimFunc:
    """Returns the function with an example of each symbolic size, 64 where none is given."""
    named = {v.name: examples.get(v.name, size) for v, size in typical_sizes(func).items()}
    return func.with_attr(EXAMPLE, named) if named else func


def typical_sizes(func: PrimFunc) -> dict[Var, int]:
    """Returns an example of each symbolic size: what the function's attribute says, or a number that suits its arrays.

    Sizes are in the shapes of arrays, or are integer arguments that loops, axes or buffers end at.
    """
    ends = [e for b in func.buffers for e in b.shape]
    for n in pre_order(func.body):
        if isinstance(n, For):
            ends += (n.min, n.extent)
        elif isinstance(n, Block):
            ends += [e for b in n.alloc_buffers for e in b.shape]
    used = {v for e in ends if not isinstance(e, IntImm) for v in vars_in(e)}
    given = [p for p in func.params if p in used and p not in func.buffer_map and p.dtype.is_int]
    largest = _largest_of(func) if given else {}
    named = func.attrs.get(EXAMPLE, {})
    sizes = {v: int(named.get(v.name, _typical(largest.get(v)))) for v in (*size_vars(func), *given)}
    free = {v: _FAR for v in sizes if v.name not in named and v not in largest}
    return raised_to_usual(sizes, [e for b in func.buffers for e in b.shape], free)


def _typical(largest: int | None) -> int:
    """Returns the example of a size that may be up to ``largest``: about half of that, where it is much."""
    return USUAL if largest is None else min(largest, max(USUAL, largest // (2 * USUAL) * USUAL))


_FAR = 1 << 24
"""Sizes up to this one are tried where an array bounds a size."""


def _largest_of(func: PrimFunc) -> dict[Var, int]:
    """Returns how large sizes may be so that indices stay in dimensions of known extent.

    Axes end at a size, or at a number made of it.
    """
    largest: dict[Var, int] = {}
    for realize in blocks_of(func):
        ends = {iv.var: iv.dom.extent for iv in realize.block.iter_vars}
        symbolic = {axis for axis, end in ends.items() if not isinstance(end, IntImm)}
        for access in loads_and_stores(realize.block.body) if symbolic else ():
            for at, extent in zip(access.indices, access.buffer.shape, strict=True):
                axes = symbolic & vars_in(at)
                sizes = {v for axis in axes for v in vars_in(ends[axis])}
                if len(sizes) == 1 and isinstance(extent, IntImm):
                    (size,) = sizes
                    outside = partial(_outside, at, extent.value, ends, size)
                    most = bisect_left(range(1, _FAR), True, key=outside)
                    if 0 < most < _FAR - 1:
                        largest[size] = min(most, largest.get(size, most))
    return largest


def _outside(at: Expr, extent: int, ends: Mapping[Var, Expr], size: Var, number: int) -> bool:
    """Returns whether the largest index lies beyond ``extent`` when ``size`` is ``number``; other axes are 0."""
    last = {axis: max((evaluate(end, {size: number}) or 1) - 1, 0) for axis, end in ends.items() if vars_in(end)}
    index = evaluate(at, {size: number, **dict.fromkeys(ends, 0), **last})
    return index is None or index >= extent


def example_of(func: PrimFunc, less: int = 0) -> PrimFunc | None:
    """Returns the function of example sizes, which are smaller by ``less``. None stands for known sizes, and for those
    that are neither in the shapes of arrays nor arguments."""
    numbers = example_numbers(func, less)
    if not numbers:
        return None
    left = func.with_(params=tuple([p for p in func.params if p not in numbers]))
    made: PrimFunc = _folded(fresh_copy(left, {v: const(number, v.dtype) for v, number in numbers.items()}))
    return None if unknown_sizes(made) is not None else made.without_attr(EXAMPLE)


def example_numbers(func: PrimFunc, less: int = 0) -> dict[Var, int] | None:
    """Returns the example of each symbolic size, smaller by ``less``. They are changed to what the function's conditions
    ask for; None where no sizes meet them."""
    wanted = {v: max(size - less, 1) for v, size in typical_sizes(func).items()}
    return fitting_sizes(size_conditions(func), wanted) if wanted else {}


def size_conditions(func: PrimFunc) -> list[Expr]:
    """Returns what a function asks of its sizes: its assertions about them, and that no array's extent is 0."""
    extents = [e for b in func.buffers for e in b.shape if not isinstance(e, (IntImm, Var))]
    return [*[condition for condition, _ in asserted_sizes(func)], *[e >= const(1, e.dtype) for e in extents]]


def at_example(func: PrimFunc) -> PrimFunc:
    """Returns the function of the sizes that its attribute names; the function itself where all sizes are numbers.

    ValueError for a symbolic size without an example.
    """
    problem = unknown_sizes(func)
    if problem is None:
        return func
    made = example_of(func) if EXAMPLE in func.attrs else None
    if made is None:
        raise ValueError(f"{problem}; tuning needs numbers: bind them, or give examples of the sizes")
    return made


def without_example(func: PrimFunc) -> PrimFunc:
    """Returns the function that says no example of its sizes."""
    return func.without_attr(EXAMPLE) if EXAMPLE in func.attrs else func


def _folded(func: PrimFunc) -> PrimFunc:
    """Returns the function with numbers in place of expressions of numbers, in the shapes of its buffers and in loops."""
    inner = [made for n in pre_order(func.body) if isinstance(n, Block) for made in n.alloc_buffers]
    shapes = {b: tuple([simplify(extent) for extent in b.shape]) for b in (*func.buffers, *inner)}
    changed = {b: b.with_(shape=shape) for b, shape in shapes.items() if any(map(is_not, shape, b.shape))}
    return _with_unit_loops(simplify(replace_buffers(func, changed) if changed else func, data=False))


def _with_unit_loops(func: PrimFunc) -> PrimFunc:
    """Returns the function with axes of one value bound to their loops again, which simplifying made a 0."""
    tree = tree_of(func)
    changed = {}
    for realize in (r for found in tree.blocks.values() for r in found):
        loops = tree.loops_above(realize)
        if len(loops) != len(realize.iter_values):
            continue
        values = tuple([
            loop.loop_var if is_const_int(value, 0) and is_const_int(loop.extent, 1) and is_const_int(loop.min, 0) else value
            for loop, value in zip(loops, realize.iter_values, strict=True)
        ])  # fmt: skip
        if any(map(is_not, values, realize.iter_values)):
            changed[realize] = BlockRealize(values, realize.predicate, realize.block)
    return tree.replace(changed) if changed else func


def shown_sizes(func: PrimFunc, less: int = 0) -> str:
    """Returns the example sizes as text, ``n = 64``."""
    return ", ".join([f"{v.name} = {max(size - less, 1)}" for v, size in typical_sizes(func).items()])


_WHOLE = 16
"""The tiles that cover all of an example are a multiple of this many elements, or not larger: vectors of most types divide
them."""

_LONGEST_PERIOD = 96
"""The most elements of a tile that divisors of indices are to divide."""


def followed_in_whole_vectors(steps: Schedule, example: PrimFunc, base: Schedule) -> Schedule | None:
    """Returns ``base``, of symbolic sizes, after the steps at its example, with vectors for all sizes.

    A split whose one tile covers a loop of the example, such as the 66 iterations of ``n + 2``, becomes one by the nearest
    number that vectors divide. A tile of 66 would have a vector of two lanes, and masks, at each size. Where indices divide
    the loop's variable, as in ``x[i // 3]``, the number is also one that their divisors divide, so that all tiles read
    alike: a tile of 64 becomes one of 48. None is returned where there is no such split, or where a later step does not
    apply.
    """
    insts = steps.trace.insts
    divisors = _divisors(base.func.body)
    vectors = {inst.arguments["loop"].name for inst in insts if inst.name == "vectorize"}
    tiles = [_tile(inst, vectors) for inst in insts]
    if not any(0 < tile < _WHOLE or tile % period for tile in tiles for period in (_WHOLE // 2, *divisors)):
        return None
    there, here = Schedule(example), base.copy()
    known: dict[str, Any] = {}
    handles: dict[str, Any] = {}
    changed = False
    try:
        for number, inst in enumerate(insts):
            step, tile = inst, tiles[number]
            if tile:
                name = inst.arguments["loop"].name
                loop = here.get(handles[name])
                if is_const_int(there.get(known[name]).extent, tile) and not isinstance(loop.extent, IntImm):
                    whole = _whole_tile(tile, _divisors(loop.body, loop.loop_var))
                    if whole != tile:
                        step = replace(inst, arguments={**inst.arguments, "factors": [None, whole]})
                        changed = True
            apply_instruction(there, inst, number, known)
            apply_instruction(here, step, number, handles)
    except (ScheduleError, TraceError):
        return None
    return here if changed else None


def _tile(inst: Instruction, vectors: Collection[str]) -> int:
    """Returns the size of the tiles of a split; 0 for one vector, and a short loop not in ``vectors``."""
    factors = inst.arguments.get("factors") if inst.name == "split" else None
    if not isinstance(factors, list) or len(factors) != 2 or factors[0] is not None or not isinstance(factors[1], int):
        return 0
    short = _WHOLE // 4 < factors[1] < _WHOLE and inst.output_names[-1] in vectors
    return factors[1] if factors[1] > _WHOLE or short else 0


def _whole_tile(tile: int, divisors: Iterable[int]) -> int:
    """Returns the size of tiles that vectors divide, and divisors of indices, which is nearest to that of a tile."""
    period = math.lcm(_WHOLE, *divisors)
    if period <= _LONGEST_PERIOD and tile % period:
        return max(period, (tile + period // 2) // period * period)
    return max(_WHOLE, tile) if tile % (_WHOLE // 2) == 0 else (tile + _WHOLE // 2) // _WHOLE * _WHOLE


def _divisors(body: Stmt, var: Var | None = None) -> set[int]:
    """Returns the numbers by which indices of loads are divided; with ``var``, those that divide it."""
    found: set[int] = set()
    places: dict[Var, Expr] = {}
    for realize in blocks_of(body):
        places.update(zip([iv.var for iv in realize.block.iter_vars], realize.iter_values, strict=True))
    for load in pre_order(body):
        if isinstance(load, BufferLoad):
            for n in [n for index in load.indices for n in pre_order(index)]:
                if isinstance(n, (FloorDiv, FloorMod)) and isinstance(n.b, IntImm):
                    if var is None or uses_var(substitute(n.a, places), var):
                        found.add(n.b.value)
    return {n for n in found if n > 0}
