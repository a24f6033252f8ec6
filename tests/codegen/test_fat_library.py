"""One library with versions for several processors: the last one that this machine can run is picked."""

import ctypes
import platform
import shutil

import numpy as np
import pytest

from tilewright.codegen import TargetError, compile
from tilewright.codegen.fat_library import export_fat
from tilewright.codegen.machine.target import Target
from tilewright.tir.parser import parse

FUNC = """
@T.prim_func
def scaled(A: T.Buffer((1000,), "float32"), s: T.float32, B: T.Buffer((1000,), "float32")):
    for i in T.vectorized(1000):
        with T.block("B"):
            vi = T.axis.spatial(1000, i)
            B[vi] = A[vi] * s + T.float32(1)
"""
CPUS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)


def versions(cpus):
    return [compile(parse(FUNC), f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu} -num-cores=1") for cpu in cpus]


@pytest.mark.parametrize("cpus", [CPUS, CPUS[:1], ["x86-64-v4", "x86-64-v2"]])
def test_the_last_version_that_runs_is_picked(tmp_path, cpus):
    written = export_fat(versions(cpus), tmp_path / "libfat.so")
    assert [p.name for p in written] == [
        "libfat.so",
        "libfat.h",
        "libfat.hpp",
        "libfat.pc",
        "fatConfig.cmake",
        "fatConfigVersion.cmake",
    ]
    library = ctypes.CDLL(str(tmp_path / "libfat.so"))
    runs = [
        n
        for n, cpu in enumerate(cpus)
        if not Target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}").missing_here()
    ]
    assert library.scaled_version() == runs[-1]
    a, b = np.arange(1000, dtype="float32"), np.zeros(1000, "float32")
    assert library.scaled(ctypes.c_void_p(a.ctypes.data), ctypes.c_float(3), ctypes.c_void_p(b.ctypes.data)) == 0
    np.testing.assert_array_equal(b, a * 3 + 1)


def test_versions_differ_in_their_registers(tmp_path):
    modules = versions(CPUS)
    assert ["ymm" in module.get_source("asm") for module in modules] == [False, True, False]
    assert ["zmm" in module.get_source("asm") for module in modules] == [False, False, True]


def test_what_is_refused(tmp_path):
    other = compile(parse(FUNC.replace("scaled", "other")), "llvm -mtriple=x86_64-unknown-linux-gnu -num-cores=1")
    with pytest.raises(ValueError, match="version 1 has other functions than the first: other"):
        export_fat([*versions(CPUS[:1]), other], tmp_path / "k.so")
    with pytest.raises(TargetError, match="not for native"):
        export_fat([compile(parse(FUNC), "native -num-cores=1")], tmp_path / "k.so")
    with pytest.raises(TargetError, match="cannot ask the processor for amx"):
        export_fat(versions(["sapphirerapids"]), tmp_path / "k.so")
