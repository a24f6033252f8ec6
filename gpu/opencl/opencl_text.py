"""Kernels as OpenCL C 1.2: the words of strict C99 (:mod:`...codegen.c.portable_words`), and those in which OpenCL C differs.

=============================  =====================================================================================
in the program                 in the kernel
=============================  =====================================================================================
loops on ``blockIdx.x``        the number ``get_group_id(0)``
loops on ``threadIdx.x``       the number ``get_local_id(0)``; the work group has ``reqd_work_group_size``
arrays that it uses            parameters: ``__global`` pointers
sizes and other variables      parameters: numbers
buffers of the scope shared    ``__local`` arrays
buffers of the scope local     private arrays
barriers                       ``barrier``, with a fence of global memory where the kernel reads what it writes there
asynchronous copies            plain stores, for which nothing waits
atomic additions               ``atomic_add``, or a loop around a compare-and-exchange for other types than 32-bit integers
other atomic changes           a loop around a compare-and-exchange
mathematical functions         the expansions of all back ends (:mod:`...codegen.math`); ``sqrt``, ``floor`` and others that OpenCL
                               rounds exactly
float16, bfloat16              their bits; values are float32, as on processors
indices                        32 bits where these hold the operands and the value of an operation, else 64
an assertion that fails        the first parameter, a flag, keeps its number, and the thread leaves out what the assertion guards
=============================  =====================================================================================

Before::

    for blockIdx_x in T.thread_binding(4, thread="blockIdx.x"):
        for threadIdx_x in T.thread_binding(256, thread="threadIdx.x"):
            B[blockIdx_x * 256 + threadIdx_x] = A[blockIdx_x * 256 + threadIdx_x] * T.float32(2)

After::

    __kernel __attribute__((reqd_work_group_size(256, 1, 1)))
    void main_kernel0(__global const float *restrict A, __global float *restrict B) {
      const int32_t blockIdx_x = get_group_id(0);
      const int32_t threadIdx_x = get_local_id(0);
      B[((blockIdx_x * 256) + threadIdx_x)] = (A[((blockIdx_x * 256) + threadIdx_x)] * 2.0f);
    }
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import add

from ...codegen.backend.emitter import STATEMENTS, EmitterTables, constant_elements
from ...codegen.c.c_expr import TILE_CALLS, applied
from ...codegen.c.c_source import PORTABLE, PortableEmitter
from ...codegen.c.c_stmt import CUnit, block
from ...codegen.c.inline_functions import c_type, scalar_type
from ...codegen.c.portable_words import StructHelpers
from ...codegen.lowered import REGISTER_SCOPE, LoweredFunc, Param
from ...codegen.machine.target import Target
from ...tir.expr import BinaryOp, BufferLoad, Call, DType, Expr, Range, index_like, max_value, min_value
from ...tir.expr.deep_recursion import with_room
from ...tir.expr.intrinsics.control_and_memory import CHANGES
from ...tir.stmt import Allocate, AssertStmt, Buffer, BufferStore, For, PrimFunc, Stmt
from ...tir.walk import loads_and_stores, nodes_by_type, statements
from ..launch.barriers import BARRIER, is_barrier
from ..launch.kernels import GpuKernel
from ..launch.launch_form import BLOCK_TAGS, GpuError, is_private, is_shared, tag_of
from ..launch.software_pipeline import COMMIT_COPIES, WAIT_FOR_COPIES

_HEAD = """/* Made by Tilewright. OpenCL C 1.2. Build it with -cl-fp32-correctly-rounded-divide-sqrt where the device knows
   that option. float16 and bfloat16 are bits of an unsigned short. */
#pragma OPENCL FP_CONTRACT OFF
"""
_EXTENSIONS = {"double": "cl_khr_fp64", "atom_cmpxchg": "cl_khr_int64_base_atomics"}
"""The extensions that a text needs, by a word in it."""
_TYPES = {
    "int8_t": "char", "uint8_t": "uchar", "int16_t": "short", "uint16_t": "ushort", "int32_t": "int", "uint32_t": "uint",
    "int64_t": "long", "uint64_t": "ulong",
}  # fmt: skip
"""OpenCL's types by their names in C."""
_ENDS = {"INT8": "CHAR", "INT16": "SHRT", "INT32": "INT", "INT64": "LONG"}
"""How the names of the least and the largest value of a type begin, by those in C."""

TAKEN = frozenset(
    """
    __global __local __constant __private __kernel global local constant private kernel read_only write_only read_write uniform pipe
    half quad complex imaginary bool size_t ptrdiff_t intptr_t uintptr_t event_t sampler_t image1d_t image2d_t image3d_t queue_t
    uchar ushort uint ulong auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    get_group_id get_local_id get_num_groups get_local_size get_global_id barrier atomic_add atomic_cmpxchg atom_cmpxchg atomic_max
    sqrt floor ceil trunc rint fabs fma exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh
    atanh erf pow fmod copysign atan2 hypot ldexp min max clz popcount NAN INFINITY tw_failed
    """.split()
)
"""Words that no variable of a kernel may have as its name."""


class OpenClHelpers(StructHelpers):
    """The types and inline functions of a text, each written once."""

    def plain(self, name: str) -> str:
        if name not in _FIXED:
            return super().plain(name)
        self.lines.setdefault(f"tw_{name}", _FIXED[name])
        return f"tw_{name}"


_LEAST, _MOST = min_value("int32"), max_value("int32")
_FIXED = {
    "floordiv32": (
        "static inline int32_t tw_floordiv32(int32_t a, int32_t b) "
        "{ if (b == 0) return 0; int32_t q = a / b; return q - (a % b != 0 && (a % b < 0) != (b < 0)); }"
    ),
    "floormod32": (
        "static inline int32_t tw_floormod32(int32_t a, int32_t b) "
        "{ if (b == 0 || b == -1) return 0; int32_t r = a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r; }"
    ),
    "bits_f32": "static inline uint32_t tw_bits_f32(float x) { return as_uint(x); }",
    "from_bits_f32": "static inline float tw_from_bits_f32(uint32_t u) { return as_float(u); }",
    "bits_f64": "static inline uint64_t tw_bits_f64(double x) { return as_ulong(x); }",
    "from_bits_f64": "static inline double tw_from_bits_f64(uint64_t u) { return as_double(u); }",
    "f16_to_f32": "static inline float tw_f16_to_f32(uint16_t h) { return vload_half(0, (const half *)&h); }",
    "f32_to_f16": "static inline uint16_t tw_f32_to_f16(float x) { uint16_t h; vstore_half_rte(x, 0, (half *)&h); return h; }",
}
"""The fixed functions that OpenCL C has words for. Halves are read and written by functions that every device has."""


class OpenClEmitter(PortableEmitter):
    """A writer of what one thread of a kernel does."""

    form = "OpenCL C"

    def __init__(self, unit: CUnit, fence: str) -> None:
        super().__init__(unit)
        self.narrow = False
        """Whether the operation that is written at present is one of 32 bits."""
        self.fence = fence
        """What barriers order: the memory of the work group, and global memory where that is needed."""

    def space(self, buffer: Buffer) -> str:
        if is_shared(buffer.scope):
            return "__local "
        return "" if buffer.scope != "global" and is_private(buffer.scope) else "__global "

    # -- indices: 32 bits where their values are known to fit, else 64 -------------------------------------------------

    def fits(self, e: Expr) -> bool:
        """Return whether 32 bits hold an index and the one behind it."""
        if not index_like(e):
            return e.dtype.is_int and min_value(e.dtype) >= _LEAST and max_value(e.dtype) <= _MOST
        low, high = self.analyzer.const_int_bound(e)
        return low is not None and high is not None and low >= _LEAST and high < _MOST

    def index_kind(self, dtype: DType) -> str:
        return "int32_t" if min_value(dtype) >= _LEAST and max_value(dtype) <= _MOST else "int64_t"

    def kind_of(self, e: Expr) -> str:
        return "int32_t" if self.fits(e) else "int64_t"

    def _index(self, e: Expr) -> str:
        outer = self.narrow
        self.narrow = isinstance(e, BinaryOp) and all(map(self.fits, (e, e.a, e.b)))
        text = super()._index(e)
        self.narrow = outer
        return text

    def index_operation(self, operation: str, a: str, b: str) -> str:
        """Return an operation in 32 bits when they hold its operands and its value, else in 64."""
        if not self.narrow:
            return super().index_operation(operation, f"(int64_t){a}", b)
        if operation in ("//", "%"):
            return f"{self.helpers.plain('floordiv32' if operation == '//' else 'floormod32')}({a}, {b})"
        if operation in ("min", "max"):
            return f"{self.helpers.extreme(operation == 'max', DType('int32'))}({a}, {b})"
        return f"({a} {operation} {b})"

    def index_value(self, e: Expr) -> str:
        """Return index arithmetic as a value of its own type."""
        return f"((int64_t){self.index(e)})" if e.dtype == "int64" and self.fits(e) else self.index(e)

    def total(self, offsets: Sequence[Expr]) -> str:
        """Return the sum of indices, in 64 bits where a part of it needs them."""
        text, sums = super().total(offsets), accumulate(offsets, add)
        return text if len(offsets) < 2 or all(map(self.fits, sums)) else f"(int64_t){text}"

    def serial_loop(self, s: For) -> None:
        tag = tag_of(s)
        self.analyzer.bind(s.loop_var, Range(s.min, s.extent))
        if not tag:
            super().serial_loop(s)
            return
        word = "get_group_id" if tag in BLOCK_TAGS else "get_local_id"
        name = self.vars[s.loop_var] = self.name(s.loop_var.name)
        self.put(f"const {self.kind_of(s.loop_var)} {name} = {word}({'xyz'.index(tag[-1])});")
        self.indices.add(s.loop_var)
        self.stmt(s.body)

    def parallel_loop(self, s: For) -> None:
        self.serial_loop(s)

    def library_call(self, symbol: str, e: Call) -> str:
        """Return the result of a function that OpenCL C overloads for all types of floats."""
        name = symbol.removesuffix("f") if e.dtype.is_float and e.dtype.bits == 32 else symbol
        return super().library_call(name, e)


def _allocate(em: OpenClEmitter, s: Allocate) -> None:
    buffer = s.buffer
    if buffer.scope == REGISTER_SCOPE:
        STATEMENTS[Allocate](em, s)
        return
    elements = constant_elements(buffer)
    if elements is None:
        raise GpuError(f"the size of the {buffer.scope} buffer {buffer.name} is not a constant")
    name = em.bases[buffer.data] = em.name(buffer.name)
    em.put(f"{em.space(buffer)}{scalar_type(buffer.dtype.element)} {name}[{max(elements, 1) * buffer.dtype.lanes}];")
    em.stmt(s.body)


def _assertion(em: OpenClEmitter, s: AssertStmt) -> None:
    if any(is_barrier(n) for n in statements(s.body)):
        raise GpuError(f"an assertion guards a barrier, which all threads would have to reach: {s.message}")
    holds, number = em.value(s.condition), em.unit.assertions[id(s)]
    em.put(f"if (!{holds}) atomic_max(tw_failed, {number}); /* {s.message.replace('*/', '* /')} */")
    block(em, "else", s.body)


def _barrier(em: OpenClEmitter, e: Call) -> str:
    return f"barrier({em.fence})"


def _nothing(em: OpenClEmitter, e: Call) -> str:
    return "(void)0"


# atomic additions


_EXCHANGED = {4: ("int", "atomic_cmpxchg"), 8: ("long", "atom_cmpxchg")}
"""The integers that are exchanged after a comparison, by their bytes, and OpenCL's function."""


def _atomic_add(em: OpenClEmitter, e: Call) -> str:
    (place,), value = e.args[0].args, e.args[1]  # type: ignore[attr-defined]
    assert isinstance(place, BufferLoad)
    pointer, _ = em.place(place.buffer, place.indices, 1)
    return f"{_adder(em, em.space(place.buffer), value.dtype)}({pointer}, {em.value(value)})"


def _adder(em: OpenClEmitter, space: str, dtype: DType) -> str:
    """Returns a function that adds to an element at once, whichever threads do so meanwhile."""
    kind = scalar_type(dtype)
    name, params = f"tw_atomic_add_{dtype}_{space.strip('_ ')}", f"volatile {space}{kind} *p, {kind} x"
    if dtype.is_int and dtype.bits == 32:
        return em.helpers.define(name, "void", params, "atomic_add(p, x);")
    word, exchange = _EXCHANGED[max(dtype.bytes, 4)]
    if dtype.bytes == 2:  # the word that has the element, whose other half stays
        plain = em.helpers.plain
        wide, back = ("bf16_to_f32", "f32_to_bf16") if dtype.kind == "bfloat" else ("f16_to_f32", "f32_to_f16")
        body = (
            f"volatile {space}int *w = (volatile {space}int *)((size_t)p & ~(size_t)3); "
            "const uint32_t shift = ((size_t)p & 2) * 8; int old = *w, seen; "
            f"do {{ seen = old; const uint32_t sum = {plain(back)}({plain(wide)}((uint16_t)((uint32_t)seen >> shift)) + {plain(wide)}(x)); "
            f"old = {exchange}(w, seen, (int)(((uint32_t)seen & ~(0xFFFFu << shift)) | sum << shift)); }} while (old != seen);"
        )
        return em.helpers.define(name, "void", params, body)
    added = f"as_{kind.removesuffix('64_t')}" if dtype.is_float else ""
    sum_ = f"as_{word}({added}(seen) + x)" if added else "(long)((uint64_t)seen + (uint64_t)x)"
    body = (
        f"volatile {space}{word} *w = (volatile {space}{word} *)p; {word} old = *w, seen; "
        f"do {{ seen = old; old = {exchange}(w, seen, {sum_}); }} while (old != seen);"
    )
    return em.helpers.define(name, "void", params, body)


def _atomic_add_pair(em: OpenClEmitter, e: Call) -> str:
    (place,), first, second = e.args[0].args, e.args[1], e.args[2]  # type: ignore[attr-defined]
    assert isinstance(place, BufferLoad)
    pointer, _ = em.place(place.buffer, place.indices, 1)
    adder = _adder(em, em.space(place.buffer), first.dtype)
    return f"{adder}({pointer}, {em.value(first)}), {adder}({pointer} + 1, {em.value(second)})"


_CHANGED = {
    "atomic_fetch_add": "old + x", "atomic_fetch_max": "x != x || x > old ? x : old",
    "atomic_fetch_min": "x != x || x < old ? x : old", "atomic_fetch_and": "old & x", "atomic_fetch_or": "old | x",
    "atomic_fetch_xor": "old ^ x", "atomic_exchange": "x", "atomic_compare_exchange": "old == expected ? x : old",
}  # fmt: skip
"""What becomes of an element, by the operation."""


def _change(em: OpenClEmitter, e: Call) -> str:
    """Changes an element in a loop around a compare-and-exchange, and returns what it was."""
    (place,), name = e.args[0].args, e.op.removeprefix("tir.")  # type: ignore[attr-defined]
    assert isinstance(place, BufferLoad)
    pointer, _ = em.place(place.buffer, place.indices, 1)
    dtype, space = place.dtype, em.space(place.buffer)
    kind = scalar_type(dtype)
    word, exchange = _EXCHANGED[dtype.bytes]
    params = f"volatile {space}{kind} *p, {f'{kind} expected, ' if len(e.args) > 2 else ''}{kind} x"
    new = _CHANGED[name]
    if dtype.is_float:
        old, back = f"as_{kind.removesuffix('64_t')}(seen)", f"as_{word}(made)"
    else:
        old, back = f"({kind})seen", f"({word})made"
        new = f"({kind})((uint{dtype.bits}_t)old + (uint{dtype.bits}_t)x)" if name == "atomic_fetch_add" else new
    body = (
        f"volatile {space}{word} *w = (volatile {space}{word} *)p; {word} held = *w, seen; {kind} old; "
        "mem_fence(CLK_GLOBAL_MEM_FENCE); "
        f"do {{ seen = held; old = {old}; const {kind} made = {new}; held = {exchange}(w, seen, {back}); }} while (held != seen); "
        "mem_fence(CLK_GLOBAL_MEM_FENCE); return old;"
    )
    function = em.helpers.define(f"tw_{name}_{dtype}_{space.strip('_ ')}", kind, params, body)
    return f"{function}({', '.join([pointer, *[em.value(v) for v in e.args[1:]]])})"


# operations whose text in C calls functions that OpenCL C lacks, or has under other names


def _reinterpret(em: OpenClEmitter, e: Call) -> str:
    (x,) = e.args
    source, to = em.helpers.vector(x.dtype), em.helpers.vector(e.dtype)
    if source == to:
        return em.value(x)
    body = f"union {{ {source} a; {to} r; }} u; u.a = x; return u.r;"
    return f"{em.helpers.define(f'tw_as_{to}_{source}', to, f'{source} x', body)}({em.value(x)})"


def _round_rest(em: OpenClEmitter, e: Call) -> str:
    body = "return fabs(x) == INFINITY ? 0 : x - rint(x);"
    return applied(em, e, f"tw_round_rest{e.dtype.bits}", "KIND x", body)


def _times_exp2(em: OpenClEmitter, e: Call) -> str:
    body = "return n != n ? n : ldexp(x, (int)fmax(fmin(floor(n), (KIND)9999), (KIND)-9999));"
    kind = c_type(e.dtype.element)
    return applied(em, e, f"tw_times_exp2_{e.dtype.bits}", "KIND x, KIND n", body.replace("KIND", kind))


def _lookup(em: OpenClEmitter, e: Call) -> str:
    """Returns an element of an array of constants; the modulus is a power of two."""
    number, *values = e.args
    table = ", ".join([em.value(v) for v in values])
    name, kind = f"tw_lookup_{hashlib.sha256(table.encode()).hexdigest()[:12]}", c_type(e.dtype.element)
    em.helpers.lines.setdefault(f"{name}_values", f"__constant {kind} {name}_values[{len(values)}] = {{{table}}};")
    return applied(em, e, name, "int32_t n", f"return {name}_values[n & {len(values) - 1}];", [number])


def _own(name: str) -> Callable[[OpenClEmitter, Call], str]:
    """Returns the writer of a function that OpenCL C has for all types."""
    return lambda em, e: em.library_call(name, e)


_FOREIGN = ("address_of", "call_extern", "call_pure_extern", "misaligned", "tvm_access_ptr")
"""Operations on addresses that C has, and OpenCL C has not."""
_CALLS: dict[str, Callable[[OpenClEmitter, Call], str]] = {
    "atomic_add": _atomic_add,
    "atomic_add_pair": _atomic_add_pair,
    **{row.name: _change for row in CHANGES},
    "clz": _own("clz"),
    "fma": _own("fma"),
    "lookup": _lookup,
    "popcount": _own("popcount"),
    "reinterpret": _reinterpret,
    "round_rest": _round_rest,
    "times_exp2": _times_exp2,
    BARRIER.removeprefix("tir."): _barrier,
    COMMIT_COPIES.removeprefix("tir."): _nothing,
    WAIT_FOR_COPIES.removeprefix("tir."): _nothing,
}
TABLES = EmitterTables(
    {**PORTABLE.statements, Allocate: _allocate, AssertStmt: _assertion},
    PORTABLE.expressions,
    {
        **{name: emit for name, emit in PORTABLE.calls.items() if name not in TILE_CALLS and name not in _FOREIGN},
        **_CALLS,
    },
)


# a text of kernels


@with_room
def opencl_source(kernels: Sequence[GpuKernel], target: Target) -> str:
    """Returns the OpenCL C of kernels as one text; each is a ``__kernel`` function of its name."""
    helpers = OpenClHelpers()
    bodies = [_kernel_text(kernel, target, helpers) for kernel in kernels]
    text = "\n".join([helpers.text(), *bodies])
    words = set(re.findall(r"\w+", text))
    wanted = [f"#pragma OPENCL EXTENSION {name} : enable\n" for word, name in _EXTENSIONS.items() if word in words]
    types = [f"typedef {own} {name};\n" for name, own in _TYPES.items() if name in words]
    ends = [
        f"#define {sign}{name}_{end} {sign}{own}_{end}\n"
        for name, own in _ENDS.items() for sign in ("", "U") for end in ("MIN", "MAX") if f"{sign}{name}_{end}" in words
    ]  # fmt: skip
    return "".join([_HEAD, *wanted, *types, *ends, "\n"]) + text


def needs_doubles(text: str) -> bool:
    """Returns whether a text computes with float64, which not every device can."""
    return "cl_khr_fp64" in text


def asserts(kernel: GpuKernel) -> list[AssertStmt]:
    """Returns the assertions of a kernel. The flag that is its first parameter says which of them failed, from 1 on."""
    return [*nodes_by_type(kernel.loop).get(AssertStmt, ())]


def _kernel_text(kernel: GpuKernel, target: Target, helpers: OpenClHelpers) -> str:
    func = PrimFunc((), kernel.loop, {})
    unit = CUnit(LoweredFunc(func, kernel.name, target, kernel.params), TABLES, helpers)
    unit.taken.update(TAKEN)
    em = OpenClEmitter(unit, _fence(kernel.loop))
    names = [em.name(p.name) for p in kernel.params]
    em.bind_parameters(kernel.params, names)
    em.stmt(kernel.loop)
    flag = ["volatile __global int *tw_failed"] * bool(asserts(kernel))
    params = ", ".join([*flag, *[_parameter(p, name) for p, name in zip(kernel.params, names, strict=True)]])
    sizes = ", ".join(map(str, kernel.block))
    head = f"__kernel __attribute__((reqd_work_group_size({sizes})))\nvoid {kernel.name}({params}) {{"
    return "\n".join([head, *em.lines, "}\n"])


def _parameter(p: Param, name: str) -> str:
    kind = scalar_type(p.dtype)
    if p.buffer is None:
        return f"{'int64_t' if p.kind == 'size' else kind} {name}"
    return f"__global {'' if p.writes else 'const '}{kind} *restrict {name}"


def _fence(loop: Stmt) -> str:
    """Returns what the barriers of a kernel order."""
    found = [a for a in loads_and_stores(loop) if not is_private(a.buffer.scope) and not is_shared(a.buffer.scope)]
    stored = {a.buffer.data for a in found if isinstance(a, BufferStore)}
    both = any(isinstance(a, BufferLoad) and a.buffer.data in stored for a in found)
    return "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE" if both else "CLK_LOCAL_MEM_FENCE"
