"""Operations on fragments: the numbers of each thread are those of the PTX manual, and what does not fit is refused."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.backend.emitter import EmitError
from tilewright.gpu import GpuError
from tilewright.tir.expr import BufferLoad, Ramp, const
from tilewright.tir.expr.intrinsics.warp_fragments import exchanged_rows, ldmatrix, ldmatrix_t, mma, warps_products
from tilewright.tir.parser import parse
from tilewright.tir.stmt import decl_buffer

KERNEL = """
@T.prim_func
def main(A: T.Buffer((256,), "float16"), B: T.Buffer((256,), "float16")):
    S = T.decl_buffer((SIZE,), "float16", scope="shared")
    for t in T.thread_binding(32, thread="threadIdx.x"):
        R = T.decl_buffer((8,), "float16", scope="local")
        if t < FEW:
            S[t] = A[t]
        for v in range(8):
            S[START + (t + 1) % 32 * 8 + v] = A[(t + 1) % 32 * 8 + v]
        GUARD
            R[0:8] = T.OPERATION(S[START + t * 8:START + t * 8 + 8])
        for v in range(8):
            B[t * 8 + v] = R[v]
"""


def kernel(operation="ldmatrix", start=0, guard="for once in range(1):"):
    places = {"OPERATION": operation, "START": start, "FEW": start, "SIZE": 256 + start}
    text = KERNEL
    for word, place in places.items():
        text = text.replace(word, str(place))
    return parse(text.replace("GUARD", guard))


@pytest.mark.parametrize("operation", ["ldmatrix", "ldmatrix_t"])
def test_each_thread_gets_its_numbers(operation):
    a, b = np.arange(256, dtype="float16"), np.zeros(256, "float16")
    tw.build(kernel(operation), "gpu-sim")(a, b)
    for lane in range(32):
        for n in range(8):
            matrix = a.reshape(4, 8, 8)[n // 2]
            matrix = matrix.T if operation == "ldmatrix_t" else matrix
            assert b[lane * 8 + n] == matrix[lane // 4, lane % 4 * 2 + n % 2]


def test_a_barrier_stands_before_rows_of_others():
    text = tw.build(kernel(), "gpu-sim").get_source("lowered")
    assert text.index("tvm_storage_sync") < text.index("T.ldmatrix")


def test_part_of_a_warp_is_an_error():
    with pytest.raises(GpuError, match="not all threads of a warp take part"):
        tw.build(kernel(guard="if t < 16:"), "gpu-sim")(np.ones(256, "float16"), np.ones(256, "float16"))


def test_rows_begin_at_multiples_of_sixteen_bytes():
    with pytest.raises(EmitError, match="multiples of 16 bytes"):
        tw.build(kernel(start=4), "cuda -arch=sm_80").get_source("ptx")
    assert "ldmatrix.sync" in tw.build(kernel(), "cuda -arch=sm_80").get_source("ptx")
    with pytest.raises(EmitError, match="ldmatrix needs -arch=sm_80"):
        tw.build(kernel(), "cuda -arch=sm_75").get_source("ptx")


@pytest.mark.parametrize("dtype, width", [("float16", 2), ("int8", 4)])
def test_products_of_fragments(dtype, width):
    """The fragments that ``ldmatrix`` makes of rows give the product of the matrices."""
    rng = np.random.default_rng(width)
    a, b = rng.integers(-8, 9, (16, 8 * width)), rng.integers(-8, 9, (16, 8 * width))
    pieces = [
        np.stack([x[first + lane % 8, 4 * width * half :][: 4 * width] for first, half, lane in order])
        for x, order in (
            (a, [(8 * (lane // 8 % 2), lane // 16, lane) for lane in range(32)]),
            (b, [(8 * (lane // 16), lane // 8 % 2, lane) for lane in range(32)]),
        )
    ]
    left, right = [exchanged_rows(x, False) for x in pieces]
    kind = np.float32 if dtype == "float16" else np.int32
    want = a @ b.T
    for half in (0, 1):
        found = warps_products(np.ones((32, 4), kind), left, right[:, 2 * width * half :][:, : 2 * width])
        for lane in range(32):
            for n in range(4):
                row, column = lane // 4 + 8 * (n // 2), lane % 4 * 2 + n % 2
                assert found[lane, n] == want[row, column + 8 * half] + 1


def test_what_does_not_fit_is_refused():
    def vector(dtype, count):
        return BufferLoad(decl_buffer((64,), dtype, "X"), (Ramp(const(0), const(1), count),))

    good = vector("float32", 4), vector("float16", 8), vector("float16", 4)
    assert mma(*good).dtype == "float32x4"
    for bad in ((good[0], good[1], good[1]), (vector("int32", 4), *good[1:]), (good[0], vector("float32", 4), good[2])):
        with pytest.raises(TypeError, match="mma takes fragments"):
            mma(*bad)
    with pytest.raises(TypeError, match="ldmatrix takes a row of 16 bytes"):
        ldmatrix(vector("float16", 4))
    with pytest.raises(TypeError, match="ldmatrix_t takes a row of 16 bytes"):
        ldmatrix_t(vector("int8", 16))
    with pytest.raises(TypeError, match="a row from a buffer"):
        ldmatrix(good[1] + good[1])
