"""The spellings of TVMScript that programs out there are written in: all are read, and what is printed reads back."""

import pytest

from tilewright.tir import assert_structural_equal, parse

PLAIN = """
@T.prim_func
def main(A: T.Buffer((16, 24), "float32"), B: T.Buffer((16, 24), "float32")):
    for i, j in T.grid(16, 24):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj])
            T.writes(B[vi, vj])
            B[vi, vj] = A[vi, vj] * T.float32(2)
"""

SAME = {
    "match_list": """
@T.prim_func
def f(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, [16, 24])
    B = T.match_buffer(b, [16, 24], dtype="float32")
    for i, j in T.grid(16, 24):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads([A[vi, vj]])
            T.writes([B[vi, vj]])
            B[vi, vj] = A[vi, vj] * 2.0
""",
    "block_shape_as": """
@T.prim_func
def f(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (16, 24), "float32")
    B = T.match_buffer(b, (16, 24), "float32")
    with T.block([16, 24], "B") as [vi, vj]:
        B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "block_bind": """
@T.prim_func
def f(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (16, 24), "float32")
    B = T.match_buffer(b, (16, 24), "float32")
    for i, j in T.grid(16, 24):
        with T.block([16, 24], "B") as [vi, vj]:
            T.bind(vi, i)
            T.bind(vj, j)
            T.reads([A[vi, vj]])
            T.writes([B[vi, vj]])
            B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "buffer_getitem": """
@T.prim_func
def f(A: T.Buffer[(16, 24), "float32"], B: T.Buffer[(16, 24), "float32"]):
    for i in range(0, 16):
        for j in T.serial(24):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                vj = T.axis.S(24, j)
                T.reads(A[vi, vj])
                T.writes(B[vi, vj])
                B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "axis_range": """
@T.prim_func
def f(A: T.Buffer((16, 24)), B: T.Buffer((16, 24))):
    for i, j in T.grid(16, 24):
        with T.block("B"):
            vi = T.axis.spatial((0, 16), i)
            vj = T.axis.spatial(T.Range(0, 24), j)
            B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "explicit_root": """
@T.prim_func
def f(A: T.Buffer((16, 24)), B: T.Buffer((16, 24))):
    with T.block("root"):
        T.reads()
        T.writes()
        for i, j in T.grid(16, 24):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B[vi, vj])
                B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "sblock": """
@T.prim_func(s_tir=True)
def f(A: T.Buffer((16, 24)), B: T.Buffer((16, 24))):
    for i, j in T.grid(16, 24):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "private": """
@T.prim_func(private=True, check_well_formed=False)
def f(A: T.Buffer((16, 24)), B: T.Buffer((16, 24))):
    for i, j in T.grid(16, 24):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "where_true": """
@T.prim_func
def f(A: T.Buffer((16, 24)), B: T.Buffer((16, 24))):
    for i, j in T.grid(16, 24):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where(True)
            B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "imports": """
import tvm
from tvm.script import tir as T
@T.prim_func
def f(A: T.Buffer((16, 24)), B: T.Buffer((16, 24))):
    for i, j in T.grid(16, 24):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "func_attr": """
@T.prim_func
def f(A: T.Buffer((16, 24)), B: T.Buffer((16, 24))):
    T.func_attr({"global_symbol": "main"})
    for i, j in T.grid(16, 24):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "store_word": """
@T.prim_func
def f(A: T.Buffer((16, 24)), B: T.Buffer((16, 24))):
    for i, j in T.grid(16, 24):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.buffer_store(B, A[vi, vj] * T.float32(2), [vi, vj])
""",
}

READ = {
    "launch": """
@T.prim_func
def f(A: T.Buffer((16, 24)), B: T.Buffer((16, 24))):
    bx = T.launch_thread("blockIdx.x", 16)
    tx = T.launch_thread("threadIdx.x", 24)
    B[bx, tx] = A[bx, tx]
""",
    "env": """
@T.prim_func
def f(A: T.Buffer((16, 24)), B: T.Buffer((16, 24))):
    bx = T.env_thread("blockIdx.x")
    T.launch_thread(bx, 16)
    for j in T.thread_binding(0, 24, thread="threadIdx.x"):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [bx, j])
            B[vi, vj] = A[vi, vj]
""",
    "let": """
@T.prim_func
def f(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.remap("S", [i])
            x: T.int32 = A[vi] + 1
            y = T.let("int32") if False else x
            B[vi] = x * y
""",
    "let2": """
@T.prim_func
def f(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.remap("S", [i])
            with T.LetStmt(A[vi] + 1) as x:
                B[vi] = x
""",
    "let3": """
@T.prim_func
def f(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.remap("S", [i])
            with T.let(x, A[vi] + 1):
                B[vi] = x
""",
    "oldcalls": """
@T.prim_func
def f(A: T.Buffer((16,)), B: T.Buffer((16,))):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.remap("S", [i])
            B[vi] = T.exp(A[vi], dtype="float32") + T.if_then_else(vi < 4, A[vi], 0.0, dtype="float32") + T.max(A[vi], 0.0) + T.sqrt(A[vi], dtype="float32") + T.sigmoid(A[vi]) + T.erf(A[vi]) + T.tanh(A[vi], dtype="float32") + T.pow(A[vi], 2.0, dtype="float32") + T.cast(vi, "float32") + T.Select(vi < 3, 1.0, 2.0) + T.Cast("float32", vi) + T.float32(1e-5) + T.call_extern("foo", A[vi], dtype="float32") + T.call_pure_extern("bar", A[vi], dtype="float32") + T.power(A[vi], T.float32(0.5))
""",
    "oldcall2": """
@T.prim_func
def f(A: T.Buffer((16,), "int8"), B: T.Buffer((16,), "int32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.remap("S", [i])
            B[vi] = T.cast(A[vi], "int32") + T.floordiv(vi, 3) + T.floormod(vi, 3) + T.truncdiv(vi, 3) + T.shift_left(1, vi, dtype="int32") + T.bitwise_and(vi, 3, dtype="int32") + T.reinterpret(T.float32(1), dtype="int32") + T.q_multiply_shift(vi, 3, 4, 5, dtype="int32") + T.int32(vi) + (vi // 3) % 2 + T.likely(vi, dtype="int32") + vi.astype("int32") + T.popcount(vi) + T.ceildiv(vi, 4) + T.min(vi, 3) + (vi << 2) + (vi & 3) + (vi ^ 1)
""",
    "match_region": """
@T.prim_func
def f(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (16, 16), align=128, offset_factor=1)
    B = T.match_buffer(b, (16, 16), elem_offset=0, align=64, offset_factor=1)
    for i, j in T.grid(4, 4):
        with T.block("o"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4])
            T.writes(B[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4])
            a0 = T.match_buffer(A[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4], [4, 4], strides=[T.int32(), 1], offset_factor=1)
            b0 = T.match_buffer(B[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4], (4, 4), strides=["s0", "s1"], scope="global", offset_factor=1)
            T.evaluate(T.call_extern("int32", "g", a0.access_ptr("r"), b0.access_ptr("w"), a0.strides[0]))
""",
    "strided_var": """
@T.prim_func
def f(a: T.handle, b: T.handle):
    s1 = T.int32()
    s0 = T.int32()
    A = T.match_buffer(a, (16, 16), strides=[s1, s0], offset_factor=16, scope="shared")
    B = T.match_buffer(b, (16, 16), "float32", strides=[T.var("int32"), 1])
    with T.block("root"):
        T.reads(A[0:16, 0:16])
        T.writes(B[0:16, 0:16])
        T.evaluate(0)
""",
    "decl_alloc": """
@T.prim_func
def f(A: T.Buffer((16,))):
    B = T.decl_buffer((16,), "float32", scope="local")
    for i in T.parallel(0, 16):
        B[i] = A[i]
    for i in T.parallel(0, 16):
        A[i] = B[i]
""",
    "ifs": """
@T.prim_func
def f(A: T.Buffer((16,)), n: T.int32):
    for i in range(16):
        if i < n and not (i == 3 or i > 12):
            A[i] = 1.0
        elif i == 15:
            A[i] = T.float32(2)
        else:
            A[i] = -1.0
    assert n > 0, "n"
    T.evaluate(T.int32(0))
""",
    "macro": """
@T.macro
def body(A, i):
    A[i] = 1.0

@T.prim_func
def f(A: T.Buffer((16,))):
    for i in range(16):
        body(A, i)
""",
    "attr": """
@T.prim_func
def f(A: T.Buffer((16,))):
    T.func_attr({"tir.noalias": T.bool(True), "global_symbol": "g", "x": 3, "y": [1, 2], "z": {"a": "b"}})
    with T.attr(0, "pragma_foo", 1):
        for i in T.serial(0, 16, annotations={"a": 1, "b": [1, 2], "c": "s"}):
            A[i] = 1.0
""",
    "module": """
@tvm.script.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((16,))):
        for i in range(16):
            with T.block("A"):
                vi = T.axis.spatial(16, i)
                A[vi] = 1.0

    @T.prim_func
    def other(A: T.Buffer((16,))):
        for i in range(16):
            with T.block("A"):
                vi = T.axis.spatial(16, i)
                A[vi] = 2.0
""",
    "module2": """
# from tvm.script import ir as I
# from tvm.script import tir as T
@I.ir_module
class Module:
    I.module_attrs({"a": 1})
    @T.prim_func(private=True)
    def main(A: T.Buffer((16,))):
        T.func_attr({"x": 1})
        for i in range(16):
            A[i] = 1.0
""",
    "int64": """
@T.prim_func
def f(A: T.Buffer((T.int64(16), T.int64(24)), "float32"), n: T.int64):
    for i, j in T.grid(T.int64(16), T.int64(24)):
        with T.block("A"):
            vi = T.axis.spatial(T.int64(16), i)
            vj = T.axis.spatial(T.int64(24), j)
            A[vi, vj] = T.Cast("float32", vi * T.int64(2) + n)
    for i in range(T.int64(16)):
        A[i, T.int64(0)] = T.float32(0)
""",
    "nested_init": """
@T.prim_func
def f(A: T.Buffer((16, 16)), B: T.Buffer((16,))):
    for io in range(4):
        with T.block("outer"):
            vo = T.axis.spatial(4, io)
            T.block_attr({"tag": 1, "list": ["a", 1]})
            with T.init():
                for ii in range(4):
                    with T.block("init"):
                        vi = T.axis.spatial(16, vo * 4 + ii)
                        B[vi] = 0.0
            tmp = T.alloc_buffer([4], dtype="float32", scope="local")
            for ii, k in T.grid(4, 16):
                with T.block("upd"):
                    vi = T.axis.S(16, vo * 4 + ii)
                    vk = T.axis.R(16, k)
                    B[vi] = B[vi] + A[vi, vk]
""",
    "zero": """
@T.prim_func
def f(A: T.Buffer((), "float32"), B: T.Buffer(1, "float32"), C: T.Buffer(16, "float32")):
    A[()] = B[0]
    B[0] = C[3]
""",
    "grid1": """
@T.prim_func
def f(C: T.Buffer((16,), "float32")):
    for i in T.grid(16):
        C[i] = 1.0
    for i, in T.grid(16):
        C[i] = 1.0
""",
    "remap_one": """
@T.prim_func
def f(C: T.Buffer((16,), "float32")):
    for i in T.serial(16):
        with T.block("C"):
            (vi,) = T.axis.remap("S", [i])
            C[vi] = 1.0
    for i in T.serial(0, T.int32(16)):
        with T.block("D"):
            [vi] = T.axis.remap("S", [i])
            C[vi] = 1.0
""",
    "ramp": """
@T.prim_func
def f(C: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32")):
    C[T.ramp(0, 1, 4)] = T.broadcast(T.float32(1), 4)
    C[T.Ramp(4, 1, 4)] = T.Broadcast(T.float32(1), 4)
    C[8:12] = D[0:4]
    C[0:16:4] = D[0:4]
""",
    "float_consts": """
@T.prim_func
def f(C: T.Buffer((16,), "float16"), D: T.Buffer((16,), "bfloat16"), E: T.Buffer((16,), "bool"), F: T.Buffer((16,), "float64")):
    for i in range(16):
        C[i] = T.float16(0.5)
        D[i] = T.bfloat16(0.5)
        E[i] = T.bool(False)
        F[i] = T.float64(1)
        C[i] = T.float16("inf") + T.float16("-inf") + T.float16("nan")
        E[i] = i < 3
        F[i] = T.infinity("float64") + T.max_value("float64")
""",
    "params": """
@T.prim_func
def f(var_A: T.handle, n: T.int32, m: T.int64, x: T.float32, p: T.handle("float32"), q: T.handle("float32", "global"), flag: T.bool):
    A = T.match_buffer(var_A, (n,), "float32")
    for i in range(n):
        A[i] = x
""",
    "sizevar": """
@T.prim_func
def f(a: T.handle):
    n = T.int32(is_size_var=True)
    m = T.var("int64")
    A = T.match_buffer(a, (n, m), "float32")
    for i, j in T.grid(n, m):
        A[i, j] = 1.0
""",
    "docs": """
@T.prim_func
def f(A: T.Buffer((4,), "float32")) -> None:
    '''a docstring'''
    # comment
    for i in range(4):
        A[i] = 1.0
        pass
    return
""",
    "meta": """
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    N = T.meta_var(4)
    for i in range(N):
        A[i] = 1.0
    T.evaluate(T.tvm_call_packed("foo", A.data, 3, dtype="int32"))
    T.evaluate(T.call_packed("foo", A.data))
    T.evaluate(T.call_intrin("int32", "tir.foo", 1))
    T.evaluate(T.tvm_storage_sync("shared"))
    T.evaluate(T.call_llvm_intrin("int32", T.uint32(1), 2))
    T.evaluate(A.access_ptr("rw", offset=1, extent=2))
    T.evaluate(T.address_of(A[2]))
    T.evaluate(T.tvm_access_ptr(T.type_annotation("float32"), A.data, 0, 4, 1))
    T.evaluate(T.assume(True))
    T.evaluate(T.undef(dtype="float32"))
    T.evaluate(T.dp4a(T.uint32(1), T.uint32(2), T.uint32(3)))
    T.evaluate(T.vscale())
""",
}


@pytest.mark.parametrize("name", SAME)
def test_means_the_same(name):
    assert_structural_equal(parse(SAME[name]), parse(PLAIN))


@pytest.mark.parametrize("name", READ)
def test_prints_what_it_read(name):
    program = parse(READ[name])
    assert_structural_equal(parse(program.script()), program)


def test_macros_expand_where_they_are_called():
    program = parse(READ["macro"])
    assert "A[i] = T.float32(1.0)" in program.script()


def test_axes_bound_in_the_head_of_a_block_may_reduce():
    old = """
@T.prim_func
def f(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, [12, 20])
    B = T.match_buffer(b, [12])
    with T.block([12, T.reduce_axis(0, 20)], "B") as [vi, vk]:
        with T.init():
            B[vi] = T.float32(0)
        B[vi] = B[vi] + A[vi, vk]
"""
    new = """
@T.prim_func
def f(A: T.Buffer((12, 20)), B: T.Buffer((12,))):
    for i, k in T.grid(12, 20):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
"""
    assert_structural_equal(parse(old), parse(new))


def test_sizes_named_by_texts_are_those_declared_later():
    text = """
@T.prim_func
def f(A: T.Buffer(("n", 4, "m // 2"), "float32"), B: T.Buffer((n, 4), "float32"), n: T.int32):
    m = T.int32()
    for i, j in T.grid(n, 4):
        B[i, j] = A[i, j, m // 4]
"""
    plain = """
@T.prim_func
def f(a: T.handle, b: T.handle, n: T.int32):
    m = T.int32()
    A = T.match_buffer(a, (n, 4, m // 2))
    B = T.match_buffer(b, (n, 4))
    for i, j in T.grid(n, 4):
        B[i, j] = A[i, j, m // 4]
"""
    assert_structural_equal(parse(text), parse(plain))
