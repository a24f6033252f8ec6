"""Writes statements in C, and has what is in scope meanwhile: names, lines, indices, places of accesses.

OpenMP distributes the loops that are parallel.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import reduce

from ...tir.expr import (
    Add,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    DType,
    Expr,
    IntImm,
    Let,
    Mul,
    Or,
    Ramp,
    Var,
    index_like,
    product,
)
from ...tir.expr.intrinsics import Effect, effect_of
from ...tir.stmt import AssertStmt, Buffer, For, IfThenElse, Stmt, While
from ...tir.walk import pre_order
from ..backend.analyses import asserts
from ..backend.emitter import EmitError, Emitter, EmitterTables, Unit, elements_of
from ..lowered import (
    MISALIGNED,
    MOST_BYTES,
    NULL_ARRAY,
    WRONG_SIZE,
    LoweredFunc,
    Param,
    counted_extents,
    natural_alignment,
)
from .inline_functions import CEmitError, Helpers, scalar_type


class CUnit(Unit):
    """What the parts of one function share: the inline functions of the file and the names that are taken."""

    def __init__(self, lowered: LoweredFunc, tables: EmitterTables, helpers: Helpers) -> None:
        super().__init__(lowered, tables)
        self.helpers = helpers
        self.taken: set[str] = set()
        self.numbers: dict[str, int] = {}
        """The next number that may be free, by the name that it is appended to."""


class CScope(Emitter[str]):
    """The state of a writer of C. Every value is text that may stand as an operand."""

    form = "C"
    error: type[EmitError] = CEmitError
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
        self.wraps = False
        """Whether index arithmetic is on data at present."""
        self.scopes: list[EvaluationPoint] = []
        """Where values can be named: in front of this statement, then in guarded operands, from outside to inside."""

    def put(self, text: str) -> None:
        """Write one line."""
        self.lines.append("  " * self.depth + text)

    def name(self, hint: str) -> str:
        """Return a fresh C identifier."""
        base = "".join(ch if ch.isascii() and (ch.isalnum() or ch == "_") else "_" for ch in hint) or "v"
        base = base if not base[0].isdigit() else f"_{base}"
        text, n = base, self.unit.numbers.get(base, 1)
        while text in self.unit.taken:
            text, n = f"{base}_{n}", n + 1
        self.unit.taken.add(text)
        self.unit.numbers[base] = n
        return text

    # -- values that are used several times ------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> None:
        """Write a statement; values that it uses several times are named in front of it."""
        outer, roots = self.scopes, evaluated_once(s)
        self.scopes = [EvaluationPoint(shared_values(roots, self.registers) if roots else (), self.put)]
        super().stmt(s)
        self.scopes = outer

    def value(self, e: Expr) -> str:
        """Return a value, or the name of one that is used several times."""
        for scope in self.scopes:
            if e in scope.shared and not index_like(e):
                return self._once(scope, e, self.helpers.vector(e.dtype), super().value)
        return super().value(e)

    def index(self, e: Expr) -> str:
        """Return a scalar integer in 64 bits, or the name of one that is used several times."""
        for scope in self.scopes:
            if e in scope.shared and index_like(e):
                return self._once(scope, e, self.kind_of(e), self._index)
        return self._index(e)

    def _index(self, e: Expr) -> str:
        """Return an index. Arithmetic on 64-bit data, which is among the operands, wraps."""
        outer, self.wraps = self.wraps, self.wraps or (isinstance(e, BinaryOp) and any(
            [isinstance(n, Var) and n.dtype == "int64" and n not in self.indices for n in pre_order(e)]))  # fmt: skip
        text = super().index(e)
        self.wraps = outer
        return text

    def part(self, e: Expr) -> tuple[str, str]:
        """Return the statements that a value needs under a condition, or in the scope of a variable, and the value."""
        lines: list[str] = []
        self.scopes = [*self.scopes, EvaluationPoint(shared_values([e], self.registers), lines.append)]
        text = self.value(e)
        self.scopes = self.scopes[:-1]
        return " ".join(lines), text

    def guarded(self, e: Expr) -> str:
        """Return such a value as one expression: what it names stays inside."""
        lines, text = self.part(e)
        return f"({{ {lines} {text}; }})" if lines else text

    def _once(self, scope: EvaluationPoint, e: Expr, kind: str, write: Callable[[Expr], str]) -> str:
        """Return the name of a value, which its scope declares when it is first used."""
        if e not in scope.names:
            inner = self.scopes
            self.scopes = inner[: inner.index(scope) + 1]
            text, name = write(e), self.name("shared")
            self.scopes = inner
            scope.put(self.constant(kind, name, text))
            scope.names[e] = name
        return scope.names[e]

    def constant(self, kind: str, name: str, text: str) -> str:
        """Return the declaration of a value with a name."""
        return f"const {kind} {name} = {text};"

    # -- indices ---------------------------------------------------------------------------------------------------

    def index_kind(self, dtype: DType) -> str:
        """Return the C type of an index. Where addresses have 32 bits, int32 holds what the program says that it
        holds (:mod:`tilewright.tir.index_width`); wider arithmetic would be slow there."""
        return "int32_t" if self.target.is_freestanding and dtype.bits <= 32 else "int64_t"

    def kind_of(self, e: Expr) -> str:
        """Return the C type of a variable that holds an index."""
        return self.index_kind(e.dtype)

    def index_constant(self, value: int) -> str:
        return str(value)

    def widened(self, value: str, dtype: DType) -> str:
        return f"({self.index_kind(dtype)}){value}"

    def index_operation(self, operation: str, a: str, b: str) -> str:
        if operation in ("//", "%"):
            return f"{self.helpers.plain('floordiv' if operation == '//' else 'floormod')}({a}, {b})"
        if operation in ("min", "max"):
            return f"{self.helpers.extreme(operation == 'max', DType('int64'))}({a}, {b})"
        if self.wraps and operation in ("+", "-", "*"):
            return f"((int64_t)((uint64_t){a} {operation} (uint64_t){b}))"
        return f"({a} {operation} {b})"

    # -- places ----------------------------------------------------------------------------------------------------

    def space(self, buffer: Buffer) -> str:
        """Return the words for the memory that a buffer lies in. C has one memory, and none."""
        return ""

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
                    apart = "" if one else self.splat(self.index(step), DType("int64"), lanes)
                    vectors.append(text if one else self.arithmetic(Mul, text, apart, wide))
        offset = [index * step if where.unit == 1 else index * step * where.unit for index, step in start]
        total = self.total([o for o in offset if not (isinstance(o, IntImm) and o.value == 0)])
        pointer = self.base(buffer)
        pointer = f"({pointer} + {total})" if total else pointer
        if contiguous:
            return pointer, None
        wide = DType("int64").with_lanes(lanes)
        kind = self.helpers.vector(wide)
        vectors += [self.helpers.literal(kind, range(lanes))] * even
        if not vectors:
            return pointer, self.helpers.literal(kind, [0])
        return pointer, reduce(lambda a, b: self.arithmetic(Add, a, b, wide), vectors)

    def total(self, offsets: Sequence[Expr]) -> str:
        """Return the sum of indices, without parentheses; empty without any."""
        return " + ".join([self.index(o) for o in offsets])

    @abstractmethod
    def converted(self, text: str, source: DType, to: DType, in_range: bool = False) -> str:
        """Return a value of type ``source`` as ``to``."""


def element(pointer: str) -> str:
    """Returns the element at a pointer that :meth:`CScope.place` gave: ``A[i]`` for ``(A + i)``."""
    if not pointer.startswith("("):
        return f"{pointer}[0]"
    name, offset = pointer[1:-1].split(" + ", 1)
    return f"{name}[{offset}]"


# Finds the values that C names once because several places use them. Written out at each place, the text would double
# with every level of a program whose values share their parts.

LARGEST_REPEATED = 12
"""How many nodes a value may have that is written out wherever it is used."""


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationPoint:
    """A place in the text where values are evaluated whatever happens. It stands in front of a statement, or in an
    operand that a condition guards. ``shared`` are the values it names, ``names`` those that it has named, ``put``
    writes a line."""

    shared: Collection[Expr]
    put: Callable[[str], None]
    names: dict[Expr, str] = field(default_factory=dict)


def evaluated_once(s: Stmt) -> list[Expr]:
    """Returns the expressions that a statement evaluates once, in front of its body."""
    return [] if isinstance(s, While) else [part for part in s.children() if isinstance(part, Expr)]


def shared_values(roots: Sequence[Expr], registers: Collection[Buffer]) -> Collection[Expr]:
    """Returns the values below ``roots`` that several operations use and that are evaluated in any case.

    Parts are the same when they are one object. There are none where a call may write memory, since its place among the
    loads matters.
    """
    uses = _uses(roots)
    shared = [e for e, n in uses.items() if n > 1 and _is_large(e, registers)]
    if not shared or any([isinstance(e, Call) and effect_of(e) is Effect.WRITES for e in uses]):
        return ()
    always = set(roots)
    todo = list(always)
    while todo:
        new = [part for part in _always_evaluated(todo.pop()) if part not in always]
        always.update(new)
        todo += new
    return {e for e in shared if e in always and e.dtype.kind not in ("handle", "void")}


def _uses(roots: Sequence[Expr]) -> dict[Expr, int]:
    """Returns how often C mentions each part of ``roots`` when every part is written once."""
    uses = dict(Counter(roots))
    todo = list(uses)
    while todo:
        e = todo.pop()
        parts = e.children()
        for part in parts * 2 if isinstance(e, Call) and e.op == "tir.isnan" else parts:
            if part not in uses:
                uses[part] = 0
                todo.append(part)
            uses[part] += 1
    return uses


def _always_evaluated(e: Expr) -> Sequence[Expr]:
    """Returns the operands that are evaluated whenever ``e`` is; others a condition guards, or their variables have a
    scope."""
    if isinstance(e, (And, Or)) and e.dtype.lanes == 1:
        return (e.a,)
    if isinstance(e, Let):
        return (e.value,)
    if isinstance(e, Call) and e.op == "tir.if_then_else":
        return e.args[: 1 if e.args[0].dtype.lanes == 1 else 2]
    return e.children()


def _is_large(e: Expr, registers: Collection[Buffer]) -> bool:
    """Returns whether ``e`` has too many nodes to be written out more than once."""
    todo, count = [e], 0
    while todo and count <= LARGEST_REPEATED:
        part = todo.pop()
        count += 1
        if not isinstance(part, Var) and not (isinstance(part, BufferLoad) and part.buffer in registers):
            todo += part.children()
    return count > LARGEST_REPEATED


def block(em: CScope, head: str, body: Stmt, first: str = "") -> None:
    """Write a statement in braces, after the line ``first`` if there is one."""
    em.put(f"{head} {{")
    em.depth += 1
    if first:
        em.put(first)
    em.stmt(body)
    em.depth -= 1
    em.put("}")


def branch(em: CScope, s: IfThenElse) -> None:
    """Write an if."""
    block(em, f"if ({em.value(s.condition)})", s.then_case)
    if s.else_case is not None:
        block(em, "else", s.else_case)


def while_loop(em: CScope, s: While) -> None:
    """Write a loop that tests its condition before each iteration."""
    block(em, f"while ({em.guarded(s.condition)})", s.body)


def loop_head(em: CScope, s: For) -> str:
    """Returns the head of a loop, counted in 64 bits. Bounds that are read from memory are read once, in front of it."""
    name = em.vars[s.loop_var] = em.name(s.loop_var.name)
    em.indices.add(s.loop_var)
    low, extent = em.index(s.min), em.index(s.extent)
    if any(isinstance(n, (BufferLoad, Call)) for e in (s.min, s.extent) for n in pre_order(e)):
        kind = em.kind_of(s.loop_var)
        low, extent = _fixed(em, f"{name}_min", low, kind), _fixed(em, f"{name}_extent", extent, kind)
    start = isinstance(s.min, IntImm) and s.min.value == 0
    return (
        f"for ({em.kind_of(s.loop_var)} {name} = {low}; {name} < {extent if start else f'{low} + {extent}'}; ++{name})"
    )


def _fixed(em: CScope, hint: str, text: str, kind: str) -> str:
    """Write the declaration of an integer and return its name; a number is returned as it is."""
    if text.isdecimal():
        return text
    name = em.name(hint)
    em.put(f"const {kind} {name} = {text};")
    return name


def serial_loop(em: CScope, s: For) -> None:
    """Write a loop whose iterations run in order."""
    block(em, loop_head(em, s), s.body)


def parallel_loop(em: CScope, s: For) -> None:
    """Write a loop whose iterations OpenMP distributes."""
    head, can_fail = loop_head(em, s), asserts(s.body)
    em.in_parallel, em.outside = True, len(em.scratch)
    em.regions += 1
    failed = f"tw_failed{em.regions}"
    if can_fail:
        em.put(f"int32_t {failed} = 0;")
    pragma(em, f"parallel for schedule(static) num_threads({em.target.num_cores})")
    block(em, head, s.body)
    em.in_parallel = False
    if can_fail:
        em.lines.insert(len(em.lines) - 1, f"{'  ' * em.depth}tw_next{em.regions}:;")
        frees = "".join(f"free({pointer}); " for pointer in reversed(em.scratch))
        em.put(f"if ({failed}) {{ {frees}return {failed}; }}")


def pragma(em: CScope, text: str) -> None:
    """Write a pragma of OpenMP; strict C shows it to compilers with OpenMP only, since others may warn."""
    lines = [f"#pragma omp {text}"]
    for line in ["#ifdef _OPENMP", *lines, "#endif"] if em.target.is_portable_c else lines:
        em.put(line)


def check_arrays(em: CScope, params: Sequence[Param], names: Sequence[str]) -> None:
    """Write tests that end the function for sizes that cannot be. They also look for arrays that have elements but are
    NULL, or are not aligned to them."""
    wrong, missing, crooked = [], [], []
    counted = counted_extents(params)
    for e, most in counted.alone:
        text = em.index(e)
        wrong.append(f"{text} < 0 || (int64_t){text} > {most}")
    for extents, per in counted.together:
        factors = [f"(double){em.index(e)}" for e in extents]
        wrong.append(f"{' * '.join([f'{float(per)!r}', *factors])} > {float(MOST_BYTES)!r}")
    for p, name in zip(params, names, strict=True):
        if p.buffer is None:
            continue
        elements = product(p.buffer.shape)
        if isinstance(elements, IntImm) and elements.value == 0:
            continue
        some = "" if isinstance(elements, IntImm) else f" && {em.index(elements)} != 0"
        missing.append(f"(!{name}{some})" if some else f"!{name}")
        step = natural_alignment(p)
        if step > 1:
            crooked.append(f"((uintptr_t){name} % {step}{some})")
    for tests, code in ((wrong, WRONG_SIZE), (missing, NULL_ARRAY), (crooked, MISALIGNED)):
        if tests:
            em.put(f"if ({' || '.join(tests)}) return {code};")


def assertion(em: CScope, holds: str, s: AssertStmt, number: int) -> None:
    """Leave the function with the number of the message. A parallel loop ends its iteration and keeps the largest
    number."""
    em.put(f"if (!{holds}) {{ /* {s.message.replace('*/', '* /')} */")
    em.depth += 1
    if not em.target.is_freestanding:  # whose memory is static
        for pointer in reversed(em.scratch[em.outside if em.in_parallel else 0 :]):
            free(em, pointer)
    if em.in_parallel:
        failed = f"tw_failed{em.regions}"
        pragma(em, "critical (tw_failed)")
        em.put(f"if ({failed} < {number}) {failed} = {number};")
        em.put(f"goto tw_next{em.regions};")
    else:
        em.put(f"return {number};")
    em.depth -= 1
    em.put("}")


def evaluated(em: CScope, value: str) -> None:
    """Write a value as a statement."""
    em.put(f"{value};")


def store(
    em: CScope, buffer: Buffer, indices: tuple[Expr, ...], value: str, dtype: DType, predicate: Expr | None
) -> None:
    """Write a store to memory."""
    lanes = dtype.lanes
    pointer, at = em.place(buffer, indices, lanes)
    if lanes == 1:
        em.put(f"{element(pointer)} = {value};")
        return
    kind = em.helpers.vector(dtype)
    if dtype.is_bool:
        kind = em.helpers.vector_named(f"u8x{lanes}")
        value = f"({kind})(-{value})"
    if predicate is None and at is None:
        em.put(f"*({kind}_u *){pointer} = {value};")
        return
    mask = "" if predicate is None else f", {em.value(predicate)}"
    what = ("mask" if mask else "") + ("store" if at is None else "scatter")
    where = "" if at is None else f", {at}"
    em.put(f"{em.helpers.memory(what, dtype)}({pointer}{where}, {value}{mask});")


def new_register(em: CScope, buffer: Buffer) -> str:
    """Returns the name of a register value, which is initialized, since a masked store chooses between old and new
    lanes."""
    kind, name = em.helpers.vector(buffer.dtype), em.name(buffer.name)
    em.put(f"{kind} {name} = {{0}};")
    return name


def set_register(em: CScope, buffer: Buffer, value: str) -> None:
    """Write an assignment to a register value."""
    em.put(f"{em.registers[buffer]} = {value};")


def stack_memory(em: CScope, buffer: Buffer, elements: int) -> str:
    """Returns the name of an array on the stack."""
    name = em.name(buffer.name)
    em.put(f"{scalar_type(buffer.dtype.element)} {name}[{elements}] __attribute__((aligned(64)));")
    return name


def scratch_memory(em: CScope, buffer: Buffer, elements: int | None) -> str:
    """Returns the name of a pointer to memory on the heap."""
    amount = em.index(elements_of(buffer)) if elements is None else str(elements)
    scratch, name = em.helpers.plain("scratch"), em.name(buffer.name)
    base = scalar_type(buffer.dtype.element)
    em.put(f"{base} *restrict {name} = {scratch}({amount} * {buffer.dtype.bytes});")
    return name


def free(em: CScope, pointer: str) -> None:
    """Give memory on the heap back."""
    em.put(f"free({pointer});")
