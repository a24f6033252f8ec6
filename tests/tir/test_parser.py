"""What the parser accepts, what it refuses, and where it points."""

import contextlib
import gc
import textwrap

import pytest

from tilewright.tir import (
    AssertStmt,
    Block,
    BlockRealize,
    BufferStore,
    Cast,
    For,
    IfThenElse,
    IntImm,
    LetStmt,
    ParseError,
    SeqStmt,
    Var,
    assert_structural_equal,
    parse,
    structural_equal,
)  # fmt: skip
from tilewright.tir.walk import blocks_of, pre_order


def func(body, params='A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")', **extra):
    text = f"@T.prim_func\ndef main({params}):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return parse(text, extra or None)


def same(a, b, **extra):
    assert_structural_equal(func(a, **extra), func(b, **extra))


def block_named(f, name):
    return next(r for r in blocks_of(f) if r.block.name_hint == name)


# Spellings


def test_both_spellings_of_blocks():
    old = """
        D = T.alloc_buffer((16,))
        for i in T.serial(16):
            with T.block("D"):
                vi = T.axis.spatial(16, i)
                T.block_attr({"a": 1})
                D[vi] = A[vi, 0]
    """
    new = old.replace("T.block(", "T.sblock(").replace("alloc_buffer", "sblock_alloc_buffer")
    same(old, new.replace("block_attr", "sblock_attr"))


@pytest.mark.parametrize(
    "head",
    ["@T.prim_func", "@T.prim_func(s_tir=True)", "@T.prim_func()", "@tvm.script.tir.prim_func", "@prim_func"],
)
def test_decorators(head):
    text = f"{head}\ndef main(a: T.int32):\n    T.evaluate(a)\n"
    assert parse(text).attrs == {"global_symbol": "main"}


@pytest.mark.parametrize("head", ["@I.ir_module", "@tvm.script.ir_module", "@ir_module"])
def test_modules(head):
    module = parse(f"{head}\nclass M:\n    @T.prim_func\n    def f(a: T.int32):\n        T.evaluate(a)\n")
    assert list(module.functions) == ["f"] and module["f"].name == "f"


def test_imports_name_the_vocabulary():
    f = parse("from tilewright.tir import script as S\n@S.prim_func\ndef f(n: S.int32):\n    S.evaluate(n + 1)\n")
    assert str(f.body) == "T.evaluate(n + 1)"


def test_private_functions_have_no_symbol():
    assert "global_symbol" not in parse("@T.prim_func(private=True)\ndef f():\n    T.evaluate(0)").attrs


def test_axis_shorthands():
    same(
        """
        for i, k in T.grid(16, 16):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                B[vi, vk] = A[vi, vk]
        """,
        """
        for i in range(16):
            for k in T.serial(0, 16):
                with T.block("B"):
                    vi = T.axis.S(16, i)
                    vk = T.axis.R((0, 16), k)
                    T.where(True)
                    T.reads([A[vi, vk]])
                    T.writes([B[vi, vk]])
                    B[vi, vk] = A[vi, vk]
        """,
    )


def test_parameters_by_match_buffer_or_annotation():
    short = parse('@T.prim_func\ndef f(A: T.Buffer((4,), "float32"), B: T.Buffer[4, "int8"]):\n    A[0] = 1.0\n')
    long = parse(
        "@T.prim_func\ndef f(a: T.handle, b: T.handle):\n    A = T.match_buffer(a, [4])\n"
        '    B = T.match_buffer(b, 4, dtype="int8")\n    A[0] = 1.0\n'
    )
    assert_structural_equal(short, long)


def test_constants_take_the_other_operands_type():
    f = func("A[0, 0] = A[1, 1] + 1\nn = T.int64(3) + 2\nA[0, n] = 2")
    first, let = f.body.seq
    assert first.value.b.dtype == "float32"
    assert isinstance(let, LetStmt) and let.value.dtype == "int64" and let.value.value == 5


def test_stored_values_are_converted():
    f = func("for i in range(16):\n    A[i, 0] = i\n    A[i, 0:4] = 1.5")
    one, four = f.body.body.seq
    assert isinstance(one.value, Cast) and one.value.dtype == "float32"
    assert four.value.dtype == "float32x4"


def test_augmented_assignment_and_chained_comparison():
    same("A[0, 1] += B[0, 1] * 2.0", "A[0, 1] = A[0, 1] + B[0, 1] * 2.0")
    same(
        "for i in range(16):\n    if 1 <= i < 5:\n        A[i, 0] = 0.0",
        "for i in range(16):\n    if 1 <= i and i < 5:\n        A[i, 0] = 0.0",
    )


def test_static_conditions_choose_at_once():
    f = func("if FAST:\n    A[0, 0] = 1.0\nelse:\n    A[0, 0] = 2.0", FAST=False)
    assert isinstance(f.body, BufferStore) and f.body.value.value == 2.0


def test_scopes_of_bindings():
    f = func("A[0, 0] = 1.0\nx = A[0, 0]\ny: T.float32 = x\nassert x > 0.0, 'm'\nB[0, 0] = x + y")
    store, let = f.body.seq
    assert isinstance(let, LetStmt) and isinstance(let.body, LetStmt) and isinstance(let.body.body, AssertStmt)
    same("with T.LetStmt(A[0, 0]) as x:\n    B[0, 0] = x", "x = A[0, 0]\nB[0, 0] = x")


def test_meta_programming():
    def where(i, j):
        return i * 2, j

    same("x, y = where(3, 4)\nA[x, y] = SIZES[1]", "x = 6\ny = 4\nA[x, y] = 7.0", where=where, SIZES=[5.0, 7.0])
    same("x = T.meta_var(A[0, 0])\nB[0, 0] = x + x", "B[0, 0] = A[0, 0] + A[0, 0]")
    same("B[0, 0] = sum([A[i, 0] for i in range(3)])", "B[0, 0] = A[0, 0] + A[1, 0] + A[2, 0]")
    same("A[IDX[0], IDX[1]] = 1.0", "A[3, 4] = 1.0", IDX=(3, 4))


def test_regions_are_found_when_left_out():
    f = func(
        """
        for i, j, k in T.grid(16, 4, 16):
            with T.block("B"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    B[vi, vj] = 0.0
                for u in range(4):
                    B[vi, vj] = B[vi, vj] + A[vk, vj * 4 + u]
        """
    )
    block = block_named(f, "B").block
    assert [str(r) for r in block.reads] == ["A[vk, vj * 4:vj * 4 + 4]"]
    assert [str(r) for r in block.writes] == ["B[vi, vj]"]


def test_a_root_block_is_added_around_blocks_only():
    loops = func("for i in range(16):\n    A[i, 0] = 0.0")
    assert isinstance(loops.body, For)
    blocks = func("for i in range(16):\n    with T.block('A'):\n        vi = T.axis.S(16, i)\n        A[vi, 0] = 0.0")
    assert isinstance(blocks.body, BlockRealize) and blocks.body.block.name_hint == "root"
    allocates = func("C = T.alloc_buffer((4,))\nfor i in range(4):\n    C[i] = 0.0")
    assert isinstance(allocates.body, BlockRealize) and len(allocates.body.block.alloc_buffers) == 1
    explicit = func("with T.block('root'):\n    C = T.alloc_buffer((4,))\n    for i in range(4):\n        C[i] = 0.0")
    assert structural_equal(allocates, explicit)


def test_slices_in_loads_are_vectors():
    f = func("for i in range(4):\n    A[0, i * 4:(i + 1) * 4] = B[0, 4 * i:4 * i + 8:2]")
    store = f.body.body
    assert store.indices[1].lanes == 4 and store.value.indices[1].stride.value == 2


def test_loop_kinds():
    f = func(
        "for a in T.parallel(2):\n  for b in T.vectorized(1, 3):\n    for c in T.unroll(4, annotations={'x': 1}):\n"
        "      for d in T.thread_binding(5, 'threadIdx.x'):\n        A[0, 0] = 0.0"
    )
    loops = [n for n in pre_order(f) if isinstance(n, For)]
    assert [n.kind for n in loops] == ["parallel", "vectorized", "unrolled", "thread_binding"]
    assert loops[1].min.value == 1 and loops[1].extent.value == 2
    assert loops[2].annotations == {"x": 1} and loops[3].thread_binding == "threadIdx.x"


def test_elif_chain():
    f = func("for i in range(4):\n  if i < 1:\n    A[0, 0] = 0.0\n  elif i < 2:\n    A[0, 1] = 0.0\n  else:\n    pass")
    outer = f.body.body
    assert isinstance(outer.else_case, IfThenElse) and outer.else_case.else_case is not None


def test_loop_variable_shadowing_in_a_block():
    f = func("for i in range(16):\n    with T.block('A'):\n        i = T.axis.spatial(16, i)\n        A[i, 0] = 1.0")
    block = block_named(f, "A").block
    assert block.body.indices[0] is block.iter_vars[0].var


def test_many_statements_stay_flat():
    f = func("\n".join(f"A[{i % 16}, 0] = {i}.0" for i in range(1500)))
    assert isinstance(f.body, SeqStmt) and len(f.body.seq) == 1500


def test_spellings_of_other_versions():
    same("A[0, 0] = T.exp(A[0, 0], dtype='float32')", "A[0, 0] = T.exp(A[0, 0])")
    same("A[0, 0] = T.if_then_else(A[0, 0] > 1.0, 1.0, 2.0, dtype='float32')",
         "A[0, 0] = T.if_then_else(A[0, 0] > 1.0, T.float32(1), T.float32(2))")  # fmt: skip
    same("x: T.let[T.int32] = 3\nA[x, 0] = 1.0", "x: T.int32 = 3\nA[x, 0] = 1.0")
    same("assert A[0, 0] > 0.0, ('RuntimeError', ['no', 'ne'])\nA[0, 0] = 1.0",
         "assert A[0, 0] > 0.0, 'none'\nA[0, 0] = 1.0")  # fmt: skip
    with pytest.raises(ParseError, match="the result is float32, not int8"):
        func("A[0, 0] = T.exp(A[0, 0], dtype='int8')")


def test_regions_between_loads():
    f = func(
        """
        for i in range(15):
            with T.block("B"):
                vi = T.axis.spatial(15, i)
                T.reads(P[vi:vi + 2], A[0, P[vi]:P[vi + 1]])
                T.writes(B[vi, 0])
                B[vi, 0] = 0.0
        """,
        params='P: T.Buffer((16,), "int32"), A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")',
    )
    assert structural_equal(f, parse(f.script()))
    lo, extent = (lambda r: (r.min, r.extent))(block_named(f, "B").block.reads[1].region[1])
    assert str(lo) == "P[vi]" and {str(extent)} <= {"P[vi + 1] - P[vi]"}


# Errors: what is wrong, the line, the column

ERRORS = [
    ("A[i, 0] = 1.0", "`i` is not defined here", 3, 7),
    ("A[0] = 1.0", "buffer A has 2 dimensions, indexed with 1", 3, 5),
    ("for i in T.grid(4, 4):\n    pass", "1 loop variables for 2 extents", 3, 9),
    ("for i in [1, 2]:\n    pass", "a loop runs over range, T.grid", 3, 14),
    ("for i in T.serial(1.5):\n    pass", "a loop's extent is an integer, this is float32", 3, 9),
    ("while True:\n    break", "Break has no meaning in TIR", 4, 9),
    ("vi = T.axis.spatial(16, 0)", "T.axis.spatial belongs in a block", 3, 10),
    ("T.reads(A[0, 0])", "T.reads belongs in a block", 3, 5),
    ("with T.block('x'):\n    vi = T.axis.remap('S', [A[0, 0]])", "T.axis.remap takes loop variables", 4, 32),
    ("for i in range(4):\n    with T.block('x'):\n        vi = T.axis.remap('Q', [i])", "axis kind 'Q'", 5, 31),
    ("for i in range(4):\n    with T.block('x'):\n        a, b = T.axis.remap('S', [i])", "2 axes, 1 kinds", 5, 20),
    ("with T.block('x'):\n    vi = T.axis.spatial(16)", r"write T.axis.spatial\(domain, value\)", 4, 14),
    ("with T.block('x'):\n    with T.init():\n        A[0, 0] = 0.0\n    with T.init():\n        A[0, 0] = 0.0",
     "this block has an init already", 6, 14),
    ("with T.nothing():\n    pass", "T has no word 'nothing'", 3, 10),
    ("T.grid(3)", "T.grid cannot stand here", 3, 5),
    ("A.foo(1)", "a buffer has no `foo`", 3, 5),
    ("x = A[0, 0].__class__", "`__class__` is private", 3, 9),
    ("x = A", None, None, None),
    ("A[0, 0] = A", "buffer A has no value of its own", 3, 5),
    ("if A[0, 0]:\n    pass", "a condition must be bool, this is float32", 3, 8),
    ("if A[0, 0] > 0.0 and A[0, 1]:\n    pass", "`and` takes bool, this is float32", 3, 26),
    ("x = T.int32(1)\nx = T.int8('a')", "only floating-point types take one", 4, 9),
    ("C = T.alloc_buffer((4,), 'int8')\nC[0] = A[0, 0]", "float32 does not fit int8 of C; write T.Cast", 4, 5),
    ("C = T.alloc_buffer(dtype='int8')", "the buffer's shape is missing", 3, 9),
    ("C = T.alloc_buffer((4,), shap=3)", "argument `shap` is unknown; there are shape, dtype", 3, 35),
    ("C = T.alloc_buffer((4,), 'int9')", "T has no word 'int9'", 3, 30),
    ("C = T.alloc_buffer((4, 4), strides=(1,))", "buffer C: 1 strides for 2 dimensions", 3, 9),
    ("T.func_attr([1])", "a dict with texts as keys is needed", 3, 17),
    ("A[0, 0] = 1 // 0", "division", 3, 15),
    ("A[0, 0] = T.Select(A[0, 0], 1.0, 2.0)", "select: the condition is float32, not bool", 3, 15),
    ("A[0, 0:n] = 1.0", "`n` is not defined here", 3, 12),
    ("for n in range(4):\n    A[0, 0:n] = 1.0", "a vector needs a constant number of elements", 4, 14),
    ("x = lambda: 1", "Lambda has no meaning in TIR", 3, 9),
    ("import os", "Import has no meaning in TIR", 3, 5),
    ("x = open('/etc/passwd')", "`open` is not defined here", 3, 9),
    ("x = __import__('os')", "`__import__` is not defined here", 3, 9),
    ("x = 2 ** 2 ** 20", "is too large", 3, 9),
    ("x = 'a' * 1000000000", "str and int do not support this operator", 3, 9),
    ("x = [i for i in range(10 ** 9)]", "range of 1000000000 items", 3, 21),
    ("x = [i for i in range(2.5)]", "'float' object cannot be interpreted as an integer", 3, 21),
    ("A[0, T.Ramp(0, 1, 1.5)] = 1.0", "T.Ramp takes an integer, not 1.5", 3, 10),
    ("A[0, 0:4] = T.Broadcast(1.0, 4.5)", "T.Broadcast takes an integer, not 4.5", 3, 17),
    ("x = T.Shuffle([T.Broadcast(1.0, 4)], [0.5])", "T.Shuffle takes an integer, not 0.5", 3, 9),
    ("def g():\n    pass", "a function inside a function is a macro", 3, 5),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "message", "line", "column"), ERRORS, ids=[e[0].split("\n")[-1].strip() for e in ERRORS]
)
def test_errors_point_at_the_spot(body, message, line, column):
    text = "@T.prim_func\ndef main(A: T.Buffer((16, 16), 'float32')):\n" + textwrap.indent(body, "    ") + "\n"
    if message is None:
        parse(text)
        return
    with pytest.raises(ParseError, match=message) as info:
        parse(text)
    assert (info.value.line, info.value.column) == (line, column), str(info.value)
    lines = str(info.value).splitlines()
    assert lines[1].endswith(f"<text>:{line}:{column}")
    assert lines[-1].index("^") - lines[-1].index("|") == column + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f():\n    pass", "`f` lacks the decorator @T.prim_func"),
        ("class M:\n    pass", "`M` lacks the decorator @I.ir_module"),
        ("", "there is no function here"),
        ("x = 3", "a function under @T.prim_func or a class under @I.ir_module is needed"),
        ("@T.prim_func\ndef f(:\n    pass", "not valid Python"),
        ("@T.prim_func\ndef f(a):\n    pass", "parameter `a` has no type"),
        ("@T.prim_func\ndef f(a: 3):\n    pass", "a parameter's type is"),
        ("@T.prim_func\ndef f(*a):\n    pass", "parameters are plain names with types"),
        ("@T.prim_func(fast=True)\ndef f():\n    pass", "T.prim_func has no option `fast`"),
        ("@T.prim_func\ndef f(n: T.int32):\n    A = T.match_buffer(n, (4,))", "takes a parameter of type T.handle"),
        ("@T.prim_func\ndef f(a: T.handle):\n    A = T.match_buffer(a, (4,))\n    B = T.match_buffer(a, (4,))",
         "a has a buffer already"),
    ],
)  # fmt: skip
def test_errors_of_functions(text, message):
    with pytest.raises(ParseError, match=message):
        parse(text)


# Text that somebody made to hurt


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(" * 5000 + ")" * 5000, "brackets inside one another"),
        ("x = " + "-" * 100_000 + "1", "prefix operators"),
        ("x = " + "not " * 100_000 + "1", "prefix operators"),
        ("x = " + "lambda: " * 5000 + "1", "prefix operators"),
        ("x = " + "1 + " * 100_000 + "1", "operators in one line"),
        ("x = a" + ".a" * 100_000, "operators in one line"),
        ("x = a" + "()" * 100_000, "operators in one line"),
        ("x = 1" + " if 1 else 1" * 100_000, "operators in one line"),
        ("if a:\n  pass\n" + "elif a:\n  pass\n" * 50_000, "elif in a row"),
        ("\n".join(" " * i + "if a:" for i in range(3000)) + "\n" + " " * 3000 + "pass", "indented by more than"),
        ("x = " + "(1 if 1 else " * 70 + "1" + ")" * 70, "needed"),
        ("x = 1" + " if 1 else 1" * 600, "needed|deep|Python"),
        ("x = " + "2 ** " * 1900 + "2", "needed|deep|Python"),
        ("x = a" + ".a" * 1900, "needed|deep|Python"),
        ("x = a" + "()" * 1900, "needed|deep|Python"),
        ("x" * 9_000_000, "characters"),
        ("x = '\0'", "NUL"),
        ("x = '\udc9a'", "surrogates not allowed"),
        (
            "@T.prim_func\ndef f(A: T.Buffer((4,))):\n    A[0] = T.Cast('float32; x', A[0])",
            "'float32; x' is not a data type",
        ),
        ("@T.prim_func\ndef f(A: T.Buffer((4,))):\n    A[0] = T.undef('\u00e9')", "is not a data type"),
        ("x = (" + "[" * 60 + "'" + "(" * 100 + "'" + "]" * 60 + ")", "needed"),
        ('"""' + "(" * 1000 + '"""', "there is no function"),
    ],
    ids=range(22),
)
def test_hostile_text_is_refused(text, message):
    with pytest.raises(ParseError, match=message):
        parse(text)


def test_long_lines_are_cut_around_the_spot():
    with pytest.raises(ParseError, match="`nobody` is not defined") as info:
        func("A[0, 0] = " + "A[0, 1] + " * 300 + "nobody" + " + A[0, 1]" * 300)
    last, marks = str(info.value).splitlines()[-2:]
    assert len(last) < 180
    assert last[marks.index("^") : marks.rindex("^") + 1] == "nobody"


def test_extra_vars_are_all_that_can_be_called():
    calls = []
    text = "@T.prim_func\ndef f():\n    T.evaluate(g(3))\n"
    with pytest.raises(ParseError, match="`g` is not defined"):
        parse(text)
    assert parse(text, {"g": lambda x: calls.append(x) or x + 1}).body.value.value == 4
    assert calls == [3]


def test_extra_vars_hold_sizes():
    f = parse("@T.prim_func\ndef f(A: T.Buffer((M, M + 1), 'int8')):\n    A[0, 0] = 1\n", {"M": 13})
    assert [e.value for e in f.buffers[0].shape] == [13, 14]


def test_block_init_and_realize_are_what_they_say():
    f = func("with T.block('A'):\n    vi = T.axis.spatial(16, 3)\n    T.where(vi < 4)\n    A[vi, 0] = 1.0")
    realize = block_named(f, "A")
    assert isinstance(realize.block, Block) and isinstance(realize.iter_values[0], IntImm)
    assert str(realize.predicate) == "vi < 4" and isinstance(realize.block.iter_vars[0].var, Var)


@pytest.mark.parametrize("text", ["@T.prim_func\ndef f():\n    T.evaluate(0)\n", "nonsense("])
def test_collection_of_garbage_goes_on_after_parsing(text):
    assert gc.isenabled()
    with contextlib.suppress(ParseError):
        parse(text)
    assert gc.isenabled()
    gc.disable()
    with contextlib.suppress(ParseError):
        parse(text)
    stays_off = not gc.isenabled()
    gc.enable()
    assert stays_off


@pytest.mark.parametrize("value", [(1 << 64) - 1, 1 << 63, 0])
def test_constants_of_uint64(value):
    f = func(f"for i in range(16):\n    W[i] = T.uint64({value})", params='W: T.Buffer((16,), "uint64")')
    assert parse(f.script()).script() == f.script()
    assert f"T.uint64({value})" in f.script()


def test_constants_beyond_their_type_are_refused():
    with pytest.raises(ParseError, match="does not fit"):
        func(f"W[0] = T.uint64({1 << 64})", params='W: T.Buffer((16,), "uint64")')
