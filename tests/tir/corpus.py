"""Programs of many kinds, written by hand: what the printer, the parser, the verifier and equality are tested on."""

from tilewright.tir import script as T
from tilewright.tir.script import ir as I

N = 17


@T.prim_func
def matmul(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    T.func_attr({"tir.noalias": True})
    for i, j, k in T.grid(128, 128, 128):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(C[vi, vj])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def matmul_symbolic(a: T.handle, b: T.handle, c: T.handle, scale: T.float32):
    n, m, k = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (n, k))
    B = T.match_buffer(b, (k, m), "float32")
    C = T.match_buffer(c, (n, m), "float32")
    for i, j, r in T.grid(n, m, k):
        with T.block("C"):
            vi, vj, vr = T.axis.remap("SSR", [i, j, r])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] += A[vi, vr] * B[vr, vj] * scale


@T.prim_func
def sizes_as_parameters(a: T.handle, n: T.int64, b: T.handle):
    A = T.match_buffer(a, (n * 2,), "int8")
    B = T.match_buffer(b, (n * 2,), "int8")
    for i in range(n * 2):
        with T.block("B"):
            vi = T.axis.spatial(n * 2, i)
            B[vi] = A[n * T.int64(2) - T.int64(1) - vi]


@T.prim_func
def conv2d(
    X: T.Buffer((1, 3, 13, 13), "float32"), W: T.Buffer((4, 3, 3, 3), "float32"), Y: T.Buffer((1, 4, 13, 13), "float32")
):
    P = T.alloc_buffer((1, 3, 15, 15))
    for n, c, h, w in T.grid(1, 3, 15, 15):
        with T.block("pad"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            T.reads(X[vn, vc, vh - 1, vw - 1])
            T.writes(P[vn, vc, vh, vw])
            P[vn, vc, vh, vw] = T.if_then_else(
                1 <= vh and vh < 14 and 1 <= vw and vw < 14, X[vn, vc, vh - 1, vw - 1], T.float32(0)
            )
    for n, f, h, w, c, rh, rw in T.grid(1, 4, 13, 13, 3, 3, 3):
        with T.block("Y"):
            vn, vf, vh, vw, vc, vrh, vrw = T.axis.remap("SSSSRRR", [n, f, h, w, c, rh, rw])
            with T.init():
                Y[vn, vf, vh, vw] = T.float32(0)
            Y[vn, vf, vh, vw] = Y[vn, vf, vh, vw] + P[vn, vc, vh + vrh, vw + vrw] * W[vf, vc, vrh, vrw]


@T.prim_func
def split_with_predicate(A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32")):
    for i_0 in T.parallel(3, annotations={"pragma_auto_unroll_max_step": 16, "names": ["a", "b"], "on": True}):
        for i_1 in T.vectorized(8):
            with T.block("B"):
                vi = T.axis.spatial(N, i_0 * 8 + i_1)
                T.where(i_0 * 8 + i_1 < N)
                T.reads(A[vi])
                T.writes(B[vi])
                T.block_attr({"meta_schedule.tiling_structure": "SSR", "limits": [1, 2.5, None], "nested": {"x": 1}})
                B[vi] = A[vi] * 2.0


@T.prim_func
def fused_axes(A: T.Buffer((7, 13), "int32"), B: T.Buffer((7, 13), "int32")):
    for i_j_fused in T.unroll(91):
        with T.block("B"):
            vi = T.axis.S(7, i_j_fused // 13)
            vj = T.axis.S(13, i_j_fused % 13)
            B[vi, vj] = -A[vi, vj] + 1


@T.prim_func
def blockized(A: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
    for io, jo in T.grid(4, 4):
        with T.block("outer"):
            vio, vjo = T.axis.remap("SS", [io, jo])
            T.reads(A[vio * 16 : vio * 16 + 16, vjo * 16 : vjo * 16 + 16])
            T.writes(C[vio * 16 : vio * 16 + 16, vjo * 16 : vjo * 16 + 16])
            for ii, ji in T.grid(16, 16):
                with T.block("inner"):
                    vi, vj = T.axis.remap("SS", [ii, ji])
                    C[vio * 16 + vi, vjo * 16 + vj] = A[vio * 16 + vi, vjo * 16 + vj]


@T.prim_func
def tensorized(A: T.Buffer((64, 64), "uint8"), C: T.Buffer((64,), "int32")):
    for i in T.serial(16):
        with T.block("dot"):
            vi = T.axis.spatial(16, i)
            T.reads(A[vi * 4 : vi * 4 + 4, 0:64])
            T.writes(C[vi * 4 : vi * 4 + 4])
            a = T.match_buffer(A[vi * 4 : vi * 4 + 4, 0:64], (4, 64), "uint8", strides=("s0", "s1"), offset_factor=1)
            c = T.match_buffer(C[vi * 4 : vi * 4 + 4], (4,), "int32", offset_factor=4, align=16)
            T.evaluate(T.call_extern("int32", "dot_4x64", a.access_ptr("r"), c.access_ptr("w"), a.strides[0]))


@T.prim_func
def opaque(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("copy"):
            T.reads(A[i])
            T.writes(B[i])
            B[i] = A[i]


@T.prim_func
def explicit_root(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    with T.block("root"):
        T.reads(A[0:16])
        T.writes(B[0:16])
        T.block_attr({"k": "v"})
        C = T.alloc_buffer((16,), "float32", scope="local")
        for i in range(16):
            with T.block("C"):
                vi = T.axis.remap("S", [i])
                C[vi] = A[vi]
        for i in range(16):
            with T.block("B"):
                vi = T.axis.remap("S", [i])
                B[vi] = C[vi]


@T.prim_func
def other_domains(A: T.Buffer((20,), "float32"), B: T.Buffer((20,), "float32")):
    for i in range(3, 20):
        with T.block("B"):
            vi = T.axis.spatial((3, 20), i)
            B[vi] = A[vi]
    for i in T.serial(1, 4):
        for j in range(i, i + 4):
            with T.block("again"):
                vi, vj = T.axis.remap("SO", [i, j])
                vo = T.axis.opaque(7, i * 2)
                vs = T.axis.scan((1, i + 1), 1)
                B[vi + vj + vo + vs] = 0.0


@T.prim_func
def threads(A: T.Buffer((128, 32), "float32")):
    for b in T.thread_binding(128, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x", annotations={"a": 1}):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [b, t])
                A[vi, vj] = T.exp(T.Cast("float32", vi)) + T.sigmoid(1.0)


@T.prim_func
def layouts(a: T.handle, b: T.handle, C: T.Buffer((), "float64")):
    s, off = T.int32(), T.int64()
    A = T.match_buffer(a, (4, 8), "float32", strides=(s, 1), elem_offset=off, align=128, offset_factor=8)
    B = T.match_buffer(b, (4, 8), "bfloat16", scope="shared", axis_separators=[1])
    D = T.alloc_buffer((4, 8), "float16", strides=(16, 2), elem_offset=0, offset_factor=2, scope="shared.dyn")
    for i, j in T.grid(4, 8):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj], B[vi, vj])
            T.writes(D[vi, vj], C[()])
            D[vi, vj] = T.Cast("float16", A[vi, vj])
            C[()] = T.Cast("float64", B[vi, vj])


@T.prim_func
def int64_indices(A: T.Buffer((T.int64(4), T.int64(8)), "float32")):
    for i, j in T.grid(T.int64(4), T.int64(8)):
        with T.block("A"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads()
            T.writes(A[vi, vj])
            A[vi, vj] = T.Cast("float32", vi * T.int64(8) + vj)
    for i in T.serial(T.int64(1), T.int64(3)):
        with T.block("B"):
            vi = T.axis.spatial(T.int64(4), i)
            vj = T.axis.spatial((T.int64(2), T.int64(3)), T.int64(2))
            T.reads(A[vi - T.int64(1), vj])
            T.writes(A[vi, vj])
            A[vi, vj] = A[vi - T.int64(1), vj] + T.float32(1)


@T.prim_func
def argmax(idx: T.Buffer((16, 17), "int32"), val: T.Buffer((16, 17), "float32"), o0: T.Buffer((16,), "int32"),
           o1: T.Buffer((16,), "float32")):  # fmt: skip
    for i, k in T.grid(16, 17):
        with T.block("argmax"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(idx[vi, vk], val[vi, vk])
            T.writes(o0[vi], o1[vi])
            with T.init():
                o0[vi] = -1
                o1[vi] = T.min_value("float32")
            v0: T.int32 = T.Select(o1[vi] >= val[vi, vk], o0[vi], idx[vi, vk])
            v1: T.float32 = T.Select(o1[vi] >= val[vi, vk], o1[vi], val[vi, vk])
            o0[vi] = v0
            o1[vi] = v1


@T.prim_func
def lowered_vectors(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32"), n: T.int32):
    T.func_attr({"target": "llvm", "tir.is_entry_func": True})
    for i in T.parallel(64):
        acc: T.float32x16 = T.Broadcast(T.float32(0), 16)
        tile = T.decl_buffer((4, 16), scope="local", annotations={"registers": 1})
        for j in range(4):
            tile[j, 0:16] = A[i, j * 16 : j * 16 + 16] + acc
            tile[j, T.Ramp(15, -1, 8)] = A[i, T.Ramp(j, 4, 8)]
        mask: T.boolx16 = T.Ramp(48, 1, 16) < T.Broadcast(n, 16)
        B.vstore([i, T.Ramp(48, 1, 16)], A.vload([i, T.Ramp(48, 1, 16)], predicate=mask), predicate=mask)
        B[i, 0:4] = T.Shuffle([tile[0, 0:4], tile[1, 0:4]], [0, 4, 1, 5])
        B[i, 1] = T.vector_reduce_add(tile[0, 0:16])


@T.prim_func
def scoped_in_the_middle(A: T.Buffer((16,), "float32"), n: T.int32):
    with T.decl_buffer((n,), "int32") as tmp:
        tmp[0] = 1
        with T.LetStmt(tmp[0]) as x:
            A[x] = 1.0
    with T.LetStmt(n + 1) as x:
        A[x] = 2.0
        with T.attr("pragma", "unroll_explicit", 1):
            A[x] = 3.0
    with T.Assert(n < 16, 'n is "too" large'):
        A[n] = 4.0
    y = n * 2
    T.attr(y, "storage_alignment", 64)
    assert n > 0, "n"
    A[y] = T.Let(z + z, where={z: A[0]})  # noqa: F821


@T.prim_func(private=True)
def conditions(A: T.Buffer((16,), "float32"), flag: T.bool, n: T.uint8):
    for i in range(16):
        if i < 3 or not (flag and i != 7):
            A[i] = T.float32("nan")
        elif T.Cast("int32", n) == i:
            A[i] = T.float32("-inf")
        elif T.likely(i % 3 == 0):
            T.evaluate(0)
        else:
            if flag == T.bool(False):
                A[i] = T.float32(-0.0)
            A[i] = T.if_then_else(i > 3 and i < 9, A[i - 1], T.float32(1e-30))


@T.prim_func
def arithmetic(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int64")):
    for i in range(16):
        A[i] = T.pow(A[i], T.float32(2)) / (A[i] - 1.0) - (A[i] - (A[i] - 1.5)) + T.fma(A[i], A[i], T.float32(3))
        A[i] = T.max(T.min(A[i], T.float32(6)), T.float32(0)) * T.atan2(A[i], T.floor(A[i]))
        B[i] = T.truncdiv(B[i], 3) * T.truncmod(B[i], 4) + B[i] // 5 % 6 - (B[i] + 0 - -1)
        B[i] = T.bitwise_and(B[i], 3) | T.shift_left(B[i], 2) ^ ~B[i] >> 1
        B[i] = T.Add(B[i], 0) + T.Mul(1, 2) + T.popcount(B[i]) + T.Cast("int32", T.isnan(A[i]))
        C[i] = T.int64(1) << T.int64(40) + T.Cast("int64", i) * T.int64(-3)
        C[i] = T.call("tir.call_extern", "anything", C[i], 1, "text", T.float64(0.1), dtype="int64")
        A[i] = T.reinterpret("float32", B[i])
        T.evaluate(T.call_extern("handle", "f", A.data, T.address_of(A[i])))


@T.prim_func
def two_functions_in_one(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        A[i] = 0.0
    for i in range(16):
        for i in range(16):
            B[i] = 1.0
        B[i] = 2.0


@T.prim_func
def shared_data(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (16,))
    B = T.match_buffer(b, (4, 4), data=A.data)
    for i in range(16):
        B[i // 4, i % 4] = A[i]


@T.prim_func
def handle_is_used(a: T.handle, B: T.Buffer((16,), "int32")):
    A = T.match_buffer(a, (16,), "int32")
    T.evaluate(T.call_extern("int32", "f", a, A.data))
    B[0] = A[0]


@T.prim_func
def collatz(A: T.Buffer((N,), "int32"), B: T.Buffer((N,), "int32")):
    for i in range(N):
        with T.block("B"):
            vi = T.axis.spatial(N, i)
            n = T.alloc_buffer((1,), "int32")
            n[0] = A[vi]
            B[vi] = 0
            while n[0] > 1:
                if n[0] % 2 == 0:
                    n[0] = n[0] // 2
                else:
                    n[0] = n[0] * 3 + 1
                while B[vi] < 0:
                    T.evaluate(0)
                B[vi] = B[vi] + 1


@T.prim_func
def nothing():
    T.evaluate(0)


@I.ir_module
class Pair:
    I.module_attrs({"version": 3})

    @T.prim_func
    def main(A: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.block("A"):
                vi = T.axis.spatial(16, i)
                A[vi] = 1.0

    @T.prim_func
    def other(A: T.Buffer((N,), "int8")):
        T.func_attr({"global_symbol": "symbol.with.dots"})
        A[0] = 1


PROGRAMS = {name: value for name, value in list(globals().items()) if type(value).__name__ in ("PrimFunc", "IRModule")}
