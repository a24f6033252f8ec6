"""Kernels as WGSL, the language of WebGPU.

=============================  =====================================================================================
in the program                 in the text
=============================  =====================================================================================
loops on ``blockIdx.x``        ``i32(workgroup_id.x)``
loops on ``threadIdx.x``       ``i32(local_invocation_id.x)``; the entry point has ``@workgroup_size``
arrays that it uses            ``var<storage>`` of group 0, numbered in the order of the kernel's parameters
sizes and other variables      one ``var<uniform>`` structure, the binding after the arrays
buffers of the scope shared    ``var<workgroup>`` arrays
buffers of the scope local     ``var`` arrays of the function
barriers                       ``workgroupBarrier()``, with ``storageBarrier()`` where the kernel reads what it writes there
assertions                     the last binding, an ``atomic<i32>`` that holds the number of one that failed
=============================  =====================================================================================

Before::

    for blockIdx_x in T.thread_binding(4, thread="blockIdx.x"):
        for threadIdx_x in T.thread_binding(256, thread="threadIdx.x"):
            B[blockIdx_x * 256 + threadIdx_x] = A[blockIdx_x * 256 + threadIdx_x] * T.float32(2)

After::

    @group(0) @binding(0) var<storage, read> A: array<f32>;
    @group(0) @binding(1) var<storage, read_write> B: array<f32>;
    @compute @workgroup_size(256, 1, 1)
    fn main_kernel0(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_id) local_invocation_id: vec3<u32>) {
      let blockIdx_x = i32(workgroup_id.x);
      let threadIdx_x = i32(local_invocation_id.x);
      B[((blockIdx_x * 256) + threadIdx_x)] = (A[((blockIdx_x * 256) + threadIdx_x)] * 2f);
    }

Indices are 32-bit integers, and no array may have more elements than these count.

Drivers that run on processors compute the threads of a block as the lanes of vectors. Mesa's lavapipe (22.3) lets lanes behind the
last thread take part in the tests of loops, with zeros for what they read from memory, so a ``while`` loop ends for good where
:meth:`WgslEmitter.while_loop` sees that its lane is no thread. It also leaves all loops of a vector after 65535 iterations
together. Kernels can be *watched*: one whose loops were left sets the flag of the assertions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from ...codegen.backend.emitter import (
    EXPRESSIONS,
    STATEMENTS,
    EmitterTables,
    constant_elements,
    expand_dot,
)
from ...codegen.c.c_stmt import CScope, CUnit, block
from ...codegen.lowered import REGISTER_SCOPE, LoweredFunc, Param
from ...codegen.machine.target import Target
from ...tir.expr import BufferLoad, Call, DType, Expr, IntImm, Range, index_like, max_value
from ...tir.expr import nodes as E
from ...tir.expr.deep_recursion import with_room
from ...tir.expr.dtype import float_bits, round_float
from ...tir.expr.intrinsics.number_operations import DOT_PRODUCTS
from ...tir.stmt import Allocate, AssertStmt, Buffer, BufferStore, For, IfThenElse, PrimFunc, Stmt, While
from ...tir.walk import loads_and_stores, nodes_by_type, pre_order, statements
from ..launch.barriers import BARRIER, is_barrier
from ..launch.kernels import GpuKernel
from ..launch.launch_form import BLOCK_TAGS, GpuError, is_private, is_shared, tag_of
from ..launch.software_pipeline import COMMIT_COPIES, WAIT_FOR_COPIES
from .wgsl_arrays import WgslArray
from .wgsl_functions import ZERO, WgslError, WgslFunctions, integer_text, is_half, scalar_kind, value_kind, wrapped
from .wgsl_math import MATH

TAKEN = frozenset(
    """
    alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if let loop override
    requires return struct switch true var while NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto
    await become cast catch class co_await co_return co_yield coherent column_major common compile compile_fragment concept const_cast
    consteval constexpr constinit crate debugger decltype delete demote demote_to_helper do dynamic_cast enum explicit export extends
    extern external fallthrough filter final finally friend from fxgroup get goto groupshared highp impl implements import inline
    instanceof interface layout lowp macro macro_rules match mediump meta mod module move mut mutable namespace new nil noexcept
    noinline nointerpolation non_coherent noncoherent noperspective null nullptr of operator package packoffset partial pass patch
    pixelfragment precise precision premerge priv protected pub public readonly ref regardless register reinterpret_cast require
    resource restrict self set shared sizeof smooth snorm static static_assert static_cast std subroutine super target template this
    thread_local throw trait try type typedef typeid typename typeof union unless unorm unsafe unsized use using varying virtual
    volatile wgsl where with writeonly yield
    bool f16 f32 i32 u32 vec2 vec3 vec4 array atomic ptr sampler storage uniform workgroup private function read write read_write
    workgroup_id local_invocation_id workgroupBarrier storageBarrier atomicAdd atomicLoad atomicStore atomicAnd atomicOr atomicMax
    atomicCompareExchangeWeak bitcast select extractBits countOneBits countLeadingZeros min max clamp floor ceil trunc round sqrt abs
    fma sign exp log pow sin cos tan dot cross length distance mix step fract main_ tw_failed
    """.split()
)
"""Words that no variable of a kernel may have as its name."""


@dataclass(frozen=True)
class WgslKernel:
    """What a kernel takes, in the order of its bindings.

    ``arrays``: its arrays, ``scalars``: the fields of the uniform structure, ``asserts``: what it may fail with; the
    structure and the flag are there where these are not empty.
    """

    arrays: tuple[Param, ...]
    scalars: tuple[Param, ...]
    asserts: tuple[str, ...]


LEFT = (
    "its loops were left early, so its results are wrong: the adapter's driver allows the loops of a thread a number of "
    "iterations (lavapipe: 65535 together); schedule it with more threads, or take another adapter"
)
"""What a watched kernel fails with."""


def interface_of(kernel: GpuKernel, watched: bool = False) -> WgslKernel:
    """Returns what a kernel is given; ``watched``: whether it says that its loops were left before their end."""
    said = [one.message for one in nodes_by_type(kernel.loop).get(AssertStmt, ())]
    return WgslKernel(
        tuple([p for p in kernel.params if p.buffer is not None]),
        tuple([p for p in kernel.params if p.buffer is None]),
        tuple([*said, *[f"{kernel.name}: {LEFT}"] * (watched and has_loops(kernel))]),
    )


def has_loops(kernel: GpuKernel) -> bool:
    """Returns whether a thread of a kernel runs loops."""
    found = nodes_by_type(kernel.loop)
    return bool(found.get(While)) or any(not tag_of(loop) for loop in found.get(For, ()))


class WgslEmitter(CScope):
    """A writer of what one thread of a kernel does."""

    form, error = "WGSL", WgslError
    helpers: WgslFunctions

    def __init__(self, unit: CUnit, changed: frozenset[E.Var], barrier: str) -> None:
        super().__init__(unit)
        self.changed, self.barrier = changed, barrier
        self.shared: list[str] = []
        """Declarations of the memory that the threads of a block share."""
        self.flag = ""
        """The name of what holds the number of an assertion that failed."""
        self.here = ""
        """The name of what is true in threads, and false in lanes of a vector that are none; empty without ``while`` loops."""

    # -- names -------------------------------------------------------------------------------------------------------

    def name(self, hint: str) -> str:
        """Return a fresh identifier, which does not begin with two underscores."""
        return super().name(f"v{hint}" if hint.startswith("__") or hint == "_" else hint)

    def constant(self, kind: str, name: str, text: str) -> str:
        return f"let {name} = {text};"

    def before(self, line: str) -> None:
        """Write a line where values are evaluated at present."""
        self.scopes[-1].put(line)

    def kept(self, hint: str, text: str) -> str:
        """Return the name of a value that is computed here; names and numbers stay as they are."""
        if text.isidentifier() or text.isdecimal():
            return text
        name = self.name(hint)
        self.before(f"let {name} = {text};")
        return name

    def named(self, var: E.Var, value: Expr, is_index: bool) -> str:
        text = self.index(value) if is_index else self.value(value)
        name = self.name(var.name)
        if var.dtype.is_float:
            self.meanings[var] = value
        self.before(f"let {name} = {text};")
        return name

    def lane_by_lane(
        self, word: str, to: DType, operands: Sequence[tuple[str, DType]], lane: Callable[..., str]
    ) -> str:
        """Return what ``lane`` writes of scalars, for each lane of vectors."""
        texts = [text for text, _ in operands]
        if to.lanes == 1:
            return lane(*texts)
        types = "_".join(dict.fromkeys(str(d) for _, d in operands))
        return f"{self.helpers.each(f'{word}_{types}', to, [d for _, d in operands], lane)}({', '.join(texts)})"

    # -- indices: 32-bit integers --------------------------------------------------------------------------------------

    def index_kind(self, dtype: DType) -> str:
        return "i32"

    def index(self, e: Expr) -> str:
        """Return a scalar integer in 32 bits. WgslError where it is known to need more."""
        if e.dtype.bits > 32 and not isinstance(e, E.Var):
            low, high = -(1 << 31), (1 << 31) - 1
            if any(end is not None and not low <= end <= high for end in self.analyzer.const_int_bound(e)):
                raise self.error(f"WGSL has no int64: the values of {e} do not fit into 32 bits")
        return super().index(e)

    def index_constant(self, value: int) -> str:
        if not -(1 << 31) <= value < 1 << 31:
            raise self.error(f"WGSL has no int64: {value} does not fit into 32 bits")
        return f"({value})" if value < 0 else str(value)

    def index_value(self, e: Expr) -> str:
        """Return index arithmetic as a value of its own type, which has to be one of WGSL's."""
        return wrapped(self.index(e), e.dtype) if scalar_kind(e.dtype) else ""

    def widened(self, value: str, dtype: DType) -> str:
        return self.helpers.converted(value, dtype.element, DType("int32"))

    def index_operation(self, operation: str, a: str, b: str) -> str:
        if operation in ("//", "%"):
            return f"{self.helpers.plain('floordiv' if operation == '//' else 'floormod')}({a}, {b})"
        if operation in ("min", "max"):
            return f"{operation}({a}, {b})"
        return f"({a} {operation} {b}{'u' * (operation == '>>')})"

    # -- values --------------------------------------------------------------------------------------------------------

    def integer(self, value: int, dtype: DType) -> str:
        return integer_text(value, dtype)

    def floating(self, value: float, dtype: DType) -> str:
        """Return an exact constant; half floats as bits."""
        scalar_kind(dtype)
        if is_half(dtype):
            return f"{float_bits(value, dtype):#06x}u"
        value = round_float(value, dtype)
        bits = float_bits(value, dtype)
        if not (isfinite(value) and (abs(value) >= 2**-126 or bits == 0)):
            return self.helpers.number(bits)
        text = f"{int(value)}f" if value == int(value) and abs(value) < 1e6 else f"{value.hex()}f"
        return f"({text})" if text.startswith("-") else text

    def arithmetic(self, op: type[E.BinaryOp], a: str, b: str, dtype: DType) -> str:
        element = dtype.element

        def lane(x: str, y: str) -> str:
            return wrapped(f"({self.helpers.hidden(x)} {op.symbol} {y})", element) if element.is_int else (
                f"({self.helpers.hidden(x)} {op.symbol} {y})")  # fmt: skip

        if is_half(element):
            raise self.error(f"arithmetic on {dtype}: {a} {op.symbol} {b}")
        return self.lane_by_lane(op.__name__.lower(), dtype, [(a, dtype), (b, dtype)], lane)

    def rounded(self, e: Expr, other: Expr) -> str:
        """Return an operand of a sum whose other one is ``other``, rounded first if compilers might combine the two."""
        text, inner, beside = self.value(e), self.meaning(e), self.meaning(other)
        product = isinstance(inner, E.Mul) and any(self.meaning(x) is beside for x in inner.children())
        if not isinstance(inner, (E.Add, E.Sub)) and not product:
            return text
        name = self.helpers.plain("rounded")
        return self.lane_by_lane("rounded", e.dtype, [(text, e.dtype)], lambda x: f"{name}({x})")

    def meaning(self, e: Expr) -> Expr:
        """Return what a variable stands for; other expressions are themselves."""
        while isinstance(e, E.Var) and e in self.meanings:
            e = self.meanings[e]
        return e

    def quotient(self, e: E.BinaryOp, a: str, b: str, dtype: DType) -> str:
        word = "div" if isinstance(e, (E.Div, E.TruncDiv, E.FloorDiv)) else "mod"
        word = f"floor{word}" if isinstance(e, (E.FloorDiv, E.FloorMod)) else word
        return self.lane_by_lane(word, dtype, [(a, dtype), (b, dtype)], lambda x, y: self.helpers.whole_quotient(
            word, x, y, dtype.element))  # fmt: skip

    def extreme(self, e: E.Min | E.Max) -> str:
        largest = isinstance(e, E.Max)
        operands = [(self.value(x), e.dtype) for x in (e.a, e.b)]
        return self.lane_by_lane("max" if largest else "min", e.dtype, operands, lambda x, y: self.helpers.larger(
            largest, x, y, e.dtype.element))  # fmt: skip

    def comparison(self, op: type[E.CmpOp], a: str, b: str, dtype: DType) -> str:
        """Return a comparison. A float compared with itself is a question for NaN, which is asked of its bits; ``!=`` of floats
        is written as what holds for NaN, too."""
        element = dtype.element

        def lane(x: str, y: str) -> str:
            if element.is_float and x == y and op in (E.NE, E.EQ):
                return f"({'!' * (op is E.EQ)}{self.helpers.plain('isnan')}({x}))"
            if element.is_float and op is E.NE:
                return f"(!({x} == {y}))"
            if element.is_bool and op not in (E.NE, E.EQ):
                x, y = f"u32({x})", f"u32({y})"
            return f"({x} {op.symbol} {y})"

        to = DType("bool").with_lanes(dtype.lanes)
        word = op.__name__.lower() + ("_itself" if a == b else "")
        if dtype.lanes > 1 and a == b:
            return self.lane_by_lane(word, to, [(a, dtype)], lambda x: lane(x, x))
        return self.lane_by_lane(word, to, [(a, dtype), (b, dtype)], lane)

    def logical(self, e: E.And | E.Or) -> str:
        both = isinstance(e, E.And)
        sign = "&&" if both else "||"
        if e.dtype.lanes > 1:
            operands = [(self.value(part), e.dtype) for part in (e.a, e.b)]
            return self.lane_by_lane("and" if both else "or", e.dtype, operands, lambda x, y: f"({x} {sign} {y})")
        first, (lines, second) = self.value(e.a), self.part(e.b)
        if not lines:
            return f"({first} {sign} {second})"
        name = self.name("decided")
        self.before(f"var {name} = {first};")
        self.before(f"if ({'' if both else '!'}{name}) {{ {lines} {name} = {second}; }}")
        return name

    def negation(self, a: str, dtype: DType) -> str:
        return self.lane_by_lane("not", dtype, [(a, dtype)], lambda x: f"(!{x})")

    def choice(self, test: str, yes: str, no: str, dtype: DType, tested: DType) -> str:
        def lane(m: str, a: str, b: str) -> str:
            return f"select({b}, {a}, {m})"

        if tested.lanes == 1 and dtype.lanes > 1:
            test = self.splat(test, tested, dtype.lanes)
        mask = tested.element.with_lanes(dtype.lanes)
        return self.lane_by_lane("select", dtype, [(test, mask), (yes, dtype), (no, dtype)], lane)

    def splat(self, value: str, dtype: DType, lanes: int) -> str:
        to, kind = dtype.with_lanes(lanes), scalar_kind(dtype)
        body = f"return {value_kind(to)}({', '.join(['x'] * lanes)});"
        return f"{self.helpers.define(f'tw_splat_{to}', value_kind(to), f'x: {kind}', body)}({value})"

    def ramp(self, e: E.Ramp) -> str:
        element, kind = e.dtype.element, scalar_kind(e.dtype.element)
        lanes = [
            self.arithmetic(E.Add, "base", self.arithmetic(E.Mul, "apart", integer_text(n, element), element), element)
            for n in range(e.lanes)
        ]
        body = f"return {value_kind(e.dtype)}({', '.join(lanes)});"
        made = self.helpers.define(f"tw_ramp_{e.dtype}", value_kind(e.dtype), f"base: {kind}, apart: {kind}", body)
        return f"{made}({self.value(e.base)}, {self.value(e.stride)})"

    def shuffle(self, e: E.Shuffle) -> str:
        names = [self.kept("lanes", self.value(v)) for v in e.vectors]
        each = e.vectors[0].dtype.lanes
        picked = [f"{names[i // each]}[{i % each}]" if each > 1 else names[i] for i in e.indices]
        return picked[0] if len(picked) == 1 else f"{value_kind(e.dtype)}({', '.join(picked)})"

    def conversion(self, e: Expr, to: DType) -> str:
        if e.dtype == "int64" and index_like(e):
            return self.helpers.converted(self.index(e), DType("int32"), to)
        return self.converted(self.value(e), e.dtype, to)

    def converted(self, text: str, source: DType, to: DType, in_range: bool = False) -> str:
        return self.lane_by_lane("as", to, [(text, source)], lambda x: self.helpers.converted(
            x, source.element, to.element))  # fmt: skip

    def variable(self, var: E.Var) -> str:
        if var in self.bases:
            raise self.error(f"WGSL has no address of {var.name}")
        if var in self.indices:
            scalar_kind(var.dtype)
        return super().variable(var)

    def library_call(self, symbol: str, e: Call) -> str:
        """Return the result of a function of WGSL, under the name that it has there."""
        name, operands = _FUNCTIONS.get(symbol.removesuffix("f")), [(self.value(x), x.dtype) for x in e.args]
        if name is None or e.dtype.element != "float32":
            raise self.error(f"no WGSL form for the call {e.op} of {e.dtype}")
        return self.lane_by_lane(name, e.dtype, operands, lambda *lanes: f"{name}({', '.join(lanes)})")

    # -- memory --------------------------------------------------------------------------------------------------------

    def places(self, buffer: Buffer, indices: tuple[Expr, ...], lanes: int) -> list[str]:
        """Return the index of each lane of an access."""
        where = self.lane_offsets(buffer, indices)
        first = self._total([(i, s * where.unit if where.unit > 1 else s) for i, s in where.start])
        if lanes == 1:
            return [first or "0"]
        first, out = self.kept("first", first) if first else "", []
        apart = str(where.distance) if where.distance is not None else self._total(where.apart)
        apart = self.kept("apart", apart) if apart else ""
        moved = [(self.kept("at", self.value(v)), self.kept("step", self.index(s))) for v, s in where.irregular]
        for n in range(lanes):
            lane = f"{n * int(apart)}" if apart.lstrip("-").isdecimal() else f"({n} * {apart})" if apart and n else ""
            terms = [t for t in (first, lane, *[f"({v}[{n}] * {s})" for v, s in moved]) if t not in ("", "0")]
            out.append(f"({' + '.join(terms)})" if len(terms) > 1 else terms[0] if terms else "0")
        return out

    def _total(self, products: Sequence[tuple[Expr, Expr]]) -> str:
        terms = [index * step for index, step in products]
        texts = [self.index(o) for o in terms if not (isinstance(o, IntImm) and o.value == 0)]
        return f"({' + '.join(texts)})" if len(texts) > 1 else "".join(texts)

    def load(self, e: BufferLoad) -> str:
        array: WgslArray = self.base(e.buffer)
        places = self.places(e.buffer, e.indices, e.dtype.lanes)
        if e.dtype.lanes == 1:
            return array.load(places[0])
        lanes = [array.load(place) for place in places]
        if e.predicate is not None:
            mask, zero = self.kept("mask", self.value(e.predicate)), f"{scalar_kind(e.dtype.element)}()"
            lanes = [f"select({zero}, {lane}, {mask}[{n}])" for n, lane in enumerate(lanes)]
        return f"{value_kind(e.dtype)}({', '.join(lanes)})"

    def store(
        self, buffer: Buffer, indices: tuple[Expr, ...], value: str, dtype: DType, predicate: Expr | None
    ) -> None:
        array: WgslArray = self.base(buffer)
        if dtype.lanes == 1:
            self.put(array.store(self.places(buffer, indices, 1)[0], value))
            return
        value = self.kept("stored", value)
        mask = "" if predicate is None else self.kept("mask", self.value(predicate))
        for n, place in enumerate(self.places(buffer, indices, dtype.lanes)):
            line = array.store(place, f"{value}[{n}]")
            self.put(f"if ({mask}[{n}]) {{ {line} }}" if mask else line)

    def new_register(self, buffer: Buffer) -> str:
        name = self.name(buffer.name)
        self.put(f"var {name}: {value_kind(buffer.dtype)};")
        return name

    def set_register(self, buffer: Buffer, value: str) -> None:
        self.put(f"{self.registers[buffer]} = {value};")

    def stack_memory(self, buffer: Buffer, elements: int) -> WgslArray:
        array = WgslArray(self.name(buffer.name), buffer.dtype.element, self.helpers, private=True)
        self.put(f"var {array.name}: {array.kind(elements)};")
        return array

    def scratch_memory(self, buffer: Buffer, elements: int | None) -> Any:
        raise GpuError(f"the size of the {buffer.scope} buffer {buffer.name} is not a constant")

    def free(self, pointer: Any) -> None:
        raise self.error("WGSL gives no memory back")

    # -- statements ----------------------------------------------------------------------------------------------------

    def serial_loop(self, s: For) -> None:
        tag = tag_of(s)
        if tag:
            word = "workgroup_id" if tag in BLOCK_TAGS else "local_invocation_id"
            name = self.vars[s.loop_var] = self.name(s.loop_var.name)
            self.indices.add(s.loop_var)
            self.analyzer.bind(s.loop_var, Range(s.min, s.extent))
            self.put(f"let {name} = i32({word}.{tag[-1]});")
            self.stmt(s.body)
            return
        low, extent = self.index(s.min), self.index(s.extent)
        name = self.vars[s.loop_var] = self.name(s.loop_var.name)
        self.indices.add(s.loop_var)
        self.analyzer.bind(s.loop_var, Range(s.min, s.extent))
        if any(isinstance(n, (BufferLoad, Call)) for e in (s.min, s.extent) for n in pre_order(e)):
            low, extent = self.kept(f"{name}_min", low), self.kept(f"{name}_extent", extent)
        start = isinstance(s.min, IntImm) and s.min.value == 0
        end = extent if start else f"{low} + {extent}"
        block(self, f"for (var {name}: i32 = {low}; {name} < {end}; {name}++)", s.body)

    def parallel_loop(self, s: For) -> None:
        self.serial_loop(s)

    def branch(self, s: IfThenElse) -> None:
        block(self, f"if ({self.value(s.condition)})", s.then_case)
        if s.else_case is not None:
            block(self, "else", s.else_case)

    def while_loop(self, s: While) -> None:
        """Write a loop. Lanes that are no threads leave it at once: what they read is 0, and might keep them in it for ever."""
        lines, test = self.part(s.condition)
        block(self, "loop", s.body, f"{lines} if (!({self.here} && {test})) {{ break; }}")

    def find_threads(self, name: str) -> None:
        """Write what tells threads from other lanes of a vector: what they set in memory, they read there."""
        word, self.here = self.name(f"{name}_set"), self.name(f"{name}_here")
        self.shared.append(f"var<workgroup> {word}: atomic<u32>;")
        self.put(f"atomicOr(&{word}, 1u);")
        self.put(f"let {self.here} = atomicOr(&{word}, 1u) != 0u;")

    def watch(self, number: int) -> None:
        """Write a loop of two iterations, and set the flag where it is left after the first one."""
        zero, turns = self.helpers.plain("zero"), self.name("turns")
        self.put(f"var {turns} = 0u;")
        self.put(f"loop {{ {turns}++; if ({turns} >= 2u + {zero}) {{ break; }} }}")
        self.put(f"if ({turns} < 2u) {{ atomicMax(&{self.flag}, {number}); }}")

    def evaluated(self, value: str) -> None:
        if value:
            self.put(f"{value};")

    def assertion(self, holds: str, s: AssertStmt, number: int) -> None:
        raise self.error("assertions have a branch of their own")


_FUNCTIONS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "round", "fabs": "abs", "fma": "fma",
}  # fmt: skip
"""WGSL's names of functions of floats, by those of C."""


def _sum(em: WgslEmitter, e: E.Add | E.Sub) -> str:
    if not e.dtype.is_float:
        return EXPRESSIONS[type(e)](em, e)
    return em.arithmetic(type(e), em.rounded(e.a, e.b), em.rounded(e.b, e.a), e.dtype)


def _allocate(em: WgslEmitter, s: Allocate) -> None:
    buffer = s.buffer
    if buffer.scope == REGISTER_SCOPE:
        STATEMENTS[Allocate](em, s)
        return
    elements = constant_elements(buffer)
    if elements is None:
        raise GpuError(f"the size of the {buffer.scope} buffer {buffer.name} is not a constant")
    elements = max(elements, 1) * buffer.dtype.lanes
    if is_shared(buffer.scope):
        array = _declared(em, buffer, True)
        em.shared.append(f"var<workgroup> {array.name}: {array.kind(elements)};")
        em.bases[buffer.data] = array
    else:
        em.bases[buffer.data] = em.stack_memory(buffer, elements)
    em.stmt(s.body)


def _declared(em: WgslEmitter, buffer: Buffer, written: bool) -> WgslArray:
    """Returns the array of a buffer that several threads see."""
    element = buffer.dtype.element
    try:
        scalar_kind(element)
    except WgslError as error:
        raise WgslError(f"{error}: the elements of {buffer.name}") from None
    elements = constant_elements(buffer)
    if elements is not None and elements * buffer.dtype.lanes > max_value("int32"):
        raise WgslError(f"WGSL has no int64: {buffer.name} has {elements} elements, more than 32 bits count")
    narrow = element.bits < 32
    return WgslArray(
        em.name(buffer.name), element, em.helpers, False, (narrow and written) or buffer.data in em.changed
    )


def _assertion(em: WgslEmitter, s: AssertStmt) -> None:
    if any(is_barrier(n) for n in statements(s.body)):
        raise GpuError(f"an assertion guards a barrier, which all threads would have to reach: {s.message}")
    holds, number = em.kept("holds", em.value(s.condition)), em.unit.assertions[id(s)]
    said = " ".join(s.message.split())
    em.put(f"if (!{holds}) {{ atomicMax(&{em.flag}, {number}); }} // {said}")
    block(em, f"if ({holds})", s.body)


def _atomic_add(em: WgslEmitter, e: Call) -> str:
    (place,), value = e.args[0].args, e.args[1]  # type: ignore[attr-defined]
    assert isinstance(place, BufferLoad)
    return em.base(place.buffer).add(em.places(place.buffer, place.indices, 1)[0], em.value(value))


def _atomic_add_pair(em: WgslEmitter, e: Call) -> str:
    (place,), first, second = e.args[0].args, e.args[1], e.args[2]  # type: ignore[attr-defined]
    assert isinstance(place, BufferLoad)
    at, array = em.kept("place", em.places(place.buffer, place.indices, 1)[0]), em.base(place.buffer)
    em.put(f"{array.add(at, em.value(first))};")
    return str(array.add(f"({at} + 1)", em.value(second)))


def _barrier(em: WgslEmitter, e: Call) -> str:
    return em.barrier


def _nothing(em: WgslEmitter, e: Call) -> str:
    return ""


def _bitwise(word: str, sign: str) -> Callable[[WgslEmitter, Call], str]:
    def emit(em: WgslEmitter, e: Call) -> str:
        operands = [(em.value(x), e.dtype) for x in e.args]
        if e.dtype.is_bool and sign == "^":
            return em.lane_by_lane(word, e.dtype, operands, lambda x, y: f"({x} != {y})")
        return em.lane_by_lane(word, e.dtype, operands, lambda x, y: f"({x} {sign} {y})")

    return emit


def _bitwise_not(em: WgslEmitter, e: Call) -> str:
    element = e.dtype.element

    def lane(x: str) -> str:
        return f"(!{x})" if element.is_bool else wrapped(f"(~{x})", element)

    return em.lane_by_lane("inv", e.dtype, [(em.value(e.args[0]), e.dtype)], lane)


def _shift(em: WgslEmitter, e: Call) -> str:
    left, operands = e.op == "tir.shift_left", [(em.value(x), e.dtype) for x in e.args]
    return em.lane_by_lane("shl" if left else "shr", e.dtype, operands, lambda x, n: em.helpers.shifted(
        left, x, n, e.dtype.element))  # fmt: skip


def _count(word: str, function: str) -> Callable[[WgslEmitter, Call], str]:
    """Returns the writer of a function that counts bits; those in front of a narrow type do not count."""

    def emit(em: WgslEmitter, e: Call) -> str:
        element = e.dtype.element

        def lane(x: str) -> str:
            counted = f"{function}({em.helpers.bits(x, element)})"
            less = f" - {32 - element.bits}u" if word == "clz" and element.bits < 32 else ""
            return f"{scalar_kind(element)}({counted}{less})"

        return em.lane_by_lane(word, e.dtype, [(em.value(e.args[0]), e.args[0].dtype)], lane)

    return emit


def _reinterpret(em: WgslEmitter, e: Call) -> str:
    (x,) = e.args
    if x.dtype.bits != e.dtype.bits or x.dtype.lanes != e.dtype.lanes:
        raise em.error(f"WGSL has no reinterpretation of {x.dtype} as {e.dtype}")
    source, to = x.dtype.element, e.dtype.element
    value = em.value(x)

    def lane(text: str) -> str:
        if to == "float32":  # of a constant, the bits may be those of a NaN
            text = em.helpers.hidden(text)
        return em.helpers.of_bits(em.helpers.bits(text, source), to)

    return em.lane_by_lane("bits", e.dtype, [(value, x.dtype)], lane)


def _if_then_else(em: WgslEmitter, e: Call) -> str:
    test, tested = em.value(e.args[0]), e.args[0].dtype
    if tested.lanes > 1:
        return em.choice(test, em.value(e.args[1]), em.value(e.args[2]), e.dtype, tested)
    (first, yes), (second, no) = em.part(e.args[1]), em.part(e.args[2])
    reads = any(isinstance(n, BufferLoad) for branch in e.args[1:] for n in pre_order(branch))
    if not first and not second and not reads:
        return em.choice(test, yes, no, e.dtype, tested)
    name = em.name("chosen")
    em.before(f"var {name}: {value_kind(e.dtype)};")
    em.before(f"if ({test}) {{ {first} {name} = {yes}; }} else {{ {second} {name} = {no}; }}")
    return name


def _lookup(em: WgslEmitter, e: Call) -> str:
    """Returns an element of an array of constants; the modulus is a power of two."""
    number, *values = e.args
    kind, table = scalar_kind(e.dtype.element), ", ".join([em.value(v) for v in values])
    name = f"tw_lookup_{hashlib.sha256(table.encode()).hexdigest()[:12]}"
    em.helpers.lines.setdefault(f"{name}_values", f"const {name}_values = array<{kind}, {len(values)}>({table});")
    made = em.helpers.define(name, kind, "n: i32", f"return {name}_values[n & {len(values) - 1}];")
    return em.lane_by_lane(name, e.dtype, [(em.value(number), number.dtype)], lambda x: f"{made}({x})")


def _own(name: str) -> Callable[[WgslEmitter, Call], str]:
    """Returns the writer of one of our fixed functions."""

    def emit(em: WgslEmitter, e: Call) -> str:
        operands, made = [(em.value(x), x.dtype) for x in e.args], em.helpers.plain(name)
        if e.args[0].dtype.element != "float32":
            raise em.error(f"no WGSL form for the call {e.op} of {e.args[0].dtype}")
        return em.lane_by_lane(name, e.dtype, operands, lambda *lanes: f"{made}({', '.join(lanes)})")

    return emit


def _finite(em: WgslEmitter, e: Call) -> str:
    sign = "==" if e.op == "tir.isinf" else "<"
    return em.lane_by_lane(e.op.removeprefix("tir."), e.dtype, [(em.value(e.args[0]), e.args[0].dtype)], lambda x: (
        f"((bitcast<u32>({x}) & 0x7fffffffu) {sign} 0x7f800000u)"))  # fmt: skip


def _vector_reduce(how: str) -> Callable[[WgslEmitter, Call], str]:
    """Returns the writer of a reduction. The upper half of the lanes is combined with the lower one, again and again."""

    def emit(em: WgslEmitter, e: Call) -> str:
        (v,), element, rows = e.args, e.dtype.element, e.dtype.lanes
        each = v.dtype.lanes // rows

        def combined(a: str, b: str) -> str:
            if how in ("max", "min"):
                return em.helpers.larger(how == "max", a, b, element)
            if how in ("fmax", "fmin"):
                body = f"return select(b, a, a {'>' if how == 'fmax' else '<'} b);"
                return f"{em.helpers.define(f'tw_{how}', 'f32', 'a: f32, b: f32', body)}({a}, {b})"
            return em.arithmetic(E.Add if how == "add" else E.Mul, a, b, element)

        out = []
        for row in range(rows):
            lanes = [f"v[{row * each + n}]" for n in range(each)]
            while len(lanes) > 1:
                if len(lanes) % 2:
                    raise em.error(f"reductions are of 2, 4, 8 … lanes, not {each}")
                half = len(lanes) // 2
                lanes = [combined(a, b) for a, b in zip(lanes[:half], lanes[half:], strict=True)]
            out += lanes
        kind = value_kind(e.dtype)
        result = out[0] if rows == 1 else f"{kind}({', '.join(out)})"
        body = f"return {result};"
        made = em.helpers.define(f"tw_reduce_{how}_{v.dtype}_{rows}", kind, f"v: {value_kind(v.dtype)}", body)
        return f"{made}({em.value(v)})"

    return emit


TABLES = EmitterTables(
    {**STATEMENTS, Allocate: _allocate, AssertStmt: _assertion},
    {**EXPRESSIONS, E.Add: _sum, E.Sub: _sum},
    {
        **{f"vector_reduce_{how}": _vector_reduce(how) for how in ("add", "mul", "fmax", "fmin", "max", "min")},
        **{f"bitwise_{word}": _bitwise(word, sign) for word, sign in (("and", "&"), ("or", "|"), ("xor", "^"))},
        "atomic_add": _atomic_add,
        "atomic_add_pair": _atomic_add_pair,
        "bitwise_not": _bitwise_not,
        "clz": _count("clz", "countLeadingZeros"),
        **{name: _own(name) for name in MATH if name != "turns"},
        "copysign": _own("copysign"),
        **dict.fromkeys(DOT_PRODUCTS, lambda em, e: em.value(expand_dot(e))),
        "if_then_else": _if_then_else,
        "isfinite": _finite,
        "isinf": _finite,
        "isnan": _own("isnan"),
        "likely": lambda em, e: em.value(e.args[0]),
        "lookup": _lookup,
        "popcount": _count("popcount", "countOneBits"),
        "prefetch": _nothing,
        "reinterpret": _reinterpret,
        "round_rest": _own("round_rest"),
        "shift_left": _shift,
        "shift_right": _shift,
        "times_exp2": _own("times_exp2"),
        BARRIER.removeprefix("tir."): _barrier,
        COMMIT_COPIES.removeprefix("tir."): _nothing,
        WAIT_FOR_COPIES.removeprefix("tir."): _nothing,
    },
)


# a text of kernels


@with_room
def wgsl_source(kernels: Sequence[GpuKernel], target: Target, watched: bool = False) -> str:
    """Returns the WGSL of kernels as one text; each is an entry point of its name.

    ``watched``: each says by its flag when the driver left its loops before their end.
    """
    functions, taken = WgslFunctions(), set(TAKEN) | {kernel.name for kernel in kernels}
    parts = [KernelText(kernel, target, functions, taken, watched) for kernel in kernels]
    text = "\n".join(["// Made by Tilewright. float16 and bfloat16 are bits of a u32.", functions.text()])
    return "\n".join([text, *[part.text(reads_zero(text)) for part in parts]])


def reads_zero(source: str) -> bool:
    """Returns whether kernels of a text have the field of :data:`ZERO`. It is the last one of their uniform structure."""
    return ZERO in source


class KernelText:
    """The text of a kernel, whose body is written first. ``taken`` gets the names that it declares for all of them."""

    def __init__(
        self, kernel: GpuKernel, target: Target, functions: WgslFunctions, taken: set[str], watched: bool
    ) -> None:
        self.kernel, self.takes = kernel, interface_of(kernel, watched)
        func = PrimFunc((), kernel.loop, {})
        unit = CUnit(LoweredFunc(func, kernel.name, target, kernel.params), TABLES, functions)
        unit.taken = taken
        em = self.em = WgslEmitter(unit, _added(kernel.loop), _barrier_text(kernel.loop))
        self.arrays: list[tuple[Param, WgslArray]] = []
        for p in self.takes.arrays:
            assert p.buffer is not None
            array = em.bases[p.buffer.data] = _declared(em, p.buffer, p.writes)
            self.arrays.append((p, array))
        self.structure, self.sizes = em.name(f"{kernel.name}_Sizes"), em.name(f"{kernel.name}_sizes")
        self.fields = [self._field(p) for p in self.takes.scalars]
        em.flag = em.name(f"{kernel.name}_failed")
        if nodes_by_type(kernel.loop).get(While):
            em.find_threads(kernel.name)
        em.stmt(kernel.loop)
        if watched and has_loops(kernel):
            em.watch(len(self.takes.asserts))

    def _field(self, p: Param) -> str:
        """Return the declaration of a scalar in the uniform structure, and bring it into scope."""
        em, name = self.em, self.em.name(p.name)
        text = f"{self.sizes}.{name}"
        em.vars[p.var] = f"({text} != 0u)" if p.dtype.is_bool else text
        if p.kind == "size" or p.dtype == "int64":
            em.indices.add(p.var)
            em.analyzer.bind(p.var, (0 if p.kind == "size" else None, None))
        return f"{name}: {field_kind(p)}"

    def text(self, zero: bool) -> str:
        """Return the bindings, the shared memory and the function; ``zero``: whether functions read :data:`ZERO`."""
        lines: list[str] = []

        def bound(kind: str, name: str, held: str, before: str = "") -> None:
            lines.append(f"{before}@group(0) @binding({len(lines)}) var<{kind}> {name}: {held};")

        for p, array in self.arrays:
            bound(f"storage, {'read_write' if p.writes else 'read'}", array.name, array.kind())
        fields = [*self.fields, *[f"{ZERO}: u32"] * zero]
        if fields:
            bound("uniform", self.sizes, self.structure, f"struct {self.structure} {{ {', '.join(fields)} }}\n")
        if self.takes.asserts:
            bound("storage, read_write", self.em.flag, "atomic<i32>")
        given = ", ".join(f"@builtin({word}) {word}: vec3<u32>" for word in ("workgroup_id", "local_invocation_id"))
        head = f"@compute @workgroup_size({', '.join(map(str, self.kernel.block))})\nfn {self.kernel.name}({given}) {{"
        read = [f"  {ZERO} = {self.sizes}.{ZERO};"] * zero
        return "\n".join([*lines, *self.em.shared, head, *read, *self.em.lines, "}\n"])


def field_kind(p: Param) -> str:
    """Returns the type of a scalar parameter in the uniform structure, 4 bytes each."""
    if p.kind == "size" or p.dtype == "int64":
        return "i32"
    return "u32" if p.dtype.is_bool else scalar_kind(p.dtype)


def _added(loop: Stmt) -> frozenset[E.Var]:
    """Returns the arrays to whose elements threads add at once."""
    calls = [e for e in nodes_by_type(loop).get(Call, ()) if e.op in ("tir.atomic_add", "tir.atomic_add_pair")]
    return frozenset([e.args[0].args[0].buffer.data for e in calls])  # type: ignore[attr-defined]


def _barrier_text(loop: Stmt) -> str:
    """Returns the barrier of a kernel, which orders global memory where it reads what it writes there."""
    found = [a for a in loads_and_stores(loop) if not is_private(a.buffer.scope) and not is_shared(a.buffer.scope)]
    stored = {a.buffer.data for a in found if isinstance(a, BufferStore)}
    both = any(isinstance(a, BufferLoad) and a.buffer.data in stored for a in found)
    return "workgroupBarrier(); storageBarrier()" if both else "workgroupBarrier()"
