import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse
from tilewright.tir.interpret import interpret
from tilewright.tir.verify import verify
from tilewright.tir.walk import blocks_of


def test_cache_read_of_an_input_copies_at_the_start(matmul, same, agree, replays):
    func = matmul(13, 17, 7)
    sch = Schedule(func)
    copy = sch.cache_read("C", 1, "shared")
    assert copy.name == "B_shared"
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((13, 7)), B: T.Buffer((7, 17)), C: T.Buffer((13, 17))):
    B_shared = T.alloc_buffer((7, 17), scope="shared")
    for ax0, ax1 in T.grid(7, 17):
        with T.block("B_shared"):
            v0, v1 = T.axis.remap("SS", [ax0, ax1])
            B_shared[v0, v1] = B[v0, v1]
    for i, j, k in T.grid(13, 17, 7):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B_shared[vk, vj]
""",
    )
    agree(func, sch.func)
    replays(sch, func)


def test_cache_read_of_a_stage_copies_behind_it(chain, same, agree):
    func = chain(7, 13)
    sch = Schedule(func)
    sch.cache_read("C", "B", "local")
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13))):
    B = T.alloc_buffer((7, 13))
    B_local = T.alloc_buffer((7, 13), scope="local")
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for ax0, ax1 in T.grid(7, 13):
        with T.block("B_local"):
            v0, v1 = T.axis.remap("SS", [ax0, ax1])
            B_local[v0, v1] = B[v0, v1]
    for i, j in T.grid(7, 13):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B_local[vi, vj] + T.float32(1)
""",
    )
    agree(func, sch.func)


def _half_product():
    a, b = te.placeholder((5, 7), "float16", name="A"), te.placeholder((7, 9), "float16", name="B")
    k = te.reduce_axis((0, 7), name="k")
    return te.create_prim_func(
        [a, b, te.compute((5, 9), lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), k), "C")]
    )


def test_cache_read_of_a_type_converts_each_element_once(agree, replays):
    func = _half_product()
    sch = Schedule(func)
    copy = sch.cache_read("C", "B", "global", dtype="float32")
    sch.cache_read("C", "A", "global", consumer_blocks=["C"], dtype="float32")
    text = sch.func.script()
    assert 'B_global[v0, v1] = T.Cast("float32", B[v0, v1])' in text
    assert "C[v_i, v_j] + A_global[v_i, v_k] * B_global[v_k, v_j]" in text
    assert sch.get(copy).reads[0].buffer.dtype == "float16"
    verify(sch.func)
    agree(func, sch.func)
    replays(sch, func)


def test_cache_read_of_a_type_is_refused_where_elements_are_read_as_they_are():
    a, b = te.placeholder((5,), "float16", name="A"), te.placeholder((5,), "float16", name="B")
    func = te.create_prim_func([a, b, te.compute((5,), lambda i: a[i] * b[i], "C")])
    with pytest.raises(ScheduleError, match="does not convert all that it reads of B to float32"):
        Schedule(func).cache_read("C", "B", "global", dtype="float32")


def test_cache_read_under_shared_loops_copies_what_one_turn_wrote(chain, agree, replays):
    func = chain(13, 17)
    sch = Schedule(func)
    i, j = sch.get_loops("C")
    i0, _ = sch.split(i, [None, 4])
    sch.compute_at("B", i0)
    copy = sch.cache_read("C", 0, "local")
    loops = [sch.get(v) for v in sch.get_loops(copy)]
    assert [str(lp.extent) for lp in loops] == ["4", "13 - T.max(i_0 * 4, 9)", "17"]
    assert str(loops[-1].body.predicate) == "T.bool(True)"
    agree(func, sch.func)
    replays(sch, func)


def test_cache_read_for_some_consumers_only():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: A[i] * 2.0, name="C")
    func = te.create_prim_func([A, B, C])
    sch = Schedule(func)
    sch.cache_read("B", 0, "local", ["B"])
    assert sch.get(sch.get_block("B")).reads[0].buffer.name == "A_local"
    assert sch.get(sch.get_block("C")).reads[0].buffer.name == "A"
    D = te.compute((7,), lambda i: B[i], name="D")
    sch = Schedule(te.create_prim_func([A, B, C, D]))
    sch.cache_read("D", 0, "local", ["C"])  # C does not read B: nobody uses the copy
    assert sch.get(sch.get_block("D")).reads[0].buffer.name == "B"


def test_consumers_stand_in_the_scope_of_the_copy():
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((7,)), B: T.Buffer((7,))):
    for i in range(7):
        with T.block("outer"):
            vi = T.axis.spatial(7, i)
            for j in range(1):
                with T.block("B"):
                    vj = T.axis.spatial(7, vi + j)
                    B[vj] = A[vj]
""")
    )
    with pytest.raises(ScheduleError, match="block 'B' stands in another scope"):
        sch.cache_read("outer", 0, "local", ["B"])


def test_two_copies_have_two_names(matmul):
    sch = Schedule(matmul())
    assert sch.cache_read("C", 0, "local").name == "A_local"
    assert sch.cache_read("A_local", 0, "local").name == "A_local_1"


@pytest.mark.parametrize("which, found", [(2, "0: A, 1: B"), ("X", "0: A, 1: B"), (-1, "0: A, 1: B")])
def test_cache_read_names_what_there_is(matmul, which, found):
    with pytest.raises(ScheduleError, match=f"block 'C' has no read buffer {which!r}(?s:.*){found}"):
        Schedule(matmul()).cache_read("C", which, "local")


def test_cache_read_refuses_a_buffer_of_two_writers(matmul):
    sch = Schedule(matmul())
    copy = sch.cache_write("C", 0, "local")
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    with pytest.raises(ScheduleError, match="C_local is written by 2 blocks \\('C_init', 'C_update'\\)"):
        sch.cache_read(copy, 0, "shared")


def test_cache_read_refuses_a_reader_before_the_writer():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), B: T.Buffer((7,)), C: T.Buffer((7,))):
    for i in range(7):
        with T.block("first"):
            vi = T.axis.spatial(7, i)
            B[vi] = A[vi]
    for i in range(7):
        with T.block("change"):
            vi = T.axis.spatial(7, i)
            A[vi] = T.float32(1)
    for i in range(7):
        with T.block("second"):
            vi = T.axis.spatial(7, i)
            C[vi] = A[vi]
""")
    with pytest.raises(ScheduleError, match="'first' reads buffer A before block 'change' writes it"):
        Schedule(func).cache_read("second", 0, "local")
    sch = Schedule(func)
    sch.cache_read("second", 0, "local", ["second"])
    arrays = [np.arange(7, dtype="float32"), np.zeros(7, "float32"), np.zeros(7, "float32")]
    interpret(sch.func, *arrays)
    np.testing.assert_array_equal(arrays[1], np.arange(7))
    np.testing.assert_array_equal(arrays[2], np.ones(7))


def test_cache_write_copies_at_the_end(matmul, same, agree, replays):
    func = matmul(13, 17, 7)
    sch = Schedule(func)
    assert sch.cache_write("C", 0, "local").name == "C_local"
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((13, 7)), B: T.Buffer((7, 17)), C: T.Buffer((13, 17))):
    C_local = T.alloc_buffer((13, 17), scope="local")
    for i, j, k in T.grid(13, 17, 7):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C_local[vi, vj] = T.float32(0)
            C_local[vi, vj] = C_local[vi, vj] + A[vi, vk] * B[vk, vj]
    for ax0, ax1 in T.grid(13, 17):
        with T.block("C_local"):
            v0, v1 = T.axis.remap("SS", [ax0, ax1])
            C[v0, v1] = C_local[v0, v1]
""",
    )
    agree(func, sch.func)
    replays(sch, func)


def test_cache_write_comes_before_the_readers(chain, agree):
    func = chain(7, 13)
    sch = Schedule(func)
    sch.cache_write("B", 0, "local")
    assert [b.name for b in sch.get_child_blocks(sch.get_block("root"))] == ["B", "B_local", "C"]
    assert sch.get(sch.get_block("C")).reads[0].buffer.name == "B"
    agree(func, sch.func)
    sch = Schedule(func)
    sch.cache_write("B", 0, "local", ["C"])
    assert [b.name for b in sch.get_child_blocks(sch.get_block("root"))] == ["B", "C", "B_local"]
    assert sch.get(sch.get_block("C")).reads[0].buffer.name == "B_local"
    agree(func, sch.func)


@pytest.mark.parametrize("factor", [1, 5, 16])
def test_cache_write_after_a_split_that_does_not_divide(chain, agree, factor):
    func = chain(13, 17)
    sch = Schedule(func)
    i, j = sch.get_loops("C")
    sch.split(i, [None, factor])
    sch.split(j, [None, 4])
    copy = sch.cache_write("C", 0, "local")
    assert [str(sch.get(v).extent) for v in sch.get_loops(copy)] == ["13", "17"]
    agree(func, sch.func)


def test_cache_write_refuses_an_update_in_place():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,))):
    for i in range(7):
        with T.block("A"):
            vi = T.axis.spatial(7, i)
            A[vi] = A[vi] + T.float32(1)
""")
    with pytest.raises(ScheduleError, match="reads buffer A, which it writes, and has no init"):
        Schedule(func).cache_write("A", 0, "local")


def test_cache_write_refuses_holes_in_an_output():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), B: T.Buffer((14,))):
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            B[vi * 2] = A[vi]
""")
    with pytest.raises(ScheduleError, match="not known to be a box without holes"):
        Schedule(func).cache_write("B", 0, "local")


def test_an_error_changes_nothing_and_marks_the_block(matmul):
    sch = Schedule(matmul())
    before = sch.func
    with pytest.raises(ScheduleError) as caught:
        sch.cache_write("C", 3, "local")
    assert sch.func is before and not sch.trace.insts
    text = str(caught.value)
    assert text.startswith("cache_write: block 'C' has no write buffer 3") and "^^^" in text


STARTS = """
@T.prim_func
def main(A: T.Buffer((7,)), C: T.Buffer((7,))):
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            T.reads(A[vi], C[0:7])
            T.writes(C[vi])
            {}
            for k in range(3):
                C[vi] = C[{}] + A[vi]
"""


def test_cache_write_of_a_block_that_stores_first(agree, replays):
    func = parse(STARTS.format("C[vi] = T.float32(0)", "vi"))
    sch = Schedule(func)
    sch.cache_write("C", 0, "local")
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize(
    "first, read", [("C[vi] = C[vi]", "vi"), ("C[vi] = T.float32(0)", "0"), ("C[0] = T.float32(0)", "vi")]
)
def test_cache_write_refuses_a_block_that_needs_what_was_there(first, read):
    with pytest.raises(ScheduleError, match="would lack what it starts from"):
        Schedule(parse(STARTS.format(first, read))).cache_write("C", 0, "local")


POINTER = """
@T.prim_func
def main(A: T.Buffer((16,)), C: T.Buffer((16,)), D: T.Buffer((16,))):
    for i in range(4):
        with T.block("call"):
            vi = T.axis.spatial(4, i)
            T.reads({})
            T.writes(C[vi * {}:vi * {} + 4])
            T.evaluate(T.call_extern("int32", "work", C.data, vi))
    for i in range(16):
        with T.block("D"):
            vi = T.axis.spatial(16, i)
            D[vi] = C[vi]
"""


def test_cache_write_takes_pointers_at_their_word():
    sch = Schedule(parse(POINTER.format("", 4, 4)))
    sch.cache_write("call", 0, "local")
    assert 'T.call_extern("int32", "work", C_local.data, vi)' in sch.func.script()
    with pytest.raises(ScheduleError, match="not known to be a box without holes"):
        Schedule(parse(POINTER.format("", 5, 5))).cache_write("call", 0, "local")
    with pytest.raises(ScheduleError, match="would lack what it starts from"):
        Schedule(parse(POINTER.format("C[vi * 4:vi * 4 + 4]", 4, 4))).cache_write("call", 0, "local")


def test_pointers_that_no_block_declares_are_refused():
    text = POINTER.format("", 4, 4).replace(
        "T.reads()\n            T.writes(C[vi * 4:vi * 4 + 4])", "T.reads()\n            T.writes(A[vi])"
    )
    with pytest.raises(ScheduleError, match="through a pointer or a match_buffer, which a copy would miss"):
        Schedule(parse(text.replace("D[vi] = C[vi]", "C[vi] = D[vi]"))).cache_write("D", 0, "local")


def test_cache_write_of_an_empty_fused_loop_is_refused(matmul):
    sch = Schedule(matmul(0, 0, 7))
    sch.fuse(*sch.get_loops("C")[:2])
    sch.fuse(*sch.get_loops("C"), preserve_unit_iters=False)
    with pytest.raises(ScheduleError, match="not known to be a box without holes"):
        sch.cache_write("C", 0, "local")


@pytest.mark.parametrize("n", [1, 7, 13, 16, 17])
def test_a_copy_in_a_tile_that_sticks_out_is_shorter(chain, agree, replays, n):
    func = chain(n, 3)
    sch = Schedule(func)
    i, _ = sch.get_loops("C")
    i0, _ = sch.split(i, [None, 4])
    sch.compute_at("B", i0)
    sch.cache_read("C", 0, "local")
    sch.cache_write("B", 0, "local")
    agree(func, sch.func)
    replays(sch, func)


def test_a_copy_holds_what_the_predicate_of_an_inner_block_leaves(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((70,)), B: T.Buffer((70,))):
    for i in range(70):
        with T.block("B"):
            vi = T.axis.spatial(70, i)
            B[vi] = A[vi] * T.float32(2)
""")
    sch = Schedule(func, debug_mask="all")
    _, inner = sch.split(sch.get_loops("B")[0], [7, 10])
    outer, _ = sch.split(inner, [4, 3])
    sch.blockize(outer)
    copy = sch.cache_read("B", 0, "local")
    assert [str(sch.get(v).extent) for v in sch.get_loops(copy)] == ["10"]
    assert str(sch.get(copy).reads[0]) == "A[vi_o * 10 + v0]"
    assert [str(b.shape[0]) for b in sch.get(sch.get_block("B_o")).alloc_buffers] == ["10"]
    agree(func, sch.func)


def test_a_copy_of_a_whole_buffer_is_declared_by_the_blocks_around():
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((8, 9), "float32")):
    for i, j in T.grid(8, 9):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.if_then_else(vj >= 1, A[vj - 1], T.float32(0))
""")
    )
    sch.blockize(sch.get_loops("B")[1])
    verify(sch.func)
    sch.cache_read("B", 0, "global")
    verify(sch.func)
    (outer,) = [r.block for r in blocks_of(sch.func) if r.block.name_hint == "B_o"]
    assert [(int(r.min), int(r.extent)) for r in outer.reads[0].region] == [(0, 16)]


def test_a_copy_holds_what_is_used_up_to_an_argument():
    n, A = te.var("n"), te.placeholder((6, 40), name="A")
    k = te.reduce_axis((0, n), name="k")
    sums = te.compute((4,), lambda i: te.sum(A[i + 1, k], axis=k), name="sums")
    last = te.compute((1,), lambda i: A[5, 39], name="last")
    func = te.create_prim_func([A, n, sums, last])
    sch = Schedule(func)
    sch.cache_read("sums", 0, "global", consumer_blocks=["sums"])
    assert "A_global = T.alloc_buffer((6, n))" in sch.func.script()
    assert "T.grid(6, n)" in sch.func.script()
    for used in (0, 1, 17, 40):
        agree_at(func, sch.func, used)
    every = Schedule(func)
    every.cache_read("last", 0, "global")  # both read it, and one of them to its end
    assert "A_global = T.alloc_buffer((6, 40))" in every.func.script()
    for used in (0, 40):
        agree_at(func, every.func, used)


def agree_at(func, other, used):
    data = np.random.default_rng(0).random((6, 40), np.float32)
    results = [[np.full(4, np.nan, np.float32), np.full(1, np.nan, np.float32)] for _ in range(2)]
    for f, outs in zip((func, other), results, strict=True):
        interpret(f, data, used, *outs)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
