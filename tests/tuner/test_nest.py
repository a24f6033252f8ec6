"""The cache model: traffic in closed form agrees with what counting by hand gives."""

import numpy as np
import pytest

from tilewright.tuner.cost.loop_nest import Nest, NestAccess, NestLoop


def one(value):
    return np.array([float(value)])


def matmul(n, tile_rows, tile_columns):
    """n x n x n, tiles of rows x columns, the whole reduction inside."""
    loops = [
        NestLoop("j", one(tile_columns)), NestLoop("i", one(tile_rows)), NestLoop("k", one(16)), NestLoop("k", one(n // 16)),
        NestLoop("i", one(n // tile_rows)), NestLoop("j", one(n // tile_columns)),
    ]  # fmt: skip
    accesses = [
        NestAccess(({"i": 1}, {"k": 1}), 4),
        NestAccess(({"k": 1}, {"j": 1}), 4),
        NestAccess(({"i": 1}, {"j": 1}), 4, write=True),
    ]
    return Nest(loops, accesses, {"i": n, "j": n, "k": n}, 1)


def test_what_fits_but_for_the_operands_crosses_once():
    nest = matmul(512, 8, 16)
    expected = 512 * 512 * 4 * (1 + 1 + 2)  # the result is read and written
    assert nest.traffic(2.8 * 2**20)[0] == pytest.approx(expected, rel=0.05)


def test_what_fits_as_a_whole_is_there_from_the_run_before():
    assert matmul(64, 8, 16).traffic(1 << 30)[0] < 1.0


def test_the_traffic_of_one_access():
    nest = matmul(512, 8, 16)
    parts = [nest.traffic(2.8 * 2**20, only=n)[0] for n in range(3)]
    assert sum(parts) == pytest.approx(nest.traffic(2.8 * 2**20)[0], rel=0.01)
    assert parts[2] == pytest.approx(2 * parts[1], rel=0.1)


def test_a_cache_that_holds_a_panel_reads_it_once():
    n = 512
    nest = matmul(n, 8, 16)
    panel = n * 16 * 4
    small, large = nest.traffic(8 * panel)[0], nest.traffic(2.8 * 2**20)[0]
    assert large == pytest.approx(4 * n * n * 4, rel=0.05)
    assert small == pytest.approx((32 + 1 + 2) * 4 * n * n, rel=0.05)  # the left operand once per panel


def test_traffic_never_grows_with_the_cache():
    nest = matmul(256, 8, 32)
    traffic = [nest.traffic(float(size))[0] for size in (1 << 10, 1 << 13, 1 << 15, 1 << 18, 1 << 22, 1 << 26)]
    assert all(a >= b * 0.999 for a, b in zip(traffic, traffic[1:], strict=False))


def test_strides_cost_lines():
    loops = [NestLoop("i", one(64))]
    contiguous = Nest(loops, [NestAccess(({"i": 1},), 4)], {"i": 64}, 1)
    strided = Nest(loops, [NestAccess(({"i": 1}, {}), 4)], {"i": 64}, 1)
    assert contiguous.working_set[-1][0] == 4 * 64
    assert strided.working_set[-1][0] == 64 * 64
