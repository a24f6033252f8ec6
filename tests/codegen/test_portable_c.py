"""Strict C: no extension, no warning, and the results of the interpreter; also vectors that a program writes out."""

import ctypes
import dataclasses
import shutil
import subprocess

import numpy as np
import pytest

from tilewright.codegen import Target, compile, lower
from tilewright.codegen.c import emit_c
from tilewright.codegen.machine.target_text import TargetError
from tilewright.codegen.runtime.arguments import Arguments, c_types
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

from .test_c import CASES, arguments

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
NAMES = {f"f{n}": case for n, case in enumerate(sorted({*sorted(CASES)[::2], "matmul", "half", "bfloat16"}))}


def library_of(lowered, folder, *flags):
    """A library of functions; a warning of the compiler fails the test."""
    text = emit_c(lowered)
    (folder / "k.c").write_text(text)
    command = [
        "gcc",
        "-O1",
        *STRICT,
        "-shared",
        "-fPIC",
        *flags,
        "-o",
        str(folder / "k.so"),
        str(folder / "k.c"),
        "-lm",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]
    return ctypes.CDLL(str(folder / "k.so")), text


def call(library, lowered, args):
    values, alive = Arguments(lowered.name, lowered.params).prepare(args)
    function = getattr(library, lowered.name)
    function.argtypes = c_types(lowered.params)
    assert function(*values) == 0


def check_all(lowered, library):
    for one in lowered:
        text, scalars = CASES[NAMES[one.name]]
        func = parse(text)
        want, got = arguments(func, scalars), arguments(func, scalars)
        interpret(func, *want)
        call(library, one, got)
        for a, b in zip(want, got, strict=True):
            if isinstance(a, np.ndarray):
                np.testing.assert_allclose(b, a, rtol=1e-12 if a.dtype == np.float64 else 2e-6, err_msg=NAMES[one.name])


@pytest.mark.parametrize("target", ["c", "c -openmp -num-cores=2"])
def test_loops(target, tmp_path):
    lowered = [lower(parse(CASES[case][0]), Target(target), name) for name, case in NAMES.items()]
    library, text = library_of(lowered, tmp_path, *(["-fopenmp"] if "openmp" in target else []))
    assert "__builtin" not in text and "__attribute__" not in text and ("#pragma omp" in text) == ("openmp" in target)
    check_all(lowered, library)


def test_vectors_are_structures(tmp_path):
    wide = [lower(parse(CASES[case][0]), Target("native -num-cores=1"), name) for name, case in NAMES.items()]
    lowered = [dataclasses.replace(one, target=Target("c")) for one in wide]
    library, text = library_of(lowered, tmp_path)
    assert "typedef struct { float v[" in text and "__builtin" not in text and "({" not in text
    check_all(lowered, library)


def test_what_a_condition_guards_is_not_evaluated(tmp_path):
    func = parse("""
@T.prim_func
def f(at: T.Buffer((5,), "int32"), A: T.Buffer((3,), "float32"), B: T.Buffer((5,), "float32")):
    for i in range(5):
        B[i] = T.if_then_else(
            at[i] < 3 and T.Let(A[x], where={x: at[i]}) > T.float32(1), T.Let(A[y] * A[y], where={y: at[i]}), T.float32(7)
        )
""")
    lowered = lower(func, Target("c"), "f")
    library, text = library_of([lowered], tmp_path, "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    at, a, b = np.array([0, 1 << 28, 2, 1, 3], "int32"), np.array([1, 2, 3], "float32"), np.zeros(5, "float32")
    call(library, lowered, [at, a, b])
    assert b.tolist() == [7, 7, 9, 4, 7]


def test_data_of_64_bits_wraps(tmp_path):
    func = parse("""
@T.prim_func
def f(A: T.Buffer((2,), "int64"), B: T.Buffer((2,), "int64")):
    for i in range(2):
        with T.LetStmt(A[i]) as x:
            B[i] = x * x + x
""")
    lowered = lower(func, Target("c"), "f")
    library, _ = library_of([lowered], tmp_path, "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    a, b = np.array([2**62 + 3, -5], "int64"), np.zeros(2, "int64")
    call(library, lowered, [a, b])
    assert b.tolist() == (a * a + a).tolist()


def test_threads_need_openmp():
    assert Target("c").num_cores == 1
    with pytest.raises(TargetError, match="parallel loops in C need OpenMP; add -openmp"):
        Target("c -num-cores=4")
    with pytest.raises(TargetError, match="-openmp is for targets of kind c"):
        Target("llvm -openmp")


@pytest.mark.parametrize("text", ["c", "c -openmp -num-cores=3", "c -vector-extensions", "c -mcpu=cortex-m7",
                                  "llvm -mtriple=aarch64-linux-gnu -mattr=+sve -vector-width=512"])  # fmt: skip
def test_targets_round_trip(text):
    assert Target(str(Target(text))) == Target(text)


def test_the_default_target_text_is_strict():
    assert (
        Target("c").is_portable_c
        and not Target("c -vector-extensions").is_portable_c
        and not Target("native").is_portable_c
    )
    module = compile(parse(CASES["add"][0]), "c -vector-extensions", "f")
    assert "vector_size" in module.get_source("c")


def test_intrinsics_of_another_processor_are_refused():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    A[0:4] = T.call_llvm_pure_intrin("float32x4", "llvm.x86.sse.rcp.ps", A[0:4])
""")
    with pytest.raises(
        TargetError, match=r"llvm.x86.sse.rcp.ps, an instruction of another processor than aarch64-linux-gnu"
    ):
        compile(func, "llvm -mtriple=aarch64-linux-gnu")
