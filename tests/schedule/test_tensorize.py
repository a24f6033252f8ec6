"""tensorize and the registry: what comes out, that it computes the same, what is refused and how that reads."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.schedule import Schedule, ScheduleError, TensorIntrin
from tilewright.tir import assert_structural_equal, parse, verify
from tilewright.tir.interpret import interpret

DESC = """
@T.prim_func
def desc(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4, 4), align=64, offset_factor=1)
    B = T.match_buffer(b, (4, 4), align=64, offset_factor=1)
    C = T.match_buffer(c, (4, 4), align=64, offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:4], A[0:4, 0:4], B[0:4, 0:4])
        T.writes(C[0:4, 0:4])
        for i, j, k in T.grid(4, 4, 4):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]
"""

CALL = """
@T.prim_func
def impl(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4, 4), align=64, offset_factor=1)
    B = T.match_buffer(b, (4, 4), align=64, offset_factor=1)
    C = T.match_buffer(c, (4, 4), align=64, offset_factor=1, strides=("s0", "s1"))
    with T.block("root"):
        T.reads(C[0:4, 0:4], A[0:4, 0:4], B[0:4, 0:4])
        T.writes(C[0:4, 0:4])
        T.block_attr({"unit": "matrix"})
        T.evaluate(T.call_extern("mma", C.data, C.elem_offset, C.strides[0], A.data, A.elem_offset, B.data,
                                 B.elem_offset // 16, dtype="int32"))
"""

LOOPS = """
@T.prim_func
def impl(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4, 4), offset_factor=1)
    B = T.match_buffer(b, (4, 4), offset_factor=1)
    C = T.match_buffer(c, (4, 4), offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:4], A[0:4, 0:4], B[0:4, 0:4])
        T.writes(C[0:4, 0:4])
        for j, i in T.grid(4, 4):
            t = T.float32(0)
            C[i, j] = C[i, j] + (A[i, 0] * B[j, 0] + A[i, 1] * B[j, 1] + A[i, 2] * B[j, 2] + A[i, 3] * B[j, 3]) + t
"""


@pytest.fixture
def register():
    """``register(desc, impl)`` under a name that is gone afterwards."""
    from tilewright.schedule import tensor_intrin

    before = dict(tensor_intrin._REGISTERED)

    def add(desc=DESC, impl=LOOPS, name="test_mma"):
        TensorIntrin.register(name, parse(desc), parse(impl), override=True)
        return TensorIntrin.get(name)

    yield add
    tensor_intrin._REGISTERED.clear()
    tensor_intrin._REGISTERED.update(before)


def product(m, n, k, index="", dtype="float32"):
    w = f"T.{index}" if index else ""
    return parse(f"""
@T.prim_func
def main(A: T.Buffer(({w}({m}), {w}({k})), "{dtype}"), B: T.Buffer(({w}({n}), {w}({k})), "{dtype}"),
         C: T.Buffer(({w}({m}), {w}({n})), "{dtype}")):
    for i, j, k in T.grid({w}({m}), {w}({n}), {w}({k})):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.{dtype}(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]
""")


def tiled(func, decompose=True, block="update"):
    sch = Schedule(func, debug_mask="all")
    loops = sch.get_loops(block)
    outer, inner = zip(*[sch.split(v, [None, 4]) for v in loops[-3:]], strict=True)
    sch.reorder(*outer, *inner)
    if decompose:
        sch.decompose_reduction(block, outer[2])
    return sch, inner[0]


def test_a_matrix_unit_called_by_pointer(register, replays, same):
    register(DESC, CALL)
    func = product(8, 12, 16)
    sch, loop = tiled(func)
    sch.tensorize(loop, "test_mma")
    same(sch.func, """
@T.prim_func
def main(A: T.Buffer((8, 16), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 12), "float32")):
    for i_0, j_0 in T.grid(2, 3):
        for i_1, j_1 in T.grid(4, 4):
            with T.block("update_init"):
                vi = T.axis.spatial(8, i_0 * 4 + i_1)
                vj = T.axis.spatial(12, j_0 * 4 + j_1)
                C[vi, vj] = T.float32(0)
        for k_0 in range(4):
            with T.block("update_update_o"):
                vi, vj, vk = T.axis.remap("SSR", [i_0, j_0, k_0])
                T.reads(C[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4], A[vi * 4 : vi * 4 + 4, vk * 4 : vk * 4 + 4],
                        B[vj * 4 : vj * 4 + 4, vk * 4 : vk * 4 + 4])
                T.writes(C[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4])
                T.block_attr({"unit": "matrix"})
                x = T.int32()
                y = T.int32()
                z = T.int32()
                s0 = T.int32()
                s1 = T.int32()
                A1 = T.match_buffer(A[vi * 4 : vi * 4 + 4, vk * 4 : vk * 4 + 4], (4, 4), elem_offset=x)
                B1 = T.match_buffer(B[vj * 4 : vj * 4 + 4, vk * 4 : vk * 4 + 4], (4, 4), elem_offset=y)
                C1 = T.match_buffer(C[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4], (4, 4), elem_offset=z,
                                    strides=(s0, s1))
                T.evaluate(T.call_extern("mma", C1.data, C1.elem_offset, C1.strides[0], A1.data, A1.elem_offset,
                                         B1.data, B1.elem_offset // 16, dtype="int32"))
""")  # fmt: skip
    assert_structural_equal(parse(sch.func.script()), sch.func)
    replays(sch, func)


def test_pointers_offsets_and_strides_in_the_interpreter(register):
    register(DESC, CALL.replace("B.elem_offset // 16", "B.elem_offset"))

    def mma(c, at, row, a, a_at, b, b_at):
        for i in range(4):
            for j in range(4):
                dot = sum(a[a_at + 16 * i + k] * b[b_at + 16 * j + k] for k in range(4))
                c[at + row * i + j] += dot

    func = product(8, 12, 16)
    sch, loop = tiled(func)
    sch.tensorize(loop, "test_mma")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype("float32") for shape in ((8, 16), (12, 16)))
    c = np.full((8, 12), np.nan, "float32")
    interpret(sch.func, a, b, c, externs={"mma": mma})
    np.testing.assert_array_equal(c, a @ b.T)


@pytest.mark.parametrize("index", ["", "int64"])
def test_an_implementation_in_loops(register, agree, replays, index):
    register().check()
    func = product(8, 4, 12, index)
    sch, loop = tiled(func)
    sch.tensorize(loop, "test_mma")
    assert all(m.buffer.elem_offset.dtype == (index or "int32") for m in blocks(sch)["update_update_o"].match_buffers)
    agree(func, sch.func)
    replays(sch, func)


def blocks(sch):
    from tilewright.tir.walk import blocks_of

    return {b.block.name: b.block for b in blocks_of(sch.func)}


def test_twice_in_one_function(register, agree):
    register()
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32"), D: T.Buffer((8, 8), "float32")):
    C = T.alloc_buffer((8, 8), "float32")
    for i, j, k in T.grid(8, 8, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]
    for i, j, k in T.grid(8, 8, 8):
        with T.block("D"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                D[vi, vj] = T.float32(0)
            D[vi, vj] = D[vi, vj] + C[vi, vk] * A[vj, vk]
""")
    sch = Schedule(func, debug_mask="all")
    for block in "CD":
        loops = sch.get_loops(block)
        outer, inner = zip(*[sch.split(v, [None, 4]) for v in loops], strict=True)
        sch.reorder(*outer, *inner)
        sch.decompose_reduction(block, outer[2])
        sch.tensorize(inner[0], "test_mma")
    verify(sch.func)
    agree(func, sch.func)


def test_more_dimensions_than_the_description(register, agree, replays):
    register()
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3, 8, 8), "float32"), B: T.Buffer((3, 8, 8), "float32"), C: T.Buffer((3, 8, 8), "float32")):
    for n, i, j in T.grid(3, 8, 8):
        with T.block("init"):
            vn, vi, vj = T.axis.remap("SSS", [n, i, j])
            C[vn, vi, vj] = T.float32(0)
    for n, i, j, k in T.grid(3, 8, 8, 8):
        with T.block("update"):
            vn, vi, vj, vk = T.axis.remap("SSSR", [n, i, j, k])
            C[vn, vi, vj] = C[vn, vi, vj] + A[vn, vi, vk] * B[vn, vj, vk]
""")
    sch, loop = tiled(func, decompose=False)
    sch.tensorize(loop, "test_mma")
    part = blocks(sch)["update_o"].match_buffers[0]
    assert str(part.source) == "A[vn_o, vi_o * 4:vi_o * 4 + 4, vk_o * 4:vk_o * 4 + 4]"
    agree(func, sch.func)
    replays(sch, func)


def test_a_block_that_is_one_already(register, agree, replays):
    register()
    func = product(8, 8, 8)
    sch, loop = tiled(func)
    outer = sch.blockize(loop)
    sch.annotate(outer, "mine", 1)
    sch.tensorize(outer, "test_mma")
    block = blocks(sch)["update_update_o"]
    assert dict(block.annotations) == {"mine": 1} and len(block.match_buffers) == 3
    agree(func, sch.func)
    replays(sch, func)


def test_operands_the_other_way_round(register, agree):
    register(DESC.replace("A[vi, vk] * B[vj, vk]", "B[vj, vk] * A[vi, vk]"))
    func = product(4, 8, 4)
    sch, loop = tiled(func)
    sch.tensorize(loop, "test_mma")
    assert [m.source.buffer.name for m in blocks(sch)["update_update_o"].match_buffers] == ["A", "B", "C"]
    agree(func, sch.func)


def test_one_buffer_as_both_operands(register, agree):
    register()
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    for i, j, k in T.grid(8, 8, 8):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * A[vj, vk]
""")
    sch, loop = tiled(func)
    sch.tensorize(loop, "test_mma")
    sources = [str(m.source) for m in blocks(sch)["update_update_o"].match_buffers[:2]]
    assert sources == [
        "A[vi_o * 4:vi_o * 4 + 4, vk_o * 4:vk_o * 4 + 4]",
        "A[vj_o * 4:vj_o * 4 + 4, vk_o * 4:vk_o * 4 + 4]",
    ]
    agree(func, sch.func)


def test_index_arithmetic_is_simplified_before_it_is_compared(agree):
    func = parse("""
@T.prim_func
def main(P: T.Buffer((16, 4), "int32"), Q: T.Buffer((16, 32), "int32")):
    for i, j0, j1 in T.grid(16, 4, 8):
        with T.block("Q"):
            vi = T.axis.spatial(16, i)
            vj = T.axis.spatial(32, j0 * 8 + j1)
            Q[vi, vj] = T.bitwise_and(T.shift_right(P[vi, vj // 8], vj % 8 * 4), 15)
""")
    desc = """
@T.prim_func
def desc(P: T.Buffer((1,), "int32", offset_factor=1), Q: T.Buffer((8,), "int32", offset_factor=1)):
    with T.block("root"):
        T.reads(P[0:1])
        T.writes(Q[0:8])
        for i in range(8):
            with T.block("unpack"):
                vi = T.axis.spatial(8, i)
                Q[vi] = T.bitwise_and(T.shift_right(P[vi // 8], vi % 8 * 4), 15)
"""
    TensorIntrin.register("test_unpack", parse(desc), parse(desc.replace("vi % 8 * 4", "vi * 4")), override=True)
    sch = Schedule(func, debug_mask="all")
    sch.tensorize(sch.get_loops("Q")[-1], "test_unpack")
    assert [str(m.source) for m in blocks(sch)["Q_o"].match_buffers] == [
        "P[vi_o, vj_o]",
        "Q[vi_o, vj_o * 8:vj_o * 8 + 8]",
    ]
    agree(func, sch.func)


# -- what comes with the package -----------------------------------------------------------------------------------------


def _is_looked_at(name: str) -> bool:
    """Whether an intrinsic is compared number by number: one text makes the products of warp groups, and neither types nor layouts
    depend on the columns, of which the interpreter multiplies up to two million terms."""
    words = name.split("_")
    return words[0] != "wgmma" or "64x64x" in name or words[-1] in ("f16", "64x128", "64x192", "64x256")


@pytest.mark.parametrize("name", [name for name in TensorIntrin.names() if _is_looked_at(name)])
def test_implementations_do_what_descriptions_say(name):
    TensorIntrin.get(name).check(rounds=1 if name.startswith("wgmma") else 2)


def test_the_corners_of_int8():
    from tilewright.schedule.intrin import int8_dot

    desc, impl = int8_dot(8)
    for a, b in ((255, -128), (255, 127), (0, -128)):
        arrays = [np.full(4, a, "uint8"), np.full((8, 4), b, "int8"), np.full(8, (1 << 31) - 1, "int32")]
        copies = [x.copy() for x in arrays]
        interpret(desc, *arrays)
        interpret(impl, *copies)
        np.testing.assert_array_equal(arrays[2], copies[2])


@pytest.mark.parametrize("name, lanes", [("dot_16x4_vnni", 16), ("dot_8x4_avx_vnni", 8)])
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (7, 2, 3), (13, 1, 17)])
def test_an_int8_product(agree, replays, name, lanes, m, n, k):
    X = te.placeholder((m, 4 * k), name="X", dtype="uint8")
    W = te.placeholder((lanes * n, 4 * k), name="W", dtype="int8")
    r = te.reduce_axis((0, 4 * k), name="r")
    C = te.compute(
        (m, lanes * n), lambda i, j: te.sum(X[i, r].astype("int32") * W[j, r].astype("int32"), axis=r), name="C"
    )
    func = te.create_prim_func([X, W, C])
    sch = Schedule(func, debug_mask="all")
    sch.transform_layout("C", "W", lambda i, j: [i // lanes, j // 4, i % lanes, j % 4])
    _, j, kk = sch.get_loops("C")
    _, ji = sch.split(j, [None, lanes])
    ko, ki = sch.split(kk, [None, 4])
    sch.reorder(ko, ji, ki)
    sch.decompose_reduction("C", ko)
    sch.tensorize(ji, name)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (m, 4 * k)).astype("uint8")
    w = rng.integers(-128, 128, (lanes * n, 4 * k)).astype("int8")
    packed = w.reshape(n, lanes, k, 4).transpose(0, 2, 1, 3).copy()
    out = np.full((m, lanes * n), 77, "int32")
    interpret(sch.func, x, packed, out, check_regions=True)
    np.testing.assert_array_equal(out, x.astype("int32") @ w.astype("int32").T)
    if (m, n) == (7, 2):
        replays(sch, func)


@pytest.mark.parametrize("k", [1, 7, 16])
def test_a_tile_of_multiply_adds(matmul, agree, replays, k):
    func = matmul(12, 32, k)
    sch = Schedule(func, debug_mask="all")
    i, j, r = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 6])
    j0, j1 = sch.split(j, [None, 16])
    sch.reorder(i0, j0, r, i1, j1)
    copy = sch.cache_write("C", 0, "local")
    sch.reverse_compute_at(copy, j0)
    sch.decompose_reduction("C", r)
    sch.tensorize(i1, "fma_6x16_f32")
    sch.parallel(i0)
    agree(func, sch.func)
    replays(sch, func)


def test_classic_te():
    m, n, k = 7, 32, 12
    X = te.placeholder((m, k), name="X", dtype="uint8")
    W = te.placeholder((n // 16, k // 4, 16, 4), name="W", dtype="int8")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(X[i, r].astype("int32") * W[j // 16, r // 4, j % 16, r % 4].astype("int32"), axis=r),
        name="C",
    )
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    jo, ji = s[C].split(j, 16)
    ko, ki = s[C].split(C.op.reduce_axis[0], 4)
    s[C].reorder(i, jo, ko, ji, ki)
    s[C].tensorize(ji, TensorIntrin.get("dot_16x4_vnni"))
    s[C].parallel(i)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (m, k)).astype("uint8")
    w = rng.integers(-128, 128, (n, k)).astype("int8")
    out = np.zeros((m, n), "int32")
    interpret(s.func, x, w.reshape(2, 16, 3, 4).transpose(0, 2, 1, 3).copy(), out)
    np.testing.assert_array_equal(out, x.astype("int32") @ w.astype("int32").T)
    with pytest.raises(TypeError, match="TensorIntrin"):
        s[C].tensorize(jo, 3)


def test_the_accelerator_of_the_examples(capsys):
    path = Path(tilewright.__file__).parent / "examples" / "accelerator.py"
    if not path.exists():
        pytest.skip("the examples are not here")
    spec = importlib.util.spec_from_file_location("accelerator", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(32, 16, 48) == {"zero": 2, "load": 12, "matmul": 6, "store": 2}
    assert "accel_matmul" in capsys.readouterr().out
    with pytest.raises(ScheduleError, match="runs where i_1_init < 13, in the description always"):
        module.schedule(module.declare(13, 16, 16))


# -- what is refused -----------------------------------------------------------------------------------------------------


def refused(func, sch, loop, *words, intrin="test_mma"):
    before = sch.func
    with pytest.raises(ScheduleError) as error:
        sch.tensorize(loop, intrin)
    for word in words:
        assert word in str(error.value), str(error.value)
    assert sch.func is before


def test_another_size(register):
    register()
    func = product(8, 8, 8)
    sch = Schedule(func)
    i, j, k = sch.get_loops("update")
    j0, j1 = sch.split(j, [None, 2])
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, j0, i1, j1, k)
    sch.decompose_reduction("update", i1)
    refused(func, sch, i1, "tensorize: this is not what 'test_mma' describes", "the extent of loop j_1 is 2, in the "
            "description 4", "^^^", "def desc(")  # fmt: skip


def test_an_init_is_in_the_way(register):
    register()
    func = product(8, 8, 8)
    sch, loop = tiled(func, decompose=False)
    refused(func, sch, loop, "starts with an init", "decompose_reduction first")


def test_other_accesses(register):
    register()
    text = product(8, 8, 8).script()
    func = parse(text.replace("B[vj, vk]", "B[vk, vj]"))
    sch, loop = tiled(func)
    refused(
        func,
        sch,
        loop,
        "the index vk_o * 4 + vk_i of B[vk_o * 4 + vk_i, vj_o * 4 + vj_i] should be vj_i plus something that stays",
    )
    func = parse(text.replace("* B[vj, vk]", "* A[vj, vk]").replace("C[vi, vj] + A", "C[vi, vj] - A"))
    sch, loop = tiled(func)
    refused(func, sch, loop, "of the description")


def test_another_type_and_another_memory(register):
    register()
    func = product(8, 8, 8, dtype="float64")
    sch, loop = tiled(func)
    refused(func, sch, loop, "float64", "float32")
    func = product(8, 8, 8)
    sch, loop = tiled(func)
    sch.cache_read("update_update", 1, "shared")
    refused(func, sch, loop, "in shared memory, A of the description float32 in global")


def test_another_kind_of_loop(register):
    register()
    func = product(8, 8, 8)
    sch, loop = tiled(func)
    sch.unroll(loop)
    refused(func, sch, loop, "loop i_1 is unrolled, in the description serial")


def test_a_leading_index_that_moves(register):
    register()
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8, 8, 8), "float32"), B: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    for i, j, k in T.grid(8, 8, 8):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            C[vi, vj] = C[vi, vj] + A[vj, vi, vk] * B[vj, vk]
""")
    sch, loop = tiled(func, decompose=False)
    refused(func, sch, loop, "the index vj_o * 4 + vj_i of A", "should stay in place")


def test_strides_that_the_intrinsic_does_not_take(register):
    register(DESC, LOOPS.replace("C = T.match_buffer(c, (4, 4), offset_factor=1)",
                                 "C = T.match_buffer(c, (4, 4), offset_factor=1, strides=(4, 1))"))  # fmt: skip
    func = product(8, 8, 8)
    sch, loop = tiled(func)
    refused(func, sch, loop, "has the strides [4, 1]", "has [8, 1]")
    func = product(8, 4, 8)
    sch, loop = tiled(func)
    sch.tensorize(loop, "test_mma")


def test_offsets_that_the_intrinsic_does_not_take(register):
    register(DESC, LOOPS.replace("A = T.match_buffer(a, (4, 4), offset_factor=1)",
                                 "A = T.match_buffer(a, (4, 4), offset_factor=16)"))  # fmt: skip
    func = product(8, 8, 8)
    sch, loop = tiled(func)
    refused(func, sch, loop, "not known to be a multiple of 16")
    func = product(8, 8, 4)
    sch, loop = tiled(func)
    sch.tensorize(loop, "test_mma")


def test_an_output_that_is_an_input_as_well(register):
    register()
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32")):
    for i, j, k in T.grid(4, 4, 4):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            C[vi, vj] = C[vi, vj] + A[vi, vk] * C[vj, vk]
""")
    sch = Schedule(func)
    refused(func, sch, sch.get_loops("update")[0], "would both be parts of C, which it writes")


def test_a_block_that_renames_its_buffers(register):
    register()
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 4)), B: T.Buffer((4, 4)), C: T.Buffer((4, 4))):
    for i, j, k in T.grid(4, 4, 4):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(C[vi, vj], A[vi, vk], B[vj, vk])
            T.writes(C[vi, vj])
            D = T.match_buffer(A[vi, vk], (1, 1), offset_factor=1)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]
""")
    sch = Schedule(func)
    refused(func, sch, sch.get_loops("update")[0], "block 'update' has matched buffers")


def test_a_name_that_nobody_registered():
    sch = Schedule(product(4, 4, 4))
    refused(sch.func, sch, sch.get_loops("update")[0], "no tensor intrinsic 'dot_16x4_vni'", "'dot_16x4_vnni'",
            intrin="dot_16x4_vni")  # fmt: skip


# -- the registry --------------------------------------------------------------------------------------------------------


def test_looking_up():
    assert TensorIntrin.get("nobody", allow_missing=True) is None
    with pytest.raises(ValueError, match="no tensor intrinsic 'nobody'"):
        TensorIntrin.get("nobody")
    assert "dot_16x4_vnni" in TensorIntrin.names()


def test_registering_twice(register):
    register()
    with pytest.raises(ValueError, match="already"):
        TensorIntrin.register("test_mma", parse(DESC), parse(LOOPS))
    with pytest.raises(ValueError, match="already"):
        TensorIntrin.register("dot_16x4_vnni", parse(DESC), parse(LOOPS))
    TensorIntrin.register("test_mma", parse(DESC), parse(CALL), override=True)


def test_pairs_that_do_not_fit():
    desc, impl = parse(DESC), parse(LOOPS)
    wrong = [
        (parse(DESC.replace("(a, (4, 4)", "(a, (4, 8)")), impl, "description is Buffer"),
        (desc, parse(LOOPS.replace("T.writes(C[0:4, 0:4])", "T.writes(C[0:4, 0:4], A[0:4, 0:4])")), "writes A"),
        (product(4, 4, 4), parse(LOOPS), "init|writes"),
        (desc, parse("@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    A[0] = T.float32(1)"), "no root block"),
        (desc, parse("@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    with T.block('root'):\n"
                     "        T.writes(A[0:4])\n        A[0] = T.float32(1)"), "3 parameters"),
    ]  # fmt: skip
    for one, other, words in wrong[:2] + wrong[3:]:
        with pytest.raises(ValueError, match=words):
            TensorIntrin.register("wrong", one, other)
    with pytest.raises(TypeError, match="not a PrimFunc"):
        TensorIntrin.register("wrong", desc, "text")
    assert TensorIntrin.get("wrong", allow_missing=True) is None


def test_an_implementation_that_computes_something_else(register):
    intrin = register(DESC, LOOPS.replace("B[j, 3]", "B[3, j]"))
    with pytest.raises(AssertionError, match=r"implementation gives C\["):
        intrin.check()
