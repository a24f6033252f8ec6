"""Files that live without Python."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from tilewright.codegen.c.header import c_header, c_names
from tilewright.codegen.export import ExportError
from tilewright.codegen.lowered import Param
from tilewright.tir.expr import Var

needs_linker = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang", "ld"))), reason="needs a linker")


@needs_linker
def test_shared_library(scale_module, tmp_path):
    written = scale_module().export(tmp_path / "k.so")
    assert [p.name for p in written] == ["k.so", "k.h"]
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    a = np.arange(28, dtype=np.float32).reshape(7, 4)
    b = np.full_like(a, np.nan)
    code = library.scale(ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(b.ctypes.data), ctypes.c_float(3),
                         ctypes.c_int64(7))  # fmt: skip
    assert code == 0
    np.testing.assert_array_equal(b, 3 * a)


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


def test_text_formats(scale_module, tmp_path):
    module = scale_module()
    assert [p.name for p in module.export(tmp_path / "k.ll")] == ["k.ll"]
    assert "define" in (tmp_path / "k.ll").read_text()
    assert [p.name for p in module.export(str(tmp_path / "k.s"))] == ["k.s", "k.h"]
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
    with pytest.raises(ExportError, match="a shared library needs a linker, and none of cc, gcc"):
        scale_module().export(tmp_path / "k.so")
