"""How the printed text looks."""
# ruff: noqa: E741

import pytest

from tilewright.tir import (
    EQ,
    Add,
    And,
    Block,
    BlockRealize,
    BufferStore,
    Div,
    Evaluate,
    Expr,
    FloatImm,
    FloorDiv,
    For,
    IfThenElse,
    IntImm,
    IterVar,
    LetStmt,
    Mul,
    Not,
    Or,
    PrimFunc,
    Ramp,
    Range,
    SeqStmt,
    Sub,
    Var,
    decl_buffer,
    parse,
    register_printer,
)  # fmt: skip
from tilewright.tir.printer import script

I, J, X = Var("i"), Var("j"), Var("x", "float32")
B = Var("b", "bool")
A = decl_buffer((16, 16), "float32", "A")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Mul(Add(I, J), IntImm(2)), "(i + j) * 2"),
        (Add(I, Mul(J, IntImm(2))), "i + j * 2"),
        (Sub(I, Sub(J, I)), "i - (j - i)"),
        (Sub(Sub(I, J), I), "i - j - i"),
        (FloorDiv(I, Mul(J, J)), "i // (j * j)"),
        (Add(I, IntImm(-1)), "i + -1"),
        (Add(I, IntImm(0)), "T.Add(i, 0)"),
        (Add(IntImm(1), IntImm(2)), "T.Add(1, 2)"),
        (Div(I, J), "T.Div(i, j)"),
        (Div(X, X), "x / x"),
        (Not(And(B, Or(B, B))), "not (b and (b or b))"),
        (And(And(B, B), B), "b and b and b"),
        (And(B, And(B, B)), "b and (b and b)"),
        (EQ(EQ(I, J), B), "(i == j) == b"),
        (IntImm(3, "int64"), "T.int64(3)"),
        (IntImm(1, "bool"), "T.bool(True)"),
        (FloatImm(1.0), "T.float32(1.0)"),
        (FloatImm(float("nan"), "float64"), 'T.float64("nan")'),
        (A[I, J + 1], "A[i, j + 1]"),
        (A[I, Ramp(J, IntImm(1), 4)], "A[i, j:j + 4]"),
        (A[I, Ramp(J + 1, IntImm(1), 4)], "A[i, j + 1:j + 5]"),
        (A[I, Ramp(IntImm(4), IntImm(1), 4)], "A[i, 4:8]"),
        (A[I, Ramp(J, IntImm(2), 4)], "A[i, T.Ramp(j, 2, 4)]"),
    ],
)
def test_expressions(expr, text):
    assert str(expr) == text


def test_names_are_unique_while_they_live():
    inner = Var("i")
    body = For(I, IntImm(0), IntImm(4), "parallel", For(inner, IntImm(0), IntImm(4), "parallel", Evaluate(I + inner)))
    again = For(Var("i"), IntImm(0), IntImm(4), "parallel", Evaluate(IntImm(0)))
    assert script(SeqStmt((body, again))).splitlines() == [
        "for i in T.parallel(4):",
        "    for i_1 in T.parallel(4):",
        "        T.evaluate(i + i_1)",
        "for i in T.parallel(4):",
        "    T.evaluate(0)",
    ]


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        ("for", "for_1"),
        ("T", "T_1"),
        ("C.local", "C_local"),
        ("", "v"),
        ("3d", "v_3d"),
        ("range", "range_1"),
        ("é", "é"),
    ],
)
def test_names_are_identifiers(hint, name):
    assert script(For(Var(hint), IntImm(0), IntImm(4), "serial", Evaluate(IntImm(0)))).startswith(f"for {name} in ")


def test_grids_stop_where_an_extent_depends_on_a_loop():
    store = BufferStore(A, FloatImm(0.0), (I, J))
    f = For(I, IntImm(0), IntImm(4), "serial", For(J, IntImm(0), I, "serial", store))
    assert script(f).splitlines()[:2] == ["for i in range(4):", "    for j in range(i):"]


def test_marks_split_grids_and_carry_remarks():
    store = BufferStore(A, FloatImm(0.0), (I, J))
    f = For(I, IntImm(0), IntImm(4), "serial", For(J, IntImm(0), IntImm(4), "serial", store))
    assert script(f, highlight={J: "too long"}).splitlines() == [
        "for i in range(4):",
        "    for j in range(4):",
        "    #^^^^^^^^^^^^^^^^^ too long",
        "        A[i, j] = T.float32(0.0)",
    ]
    assert "#^" in script(f, highlight=[store]).splitlines()[-1]


def test_marked_blocks_by_node_or_name(corpus):
    func = corpus.PROGRAMS["matmul"]
    for mark in ("C", func.body.block.body.body.body.body, func.body.block.body.body.body.body.block):
        lines = script(func, highlight=[mark]).splitlines()
        at = next(k for k, line in enumerate(lines) if "#^^^" in line)
        assert 'with T.block("C")' in lines[at - 1]


def test_marked_text_still_parses(corpus):
    func = corpus.PROGRAMS["matmul"]
    text = script(func, highlight={func.body: "root", "C": "block", func: "the function"})
    assert parse(text).script() == func.script()


def test_free_variables_are_declared_at_the_head():
    f = PrimFunc((), BufferStore(A, Add(A[J, J], X), (I, J)), {}, {"global_symbol": "f"})
    lines = script(f, header=False).splitlines()
    assert lines[1] == "def f():"
    assert set(lines[2:6]) == {
        "    i = T.int32()", "    j = T.int32()", "    x = T.float32()", '    A = T.Buffer((16, 16), "float32")'
    }  # fmt: skip
    assert parse(script(f)).script() == script(f)


def test_remap_only_over_whole_loops():
    vi, vj = Var("vi"), Var("vj")
    axes = (IterVar(Range.from_extent(4), vi), IterVar(Range.from_extent(5), vj, "reduce"))
    block = Block(axes, (), (), "B", Evaluate(IntImm(0)))
    body = BlockRealize((I, J), IntImm(1, "bool"), block)
    for extent, text in ((5, 'vi, vj = T.axis.remap("SR", [i, j])'), (6, "vj = T.axis.reduce(5, j)")):
        loops = For(I, IntImm(0), IntImm(4), "serial", For(J, IntImm(0), IntImm(extent), "serial", body))
        assert text in script(loops)


def test_scoped_statements_indent_only_in_the_middle():
    let = LetStmt(X, FloatImm(1.0), BufferStore(A, X, (I, J)))
    assert script(let).splitlines() == ["x: T.float32 = T.float32(1.0)", "A[i, j] = x"]
    assert script(SeqStmt((let, Evaluate(I)))).splitlines() == [
        "with T.LetStmt(T.float32(1.0)) as x:", "    A[i, j] = x", "T.evaluate(i)"
    ]  # fmt: skip


def test_else_if_is_elif():
    done = Evaluate(IntImm(0))
    text = script(IfThenElse(B, done, IfThenElse(Not(B), done, done)))
    assert [line for line in text.splitlines() if not line.startswith(" ")] == ["if b:", "elif not b:", "else:"]


def test_a_chain_of_a_thousand_bindings_prints():
    body = Evaluate(IntImm(0))
    for _ in range(1500):
        body = LetStmt(Var("x"), I, body)
    lines = script(body).splitlines()
    assert lines[0] == "x: T.int32 = i" and lines[1499] == "x_1499: T.int32 = i"


def test_other_layers_add_their_nodes():
    class Answer(Expr):
        __slots__ = ()
        dtype = "int32"

    register_printer(Answer, lambda node, printer: (f"{printer.text(I)} + 42", 9))
    assert str(Mul(Answer(), J)) == "(i + 42) * j"
    assert str(Add(Answer(), J)) == "i + 42 + j"
