"""Links a kernel's object into a WebAssembly module, which a browser or wasmtime instantiates without imports.

The module exports its functions, its ``memory``, and ``tw_alloc`` and ``tw_free``: memory for the host's arrays and for
scratch buffers, taken from one end and given back in the opposite order.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..llvm.jit import CompiledCode, optimize_and_compile

STACK_BYTES = 1 << 20
"""The stack of a module: buffers of up to 256 KiB together, and what the compiler spills."""

MEMORY_OF_WASM = r"""
@__heap_base = external global i8
@tw_top = internal global ptr @__heap_base

declare i32 @llvm.wasm.memory.size.i32(i32)
declare i32 @llvm.wasm.memory.grow.i32(i32, i32)

define ptr @tw_alloc(i64 %bytes) noinline nounwind {
entry:
  %top = load ptr, ptr @tw_top
  %at = ptrtoint ptr %top to i32
  %padded = add i32 %at, 63
  %start = and i32 %padded, -64
  %need = trunc i64 %bytes to i32
  %end = add i32 %start, %need
  %pages = call i32 @llvm.wasm.memory.size.i32(i32 0)
  %have = shl i32 %pages, 16
  %enough = icmp ule i32 %end, %have
  br i1 %enough, label %made, label %grow
grow:
  %short = sub i32 %end, %have
  %up = add i32 %short, 65535
  %more = lshr i32 %up, 16
  %old = call i32 @llvm.wasm.memory.grow.i32(i32 0, i32 %more)
  %none = icmp eq i32 %old, -1
  br i1 %none, label %fail, label %made
made:
  %next = inttoptr i32 %end to ptr
  store ptr %next, ptr @tw_top
  %out = inttoptr i32 %start to ptr
  ret ptr %out
fail:
  ret ptr null
}

define void @tw_free(ptr %block) noinline nounwind {
  %null = icmp eq ptr %block, null
  br i1 %null, label %done, label %back
back:
  store ptr %block, ptr @tw_top
  br label %done
done:
  ret void
}
"""
"""The allocator: blocks are given back in the opposite order, so that the end of what is in use says everything."""


FMA_OF_WASM = r"""
define double @fma(double %a, double %b, double %c) noinline nounwind {
  %p = fmul double %a, %b
  %a1 = fmul double %a, 134217729.0
  %a2 = fsub double %a1, %a
  %ah = fsub double %a1, %a2
  %al = fsub double %a, %ah
  %b1 = fmul double %b, 134217729.0
  %b2 = fsub double %b1, %b
  %bh = fsub double %b1, %b2
  %bl = fsub double %b, %bh
  %hh = fmul double %ah, %bh
  %hl = fmul double %ah, %bl
  %lh = fmul double %al, %bh
  %ll = fmul double %al, %bl
  %e1 = fsub double %hh, %p
  %e2 = fadd double %e1, %hl
  %e3 = fadd double %e2, %lh
  %e = fadd double %e3, %ll
  %s = fadd double %p, %c
  %t = call double @tw_lost(double %p, double %c)
  %u = call double @tw_odd(double %e, double %t)
  %exact = fadd double %s, %u
  %some = fcmp one double %u, 0.0
  %out = select i1 %some, double %exact, double %s
  ret double %out
}

define float @fmaf(float %a, float %b, float %c) noinline nounwind {
  %wa = fpext float %a to double
  %wb = fpext float %b to double
  %wc = fpext float %c to double
  %p = fmul double %wa, %wb
  %s = call double @tw_odd(double %p, double %wc)
  %out = fptrunc double %s to float
  ret float %out
}

define internal double @tw_lost(double %a, double %b) nounwind {
  %s = fadd double %a, %b
  %bb = fsub double %s, %a
  %aa = fsub double %s, %bb
  %la = fsub double %a, %aa
  %lb = fsub double %b, %bb
  %out = fadd double %la, %lb
  ret double %out
}

define internal double @tw_odd(double %a, double %b) nounwind {
  %s = fadd double %a, %b
  %lost = call double @tw_lost(double %a, double %b)
  %bits = bitcast double %s to i64
  %last = and i64 %bits, 1
  %even = icmp eq i64 %last, 0
  %some = fcmp one double %lost, 0.0
  %wrong = and i1 %even, %some
  %up = fcmp ogt double %lost, 0.0
  %positive = icmp sge i64 %bits, 0
  %away = icmp eq i1 %up, %positive
  %step = select i1 %away, i64 1, i64 -1
  %add = select i1 %wrong, i64 %step, i64 0
  %moved = add i64 %bits, %add
  %out = bitcast i64 %moved to double
  ret double %out
}
"""
"""Multiply-adds with one rounding, which the machine does not have: the product and its error, and a sum that is rounded to odd
before the last one (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008)."""


class WasmLinkError(RuntimeError):
    """Raised when there is no linker, or when the code calls a function that no module has."""


def wasm_linker() -> list[str] | None:
    """Returns the command of a linker for WebAssembly: LLVM's, or the one of the Python package ``ziglang``."""
    found = shutil.which("wasm-ld")
    if found:
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "wasm-ld"]
    return None


def wasm_module(code: CompiledCode, exported: Sequence[str]) -> bytes:
    """Returns the module that exports functions of ``code``. :class:`WasmLinkError` names the functions that it
    misses."""
    command = wasm_linker()
    if command is None:
        raise WasmLinkError(
            "a WebAssembly module needs a linker, wasm-ld; install one (pip install ziglang, or apt-get install lld)"
        )
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        folder = Path(name)
        whole = optimize_and_compile(
            code.ir, code.target, code.options.opt_level, link=(*code.link, MEMORY_OF_WASM, FMA_OF_WASM)
        )
        (folder / "module.o").write_bytes(whole.object)
        shown = [f"--export={symbol}" for symbol in (*exported, "tw_alloc", "tw_free")]
        flags = ["--no-entry", "-z", f"stack-size={STACK_BYTES}", "--strip-debug", *shown]
        inout = [str(folder / "module.o"), "-o", str(folder / "module.wasm")]
        done = subprocess.run([*command, *flags, *inout], capture_output=True, text=True)
        if done.returncode:
            raise WasmLinkError(f"the module cannot be linked:\n{done.stderr.strip()}")
        return (folder / "module.wasm").read_bytes()
