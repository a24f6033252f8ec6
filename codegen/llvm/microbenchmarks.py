"""Microbenchmarks of a machine as LLVM IR, for its peak, bandwidth and clock.

Chains of multiply-adds measure the peak, sweeps over arrays the bandwidth, and a chain of dependent integer operations
the clock.

Each is ``void NAME(ptr ctx, i64 begin, i64 end)``, the shape that the runtime's pool calls; ``ctx`` holds 64-bit slots.
"""

from __future__ import annotations

from ...tir.expr import DType
from ..machine.target import Target
from .function_builder import FunctionBuilder, float_constant, llvm_type, splat_constant, suffix

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


def _probe(target: Target, name: str) -> FunctionBuilder:
    return FunctionBuilder(
        f"define internal void @probe_{name}(ptr %ctx, i64 %begin, i64 %end) noinline {target.llvm_attributes}"
    )


def _slot(fn: FunctionBuilder, n: int, type_: str) -> str:
    """Returns what the context holds in one slot."""
    return fn.emit(f"load {type_}, ptr {fn.emit(f'getelementptr i64, ptr %ctx, i64 {n}')}, align 8")


def _iterations(fn: FunctionBuilder) -> str:
    """Returns the number of iterations: ``ctx[1]`` for each chunk."""
    per = _slot(fn, 1, "i64")
    return fn.emit(f"mul i64 {fn.emit('sub i64 %end, %begin')}, {per}")


def _finished(fn: FunctionBuilder, *metadata: str) -> str:
    """Returns the module of one function."""
    fn.do("ret void")
    return "\n".join([*fn.declarations.values(), fn.text(), *metadata, ""])


def fma_ir(target: Target, dtype: DType) -> str:
    """Returns ``probe_fma``: ``end - begin`` chunks of ``ctx[1]`` iterations, each of which updates every accumulator
    once.

    ``dtype`` is float32, float64, or int8 and bfloat16 with AMX (tdpbusd, tdpbf16ps; of the memory at ``ctx[0]``, whose
    numbers do not matter), else with AVX-512 (vpdpbusd, vdpbf16ps).
    """
    fn = _probe(target, "fma")
    out, rounds = _slot(fn, 0, "ptr"), _iterations(fn)
    if _tile_steps(target, dtype):
        return _tiles_ir(fn, dtype, out, rounds)
    if dtype == "int8":
        vector, operand = "<16 x i32>", "<16 x i32>"
        name, factors = "llvm.x86.avx512.vpdpbusd.512", ["splat (i32 16843009)"] * 2
    elif dtype == "bfloat16":
        vector, operand = "<16 x float>", "<32 x bfloat>"
        name, factors = "llvm.x86.avx512bf16.dpbf16ps.512", ["splat (bfloat 0xR3C00)"] * 2
    else:
        wide = dtype.with_lanes(target.vector_lanes(dtype))
        vector = operand = llvm_type(wide)
        name = f"llvm.fmuladd.{suffix(wide)}"
        factors = [splat_constant(float_constant(value, dtype), wide) for value in (0.999, 0.001)]

    def step(_: str, sums: list[str]) -> list[str]:
        return [fn.emit(fn.intrinsic(name, vector, [vector, operand, operand], [x, *factors])) for x in sums]

    places = [fn.emit(f"getelementptr i8, ptr {out}, i64 {64 * i}") for i in range(_accumulators(target))]
    starts = [(vector, fn.emit(f"load {vector}, ptr {place}, align 64")) for place in places]
    keep = fn.alloca(1, vector)  # several threads run this at once: each stores to its own stack
    for total in fn.repeat("0", rounds, starts, step):
        fn.do(f"store volatile {vector} {total}, ptr {keep}, align 64")
    return _finished(fn)


def _tiles_ir(fn: FunctionBuilder, dtype: DType, out: str, rounds: str) -> str:
    """Returns :func:`fma_ir` with products of tiles."""
    shape, full, tile = ["i16", "i16"], ["16", "64"], "x86_amx"
    product = f"llvm.x86.{'tdpbusd' if dtype == 'int8' else 'tdpbf16ps'}.internal"
    memory = [*shape, "ptr", "i64"]
    load = "llvm.x86.tileloadd64.internal"
    left, right = (fn.emit(fn.intrinsic(load, tile, memory, [*full, out, "64"])) for _ in range(2))
    zero = [fn.emit(fn.intrinsic("llvm.x86.tilezero.internal", tile, shape, full)) for _ in range(_TILES)]

    def step(_: str, sums: list[str]) -> list[str]:
        types = [*shape, "i16", tile, tile, tile]
        return [fn.emit(fn.intrinsic(product, tile, types, [*full, "64", x, left, right])) for x in sums]

    keep = fn.alloca(1024, "i8")
    for total in fn.repeat("0", rounds, [(tile, z) for z in zero], step):
        fn.do(fn.intrinsic("llvm.x86.tilestored64.internal", "void", [*memory, tile], [*full, keep, "64", total]))
    return _finished(fn)


def sweep_ir(target: Target, kind: str, past_caches: bool = False, apart: bool = False) -> str:
    """Returns ``probe_<kind>`` over elements ``[begin, end)`` of float32 arrays ``ctx[0..2]``, in blocks of eight
    vectors.

    ``read``: sum of a; ``copy``: b = a; ``triad``: c = a + 3 b; ``quad``: d = a b + c with d = ctx[5]. One unit of the
    range is one block. ``past_caches``: the stores are non-temporal. ``apart``: each of the eight vectors comes from
    another eighth of the range, so that memory sees eight streams of each array. The whole range is swept ``ctx[6]``
    times, at least once: arrays in the first-level cache are swept in less time than the call of a function takes.
    """
    fn, wide = _probe(target, kind), DType("float32").with_lanes(target.vector_lanes("float32"))
    vector, lanes, fma = llvm_type(wide), wide.lanes, f"llvm.fmuladd.{suffix(wide)}"
    hint = ", !nontemporal !0" if past_caches else ""
    three = splat_constant(float_constant(3.0, DType("float32")), wide)
    arrays = [_slot(fn, i, "ptr") for i in (0, 1, 2, 5)]
    asked = _slot(fn, 6, "i64")
    times = fn.emit(f"select i1 {fn.emit(f'icmp sgt i64 {asked}, 1')}, i64 {asked}, i64 1")
    work, done = fn.new_label("work"), fn.new_label("nothing")
    fn.branch_if(fn.emit("icmp slt i64 %begin, %end"), work, done)
    fn.label(done)
    fn.do("ret void")
    fn.label(work)
    # an iteration's first vector, and the distance from one vector to the next: 1, or the size of an eighth
    start = fn.emit(f"mul i64 %begin, {lanes * _UNROLL}")
    distance = fn.emit(f"mul i64 {fn.emit('sub i64 %end, %begin') if apart else '1'}, {lanes}")

    def step(n: str, sums: list[str]) -> list[str]:
        moved = fn.emit(f"mul i64 {fn.emit(f'sub i64 {n}, %begin')}, {lanes if apart else lanes * _UNROLL}")
        first = fn.emit(f"add i64 {start}, {moved}")
        after = []
        for u in range(_UNROLL):
            at = fn.emit(f"add i64 {first}, {fn.emit(f'mul i64 {distance}, {u}')}")
            a, b, c, d = (fn.pure(f"getelementptr float, ptr {array}, i64 {at}") for array in arrays)
            x = fn.emit(f"load {vector}, ptr {a}, align 64")
            if kind == "read":
                after.append(fn.emit(f"fadd {vector} {sums[u]}, {x}"))
                continue
            value, to = x, b
            if kind != "copy":
                y = fn.emit(f"load {vector}, ptr {b}, align 64")
                added = fn.emit(f"load {vector}, ptr {c}, align 64") if kind == "quad" else x
                value, to = fn.called(fma, vector, y, x if kind == "quad" else three, added), d if kind == "quad" else c
            fn.do(f"store {vector} {value}, ptr {to}, align 64{hint}")
        return after

    def sweep(_: str, sums: list[str]) -> list[str]:
        return fn.repeat("%begin", "%end", [(vector, total) for total in sums], step)

    keep = fn.alloca(1, vector)
    sums = [(vector, "zeroinitializer")] * (_UNROLL if kind == "read" else 0)
    for total in fn.repeat("0", times, sums, sweep):
        fn.do(f"store volatile {vector} {total}, ptr {keep}, align 64")
    return _finished(fn, "!0 = !{i32 1}" if past_caches else "")


def sweep_block_bytes(target: Target) -> int:
    """Returns the bytes of one array in one unit of :func:`sweep_ir`'s range."""
    return target.vector_lanes("float32") * _UNROLL * 4


def clock_ir(target: Target) -> str:
    """Returns ``probe_clock``, which counts cycles by dependent instructions. It runs ``end - begin`` times ``ctx[1]``
    iterations of :data:`CLOCK_STEPS` dependent additions and exclusive-ors, one cycle each on every machine of the last
    decades."""
    fn = _probe(target, "clock")
    per, rounds = _slot(fn, 1, "i64"), _iterations(fn)

    def step(_: str, values: list[str]) -> list[str]:
        value = values[0]
        for i in range(CLOCK_STEPS):
            value = fn.emit(f"{'add' if i % 2 else 'xor'} i64 {value}, {per}")
        return [value]

    keep = fn.alloca(1, "i64")
    fn.do(f"store volatile i64 {fn.repeat('0', rounds, [('i64', per)], step)[0]}, ptr {keep}, align 8")
    return _finished(fn)


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
