"""`while` in programs: its text, its meaning, and what is said of it before it runs."""

import numpy as np
import pytest

from tilewright.tir import (
    InterpretError,
    IntImm,
    ParseError,
    VerifyError,
    While,
    interpret,
    parse,
    structural_equal,
    structural_hash,
    verify,
    workload_key,
)
from tilewright.tir.analysis.simplify import simplify
from tilewright.tir.cost import count_flops
from tilewright.tir.printer import script
from tilewright.tir.walk import pre_order, substitute

COUNT = """
@T.prim_func
def f(A: T.Buffer((17,), "int32"), B: T.Buffer((17,), "int32")):
    for i in range(17):
        with T.block("B"):
            vi = T.axis.spatial(17, i)
            n = T.alloc_buffer((1,), "int32")
            n[0] = A[vi]
            B[vi] = 0
            while n[0] > 1:
                if n[0] % 2 == 0:
                    n[0] = n[0] // 2
                else:
                    n[0] = n[0] * 3 + 1
                B[vi] = B[vi] + 1
"""


def whiles(func):
    return [n for n in pre_order(func.body) if isinstance(n, While)]


@pytest.mark.parametrize("words", ["block", "sblock"])
def test_text_and_program_are_the_same(words):
    func = parse(COUNT)
    text = script(func, words=words)
    assert "            while n[0] > 1:\n                if n[0] % 2 == 0:\n" in text
    again = parse(text)
    assert structural_equal(func, again) and workload_key(func) == workload_key(again)
    assert script(again, words=words) == text
    verify(func)


def test_another_condition_is_another_program():
    one, other = parse(COUNT), parse(COUNT.replace("n[0] > 1", "n[0] > 2"))
    assert not structural_equal(one, other)
    assert structural_hash(one) != structural_hash(other) and workload_key(one) != workload_key(other)


def test_parts_and_rewriting():
    (loop,) = whiles(parse(COUNT))
    assert list(loop.children()) == [loop.condition, loop.body]
    assert loop.map_children(lambda n: n) is loop
    assert loop.map_children(lambda n: IntImm(1, "bool") if n is loop.condition else n).body is loop.body
    var = next(n for n in pre_order(loop) if getattr(n, "name", "") == "vi")
    assert not any(n is var for n in pre_order(substitute(loop, {var: IntImm(3)})))


def test_the_condition_is_evaluated_before_each_iteration():
    a = np.arange(1, 18, dtype="int32")
    b = np.full(17, 9, "int32")
    interpret(parse(COUNT), a, b, check_regions=True)
    assert b.tolist() == [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14, 9, 9, 17, 17, 4, 12]


def test_a_loop_without_an_end_stops_the_interpreter_by_its_steps():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((1,), "int32")):
    while A[0] >= 0:
        A[0] = 1 - A[0]
""")
    with pytest.raises(InterpretError, match=r"more than 1000 loop \w+, stopped in `while A\[0\] >= 0`"):
        interpret(func, np.zeros(1, "int32"), max_steps=1000)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("while i < 3:\n        A[0] = 1", "`i` is not defined here"),
        ("while A[0]:\n        A[0] = 1", "a condition must be bool, this is int32"),
        ("while A[0] > 1:\n        A[0] = 1\n    else:\n        A[0] = 2", "a loop has no else"),
        ("while A[0] > 1:\n        break", "Break has no meaning in TIR"),
        ("while A[0] > 1:\n        continue", "Continue has no meaning in TIR"),
    ],
)
def test_errors_of_the_text(body, message):
    with pytest.raises(ParseError, match=message):
        parse(f'@T.prim_func\ndef f(A: T.Buffer((1,), "int32")):\n    {body}\n')


def test_a_condition_is_bool():
    func = parse(COUNT)
    (loop,) = whiles(func)
    wrong = func.with_body(_replaced(func.body, loop, While(IntImm(1), loop.body)))
    with pytest.raises(VerifyError, match="the condition `1` is int32"):
        verify(wrong)


def _replaced(body, old, new):
    from tilewright.tir.walk import replace_node

    return replace_node(body, old, new)


def test_what_a_block_reads_at_places_that_it_computes_itself_is_the_whole_dimension():
    func = parse("""
@T.prim_func
def f(S: T.Buffer((17, 3), "int32"), B: T.Buffer((7,), "int32")):
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            lo = T.alloc_buffer((1,), "int32")
            lo[0] = 0
            while S[lo[0], 1] < vi:
                lo[0] = lo[0] + 1
            B[vi] = lo[0]
""")
    assert "T.reads(S[0:17, 1])" in func.script()
    verify(func)


@pytest.mark.parametrize("before", ["", "if A[0] < 5:\n        "])
def test_conditions_that_memory_decides_stay(before):
    body = "while A[0] < 5:\n            A[0] = A[0] + 1"
    body = before + (body if before else body.replace("            ", "        "))
    func = parse(f'@T.prim_func\ndef f(A: T.Buffer((1,), "int32")):\n    {body}\n')
    assert len(whiles(simplify(func))) == 1


def test_the_body_is_simplified_under_a_condition_that_stays():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((1,), "int32")):
    while A[0] < 5:
        A[0] = A[0] + 1 + 1
""")
    assert "A[0] = A[0] + 2" in simplify(func).script()


def test_a_condition_that_never_holds_is_nothing():
    func = parse('@T.prim_func\ndef f(A: T.Buffer((1,), "int32")):\n    while 3 < 2:\n        A[0] = 1\n')
    assert not whiles(simplify(func))


def test_a_name_keeps_its_value_when_memory_changes():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((1,), "int32"), B: T.Buffer((1,), "int32")):
    x: T.int32 = A[0]
    A[0] = x + 1
    if x < A[0]:
        B[0] = 1
""")
    b = np.zeros(1, "int32")
    interpret(simplify(func), np.zeros(1, "int32"), b)
    assert b[0] == 1


def test_bounds_that_memory_gave_are_not_known_when_it_changes():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((1,), "int32"), B: T.Buffer((1,), "int32")):
    for k in range(A[0]):
        A[0] = 2
        if k < A[0]:
            B[0] = B[0] + 1
""")
    b = np.zeros(1, "int32")
    interpret(simplify(func), np.full(1, 7, "int32"), b)
    assert b[0] == 2


def test_operations_of_a_while_are_not_counted():
    assert count_flops(parse(COUNT)) is None
