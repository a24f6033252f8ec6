"""Dot products, LLVM intrinsics, pointers and matched buffers: compiled, and compared with the interpreter and NumPy."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile, lower
from tilewright.codegen.machine.target_text import TargetError
from tilewright.schedule import Schedule, TensorIntrin
from tilewright.tir import assert_structural_equal, parse, verify
from tilewright.tir.expr.intrinsics.number_operations import dot2_bf16, dot4_u8i8
from tilewright.tir.interpret import interpret
from tilewright.tir.interpret.interpret_expr import InterpretError

PLAIN = "llvm -mcpu=x86-64-v3 -num-cores=1"
"""AVX2 and FMA, none of the dot-product instructions."""

TARGETS = {
    "native": "native -num-cores=1",
    "narrow": "native -num-cores=1 -vector-width=256",
    "plain": PLAIN,
    "avx-vnni": "llvm -mcpu=haswell -mattr=+avxvnni -num-cores=1",
}


def targets():
    out = []
    for name, text in TARGETS.items():
        try:
            target, missing = Target(text), Target(text).missing_here()
        except TargetError as error:
            target, missing = None, [str(error)]
        marks = [pytest.mark.skip(reason=f"this machine lacks {missing}")] if missing else []
        out.append(pytest.param(target, id=name, marks=marks))
    return out


def bits(x):
    """Whole numbers as bfloat16."""
    return (np.asarray(x, "float32").view("uint32") >> 16).astype("uint16")


def dot_func(op, lanes, width, types):
    return parse(f"""
@T.prim_func
def main(A: T.Buffer(({lanes * width},), "{types[0]}"), B: T.Buffer(({lanes * width},), "{types[1]}"),
         C: T.Buffer(({lanes},), "{types[2]}")):
    C[{"0" if lanes == 1 else f"0:{lanes}"}] = T.{op}(
        C[{"0" if lanes == 1 else f"0:{lanes}"}], A[0:{lanes * width}], B[0:{lanes * width}])
""")


@pytest.mark.parametrize("target", targets())
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 12, 16, 24, 32])
def test_dot4(target, lanes):
    func = dot_func("dot4_u8i8", lanes, 4, ("uint8", "int8", "int32"))
    verify(func)
    assert_structural_equal(parse(func.script()), func)
    run = compile(func, target, "dot")
    rng = np.random.default_rng(lanes)
    for extreme in (False, True):
        a = rng.choice([0, 255], 4 * lanes) if extreme else rng.integers(0, 256, 4 * lanes)
        b = rng.choice([-128, 127], 4 * lanes) if extreme else rng.integers(-128, 128, 4 * lanes)
        c = rng.integers(-(1 << 31), 1 << 31, lanes).astype("int32")
        want = (c + (a * b).reshape(lanes, 4).sum(1)).astype("int64").astype("int32")
        for runner in (run, lambda *x: interpret(func, *x)):
            out = c.copy()
            runner(a.astype("uint8"), b.astype("int8"), out)
            np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("target", targets())
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 24])
def test_dot2(target, lanes):
    func = dot_func("dot2_bf16", lanes, 2, ("bfloat16", "bfloat16", "float32"))
    assert_structural_equal(parse(func.script()), func)
    rng = np.random.default_rng(lanes)
    a, b = rng.integers(-9, 9, (2, 2 * lanes))
    c = rng.integers(-9, 9, lanes).astype("float32")
    want = c + (a * b).reshape(lanes, 2).sum(1)
    for runner in (compile(func, target, "dot"), lambda *x: interpret(func, *x)):
        out = c.copy()
        runner(bits(a), bits(b), out)
        np.testing.assert_array_equal(out, want)


def test_dots_of_unlike_types_are_no_dots():
    from tilewright.tir.expr import const

    with pytest.raises(TypeError, match="takes int32x4, uint8x16, int8x16, not int32x4, int8x16, int8x16"):
        dot4_u8i8(const(0, "int32x4"), const(0, "int8x16"), const(0, "int8x16"))
    with pytest.raises(TypeError, match="dot2_bf16 takes float32, bfloat16x2, bfloat16x2"):
        dot2_bf16(const(0.0), const(0.0, "float32x2"), const(0.0, "bfloat16x2"))


@pytest.mark.parametrize("name, word", [("dot_16x4_vnni", "vpdpbusd"), ("dot_16x2_bf16", "vdpbf16ps")])
def test_the_instruction_is_there_where_the_target_has_it(name, word):
    func = TensorIntrin.get(name).impl
    modern = compile(func, Target("llvm -mcpu=sapphirerapids -num-cores=1"), "f")
    lines = [line for line in modern.get_source("asm").splitlines() if word in line]
    assert len(lines) == 1 and "zmm" in lines[0]
    assert word not in compile(func, Target(PLAIN), "f").get_source("asm")
    half = compile(func, Target("llvm -mcpu=sapphirerapids -num-cores=1 -vector-width=256"), "f").get_source("asm")
    assert sum(word in line for line in half.splitlines()) == 2


def test_usdot_on_aarch64():
    func = TensorIntrin.get("dot_8x4_avx_vnni").impl
    text = compile(func, Target("llvm -mtriple=aarch64-linux-gnu -mcpu=generic -mattr=+i8mm -num-cores=1"), "f")
    assert text.get_source("asm").count("usdot") == 2


def int8_product(m, n, k, lanes, name):
    X = te.placeholder((m, 4 * k), name="X", dtype="uint8")
    W = te.placeholder((n, k, lanes, 4), name="W", dtype="int8")
    r = te.reduce_axis((0, 4 * k), name="r")
    C = te.compute(
        (m, lanes * n),
        lambda i, j: te.sum(X[i, r].astype("int32") * W[j // lanes, r // 4, j % lanes, r % 4].astype("int32"), axis=r),
        name="C",
    )
    sch = Schedule(te.create_prim_func([X, W, C]))
    i, j, kk = sch.get_loops("C")
    jo, ji = sch.split(j, [None, lanes])
    ko, ki = sch.split(kk, [None, 4])
    io, ii = sch.split(i, [None, 4])
    sch.reorder(io, jo, ko, ii, ji, ki)
    copy = sch.cache_write("C", 0, "local")
    sch.reverse_compute_at(copy, jo)
    sch.vectorize(sch.get_loops(copy)[-1])
    init = sch.decompose_reduction("C", ko)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.tensorize(ji, name)
    sch.unroll(ii)
    return sch


@pytest.mark.parametrize("target", targets())
@pytest.mark.parametrize("name, lanes", [("dot_16x4_vnni", 16), ("dot_8x4_avx_vnni", 8)])
@pytest.mark.parametrize("m, n, k", [(4, 1, 1), (16, 3, 17)])
def test_a_tensorized_int8_product(target, name, lanes, m, n, k):
    sch = int8_product(m, n, k, lanes, name)
    run = compile(sch, target, "product")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (m, 4 * k)).astype("uint8")
    w = rng.integers(-128, 128, (lanes * n, 4 * k)).astype("int8")
    out = np.full((m, lanes * n), 77, "int32")
    run(x, w.reshape(n, lanes, k, 4).transpose(0, 2, 1, 3).copy(), out)
    np.testing.assert_array_equal(out, x.astype("int32") @ w.astype("int32").T)


def test_lowered_and_interpreted():
    sch = int8_product(4, 2, 3, 16, "dot_16x4_vnni")
    lowered = lower(sch, Target("native -num-cores=1")).func
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (4, 12)).astype("uint8")
    w = rng.integers(-128, 128, (32, 12)).astype("int8")
    out = np.full((4, 32), 77, "int32")
    interpret(lowered, x, w.reshape(2, 16, 3, 4).transpose(0, 2, 1, 3).copy(), out)
    np.testing.assert_array_equal(out, x.astype("int32") @ w.astype("int32").T)


@pytest.mark.parametrize("target", targets())
@pytest.mark.parametrize("k", [1, 7, 13])
def test_a_tile_of_multiply_adds(target, k):
    m, n = 12, 32
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    sch = Schedule(te.create_prim_func([A, B, C]))
    i, j, kk = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 6])
    j0, j1 = sch.split(j, [None, 16])
    sch.reorder(i0, j0, kk, i1, j1)
    sch.reverse_compute_at(sch.cache_write("C", 0, "local"), j0)
    sch.decompose_reduction("C", kk)
    sch.tensorize(i1, "fma_6x16_f32")
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)).astype("float32"), rng.integers(-4, 5, (k, n)).astype("float32")
    out = np.full((m, n), np.nan, "float32")
    compile(sch, target, "product")(a, b, out)
    np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_blockized_reductions_compile(level):
    m, n, k = 13, 16, 7
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    sch = Schedule(te.create_prim_func([A, B, C]))
    i, j, kk = sch.get_loops("C")
    j0, j1 = sch.split(j, [None, 4])
    sch.reorder(i, j0, kk, j1)
    sch.blockize([i, j0, kk, j1][level])
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)).astype("float32"), rng.integers(-4, 5, (k, n)).astype("float32")
    out = np.full((m, n), np.nan, "float32")
    compile(sch, "native -num-cores=1", "product")(a, b, out)
    np.testing.assert_array_equal(out, a @ b)


# -- intrinsics of LLVM, by name -----------------------------------------------------------------------------------------

VNNI = """
@T.prim_func
def main(A: T.Buffer((4,), "uint8"), B: T.Buffer((16, 4), "int8"), C: T.Buffer((16,), "int32")):
    with T.block("root"):
        T.reads(C[0:16], A[0:4], B[0:16, 0:4])
        T.writes(C[0:16])
        A_u8x4 = A.vload([0], "uint8x4")
        A_i32 = T.reinterpret(A_u8x4, dtype="int32")
        B_i8x64 = B.vload([0, 0], dtype="int8x64")
        B_i32x16 = T.reinterpret(B_i8x64, dtype="int32x16")
        C_i32x16 = C.vload([0], dtype="int32x16")
        C[T.ramp(T.int32(0), 1, 16)] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.512"),
            C_i32x16, T.broadcast(A_i32, 16), B_i32x16, dtype="int32x16")
"""

MADD = """
@T.prim_func
def main(A: T.Buffer((4,), "uint8"), B: T.Buffer((8, 4), "int8"), C: T.Buffer((8,), "int32")):
    with T.block("root"):
        T.reads(C[0:8], A[0:4], B[0:8, 0:4])
        T.writes(C[0:8])
        a = T.reinterpret(T.broadcast(T.reinterpret(A.vload([0], "uint8x4"), dtype="int32"), 8), dtype="uint8x32")
        pairs = T.call_llvm_pure_intrin("int16x16", "llvm.x86.avx2.pmadd.ub.sw", T.uint32(2), a, B.vload([0, 0], "int8x32"))
        C[0:8] = C[0:8] + T.call_llvm_pure_intrin("int32x8", "llvm.x86.avx2.pmadd.wd", pairs, T.int16x16(1))
"""


@pytest.mark.parametrize("text, lanes, feature, limit", [(VNNI, 16, "avx512vnni", 128), (MADD, 8, "avx2", 64)])
def test_intrinsics_by_name(text, lanes, feature, limit):
    func = parse(text)
    verify(func)
    assert_structural_equal(parse(func.script()), func)
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2 * limit, 4).astype("uint8")
    b = rng.integers(-limit, limit, (lanes, 4)).astype("int8")
    c = rng.integers(-9, 9, lanes).astype("int32")
    want = c + b.astype("int32") @ a.astype("int32")
    runners = [lambda *x: interpret(func, *x)]
    if Target("native").has(feature):
        runners.append(compile(func, "native -num-cores=1", "f"))
    for runner in runners:
        out = c.copy()
        runner(a, b, out)
        np.testing.assert_array_equal(out, want)


def test_overloaded_intrinsics():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    B[0:8] = T.call_llvm_pure_intrin("float32x8", "llvm.fma.v8f32", A[0:8], A[0:8],
                                     T.call_llvm_intrin("float32x8", "llvm.sqrt.v8f32", A[0:8]))
""")
    a = np.arange(8, dtype="float32") ** 2
    for runner in (lambda *x: interpret(func, *x), compile(func, "native -num-cores=1", "f")):
        out = np.zeros(8, "float32")
        runner(a, out)
        np.testing.assert_array_equal(out, a * a + np.arange(8))


def test_an_intrinsic_without_a_full_name():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    A[0] = T.call_llvm_pure_intrin("float32", "sqrt", A[0])
""")
    with pytest.raises(ValueError, match="full name"):
        compile(func, "native", "f")
    with pytest.raises(Exception, match="cannot evaluate a call of tir.call_llvm_pure_intrin"):
        interpret(func, np.zeros(8, "float32"))


# -- pointers and matched buffers ----------------------------------------------------------------------------------------

COPY = """
@T.prim_func
def copy(A: T.Buffer((4, 8), "float32", offset_factor=1), B: T.Buffer((4, 8), "float32", offset_factor=1)):
    with T.block("root"):
        T.reads(A[0:4, 0:8])
        T.writes(B[0:4, 0:8])
        for i, j in T.grid(4, 8):
            with T.block("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
"""

MEMCPY = """
@T.prim_func
def copy(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (4, 8), "float32", offset_factor=1, strides=("p", "q"))
    B = T.match_buffer(b, (4, 8), "float32", offset_factor=1, strides=("r", "s"))
    with T.block("root"):
        T.reads(A[0:4, 0:8])
        T.writes(B[0:4, 0:8])
        for i in range(4):
            T.evaluate(T.call_extern("handle", "memcpy", {to}, {source}, T.int64(32)))
"""

WAYS = {
    "access_ptr": ('B.access_ptr("w", offset=i * B.strides[0])', 'A.access_ptr("r", offset=i * A.strides[0])'),
    "address_of": ("T.address_of(B[i, 0])", "T.address_of(A[i, 0])"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scope", ["global", "local", "shared"])
def test_pointers_into_matched_buffers(way, scope):
    to, source = WAYS[way]
    impl = parse(MEMCPY.format(to=to, source=source))
    assert_structural_equal(parse(impl.script()), impl)
    desc = parse(COPY.replace('with T.block("root")', 'T.func_attr({"any_scope": True})\n    with T.block("root")', 1))
    TensorIntrin.register("test_memcpy", desc, impl, override=True)

    def memcpy(to, source, count):
        to[: count // 4] = source[: count // 4]

    TensorIntrin.get("test_memcpy").check(externs={"memcpy": memcpy})
    A = te.placeholder((3, 8, 16), name="A")
    B = te.compute((3, 8, 16), lambda n, i, j: A[n, i, j], name="B")
    C = te.compute((3, 8, 16), lambda n, i, j: B[n, i, j] * 2.0, name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func, debug_mask="all")
    if scope != "global":
        sch.set_scope("B", 0, scope)
    _, i, j = sch.get_loops("B")
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(i0, j0, i1, j1)
    sch.tensorize(i1, "test_memcpy")
    assert_structural_equal(parse(sch.func.script()), sch.func)
    a = np.arange(3 * 8 * 16, dtype="float32").reshape(3, 8, 16)
    for runner in (
        lambda *x: interpret(sch.func, *x, externs={"memcpy": memcpy}),
        lambda *x: interpret(lower(sch, Target("native")).func, *x, externs={"memcpy": memcpy}),
        compile(sch, "native -num-cores=1", "f"),
    ):
        out = np.full((3, 8, 16), np.nan, "float32")
        runner(a, out)
        np.testing.assert_array_equal(out, 2 * a)


def test_a_match_inside_a_match():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32")):
    for i, j in T.grid(2, 2):
        with T.block("outer"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi * 4 : vi * 4 + 4, vj * 8 : vj * 8 + 8])
            T.writes(B[vi * 4 : vi * 4 + 4, vj * 8 : vj * 8 + 8])
            s = T.int32()
            o = T.int32()
            A1 = T.match_buffer(A[vi * 4 : vi * 4 + 4, vj * 8 : vj * 8 + 8], (4, 8))
            B1 = T.match_buffer(B[vi * 4 : vi * 4 + 4, vj * 8 : vj * 8 + 8], (4, 8), strides=(s, 1), elem_offset=o)
            for k in range(4):
                with T.block("inner"):
                    vk = T.axis.spatial(4, k)
                    T.reads(A1[vk, 0:8])
                    T.writes(B1[vk, 0:8])
                    o2 = T.int32()
                    o3 = T.int32()
                    A2 = T.match_buffer(A1[vk, 0:8], (8,), elem_offset=o2)
                    B2 = T.match_buffer(B1[vk, 0:8], (8,), elem_offset=o3)
                    B2[0] = T.Cast("float32", A2.elem_offset) + A2[0]
                    B2[1:8] = A2[1:8]
                    B2[1] = B2[1] + T.Cast("float32", B2.elem_offset * 100 + B1.elem_offset * 10000 + B1.strides[0] * 1000000)
""")
    assert_structural_equal(parse(func.script()), func)
    a = np.zeros((8, 16), "float32")
    results = []
    for runner in (lambda *x: interpret(func, *x), compile(func, "native -num-cores=1", "f")):
        out = np.full((8, 16), np.nan, "float32")
        runner(a, out)
        results.append(out)
    np.testing.assert_array_equal(*results)
    assert (
        results[0][5, 8] == 5 * 16 + 8 and results[0][5, 9] == (5 * 16 + 8) * 100 + (4 * 16 + 8) * 10000 + 16 * 1000000
    )


def test_a_match_of_other_strides_is_an_error():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8, 16), "float32")):
    with T.block("b"):
        A1 = T.match_buffer(A[0:4, 0:8], (4, 8), strides=(8, 1))
        A1[0, 0] = T.float32(1)
""")
    with pytest.raises(InterpretError, match=r"has strides \[16, 1\], expected \[8, 1\]"):
        interpret(func, np.zeros((8, 16), "float32"))


def test_an_intrinsic_in_c(tmp_path):
    import ctypes
    import shutil
    import subprocess

    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    sch = int8_product(4, 2, 3, 16, "dot_16x4_vnni")
    source = tmp_path / "f.c"
    source.write_text(compile(sch, Target(PLAIN), "f").get_source("c"))
    library = tmp_path / "f.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"], check=True)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (4, 12)).astype("uint8")
    w = rng.integers(-128, 128, (32, 12)).astype("int8")
    packed = w.reshape(2, 16, 3, 4).transpose(0, 2, 1, 3).copy()
    out = np.full((4, 32), 77, "int32")
    arrays = [a.ctypes.data_as(ctypes.c_void_p) for a in (x, packed, out)]
    assert ctypes.CDLL(str(library)).f(*arrays) == 0
    np.testing.assert_array_equal(out, x.astype("int32") @ w.astype("int32").T)
