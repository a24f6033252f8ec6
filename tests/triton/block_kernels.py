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


@triton.jit
def larger_first(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def affine(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def combined(x_ptr, i_ptr, out_ptr, all_ptr, scan_ptr, sum_ptr, int_ptr, pair_ptr, N: tl.constexpr, M: tl.constexpr):
    rows, columns = tl.arange(0, N), tl.arange(0, M)
    places = rows[:, None] * M + columns[None, :]
    x = tl.load(x_ptr + places)
    i = tl.load(i_ptr + places)
    tl.store(out_ptr + rows, tl.reduce(x, 1, larger_first))
    tl.store(all_ptr + tl.arange(0, 1), tl.reduce(tl.reduce(x, 0, larger_first, keep_dims=True), 1, larger_first))
    tl.store(scan_ptr + places, tl.associative_scan(x, 1, larger_first, reverse=True))
    tl.store(sum_ptr + places, tl.cumsum(x, 0) + tl.cumprod(x * 0.5, axis=1))
    tl.store(int_ptr + places, tl.cumsum(i, axis=1, reverse=True))
    slope, height = tl.associative_scan((x, x + 1), 1, affine)
    tl.store(pair_ptr + places, slope - height)


@triton.jit
def shuffled(x_ptr, y_ptr, out_ptr, twice_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    both = tl.join(x, y)
    a, b = tl.split(tl.permute(tl.reshape(both, (2, N // 2, 2)), (1, 2, 0)))
    tl.store(out_ptr + tl.arange(0, N), tl.ravel(a - b))
    tl.store(twice_ptr + tl.arange(0, 2 * N), tl.interleave(x, y) + tl.cat(x, y, can_reorder=True))
    tl.store(out_ptr + at + N, tl.flip(x) + tl.fma(x, y, x))


@triton.jit
def dropout(x_ptr, out_ptr, int_ptr, normal_ptr, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    kept = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(kept, x / (1 - p), 0.0), mask=mask)
    tl.store(int_ptr + offsets, tl.randint(seed, offsets), mask=mask)
    a, b, c, d = tl.randint4x(seed, offsets)
    tl.store(
        normal_ptr + offsets, tl.randn(seed, offsets) + (a ^ b ^ c ^ d).to(tl.int32, bitcast=True) * 1e-9, mask=mask
    )


@triton.jit
def counted(i_ptr, count_ptr, old_ptr, ends_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    i = tl.load(i_ptr + at, mask=mask, other=0)
    old = tl.atomic_add(count_ptr + (i & 7), 1, mask=mask)
    tl.store(old_ptr + at, old, mask=mask)
    tl.atomic_max(ends_ptr, tl.max(i, axis=0))
    tl.atomic_min(ends_ptr + 1, tl.min(i, axis=0))
    tl.atomic_xor(ends_ptr + 2, tl.xor_sum(i, axis=0))
    tl.atomic_or(ends_ptr + 3 + (i & 1), i & 255, mask=mask)
    tl.atomic_and(ends_ptr + 5 + (i & 1), i | 255, mask=mask)


@triton.jit
def locked_sums(x_ptr, sum_ptr, lock_ptr, count_ptr, n, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    x = tl.load(x_ptr + pid * n + columns, mask=mask, other=0.0)
    group = pid % GROUPS
    lock, count = lock_ptr + group, count_ptr + group
    places = sum_ptr + group * n + columns
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        x += tl.load(places, mask=mask)
    tl.store(places, x, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def windows(x_ptr, out_ptr, rows, columns, stride, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[rows, columns], strides=[stride, 1], block_shape=[BM, BN])
    out = tl.make_tensor_descriptor(out_ptr, [columns, rows], [rows, 1], [BN, BM])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    tile = x.load([i, j]) + x.load([i - 3, j + 4])
    out.store([j, i], tile.T)


@triton.jit
def norm_forward(x_ptr, out_ptr, w_ptr, b_ptr, mean_ptr, scale_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    out_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)
        x = tl.where(columns < n, x - mean, 0.0)
        squares += x * x
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(scale_ptr + row, scale)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < n
        w, b = tl.load(w_ptr + columns, mask=mask), tl.load(b_ptr + columns, mask=mask)
        x = tl.load(x_ptr + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + columns, (x - mean) * scale * w + b, mask=mask)


@triton.jit
def norm_backward(
    dx_ptr, dy_ptr, dw_ptr, db_ptr, x_ptr, w_ptr, mean_ptr, scale_ptr, lock_ptr, stride, n,
    GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    x_ptr += row * stride
    dy_ptr += row * stride
    dx_ptr += row * stride
    group = row % GROUPS
    lock_ptr += group
    count_ptr = lock_ptr + GROUPS
    dw_ptr = dw_ptr + group * n + columns
    db_ptr = db_ptr + group * n + columns
    x = tl.load(x_ptr + columns, mask=mask, other=0).to(tl.float32)
    dy = tl.load(dy_ptr + columns, mask=mask, other=0).to(tl.float32)
    w = tl.load(w_ptr + columns, mask=mask).to(tl.float32)
    mean, scale = tl.load(mean_ptr + row), tl.load(scale_ptr + row)
    normal = tl.where(mask, (x - mean) * scale, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    along = tl.sum(normal * wdy, axis=0) / n
    shift = tl.sum(wdy, axis=0) / n
    tl.store(dx_ptr + columns, (wdy - (normal * along + shift)) * scale, mask=mask)
    part_w = (dy * normal).to(w.dtype)
    part_b = dy.to(w.dtype)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    if tl.load(count_ptr) == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        part_w += tl.load(dw_ptr, mask=mask)
        part_b += tl.load(db_ptr, mask=mask)
    tl.store(dw_ptr, part_w, mask=mask)
    tl.store(db_ptr, part_b, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def norm_weights(dw_ptr, out_ptr, m, n, BM: tl.constexpr, BN: tl.constexpr):
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, m, BM):
        rows = i + tl.arange(0, BM)
        mask = (rows[:, None] < m) & (columns[None, :] < n)
        total += tl.load(dw_ptr + rows[:, None] * n + columns[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + columns, tl.sum(total, axis=0), mask=columns < n)


@triton.jit
def attention_stage(
    acc, most, total, q, k_ptr, v_ptr, start_m, scale, length,
    HEAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STAGE: tl.constexpr, rows, columns,
):  # fmt: skip
    if STAGE == 1:
        low, high = 0, start_m * BM
    elif STAGE == 2:
        low, high = start_m * BM, (start_m + 1) * BM
        low = tl.multiple_of(low, BM)
    else:
        low, high = 0, length
    width = tl.arange(0, HEAD)
    for start in tl.range(low, high, BN, num_stages=2, warp_specialize=False):
        start = tl.multiple_of(start, BN)
        at = start + columns
        k = tl.load(k_ptr + at[:, None] * HEAD + width[None, :]).T
        products = tl.dot(q, k)
        if STAGE == 2:
            mask = rows[:, None] >= at[None, :]
            products = products * scale + tl.where(mask, 0, -1.0e6)
            newer = tl.maximum(most, tl.max(products, 1))
            products -= newer[:, None]
        else:
            newer = tl.maximum(most, tl.max(products, 1) * scale)
            products = products * scale - newer[:, None]
        p = tl.math.exp2(products)
        alpha = tl.math.exp2(most - newer)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptr + at[:, None] * HEAD + width[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc)
        total = total * alpha + tl.sum(p, 1)
        most = newer
    return acc, total, most


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, scale, length,
    HEAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    tl.static_assert(BN <= HEAD * 4)
    start_m, head = tl.program_id(0), tl.program_id(1)
    base = head * length * HEAD
    rows = start_m * BM + tl.arange(0, BM)
    columns = tl.arange(0, BN)
    places = base + rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    most = tl.zeros([BM], dtype=tl.float32) - float("inf")
    total = tl.zeros([BM], dtype=tl.float32) + 1.0
    acc = tl.zeros([BM, HEAD], dtype=tl.float32)
    q = tl.load(q_ptr + places)
    by = scale * 1.44269504
    if STAGE & 1:
        acc, total, most = attention_stage(
            acc, most, total, q, k_ptr + base, v_ptr + base, start_m, by, length, HEAD, BM, BN, 4 - STAGE, rows, columns
        )
    if STAGE & 2:
        acc, total, most = attention_stage(
            acc, most, total, q, k_ptr + base, v_ptr + base, start_m, by, length, HEAD, BM, BN, 2, rows, columns
        )
    most += tl.math.log2(total)
    acc = acc / total[:, None]
    tl.store(lse_ptr + head * length + rows, most)
    tl.store(out_ptr + places, acc.to(out_ptr.dtype.element_ty))


@triton.jit
def grouped_products(
    a_ptr, b_ptr, c_ptr, sizes_ptr, starts_ptr, groups, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    end = 0
    for g in range(groups):
        m, n, k = tl.load(sizes_ptr + g * 3), tl.load(sizes_ptr + g * 3 + 1), tl.load(sizes_ptr + g * 3 + 2)
        tiles_n = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * tiles_n
        while tile >= end and tile < end + tiles:
            a = a_ptr + tl.load(starts_ptr + g * 3)
            b = b_ptr + tl.load(starts_ptr + g * 3 + 1)
            c = c_ptr + tl.load(starts_ptr + g * 3 + 2)
            own = tile - end
            rows = own // tiles_n * BM + tl.arange(0, BM)
            columns = own % tiles_n * BN + tl.arange(0, BN)
            inner = tl.arange(0, BK)
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for step in range(0, tl.cdiv(k, BK)):
                left = step * BK + inner
                x = tl.load(
                    a + rows[:, None] * k + left[None, :], mask=(rows[:, None] < m) & (left[None, :] < k), other=0.0
                )
                y = tl.load(
                    b + left[:, None] * n + columns[None, :],
                    mask=(left[:, None] < k) & (columns[None, :] < n),
                    other=0.0,
                )
                acc += tl.dot(x, y)
            inside = (rows[:, None] < m) & (columns[None, :] < n)
            tl.store(c + rows[:, None] * n + columns[None, :], acc.to(c_ptr.dtype.element_ty), mask=inside)
            tile += PROGRAMS
        end = end + tiles


@triton.jit
def tile_place(tile, in_group, tiles_m, GROUP: tl.constexpr):
    first = tile // in_group * GROUP
    height = min(tiles_m - first, GROUP)
    return first + tile % height, (tile % in_group) // height


@triton.jit
def persistent_matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    a = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN // 2 if HALVES else BN])
    for tile in tl.range(start, tiles_m * tiles_n, PROGRAMS, flatten=True):
        m, n = tile_place(tile, GROUP * tiles_n, tiles_m, GROUP)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            acc = tl.dot(a.load([m * BM, k * BK]), b.load([n * BN, k * BK]).T, acc)
        if HALVES:
            both = tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1))
            first, second = tl.split(both)
            c.store([m * BM, n * BN], first.to(c_ptr.dtype.element_ty))
            c.store([m * BM, n * BN + BN // 2], second.to(c_ptr.dtype.element_ty))
        else:
            c.store([m * BM, n * BN], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def kind_of(x, low):
    if x < low:
        if x < 2 * low:
            return 0
        x += 1
    elif x > 8:
        return 1
    return (x * 10).to(tl.int32)


@triton.jit
def left_early(x_ptr, out_ptr, int_ptr, n, limit, BLOCK: tl.constexpr, STOP: tl.constexpr):
    pid = tl.program_id(0)
    row = x_ptr + pid * n
    total, passes = tl.zeros((BLOCK,), tl.float32), 0
    places = row + tl.arange(0, BLOCK)
    for k in range(0, n, BLOCK):
        x = tl.load(places, mask=k + tl.arange(0, BLOCK) < n, other=0.0)
        places += BLOCK
        if tl.max(x, axis=0) > limit:
            passes += 100
            break
        passes += 1
        if passes == STOP:
            continue
        if k // BLOCK == 1:
            total += 1
        total += x
    tl.store(out_ptr + pid * BLOCK + tl.arange(0, BLOCK), total)
    inside = tl.load(places - BLOCK, mask=tl.arange(0, BLOCK) < 1, other=0.0)
    tl.store(int_ptr + pid * 4, passes)
    tl.store(int_ptr + pid * 4 + 1, kind_of(tl.sum(inside, axis=0), -1.0))
    at = 0
    while True:
        if at >= n:
            break
        at += 1
        if tl.load(row + at - 1) < 0:
            if at % 2 == 0:
                continue
            passes += 7
        passes += 3
    tl.store(int_ptr + pid * 4 + 2, passes * 1000 + at)
    for m in range(10, 0, -3):
        for j in range(m):
            if tl.load(row + j) > limit:
                return
            if j == 4:
                break
            passes += j
        passes += 1
        if passes > 2000:
            continue
        for i in tl.static_range(4):
            if i == 2:
                break
            if passes % 3 == i:
                break
            passes += 50
    tl.store(int_ptr + pid * 4 + 3, passes)


@triton.jit
def ordered(
    x_ptr,
    sorted_ptr,
    down_ptr,
    top_ptr,
    low_ptr,
    one_ptr,
    merged_ptr,
    N: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
):
    rows, columns, first = tl.arange(0, N), tl.arange(0, M), tl.arange(0, K)
    x = tl.load(x_ptr + rows[:, None] * M + columns[None, :])
    tl.store(sorted_ptr + rows[:, None] * M + columns[None, :], tl.sort(x))
    tl.store(down_ptr + columns, tl.sort(tl.sum(x, axis=0).to(x.dtype), descending=True))
    tl.store(top_ptr + rows[:, None] * K + first[None, :], tl.topk(x, K))
    tl.store(low_ptr + rows[:, None] * K + first[None, :], tl.topk(x * 2, K, descending=False))
    tl.store(one_ptr + rows, tl.squeeze(tl.topk(x, 1), 1))
    both = tl.cat(tl.sort(tl.max(x, axis=0)), tl.sort(tl.min(x, axis=0), descending=True), can_reorder=True)
    tl.store(merged_ptr + tl.arange(0, 2 * M), tl.bitonic_merge(both))


@triton.jit
def picked(x_ptr, i_ptr, out_ptr, count_ptr, swizzled_ptr, n, N: tl.constexpr, M: tl.constexpr, B: tl.constexpr):
    rows, columns = tl.arange(0, N), tl.arange(0, M)
    x = tl.load(x_ptr + rows[:, None] * M + columns[None, :])
    i = tl.load(i_ptr + rows[:, None] * M + columns[None, :])
    across = tl.gather(x, tl.gather(i, columns[None, :] * 0 + rows[:, None], 1) & (M - 1), 1)
    pid = tl.program_id(0)
    tl.store(out_ptr + pid * N * M + rows[:, None] * M + columns[None, :], across + tl.gather(x * x, i % N, 0))
    flat = tl.ravel(i) - 3
    counts = tl.histogram(flat, B) * 1000 + tl.histogram(flat, B, mask=tl.arange(0, N * M) < n)
    tl.store(count_ptr + pid * B + tl.arange(0, B), counts + tl.reduce_or(flat, 0))
    a, b = tl.swizzle2d(pid, rows, 5, N, 2)
    place = swizzled_ptr + pid * N + rows
    tl.store(place, tl.add(tl.mul(a, 100), tl.squeeze(tl.unsqueeze(b, 0), 0)))
