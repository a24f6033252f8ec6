"""This module has the operations of the matrix units of CPUs and GPUs.

First come operations on tiles of 16 rows of 64 bytes, like those of x86's AMX; then those on tiles of 16 by 16 numbers,
which the threads of a warp hold together; then ``wgmma`` of sm_90a, which four warps, a *warp group*, run together.

==========================================  ===========================================================================
``tile_load(dtype, address, stride)``       16 rows of 64 bytes from memory, ``stride`` elements from row to row
``tile_store(address, stride, value)``      16 rows of 64 bytes to memory
``tile_dot4(c, a, b)``                      ``c[i, j] + sum(a[i, 4k + q] * b[k, 4j + q])``, uint8 or int8 by int8 into int32
``tile_dot2_bf16(c, a, b)``                 ``c[i, j] + sum(a[i, 2k + q] * b[k, 2j + q])``, bfloat16 into float32
==========================================  ===========================================================================

A tile is a vector of all its numbers, row by row: ``int32x256`` is 16 rows of 16, ``int8x1024`` 16 rows of 64. The
right operand holds four (two) consecutive terms of the sum side by side for each column, like the dot products of
vectors.

Row r of a tile in memory begins r * stride elements behind the element that is given.

==========================================  ===========================================================================
``wmma_load_a(dtype, address, stride)``     16 rows of 16 numbers from memory, ``stride`` elements from row to row
``wmma_load_b(dtype, address, stride)``     the same for the right operand
``wmma_load_a_t``, ``wmma_load_b_t``         the same of operands that memory holds transposed: its rows are the tile's
                                            columns
``wmma_store(address, stride, value)``      16 rows of 16 numbers to memory
``wmma_dot(c, a, b)``                       ``c[i, j] + sum(a[i, k] * b[k, j])``: float16, bfloat16 into float32, int8,
                                            and float32, of which the products take the values of ``round_tf32``
``round_tf32(x)``                           float32 rounded to the eleven bits that matrix units multiply
==========================================  ===========================================================================

A tile is a vector of its 256 numbers, row by row. The threads of a warp hold it together, so that no thread has an element of
it by itself; all of them run the operation at once.

======================================================  ================================================================
``wgmma_left(dtype, address, stride)``                  64 rows of 16 numbers in shared memory, the left operand
``wgmma_right(dtype, address, stride, panel)``          16 rows of n numbers there: panels of 64 columns, ``panel`` elements
                                                        apart
``wgmma_left_t(dtype, address, stride)``                the left operand from 16 rows of 64 numbers: one for each step
``wgmma_right_t(dtype, address, stride)``               the right operand from n rows of 16 numbers: one for each column of sums
``wgmma_fence(c)``                                      ``c``, before the first product after other uses of its registers
``wgmma_dot(c, a, b)``                                  ``c[i, j] + sum(a[i, k] * b[k, j])``, begun and not yet awaited
``wgmma_commit()``                                      closes a group of products that were begun
``wgmma_wait(c, groups)``                               ``c``, when at most so many groups are not done
``wgmma_store(address, stride, value)``                 64 rows of n sums to memory; of sums cast to the operands' type as well
``wgmma_row_max(tile)``, ``wgmma_row_sum(tile)``        the largest number, and the sum, of each of the 64 rows of sums
``wgmma_across(dtype, rows)``                           a tile whose rows have one number of ``rows`` in all columns
``wgmma_columns(dtype, tile, first)``                   64 rows of 16 numbers from column ``first`` on of a tile in registers: a left
                                                        operand of products
======================================================  ================================================================

Sums are a vector of their 64 n numbers, row by row, n = 64, 128, 192 or 256. The 128 threads of the group hold them together. Operands
stay in shared memory, in buffers of the scope ``shared.swizzled``: rows of 128 bytes, 32 of which are the steps of a product: 16, and 32 of
float8, whose operands have their steps side by side (``wgmma_left``, ``wgmma_right_t``). Of the rows, in which pieces of 16 bytes are
exchanged so that the memory's banks take turns. Only addresses change by that; the operations see plain rows.

Arithmetic on whole tiles of sums, number by number, is that of vectors: ``T.Cast("bfloat16x4096", c * c)``. Scalars come as
``T.Broadcast``, and ``T.Ramp(0, 1, 64 * n)`` numbers the elements, row by row. Rows' numbers, ``float32x64``, have a buffer of scope
``wgmma.rows``, and arithmetic as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtype import DType, bfloat16_from_bits, bfloat16_to_bits, from_bits, kept_as_bits
from ..nodes import Call, Expr, IntImm, Let, Select, Var
from ..op import const
from .operation_row import Effect, Evaluator, Lanes, Operation, Spelling, TypeRule, types_text

TILE_ROWS = 16
"""The number of rows of a tile."""


def check_place(address: Expr, strides: Sequence[Expr]) -> None:
    """Raise TypeError unless ``address`` is that of an element, and the strides are integers."""
    if not (isinstance(address, Call) and address.op == "tir.address_of"):
        raise TypeError(f"takes T.address_of(an element), not {address}")
    for stride in strides:
        if not stride.dtype.is_int or stride.dtype.lanes > 1:
            raise TypeError(f"the stride is {stride.dtype}, not an integer")


def _places(there: np.ndarray, stride: int, lanes: int) -> np.ndarray:
    """Return the offsets of a tile's elements in flat memory; IndexError when one is outside."""
    places = np.arange(TILE_ROWS)[:, None] * stride + np.arange(lanes // TILE_ROWS)
    if places.min() < 0 or places.max() >= there.size:
        raise IndexError(f"a tile with rows {stride} apart reaches {places.max()} elements far; there are {there.size}")
    return places.reshape(-1)


def load_tile(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    """Return the meaning of loads of tiles of type ``dtype``."""
    lanes, half = dtype.lanes, dtype.kind == "bfloat"

    def run(there: np.ndarray, stride: int) -> Any:
        values = there[_places(there, stride, lanes)]
        return bfloat16_from_bits(values) if half else values

    return run


def load_transposed(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    """Return the meaning of loads of tiles whose columns are the rows in memory."""
    load = load_tile(dtype, types)
    return lambda there, stride: load(there, stride).reshape(TILE_ROWS, -1).swapaxes(0, 1).reshape(-1)


def store_tile(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    """Return the meaning of stores of tiles, whose type is the third of ``types``."""
    lanes, half = DType(types[2]).lanes, DType(types[2]).kind == "bfloat"

    def run(there: np.ndarray, stride: int, value: Any) -> None:
        there[_places(there, stride, lanes)] = bfloat16_to_bits(value) if half else value

    return run


TILE_BYTES = 64
"""The number of bytes in a row of a tile."""


def _one_of_each(*choices: tuple[str, ...]) -> TypeRule:
    """Return the rule that each argument has one of the types listed for it. The result has the type of the first
    one."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        if not all(a.dtype in allowed for a, allowed in zip(args, choices, strict=True)):
            takes = ", ".join(" or ".join(allowed) for allowed in choices)
            raise TypeError(f"takes {takes}, not {types_text(args)}")
        return args[0].dtype

    return rule


def is_tile(dtype: DType) -> bool:
    """Return whether values of ``dtype`` are 16 rows of 64 bytes."""
    return not dtype.is_bool and dtype.lanes > 1 and dtype.bits * dtype.lanes == 8 * TILE_ROWS * TILE_BYTES


def _loaded(args: Sequence[Expr], dtype: str | None) -> str:
    _check(args, DType(dtype or ""))
    return dtype or ""


def _stored(args: Sequence[Expr], dtype: str | None) -> str:
    _check(args, args[2].dtype)
    return "void"


def _check(args: Sequence[Expr], dtype: DType) -> None:
    """Raise TypeError unless a tile of type ``dtype`` is at the address and the stride that ``args`` begin with."""
    if not is_tile(dtype):
        raise TypeError(f"{dtype} is not a tile of {TILE_ROWS} rows of {TILE_BYTES} bytes")
    check_place(args[0], args[1:2])


def _dot(width: int) -> Evaluator:
    def run(c: Any, a: Any, b: Any) -> Any:
        """Add integers in int64, wrapping at the end; add float products one after the other, rounding to float32."""
        kind = np.int64 if c.dtype == np.int32 else np.float32
        left = a.reshape(TILE_ROWS, -1, width).astype(kind)
        right = b.reshape(-1, TILE_ROWS, width).astype(kind)
        total = c.reshape(TILE_ROWS, -1).astype(kind)
        for k in range(right.shape[0]):
            for q in range(width):
                total = total + left[:, k, q, None] * right[None, k, :, q]
        return total.astype(c.dtype).reshape(-1)

    return lambda dtype, types: run


tile_load = Operation(
    "tile_load", ("address", "stride"), "16 rows of 64 bytes from memory, row r from r * stride elements on",
    _loaded, evaluate=load_tile, effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip
tile_store = Operation(
    "tile_store", ("address", "stride", "value"), "write a tile to memory in the layout that tile_load reads",
    _stored, evaluate=store_tile, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip
tile_dot4 = Operation(
    "tile_dot4", ("c", "a", "b"),
    "c[i, j] + sum(a[i, 4 * k + q] * b[k, 4 * j + q] for k in range(16) for q in range(4)), the instructions tdpbssd, "
    "tdpbsud, tdpbusd and tdpbuud; the products are exact, the sum wraps",
    _one_of_each(("int32x256",), ("uint8x1024", "int8x1024"), ("int8x1024", "uint8x1024")), evaluate=_dot(4), lanes=Lanes.NEVER,
)  # fmt: skip
tile_dot2_bf16 = Operation(
    "tile_dot2_bf16", ("c", "a", "b"),
    "c[i, j] + sum(a[i, 2 * k + q] * b[k, 2 * j + q] for k in range(16) for q in range(2)), the instruction tdpbf16ps; "
    "the products are exact in float32, the sums are rounded to nearest even in an order that the machine chooses, and "
    "subnormal numbers may count as zero",
    _one_of_each(("float32x256",), ("bfloat16x512",), ("bfloat16x512",)), evaluate=_dot(2), lanes=Lanes.NEVER,
)  # fmt: skip
TILE_DOTS = {tile_dot4.op: 4, tile_dot2_bf16.op: 2}
"""By operation: how many numbers of a row are multiplied and added at once."""


_LOST = 13
"""How many bits of a float32 matrix units do not multiply."""
SIDE = 16
"""The rows and columns of a tile."""
SUMS = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "int8": "int32", "uint8": "int32"}
"""The type of sums by that of the operands."""


def is_warp_tile(dtype: DType) -> bool:
    """Return whether values of ``dtype`` are tiles of 16 by 16 numbers."""
    return dtype.lanes == SIDE * SIDE and (dtype.element in SUMS or dtype.element in SUMS.values())


def _warp_loaded(args: Sequence[Expr], dtype: str | None) -> str:
    wanted = DType(dtype or "")
    if wanted.element not in SUMS:
        raise TypeError(f"{dtype} is no tile of an operand; there are {', '.join(f'{t}x256' for t in SUMS)}")
    _check_warp(args, wanted)
    return dtype or ""


def _warp_stored(args: Sequence[Expr], dtype: str | None) -> str:
    _check_warp(args, args[2].dtype)
    return "void"


def _check_warp(args: Sequence[Expr], dtype: DType) -> None:
    if not is_warp_tile(dtype):
        raise TypeError(f"{dtype} is not a tile of {SIDE} by {SIDE} numbers")
    check_place(args[0], args[1:2])


def _warp_dotted(args: Sequence[Expr], dtype: str | None) -> str:
    c, a, b = [x.dtype for x in args]
    if a != b or c != DType(SUMS.get(a.element, "")).with_lanes(SIDE * SIDE) or a.lanes != SIDE * SIDE:
        raise TypeError(
            f"takes sums and two operands of one type, such as float32x256 and float16x256, not {c}, {a}, {b}"
        )
    return c


def dot_of_tiles(c: Any, a: Any, b: Any) -> Any:
    """Return ``c + a @ b`` of tiles, the last 256 numbers of each. Integers wrap, floats add one product after the
    other."""
    kind = np.int64 if c.dtype.kind in "iu" else np.float32
    shape = (*c.shape[:-1], SIDE, SIDE)
    a, b = [rounded_to_tf32(x) if x.dtype == np.float32 else x for x in (a, b)]  # the others have fewer bits
    left, right, total = [x.reshape(shape).astype(kind) for x in (a, b, c)]
    for k in range(SIDE):
        total = total + left[..., :, k, None] * right[..., None, k, :]
    return total.astype(c.dtype).reshape(c.shape)


def rounded_to_tf32(x: Any) -> Any:
    """Return float32 with eleven significant bits: the nearest, away from zero between two. NaN stays."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(1 << (_LOST - 1))) & np.uint32(0xFFFFFFFF << _LOST & 0xFFFFFFFF)).view(np.float32)
    return np.where(np.isnan(x), x, rounded).astype(np.float32)[()]


def _float32(args: Sequence[Expr], dtype: str | None) -> str:
    if args[0].dtype.element != "float32":
        raise TypeError(f"takes float32, not {args[0].dtype}")
    return str(args[0].dtype)


def tf32_steps(call: Call) -> Expr:
    """Return ``round_tf32`` as operations on bits."""
    (x,) = call.args
    whole = DType("int32").with_lanes(x.dtype.lanes)
    named = Var("x", x.dtype)
    bits = Call("tir.reinterpret", (named,), whole) + const(1 << (_LOST - 1), whole)
    rounded = Call("tir.reinterpret", (Call("tir.bitwise_and", (bits, const(-1 << _LOST, whole)), whole),), x.dtype)
    return Let(named, x, Select(Call("tir.isnan", (named,), DType("bool").with_lanes(x.dtype.lanes)), named, rounded))


round_tf32 = Operation(
    "round_tf32", ("x",), "float32 rounded to eleven significant bits, halves away from zero, as matrix units of GPUs do",
    _float32, evaluate=lambda dtype, types: rounded_to_tf32, instructions=4,
)  # fmt: skip
wmma_load_a = Operation(
    "wmma_load_a", ("address", "stride"), "a tile of the left operand from memory, row r from r * stride elements on",
    _warp_loaded, evaluate=load_tile, effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip
wmma_load_b = Operation(
    "wmma_load_b", ("address", "stride"), "a tile of the right operand from memory, row r from r * stride elements on",
    _warp_loaded, evaluate=load_tile, effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip
wmma_load_a_t = Operation(
    "wmma_load_a_t", ("address", "stride"), "a tile of the left operand, column k from k * stride elements on",
    _warp_loaded, evaluate=load_transposed, effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip
wmma_load_b_t = Operation(
    "wmma_load_b_t", ("address", "stride"), "a tile of the right operand, column j from j * stride elements on",
    _warp_loaded, evaluate=load_transposed, effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip
wmma_store = Operation(
    "wmma_store", ("address", "stride", "value"), "write a tile to memory in the layout that it is loaded from",
    _warp_stored, evaluate=store_tile, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip
wmma_dot = Operation(
    "wmma_dot", ("c", "a", "b"),
    "c[i, j] + sum(a[i, k] * b[k, j] for k in range(16)); the order of the sum of floats is the machine's",
    _warp_dotted, evaluate=lambda dtype, types: dot_of_tiles, lanes=Lanes.NEVER,
)  # fmt: skip


GROUP_ROWS, GROUP_STEPS, PANEL = 64, 16, 64
"""The rows of sums, the steps of one product of half floats, and the columns that lie side by side in shared memory."""
OPERANDS, NARROW_OPERANDS = ("float16", "bfloat16"), ("float8_e4m3fn", "float8_e5m2")
"""The types of operands; sums are float32. The steps of the narrow ones lie side by side."""
WIDTHS = (64, 128, 192, 256)
"""The columns of sums."""


def group_steps(dtype: DType) -> int:
    """Return the steps of one product of operands of type ``dtype``: 32 bytes."""
    return GROUP_STEPS * 2 // dtype.element.bytes


def group_columns(dtype: DType) -> int:
    """Return the columns of sums of a warp group, or 0 for another type."""
    columns = dtype.lanes // GROUP_ROWS
    return columns if dtype.element == "float32" and columns in WIDTHS and dtype.lanes == columns * GROUP_ROWS else 0


def _group_loaded(strides: int, sides: Sequence[int], operands: Sequence[str] = OPERANDS) -> TypeRule:
    """Return the rule for operands with so many rows, or columns, of the steps of a product."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        wanted = DType(dtype or "")
        if wanted.element not in operands or wanted.lanes not in [n * group_steps(wanted) for n in sides]:
            known = ", ".join(f"{t}x{sides[0] * group_steps(DType(t))}" for t in operands)
            raise TypeError(f"{dtype} is no operand of a warp group that is loaded so; there are {known}")
        check_place(args[0], args[1 : 1 + strides])
        return dtype or ""

    return rule


ROW_TILE = DType("float32").with_lanes(GROUP_ROWS)
"""The type of one number for each row of sums."""


def tile_columns(dtype: DType) -> int:
    """Return the columns of a tile that a warp group holds in registers, or 0 for another type.

    It is sums, sums in the type of operands, or 16 columns of these, which are an operand.
    """
    columns = dtype.lanes // GROUP_ROWS
    if dtype.element in OPERANDS and dtype.lanes == columns * GROUP_ROWS and columns in (GROUP_STEPS, *WIDTHS):
        return columns
    return group_columns(dtype)


def _group_stored(args: Sequence[Expr], dtype: str | None) -> str:
    if not tile_columns(args[2].dtype) or args[2].dtype.lanes == GROUP_ROWS * GROUP_STEPS:
        _sums(args[2].dtype)
    check_place(args[0], args[1:2])
    return "void"


def _of_rows(args: Sequence[Expr], dtype: str | None) -> str:
    _sums(args[0].dtype)
    return str(ROW_TILE)


def _across(args: Sequence[Expr], dtype: str | None) -> str:
    if args[0].dtype != ROW_TILE:
        raise TypeError(f"takes {ROW_TILE}, a number for each row, not {args[0].dtype}")
    return _sums(DType(dtype or ""))


def _columns(args: Sequence[Expr], dtype: str | None) -> str:
    tile, first = args
    wanted, columns = DType(dtype or ""), tile_columns(tile.dtype)
    if columns < PANEL or wanted != tile.dtype.with_lanes(GROUP_ROWS * GROUP_STEPS) or wanted.element not in OPERANDS:
        raise TypeError(f"takes a tile such as bfloat16x4096 and gives bfloat16x1024, not {tile.dtype} and {wanted}")
    if not isinstance(first, IntImm) or first.value % GROUP_STEPS or not 0 <= first.value < columns:
        raise TypeError(f"the first column, {first}, is no multiple of {GROUP_STEPS} below {columns}")
    return str(wanted)


def tile_part(tile: Any, first: Any) -> Any:
    """Return 16 columns of tiles, whose numbers are the last dimension."""
    rows = tile.reshape(*tile.shape[:-1], GROUP_ROWS, -1)[..., int(first) : int(first) + GROUP_STEPS]
    return rows.reshape(*tile.shape[:-1], -1)


def rows_of(tile: Any, reduce: Callable[..., Any]) -> Any:
    """Return the reduction of each row of tiles, whose numbers are the last dimension."""
    return reduce(tile.reshape(*tile.shape[:-1], GROUP_ROWS, -1), axis=-1).astype(tile.dtype)


def across(rows: Any, lanes: int) -> Any:
    """Return tiles of so many numbers with one number in each row."""
    return np.repeat(rows, lanes // GROUP_ROWS, axis=-1)


def _sums(dtype: DType) -> str:
    if not group_columns(dtype):
        raise TypeError(f"{dtype} is not the sums of a warp group: float32, {GROUP_ROWS} rows of {WIDTHS}")
    return str(dtype)


def _group_dotted(args: Sequence[Expr], dtype: str | None) -> str:
    c, a, b = [x.dtype for x in args]
    out = _sums(c)
    known = a.element in (*OPERANDS, *NARROW_OPERANDS) and b.element in (
        [a.element] if a.element in OPERANDS else NARROW_OPERANDS
    )
    if not known or a.lanes != GROUP_ROWS * group_steps(a) or b.lanes != group_steps(b) * group_columns(c):
        raise TypeError(
            f"takes sums and two operands of one type (or of both float8), such as float32x4096 and float16x1024, not {c}, {a}, {b}"
        )
    return out


def _group_load(rows: int | None, transposed: bool = False) -> Evaluator:
    """Return the meaning of loads of so many rows of memory.

    None: as many as the steps of a product fill. ``transposed``: these rows are the columns of the operand.
    """

    def meaning(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
        coded, lines = kept_as_bits(dtype), rows or dtype.lanes // group_steps(dtype)
        row, column = np.arange(lines)[:, None], np.arange(dtype.lanes // lines)

        def run(there: np.ndarray, stride: int, panel: int = 0) -> Any:
            places = row * stride + column // PANEL * panel + column % PANEL
            values = there[_inside(places.T if transposed else places, there.size)]
            return from_bits(values, dtype) if coded else values

        return run

    return meaning


def _store(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    columns = DType(types[2]).lanes // GROUP_ROWS

    half = DType(types[2]).kind == "bfloat"

    def run(there: np.ndarray, stride: int, value: Any) -> None:
        places = _inside(np.arange(GROUP_ROWS)[:, None] * stride + np.arange(columns), there.size)
        there[places] = bfloat16_to_bits(value) if half else value

    return run


def _inside(places: np.ndarray, size: int) -> np.ndarray:
    if places.min() < 0 or places.max() >= size:
        raise IndexError(f"a tile reaches {places.max()} elements far; there are {size}")
    return places.reshape(-1)


def dot_of_group(c: Any, a: Any, b: Any) -> Any:
    """Return ``c + a @ b``, of one group or of several: the last dimension of each holds the numbers."""
    lead = c.shape[:-1]
    total = c.reshape(*lead, GROUP_ROWS, -1).astype(np.float32)
    left, right = (
        a.reshape(*lead, GROUP_ROWS, -1).astype(np.float32),
        b.reshape(*lead, a.shape[-1] // GROUP_ROWS, -1).astype(np.float32),
    )
    for k in range(left.shape[-1]):
        total = total + left[..., :, k, None] * right[..., None, k, :]
    return total.reshape(c.shape)


wgmma_left = Operation(
    "wgmma_left", ("address", "stride"), "64 rows of 32 bytes of shared memory, row r from r * stride elements on",
    _group_loaded(1, (GROUP_ROWS,), (*OPERANDS, *NARROW_OPERANDS)), evaluate=_group_load(GROUP_ROWS), effect=Effect.READS,
    lanes=Lanes.NEVER, spelling=Spelling.TYPED, as_stored=True,
)  # fmt: skip
wgmma_left_t = Operation(
    "wgmma_left_t", ("address", "stride"),
    "64 rows of 16 numbers, of which shared memory holds the columns: column k from k * stride elements on",
    _group_loaded(1, (GROUP_ROWS,)), evaluate=_group_load(GROUP_STEPS, transposed=True),
    effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip
wgmma_right = Operation(
    "wgmma_right", ("address", "stride", "panel"),
    "16 rows of shared memory, row r from r * stride elements on; columns 64 p and more from p * panel elements on",
    _group_loaded(2, WIDTHS), evaluate=_group_load(GROUP_STEPS), effect=Effect.READS,
    lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip
wgmma_right_t = Operation(
    "wgmma_right_t", ("address", "stride"),
    "16 rows (32 of float8), of which shared memory holds the columns: column j from j * stride elements on",
    _group_loaded(1, WIDTHS, (*OPERANDS, *NARROW_OPERANDS)), evaluate=_group_load(None, transposed=True),
    effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.TYPED, as_stored=True,
)  # fmt: skip
wgmma_fence = Operation(
    "wgmma_fence", ("c",), "sums, whose registers products may use from here on", lambda args, dtype: _sums(args[0].dtype),
    evaluate=lambda dtype, types: lambda c: c, effect=Effect.READS, lanes=Lanes.NEVER,
)  # fmt: skip
wgmma_dot = Operation(
    "wgmma_dot", ("c", "a", "b"),
    "c[i, j] + sum(a[i, k] * b[k, j] for k in range(16)), or 32 of float8, which other operations may use after wgmma_wait; the "
    "order of the sum is the machine's, and so is its precision for float8",
    _group_dotted, evaluate=lambda dtype, types: dot_of_group, effect=Effect.READS, lanes=Lanes.NEVER, as_stored=True,
)  # fmt: skip
wgmma_commit = Operation(
    "wgmma_commit", (), "nothing; the products begun since the last call are a group", lambda args, dtype: "void",
    evaluate=lambda dtype, types: lambda: None, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip
wgmma_wait = Operation(
    "wgmma_wait", ("c", "groups"), "sums, when at most so many groups of products are not done",
    lambda args, dtype: _sums(args[0].dtype), evaluate=lambda dtype, types: lambda c, groups: c, effect=Effect.READS,
    lanes=Lanes.NEVER,
)  # fmt: skip
wgmma_store = Operation(
    "wgmma_store", ("address", "stride", "value"), "write sums to memory, row r from r * stride elements on",
    _group_stored, evaluate=_store, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip
wgmma_row_max = Operation(
    "wgmma_row_max", ("tile",), "the largest number of each row of sums; NaN where a row has one", _of_rows,
    evaluate=lambda dtype, types: lambda tile: rows_of(tile, np.max), lanes=Lanes.NEVER,
)  # fmt: skip
wgmma_row_sum = Operation(
    "wgmma_row_sum", ("tile",), "the sum of each row of sums, in an order of the machine", _of_rows,
    evaluate=lambda dtype, types: lambda tile: rows_of(tile, np.sum), lanes=Lanes.NEVER,
)  # fmt: skip
wgmma_across = Operation(
    "wgmma_across", ("rows",), "a tile of sums that has the number of its row in each column", _across,
    evaluate=lambda dtype, types: lambda rows: across(rows, dtype.lanes), lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip
wgmma_columns = Operation(
    "wgmma_columns", ("tile", "first"), "16 columns of a tile in registers, as the left operand of a product", _columns,
    evaluate=lambda dtype, types: tile_part, lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip


WARP_LOADS = tuple(row.op for row in (wmma_load_a, wmma_load_b, wmma_load_a_t, wmma_load_b_t))
"""The operations that load an operand of a warp."""
GROUP_LOADS = tuple(row.op for row in (wgmma_left, wgmma_right, wgmma_left_t, wgmma_right_t))
"""The operations that name an operand of a warp group."""
TRANSPOSED_LOADS = tuple(row.op for row in (wmma_load_a_t, wmma_load_b_t, wgmma_left_t, wgmma_right_t))
"""Those of them whose rows in memory are the columns of the operand."""
