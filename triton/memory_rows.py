"""The rows of ``tl`` for memory: loads and stores, atomic operations, windows on tensors and block pointers.

A kernel with an atomic operation runs its programs one after another, in the order of their numbers: a program that holds a lock
has given it back before the next one asks, and sums come out the same in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..tir.expr import Expr, Select, is_const_int, max_, min_
from ..tir.expr.dtype import BOOL, DType
from .block_values import BlockValue, broadcast_shape
from .kernel_builder import KernelBuilder
from .rows import MEMBERS, Builtin, builtin, int32, member, shape_of

_ORDERS = (None, "acquire", "release", "acq_rel", "relaxed")
_SCOPES = (None, "gpu", "cta", "sys")


def _changed(
    k: KernelBuilder, name: str, pointer: Any, values: Sequence[Any], mask: Any, sem: Any, scope: Any,
    change: Callable[..., Expr], operation: str,
) -> BlockValue:  # fmt: skip
    """Returns what pointers point to, after changing one element after another."""
    if sem not in _ORDERS:
        raise ValueError(f"sem={sem!r}; there are {', '.join(map(str, _ORDERS[1:]))}")
    if scope not in _SCOPES:
        raise ValueError(f"scope={scope!r}; there are {', '.join(map(str, _SCOPES[1:]))}")
    if not isinstance(pointer, BlockValue) or pointer.pointer is None:
        kind = pointer.type_text() if isinstance(pointer, BlockValue) else repr(pointer)
        raise TypeError(f"{name} changes what pointers point to, and this is {kind}")
    argument = pointer.pointer
    dtype = argument.element
    given = [k.cast_data(k.value(v), dtype) for v in values]
    allowed = None if mask is None else k.data(k.value(mask), BOOL)
    shape = pointer.shape
    for v in (*given, *([] if allowed is None else [allowed])):
        if broadcast_shape(shape, v.shape) != shape:
            raise ValueError(f"{v.type_text()} is larger than the pointers, which are {pointer.type_text()}")
    k.programs_in_order = True
    k.check("changes", pointer, allowed)
    for v in (pointer, *given, *([] if allowed is None else [allowed])):
        if v.cost > 1 or argument.buffer in v.reads:
            k.keep(v)
    k.settle([argument.buffer])
    return k.change(pointer, given, allowed, change, operation)


def _atomic(
    name: str, meaning: str, operation: str, change: Callable[[Expr, Expr], Expr], integers: bool = False
) -> Builtin:  # fmt: skip
    """Returns the row of an operation that changes elements by a value."""

    def compute(k: KernelBuilder, pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Any:
        if integers and isinstance(pointer, BlockValue) and pointer.pointer and pointer.pointer.element.is_float:
            raise TypeError(f"{name} is for integers, not {pointer.type_text()}")
        return _changed(k, name, pointer, [val], mask, sem, scope, change, operation)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = (
        f"Return what pointers point to, and {meaning} there, one element after another, where the mask holds."
    )
    return member(compute)


atomic_add = _atomic("atomic_add", "add ``val``", "atomic_fetch_add", lambda old, v: old + v)
atomic_max = _atomic("atomic_max", "leave the larger one of it and ``val``", "atomic_fetch_max", max_)
atomic_min = _atomic("atomic_min", "leave the smaller one of it and ``val``", "atomic_fetch_min", min_)
atomic_and = _atomic(
    "atomic_and", "leave its bits that ``val`` has too", "atomic_fetch_and", lambda old, v: old & v, integers=True
)
atomic_or = _atomic("atomic_or", "set the bits of ``val``", "atomic_fetch_or", lambda old, v: old | v, integers=True)
atomic_xor = _atomic(
    "atomic_xor", "turn the bits of ``val``", "atomic_fetch_xor", lambda old, v: old ^ v, integers=True
)
atomic_xchg = _atomic("atomic_xchg", "write ``val``", "atomic_exchange", lambda old, v: v)


@member
def atomic_cas(k: KernelBuilder, pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> BlockValue:
    """Return what pointers point to, and write ``val`` there where that equals ``cmp``."""
    return _changed(
        k, "atomic_cas", pointer, [cmp, val], None, sem, scope,
        lambda old, expected, new: Select(old.equal(expected), new, old), "atomic_compare_exchange",
    )  # fmt: skip


# -- windows on tensors ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BlockWindow:
    """A tensor of which blocks of one shape are loaded and stored.

    What lies outside of it reads as zeros (or NaN), and nothing is written there.
    """

    base: BlockValue
    shape: tuple[BlockValue, ...]
    strides: tuple[BlockValue, ...]
    block_shape: tuple[int, ...]
    outside: float

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        assert self.base.pointer is not None
        return self.base.pointer.element

    def places(
        self, k: KernelBuilder, offsets: Any, checked: Sequence[int] | None = None
    ) -> tuple[BlockValue, BlockValue | None]:
        """Return the pointers of the block that begins at ``offsets``, and which of them lie inside.

        ``checked``: the dimensions that are looked at, all unless given; of none the second is None.
        """
        rank = len(self.block_shape)
        if not isinstance(offsets, tuple) or len(offsets) != rank:
            raise ValueError(f"a window of {rank} dimensions has a place by {rank} offsets, not {offsets!r}")
        pointer, inside = self.base, None
        for n, (offset, size, stride) in enumerate(zip(offsets, self.shape, self.strides, strict=True)):
            start = k.index_value(k.value(offset))
            if start.shape:
                raise TypeError(f"offset {n} of a window is {start.type_text()}, and it is a single integer")
            along = (1,) * n + (self.block_shape[n],) + (1,) * (rank - n - 1)
            lane = BlockValue(along, int32, lambda lanes, n=n: lanes[n])  # type: ignore[misc]
            at = k.binary("+", start, lane)
            if checked is None or n in checked:
                here = k.binary("&", k.binary(">=", at, 0), k.binary("<", at, size))
                inside = here if inside is None else k.binary("&", inside, here)
            pointer = k.binary("+", pointer, k.binary("*", at, stride))
        return pointer, inside


@builtin
def make_tensor_descriptor(
    k: KernelBuilder, base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: str = "zero"
) -> BlockWindow:
    """Return a window on a tensor, of which blocks of one shape are loaded and stored."""
    if not isinstance(base, BlockValue) or base.pointer is None or base.shape:
        raise TypeError(f"a window begins at one pointer, not {base!r}")
    sizes = shape_of([block_shape])
    if not isinstance(shape, tuple) or not isinstance(strides, tuple) or not len(shape) == len(strides) == len(sizes):
        raise ValueError(f"a window has as many sizes and strides as its blocks have dimensions, {len(sizes)}")
    if padding_option not in ("zero", "nan"):
        raise ValueError(f"padding_option {padding_option!r}; there are zero and nan")
    if padding_option == "nan" and not base.pointer.element.is_float:
        raise TypeError(f"padding with NaN is for floats, not {base.pointer.element}")
    last = strides[-1]
    if isinstance(last, BlockValue) and not last.shape and is_const_int(last.scalar, 1):
        last = 1
    if last != 1:
        raise ValueError("the last stride of a window is the constant 1 (an argument that is 1 counts as one)")
    return _window_on(k, base, shape, strides, sizes, float("nan") if padding_option == "nan" else 0.0)


def _window_on(
    k: KernelBuilder, base: BlockValue, shape: tuple[Any, ...], strides: tuple[Any, ...], sizes: tuple[int, ...],
    outside: float,
) -> BlockWindow:  # fmt: skip
    named = [[k.named(k.index_value(k.value(x)), "size") for x in part] for part in (shape, strides)]
    offset = k.named(BlockValue((), base.dtype, base.make, base.cost, base.reads), "first")
    start = BlockValue((), base.dtype, offset.make, 0, offset.reads, base.pointer)
    return BlockWindow(start, tuple(named[0]), tuple(named[1]), sizes, outside)


@dataclass(frozen=True, eq=False)
class BlockPointer:
    """A window on a tensor at a place, as ``tl.make_block_ptr`` makes it: what older kernels load and store through."""

    window: BlockWindow
    offsets: tuple[BlockValue, ...]

    def __repr__(self) -> str:
        return f"BlockPointer({self.window.dtype}{list(self.window.block_shape)})"

    def places(self, k: KernelBuilder, boundary_check: Any) -> tuple[BlockValue, BlockValue | None]:
        """Return the pointers of the block, and which of them lie inside by the dimensions that are checked."""
        checked = boundary_check if isinstance(boundary_check, tuple) else (boundary_check,)
        rank = len(self.offsets)
        for n in checked:
            if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < rank:
                raise ValueError(f"boundary_check names dimensions from 0 to {rank - 1}, not {n!r}")
        return self.window.places(k, self.offsets, checked)


@builtin
def make_block_ptr(
    k: KernelBuilder, base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any
) -> BlockPointer:
    """Return a window on a tensor at a place. Triton removed these in version 3.9; ``make_tensor_descriptor`` follows them."""
    if not isinstance(base, BlockValue) or base.pointer is None or base.shape:
        raise TypeError(f"a block pointer begins at one pointer, not {base!r}")
    sizes = shape_of([block_shape])
    rank = len(sizes)
    for what, part in (("shape", shape), ("strides", strides), ("offsets", offsets)):
        if not isinstance(part, tuple) or len(part) != rank:
            raise ValueError(f"{what} of a block pointer with {rank} dimensions: {part!r}")
    if not isinstance(order, tuple) or sorted([n for n in order if isinstance(n, int)]) != list(range(rank)):
        raise ValueError(f"order={order!r} is no order of {rank} dimensions")
    return BlockPointer(_window_on(k, base, shape, strides, sizes, 0.0), tuple([_offset(k, x) for x in offsets]))


def _offset(k: KernelBuilder, x: Any) -> BlockValue:
    value = k.value(x)
    if value.shape:
        raise TypeError(f"the offset of a block pointer is a single integer, not {value.type_text()}")
    index = k.index_value(value)
    return BlockValue((), int32, index.make, index.cost, index.reads)


@builtin
def advance(k: KernelBuilder, base: Any, offsets: Any) -> BlockPointer:
    """Return a block pointer moved by an offset in each dimension."""
    if not isinstance(base, BlockPointer):
        raise TypeError(f"advance moves what tl.make_block_ptr makes, not {base!r}")
    if not isinstance(offsets, tuple) or len(offsets) != len(base.offsets):
        raise ValueError(f"a block pointer of {len(base.offsets)} dimensions moves by as many offsets, not {offsets!r}")
    moved = [k.binary("+", old, _offset(k, by)) for old, by in zip(base.offsets, offsets, strict=True)]
    return BlockPointer(base.window, tuple(moved))


WINDOW_MEMBERS: dict[str, Builtin] = {}
"""What can be called on a window: ``d.load([i, j])``."""


def _window(x: Any) -> BlockWindow:
    if not isinstance(x, BlockWindow):
        raise TypeError(f"{x!r} is no window such as tl.make_tensor_descriptor makes")
    return x


@builtin
def load_tensor_descriptor(k: KernelBuilder, desc: Any, offsets: Any) -> BlockValue:
    """Return the block of a window that begins at ``offsets``."""
    pointer, inside = _window(desc).places(k, offsets)
    return k.load(pointer, inside, desc.outside if desc.dtype.is_float else 0)


@builtin
def store_tensor_descriptor(k: KernelBuilder, desc: Any, offsets: Any, value: Any) -> None:
    """Write a block to a window from ``offsets`` on."""
    pointer, inside = _window(desc).places(k, offsets)
    if k.value(value).shape != pointer.shape:
        raise ValueError(f"{k.value(value).type_text()} is stored to a window of blocks {list(pointer.shape)}")
    k.store(pointer, value, inside)


def _atomic_of_window(row: Builtin) -> Builtin:
    def compute(k: KernelBuilder, desc: Any, offsets: Any, value: Any) -> None:
        pointer, inside = _window(desc).places(k, offsets)
        row.meaning(k, pointer, value, inside)

    compute.__name__ = compute.__qualname__ = row.meaning.__name__
    compute.__doc__ = "Change a block of a window element by element."
    return Builtin(compute)


WINDOW_MEMBERS |= {"load": load_tensor_descriptor, "store": store_tensor_descriptor}
WINDOW_MEMBERS |= {
    name: _atomic_of_window(MEMBERS[name])
    for name in ("atomic_add", "atomic_and", "atomic_max", "atomic_min", "atomic_or", "atomic_xor")
}


# -- loads and stores --------------------------------------------------------------------------------------------------

_CACHES = ("", ".ca", ".cg", ".cv", ".cs", ".wb", ".wt")
_EVICTIONS = ("", "evict_first", "evict_last", "evict_normal")


def _hints(cache_modifier: str, eviction_policy: str) -> None:
    """Raises ValueError for a hint that Triton does not know. Hints change no value, and processors need none."""
    if cache_modifier not in _CACHES:
        raise ValueError(f"cache_modifier {cache_modifier!r}; there are {', '.join(_CACHES[1:])}")
    if eviction_policy not in _EVICTIONS:
        raise ValueError(f"eviction_policy {eviction_policy!r}; there are {', '.join(_EVICTIONS[1:])}")


@builtin
def load(
    k: KernelBuilder, pointer: BlockValue, mask: Any = None, other: Any = None, boundary_check: Any = (),
    padding_option: str = "", cache_modifier: str = "", eviction_policy: str = "", volatile: bool = False,
) -> BlockValue:  # fmt: skip
    """Return what a block of pointers points to; ``other`` (or 0) where the mask does not hold."""
    _hints(cache_modifier, eviction_policy)
    if isinstance(pointer, BlockPointer):
        if mask is not None or other is not None:
            raise ValueError(
                "block pointers are loaded with boundary_check= and padding_option=, not with mask= and other="
            )
        if padding_option not in ("", "zero", "nan"):
            raise ValueError(f"padding_option {padding_option!r}; there are zero and nan")
        places, inside = pointer.places(k, boundary_check)
        padding = None if inside is None else float("nan") if padding_option == "nan" else 0
        return k.load(places, inside, padding)
    if boundary_check or padding_option:
        raise TypeError(
            "boundary_check and padding_option are for block pointers (tl.make_block_ptr); use mask= and other="
        )
    if not isinstance(pointer, BlockValue):
        raise TypeError(f"load reads through pointers, not {pointer!r}")
    return k.load(pointer, mask, other)


@member
def store(
    k: KernelBuilder, pointer: BlockValue, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:  # fmt: skip
    """Write a block through pointers, converted to their type, where the mask holds."""
    _hints(cache_modifier, eviction_policy)
    if isinstance(pointer, BlockPointer):
        if mask is not None:
            raise ValueError("block pointers are stored with boundary_check=, not with mask=")
        places, inside = pointer.places(k, boundary_check)
        k.store(places, value, inside)
        return
    if boundary_check:
        raise TypeError("boundary_check is for block pointers (tl.make_block_ptr); use mask=")
    if not isinstance(pointer, BlockValue):
        raise TypeError(f"store writes through pointers, not {pointer!r}")
    k.store(pointer, value, mask)
