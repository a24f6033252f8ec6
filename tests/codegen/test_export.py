"""Files that live without Python."""

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen import Target, compile
from tilewright.codegen.c.c_header import c_header, c_names
from tilewright.codegen.lowered import Param
from tilewright.codegen.runtime.export import ExportError
from tilewright.codegen.runtime.packages import pkg_config
from tilewright.tir.expr import Var
from tilewright.tir.parser import parse

needs_linker = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang", "ld"))), reason="needs a linker")


@needs_linker
def test_shared_library(scale_module, tmp_path):
    written = scale_module().export(tmp_path / "k.so")
    assert [p.name for p in written] == ["k.so", "k.h", "k.hpp", "k.pc", "kConfig.cmake", "kConfigVersion.cmake"]
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    a = np.arange(28, dtype=np.float32).reshape(7, 4)
    b = np.full_like(a, np.nan)
    code = library.scale(ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(b.ctypes.data), ctypes.c_float(3),
                         ctypes.c_int64(7))  # fmt: skip
    assert code == 0
    np.testing.assert_array_equal(b, 3 * a)


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs the package ziglang")
def test_the_linker_of_ziglang(scale_module, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    scale_module().export(tmp_path / "k.so")
    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    scale = ctypes.CDLL(str(tmp_path / "k.so")).scale
    assert (
        scale(ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(b.ctypes.data), ctypes.c_float(3), ctypes.c_int64(1)) == 0
    )
    assert b.tolist() == [0, 3, 6, 9]


MAIN = """#include <stdio.h>
#include "libk.h"
int main(void) { float a[4] = {1, 2, 3, 4}, b[4]; int rc = scale(a, b, 2.0f, 1); printf("%d %g\\n", rc, b[3]); return 0; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.skipif(os.uname().sysname != "Linux", reason="the flags are those of ELF")
def test_a_program_finds_the_library_beside_itself(scale_module, tmp_path):
    """By the library's SONAME and the program's rpath, from another folder and without LD_LIBRARY_PATH."""
    scale_module().export(tmp_path / "libk.so")
    (tmp_path / "main.c").write_text(MAIN)
    command = ["cc", "main.c", "-o", "main", "-L.", "-lk", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], cwd="/", capture_output=True, text=True).stdout == "0 8\n"
    (tmp_path / "libk.so").rename(tmp_path / "other.so")
    assert "libk.so" in subprocess.run([tmp_path / "main"], capture_output=True, text=True).stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_object_and_header_in_a_c_program(scale_module, tmp_path):
    scale_module().export(tmp_path / "k.o")
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "k.h"\n'
        "int main(void) { float a[8] = {1, 2, 3, 4, 5, 6, 7, 8}, b[8] = {0};\n"
        '  int rc = scale(a, b, 2.0f, 2); printf("%d %g %g\\n", rc, b[0], b[7]); return 0; }\n'
    )
    program = tmp_path / "main"
    subprocess.run(["cc", "-Wall", "-Werror", "-o", program, tmp_path / "main.c", tmp_path / "k.o", "-lm", "-lpthread"],
                   check=True)  # fmt: skip
    assert subprocess.run([program], capture_output=True, text=True).stdout == "0 2 16\n"


KERNELS = """
from tilewright.tir import script as T

@I.ir_module
class Module:
    @T.prim_func
    def rows(A: T.Buffer((300, 500), "float64"), S: T.Buffer((300,), "float64")):
        T.func_attr({"global_symbol": "rows"})
        P = T.alloc_buffer((300, 500), "float64")
        for i in T.parallel(300):
            for j in range(500):
                with T.block("P"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    P[vi, vj] = A[vi, vj] * T.float64(2)
        for i in T.parallel(300):
            for j in range(500):
                with T.block("S"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        S[vi] = T.float64(0)
                    S[vi] = S[vi] + P[vi, vj]

    @T.prim_func
    def shift(a: T.handle, b: T.handle, by: T.int32):
        T.func_attr({"global_symbol": "shift"})
        n = T.int32()
        A = T.match_buffer(a, (n,), "int32")
        B = T.match_buffer(b, (n,), "int32")
        assert by >= 0, "a negative shift"
        for i in T.parallel((n + 15) // 16):
            for v in T.vectorized(16):
                if i * 16 + v < n:
                    B[i * 16 + v] = A[i * 16 + v] + by
"""

PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "libkernels.h"

static double a[300 * 500];

static long sums(void) { /* how many of 300 are right, over 50 calls */
    double s[300];
    long right = 0;
    for (int call = 0; call < 50; ++call) {
        memset(s, 0xff, sizeof s);
        if (rows(a, s) != 0) return -1;
        for (int i = 0; i < 300; ++i) right += s[i] == 1000.0 * i;
    }
    return right;
}

static void *thread(void *out) { *(long *)out = sums(); return NULL; }

int main(void) {
    for (int i = 0; i < 300 * 500; ++i) a[i] = i / 500;
    printf("alone %ld\n", sums());
    long right[3];
    pthread_t threads[3];
    for (int t = 0; t < 3; ++t) pthread_create(&threads[t], NULL, thread, &right[t]);
    for (int t = 0; t < 3; ++t) pthread_join(threads[t], NULL);
    printf("threads %ld %ld %ld\n", right[0], right[1], right[2]);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(sums() == 15000 ? 7 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    for (int64_t n = 1; n <= 100; n += 33) { /* arrays of just that size, for a sanitizer or valgrind to watch */
        int32_t *from = malloc(n * sizeof *from), *to = malloc(n * sizeof *to);
        for (int64_t i = 0; i < n; ++i) from[i] = (int32_t)i;
        int rc = shift(from, to, 5, n);
        printf("shift %d %d\n", rc, (int)to[n - 1]);
        free(from);
        free(to);
    }
    int32_t one = 1, out = 77;
    printf("refused %d %d\n", shift(&one, &out, -1, 1), (int)out);
    return 0;
}
"""

EXPECTED = """alone 15000
threads 15000 15000 15000
child 7
shift 0 5
shift 0 38
shift 0 71
shift 0 104
refused 1 77
"""


def package_flags(name, folder):
    """What ``pkg-config --cflags --libs`` says; read off the file where there is no pkg-config."""
    if shutil.which("pkg-config"):
        done = subprocess.run(["pkg-config", "--cflags", "--libs", name], env=os.environ | {"PKG_CONFIG_PATH": str(folder)},
                              capture_output=True, text=True, check=True)  # fmt: skip
        return done.stdout.split()
    values, fields = {"pcfiledir": str(folder)}, {}
    for line in (folder / f"{name}.pc").read_text().splitlines():
        for known, value in values.items():
            line = line.replace(f"${{{known}}}", value)
        if match := re.fullmatch(r"(\w+)=(.*)", line):
            values[match[1]] = match[2]
        elif match := re.fullmatch(r"([\w.]+): (.*)", line):
            fields[match[1]] = match[2]
    assert {"Name", "Description", "Version"} <= fields.keys()
    return [*fields["Cflags"].split(), *fields["Libs"].split()]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("kind", [".so", ".o", ".c"])
def test_a_c_program_calls_parallel_kernels(tmp_path, kind):
    """From several threads, in a child after fork, with a failing assertion; no Python anywhere."""
    compile(parse(KERNELS), Target("native -num-cores=2")).export(tmp_path / f"libkernels{kind}")
    (tmp_path / "main.c").write_text(PROGRAM)
    command = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(tmp_path / "main"), str(tmp_path / "main.c")]
    if kind == ".so":
        flags = package_flags("libkernels", tmp_path)
        assert f"-I{tmp_path}" in flags and "-lkernels" in flags
        command += flags
    else:
        command += [str(tmp_path / f"libkernels{kind}"), f"-I{tmp_path}", "-lm"]
    if kind == ".c":  # serial: OpenMP's threads would not survive the fork
        command += ["-Wno-unknown-pragmas", "-Wno-psabi"]
    subprocess.run([*command, "-lpthread"], check=True)
    done = subprocess.run([tmp_path / "main"], env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)},
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, EXPECTED, "")


def test_names_of_libraries():
    assert "Libs: -L${libdir} -lfast" in pkg_config(Path("libfast.so"), ["f"], "1.0")
    assert "Libs: -L${libdir} -l:fast.so" in pkg_config(Path("fast.so"), ["f"], "1.0")
    assert r"Libs: -L${libdir} -l:my\ own.so" in pkg_config(Path("my own.so"), ["f"], "1.0")


def test_text_formats(scale_module, tmp_path):
    module = scale_module()
    assert [p.name for p in module.export(tmp_path / "k.ll")] == ["k.ll"]
    assert "define" in (tmp_path / "k.ll").read_text()
    assert [p.name for p in module.export(str(tmp_path / "k.s"))] == ["k.s", "k.h", "k.hpp"]
    assert "scale:" in (tmp_path / "k.s").read_text()


def test_header(scale_module):
    text = c_header(list(scale_module()._lowered.values()), "my-kernels.h")
    assert "#ifndef TILEWRIGHT_MY_KERNELS_H" in text
    assert "int32_t scale(const float* A, float* B, float s, int64_t n);" in text
    assert "A: float32[n, 4], read" in text and "B: float32[n, 4], written" in text


def test_names_that_c_does_not_have():
    params = [Param("scalar", Var(name), "int32") for name in ("x", "x", "int", "A.1", "1x", "x_1")]
    assert c_names(params) == ["x", "x_1", "_int", "A_1", "_1x", "x_1_1"]


def test_errors(scale_module, tmp_path, monkeypatch):
    with pytest.raises(ExportError, match=r"'k.dll': the suffix must be one of .o, .so, .s, .ll, .c"):
        scale_module().export(tmp_path / "k.dll")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExportError, match="a shared library needs a linker, and none of cc, gcc"):
        scale_module().export(tmp_path / "k.so")
