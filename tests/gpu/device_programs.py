"""Programs that the tests of devices run: threads that exchange values, add to one element, fail, compute any expression."""

import numpy as np

from tilewright.codegen import compile
from tilewright.tir.parser import parse

REVERSED = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    with T.block("root"):
        S = T.alloc_buffer((64,), scope="shared")
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("S"):
                    v = T.axis.spatial(64, t)
                    S[v] = A[v]
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("B"):
                    v = T.axis.spatial(64, t)
                    B[v] = S[63 - v]
"""


def reverses(target, source=lambda text: text):
    """Returns whether values that shared memory never held are reversed through it, by a kernel whose text ``source`` may
    change."""
    module, values = compile(parse(REVERSED), target), np.random.default_rng().random(64, "float32")
    module.__dict__["source"] = source(module.source)
    return (module(values) == values[::-1]).all()


ADDED = """
@T.prim_func
def main(A: T.Buffer((300,), "DTYPE"), B: T.Buffer((3,), "DTYPE")):
    for b in T.thread_binding(3, thread="blockIdx.x"):
        for t in T.thread_binding(100, thread="threadIdx.x"):
            T.evaluate(T.atomic_add(T.address_of(B[t % 3]), A[b * 100 + t]))
"""


def sum_by_three(dtype):
    """Returns arguments of :data:`ADDED`, and what it makes of the second one."""
    a, b = np.arange(300).astype(dtype) % 5, np.ones(3, dtype)
    return a, b, b + [sum(a[100 * n + t] for n in range(3) for t in range(k, 100, 3)) for k in range(3)]


ASSERTED = """
@T.prim_func
def main(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            assert A[t] >= 0, "no number is negative"
            B[t] = A[t] + 1
"""


def each(value, dtype="float32", out=None, size=64):
    return parse(f"""
@T.prim_func
def main(A: T.Buffer(({size},), "{dtype}"), D: T.Buffer(({size},), "{dtype}"), B: T.Buffer(({size},), "{out or dtype}")):
    for b in T.thread_binding({-(-size // 64)}, thread="blockIdx.x"):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            if b * 64 + t < {size}:
                B[b * 64 + t] = {value.replace("[i]", "[b * 64 + t]")}
""")


def ends(dtype):
    if np.dtype(dtype).kind == "f":
        info = np.finfo(dtype)
        return np.array(
            [
                0.0,
                -0.0,
                1.5,
                -2.5,
                np.nan,
                np.inf,
                -np.inf,
                info.max,
                -info.max,
                info.tiny,
                info.tiny / 4,
                3e9,
                -3e9,
                7,
                -7,
                0.5,
            ],
            dtype,
        )
    info = np.iinfo(dtype)
    return np.array(
        [0, 1, 2, 3, 7, 13, 100, 64, info.max, info.max - 1, info.min, info.min + 1, info.max // 2, 5, 31, 33], dtype
    )
