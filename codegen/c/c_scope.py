"""What is in scope while C is written: names, lines, 64-bit indices, and the places of accesses."""

from __future__ import annotations

from abc import abstractmethod

from ...tir.expr import Broadcast, DType, Expr, IntImm, Ramp
from ...tir.stmt import Buffer
from ..backend.emitter import Emitter, Tables, Unit
from ..lowered import LoweredFunc
from .inline_functions import CEmitError, Helpers


class CUnit(Unit):
    """What the parts of one function share: the inline functions of the file and the names that are taken."""

    def __init__(self, lowered: LoweredFunc, tables: Tables, helpers: Helpers) -> None:
        super().__init__(lowered, tables)
        self.helpers = helpers
        self.taken: set[str] = set()


class CScope(Emitter):
    """The state of a writer of C. Every value is text that may stand as an operand."""

    form, error = "C", CEmitError
    unit: CUnit

    def __init__(self, unit: CUnit) -> None:
        super().__init__(unit)
        self.helpers = unit.helpers
        self.lines: list[str] = []
        self.depth = 1
        self.regions = 0
        """The number of parallel loops so far."""
        self.outside = 0
        """The number of blocks of scratch memory that were allocated outside the parallel loop."""

    def put(self, text: str) -> None:
        """Write one line."""
        self.lines.append("  " * self.depth + text)

    def name(self, hint: str) -> str:
        """Return a fresh C identifier."""
        base = "".join(ch if ch.isascii() and (ch.isalnum() or ch == "_") else "_" for ch in hint) or "v"
        base = base if not base[0].isdigit() else f"_{base}"
        text, n = base, 1
        while text in self.unit.taken:
            text, n = f"{base}_{n}", n + 1
        self.unit.taken.add(text)
        return text

    # -- indices ---------------------------------------------------------------------------------------------------

    def widened(self, text: str, dtype: DType) -> str:
        return f"(int64_t){text}"

    def index_operation(self, operation: str, a: str, b: str) -> str:
        if operation in ("//", "%"):
            return f"{self.helpers.plain('floordiv' if operation == '//' else 'floormod')}({a}, {b})"
        if operation in ("min", "max"):
            return f"{self.helpers.extreme(operation == 'max', DType('int64'))}({a}, {b})"
        return f"({a} {operation} {b})"

    # -- places ----------------------------------------------------------------------------------------------------

    def place(self, buffer: Buffer, indices: tuple[Expr, ...], lanes: int) -> tuple[str, str | None]:
        """Return a pointer to the first element, and a vector of offsets from it unless the lanes are contiguous."""
        where = self.lane_offsets(buffer, indices)
        contiguous = lanes == 1 or where.distance == 1
        start = where.start if contiguous else ((buffer.elem_offset, IntImm(1)),)
        vectors: list[str] = []
        even = 0
        if not contiguous:
            for index, step in zip(indices, self.unit.strides(buffer), strict=True):
                one = isinstance(step, IntImm) and step.value == 1
                if index.dtype.lanes == 1 or isinstance(index, Broadcast):
                    start += ((index.value if isinstance(index, Broadcast) else index, step),)
                elif isinstance(index, Ramp) and one and isinstance(index.stride, IntImm) and index.stride.value == 1:
                    start += ((index.base, step),)
                    even += 1
                else:
                    wide = DType("int64").with_lanes(lanes)
                    text = self.converted(self.value(index), index.dtype, wide)
                    vectors.append(text if one else f"{text} * {self.splat(self.index(step), DType('int64'), lanes)}")
        offset = [index * step if where.unit == 1 else index * step * where.unit for index, step in start]
        total = " + ".join(self.index(o) for o in offset if not (isinstance(o, IntImm) and o.value == 0))
        pointer = self.base(buffer)
        pointer = f"({pointer} + {total})" if total else pointer
        if contiguous:
            return pointer, None
        kind = self.helpers.vector(DType("int64").with_lanes(lanes))
        if even:
            vectors.append(" + ".join([f"({kind}){{{', '.join(map(str, range(lanes)))}}}"] * even))
        return pointer, " + ".join(vectors) if vectors else f"({kind}){{0}}"

    @abstractmethod
    def converted(self, text: str, source: DType, to: DType) -> str:
        """Return a value of type ``source`` as ``to``."""
