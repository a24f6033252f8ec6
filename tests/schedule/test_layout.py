import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError, Trace
from tilewright.schedule.index_map import IndexMap
from tilewright.schedule.require.block_preconditions import root_of
from tilewright.tir import Var, assert_structural_equal, parse, verify
from tilewright.tir.analysis.tree import tree_of
from tilewright.tir.expr import IntImm
from tilewright.tir.interpret import interpret
from tilewright.tir.interpret.interpret_expr import InterpretError

from ..fuzz.one_name import one_name


def test_transform_layout_of_an_intermediate_buffer(chain, same, agree, replays):
    func = chain(32, 16)
    sch = Schedule(func)
    sch.transform_layout("B", ("write", 0), lambda i, j: (i // 16, j, i % 16))
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((32, 16)), C: T.Buffer((32, 16))):
    B = T.alloc_buffer((2, 16, 16))
    for i, j in T.grid(32, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi // 16, vj, vi % 16] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(32, 16):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi // 16, vj, vi % 16] + T.float32(1)
""",
    )
    agree(func, sch.func)
    replays(sch, func)


def test_padding_runs_with_the_block_that_fills(same, agree, replays):
    A = te.placeholder((14,), name="A")
    B = te.compute((14,), lambda i: A[i], name="B")
    C = te.compute((14,), lambda i: B[i] + 1.0, name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    sch.transform_layout("B", "B", lambda i: (i // 4, i % 4), pad_value=0.0)
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((14,)), C: T.Buffer((14,))):
    B = T.alloc_buffer((4, 4))
    for i, j in T.grid(4, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi * 4 + vj])
            T.writes(B[vi, vj])
            B[vi, vj] = T.if_then_else(vi == 3 and 2 <= vj, T.float32(0), A[vi * 4 + vj])
    for i in range(14):
        with T.block("C"):
            vi = T.axis.spatial(14, i)
            C[vi] = B[vi // 4, vi % 4] + T.float32(1)
""",
    )
    agree(func, sch.func)
    replays(sch, func)


def test_padding_of_a_reduction_runs_with_it(matmul, agree, replays):
    func = matmul(7, 13, 5)
    sch = Schedule(func)
    sch.cache_write("C", 0, "global")
    sch.transform_layout("C", ("write", 0), lambda i, j: (j // 4, i, j % 4), pad_value=1.0)
    block = sch.get(sch.get_block("C"))
    assert str(block.init.value) == "T.if_then_else(v0 == 3 and 1 <= v2, T.float32(1.0), T.float32(0.0))"
    assert [int(lp.extent) for lp in map(sch.get, sch.get_loops("C"))] == [4, 7, 4, 5]
    agree(func, sch.func)
    replays(sch, func)


def test_padding_of_a_tiled_reduction_is_a_block_of_its_own(matmul, agree, replays):
    func = matmul(7, 13, 5)
    sch = Schedule(func)
    sch.cache_write("C", 0, "global")
    sch.split(sch.get_loops("C")[0], [None, 2])
    sch.transform_layout("C", ("write", 0), lambda i, j: (j // 4, i, j % 4), pad_value=1.0)
    assert [b.name for b in sch.get_child_blocks(sch.get_block("root"))] == ["C", "C_pad_C_global", "C_global"]
    assert str(sch.get(sch.get_loops("C_pad_C_global")[2]).body.predicate) == "ax0 == 3 and 1 <= ax2"
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize("n", [1, 7, 13, 16, 17])
@pytest.mark.parametrize("pad", [None, 0.0])
def test_packing_an_operand(matmul, agree, replays, n, pad):
    func = matmul(5, n, 7)
    sch = Schedule(func)
    copy = sch.cache_read("C", 1, "global")
    sch.transform_layout(copy, ("write", 0), lambda k, j: (j // 6, k, j % 6), pad, leave_padding=pad is None)
    agree(func, sch.func)
    replays(sch, func)


def test_a_parameter_changes_its_shape(chain):
    sch = Schedule(chain(32, 16))
    sch.transform_layout("C", ("write", 0), lambda i, j: (j, i))
    assert [int(e) for e in sch.func.buffers[1].shape] == [16, 32]
    with pytest.raises(ScheduleError, match="larger shape .7, 5, 16., and it is not said what the padding holds"):
        sch.transform_layout("B", ("read", 0), lambda i, j: (i // 5, i % 5, j))
    with pytest.raises(ScheduleError, match="pad_value 0 is not of type float32, which buffer A holds"):
        sch.transform_layout("B", ("read", 0), lambda i, j: (i // 5, i % 5, j), pad_value=0)


def test_the_padding_of_an_input_is_assumed(chain):
    func = chain(32, 16)
    sch = Schedule(func)
    sch.transform_layout("B", ("read", 0), lambda i, j: (i // 5, i % 5, j), pad_value=0.0)
    (line,) = [s for s in sch.func.script().splitlines() if "assume" in s and "block" not in s]
    assert "not (v0 == 6 and 2 <= v1) or A[v0, v1, v2] == T.float32(0.0)" in line
    a = np.arange(512.0, dtype="float32").reshape(32, 16)
    padded = np.zeros((35, 16), "float32")
    padded[:32] = a
    want, have = np.full((2, 32, 16), np.nan, "float32")
    interpret(func, a, want)
    interpret(sch.func, padded.reshape(7, 5, 16), have)
    np.testing.assert_array_equal(have, want)
    padded[-1] = 1
    with pytest.raises(InterpretError, match="an assumption does not hold"):
        interpret(sch.func, padded.reshape(7, 5, 16), have)


@pytest.mark.parametrize("n", [1, 7, 13, 16, 17])
@pytest.mark.parametrize("text", ["((i + 3) // 8, (i + 3) % 8)", "(i % 4, i // 4)", "(i // 8, i % 8 // 4, i % 4)"])
def test_padding_of_shifted_and_swapped_digits(agree, replays, n, text):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((n,), lambda i: B[i] + 1.0, name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    sch.transform_layout("B", "B", f"lambda i: {text}", pad_value=1.0)
    agree(func, sch.func)
    replays(sch, func)


def test_padding_may_depend_on_the_place(replays):
    A = te.placeholder((7,), name="A", dtype="int32")
    B = te.compute((7,), lambda i: A[i] * 2, name="B")
    func = te.create_prim_func([A, B])
    sch = Schedule(func)
    sch.transform_layout("B", "B", lambda i: (i // 4, i % 4), pad_value=lambda i, j: 10 * i + j)
    out = np.zeros((2, 4), "int32")
    interpret(sch.func, np.arange(7, dtype="int32"), out)
    assert out.tolist() == [[0, 2, 4, 6], [8, 10, 12, 13]]
    replays(sch, func)


@pytest.mark.parametrize("block", ["B", "C"])
def test_padding_of_a_buffer_of_an_outer_scope_is_filled_there(agree, replays, block):
    A = te.placeholder((14, 3), name="A")
    B = te.compute((14, 3), lambda i, j: A[i, j], name="B")
    C = te.compute((14, 3), lambda i, j: B[i, j] + 1.0, name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    for name in ("B", "C"):
        sch.blockize(sch.get_loops(name)[1])
    sch.transform_layout(block, "B", lambda i, j: (i // 4, j, i % 4), pad_value=0.0)
    verify(sch.func)
    root = list(tree_of(sch.func).blocks_in(root_of(tree_of(sch.func))))
    assert [b.block.name_hint for b in root] == ["B_o", "B_o_pad_B", "C_o"]
    assert str(root[1].predicate) == "v0 == 3 and 2 <= v2".replace("v0", "ax0").replace("v2", "ax2")
    agree(func, sch.func)
    replays(sch, func)


def test_padding_of_an_output_of_an_outer_scope():
    A = te.placeholder((7, 3), name="A", dtype="int32")
    B = te.compute((7, 3), lambda i, j: A[i, j] * 2, name="B")
    sch = Schedule(te.create_prim_func([A, B]))
    sch.blockize(sch.get_loops("B")[1])
    sch.transform_layout("B", "B", lambda i, j: (j, i // 4, i % 4), pad_value=5)
    out = np.full((3, 2, 4), -1, "int32")
    interpret(sch.func, np.arange(21, dtype="int32").reshape(7, 3), out, check_regions=True)
    assert out[1].tolist() == [[2, 8, 14, 20], [26, 32, 38, 5]] and (out[:, 1, 3] == 5).all()


def test_padding_of_a_buffer_that_no_block_writes_is_refused():
    text = """
@T.prim_func
def main(C: T.Buffer((7,))):
    B = T.alloc_buffer((7,))
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = B[vi]
"""
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError, match="no block inside block 'root', which allocates B, writes it"):
        sch.transform_layout("C", "B", lambda i: (i // 4, i % 4), pad_value=0.0)


@pytest.mark.parametrize(
    "index_map", ["lambda i, j: (i // 2, j)", "lambda i, j: (i + j,)", "lambda i, j: (i % 4, j)", "lambda i, j: (i,)"]
)
def test_transform_layout_refuses_collisions(chain, index_map):
    sch = Schedule(chain(7, 13))
    with pytest.raises(ScheduleError, match="not known to send each index to a place of its own"):
        sch.transform_layout("B", ("write", 0), index_map)


def test_transform_layout_checks_its_arguments(chain):
    sch = Schedule(chain(7, 13))
    with pytest.raises(ScheduleError, match="takes 1 indices, the shape has 2"):
        sch.transform_layout("B", ("write", 0), lambda i: (i,))
    with pytest.raises(ScheduleError, match="block 'B' has no buffer 'X'"):
        sch.transform_layout("B", "X", lambda i, j: (j, i))
    with pytest.raises(TypeError, match="an index map is a function"):
        sch.transform_layout("B", "B", 3)


def test_transform_block_layout(chain, same, agree, replays):
    func = chain(7, 16)
    sch = Schedule(func)
    sch.transform_block_layout("B", lambda i, j: (j // 8, i, j % 8))
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((7, 16)), C: T.Buffer((7, 16))):
    B = T.alloc_buffer((7, 16))
    for ax0, ax1, ax2 in T.grid(2, 7, 8):
        with T.block("B"):
            v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
            B[v1, v0 * 8 + v2] = A[v1, v0 * 8 + v2] * T.float32(2)
    for i, j in T.grid(7, 16):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)
""",
    )
    agree(func, sch.func)
    replays(sch, func)


def test_transform_block_layout_of_a_reduction(matmul, agree):
    func = matmul(7, 13, 8)
    sch = Schedule(func)
    sch.transform_block_layout("C", lambda i, j, k: (k // 4, i * 13 + j, k % 4))
    assert [iv.kind for iv in sch.get(sch.get_block("C")).iter_vars] == ["reduce", "spatial", "reduce"]
    agree(func, sch.func)
    with pytest.raises(ScheduleError, match="mixes spatial and reduce axes"):
        Schedule(func).transform_block_layout("C", lambda i, j, k: (i, j * 8 + k))
    with pytest.raises(ScheduleError, match="does not fit the domain of block 'C'"):
        Schedule(func).transform_block_layout("C", lambda i, j, k: (i, j, k // 3, k % 3))


def test_transform_block_layout_refuses_shared_loops(chain):
    sch = Schedule(chain())
    sch.compute_at("B", sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="not alone in a loop nest of its own"):
        sch.transform_block_layout("B", lambda i, j: (j, i))


def test_set_scope(chain):
    sch = Schedule(chain())
    sch.set_scope("B", 0, "local")
    assert sch.get(sch.get_block("C")).reads[0].buffer.scope == "local"
    with pytest.raises(ScheduleError, match="C is a parameter, whose scope is the caller's"):
        sch.set_scope("C", 0, "local")


def test_index_maps_read_back():
    text = "lambda i, j: (i // 4, (j + 1) * 2 % 7, i % 4 - j)"
    m = IndexMap.from_text(text)
    assert m.as_text() == text
    assert IndexMap.from_func(lambda *i: (i[1], i[0]), ndim=2).as_text() == "lambda i_0, i_1: (i_1, i_0)"
    assert IndexMap.from_func(lambda i: i).as_text() == "lambda i: (i,)"


@pytest.mark.parametrize(
    "text",
    ["1", "lambda i: __import__('os')", "lambda i: i.x", "lambda i: j", "lambda i=1: i", "lambda *i: i", "lambda i: i /",
     "lambda i: i // 0", "lambda i: i ** 9", "lambda i: " + "(" * 500 + "i" + ")" * 500],
)  # fmt: skip
def test_texts_that_are_no_index_maps_are_refused(text):
    with pytest.raises(ScheduleError, match="index map"):
        IndexMap.from_text(text)


SIZED = """
@T.prim_func
def main(a: T.handle, C: T.Buffer((16,), "int32"), s: T.int32, D: T.Buffer((16,), "int32")):
    n = T.int32()
    A = T.match_buffer(a, (n,))
    B = T.alloc_buffer((16,), "int32")
    assert n >= 1, "A has no elements"
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = C[vi] * 2
    for i in range(16):
        with T.block("D"):
            vi = T.axis.spatial(16, i)
            D[vi] = B[vi] + 1
    for i in range(n):
        with T.block("A"):
            vi = T.axis.spatial(n, i)
            A[vi] = 0.0
"""


@pytest.mark.parametrize(
    ("index_map", "options", "stored_at", "shape"),
    [
        (lambda n, s: lambda i: (i // n, i % n), {"pad_value": 7}, "v0, v1", "15 // n + 1, n"),
        (lambda n, s: lambda i: (i // n, i % n), {"leave_padding": True}, "vi // n, vi % n", "15 // n + 1, n"),
        (lambda n, s: lambda i: (i + n,), {"leave_padding": True}, "vi + n", "n + 16"),
        (lambda n, s: lambda i: (n + 15 - i,), {"pad_value": lambda i: i + 3}, "v0", "n + 16"),
        (lambda n, s: lambda i: (15 - i,), {}, "15 - vi", "16"),
        (
            lambda n, s: lambda i: (i // s, i % s),
            {"assume_injective_transform": True},
            "vi // s, vi % s",
            "15 // s + 1, s",
        ),
        (lambda n, s: lambda i: ((i + s) % 16,), {"assume_injective_transform": True}, "(vi + s) % 16", "16"),
        (lambda n, s: lambda i: (i // 5, i % 5), {"assume_injective_transform": True}, "vi // 5, vi % 5", "4, 5"),
    ],
)
def test_maps_that_use_sizes_and_scalars(replays, index_map, options, stored_at, shape):
    func = parse(SIZED)
    sch = Schedule(func, debug_mask="all")
    (n,), s = func.buffers[0].shape, func.params[2]
    sch.transform_layout("B", ("write", 0), index_map(n, s), **options)
    stored = sch.get(sch.get_block("B")).body
    assert (", ".join(map(str, stored.indices)), ", ".join(map(str, stored.buffer.shape))) == (stored_at, shape)
    replays(sch, func)
    given = np.arange(16, dtype="int32")
    for length in (1, 3, 16, 17):
        for scalar in (1, 2, 7):
            out = np.full(16, -1, "int32")
            interpret(sch.func, np.zeros(length, "float32"), given, scalar, out, check_regions=True)
            np.testing.assert_array_equal(out, given * 2 + 1)


def test_what_a_map_may_use_beside_its_indices():
    func = parse(SIZED)
    sch = Schedule(func)
    s, loop = func.params[2], sch.get_loops("B")[0]
    with pytest.raises(ScheduleError, match="divides by s, which is not known to be at least 1"):
        sch.transform_layout("B", ("write", 0), lambda i: (i // s, i % s), leave_padding=True)
    with pytest.raises(ScheduleError, match=r"the axes do not follow from \(i \+ s\) % 16"):
        sch.transform_layout("B", ("write", 0), lambda i: ((i + s) % 16,))

    def shifted(by):
        return lambda k: (k + by,)

    for other in (loop, Var("x")):
        with pytest.raises(ScheduleError, match=f"the index map uses {other.name}, which is not one of its indices"):
            sch.transform_layout("B", ("write", 0), shifted(other))
    with pytest.raises(TypeError, match="an index map is a function"):
        sch.transform_layout("B", ("write", 0), ["lambda i: (i,)", 3])


def test_block_layouts_and_accesses_of_sizes(replays):
    func = parse(SIZED)
    sch = Schedule(func, debug_mask="all")
    n = sch.get_symbol("n")
    sch.transform_block_layout("A", lambda i: (n - 1 - i,))
    assert str(sch.get(sch.get_block("A")).body) == "A[n - v0 - 1] = T.float32(0.0)"
    sch.annotate_buffer_access("A", 0, "write", lambda i: [(n - 1 - i, n)])
    replays(sch, func)


def test_two_variables_of_one_name_have_two_names_in_the_text():
    v, w, x = Var("v"), Var("v"), Var("v")
    m = IndexMap((v, w), (w * 16 + v, x))
    assert m.as_text() == "lambda v, v_1: (v_1 * 16 + v, v_2)"
    text, sizes = m.recorded()
    assert sizes == {"v_2": x}
    again = IndexMap.of([text, sizes], None, [x])
    assert again.as_text() == m.as_text() and again.final_indices[1] is x


def test_sizes_of_one_name_are_told_apart_in_a_trace():
    with one_name():
        func = parse(SIZED)
    sch = Schedule(func)
    (n,) = func.buffers[0].shape
    assert n.name == func.params[2].name
    sch.transform_layout("B", ("write", 0), lambda i: (i // n, i % n), pad_value=0)
    assert sch.trace.insts[0].arguments == {"name": 1}
    again = Schedule(func)
    Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
    assert_structural_equal(again.func, sch.func)


def test_transform_block_layout_needs_a_box():
    text = """
@T.prim_func
def main(A: T.Buffer((1, 2)), B: T.Buffer((1, 2))):
    for i, j in T.grid(1, 2):
        for k in range(i + 1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                vk = T.axis.reduce(i + 1, k)
                with T.init():
                    B[vi, vj] = T.float32(0)
                B[vi, vj] = B[vi, vj] + A[vk, vj]
"""
    with pytest.raises(ScheduleError, match="axis vk of block 'B' runs over i . 1 values, which depends on a loop"):
        Schedule(parse(text)).transform_block_layout("B", lambda i, j, k: (i, j, k))


@pytest.mark.parametrize("primitive", ["transform_layout", "transform_block_layout"])
@pytest.mark.parametrize("wide", [np.int64(4), np.int32(4), IntImm(4, "int64"), 4])
@pytest.mark.parametrize("size", [32, "int32", "int64"])
def test_numbers_of_any_width_in_a_map(replays, primitive, wide, size):
    n = size if isinstance(size, int) else te.var("n", size)
    A = te.placeholder((n,), "int32", "A")
    B = te.compute((n * 4,), lambda i: A[i // 4] * 2, "B")
    func = te.create_prim_func([A, te.compute(B.shape, lambda i: B[i] + 1, "C")])
    sch = Schedule(func, debug_mask="all")
    index_map = lambda i: (i // wide, i % wide)  # noqa: E731
    if primitive == "transform_layout":
        sch.transform_layout("B", ("write", 0), index_map)
    else:
        sch.transform_block_layout("B", index_map)
    replays(sch, func)
    for length in (32,) if isinstance(size, int) else (0, 1, 5):
        given, out = np.arange(length, dtype="int32"), np.full(length * 4, -1, "int32")
        interpret(sch.func, given, out, check_regions=True)
        np.testing.assert_array_equal(out, given.repeat(4) * 2 + 1)


def test_a_size_that_may_be_0_divides_only_what_it_sizes():
    """Sixteen elements have no place in rows of n = 0; n * 4 elements are none then."""
    text = SIZED.replace('    assert n >= 1, "A has no elements"\n', "")
    sch = Schedule(parse(text))
    n = sch.get_symbol("n")
    with pytest.raises(ScheduleError, match="divides by n, which is not known to be at least 1"):
        sch.transform_layout("B", ("write", 0), lambda i: (i // n, i % n), pad_value=0)

    n = te.var("n")
    A = te.placeholder((n,), "int32", "A")
    B = te.compute((n * 4,), lambda i: A[i // 4] * 2, "B")
    sch = Schedule(te.create_prim_func([A, te.compute(B.shape, lambda i: B[i] + 1, "C")]))
    n = sch.get_symbol("n")
    sch.transform_layout("B", ("write", 0), lambda i: (i // n, i % n))
    assert str(sch.get(sch.get_block("B")).body.buffer.shape) == "(4, n)"
    for length in (0, 1, 5):
        given, out = np.arange(length, dtype="int32"), np.full(length * 4, -1, "int32")
        interpret(sch.func, given, out, check_regions=True)
        np.testing.assert_array_equal(out, given.repeat(4) * 2 + 1)
