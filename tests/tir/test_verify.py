"""Each invariant of the verifier with a broken example."""
# ruff: noqa: E741

import pytest

from tilewright.tir import (
    Add,
    Block,
    BlockRealize,
    Broadcast,
    BufferLoad,
    BufferStore,
    Call,
    Cast,
    Evaluate,
    FloatImm,
    For,
    IfThenElse,
    IntImm,
    IterVar,
    Let,
    LetStmt,
    PrimFunc,
    Ramp,
    Range,
    Reduce,
    Select,
    SeqStmt,
    Var,
    VerifyError,
    decl_buffer,
    parse,
    verify,
)  # fmt: skip
from tilewright.tir.expr import And, CommReducer, Not, Shuffle
from tilewright.tir.stmt import needs_root, root_block

A = decl_buffer((16,), "float32", "A")
B = decl_buffer((4, 4), "int32", "B")
PA, PB, N, L = Var("a", "handle"), Var("b", "handle"), Var("n"), Var("l", "int64")
I, J = Var("i"), Var("j")
ZERO, FOUR = IntImm(0), IntImm(4)
F1 = FloatImm(1.0)
STORE = BufferStore(A, F1, (ZERO,))
TRUE = IntImm(1, "bool")


def func(body, params=(PA, PB, N, L)):
    if needs_root(body, False):
        body = root_block("root", body)
    return PrimFunc(params, body, {PA: A, PB: B}, {"global_symbol": "f"})


def loop(var, body, kind="serial", lo=ZERO, extent=FOUR, thread=None):
    return For(var, lo, extent, kind, body, thread)


def block(body, axes=(), values=(), reads=(), writes=(), predicate=TRUE, **rest):
    return BlockRealize(tuple(values), predicate, Block(tuple(axes), tuple(reads), tuple(writes), "blk", body, **rest))


def axis(var, kind="spatial", extent=FOUR):
    return IterVar(Range(IntImm(0, extent.dtype), extent), var, kind)


def call(name, dtype, *args):
    return Evaluate(Call(f"tir.{name}", args, dtype))


HALF = FloatImm(1.0, "float16")
LOCAL = decl_buffer((4,), "float32", "T")
VI = Var("vi")

BROKEN = {
    "undefined": (Evaluate(I), "variable `i` is not defined"),
    "out of scope": (
        SeqStmt((loop(I, STORE), BufferStore(A, F1, (I,)))), "variable `i` is used outside of its scope"),
    "out of let": (
        SeqStmt((LetStmt(I, ZERO, STORE), Evaluate(I))), "variable `i` is used outside of its scope"),
    "defined twice": (SeqStmt((loop(I, STORE), loop(I, STORE))), "variable `i` is defined twice"),
    "nested twice": (loop(I, loop(I, STORE)), "variable `i` is defined twice"),
    "let twice": (LetStmt(I, Let(J, ZERO, J), LetStmt(J, ZERO, STORE)), "variable `j` is defined twice"),
    "parameter again": (loop(N, STORE), "variable `n` is defined twice"),
    "unknown buffer": (BufferStore(LOCAL, F1, (ZERO,)), "buffer `T` is not declared"),
    "buffer out of scope": (
        SeqStmt((block(Evaluate(ZERO), alloc_buffers=(LOCAL,)), BufferStore(LOCAL, F1, (ZERO,)))),
        "buffer `T` is used outside of its scope"),
    "buffer twice": (
        SeqStmt((block(Evaluate(ZERO), alloc_buffers=(LOCAL,)),) * 2),
        "buffer `T` is defined twice"),
    "borrowed pointer": (
        block(STORE, alloc_buffers=(decl_buffer((4,), name="V", data=A.data),)),
        "`V` is allocated but has the pointer of another buffer"),
    "rank": (BufferStore(B, ZERO, (ZERO,)), "`B` has 2 dimensions, indexed with 1"),
    "float index": (BufferStore(A, F1, (F1,)), "`A` is indexed with float32"),
    "index lanes": (
        BufferStore(B, Broadcast(ZERO, 4), (Ramp(ZERO, IntImm(1), 4), Ramp(ZERO, IntImm(1), 2))),
        r"the indices of `B` have \[2, 4\] lanes"),
    "predicate lanes": (
        BufferStore(A, Broadcast(F1, 4), (Ramp(ZERO, IntImm(1), 4),), TRUE), "the predicate of 4 lanes of `A` is bool"),
    "stored type": (BufferStore(A, ZERO, (ZERO,)), "int32 is stored to 1 element of `A`, which is float32"),
    "stored lanes": (
        BufferStore(A, F1, (Ramp(ZERO, IntImm(1), 4),)), "float32 is stored to 4 elements of `A`, which is float32"),
    "operands": (Evaluate(Add(N, L)), "`T.Add\\(n, l\\)`: the operands are int32 and int64"),
    "and of ints": (Evaluate(And(N, N)), "the operands are int32, not bool"),
    "not of int": (Evaluate(Not(N)), "`not` of int32"),
    "condition": (IfThenElse(N, STORE), "the condition `n` is int32"),
    "select": (Evaluate(Select(N, N, N)), "the condition is int32"),
    "select sides": (Evaluate(Select(TRUE, N, L)), "the sides are int32 and int64"),
    "if_then_else": (call("if_then_else", "int32", N, N, N), "if_then_else: the condition is int32, not bool"),
    "cast lanes": (Evaluate(Cast("float32x4", N)), "int32 converted to float32x4"),
    "ramp": (Evaluate(Ramp(N, IntImm(1, "int64"), 4)), "a ramp of 4 lanes from int32 in steps of int64"),
    "broadcast": (Evaluate(Broadcast(Broadcast(N, 2), 2)), "a broadcast of int32x2"),
    "shuffle": (Evaluate(Shuffle((Broadcast(N, 2),), (0, 2))), "an index is outside of 2 lanes"),
    "constant": (Evaluate(IntImm(300, "int8")), "300 is no int8"),
    "bool constant": (Evaluate(IntImm(2, "bool")), "2 is no bool"),
    "float constant": (Evaluate(FloatImm(1.0, "int32")), "a fraction of type int32"),
    "let type": (LetStmt(I, F1, STORE), "`i` is int32, its value float32"),
    "loop type": (loop(I, STORE, extent=L), "loop `i` is int32, from int32, over int64"),
    "float loop": (loop(Var("f", "float32"), STORE), "loop variable `f` is float32"),
    "no thread axis": (loop(I, STORE, "thread_binding"), "loop `i` is thread_binding, its thread axis None"),
    "thread axis": (loop(I, STORE, thread="threadIdx.x"), "loop `i` is serial, its thread axis 'threadIdx.x'"),
    "values": (block(STORE, [axis(VI)], []), "block `blk` has 1 axes and 0 values"),
    "value type": (block(STORE, [axis(VI)], [L]), "axis `vi` of block `blk` is int32, its value int64"),
    "domain type": (block(STORE, [axis(VI, extent=L)], [N]), "axis `vi` is int32, its domain int64"),
    "axis kind": (block(STORE, [axis(VI, "diagonal")], [N]), "axis `vi` is of kind 'diagonal'"),
    "predicate": (block(STORE, [axis(VI)], [N], predicate=N), "the condition `n` is int32"),
    "outer loop": (
        loop(I, block(BufferStore(A, F1, (I,)), [axis(VI)], [I], writes=[A.full_region()])),
        "block `blk` uses the loop variable `i` from outside of it"),
    "undeclared write": (loop(I, block(STORE, [axis(VI)], [I])), "block `blk` writes `A`, which its T.writes leaves out"),
    "undeclared read": (
        loop(I, block(BufferStore(A, Cast("float32", B[VI, 0]), (VI,)), [axis(VI)], [I], writes=[A.full_region()])),
        "block `blk` reads `B`, which its T.reads leaves out"),
    "unrealized": (Block((), (), (), "blk", STORE), "block `blk` is not realized"),
    "short sequence": (SeqStmt((STORE,)), "a sequence of fewer than two statements"),
    "nested sequence": (SeqStmt((STORE, SeqStmt((STORE, STORE)))), "a sequence inside a sequence"),
    "reduction": (
        BufferStore(A, Reduce(CommReducer((I,), (J,), (Add(I, J),), (ZERO,)), (F1,), (), TRUE), (ZERO,)),
        "Reduce .* is left in the program"),
}  # fmt: skip


BROKEN_CALLS = {
    "not an operation": (call("anything", "int32", N), "tir.anything is not an operation"),
    "arguments": (call("exp", "float32", F1, F1), "exp takes 1 argument, not 2"),
    "too few arguments": (call("call_extern", "int32"), "call_extern takes at least 1 argument, not 0"),
    "floats": (call("exp", "int32", N), "exp takes floats of one type, not int32"),
    "floats of one type": (call("pow", "float32", F1, HALF), "pow takes floats of one type, not float32, float16"),
    "result": (call("exp", "float64", F1), "exp: the result is float32, not float64"),
    "integers": (call("popcount", "float32", F1), "popcount takes integers of one type, not float32"),
    "bits": (call("bitwise_xor", "int64", N, L), "bitwise_xor takes integers or bools of one type, not int32, int64"),
    "test": (call("isnan", "int8", F1), "isnan: the result is bool, not int8"),
    "assumption": (call("assume", "int32", N), "assume takes a bool, not int32"),
    "sides": (call("if_then_else", "int32", TRUE, N, L), "if_then_else: the values are int32 and int64, of two types"),
    "lanes of a condition": (
        call("if_then_else", "int32", Broadcast(TRUE, 4), N, N), "the condition is boolx4, the values are int32"),
    "lanes": (
        call("vector_reduce_add", "int32x3", Broadcast(N, 4)), "vector_reduce_add: the result is int32, not int32x3"),
    "numbers of lanes": (
        call("vector_reduce_fmax", "int32", Broadcast(N, 4)), "vector_reduce_fmax takes a vector of floats, not int32x4"),
    "half": (call("vectorlow", "int32", Broadcast(N, 3)), "takes a vector of an even number of lanes, not int32x3"),
    "width": (call("reinterpret", "float64", N), "reinterpret: int32 has not as many bits as float64"),
    "element": (call("address_of", "handle", N), "address_of takes an element of a buffer, not n"),
    "place": (call("tvm_access_ptr", "handle", N, N, N, N, N), "takes a type, a handle and three integers, not int32"),
    "power of two": (call("misaligned", "int32", PA, IntImm(3)), "misaligned takes a handle and a power of two, not handle"),
    "table": (call("lookup", "float32", N, F1, F1, F1), "lookup: a table has 2, 4, 8 … values, not 3"),
    "table of variables": (call("lookup", "int32", N, N, N), "lookup: the values are constants"),
    "dot product": (
        call("dot4_u8i8", "int32", N, Broadcast(IntImm(1, "int8"), 4), Broadcast(IntImm(1, "int8"), 4)),
        "dot4_u8i8 takes int32, uint8x4, int8x4, not int32, int8x4, int8x4"),
    "tile product": (call("tile_dot4", "int32", N, N, N), "tile_dot4 takes int32x256, uint8x1024 or int8x1024, int8x1024 or uint8x1024"),
    "tile": (call("tile_load", "int8x16", PA, N), "tile_load: int8x16 is not a tile of 16 rows of 64 bytes"),
    "shifts": (call("q_multiply_shift", "int32", N, N, F1, N), "q_multiply_shift: shifts by integers, not float32"),
    "name": (call("call_extern", "float32", N), "call_extern: the first argument is the name of a function, not n"),
}  # fmt: skip
BROKEN |= {f"call: {name}": case for name, case in BROKEN_CALLS.items()}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_programs_are_refused(name):
    body, message = BROKEN[name]
    with pytest.raises(VerifyError, match=message) as info:
        verify(func(body))
    assert str(info.value).startswith("function f is not well-formed: ")
    assert "@T.prim_func" in str(info.value)


def test_the_line_is_marked():
    with pytest.raises(VerifyError) as info:
        verify(func(loop(I, SeqStmt((STORE, BufferStore(A, ZERO, (I,)))))))
    lines = str(info.value).splitlines()
    at = next(k for k, line in enumerate(lines) if "^^^" in line)
    assert lines[at - 1].strip() == "A[i] = 0"


def test_parameters():
    with pytest.raises(VerifyError, match="variable `n` is defined twice"):
        verify(func(STORE, (PA, PB, N, N)))
    with pytest.raises(VerifyError, match="buffer_map names b, no parameters"):
        verify(func(STORE, (PA,)))
    with pytest.raises(VerifyError, match="parameter `n` stands for a buffer but is int32"):
        verify(PrimFunc((N,), STORE, {N: A}))


def test_a_root_block():
    body = loop(I, block(BufferStore(A, F1, (ZERO,)), [axis(VI)], [I], writes=[A.full_region()]))
    with pytest.raises(VerifyError, match="it has blocks, and no root block around them"):
        verify(PrimFunc((PA,), body, {PA: A}))
    verify(PrimFunc((PA,), root_block("root", body), {PA: A}))


def test_matched_buffers():
    text = """
@T.prim_func
def f(A: T.Buffer((16,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            T.reads({reads})
            T.writes()
            b = T.match_buffer(A[vi * 4:vi * 4 + 4], {shape}, "{dtype}")
            T.evaluate(b[{index}])
"""
    verify(parse(text.format(reads="A[vi * 4:vi * 4 + 4]", shape="(4,)", dtype="float32", index="0")))
    with pytest.raises(
        VerifyError, match="`b` .int8, 1-d, global. does not match a region of `A` .float32, 1-d, global."
    ):
        verify(parse(text.format(reads="A[vi * 4:vi * 4 + 4]", shape="(4,)", dtype="int8", index="0")))
    with pytest.raises(VerifyError, match="`b` .float32, 2-d, global. does not match"):
        verify(parse(text.format(reads="A[vi * 4:vi * 4 + 4]", shape="(2, 2)", dtype="float32", index="0, 0")))
    with pytest.raises(VerifyError, match="`b` .float32, 1-d, local. does not match"):
        verify(
            parse(text.format(reads="A[vi * 4:vi * 4 + 4]", shape="(4,)", dtype='float32", scope="local', index="0"))
        )
    with pytest.raises(VerifyError, match="block `B` matches `A`, neither read nor written by it"):
        verify(parse(text.format(reads="", shape="(4,)", dtype="float32", index="0")))


def test_an_opaque_block_may_use_outer_loops_and_declares_what_it_touches():
    verify(func(loop(I, block(BufferStore(A, F1, (I,)), writes=(A[I : I + 1],)))))
    with pytest.raises(VerifyError, match="writes `A`, which its T.writes leaves out"):
        verify(func(loop(I, block(BufferStore(A, F1, (I,))))))


def test_bounds_of_regions_belong_to_their_block():
    text = """
@T.prim_func
def main(K: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32"), A: T.Buffer((9,), "float32")):
    with T.block("group"):
        T.reads()
        T.writes()
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                T.reads(K[v], A[v:v + T.max(K[v] % 2, 1)])
                T.writes(B[v])
                B[v] = A[v + K[v] % 2]
"""
    verify(parse(text))


def test_a_reduction_reads_its_own_output_undeclared(corpus):
    verify(corpus.PROGRAMS["matmul"])


def test_loads_count():
    with pytest.raises(VerifyError, match="`A` has 1 dimensions, indexed with 2"):
        verify(func(Evaluate(BufferLoad(A, (ZERO, ZERO)))))


def test_views_of_memory_only_where_there_are_no_blocks():
    view = decl_buffer((2, 8), "float32", "V")
    view = view.with_(data=A.data)
    store = BufferStore(view, F1, (ZERO, ZERO))
    verify(func(loop(I, store)))
    with pytest.raises(VerifyError, match="buffer `V` is not declared"):
        verify(func(block(store)))


def test_what_a_region_reads_is_read_by_its_block_not_by_the_one_around():
    verify(
        parse("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), I: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    with T.block("all"):
        T.reads()
        T.writes()
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                T.reads(A[I[v]], I[v])
                T.writes(B[v])
                B[v] = A[I[v]]
""")
    )
