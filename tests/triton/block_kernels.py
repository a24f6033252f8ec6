"""Kernels of the tutorials in our own words; the oracle's process reads this file too, with Triton's own package."""

try:
    import tilewright.triton as triton
    import tilewright.triton.language as tl
except ImportError:  # the oracle's process
    import triton
    import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def softmax(out_ptr, in_ptr, in_stride, out_stride, rows, columns, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=num_stages):
        places = tl.arange(0, BLOCK)
        mask = places < columns
        x = tl.load(in_ptr + row * in_stride + places, mask=mask, other=-float("inf"))
        powers = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_stride + places, powers / tl.sum(powers, axis=0), mask=mask)


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, a_row, a_column, b_row, b_column, c_row, c_column,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * tiles_n
    first = pid // in_group * GROUP
    height = min(tiles_m - first, GROUP)
    tile_m = first + (pid % in_group) % height
    tile_n = (pid % in_group) // height
    rows = (tile_m * BM + tl.arange(0, BM)) % M
    columns = (tile_n * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    a_ptrs = a_ptr + (rows[:, None] * a_row + inner[None, :] * a_column)
    b_ptrs = b_ptr + (inner[:, None] * b_row + columns[None, :] * b_column)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=inner[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=inner[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK * a_column
        b_ptrs += BK * b_row
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc)
    out_rows = tile_m * BM + tl.arange(0, BM)
    out_columns = tile_n * BN + tl.arange(0, BN)
    places = c_ptr + c_row * out_rows[:, None] + c_column * out_columns[None, :]
    tl.store(places, acc.to(c_ptr.dtype.element_ty), mask=(out_rows[:, None] < M) & (out_columns[None, :] < N))


@triton.jit
def reductions(
    x_ptr, sum_ptr, max_ptr, place_ptr, min_ptr, low_ptr, column_ptr, xor_ptr, i_ptr, N: tl.constexpr, M: tl.constexpr
):
    rows, columns = tl.arange(0, N), tl.arange(0, M)
    x = tl.load(x_ptr + rows[:, None] * M + columns[None, :])
    i = tl.load(i_ptr + rows[:, None] * M + columns[None, :])
    tl.store(sum_ptr + rows, tl.sum(x, axis=1))
    tl.store(max_ptr + rows, tl.max(x, 1))
    tl.store(place_ptr + rows, tl.argmax(x, axis=1))
    tl.store(min_ptr + columns, tl.min(x, axis=0))
    tl.store(low_ptr + columns, tl.argmin(x, axis=0))
    tl.store(column_ptr + columns, tl.sum(x, axis=0))
    tl.store(xor_ptr, tl.sum(tl.xor_sum(i, axis=0), axis=0))


@triton.jit
def elements(x_ptr, y_ptr, i_ptr, out_ptr, int_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=1.0)
    y = tl.load(y_ptr + at, mask=mask, other=1.0)
    i = tl.load(i_ptr + at, mask=mask, other=0)
    z = tl.exp(-tl.abs(x)) + tl.sqrt(tl.abs(y)) - tl.minimum(x, y) * tl.maximum(x, 0.5) + tl.sigmoid(x) + tl.sin(y) / 3
    z = tl.where((x < y) & (i % 3 == 0), z, -z) + i
    tl.store(out_ptr + at, z, mask=mask)
    j = (i * 1103515245 + 12345) ^ (i >> 3)
    j = j // 7 + j % 11 + (i.to(tl.int8) << 2).to(tl.int32) + (x < y).to(tl.int32)
    tl.store(int_ptr + at, j, mask=mask)


@triton.jit
def control(x_ptr, out_ptr, count_ptr, n, limit, BLOCK: tl.constexpr, MODE: tl.constexpr):
    pid = tl.program_id(0)
    if pid * BLOCK >= n:
        return
    at = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    total = tl.abs(tl.sum(x, axis=0))
    steps = 0
    while total < limit:
        total = total * 2 + 1
        steps += 1
    before, after = 0.0, 1.0
    for k in range(5):
        before, after = after, before + after + k
    if steps > 3:
        x = x + total
        kind = 1
    else:
        x = x - total
        kind = 2
    if MODE == "twice":
        for _ in tl.static_range(2):
            x += before
    tl.store(out_ptr + at, x + after, mask=at < n)
    tl.store(count_ptr + pid, steps * 10 + kind)


@triton.jit
def reversed_in_place(x_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    tl.store(x_ptr + (SIZE - 1 - at), x)
    tl.store(x_ptr + at, tl.load(x_ptr + at) + x)


@triton.jit
def gathered(x_ptr, index_ptr, out_ptr, n, ROWS: tl.constexpr, SIZE: tl.constexpr):
    columns = tl.arange(0, SIZE)
    rows = tl.arange(0, ROWS)
    index = tl.load(index_ptr + rows)
    block = tl.load(x_ptr + index[:, None] * SIZE + columns[None, :])
    turned = tl.reshape(tl.trans(block), (ROWS, SIZE))
    tl.store(out_ptr + rows[:, None] * SIZE + columns[None, :], turned + tl.broadcast_to(index[:, None], (ROWS, SIZE)))
