import numpy as np
import pytest

from tilewright.codegen import Target, compile, lower
from tilewright.codegen.lower.compact_buffers import aligned
from tilewright.schedule import Schedule, ScheduleError, Trace
from tilewright.schedule.index_map import IndexMap
from tilewright.tir import assert_structural_equal, decl_buffer, parse, verify
from tilewright.tir.interpret import interpret

_MATCHED = """
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13))):
    B = T.alloc_buffer((7, 13))
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B0 = T.match_buffer(B[vi, vj], (), offset_factor=1)
            B0[()] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(7, 13):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            B1 = T.match_buffer(B[vi, vj], (), offset_factor=1)
            C[vi, vj] = B1[()] + T.float32(1)
"""


def test_set_scope_reaches_what_match_buffers_name(agree, replays):
    func = parse(_MATCHED)
    sch = Schedule(func)
    sch.set_scope("B", "B", "shared")
    assert {b.scope for b in _buffers(sch.func)} == {"shared"}
    agree(func, sch.func)
    replays(sch, func)


def _buffers(func):
    from tilewright.tir.walk import blocks_of

    blocks = [r.block for r in blocks_of(func)]
    return [*[b for k in blocks for b in k.alloc_buffers], *[m.buffer for k in blocks for m in k.match_buffers]]


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda s: s.set_scope("B", 0, "test_scope"), "'test_scope' is not a storage scope"),
        (lambda s: s.set_scope("B", 1, "shared"), "no write buffer 1"),
        (lambda s: s.set_scope("B", -1, "shared"), "no write buffer -1"),
        (lambda s: s.set_scope("C", 0, "shared"), "C is a parameter, whose scope is the caller's"),
        (lambda s: s.unsafe_set_dtype("C", 0, "float16"), "C is a parameter, whose data type is the caller's"),
        (lambda s: s.unsafe_set_dtype("B", 1, "float16"), "no write buffer 1"),
        (lambda s: s.unsafe_set_dtype("B", 0, "float99"), "float has the widths"),
        (lambda s: s.unsafe_set_dtype("B", 0, "float16x4"), "cannot be stored as float16x4"),
        (
            lambda s: s.storage_align("B", 0, 0, 0, 127),
            "the factor is a positive number of elements, not 0",
        ),
        (
            lambda s: s.storage_align("B", 0, 0, -1, 127),
            "the factor is a positive number of elements, not -1",
        ),
        (lambda s: s.storage_align("B", 0, 0, 1 << 31, 1), "up to 2147483647, not 2147483648"),
        (lambda s: s.storage_align("B", 0, 0, 1 << 40, 1), "up to 2147483647, not 1099511627776"),
        (lambda s: s.storage_align("B", 0, 0, 16, 1 << 40), "the offset is a number of elements from -2147483647 to"),
        (
            lambda s: s.storage_align("B", 0, 0, 16, -(1 << 31)),
            "the offset is a number of elements from -2147483647 to",
        ),
        (lambda s: s.storage_align("C", 0, 0, 128, 127), "C is a parameter, whose layout is the caller's"),
        (lambda s: s.storage_align("B", 2, 0, 128, 127), "no write buffer 2"),
        (lambda s: s.storage_align("B", 0, 2, 128, 127), "has 2 dimensions, so there is no axis 2"),
        (lambda s: s.set_axis_separator("B", ("write", 1), [1]), "no write buffer 1"),
        (lambda s: s.set_axis_separator("B", ("read", -1), [1]), "no read buffer -1"),
        (lambda s: s.set_axis_separator("B", "B", [3]), "not separators of the 2 dimensions"),
        (lambda s: s.cache_read("C", 0, "test_scope"), "'test_scope' is not a storage scope"),
    ],
)
def test_refusals(chain, call, words):
    with pytest.raises(ScheduleError, match=words):
        call(Schedule(chain()))


def test_scopes_of_ones_own(chain):
    sch = Schedule(chain())
    sch.set_scope("B", 0, "global.scratchpad")
    assert sch.get(sch.get_block("B")).writes[0].buffer.scope == "global.scratchpad"


def test_unsafe_set_dtype(chain, same, replays):
    func = chain(7, 13)
    sch = Schedule(func)
    sch.unsafe_set_dtype("B", 0, "float16")
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13))):
    B = T.alloc_buffer((7, 13), "float16")
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.cast(A[vi, vj] * T.float32(2), "float16")
    for i, j in T.grid(7, 13):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.cast(B[vi, vj], "float32") + T.float32(1)
""",
    )
    replays(sch, func)
    a, c = np.full((7, 13), 1.0001, "float32"), np.zeros((7, 13), "float32")
    interpret(sch.func, a, c)
    np.testing.assert_array_equal(c, np.float32(np.float16(a * 2)) + 1)


def test_unsafe_set_dtype_of_a_reduction_and_of_matches(matmul):
    sch = Schedule(matmul(7, 5, 3))
    sch.cache_write("C", 0, "global")
    sch.unsafe_set_dtype("C", 0, "float64")
    verify(sch.func)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (7, 3)).astype("float32"), rng.integers(-4, 5, (3, 5)).astype("float32")
    c = np.zeros((7, 5), "float32")
    interpret(sch.func, a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    sch = Schedule(parse(_MATCHED))
    sch.unsafe_set_dtype("B", 0, "int32")
    assert {b.dtype for b in _buffers(sch.func)} == {"int32"}
    verify(sch.func)


def test_set_axis_separator(chain, agree, replays):
    func = chain(7, 13)
    by_hand = Schedule(func)
    by_hand.set_axis_separator("B", ("write", 0), [1])
    by_hand.set_axis_separator("B", "A", [1])
    by_map = Schedule(func)
    by_map.transform_layout("B", "B", lambda i, j: [i, IndexMap.AXIS_SEPARATOR, j])
    by_map.transform_layout("B", by_map.func.buffers[0], lambda i, j: [i, IndexMap.AXIS_SEPARATOR, j])
    assert_structural_equal(by_hand.func, by_map.func)
    assert by_map.func.buffers[0].axis_separators == (1,)
    for sch in (by_hand, by_map):
        agree(func, sch.func)
        replays(sch, func)


def test_set_axis_separator_reaches_matches():
    sch = Schedule(parse(_MATCHED))
    sch.set_axis_separator("B", ("write", 0), [1])
    assert [b.axis_separators for b in _buffers(sch.func)] == [(1,), (0,), (0,)]


@pytest.mark.parametrize("rows, columns, axis, factor, offset, stride", [
    (13, 16, 0, 16, 1, 17), (7, 17, -2, 16, 1, 17), (7, 18, 0, 16, 1, 33), (1, 1, 0, 8, 0, 8), (5, 13, 0, 1, 0, 13),
])  # fmt: skip
def test_storage_align_sets_the_stride_in_memory(replays, rows, columns, axis, factor, offset, stride):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer(({rows}, {columns})), C: T.Buffer(({columns}, {rows}))):
    B = T.alloc_buffer(({rows}, {columns}))
    for i, j in T.grid({rows}, {columns}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid({columns}, {rows}):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vj, vi] + T.float32(1)
""")
    sch = Schedule(func)
    sch.storage_align("B", 0, axis, 4, 3)
    sch.storage_align("B", 0, axis, factor, offset)  # takes the place of the first
    assert sch.get(sch.get_block("B")).annotations == {"buffer_dim_align": [[0, 0, factor, offset]]}
    replays(sch, func)
    target = Target("native -num-cores=1")
    text = lower(sch.func, target).func.script()
    if stride != columns and rows * columns > 1:
        assert f"strides=({stride}, 1)" in text
    a, c = np.arange(rows * columns, dtype="float32").reshape(rows, columns), np.zeros((columns, rows), "float32")
    compile(sch.func, target, "main")(a, c)
    np.testing.assert_array_equal(c, a.T * 2 + 1)


def test_storage_align_refuses_an_annotation_it_does_not_know(chain):
    sch = Schedule(chain())
    sch.annotate("B", "buffer_dim_align", [0])
    with pytest.raises(ScheduleError, match="of block 'B' is \\[0\\], no list of \\[buffer, axis, factor, offset\\]"):
        sch.storage_align("B", 0, 0, 16, 1)
    with pytest.raises(ValueError, match="buffer_dim_align of block 'B' is not followed: \\[0\\], no list"):
        lower(sch.func, Target("native -num-cores=1"))


@pytest.mark.parametrize("wish, words", [
    ([0, 0, 0, 1], "positive number of elements, not 0"), ([0, 0, 1 << 40, 1], "not 1099511627776"), ([0, -1, 16, 1], "from 0"),
])  # fmt: skip
def test_lowering_refuses_an_alignment_that_cannot_be(chain, wish, words):
    sch = Schedule(chain())
    sch.annotate("B", "buffer_dim_align", [wish])
    with pytest.raises(ValueError, match=words):
        lower(sch.func, Target("native -num-cores=1"))


def test_wide_strides_are_not_cut():
    buffer = aligned(decl_buffer((3, 5, 7), "int8"), [(1, 1 << 30, 1), (0, 1 << 30, 3)])
    assert [int(s) for s in buffer.strides] == [(5 << 30) + 3 + (1 << 30), (1 << 30) + 1, 1]


def test_output_blocks_at_any_depth():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16,)), B: T.Buffer((16,))):
    with T.block("outer"):
        vo = T.axis.spatial(1, 0)
        C = T.alloc_buffer((16,))
        for i in range(16):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = A[vi]
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = C[vi]
""")
    sch = Schedule(func)
    assert [b.name for b in sch.get_output_blocks("root")] == ["outer", "B"]
    assert [b.name for b in sch.get_output_blocks("outer")] == ["B"]


def test_annotations_nest(chain):
    func = chain()
    sch = Schedule(func)
    sch.annotate("B", "a", {"arr": [0, 0], "key": 3})
    sch.annotate(sch.get_loops("B")[0], "b", ["aa", 1])
    again = Schedule(func)
    Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
    assert_structural_equal(again.func, sch.func)
    sch.unannotate("B", "a")
    sch.unannotate(sch.get_loops("B")[0], "b")
    assert_structural_equal(sch.func, func)
    with pytest.raises(ScheduleError, match="there is no annotation 'a' here"):
        sch.unannotate("B", "a")


def test_an_empty_scope_is_global(chain):
    """As in TVM: a buffer, a parsed program and every primitive that takes a scope."""
    assert decl_buffer((3,), scope="").scope == "global" and decl_buffer((3,)).with_(scope="").scope == "global"
    func = parse(chain().script().replace("T.alloc_buffer((13, 17))", 'T.alloc_buffer((13, 17), scope="")'))
    assert_structural_equal(func, chain())

    def scheduled(scope):
        sch = Schedule(chain())
        sch.cache_read("B", 0, scope)
        sch.cache_write("C", 0, scope)
        sch.set_scope("B", 0, scope)
        sch.reindex_cache_read("B", 0, scope, lambda i, j: (j, i))
        return sch

    assert_structural_equal(scheduled("").func, scheduled("global").func)
    assert scheduled("").func.script() == scheduled("global").func.script()
    sch = Schedule(scheduled("local").func)
    sch.set_scope("B", 0, "")
    assert next(b for b in _buffers(sch.func) if b.name == "B").scope == "global"


def test_a_wider_type_of_integers_is_not_converted_back():
    """int8 kept as int16 is widened from int16; a narrower type is, as uint8, which lacks negative numbers."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((5,), "int8"), C: T.Buffer((5,), "int32")):
    B = T.alloc_buffer((5,), "int8")
    for i in range(5):
        with T.block("B"):
            vi = T.axis.spatial(5, i)
            B[vi] = A[vi]
    for i in range(5):
        with T.block("C"):
            vi = T.axis.spatial(5, i)
            C[vi] = T.Cast("int32", B[vi])
""")
    a = np.array([-128, -1, 0, 1, 127], "int8")
    for dtype, exact in (("int16", True), ("uint8", False)):
        sch = Schedule(func)
        sch.unsafe_set_dtype("B", 0, dtype)
        assert ('T.Cast("int32", B[vi])' in sch.func.script()) == exact
        out = np.zeros(5, "int32")
        interpret(sch.func, a, out)
        np.testing.assert_array_equal(out, a)  # uint8 is converted back, which gives the same bits
