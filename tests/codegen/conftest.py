"""Fixtures: a function with hand-written IR for the tests of what is around kernels: B[i, 0..3] = A[i, 0..3] * s, with sizes.

It does not depend on lowering or on the emitter, so its tests say where a fault is.
"""

import ctypes
import shutil
import subprocess

import pytest

from tilewright.codegen import compile
from tilewright.codegen.llvm.jit import optimize_and_compile
from tilewright.codegen.lowered import LoweredFunc
from tilewright.codegen.machine.target import Target
from tilewright.codegen.runtime.arguments import Arguments, c_types
from tilewright.codegen.runtime.module import Module
from tilewright.tir.expr import IntImm, Var
from tilewright.tir.stmt import AssertStmt, BufferStore, For, PrimFunc, decl_buffer

SCALE_IR = """
define i32 @scale(ptr %a, ptr %b, float %s, i64 %n) {
entry:
  %long = icmp sge i64 %n, 100
  br i1 %long, label %bad, label %go
go:
  %total = mul i64 %n, 4
  %any = icmp sgt i64 %total, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ 0, %go ], [ %j, %loop ]
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %pa
  %y = fmul float %x, %s
  store float %y, ptr %pb
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %total
  br i1 %more, label %loop, label %done
done:
  ret i32 0
bad:
  ret i32 1
}
"""


def scale_func(**attrs):
    """A PrimFunc with the signature of SCALE_IR."""
    n, i, s = Var("n"), Var("i"), Var("s", "float32")
    a, b = decl_buffer((n, 4), "float32", "A"), decl_buffer((n, 4), "float32", "B")
    pa, pb = Var("a", "handle"), Var("b", "handle")
    loop = For(i, IntImm(0), n, "serial", BufferStore(b, a[i, 0] * s, (i, IntImm(0))))
    body = AssertStmt(n < 100, "more than 99 rows", loop)
    return PrimFunc((pa, pb, s), body, {pa: a, pb: b}, {"global_symbol": "scale", **attrs})


@pytest.fixture
def scale_module():
    """Makes the compiled function for a target; keywords are the function's attributes."""

    def make(target="native", **attrs):
        t = Target(target)
        return Module({"scale": LoweredFunc.of(scale_func(**attrs), t)}, optimize_and_compile(SCALE_IR, t))

    return make


@pytest.fixture
def through_c(tmp_path):
    """Makes something callable on arrays of a function or a schedule, by way of the C that is written for it."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")

    def make(func, target="native -num-cores=1", *flags):
        module = compile(func, target, "kernel")
        source, library = tmp_path / "kernel.c", tmp_path / "kernel.so"
        source.write_text(module.get_source("c"))
        command = ["gcc", "-O2", "-Wall", "-Werror", "-march=native", "-shared", "-fPIC", *flags, "-o", str(library)]
        done = subprocess.run([*command, str(source), "-lm"], capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stderr}\n{source.read_text()}"
        function, params = ctypes.CDLL(str(library)).kernel, module["kernel"].params
        function.argtypes = c_types(params)

        def call(*args):
            assert function(*Arguments("kernel", params).prepare(list(args))[0]) == 0

        return call

    return make
