"""Spellings of TVM's versions that say something about memory, pointers and names: what each means."""

import re

import numpy as np
import pytest

from tilewright.tir import assert_structural_equal, interpret, parse, verify, workload_key
from tilewright.tir.parser import ParseError

HEAD = "@T.prim_func\ndef f(A: T.Buffer((17,), 'int32'), B: T.Buffer((17,), 'int32')):\n"

PAIRS = {
    "allocate": (
        "p = T.allocate([17], 'int32', 'global')\nC = T.decl_buffer((17,), 'int32', data=p)\nC[1] = A[1]\nB[1] = C[1]",
        "C = T.decl_buffer((17,), 'int32')\nC[1] = A[1]\nB[1] = C[1]",
    ),
    "with_allocate": (
        "with T.allocate([17], 'int32', '') as p:\n    C = T.Buffer((17,), 'int32', data=p)\n    C[0] = A[0]\n    B[0] = C[0]",
        "p = T.allocate([17], 'int32')\nC = T.Buffer((17,), 'int32', data=p)\nC[0] = A[0]\nB[0] = C[0]",
    ),
    "with_alloc_buffer": (
        "with T.alloc_buffer((17,), 'int32', scope='local') as C:\n    C[0] = A[0]\n    B[0] = C[0]",
        "C = T.decl_buffer((17,), 'int32', scope='local')\nC[0] = A[0]\nB[0] = C[0]",
    ),
    "view": ("C = A.view(1, 17)\nB[0] = C[0, 3]", "C = T.decl_buffer((1, 17), 'int32', data=A.data)\nB[0] = C[0, 3]"),
    "let": ("for i in range(17):\n    x: T.let = i + 1\n    B[i] = x", "for i in range(17):\n    x: T.int32 = i + 1\n    B[i] = x"),
    "let_of": ("x: T.let[T.int32] = A[0]\nB[0] = x", "x: T.int32 = A[0]\nB[0] = x"),
    "local_scalar": ("x = T.local_scalar(T.int32)\nx = A[0]\nB[0] = x", "x: T.int32 = A[0]\nB[0] = x"),
    "bind": ("x = T.int32()\nT.Bind(A[0], var=x)\nB[0] = x", "x: T.int32 = A[0]\nB[0] = x"),
    "attr": ("with T.attr({'pragma_a': 1, 'pragma_b': 2}):\n    B[0] = A[0]",
             "T.attr(0, 'pragma_a', 1)\nT.attr(0, 'pragma_b', 2)\nB[0] = A[0]"),
    "inline": ("@T.inline\ndef one(at):\n    B[at] = A[at]\none(3)", "B[3] = A[3]"),
    "short": ("B[0] = T.i32(3)\nB[1] = T.Cast('int32', T.f32(A[0]))", "B[0] = 3\nB[1] = T.Cast('int32', T.float32(A[0]))"),
    "steps": ("for i in range(2, 17, 4):\n    B[i] = A[i]", "for i in range(4):\n    B[2 + i * 4] = A[2 + i * 4]"),
    "step": ("for i in T.parallel(0, 17, step=16):\n    B[i] = A[i]", "for i in T.parallel(2):\n    B[i * 16] = A[i * 16]"),
    "pragma": (
        "for i in T.unroll(17, unroll=2):\n    B[i] = A[i]",
        "for i in T.unroll(17, annotations={'pragma_unroll': 2}):\n    B[i] = A[i]",
    ),
    "assume": ("T.assume(A[0] == 5)\nB[0] = A[0]", "T.evaluate(T.call('tir.assume', A[0] == 5, dtype='bool'))\nB[0] = A[0]"),
    "minus": ("for i in range(17):\n    B[i] = -A[i]", "for i in range(17):\n    B[i] = A[i] * -1"),
    "reinterpret": ("B[0] = T.reinterpret(T.int32, T.Cast('float32', A[0]))", "B[0] = T.reinterpret('int32', T.Cast('float32', A[0]))"),
    "match_type": ("with T.block():\n    T.reads(A[2:4])\n    T.writes(B[0])\n    C = T.match_buffer(A[2:4], (2,), 'int32', type='auto')\n    B[0] = C[0]",
                   "with T.block():\n    T.reads(A[2:4])\n    T.writes(B[0])\n    C = T.match_buffer(A[2:4], (2,), 'int32')\n    B[0] = C[0]"),
}  # fmt: skip


def program(body: str):
    return parse(HEAD + "".join(f"    {line}\n" for line in body.splitlines()))


@pytest.mark.parametrize("name", PAIRS)
def test_both_mean_the_same(name):
    spelled, plain = map(program, PAIRS[name])
    assert_structural_equal(spelled, plain)
    assert_structural_equal(parse(spelled.script()), spelled)


@pytest.mark.parametrize("name", ["allocate", "with_allocate", "view", "steps", "minus", "local_scalar"])
def test_both_compute_the_same(name):
    results = []
    for func in map(program, PAIRS[name]):
        B = np.full(17, -5, "int32")
        interpret(func, np.arange(17, dtype="int32") * 3 - 7, B)
        results.append(B)
    assert (results[0] == results[1]).all() and (results[0] != -5).any()


READ = {
    "pointer": "@T.prim_func\ndef f(a: T.handle('int8')):\n    A = T.Buffer((7,), 'int8', data=a)\n    A[6] = T.int8(1)",
    "ptr": "@T.prim_func\ndef f(a: T.ptr('int8')):\n    A = T.decl_buffer((7,), 'int8', data=a)\n    A[6] = T.int8(1)",
    "local": "@T.prim_func\ndef f():\n    p = T.handle('int8', 'shared')\n    A = T.Buffer((7,), 'int8', data=p, scope='shared')\n    A[6] = T.int8(1)",
    "view_of_local": HEAD + "    C = T.decl_buffer((4,), 'int32')\n    D = T.Buffer((2, 2), 'int32', data=C.data)\n    D[1, 1] = 3\n    B[0] = C[3]",
    "view_of_matched": "@T.prim_func\ndef f(a: T.handle):\n    A = T.match_buffer(a, (4,), strides=(2,))\n    B = T.Buffer((2, 2), data=A.data)\n    B[1, 1] = 3.0",
    "view_in_elif": HEAD + "    C = T.decl_buffer((4,), 'int32')\n    D = T.Buffer((2, 2), 'int32', data=C.data)\n    if A[0] > 3:\n        B[0] = 1\n    elif D[0, 1] > 2:\n        B[0] = 2\n    else:\n        B[0] = 3",
    "reducer": HEAD + "    with T.attr(T.comm_reducer(lambda x, y: T.max(x, y), [T.int32(-9)]), 'reduce_scope', 0):\n        B[0] = A[0]",
    "target": HEAD + "    T.func_attr({'target': T.target({'kind': 'llvm', 'keys': ['cpu']})})\n    B[0] = A[0]",
    "array": HEAD + "    T.call_packed('f', T.tvm_stack_make_array(A.data, T.tvm_stack_make_shape(17), 0, 1, 0, 0))",
    "shape_words": "@T.prim_func\ndef f(A: T.Buffer(('n * T.int64(2)',), 'int8'), n: T.int64):\n    A[n] = T.int8(1)",
    "infos": "@I.ir_module\nclass Module:\n    I.module_global_infos({'vdevice': [1]})\n    @T.prim_func\n    def f():\n        T.evaluate(0)",
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_prints_what_it_read(name):
    read = parse(READ[name])
    assert_structural_equal(parse(read.script()), read)


def test_views_compute_on_the_memory_they_look_at():
    B = np.zeros(17, "int32")
    interpret(parse(READ["view_of_local"]), np.zeros(17, "int32"), B)
    assert B[0] == 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x: T.int32 = 0\nfor i in range(17):\n    x = x + A[i]\nB[0] = x", "`x` is a name for a value, which a loop"),
        ("for i in range(17, 1, -1):\n    B[i] = 1", "the step of a loop must be positive"),
        ("def g(i):\n    B[i] = 1", "a function inside a function is a macro"),
        ("T.attr(T.comm_reducer(lambda x: x, [T.int32(0)]), 'a', 0)", "1 values take 2 names, not 1"),
        ("C = A.view(1, 17, like=3)", "view has no argument `like`"),
        ("T.attr(T.comm_reducer(1, [0]), 'a', 0)", "write T.comm_reducer"),
    ],
)
def test_refused(body, message):
    with pytest.raises(ParseError, match=message) as info:
        program(body)
    assert "--> <text>:" in str(info.value)


def test_a_name_may_be_given_again_on_the_same_level():
    B = np.zeros(17, "int32")
    interpret(
        program("x: T.int32 = A[0]\nx = x + 4\nB[0] = x\nfor i in range(3):\n    y = i\n    B[i] = B[i] + y"), B + 1, B
    )
    assert list(B[:3]) == [5, 1, 2]


def test_unroll_false_is_an_annotation_of_its_own():
    func = program("for i in T.serial(17, unroll=False):\n    B[i] = A[i]")
    assert func.body.annotations == {"disable_unroll": True}
    with pytest.raises(ParseError, match="a loop takes"):
        program("for i in T.serial(17, unrol=False):\n    B[i] = A[i]")


def test_floats_written_as_texts():
    func = parse(
        "@T.prim_func\ndef f(A: T.Buffer((3,), 'float32')):\n    A[0] = '-inf'\n    A[1] = 'nan'\n    A[2] = 'inf'"
    )
    A = np.zeros(3, "float32")
    interpret(func, A)
    assert A[0] == -np.inf and np.isnan(A[1]) and A[2] == np.inf
    with pytest.raises(ParseError, match="does not fit int32"):
        program("B[0] = 'inf'")


@pytest.mark.parametrize("owner", ["A", "C"])
@pytest.mark.parametrize("shapes", [("(17,)", "(17,)"), ("(1, 17)", "(17, 1)")])
def test_views_in_two_branches(owner, shapes):
    """Two views of one memory that have one name, each in a branch of its own."""
    one, two = shapes
    first, second = [shape.replace("17", "0").replace("1", "0") for shape in shapes]
    func = program(
        f"""C = T.decl_buffer((17,), 'int32')
C[0] = A[0]
if A[1] > 0:
    y = T.decl_buffer({one}, 'int32', data={owner}.data)
    y[{first}] = 5
else:
    y = T.decl_buffer({two}, 'int32', data={owner}.data)
    y[{second}] = 7
B[0] = {owner}[0]"""
    )
    verify(func)
    again = parse(func.script())
    assert_structural_equal(again, func)
    assert again.script() == func.script()
    a, b = np.zeros(17, "int32"), np.zeros(17, "int32")
    interpret(again, a, b)
    assert b[0] == 7


def test_todays_words_of_blocks(program, monkeypatch):
    """``words="sblock"`` and ``TILEWRIGHT_SCRIPT`` print what TVM 0.27 reads; keys do not depend on them."""
    text, key = program.script(), workload_key(program)
    today = program.script(words="sblock")
    assert not re.search(r"T\.(block|block_attr|alloc_buffer)\(", today)
    assert re.sub(r"T\.sblock_?(attr|alloc_buffer)?\(", _older, today) == text
    again = parse(today)
    assert_structural_equal(again, program)
    assert again.script(words="sblock") == today
    monkeypatch.setenv("TILEWRIGHT_SCRIPT", "sblock")
    assert program.script() == today and str(program) == today
    assert program.script(words="block") == text
    assert workload_key(program) == key
    monkeypatch.setenv("TILEWRIGHT_SCRIPT", "tblock")
    with pytest.raises(ValueError, match="TILEWRIGHT_SCRIPT is 'tblock'; there are 'block' and 'sblock'"):
        program.script()
    monkeypatch.delenv("TILEWRIGHT_SCRIPT")


def _older(match):
    return {None: "T.block(", "attr": "T.block_attr(", "alloc_buffer": "T.alloc_buffer("}[match[1]]
