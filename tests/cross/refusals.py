"""Prints the table of refusals of docs/guides/targets.md: what a target lacks, and the words that name the operation.

python -m tests.cross.refusals
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.tuner.rules.gpu_matrix_units import GroupTiles, group_product

WASM = "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128"
ARMV7 = "llvm -mtriple=armv7-linux-gnueabihf -mattr=+neon"
AARCH64 = "llvm -mtriple=aarch64-linux-gnu"


def text(body: str, dtype: str = "float32", size: str = "64") -> Any:
    """Return a function of two arrays with these statements."""
    lines = "\n".join(f"    {line}" for line in body.strip().split("\n"))
    head = f'def kernel(A: T.Buffer(({size},), "{dtype}"), B: T.Buffer(({size},), "{dtype}")):'
    return tw.tir.parse(f"@T.prim_func\n{head}\n{lines}\n")


def each(value: str, dtype: str = "float32", loop: str = "range") -> Any:
    """Return a function that computes a value for each element."""
    return text(f"for i in {loop}(64):\n    B[i] = {value}", dtype)


def scratch() -> Any:
    return tw.tir.parse("""
@T.prim_func
def kernel(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,))
    B = T.match_buffer(b, (n,))
    P = T.alloc_buffer((n,))
    for i in range(n):
        P[i] = A[i]
    for i in range(n):
        B[i] = P[n - 1 - i]
""")


def called(target: str) -> Callable[[], Any]:
    """Return a call of a module that this machine cannot run."""

    def call() -> Any:
        x = te.placeholder((64,), name="X")
        module = tw.build([x, te.compute((64,), lambda i: x[i] + 1.0, name="Y")], target)
        return module(np.zeros(64, "float32"))

    return call


def compiled(func: Callable[[], Any], target: str, fmt: str = "") -> Callable[[], Any]:
    """Return the compilation of a function for a target, and of its text where one is named."""

    def run() -> Any:
        module = tw.codegen.compile(func(), target)
        return module.get_source(fmt) if fmt else module

    return run


def group_tile() -> Any:
    a, b, r = (
        te.placeholder((64, 64), "float16", "A"),
        te.placeholder((64, 64), "float16", "B"),
        te.reduce_axis((0, 64)),
    )
    c = te.compute(
        (64, 64), lambda i, j: te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), axis=r), name="C"
    )
    s = tw.Schedule(te.create_prim_func([a, b, c]))
    group_product(s, "C", GroupTiles("float16", (1, 1), 1, 64))
    return s.func


def bulk_copy() -> Any:
    return tw.tir.parse("""
@T.prim_func
def kernel(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for t in T.thread_binding(64, thread="threadIdx.x"):
        S = T.alloc_buffer((64,), scope="shared")
        for i in T.serial(64, annotations={"bulk_copy": 1}):
            S[i] = A[i]
        B[t] = S[63 - t]
""")


ADD = "T.evaluate(T.atomic_add(T.address_of(B[0]), A[0]))"
ROWS: list[tuple[str, str, Callable[[], Any]]] = [
    ("native", "atomic additions", compiled(lambda: text(ADD), "native", "asm")),
    ("c", "atomic additions", compiled(lambda: text(ADD), "c", "c")),
    ("cuda", "loops without threads", compiled(lambda: each("A[i]"), "cuda")),
    ("cuda -arch=sm_80", "products of warp groups", compiled(group_tile, "cuda -arch=sm_80", "ptx")),
    ("cuda -arch=sm_80", "bulk copies", compiled(bulk_copy, "cuda -arch=sm_80", "ptx")),
    ("c -num-cores=4", "threads", compiled(lambda: each("A[i]", loop="T.parallel"), "c -num-cores=4")),
    ("wasm32 -num-cores=2", "threads", compiled(lambda: each("A[i]", loop="T.parallel"), f"{WASM} -num-cores=2")),
    ("wasm32", "Linux libraries", lambda: tw.codegen.compile(each("A[i]"), WASM).export("/tmp/k.so")),
    ("armv7", "scratch memory", compiled(scratch, ARMV7)),
    ("armv7 -num-cores=2", "threads", compiled(lambda: each("A[i]", loop="T.parallel"), f"{ARMV7} -num-cores=2")),
    (
        "c -mcpu=cortex-m7",
        "a mathematical library",
        compiled(lambda: each("T.sqrt(A[i])", "float64"), "c -mcpu=cortex-m7", "c"),
    ),
    ("c -mcpu=cortex-m7", "sizes that are not constants", compiled(scratch, "c -mcpu=cortex-m7", "c")),
    ("verilog", "floats", compiled(lambda: each("A[i] + T.float32(1)"), "verilog", "verilog")),
    ("verilog", "calls", compiled(lambda: each('T.call_extern("int32", "f", A[i])', "int32"), "verilog", "verilog")),
    ("c -hls", "threads", compiled(lambda: each("A[i]", loop="T.parallel"), "c -hls -num-cores=2")),
    ("aarch64", "this machine", called(AARCH64)),
    ("wasm32", "this machine", called(WASM)),
]
"""A target, what it lacks, and what asks for it."""


def words(ask: Callable[[], Any]) -> str:
    """Return the first line of a refusal; an empty text where there is none."""
    try:
        ask()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def table() -> str:
    """Return the table in Markdown."""
    head = ["| target | lacks | the message |", "|---|---|---|"]
    return "\n".join(head + [f"| `{target}` | {what} | {words(ask)} |" for target, what, ask in ROWS])


if __name__ == "__main__":
    print(table())
