"""C for high-level synthesis has the pragmas of the schedule, compiles without warnings, and computes what NumPy does."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen import Target, TargetError
from tilewright.codegen.c import CEmitError

from .int8_kernels import KERNELS, SCHEDULES, arrays_of, fir, matmul, pipelined, plain


def source(func):
    return tw.codegen.compile(func, "c -hls").get_source("c")


def compiled(text, name, folder):
    """The function of a text, by a C compiler that knows nothing of high-level synthesis."""
    (folder / "kernel.c").write_text(text)
    flags = ["-std=c99", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-unknown-pragmas"]
    subprocess.run(["gcc", *flags, "kernel.c", "-o", "kernel.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))[name]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "make, sizes, block", [*KERNELS.values(), (matmul, (7, 13, 17), "C"), (matmul, (1, 1, 1), "C")]
)
def test_equal_to_the_interpreter(make, sizes, block, schedule, tmp_path):
    sch = SCHEDULES[schedule](make(*sizes), block)
    for loop in sch.get_loops(sch.get_block(block)):  # arrays are flat in C: see test_divided_arrays
        if "pragma_array_partition" in sch.get(loop).annotations:
            sch.unannotate(loop, "pragma_array_partition")
    got, want = arrays_of(sch.func), arrays_of(sch.func)
    run = compiled(source(sch.func), sch.func.name, tmp_path)
    assert run(*[ctypes.c_void_p(a.ctypes.data) for a in got]) == 0
    tw.tir.interpret(sch.func, *want)
    assert all(np.array_equal(one, two) for one, two in zip(got, want, strict=True))


def test_pragmas():
    text = source(pipelined(matmul(4, 6, 8), "C").func)
    assert "int32_t matmul(const int8_t A[32], const int8_t B[48], int32_t C[24]) {" in text
    assert "for (int64_t k = 0; k < 8; ++k) {\n        #pragma HLS PIPELINE II=1\n" in text
    sch, _, (k,) = plain(matmul(4, 6, 8), "C")
    sch.unroll(sch.split(k, [None, 4])[1])
    assert "#pragma HLS UNROLL\n" in source(sch.func)
    sch, _, (k,) = plain(matmul(4, 6, 8), "C")
    sch.annotate(k, "pragma_unroll_factor", 2)
    sch.annotate(k, "pragma_pipeline", 0)
    text = source(sch.func)
    assert "#pragma HLS PIPELINE\n" in text and "#pragma HLS UNROLL factor=2\n" in text


@pytest.mark.parametrize(("wishes", "lines"), [
    ([["A", 1, 4]], ["variable=A cyclic factor=4 dim=1"]),
    ([["A", 1, 0]], ["variable=A cyclic factor=8 dim=1"]),
    ([["B", 0, 0], ["C", 1, 2]], ["variable=B block factor=8 dim=1", "variable=C cyclic factor=2 dim=1"]),
])  # fmt: skip
def test_divided_arrays(wishes, lines):
    sch, (i, _), _ = plain(matmul(4, 6, 8), "C")
    sch.annotate(i, "pragma_array_partition", wishes)
    text = source(sch.func)
    assert [line.split("PARTITION ")[1] for line in text.splitlines() if "PARTITION" in line] == lines


def test_refused():
    sch, (i, _), _ = plain(matmul(4, 6, 8), "C")
    sch.annotate(i, "pragma_array_partition", [["B", 0, 2]])
    with pytest.raises(CEmitError, match="arrays are flat in C"):
        source(sch.func)
    with pytest.raises(TargetError, match="leave out -openmp"):
        Target("c -hls -openmp")


def test_other_targets_ignore_the_annotations():
    func = SCHEDULES["unrolled and pipelined"](fir(13, 8), "Y").func
    got, want = arrays_of(func), arrays_of(func)
    tw.build(func, "native -num-cores=1")(*got)
    tw.tir.interpret(func, *want)
    assert np.array_equal(got[2], want[2])
