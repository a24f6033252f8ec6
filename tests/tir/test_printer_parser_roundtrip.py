"""What prints, parses back: over the corpus, and over random expressions."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.tir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Block,
    BlockRealize,
    Broadcast,
    BufferLoad,
    BufferRegion,
    BufferStore,
    Call,
    Cast,
    Div,
    Evaluate,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    PrimFunc,
    Ramp,
    Range,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    assert_structural_equal,
    decl_buffer,
    parse,
    structural_hash,
    verify,
    workload_key,
)
from tilewright.tir.stmt import Allocate, LetStmt, root_block, seq

_X, _Y, _L = Var("x", "int32"), Var("y", "int32"), Var("l", "int64")
_F, _B = Var("f", "float32"), Var("b", "bool")
_A = decl_buffer((16,), "float32", "A")
_C = decl_buffer((16, 16), "int32", "C")


def test_corpus_parses_back(program):
    text = program.script()
    again = parse(text)
    assert_structural_equal(program, again)
    assert again.script() == text
    assert structural_hash(again) == structural_hash(program)
    assert workload_key(again) == workload_key(program)


def test_corpus_is_python(program):
    compile(program.script(), "<printed>", "exec")


def test_corpus_is_well_formed(program):
    verify(program)


def test_corpus_has_no_trailing_space_and_fits_the_indent(program):
    for line in program.script().splitlines():
        assert line == line.rstrip()
        assert (len(line) - len(line.lstrip())) % 4 == 0


def _binary(classes, operand):
    return st.builds(lambda cls, a, b: cls(a, b), st.sampled_from(classes), operand, operand)


_INT_LEAF = st.one_of(
    st.sampled_from([_X, _Y]), st.integers(-5, 5).map(IntImm), st.integers(-(2**31), 2**31 - 1).map(IntImm)
)
_FLOAT_LEAF = st.one_of(st.just(_F), st.floats(width=32).map(FloatImm), st.sampled_from([0.0, -0.0, 1.0]).map(FloatImm))


def _ints(depth):
    if depth == 0:
        return _INT_LEAF
    below = _ints(depth - 1)
    bools = _bools(depth - 1)
    return st.one_of(
        below,
        _binary([Add, Sub, Mul, FloorDiv, FloorMod, TruncDiv, TruncMod, Div, Min, Max], below),
        st.builds(lambda a, b: BufferLoad(_C, (a, b)), below, below),
        st.builds(lambda c, a, b: Select(c, a, b), bools, below, below),
        st.builds(lambda c, a, b: Call("tir.if_then_else", (c, a, b), "int32"), bools, below, below),
        st.builds(lambda a, b: _let(a, b), below, below),
        st.builds(lambda a: Cast("int32", a), st.one_of(_floats(depth - 1), bools)),
        st.builds(lambda a: Call("tir.bitwise_not", (a,), "int32"), below),
        st.builds(lambda a, b: Call("tir.shift_left", (a, b), "int32"), below, below),
    )


def _let(value, body):
    v = Var("v")
    return Let(v, value, Add(v, body))


def _floats(depth):
    if depth == 0:
        return _FLOAT_LEAF
    below, ints = _floats(depth - 1), _ints(depth - 1)
    return st.one_of(
        below,
        _binary([Add, Sub, Mul, Div, Min, Max], below),
        st.builds(lambda a: Call("tir.exp", (a,), "float32"), below),
        st.builds(lambda a, b: Call("tir.pow", (a, b), "float32"), below, below),
        st.builds(lambda i: BufferLoad(_A, (i,)), ints),
        st.builds(lambda i: Cast("float32", i), ints),
    )


def _bools(depth):
    leaf = st.one_of(st.just(_B), st.booleans().map(lambda b: IntImm(int(b), "bool")))
    if depth == 0:
        return leaf
    below = _bools(depth - 1)
    compare = [EQ, NE, LT, LE, GT, GE]
    return st.one_of(
        leaf,
        _binary(compare, _ints(depth - 1)),
        _binary(compare, _floats(depth - 1)),
        _binary([And, Or, EQ, NE], below),
        below.map(Not),
    )


def _function(value):
    """A function that defines everything the random expressions use."""
    handles = {name: Var(name, "handle") for name in ("a", "c", "o")}
    out = decl_buffer((1,), value.dtype, "O")
    params = (handles["a"], handles["c"], handles["o"], _X, _Y, _L, _F, _B)
    return PrimFunc(
        params,
        BufferStore(out, value, (IntImm(0),)),
        {handles["a"]: _A, handles["c"]: _C, handles["o"]: out},
        {"global_symbol": "f"},
    )


def _check(value):
    func = _function(value)
    text = func.script()
    again = parse(text)
    assert_structural_equal(func, again)
    assert again.script() == text


@settings(max_examples=250, deadline=None)
@given(_ints(3))
def test_random_integers_parse_back(e):
    _check(e)


@settings(max_examples=150, deadline=None)
@given(_floats(3))
def test_random_floats_parse_back(e):
    _check(e)


@settings(max_examples=150, deadline=None)
@given(_bools(3))
def test_random_conditions_parse_back(e):
    _check(e)


@settings(max_examples=100, deadline=None)
@given(_ints(2), st.integers(-3, 3), st.integers(2, 17))
@example(IntImm(2147483631), 0, 17)
def test_random_vector_indices_parse_back(base, stride, lanes):
    load = BufferLoad(_A, (Ramp(base, IntImm(stride), lanes),))
    func = _function(IntImm(0))
    out = decl_buffer((64,), "float32", "V")
    handle = Var("v", "handle")
    body = BufferStore(out, Add(load, Broadcast(_F, lanes)), (Ramp(base, IntImm(1), lanes),))
    func = PrimFunc((*func.params, handle), body, {**func.buffer_map, handle: out}, func.attrs)
    assert_structural_equal(func, parse(func.script()))


@settings(max_examples=150, deadline=None)
@given(_ints(2), st.one_of(st.integers(-3, 20).map(IntImm), _ints(2)))
def test_random_regions_parse_back(lo, extent):
    axis = IterVar(Range.from_extent(16), Var("vi"))
    region = BufferRegion(_A, (Range(lo, extent),))
    block = Block((axis,), (region,), (), "B", Evaluate(IntImm(0)))
    base = _function(IntImm(0))
    func = base.with_body(BlockRealize((_X,), IntImm(1, "bool"), block))
    func = func.with_body(root_block("root", func.body))
    text = func.script()
    again = parse(text)
    assert_structural_equal(func, again)
    assert again.script() == text


@pytest.mark.parametrize("count", [1, 7, 16, 300])
def test_long_sums_parse_back(count):
    e = _X
    for _ in range(count):
        e = Add(e, _Y)
    _check(e)


@pytest.mark.parametrize("words", ["decl_buffer", "alloc_buffer"])
def test_views_of_several_scopes_parse_back(words):
    """One view of a buffer made inside the function, of which statements of two scopes use it, is declared once, behind the buffer."""
    made = decl_buffer((4, 4), "int32", "made")
    view, offset = (
        decl_buffer((16 - o,), "int32", n, data=made.data, elem_offset=IntImm(o)) for n, o in [("view", 0), ("part", 4)]
    )
    let, again = Var("x", "int32"), Var("x", "int32")
    body = seq(
        LetStmt(let, IntImm(3, "int32"), BufferStore(view, let, (IntImm(5),))),
        LetStmt(again, IntImm(4, "int32"), BufferStore(view, again + BufferLoad(offset, (IntImm(1),)), (IntImm(6),))),
        BufferStore(offset, IntImm(1, "int32"), (IntImm(0),)),
    )
    root = root_block("root", body)
    whole = (
        Allocate(made, body) if words == "decl_buffer" else root.with_(block=root.block.with_(alloc_buffers=(made,)))
    )
    func = PrimFunc((), whole, {})
    text = func.script()
    assert text.count("view = T.Buffer") == text.count("part = T.Buffer") == 1
    assert_structural_equal(func, parse(text))
    assert parse(text).script() == text
