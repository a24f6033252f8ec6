"""Microbenchmarks of a machine as LLVM IR, for its peak, bandwidth and clock.

Chains of multiply-adds measure the peak, sweeps over arrays the bandwidth, and a chain of dependent integer operations
the clock.

Each is ``void NAME(ptr ctx, i64 begin, i64 end)``, the shape that the runtime's pool calls; ``ctx`` holds 64-bit slots.
"""

from __future__ import annotations

from ...tir.dtype import DType
from ..machine.target import Target
from .llvm_types import float_constant, llvm_type, splat_constant

CLOCK_STEPS = 64
"""Dependent one-cycle operations in one iteration of :func:`clock_ir`."""
_UNROLL = 8


def _accumulators(target: Target) -> int:
    """Returns the number of independent chains, which cover the latency of two pipes and fit into registers."""
    return 24 if target.num_vector_registers >= 32 else 12


_TILES = 6
"""Products of tiles in one iteration, more than enough to cover the latency of one."""


def _tile_steps(target: Target, dtype: str) -> int:
    """Returns the number of terms in one product of tiles, or 0 where the target has no instruction for them."""
    if dtype == "int8":
        return 64 if target.has_amx_int8 else 0
    return 32 if dtype == "bfloat16" and target.has_amx_bf16 else 0


def fma_flops(target: Target, dtype: str) -> int:
    """Returns the operations (a multiplication and an addition are two) in one iteration of :func:`fma_ir`."""
    if _tile_steps(target, dtype):
        return _TILES * 2 * 16 * 16 * _tile_steps(target, dtype)
    if dtype == "int8":
        return _accumulators(target) * 2 * 64 * (target.vector_bits // 128) // 4
    if dtype == "bfloat16":
        return _accumulators(target) * 2 * target.vector_bits // 16
    return _accumulators(target) * 2 * target.vector_lanes(dtype)


def fma_ir(target: Target, dtype: DType) -> str:
    """Returns ``probe_fma``: ``end - begin`` chunks of ``ctx[1]`` iterations, each of which updates every accumulator
    once.

    ``dtype`` is float32, float64, or int8 and bfloat16 with AMX (tdpbusd, tdpbf16ps), else with AVX-512 (vpdpbusd,
    vdpbf16ps).
    """
    if _tile_steps(target, dtype):
        return _tiles_ir(target, dtype)
    count = _accumulators(target)
    if dtype == "int8":
        vector, declare, step = _dot(target, "vpdpbusd", "i32", "i32")
    elif dtype == "bfloat16":
        vector, declare, step = _dot(target, "dpbf16ps", "float", "bfloat")
    else:
        lanes = target.vector_lanes(dtype)
        vector = llvm_type(f"{dtype}x{lanes}") if lanes > 1 else llvm_type(dtype)
        name = f"llvm.fmuladd.v{lanes}f{8 * dtype.bytes}"
        declare = f"declare {vector} @{name}({vector}, {vector}, {vector})"
        near_one = splat_constant(float_constant(0.999, dtype), DType(f"{dtype}x{lanes}"))
        small = splat_constant(float_constant(0.001, dtype), DType(f"{dtype}x{lanes}"))
        step = f"call {vector} @{name}({vector} %ACC, {vector} {near_one}, {vector} {small})"
    out = [
        declare,
        f"define internal void @probe_fma(ptr %ctx, i64 %begin, i64 %end) noinline {target.llvm_attributes} {{",
    ]
    out += ["entry:", "  %out = load ptr, ptr %ctx, align 8", "  %at = getelementptr i64, ptr %ctx, i64 1"]
    out += [
        "  %per = load i64, ptr %at, align 8",
        "  %chunks = sub i64 %end, %begin",
        "  %rounds = mul i64 %chunks, %per",
    ]
    for i in range(count):
        out.append(f"  %p{i} = getelementptr i8, ptr %out, i64 {64 * i}")
        out.append(f"  %x{i} = load {vector}, ptr %p{i}, align 64")
    out += ["  br label %loop", "loop:", "  %n = phi i64 [ 0, %entry ], [ %m, %loop ]"]
    for i in range(count):
        out.append(f"  %a{i} = phi {vector} [ %x{i}, %entry ], [ %b{i}, %loop ]")
    for i in range(count):
        out.append(f"  %b{i} = {step.replace('%ACC', f'%a{i}')}")
    out += [
        "  %m = add i64 %n, 1",
        "  %more = icmp slt i64 %m, %rounds",
        "  br i1 %more, label %loop, label %done",
        "done:",
    ]
    # Several threads run this at once: each stores its results to its own stack, which also keeps them alive.
    out.append(f"  %keep = alloca {vector}, align 64")
    out += [f"  store volatile {vector} %b{i}, ptr %keep, align 64" for i in range(count)]
    out += ["  ret void", "}", ""]
    return "\n".join(out)


def _tiles_ir(target: Target, dtype: str) -> str:
    """Returns :func:`fma_ir` with products of tiles (of the memory at ``ctx[0]``, whose numbers do not matter)."""
    name = "llvm.x86.tdpbusd.internal" if dtype == "int8" else "llvm.x86.tdpbf16ps.internal"
    full, tile = "i16 16, i16 64", "x86_amx"
    load = f"call {tile} @llvm.x86.tileloadd64.internal({full}, ptr %out, i64 64)"
    out = [
        f"declare {tile} @llvm.x86.tilezero.internal(i16, i16)",
        f"declare {tile} @llvm.x86.tileloadd64.internal(i16, i16, ptr, i64)",
        f"declare void @llvm.x86.tilestored64.internal(i16, i16, ptr, i64, {tile})",
        f"declare {tile} @{name}(i16, i16, i16, {tile}, {tile}, {tile})",
        f"define internal void @probe_fma(ptr %ctx, i64 %begin, i64 %end) noinline {target.llvm_attributes} {{",
        "entry:",
        "  %keep = alloca [1024 x i8], align 64",
        "  %out = load ptr, ptr %ctx, align 8",
        "  %at = getelementptr i64, ptr %ctx, i64 1",
        "  %per = load i64, ptr %at, align 8",
        "  %chunks = sub i64 %end, %begin",
        "  %rounds = mul i64 %chunks, %per",
        f"  %left = {load}",
        f"  %right = {load}",
        *[f"  %x{i} = call {tile} @llvm.x86.tilezero.internal({full})" for i in range(_TILES)],
        "  br label %loop",
        "loop:",
        "  %n = phi i64 [ 0, %entry ], [ %m, %loop ]",
        *[f"  %a{i} = phi {tile} [ %x{i}, %entry ], [ %b{i}, %loop ]" for i in range(_TILES)],
        *[
            f"  %b{i} = call {tile} @{name}({full}, i16 64, {tile} %a{i}, {tile} %left, {tile} %right)"
            for i in range(_TILES)
        ],
        "  %m = add i64 %n, 1",
        "  %more = icmp slt i64 %m, %rounds",
        "  br i1 %more, label %loop, label %done",
        "done:",
        *[
            f"  call void @llvm.x86.tilestored64.internal({full}, ptr %keep, i64 64, {tile} %b{i})"
            for i in range(_TILES)
        ],
        "  ret void",
        "}",
        "",
    ]
    return "\n".join(out)


def _dot(target: Target, name: str, to: str, of: str) -> tuple[str, str, str]:
    """Returns vector type, declaration and one step of a dot-product instruction on 512-bit registers."""
    vector = f"<16 x {to}>"
    operand = "<16 x i32>" if of == "i32" else "<32 x bfloat>"
    family = "avx512" if name == "vpdpbusd" else "avx512bf16"
    full = f"llvm.x86.{family}.{name}.512"
    declare = f"declare {vector} @{full}({vector}, {operand}, {operand})"
    ones = "splat (i32 16843009)" if of == "i32" else "splat (bfloat 0xR3C00)"
    return vector, declare, f"call {vector} @{full}({vector} %ACC, {operand} {ones}, {operand} {ones})"


def sweep_ir(target: Target, kind: str, past_caches: bool = False, apart: bool = False) -> str:
    """Returns ``probe_<kind>`` over elements ``[begin, end)`` of float32 arrays ``ctx[0..2]``, in blocks of eight
    vectors.

    ``read``: sum of a; ``copy``: b = a; ``triad``: c = a + 3 b; ``quad``: d = a b + c with d = ctx[5]. One unit of the
    range is one block. ``past_caches``: the stores are non-temporal. ``apart``: each of the eight vectors comes from
    another eighth of the range, so that memory sees eight streams of each array.
    """
    hint = ", !nontemporal !0" if past_caches else ""
    lanes = target.vector_lanes("float32")
    vector, block = f"<{lanes} x float>", lanes * _UNROLL
    zero = "zeroinitializer"
    three = splat_constant(float_constant(3.0, DType("float32")), DType(f"float32x{lanes}"))
    out = [
        f"declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})" if kind in ("triad", "quad") else ""
    ]
    out.append(
        f"define internal void @probe_{kind}(ptr %ctx, i64 %begin, i64 %end) noinline {target.llvm_attributes} {{"
    )
    out += ["entry:", "  %keep = alloca " + vector + ", align 64"]
    for i, name in zip((0, 1, 2, 5), "abcd", strict=True):
        out.append(f"  %at{name} = getelementptr i64, ptr %ctx, i64 {i}")
        out.append(f"  %{name} = load ptr, ptr %at{name}, align 8")
    out += ["  %any = icmp slt i64 %begin, %end", "  br i1 %any, label %loop, label %done", "loop:"]
    out.append("  %n = phi i64 [ %begin, %entry ], [ %m, %loop ]")
    if kind == "read":
        out += [f"  %s{u} = phi {vector} [ {zero}, %entry ], [ %t{u}, %loop ]" for u in range(_UNROLL)]
    # an iteration's first vector, and the distance from one vector to the next: 1, or the size of an eighth
    out += [f"  %start = mul i64 %begin, {block}", "  %trip = sub i64 %n, %begin", "  %units = sub i64 %end, %begin"]
    out += [f"  %moved = mul i64 %trip, {lanes if apart else block}", "  %first = add i64 %start, %moved"]
    out.append(f"  %apart = mul i64 {'%units' if apart else '1'}, {lanes}")
    for u in range(_UNROLL):
        out += [f"  %o{u} = mul i64 %apart, {u}", f"  %i{u} = add i64 %first, %o{u}"]
        out.append(f"  %pa{u} = getelementptr float, ptr %a, i64 %i{u}")
        out.append(f"  %x{u} = load {vector}, ptr %pa{u}, align 64")
        if kind == "read":
            out.append(f"  %t{u} = fadd {vector} %s{u}, %x{u}")
        elif kind == "copy":
            out.append(f"  %pb{u} = getelementptr float, ptr %b, i64 %i{u}")
            out.append(f"  store {vector} %x{u}, ptr %pb{u}, align 64{hint}")
        else:
            out.append(f"  %pb{u} = getelementptr float, ptr %b, i64 %i{u}")
            out.append(f"  %y{u} = load {vector}, ptr %pb{u}, align 64")
            factor, added, to = (three, f"%x{u}", "c") if kind == "triad" else (f"%x{u}", f"%w{u}", "d")
            if kind == "quad":
                out.append(f"  %pc{u} = getelementptr float, ptr %c, i64 %i{u}")
                out.append(f"  %w{u} = load {vector}, ptr %pc{u}, align 64")
            out.append(
                f"  %z{u} = call {vector} @llvm.fmuladd.v{lanes}f32({vector} %y{u}, {vector} {factor}, {vector} {added})"
            )
            out.append(f"  %p{to}{u} = getelementptr float, ptr %{to}, i64 %i{u}")
            out.append(f"  store {vector} %z{u}, ptr %p{to}{u}, align 64{hint}")
    out += [
        "  %m = add i64 %n, 1",
        "  %more = icmp slt i64 %m, %end",
        "  br i1 %more, label %loop, label %done",
        "done:",
    ]
    if kind == "read":
        out += [f"  %r{u} = phi {vector} [ {zero}, %entry ], [ %t{u}, %loop ]" for u in range(_UNROLL)]
        out += [f"  store volatile {vector} %r{u}, ptr %keep, align 64" for u in range(_UNROLL)]
    out += ["  ret void", "}", "!0 = !{i32 1}" if past_caches else "", ""]
    return "\n".join(out)


def sweep_block_bytes(target: Target) -> int:
    """Returns the bytes of one array in one unit of :func:`sweep_ir`'s range."""
    return target.vector_lanes("float32") * _UNROLL * 4


def clock_ir(target: Target) -> str:
    """Returns ``probe_clock``: ``end - begin`` times ``ctx[1]`` iterations of :data:`CLOCK_STEPS` dependent additions
    and exclusive-ors, one cycle each on every machine of the last decades."""
    out = [f"define internal void @probe_clock(ptr %ctx, i64 %begin, i64 %end) noinline {target.llvm_attributes} {{"]
    out += ["entry:", "  %keep = alloca i64, align 8", "  %at = getelementptr i64, ptr %ctx, i64 1"]
    out += [
        "  %per = load i64, ptr %at, align 8",
        "  %chunks = sub i64 %end, %begin",
        "  %rounds = mul i64 %chunks, %per",
    ]
    out += ["  br label %loop", "loop:", "  %n = phi i64 [ 0, %entry ], [ %m, %loop ]"]
    out.append(f"  %v0 = phi i64 [ %per, %entry ], [ %v{CLOCK_STEPS}, %loop ]")
    for i in range(CLOCK_STEPS):
        out.append(f"  %v{i + 1} = {'add' if i % 2 else 'xor'} i64 %v{i}, %per")
    out += ["  %m = add i64 %n, 1", "  %more = icmp slt i64 %m, %rounds", "  br i1 %more, label %loop, label %done"]
    out += ["done:", f"  store volatile i64 %v{CLOCK_STEPS}, ptr %keep, align 8", "  ret void", "}", ""]
    return "\n".join(out)


def driver_ir(name: str) -> str:
    """Returns ``i32 run(ptr ctx)`` for the timing loop: ``probe_<name>`` over ``[0, ctx[3])`` on ``ctx[4]`` threads."""
    return f"""
declare void @tw_parallel_for(ptr, ptr, i64, i32)
declare i32 @tw_tiles()
define i32 @run(ptr %ctx) {{
  %refused = call i32 @tw_tiles()
  %p3 = getelementptr i64, ptr %ctx, i64 3
  %n = load i64, ptr %p3, align 8
  %p4 = getelementptr i64, ptr %ctx, i64 4
  %threads = load i64, ptr %p4, align 8
  %t = trunc i64 %threads to i32
  call void @tw_parallel_for(ptr @probe_{name}, ptr %ctx, i64 %n, i32 %t)
  ret i32 0
}}
"""
