"""Equality up to renaming, the hash that goes with it, and the workload key."""

import subprocess
import sys

import pytest

from tilewright.tir import (
    Add,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    FloatImm,
    For,
    IntImm,
    Let,
    Ramp,
    Select,
    Var,
    assert_structural_equal,
    decl_buffer,
    parse,
    structural_equal,
    structural_hash,
    workload_key,
)  # fmt: skip
from tilewright.tir.expr import same, value_key
from tilewright.tir.program_key import canonical_text, program_key

BASE = """
@T.prim_func
def main(A: T.Buffer((16, 17), "float32"), B: T.Buffer((16, 17), "float32"), n: T.int32):
    T.func_attr({"tir.noalias": True, "k": [1, "x"]})
    C = T.alloc_buffer((16, 17), scope="local")
    for i, j in T.grid(16, 17):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where(i < n)
            T.block_attr({"a": 1})
            C[vi, vj] = A[vi, vj] * T.float32(2.0)
    for i in T.parallel(16, annotations={"p": 4}):
        for k in T.vectorized(17):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                vk = T.axis.reduce(17, k)
                with T.init():
                    B[vi, 0] = T.float32(0.0)
                B[vi, 0] = B[vi, 0] + C[vi, vk]
"""

RENAMED = (
    BASE.replace("A", "X").replace("vi", "u").replace("for i", "for q").replace("[i", "[q").replace("(i <", "(q <")
    .replace("(16, i)", "(16, q)").replace("B:", "Y:").replace("B[", "Y[").replace("C[", "Z[").replace("C =", "Z =")
    .replace("def main", "def other")
)  # fmt: skip

CHANGES = [
    ("T.float32(2.0)", "T.float32(3.0)", r".*body.*: T.float32\(2.0\) .*against T.float32\(3.0\)"),
    ("A[vi, vj] *", "A[vi, vj] +", "Mul .* against Add"),
    ('"float32"), B', '"float64"), B', "dtype 'float32' against 'float64'"),
    ("T.grid(16, 17)", "T.grid(16, 13)", "17 .* against 13"),
    ("T.parallel", "T.serial", "kind 'parallel' against 'serial'"),
    ('"p": 4', '"p": 5', r"annotations\['p'\]: 4 against 5"),
    ('"p": 4', '"q": 4', r"annotations \['p'\] against \['q'\]"),
    ('"a": 1', '"a": True', "1 against True"),
    ("T.axis.reduce(17, k)", "T.axis.spatial(17, k)", "kind 'reduce' against 'spatial'"),
    ("            T.where(i < n)\n", "", "LT .* against IntImm"),
    ("B[vi, 0] = T.float32(0.0)", "B[vi, 0] = T.float32(-0.0)", "against"),
    ('scope="local"', 'scope="shared"', "scope 'local' against 'shared'"),
    ('C[vi, vj] = A[vi, vj]', 'C[vi, vj] = A[vi, vi]', "variable vj corresponds to vj, not to vi"),
    ("C[vi, vj] = A[", "C[vi, vj] = B[", "corresponds"),
    ("n: T.int32", "n: T.int32, m: T.int32", "3 params against 4"),
    ('"tir.noalias": True, ', "", "attrs"),
]  # fmt: skip


def test_names_do_not_matter():
    a, b = parse(BASE), parse(RENAMED)
    assert a.script() != b.script()
    assert structural_equal(a, b) and structural_equal(b, a)
    assert structural_hash(a) == structural_hash(b)
    assert workload_key(a) == workload_key(b)


@pytest.mark.parametrize(("old", "new", "message"), CHANGES, ids=[c[1] or "removed" for c in CHANGES])
def test_one_difference_is_found_and_said(old, new, message):
    a = parse(BASE)
    assert old in BASE
    b = parse(BASE.replace(old, new, 1))
    assert not structural_equal(a, b) and not structural_equal(b, a)
    assert structural_hash(a) != structural_hash(b)
    assert workload_key(a) != workload_key(b)
    with pytest.raises(AssertionError, match=message):
        assert_structural_equal(a, b)


def test_the_difference_is_marked_in_both_texts():
    a, b = parse(BASE), parse(BASE.replace("2.0", "3.0"))
    with pytest.raises(AssertionError) as info:
        assert_structural_equal(a, b)
    text = str(info.value)
    left, right = text.split("--- right")
    for side, value in ((left, "2.0"), (right, "3.0")):
        lines = side.splitlines()
        at = next(k for k, line in enumerate(lines) if line.endswith("differs here"))
        assert value in lines[at - 1]


def test_block_names_matter_to_the_key_of_a_program_alone():
    a, b = parse(BASE), parse(BASE.replace('T.block("B")', 'T.block("sum")'))
    assert structural_equal(a, b) and structural_hash(a) == structural_hash(b)
    assert workload_key(a) == workload_key(b)
    assert program_key(a) != program_key(b)


def test_free_variables():
    x, y = Var("x"), Var("y")
    assert structural_equal(Add(x, x), Add(x, x))
    assert not structural_equal(Add(x, x), Add(y, y))
    assert structural_equal(Add(x, x), Add(y, y), map_free_vars=True)
    assert not structural_equal(Add(x, x), Add(x, y), map_free_vars=True)
    assert not structural_equal(Add(x, y), Add(x, x), map_free_vars=True)
    assert not structural_equal(Add(x, x), Add(Var("z", "int64"), Var("z", "int64")), map_free_vars=True)
    a, b = decl_buffer((4,), name="a"), decl_buffer((4,), name="b")
    assert structural_equal(BufferLoad(a, (x,)), BufferLoad(b, (y,)), map_free_vars=True)
    assert not structural_equal(BufferLoad(a, (x,)), BufferLoad(decl_buffer((5,)), (y,)), map_free_vars=True)


def test_constants():
    assert not structural_equal(IntImm(1), IntImm(1, "int64"))
    assert not structural_equal(FloatImm(0.0), FloatImm(-0.0))
    assert structural_equal(FloatImm(float("nan")), FloatImm(float("nan")))
    assert not structural_equal(IntImm(1), FloatImm(1.0))


def test_attributes_as_nodes_or_python_values():
    a = parse(BASE)
    b = a.with_attrs({"tir.noalias": IntImm(1, "bool"), "k": (IntImm(1), "x")})
    assert structural_equal(a, b) and structural_hash(a) == structural_hash(b) and workload_key(a) == workload_key(b)


def test_a_loop_variable_that_is_used_twice():
    i, j = Var("i"), Var("j")

    def two(first, second):
        from tilewright.tir import Evaluate, seq

        loops = [For(v, IntImm(0), IntImm(4), "serial", Evaluate(Add(v, IntImm(1)))) for v in (first, second)]
        return seq(*loops)

    assert structural_equal(two(i, i), two(i, j)) and structural_equal(two(i, j), two(i, i))


def test_canonical_text_parses_back_equal(program):
    text = canonical_text(program)
    assert_structural_equal(program, parse(text))
    assert canonical_text(parse(text)) == text


def test_corpus_programs_differ_from_one_another(corpus):
    keys = {workload_key(p) for p in corpus.PROGRAMS.values()}
    assert len(keys) == len(corpus.PROGRAMS)


def test_the_key_is_the_same_in_every_process(corpus):
    program = (
        "import sys\nfrom tilewright.tir import parse, structural_hash, workload_key\n"
        "f = parse(sys.stdin.read())\nprint(workload_key(f), structural_hash(f))"
    )
    func = corpus.PROGRAMS["conv2d"]
    out = subprocess.run(
        [sys.executable, "-P", "-c", program] if sys.version_info >= (3, 11) else [sys.executable, "-I", "-c", program],
        input=func.script(), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert out.split() == [workload_key(func), str(structural_hash(func))]


def test_the_key_of_a_known_program():
    func = parse("@T.prim_func\ndef f(A: T.Buffer((16,), 'float32')):\n    for i in range(16):\n        A[i] = 0.0\n")
    assert canonical_text(func) == (
        "@T.prim_func(private=True)\n"
        'def main(b0: T.Buffer((16,), "float32")):\n'
        "    for v0 in range(16):\n"
        "        b0[v0] = T.float32(0.0)"
    )


def test_keys_of_values_are_equal_for_expressions_that_are_the_same():
    i, j = Var("i"), Var("i")
    A = Buffer("A", (IntImm(8),))
    pure, effect = (Call(op, (i,), "int32") for op in ("tir.bitwise_not", "tir.call_extern"))
    makers = [
        lambda: i, lambda: j, lambda: i + 1, lambda: i * 2 + j, lambda: j * 2 + i, lambda: BufferLoad(A, (i,)),
        lambda: BufferLoad(A, (j,)), lambda: FloatImm(0.0), lambda: FloatImm(-0.0), lambda: FloatImm(float("nan")),
        lambda: Cast("int64", i), lambda: Cast("int8", i), lambda: Call(pure.op, (i,), "int32"), lambda: pure,
        lambda: Call(effect.op, (i,), "int32"), lambda: effect, lambda: Ramp(i, IntImm(1), 4), lambda: Ramp(i, IntImm(1), 8),
        lambda: IntImm(1), lambda: IntImm(1, "int64"), lambda: IntImm(1, "bool"), lambda: Let(i, j, i), lambda: Select(i < j, i, j),
    ]  # fmt: skip
    for make in makers:
        for other in makers:
            a, b = make(), other()
            if not isinstance(a, Let):
                assert same(a, b) == bool(value_key(a) == value_key(b)), (a, b)
