"""Native code around a compiled function for fast calls, one small object per signature, shared by all functions with
it.

``tw_packed(args)`` calls through an array of 8-byte slots: the function's address, then its arguments. The timing loops
and bound calls use it.

``tw_call(fn, array, …)`` takes Python objects, reads NumPy's array header itself (type, dtype, rank, shape, flags,
pointer), calls ``fn`` when all checks hold, and otherwise returns :data:`UNUSUAL` without a call; then the
careful path decides and explains. A checked call therefore costs less than a microsecond. The header's layout is
NumPy's public C ABI (PyArrayObject_fields), which is tested once on a real array before it is used.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...tir.expr import EQ, Add, Cast, Expr, IntImm, Mul, Select, Sub, Var, pre_order, to_numpy
from ..llvm.jit import Loaded, load, optimize_and_compile
from ..lowered import Param
from ..machine.target import Target
from .call_services import UNUSUAL, register_service

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
        return _load(packed_ir(params), fast_call_ir(params) or "", _argument_kinds(params))


def _argument_kinds(params: Sequence[Param]) -> str:
    return "".join("O" if p.kind == "buffer" else "d" for p in params if p.kind != "size")


@lru_cache(maxsize=512)
def _load(packed: str, fast: str, kinds: str) -> Glue:
    target = Target("native -num-cores=1")
    # It is not kept on disk, because it holds addresses of this process.
    made = optimize_and_compile(packed + fast, target, 1, cache=not fast)
    loaded = load(made.object, ["tw_packed", "tw_call"] if fast else ["tw_packed"])
    if not fast:
        return Glue(loaded, None)
    types = [ctypes.py_object if kind == "O" else ctypes.c_double for kind in kinds]
    return Glue(loaded, ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *types)(loaded.address("tw_call")))


def packed_ir(params: Sequence[Param]) -> str:
    """Returns ``i32 tw_packed(ptr args)``: slot 0 is the function, slot i+1 its i-th argument."""
    lines = ["define i32 @tw_packed(ptr %args) nounwind {", "  %fn = load ptr, ptr %args, align 8"]
    for i, p in enumerate(params):
        lines.append(f"  %at{i} = getelementptr i64, ptr %args, i64 {i + 1}")
        lines.append(f"  %v{i} = load {p.llvm_type}, ptr %at{i}, align 8")
    passed = ", ".join(f"{p.llvm_type} %v{i}" for i, p in enumerate(params))
    lines += [f"  %rc = call i32 %fn({passed})", "  ret i32 %rc", "}", ""]
    return "\n".join(lines)


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
    """Returns ``i32 tw_call(ptr fn, …)``, with a PyObject per buffer and a double per scalar.

    None for a signature with strides, offsets, computed extents or integer scalars, which take the careful path.
    """
    if not _header_is_known():
        return None
    out: list[str] = []
    known: dict[Var, str] = {}
    passed: list[str] = []
    spans: list[tuple[int, bool]] = []
    for i, p in enumerate(params):
        if p.kind == "buffer":
            if not _emit_buffer(out, i, p, known):
                return None
            passed.append(f"ptr %data{i}")
            spans.append((i, p.writes))
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
    _emit_aliasing(out, spans)
    head = ["ptr %fn"] + [
        f"{'ptr' if p.kind == 'buffer' else 'double'} %a{i}" for i, p in enumerate(params) if p.kind != "size"
    ]
    return "\n".join([
        f"define i32 @tw_call({', '.join(head)}) nounwind {{",
        *out,
        f"  %rc = call i32 %fn({', '.join(passed)})",
        "  ret i32 %rc",
        "unusual:",
        f"  ret i32 {UNUSUAL}",
        "}",
        "",
    ])  # fmt: skip


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
    fields = [("type", _HEAD - 8, "i64"), ("data", _HEAD, "ptr"), ("rank", _HEAD + 8, "i32"),
              ("shape", _HEAD + 16, "ptr"), ("descr", _HEAD + 40, "i64"), ("flags", _HEAD + 48, "i32")]  # fmt: skip
    # The type comes first, because only an array has fields to read.
    for n, (name, offset, kind) in enumerate(fields):
        out.append(f"  %{name}{i}p = getelementptr i8, ptr %a{i}, i64 {offset}")
        out.append(f"  %{name}{i} = load {kind}, ptr %{name}{i}p, align 4")
        if n == 0:
            out.append(f"  %isarray{i} = icmp eq i64 %type{i}, {id(np.ndarray)}")
            out.append(f"  br i1 %isarray{i}, label %array{i}, label %unusual")
            out.append(f"array{i}:")
    out.append(f"  %isdtype{i} = icmp eq i64 %descr{i}, {id(dtype)}")
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
        op = {Add: "add", Sub: "sub", Mul: "mul", EQ: "icmp eq"}[type(e)]
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


register_service("glue", glue_for)
