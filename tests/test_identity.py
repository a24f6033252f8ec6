"""Nothing is told apart by its printed text: two variables, buffers and axes may have one name."""

import ast
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.schedule.index_map import IndexMap
from tilewright.tir import Buffer, Var, assert_structural_equal, parse
from tilewright.tir.expr import same
from tilewright.tir.interpret import interpret
from tilewright.tir.walk import blocks_of

from .fuzz.one_name import one_name

ROOT = Path(tilewright.__file__).parent
LAYERS = ("tir", "schedule", "codegen", "gpu", "circuits", "mlir", "te", "tuner")
TEXTS = {"str", "repr", "script"}
PLAIN = {
    "tir/difference.py",  # words of an error
    "tir/interpret/interpret_stmt.py",  # words of an error
    "tir/arith/normal_form/forms.py",  # a fixed order of two keys that are made of numbers
    "tir/expr/dtype.py",
    "tir/parser/parser_base.py",  # names of arguments
    "codegen/machine/target.py",  # a target is its text
    "codegen/llvm/jit.py",
}


def texts(node):
    """Whether an expression of Python is ``str(x)``, ``repr(x)`` or ``x.script()``."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    return name in TEXTS


def compared_texts(tree):
    """The lines where printed text is compared, searched, or used as a key."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            found = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            found = [node.slice]
        elif isinstance(node, (ast.DictComp, ast.SetComp)):
            if ".items()" in ast.unparse(node.generators[0].iter):
                continue  # the keys of annotations and attributes are texts
            found = [node.key if isinstance(node, ast.DictComp) else node.elt]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("add", "setdefault", "get", "index"):
            found = node.args[:1]
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "key":
            found = [node.value]
        else:
            continue
        parts = [p for f in found for p in (f.elts if isinstance(f, ast.Tuple) else [f])]
        if any(texts(p) for p in parts):
            yield node.lineno


def test_the_search_finds_each_way_to_write_it():
    wrong = ("str(a) == str(b)", "x = t[repr(a)]", "{str(e): e for e in es}", "seen.add(str(e))", "key = (b, str(e))")
    for line in wrong:
        assert list(compared_texts(ast.parse(line))) == [1]
    assert not list(compared_texts(ast.parse("print(str(a)); a is b")))


def test_no_text_of_an_expression_is_compared():
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for layer in LAYERS
        for path in sorted((ROOT / layer).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in PLAIN
        for line in compared_texts(ast.parse(path.read_text()))
    ]
    assert found == []


PLAIN_COPY = """
@T.prim_func
def main(A: T.Buffer((7, 14)), C: T.Buffer((7, 14))):
    for i, j in T.grid(7, 14):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2)
"""


def test_reindex_cache_read_of_two_axes_of_one_name():
    with one_name():
        sch = Schedule(parse(PLAIN_COPY))
        with pytest.raises(ScheduleError, match="may meet"):
            sch.reindex_cache_read("C", 0, "local", lambda i, j: (i, j // 2))
        sch.reindex_cache_read("C", 0, "local", lambda i, j: (j // 2, i, j % 2))
    a, c = np.arange(98, dtype="float32").reshape(7, 14), np.zeros((7, 14), "float32")
    interpret(sch.func, a, c, check_regions=True)
    np.testing.assert_array_equal(c, a * 2)


def test_extent_of_a_region_between_two_variables_of_one_name():
    A, i, j = Buffer("A", (te.const(16),)), Var("v"), Var("v")
    extent = A[i * 4 : j * 4 + 4].region[0].extent
    assert not same(extent, te.const(4))
    assert int(A[i * 4 : i * 4 + 4].region[0].extent) == 4


def test_index_map_of_two_variables_of_one_name():
    i, j = Var("v"), Var("v")
    text = IndexMap((i, j), (j // 4, i, j % 4)).as_text()
    assert text == "lambda v, v_1: (v_1 // 4, v, v_1 % 4)"
    again = IndexMap.from_text(text)
    assert_structural_equal(list(again.map_indices([i, j])), [j // 4, i, j % 4])


def test_index_map_of_two_sums_that_read_alike():
    """``(a * 4 + b) // 8`` and ``(b * 4 + a) % 8``, both variables called ``v``, are no digits of one sum."""
    a, b = Var("v"), Var("v")
    there = IndexMap((a, b), ((a * 4 + b) // 8, (b * 4 + a) % 8))
    with pytest.raises(ScheduleError):
        there.inverse((4, 4), (Var("x"), Var("y")))


def test_two_buffers_of_one_name_in_a_block():
    """A name that two buffers of the block have is no answer to "which buffer?"; a Buffer and a number are."""
    with one_name("X", buffers=True):
        func = parse(PLAIN_COPY)
    before = Schedule(func)
    with pytest.raises(ScheduleError, match="touches 2 buffers named 'X'"):
        before.transform_layout("C", "X", lambda i, j: (j, i))
    for buffer in (func.buffers[1], ("write", 0)):
        sch = Schedule(func)
        sch.transform_layout("C", buffer, lambda i, j: (j, i))
        assert [[int(e) for e in b.shape] for b in sch.func.buffers] == [[7, 14], [14, 7]]
        again = Schedule(func)
        sch.trace.apply_to_schedule(again)
        assert_structural_equal(again.func, sch.func)


def test_two_inputs_of_one_name_in_a_classic_schedule():
    A, B = te.placeholder((7,), name="A"), te.placeholder((7,), name="A")
    C = te.compute((7,), lambda i: A[i] - B[i], name="C")
    s = te.create_schedule(C.op)
    s.cache_read(B, "local", [C])
    func = s.to_schedule([A, B, C]).func
    a, b, c = np.arange(7, dtype="float32"), np.full(7, 2, "float32"), np.zeros(7, "float32")
    interpret(func, a, b, c)
    np.testing.assert_array_equal(c, a - b)
    copy = next(r.block for r in blocks_of(func) if r.block.name_hint == "A_1_local")
    assert copy.reads[0].buffer is func.buffers[1]
