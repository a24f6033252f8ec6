"""Shared buffers that are used one after the other have one place, with a barrier between."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen import compile
from tilewright.gpu.launch.kernels import shared_places
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.tir.parser import parse

PROGRAM = """
@T.prim_func
def main(A: T.Buffer((SIZE,), "float32"), B: T.Buffer((SIZE,), "float32"), C: T.Buffer((SIZE,), "float32")):
    with T.block("root"):
        S = T.alloc_buffer((SIZE,), scope="shared")
        R = T.alloc_buffer((SIZE,), scope="shared")
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(256, thread="threadIdx.x"):
                for i in range(SIZE // 256):
                    with T.block("S"):
                        v = T.axis.spatial(SIZE, i * 256 + t)
                        S[v] = A[v]
            for t in T.thread_binding(256, thread="threadIdx.x"):
                for i in range(SIZE // 256):
                    with T.block("B"):
                        v = T.axis.spatial(SIZE, i * 256 + t)
                        B[v] = S[SIZE - 1 - v]
            for t in T.thread_binding(256, thread="threadIdx.x"):
                for i in range(SIZE // 256):
                    with T.block("R"):
                        v = T.axis.spatial(SIZE, i * 256 + t)
                        R[v] = A[v] * T.float32(2)
            for t in T.thread_binding(256, thread="threadIdx.x"):
                for i in range(SIZE // 256):
                    with T.block("C"):
                        v = T.axis.spatial(SIZE, i * 256 + t)
                        C[v] = R[SIZE - 1 - v] + LATE
"""


def kernel(size, late="T.float32(0)"):
    text = PROGRAM.replace("LATE", late).replace("SIZE // 256", str(size // 256)).replace("SIZE", str(size))
    module = compile(parse(text), "cuda")
    (one,) = module.kernels["main"]
    return one, module.get_source(), text


def test_one_place_for_both():
    one, text, _ = kernel(12800)
    if find_ptxas():
        run_ptxas(text, "sm_80")
    assert list(shared_places(one.loop).values()) == [0, 0] and one.shared_bytes == 4 * 12800
    assert text.count("bar.sync") == 3


def test_one_place_in_memory_that_the_launch_gives():
    one, _, _ = kernel(32768)
    assert list(shared_places(one.loop).values()) == [0, 0] and one.dynamic_shared == 4 * 32768


def test_buffers_of_one_time():
    one, _, _ = kernel(12800, "S[v]")
    assert sorted(shared_places(one.loop).values()) == [0, 4 * 12800] and one.dynamic_shared == 8 * 12800


def test_small_buffers_stay():
    one, text, _ = kernel(2048)
    assert len(set(shared_places(one.loop).values())) == 2 and text.count("bar.sync") == 2


@pytest.mark.parametrize("late", ["T.float32(0)", "S[v]"])
def test_results(late):
    _, _, text = kernel(12800, late)
    a, b, c = np.arange(12800, dtype="float32"), np.empty(12800, "float32"), np.empty(12800, "float32")
    tw.build(parse(text), "gpu-sim")(a, b, c)
    assert (b == a[::-1]).all() and (c == 2 * a[::-1] + (a if late != "T.float32(0)" else 0)).all()
