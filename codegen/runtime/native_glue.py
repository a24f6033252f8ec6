"""Native code for fast calls with NumPy's arrays, and arrays of other libraries taken quickly, without a copy.

The native code is one small object per signature, shared by all functions with it.

``tw_packed(args)`` calls through an array of 8-byte slots: the function's address, then its arguments. The timing loops
and bound calls use it.

``tw_call(fn, array, …)`` takes Python objects, reads NumPy's array header itself (type, dtype, rank, shape, flags,
pointer), calls ``fn`` when all checks hold, and otherwise returns :data:`UNUSUAL` without a call; then the
careful path decides and explains. A checked call therefore costs less than a microsecond. The header's layout is
NumPy's public C ABI (PyArrayObject_fields), which is tested once on a real array before it is used.

Arrays that this cannot take (tensors with gradients, on other devices, conjugated and sparse ones) go to :mod:`.arguments`,
which says what is wrong.
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tir.expr import EQ, Add, Cast, DType, Expr, IntImm, Mul, Select, Sub, Var, pre_order, to_numpy
from ..llvm.jit import Loaded, load, optimize_and_compile
from ..lowered import Param
from ..machine.target import Target
from .arguments import MOST_ARGUMENTS, aligned_array, apart, completed

if TYPE_CHECKING:
    from .module import Function


UNUSUAL = -(1 << 31)
"""The result of a quick call that did not call the function, because the careful path has to decide."""

_PAIRS = 64
"""The number of pairs of arrays up to which each pair is compared; more arrays are sorted by their addresses."""
_MANY = 64
"""The number of arguments that one function checks. More are checked by several functions, which keep them in memory:
LLVM's time for one function grows with the square of its blocks and of the values in its registers."""
_HEAD = object.__basicsize__  # the head of every Python object; the array's fields follow
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400


class Glue:
    """The loaded glue of one signature. ``call`` is None when the signature has no fast path."""

    __slots__ = ("_loaded", "call", "packed_address")

    def __init__(self, loaded: Loaded, call: Any) -> None:
        self._loaded = loaded
        self.packed_address = loaded.address("tw_packed")
        self.call = call


_lock = threading.Lock()


def glue_for(params: Sequence[Param]) -> Glue:
    """Return the glue for these parameters, made at the first request."""
    with _lock:
        fast = fast_call_ir(params) if len(params) <= MOST_ARGUMENTS else None
        return _load(packed_ir(params), fast or "", _argument_kinds(params), _objects_of(params) if fast else ())


def _argument_kinds(params: Sequence[Param]) -> str:
    return "".join("O" if p.kind == "buffer" else "i" if _is_integer(p) else "d" for p in params if p.kind != "size")


def _is_integer(p: Param) -> bool:
    """Returns whether the parameter is an integer of whole bytes, which is passed as an int64."""
    return p.kind == "scalar" and p.dtype.is_int and p.dtype.bits in (8, 16, 32, 64)


class _Integer(ctypes.c_int64):
    """This is the type of an integer that ctypes passes. It refuses longer ones, of which c_int64
    takes the low bits."""

    @classmethod
    def from_param(cls, value: Any) -> ctypes.c_int64:  # type: ignore[override]
        if isinstance(value, np.integer):
            value = int(value)
        if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
            raise TypeError("not an integer of 64 bits")
        return cls(value)


_C_TYPES: dict[str, Any] = {"O": ctypes.py_object, "i": _Integer, "d": ctypes.c_double}


@lru_cache(maxsize=512)
def _load(packed: str, fast: str, kinds: str, objects: tuple[tuple[str, int], ...]) -> Glue:
    made = optimize_and_compile(packed + fast, Target("native -num-cores=1"), 1)
    loaded = load(made.object, ["tw_packed", "tw_call"] if fast else ["tw_packed"], dict(objects))
    if not fast:
        return Glue(loaded, None)
    types = [_C_TYPES[kind] for kind in kinds]
    return Glue(loaded, ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *types)(loaded.address("tw_call")))


def _objects_of(params: Sequence[Param]) -> tuple[tuple[str, int], ...]:
    """Returns symbol and address of the Python objects to which ``tw_call`` compares: NumPy's class of arrays, and the
    data types. The code has their symbols, so that it is the same in every process."""
    dtypes = {
        f"tw_dtype_{dtype.name}": id(dtype) for dtype in [to_numpy(p.dtype) for p in params if p.kind == "buffer"]
    }
    return ((_ARRAY, id(np.ndarray)), *sorted(dtypes.items())) if dtypes else ()


_ARRAY = "tw_ndarray"
"""The symbol of NumPy's class of arrays."""


def packed_ir(params: Sequence[Param]) -> str:
    """Returns ``i32 tw_packed(ptr args)``: slot 0 is the function, slot i+1 its i-th argument."""
    apart = " noinline" if len(params) > _MANY else ""
    lines = [f"define i32 @tw_packed(ptr %args){apart} nounwind {{", "  %fn = load ptr, ptr %args, align 8"]
    for i, p in enumerate(params):
        lines.append(f"  %at{i} = getelementptr i64, ptr %args, i64 {i + 1}")
        lines.append(f"  %v{i} = load {p.llvm_type}, ptr %at{i}, align 8")
    passed = ", ".join(f"{p.llvm_type} %v{i}" for i, p in enumerate(params))
    lines += [f"  %rc = call i32 %fn({passed})", "  ret i32 %rc", "}", ""]
    return "\n".join(lines)


_APART = """
define internal i1 @tw_apart(ptr %spans, i64 %n) noinline nounwind {
entry:
  br label %pass
pass:
  %wide = phi i64 [ %n, %entry ], [ %gap, %sorted ]
  %five = mul i64 %wide, 5
  %less = udiv i64 %five, 11
  %some = icmp ugt i64 %less, 1
  %gap = select i1 %some, i64 %less, i64 1
  br label %take
take:
  %i = phi i64 [ %gap, %pass ], [ %i1, %placed ]
  %all = icmp uge i64 %i, %n
  br i1 %all, label %sorted, label %held
held:
  %hp = getelementptr { i64, i64 }, ptr %spans, i64 %i
  %hb = load i64, ptr %hp, align 8
  %he = getelementptr i64, ptr %hp, i64 1
  %end = load i64, ptr %he, align 8
  br label %look
look:
  %j = phi i64 [ %i, %held ], [ %k, %move ]
  %first = icmp ult i64 %j, %gap
  br i1 %first, label %placed, label %compare
compare:
  %k = sub i64 %j, %gap
  %kp = getelementptr { i64, i64 }, ptr %spans, i64 %k
  %kb = load i64, ptr %kp, align 8
  %after = icmp ugt i64 %kb, %hb
  br i1 %after, label %move, label %placed
move:
  %jp = getelementptr { i64, i64 }, ptr %spans, i64 %j
  %both = load <2 x i64>, ptr %kp, align 8
  store <2 x i64> %both, ptr %jp, align 8
  br label %look
placed:
  %pp = getelementptr { i64, i64 }, ptr %spans, i64 %j
  store i64 %hb, ptr %pp, align 8
  %pe = getelementptr i64, ptr %pp, i64 1
  store i64 %end, ptr %pe, align 8
  %i1 = add i64 %i, 1
  br label %take
sorted:
  %last = icmp eq i64 %gap, 1
  br i1 %last, label %sweep, label %pass
sweep:
  %s = phi i64 [ 0, %sorted ], [ %s1, %next ]
  %any = phi i64 [ 0, %sorted ], [ %any1, %next ]
  %written = phi i64 [ 0, %sorted ], [ %written1, %next ]
  %done = icmp eq i64 %s, %n
  br i1 %done, label %apart, label %span
span:
  %sp = getelementptr { i64, i64 }, ptr %spans, i64 %s
  %sb = load i64, ptr %sp, align 8
  %se = getelementptr i64, ptr %sp, i64 1
  %coded = load i64, ptr %se, align 8
  %stop = lshr i64 %coded, 1
  %writes = trunc i64 %coded to i1
  %before = select i1 %writes, i64 %any, i64 %written
  %clash = icmp ult i64 %sb, %before
  br i1 %clash, label %meet, label %next
next:
  %any1 = call i64 @llvm.umax.i64(i64 %any, i64 %stop)
  %longer = call i64 @llvm.umax.i64(i64 %written, i64 %stop)
  %written1 = select i1 %writes, i64 %longer, i64 %written
  %s1 = add i64 %s, 1
  br label %sweep
meet:
  ret i1 false
apart:
  ret i1 true
}

declare i64 @llvm.umax.i64(i64, i64)
"""
"""Returns whether no written span meets another one, and may return false for empty ones. Each span is its begin, and
twice its end, plus 1 when it is written. They are sorted (Shell's sort with Gonnet's gaps), and one sweep keeps the
largest end before."""


@lru_cache(maxsize=1)
def _header_is_known() -> bool:
    """Returns whether NumPy's array header has the expected layout, tested on a real array."""
    probe = np.zeros((3, 5), np.float32)[:, :4]
    probe.flags.writeable = False

    def word(at: int) -> int:
        return int(ctypes.c_int64.from_address(id(probe) + at).value)

    if type(probe).__basicsize__ < _HEAD + 56 or word(_HEAD - 8) != id(np.ndarray):
        return False
    shape, strides = word(_HEAD + 16), word(_HEAD + 24)
    return (
        word(_HEAD) == probe.__array_interface__["data"][0]
        and ctypes.c_int32.from_address(id(probe) + _HEAD + 8).value == 2
        and list((ctypes.c_int64 * 2).from_address(shape)) == [3, 4]
        and list((ctypes.c_int64 * 2).from_address(strides)) == [20, 4]
        and word(_HEAD + 40) == id(np.dtype(np.float32)) == id(probe.dtype)
        and ctypes.c_int32.from_address(id(probe) + _HEAD + 48).value & 0x501 == _ALIGNED
    )


def fast_call_ir(params: Sequence[Param]) -> str | None:
    """Returns ``i32 tw_call(ptr fn, …)``, with a PyObject per buffer and a double or an i64 per scalar.

    None for a signature with strides, offsets, or computed extents, which take the careful path.
    """
    if not _header_is_known():
        return None
    given = [i for i, p in enumerate(params) if p.kind != "size"]
    head = ", ".join(["ptr %fn", *[f"{_object_type(params[i])} %a{i}" for i in given]])
    spans = [i for i in given if params[i].kind == "buffer"]
    pairs = sum(params[i].writes for i in spans) * len(spans)
    known: dict[Var, str] = {}
    out: list[str] = []
    checks = ""
    if len(params) > _MANY:
        out += [f"  %{name} = alloca [{len(params) + 1} x {kind}], align 8" for name, kind in _TABLES.items()]
        out.append("  store ptr %fn, ptr %slots, align 8")
        for i in given:
            out.append(f"  %o{i} = getelementptr i64, ptr %objects, i64 {i}")
            out.append(f"  store {_object_type(params[i])} %a{i}, ptr %o{i}, align 8")
        for n, at in enumerate(range(0, len(params), _MANY)):
            check = _check_function(n, params, range(at, min(at + _MANY, len(params))), known)
            if check is None:
                return None
            checks += check
            out.append(f"  %fit{n} = call i1 @tw_check{n}({', '.join(f'ptr %{name}' for name in _TABLES)})")
            out += [f"  br i1 %fit{n}, label %fitting{n}, label %unusual", f"fitting{n}:"]
        call = "@tw_packed(ptr %slots)"
    else:
        passed = _emit_arguments(out, params, range(len(params)), known)
        if passed is None:
            return None
        call = f"%fn({', '.join(passed)})"
        if pairs > _PAIRS:
            out.insert(0, f"  %spans = alloca [{len(spans)} x {_SPAN}], align 8")
            for at, i in enumerate(spans):
                _emit_span(out, i, at, params[i].writes)
        else:
            _emit_aliasing(out, [(i, params[i].writes) for i in spans])
    if pairs > _PAIRS or (pairs and checks):
        checks += _APART
        out.append(f"  %apart = call i1 @tw_apart(ptr %spans, i64 {len(spans)})")
        out += ["  br i1 %apart, label %separate, label %unusual", "separate:"]
    lines = [f"@{name} = external global i8" for name, _ in _objects_of(params)]
    lines += [f"define i32 @tw_call({head}) nounwind {{", *out, f"  %rc = call i32 {call}", "  ret i32 %rc"]
    return checks + "\n".join([*lines, "unusual:", f"  ret i32 {UNUSUAL}", "}", ""])


def _object_type(p: Param) -> str:
    return "ptr" if p.kind == "buffer" else "i64" if _is_integer(p) else "double"


_SPAN = "{ i64, i64 }"
_TABLES = {"objects": "i64", "slots": "i64", "spans": _SPAN, "sizes": "i64"}
"""What the checks of many arguments share in memory: Python's objects, the slots of ``tw_packed``, the arrays' spans, and the
sizes that are known so far."""


def _check_function(n: int, params: Sequence[Param], these: range, known: dict[Var, str]) -> str | None:
    """Returns ``i1 tw_check<n>(…)`` for some of many arguments. It fills their slots and spans, and adds sizes."""
    at = {var: place for place, var in enumerate(known)}
    here = {var: f"%size{place}" for var, place in at.items()}
    out: list[str] = []
    for i in these:
        if params[i].kind != "size":
            out.append(f"  %a{i}p = getelementptr i64, ptr %objects, i64 {i}")
            out.append(f"  %a{i} = load {_object_type(params[i])}, ptr %a{i}p, align 8")
    for place in at.values():
        out.append(f"  %sizep{place} = getelementptr i64, ptr %sizes, i64 {place}")
        out.append(f"  %size{place} = load i64, ptr %sizep{place}, align 8")
    passed = _emit_arguments(out, params, these, here)
    if passed is None:
        return None
    before = sum(p.kind == "buffer" for p in params[: these.start])
    for i, text in zip(these, passed, strict=True):
        out.append(f"  %slot{i} = getelementptr i64, ptr %slots, i64 {i + 1}")
        out.append(f"  store {text}, ptr %slot{i}, align 8")
        if params[i].kind == "buffer":
            _emit_span(out, i, before, params[i].writes)
            before += 1
    for place, (var, text) in enumerate(here.items()):
        if var not in at:
            out.append(f"  %sizep{place} = getelementptr i64, ptr %sizes, i64 {place}")
            out.append(f"  store i64 {text}, ptr %sizep{place}, align 8")
            known[var] = text
    head = f"define internal i1 @tw_check{n}({', '.join(f'ptr %{name}' for name in _TABLES)}) noinline nounwind {{"
    return "\n".join([head, *out, "  ret i1 true", "unusual:", "  ret i1 false", "}", ""])


def _emit_arguments(out: list[str], params: Sequence[Param], these: range, known: dict[Var, str]) -> list[str] | None:
    """Emit the checks of some arguments, and return the C values. None when one of them takes the careful path."""
    passed: list[str] = []
    for i in these:
        p = params[i]
        if p.kind == "buffer":
            if not _emit_buffer(out, i, p, known):
                return None
            passed.append(f"ptr %data{i}")
        elif _is_integer(p):
            passed.append(f"{p.llvm_type} {_emit_integer(out, i, p, known)}")
        elif p.kind == "scalar":
            if p.llvm_type not in ("float", "double"):
                return None
            value = f"%a{i}"
            if p.llvm_type == "float":
                out.append(f"  %s{i} = fptrunc double %a{i} to float")
                value = f"%s{i}"
            passed.append(f"{p.llvm_type} {value}")
        else:
            if p.var not in known:
                return None
            passed.append(f"i64 {known[p.var]}")
    return passed


def _emit_integer(out: list[str], i: int, p: Param, known: dict[Var, str]) -> str:
    """Emit checks that the i-th argument fits its type and the arrays before it, and return its value."""
    value, checks = f"%a{i}", []
    if p.dtype.bits < 64:
        value = f"%s{i}"
        out.append(f"  {value} = trunc i64 %a{i} to {p.llvm_type}")
        out.append(f"  %wide{i} = {'zext' if p.dtype.kind == 'uint' else 'sext'} {p.llvm_type} {value} to i64")
        checks.append(f"icmp eq i64 %wide{i}, %a{i}")
    elif p.dtype.kind == "uint":
        checks.append(f"icmp sge i64 %a{i}, 0")
    if p.var in known:
        checks.append(f"icmp eq i64 %a{i}, {known[p.var]}")
    for n, check in enumerate(checks):
        out.append(f"  %holds{i}_{n} = {check}")
        out.append(f"  br i1 %holds{i}_{n}, label %held{i}_{n}, label %unusual")
        out.append(f"held{i}_{n}:")
    known[p.var] = f"%a{i}"
    return value


def _emit_buffer(out: list[str], i: int, p: Param, known: dict[Var, str]) -> bool:
    """Emit checks of type, dtype, flags and rank of the i-th argument, then of its extents. Returns False when the
    buffer is not plain."""
    buffer = p.buffer
    assert buffer is not None
    if buffer.strides or not all(isinstance(n, _IN_SIZES) for e in buffer.shape for n in pre_order(e)):
        return False
    if not isinstance(buffer.elem_offset, IntImm) or buffer.elem_offset.value:
        return False
    flags = _C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if p.writes else 0)
    dtype = to_numpy(p.dtype)
    fields = [("type", _HEAD - 8, "ptr"), ("data", _HEAD, "ptr"), ("rank", _HEAD + 8, "i32"),
              ("shape", _HEAD + 16, "ptr"), ("descr", _HEAD + 40, "ptr"), ("flags", _HEAD + 48, "i32")]  # fmt: skip
    # The type comes first, because only an array has fields to read.
    for n, (name, offset, kind) in enumerate(fields):
        out.append(f"  %{name}{i}p = getelementptr i8, ptr %a{i}, i64 {offset}")
        out.append(f"  %{name}{i} = load {kind}, ptr %{name}{i}p, align 4")
        if n == 0:
            out.append(f"  %isarray{i} = icmp eq ptr %type{i}, @{_ARRAY}")
            out.append(f"  br i1 %isarray{i}, label %array{i}, label %unusual")
            out.append(f"array{i}:")
    out.append(f"  %isdtype{i} = icmp eq ptr %descr{i}, @tw_dtype_{dtype.name}")
    out.append(f"  %isrank{i} = icmp eq i32 %rank{i}, {buffer.ndim}")
    out.append(f"  %masked{i} = and i32 %flags{i}, {flags}")
    out.append(f"  %isflags{i} = icmp eq i32 %masked{i}, {flags}")
    out.append(f"  %both{i} = and i1 %isdtype{i}, %isrank{i}")
    out.append(f"  %plain{i} = and i1 %both{i}, %isflags{i}")
    out.append(f"  br i1 %plain{i}, label %plain{i}l, label %unusual")
    out.append(f"plain{i}l:")
    size, good = f"{p.dtype.bytes}", "true"
    for axis, extent in enumerate(buffer.shape):
        name = f"{i}_{axis}"
        out.append(f"  %dim{name}p = getelementptr i64, ptr %shape{i}, i64 {axis}")
        out.append(f"  %dim{name} = load i64, ptr %dim{name}p, align 8")
        want = _emit_size(out, extent, known, f"%want{name}")
        if want is None and not isinstance(extent, Var):
            return False  # arrays after this one tell the sizes
        if want is None:
            assert isinstance(extent, Var)
            known[extent] = f"%dim{name}"
            limit = (1 << (extent.dtype.bits - 1)) - 1
            out.append(f"  %ok{name} = icmp ule i64 %dim{name}, {limit}")
        else:
            out.append(f"  %ok{name} = icmp eq i64 %dim{name}, {want}")
        out.append(f"  %good{name} = and i1 {good}, %ok{name}")
        out.append(f"  %bytes{name} = mul i64 {size}, %dim{name}")
        size, good = f"%bytes{name}", f"%good{name}"
    out.append(f"  br i1 {good}, label %fits{i}, label %unusual")
    out.append(f"fits{i}:")
    out.append(f"  %begin{i} = ptrtoint ptr %data{i} to i64")
    out.append(f"  %end{i} = add i64 %begin{i}, {size}")
    return True


_IN_SIZES = (IntImm, Var, Add, Sub, Mul, EQ, Select, Cast)
"""The nodes of extents that are worked out here; other ones take the careful path."""


def _emit_size(out: list[str], e: Expr, known: Mapping[Var, str], name: str) -> str | None:
    """Emit the value of an extent as an i64 (of a comparison as an i1). None stands for a size that is not known yet."""
    if isinstance(e, IntImm):
        return str(e.value)
    if isinstance(e, Var):
        return known.get(e)
    if isinstance(e, Cast):
        return _emit_size(out, e.value, known, name)
    given = [_emit_size(out, child, known, f"{name}_{n}") for n, child in enumerate(e.children())]
    if None in given:
        return None
    if isinstance(e, Select):
        out.append(f"  {name} = select i1 {given[0]}, i64 {given[1]}, i64 {given[2]}")
    else:
        words: dict[type, str] = {Add: "add", Sub: "sub", Mul: "mul", EQ: "icmp eq"}
        op = words[type(e)]
        out.append(f"  {name} = {op} i64 {given[0]}, {given[1]}")
    return name


def _emit_aliasing(out: list[str], spans: list[tuple[int, bool]]) -> None:
    """Emit a jump to the careful path when a written array overlaps another argument."""
    clash = "false"
    for at, (a, a_written) in enumerate(spans):
        for b, b_written in spans[at + 1 :]:
            if a_written or b_written:
                out.append(f"  %before{a}_{b} = icmp ult i64 %begin{a}, %end{b}")
                out.append(f"  %after{a}_{b} = icmp ult i64 %begin{b}, %end{a}")
                out.append(f"  %meet{a}_{b} = and i1 %before{a}_{b}, %after{a}_{b}")
                out.append(f"  %clash{a}_{b} = or i1 {clash}, %meet{a}_{b}")
                clash = f"%clash{a}_{b}"
    if clash != "false":
        out.append(f"  br i1 {clash}, label %unusual, label %apart")
        out.append("apart:")


def _emit_span(out: list[str], i: int, at: int, written: bool) -> None:
    """Emit stores of the begin and the end of the i-th argument into the span ``at`` of ``tw_apart``."""
    out.append(f"  %twice{i} = shl i64 %end{i}, 1")
    out.append(f"  %coded{i} = or i64 %twice{i}, {int(written)}")
    out.append(f"  %span{i} = getelementptr {{ i64, i64 }}, ptr %spans, i64 {at}")
    out.append(f"  store i64 %begin{i}, ptr %span{i}, align 8")
    out.append(f"  %spanend{i} = getelementptr i64, ptr %span{i}, i64 1")
    out.append(f"  store i64 %coded{i}, ptr %spanend{i}, align 8")


_TAKERS: dict[type, Callable[[Any], Any]] = {np.ndarray: lambda array: array}
"""For each class that was seen, the function that returns an object of it as an array of NumPy."""

_UNFIT = (AttributeError, BufferError, RuntimeError, TypeError, ValueError)
"""What libraries raise for an array that has no such form."""


def as_numpy(values: Sequence[Any]) -> list[Any] | None:
    """Returns arrays in NumPy's form, sharing their memory; None where one has no such form. Other values stay as they
    are."""
    try:
        return [(_TAKERS.get(type(v)) or _taker(type(v)))(v) for v in values]
    except _UNFIT:
        return None


def _taker(kind: type) -> Callable[[Any], Any]:
    library = kind.__module__.partition(".")[0]
    take: Callable[[Any], Any] = _same
    if library == "torch" and hasattr(kind, "numpy"):
        take = kind.numpy
    elif library in ("jax", "jaxlib"):
        take = _of_jax
    elif hasattr(kind, "__dlpack__"):
        take = _unknown
    _TAKERS[kind] = take
    return take


def _same(value: Any) -> Any:
    return value


def _of_jax(array: Any) -> Any:
    return np.asarray(array) if array.device.platform == "cpu" else _unknown(array)


def _unknown(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} takes the careful path")


def static_shape(p: Param) -> tuple[int, ...] | None:
    """Returns the shape of a row-major buffer whose extents are numbers; None for other parameters."""
    if p.buffer is None or p.buffer.strides or not all(isinstance(e, IntImm) for e in p.buffer.shape):
        return None
    return tuple([int(e) for e in p.buffer.shape])  # type: ignore[call-overload]


class TensorCalls:
    """Checks tensors of PyTorch against parameters of known shapes, and returns their addresses. A tensor takes a
    fraction of a microsecond, where NumPy's view of it takes some."""

    def __init__(self, params: Sequence[Param]) -> None:
        self.shapes = [static_shape(p) for p in params]
        self.params = list(params)
        self.usable = None not in self.shapes
        self.kind: Any = None
        self.wanted: list[tuple[Any, Any, int, int, bool]] = []

    def addresses(self, args: Sequence[Any]) -> list[int] | None:
        """Returns the addresses of tensors that fit and do not overlap; None where something else is given."""
        if type(args[0]) is not self.kind and not self._ready(type(args[0])):
            return None
        kind, strided = self.kind, self.strided
        out = []
        for t, (shape, dtype, size, _, _) in zip(args, self.wanted, strict=True):
            if type(t) is not kind or t.dtype is not dtype or tuple(t.shape) != shape or t.layout is not strided:
                return None
            if t.requires_grad or not t.is_cpu or not t.is_contiguous() or t.is_neg():
                return None
            address = t.data_ptr()
            if address % size:
                return None
            out.append(address)
        spans = [(at, at + length, writes) for at, (_, _, _, length, writes) in zip(out, self.wanted, strict=True)]
        if not apart(spans):
            return None
        return out

    def _ready(self, kind: type) -> bool:
        torch = sys.modules.get("torch")
        if not self.usable or torch is None or kind is not torch.Tensor:
            return False
        sizes = [(math.prod(shape or ()), p.dtype.bytes) for shape, p in zip(self.shapes, self.params, strict=True)]
        self.wanted = [
            (shape, getattr(torch, str(p.dtype), None), size, count * size, p.writes)
            for shape, p, (count, size) in zip(self.shapes, self.params, sizes, strict=True)
        ]
        self.kind, self.strided = kind, torch.strided
        return True


def new_arrays(params: Sequence[Param], given: Sequence[Any]) -> list[Any]:
    """Returns arrays of zeros for parameters of known shapes: tensors of PyTorch where the first array given is one."""
    torch = sys.modules.get("torch")
    first = next((g for g in given if hasattr(g, "__dlpack__")), None)
    if torch is not None and isinstance(first, torch.Tensor):
        return [torch.zeros(static_shape(p), dtype=getattr(torch, str(p.dtype))) for p in params]
    return [aligned_array(static_shape(p) or (), to_numpy(p.dtype), np.zeros) for p in params]


def returned(arrays: Sequence[Any], given: Sequence[Any], dtypes: Iterable[str]) -> list[Any]:
    """Returns new arrays in the library of the first array in ``given``: tensors of PyTorch, arrays of JAX, else NumPy's.

    ``dtypes``: their data types. bfloat16 and float8 are the library's types of these names. In NumPy those are the
    types of ``ml_dtypes`` where one of ``given`` has such a type, and otherwise the bits as uint16 or uint8.
    """
    first = next((type(g) for g in given if hasattr(g, "__dlpack__")), np.ndarray)
    library = first.__module__.partition(".")[0]
    if library == "torch":
        torch = sys.modules["torch"]
        return [_tensor(torch, a, d) for a, d in zip(arrays, dtypes, strict=True)]
    in_jax = library in ("jax", "jaxlib") and "jax.numpy" in sys.modules
    given_types = [g.dtype for g in given if isinstance(getattr(g, "dtype", None), np.dtype)]
    if in_jax or any(t.name in _ML_DTYPES for t in given_types):
        types = sys.modules["ml_dtypes"]
        arrays = [a.view(getattr(types, str(d))) if d in _ML_DTYPES else a for a, d in zip(arrays, dtypes, strict=True)]
    return [sys.modules["jax.numpy"].asarray(a) for a in arrays] if in_jax else list(arrays)


_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Types that NumPy has from the package ml_dtypes, and arrays of bits without it."""


def _tensor(torch: Any, array: Any, dtype: str) -> Any:
    if isinstance(array, torch.Tensor):
        return array.view(getattr(torch, dtype)) if dtype in _ML_DTYPES else array
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if dtype in _ML_DTYPES:
        return torch.from_numpy(array).view(getattr(torch, dtype))
    return torch.from_numpy(array)


def array_call(function: Function) -> Callable[[Sequence[Any]], int]:
    """Returns what calls a function on arrays of another library; UNUSUAL where the careful path has to decide."""
    tensors = TensorCalls(function._arguments.given)

    def call(args: Sequence[Any]) -> int:
        addresses = tensors.addresses(args)
        if addresses is not None:
            return int(function._raw(*addresses))
        arrays = as_numpy(args)
        return UNUSUAL if arrays is None else function._quick(function.address, *arrays)

    return call


def _told_type(p: Param) -> str:
    """Returns the type of a new array: that of its bytes, or of the float8 that they are."""
    return p.stored if p.stored and DType(p.stored).is_float else str(p.dtype)


def completed_call(function: Function, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call a function with new arrays for those that are left out, and return them in the first argument's library."""
    missing = function._arguments.given[len(args) :]
    if not named and all(p.writes and static_shape(p) is not None for p in missing):
        fresh = new_arrays(missing, args)
        function(*args, *fresh)
    else:
        complete, fresh = completed(function._arguments, args, named)
        function(*complete)
        missing = [p for p, a in zip(function._arguments.given, complete, strict=True) if any(a is f for f in fresh)]
    if not fresh:
        return None
    out = returned(fresh, [*args, *named.values()], [_told_type(p) for p in missing])
    return out[0] if len(out) == 1 else tuple(out)
