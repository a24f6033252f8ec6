"""The result of lowering: a function without blocks, its name, its target and its C parameters.

The C signature of the emitted function follows from :func:`abi_of` alone, so that the emitter, the call path and the
exported header cannot disagree: ``int32_t NAME(<one argument per Param>)``, 0 for success.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..tir.analysis.access import accesses_below
from ..tir.expr import Call, DType, Expr, IntImm, Var
from ..tir.expr.intrinsics import Effect, effect_of
from ..tir.stmt import AssertStmt, Block, Buffer, BufferStore, IRModule, PrimFunc, statements
from ..tir.storage_types import STORED_NUMBERS, STORED_TYPES
from ..tir.walk import nodes_by_type, pre_order

if TYPE_CHECKING:
    from .machine.target import Target


SIZE = "int64"
"""The C type of a symbolic size, whatever the type of its variable."""
REGISTER_SCOPE = "register"
"""The scope of buffers of shape ``()`` that are values in registers."""
ALIGNED_ARRAYS = "aligned_buffers"
"""The attribute of a function whose arrays always begin with a line of the caches: no tile is shifted to one."""

NONTEMPORAL_ATTR = "nontemporal_store"
"""The attribute that the emitter reads: 1 around stores whose alignment it has to prove, :data:`ALIGNED` around stores
whose full vectors are known to be aligned."""
ALIGNED = 2
OUT_OF_MEMORY = -1
"""The return value when there was no scratch memory."""
NULL_ARRAY = -3
"""The return value when an array that has elements is at the address 0."""
NO_TILES = -2
"""The return value when the operating system does not permit the use of tile registers."""
MISALIGNED = -4
"""The return value when an address is not a multiple of what it has to be: the element's size, of a workspace 64."""
WRONG_SIZE = -5
"""The return value when a size is negative, or the bytes of an array would not fit 63 bits."""
NOT_LOADED = -6
"""The return value when the constants are in a file that was not loaded."""
WRONG_SHAPE = -7
"""What the classes for C++ return when a shape or a number of elements is another one."""
OVERLAP = -8
"""What the classes for C++ return when an array that is written shares memory with another one."""
NO_VERSION = -9
"""The return value on a processor for which a library of several versions has none."""
FAILURES = {
    OUT_OF_MEMORY: "no memory for its scratch buffers",
    NO_TILES: "the operating system does not let this process use AMX's tile registers "
    "(arch_prctl refused); build for a target with -mattr=-amx-tile",
    NULL_ARRAY: "an array with elements is NULL",
    MISALIGNED: "an array is not aligned to its elements, or the workspace not as the header says",
    WRONG_SIZE: "a size is negative or too large",
    NOT_LOADED: "the file of the weights is not loaded",
    WRONG_SHAPE: "an array has another shape or another number of elements",
    NO_VERSION: "the library has no version for this processor",
    OVERLAP: "an array that is written shares memory with another one",
}
"""What the negative return values of emitted functions mean; positive ones are numbers of assertions."""


@dataclass(frozen=True, slots=True)
class Param:
    """A ``Param`` is one argument of the emitted C function.

    ``kind``: ``buffer`` (a pointer to the first element), ``scalar`` (a value of ``dtype``) or ``size`` (a symbol of
    some buffer's shape, stride or offset that is not a parameter: passed as int64, computed from the arrays by the
    caller). ``dtype`` is the element type of a buffer. ``writes``: the function may store through the pointer.
    ``stored``: the storage type that the bytes of a buffer hold (:mod:`..tir.storage_types`), "" for others, and
    ``numbers`` how many of them a row has, 0 where that is not known.
    """

    kind: str
    var: Var
    dtype: DType
    buffer: Buffer | None = None
    writes: bool = False
    stored: str = ""
    numbers: int = 0

    @property
    def name(self) -> str:
        """Return the buffer's or the variable's name."""
        return self.buffer.name if self.buffer is not None else self.var.name

    @property
    def llvm_type(self) -> str:
        """Return the LLVM type of the argument: ``ptr``, or the scalar's type. Scalars of float16 and bfloat16 are
        passed as their 16 bits (``i16``), bool as a byte (``i8``)."""
        if self.kind == "buffer" or self.dtype == "handle":
            return "ptr"
        kind, bits = self.dtype.kind, self.dtype.bits
        if kind == "float" and bits > 16:
            return "float" if bits == 32 else "double"
        return f"i{max(8, bits)}"


@dataclass(frozen=True, slots=True, eq=False)
class LoweredFunc:
    """A ``LoweredFunc`` is ready for the emitter. ``scheduled`` is the function before lowering, for display."""

    func: PrimFunc = field(repr=False)
    name: str
    target: Target
    params: tuple[Param, ...] = field(repr=False)
    scheduled: PrimFunc | None = field(default=None, repr=False)

    @staticmethod
    def of(func: PrimFunc, target: Target, name: str | None = None, scheduled: PrimFunc | None = None) -> LoweredFunc:
        """Return ``func`` with the parameters that :func:`abi_of` finds, and its own name unless one is given."""
        return LoweredFunc(func, name or func.name, target, abi_of(func), scheduled)

    def assertions(self) -> list[AssertStmt]:
        """Return what the function asserts: it returns n when the n-th does not hold."""
        return [*{id(n): n for n in statements(self.func) if isinstance(n, AssertStmt)}.values()]

    def script(self) -> str:
        """Return the lowered function's text."""
        return self.func.script()


def functions_of(module: Any) -> Mapping[str, Any] | None:
    """Returns the functions by name of an IRModule, a Schedule or a mapping; None for other objects. A Schedule holds
    one function."""
    module = getattr(module, "mod", module)
    functions = module.functions if isinstance(module, IRModule) else module
    return functions if isinstance(functions, Mapping) else None


def abi_of(func: PrimFunc) -> tuple[Param, ...]:
    """Returns the C parameters of ``func``: its own parameters, then the symbolic sizes that are not parameters.

    The sizes are in order of first appearance in the buffers' shapes, strides and offsets. ValueError for a parameter of a type
    narrower than a byte that no array holds, such as int1.
    """
    written = written_data(func)
    out: list[Param] = []
    stored = dict(zip(func.params, func.attrs.get(STORED_TYPES, ()), strict=False))
    numbers = dict(zip(func.params, func.attrs.get(STORED_NUMBERS, ()), strict=False))
    for var in func.params:
        buffer = func.buffer_map.get(var)
        element = (var if buffer is None else buffer).dtype
        if element.is_int and element.bits < 8:
            name, wide = (var if buffer is None else buffer).name, element.kind + "8"
            raise ValueError(
                f"{func.name}: {name} is an argument of {element}, and an argument is at least a byte wide; declare it as "
                f'{wide}, and write .astype("{element}") where the narrow type is meant'
            )
        if buffer is not None:
            row = numbers.get(var, 0)  # a constant in a program that was parsed
            kept, row = str(stored.get(var, "")), int(getattr(row, "value", row))
            out.append(Param("buffer", var, buffer.dtype, buffer, buffer.data in written, kept, row))
        else:
            out.append(Param("scalar", var, var.dtype))
    out.extend(Param("size", var, DType(SIZE)) for var in size_vars(func))
    return tuple(out)


def size_vars(func: PrimFunc) -> tuple[Var, ...]:
    """Returns the variables in the parameters' shapes, strides and offsets that are not parameters themselves."""
    found: dict[Var, None] = {}
    params = set(func.params)
    for buffer in func.buffers:
        for expr in (*buffer.shape, *buffer.strides, buffer.elem_offset):
            for node in pre_order(expr):
                if isinstance(node, Var) and node not in params:
                    found.setdefault(node)
    return tuple(found)


MOST_BYTES = 1 << 62
"""How many bytes an array may have: addresses and sizes stay far from where 64 bits end."""


@dataclass(frozen=True)
class CountedExtents:
    """What a function asks of symbolic extents before it counts elements. Each of ``alone`` is in 0 … most, and the product
    of each list of ``together`` times its number is at most :data:`MOST_BYTES`."""

    alone: Sequence[tuple[Expr, int]]
    together: Sequence[tuple[Sequence[Expr], int]]


def counted_extents(params: Sequence[Param]) -> CountedExtents:
    """Returns what has to hold of the extents of these arrays that are no numbers."""
    alone: dict[Expr, int] = {}
    together: dict[tuple[Expr, ...], int] = {}
    for p in params:
        if p.buffer is None:
            continue
        open_ones = tuple([e for e in p.buffer.shape if not isinstance(e, IntImm)])
        per = math.prod([e.value for e in p.buffer.shape if isinstance(e, IntImm)]) * p.dtype.bytes
        for e in open_ones:
            alone[e] = min(alone.get(e, MOST_BYTES), MOST_BYTES // max(per, 1))
        if len(open_ones) > 1:
            together[open_ones] = max(together.get(open_ones, 1), per)
    return CountedExtents([*alone.items()], [*together.items()])


def natural_alignment(p: Param) -> int:
    """Returns of how many bytes the address of an array is a multiple: those of its element, at most 8."""
    return min(p.dtype.bytes & -p.dtype.bytes, 8)


def written_data(func: PrimFunc) -> set[Var]:
    """Returns the data pointers that ``func`` may store through.

    They belong to targets of stores, regions that blocks write, and buffers whose address is passed to a call.
    """
    nodes = nodes_by_type(func.body)
    if Block not in nodes and not _has_pointers(nodes) and not writes_through_pointers(nodes):
        return {store.buffer.data for store in nodes.get(BufferStore, ())}
    found = accesses_below(func.body)
    written = {a.buffer.data for a in found.all if a.is_store}
    written.update([p.data for p in found.pointers if p.data is not None and p.may_write])
    source = {m.buffer.data: m.source.buffer.data for m in found.matches}
    for data in tuple(written):
        while data in source:
            data = source[data]
            written.add(data)
    return written


def writes_through_pointers(nodes: Mapping[type, Sequence[Any]]) -> bool:
    """Returns whether a function of these nodes, by their types, holds calls that may write through a pointer.

    Those are foreign functions, and all that get the address of an element, but for calls that only look at it (a prefetch).
    """
    calls: Sequence[Call] = nodes.get(Call, ())
    if any([call.op == "tir.call_extern" for call in calls]):
        return True
    taken = {call for call in calls if call.op == "tir.address_of"}
    if not taken or _has_pointers(nodes):
        return bool(taken)
    looked_at = {a for call in calls if effect_of(call) is Effect.READS for a in call.args}
    passed_on = {a for call in calls if effect_of(call) is not Effect.READS for a in call.args}
    return not taken <= looked_at - passed_on


def _has_pointers(nodes: Mapping[type, Sequence[Any]]) -> bool:
    """Returns whether there are variables that hold addresses."""
    return any([var.dtype == "handle" for var in nodes.get(Var, ())])


KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool "
    "class new delete this template typename namespace operator private public protected virtual "
    "alignas alignof and and_eq asm bitand bitor catch char8_t char16_t char32_t compl concept consteval constexpr constinit "
    "const_cast co_await co_return co_yield decltype dynamic_cast explicit export false friend mutable noexcept not not_eq nullptr "
    "or or_eq reinterpret_cast requires static_assert static_cast thread_local throw true try typeid using wchar_t xor xor_eq".split()
)
"""The words of C and C++ that no function can have as its name."""


def symbol_problem(name: str) -> str:
    """Returns what speaks against a function of that name in a C program; empty when nothing does."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        return f"{name!r} is not a C identifier, so it cannot name a compiled function"
    if name in KEYWORDS:
        return f"{name!r} is a word of C or C++, so no function can have that name there"
    if name.startswith("tw_"):
        return f"{name!r} begins with tw_, as the names of the runtime do"
    return f"{name!r} is where a C program starts, so no library may have it" if name == "main" else ""


def usable_symbol(name: str) -> str:
    """Returns ``name`` as far as it is a C identifier and no word of C: other letters become ``_``.

    >>> usable_symbol("double"), usable_symbol("größe"), usable_symbol("relu")
    ('double_', 'gr__e', 'relu')
    """
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    plain = plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"
    return f"{plain}_" if plain in KEYWORDS else plain
