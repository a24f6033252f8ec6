"""What a class declares in ``parts`` decides its walks, its copies and its definitions."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilewright.tir import Add, Buffer, Expr, For, IntImm, Let, PrimFunc, Reduce, SeqStmt, Var, parse, stmt
from tilewright.tir.expr import Select, op
from tilewright.tir.expr import nodes as expr
from tilewright.tir.expr.node import IRNode, Mapper, NodePart, holds, node, nodes
from tilewright.tir.stmt import IRModule
from tilewright.tir.walk import free_vars, pre_order, replace_buffers, substitute

_FUNC = """
@T.prim_func
def main(A: T.Buffer((8, 8)), n: T.int32):
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            T.reads(A[vi, 0:4])
            T.writes(A[vi, 0])
            M = T.match_buffer(A[vi, 0:4], (1, 4))
            A[vi, 0] = M[0, 3]
"""


def _classes(root: type) -> list[type]:
    return [root, *[c for sub in root.__subclasses__() for c in _classes(sub)]]


def test_every_class_declares_fields_that_it_has() -> None:
    for cls in _classes(NodePart):
        if cls.__module__.startswith("tilewright") and cls.parts:
            names = [name for _, name in cls.parts]
            assert len(set(names)) == len(names)
            if hasattr(cls, "__dataclass_fields__"):  # dataclass leaves the class without slots behind
                assert set(names) <= set(cls.__dataclass_fields__), cls


def test_each_field_that_holds_expressions_is_declared() -> None:
    for module in (expr, op, stmt):
        for cls in vars(module).values():
            if isinstance(cls, type) and issubclass(cls, IRNode) and cls.__module__ == module.__name__:
                declared = {name for _, name in cls.parts}
                for name, field in getattr(cls, "__dataclass_fields__", {}).items():
                    if any(word in str(field.type) for word in ("Expr", "Stmt", "Buffer", "Block")):
                        assert name in declared, (cls, name)


def test_children_are_in_the_order_of_evaluation() -> None:
    a, b, c = Var("a", "bool"), Var("b"), Var("c")
    assert Select(a, b, c).children() == (a, b, c)
    loop = For(c, IntImm(0), b, "serial", stmt.Evaluate(c))
    assert loop.children() == (loop.min, b, loop.body)
    assert stmt.BufferStore(Buffer("A", (b,)), b, (c,)).children() == (c, b)


def test_a_loop_binds_its_variable_and_a_block_its_axes() -> None:
    func = parse(_FUNC)
    assert isinstance(func, PrimFunc)
    bound = {var.name for n in pre_order(func) for var in n.bound_vars()}
    assert bound == {p.name for p in func.params} | {"i", "vi"}
    assert {b.name for n in pre_order(func) for b in n.declared_buffers()} == {"A", "M"}
    assert free_vars(func) == set()
    assert {v.name for v in free_vars(func.body)} == {"n"}


def test_let_binds_as_an_expression_too() -> None:
    x = Var("x")
    assert Let(x, IntImm(1), Add(x, x)).bound_vars() == (x,)
    assert free_vars(Let(x, x, x)) == set()  # a variable has one definition


def test_unchanged_means_the_same_object() -> None:
    func = parse(_FUNC)
    assert func.map_children(lambda n: n) is func
    for n in pre_order(func):
        assert n.map_children(lambda c: c) is n
        assert n.map_parts(Mapper()) is n


def test_a_changed_part_keeps_the_other_fields() -> None:
    func = parse(_FUNC)
    loop = next(n for n in pre_order(func) if isinstance(n, For))
    new = loop.map_children(lambda c: IntImm(3) if c is loop.extent else c)
    assert (new.loop_var, new.kind, new.body) == (loop.loop_var, loop.kind, loop.body)
    assert new.extent == IntImm(3)


def test_sequences_stay_flat() -> None:
    one = stmt.Evaluate(Var("x"))
    two = SeqStmt((one, one))
    assert len(SeqStmt((one, two.seq[0])).map_children(lambda c: two).seq) == 4


def test_regions_and_ranges_are_walked_like_nodes() -> None:
    func = parse(_FUNC)
    block = next(n for n in pre_order(func) if isinstance(n, stmt.Block) and n.name_hint == "B")
    vi = block.iter_vars[0].var
    moved = substitute(block.reads[0], {vi: IntImm(5)})
    assert str(moved) == "A[5, 0:4]"


def test_buffers_are_replaced_wherever_they_are_used() -> None:
    func = parse(_FUNC)
    old = func.buffers[0]
    new = old.with_(name="Z")
    text = replace_buffers(func.body, {old: new}).script()
    assert "A[" not in text and "Z[" in text


def test_reductions_bind_their_axes_apart() -> None:
    k = op.IterVar(op.Range.from_extent(4), Var("k"), "reduce")
    x, y = Var("x", "float32"), Var("y", "float32")
    reducer = op.CommReducer((x,), (y,), (Add(x, y),), (expr.FloatImm(0.0),))
    e = Reduce(reducer, (expr.FloatImm(1.0),), (k,), IntImm(1, "bool"))
    assert e.bound_vars() == (x, y, k.var)
    assert e.children() == (e.source[0], e.condition)


@node
class _Pair(Expr):
    first: Expr
    rest: tuple[Expr, ...] = ()
    dtype: str = "int32"

    parts = nodes("first", "rest")


@node
class _Held(Expr):
    pair: op.Range
    dtype: str = "int32"

    parts = holds("pair")


def test_a_new_class_is_walked_by_its_declaration() -> None:
    x, y = Var("x"), Var("y")
    e = Add(_Pair(x, (y, x)), _Held(op.Range(x, y)))
    assert list(pre_order(e))[2:5] == [x, y, x]
    assert substitute(e, {x: y}).a.rest == (y, y)
    assert substitute(e, {x: y}).b.pair.min is y
    assert substitute(e, {Var("z"): y}) is e


def test_nodes_are_frozen_and_count_their_arguments() -> None:
    with pytest.raises(AttributeError):
        Var("x").name = "y"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Add(Var("x"))  # type: ignore[call-arg]
    assert IRModule({}).attrs == {}
    assert repr(op.Range(IntImm(0), IntImm(4))) == "Range(min=0, extent=4)"


def test_methods_made_while_data_is_parsed_execute_nothing():
    """The first use of a node's method makes it; an audit of what data may do sees no code run."""
    program = f"""
import sys
from tilewright.tir import parse
text = {_FUNC!r}
events = []
sys.addaudithook(lambda event, _: events.append(event) if watched and event == "exec" else None)
watched = True
parse(text).script()
watched = False
assert not events, events
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
