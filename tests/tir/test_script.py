"""``@T.prim_func`` and ``@I.ir_module`` in Python programs, and ``T`` outside of them."""

import inspect

import numpy as np
import pytest

from tilewright.tir import (
    Add,
    Call,
    Cast,
    FloatImm,
    IntImm,
    IRModule,
    ParseError,
    PrimFunc,
    Select,
    Var,
    assert_structural_equal,
)
from tilewright.tir import script as T
from tilewright.tir.script import ir as I

SIZE = 13


@T.prim_func
def doubled(A: T.Buffer((SIZE,), "float32"), B: T.Buffer((SIZE,), "float32")):
    """Twice."""
    for i in T.serial(SIZE):
        with T.block("B"):
            vi = T.axis.spatial(SIZE, i)
            B[vi] = A[vi] * 2.0


def test_globals_are_captured():
    assert isinstance(doubled, PrimFunc) and doubled.name == "doubled"
    assert [e.value for e in doubled.buffers[0].shape] == [SIZE]


def make(n, dtype):
    @T.prim_func
    def copy(A: T.Buffer((n,), dtype), B: T.Buffer((n,), dtype)):
        for i in range(n):
            B[i] = A[i]

    return copy


def make_private(n):
    @T.prim_func(private=True)
    def only_in_the_annotation(A: T.Buffer((n, 4), "int8")):
        A[0, 0] = 1

    return only_in_the_annotation


def test_closures_are_captured():
    assert_structural_equal(make(7, "int8"), make(7, "int8"))
    assert make(16, "float32").buffers[1].dtype == "float32"
    func = make_private(17)
    assert func.buffers[0].shape[0].value == 17 and "global_symbol" not in func.attrs


def test_helpers_are_called():
    def index(i, j):
        return i * 4 + j

    @T.prim_func
    def flat(A: T.Buffer((16,), "int32")):
        for i, j in T.grid(4, 4):
            A[index(i, j)] = index(j, i)

    assert "A[i * 4 + j] = j * 4 + i" in flat.script()


def test_numpy_constants():
    n = np.int64(16)

    @T.prim_func
    def f(A: T.Buffer((n,), "float32")):
        A[0] = np.float32(0.5)

    assert f.body.value.value == 0.5


def test_modules():
    n = 7

    @I.ir_module
    class Module:
        I.module_attrs({"note": "x"})

        @T.prim_func
        def one(A: T.Buffer((n,), "int8")):
            A[0] = 1

        @T.prim_func
        def two(A: T.Buffer((n,), "int8")):
            A[0] = 2

    assert isinstance(Module, IRModule) and list(Module) == ["one", "two"]
    assert Module.attrs == {"note": "x"} and Module["two"].name == "two"


def test_a_module_of_undecorated_functions_is_refused():
    with pytest.raises(TypeError, match="`f` in the module `M` lacks the decorator @T.prim_func"):

        @I.ir_module
        class M:
            def f(self):
                pass


def test_errors_name_the_line_in_the_file():
    line = inspect.currentframe().f_lineno
    with pytest.raises(ParseError) as info:

        @T.prim_func
        def f(A: T.Buffer((4,), "int8")):
            A[0] = nobody  # noqa: F821

    assert info.value.line == line + 5
    assert f"{__file__}:{line + 5}:" in str(info.value)


def test_functions_without_source_are_refused():
    scope = {"T": T}
    with pytest.raises(ValueError, match="the source of `f` cannot be read"):
        exec("@T.prim_func\ndef f():\n    pass", scope)
    with pytest.raises(TypeError, match="stands before a function"):
        T.prim_func(3)


def test_words_explain_themselves_outside_of_functions():
    with pytest.raises(TypeError, match="T.grid has a meaning only inside a function decorated with @T.prim_func"):
        T.grid(3)
    with pytest.raises(TypeError, match="T.axis.spatial has a meaning only inside"):
        T.axis.spatial(3, 4)
    with pytest.raises(AttributeError, match="no word 'nonsense'"):
        getattr(T, "nonsense")  # noqa: B009
    assert "serial" in (T.serial.__doc__ or "")


def test_words_that_make_expressions():
    x = Var("x", "float32")
    assert isinstance(T.exp(x), Call) and T.exp(x).op == "tir.exp"
    assert isinstance(T.float32(3), FloatImm) and isinstance(T.int64(3), IntImm)
    assert T.float32("inf").value == float("inf") and T.bool(True).dtype == "bool"
    assert isinstance(T.int8(x), Cast) and isinstance(T.Add(1, 2), Add) and T.max(1, 2).value == 2
    assert isinstance(T.Select(x > 0.0, x, 1.0), Select)
    assert T.bfloat16(1).dtype == "bfloat16" and T.float32x4(1.0).dtype == "float32x4"


def test_dir_lists_the_words():
    names = dir(T)
    assert {"prim_func", "grid", "exp", "float32", "block", "sblock", "Buffer", "axis"} <= set(names)
    for name in names:
        assert getattr(T, name) is not None


def test_the_older_spelling_of_buffers():
    @T.prim_func
    def f(A: T.Buffer[(4, 4), "float32"]):  # noqa: UP037, F821
        A[0, 0] = 1.0

    assert f.buffers[0].ndim == 2
