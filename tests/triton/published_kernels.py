"""Kernels in the forms in which projects publish them, in our own words; the oracle's process reads this file too."""

try:
    import tilewright.triton as triton
    import tilewright.triton.language as tl
except ImportError:  # the oracle's process
    import triton
    import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
NEGATIVE: tl.constexpr = tl.constexpr(-1e30)


@triton.jit
def rms_norm_forward(y_ptr, y_stride, x_ptr, x_stride, w_ptr, rstd_ptr, n, eps, offset, CASTING: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < n
    y_ptr += row * y_stride
    x_ptr += row * x_stride
    x = tl.load(x_ptr + at, mask=mask, other=0)
    kind = x.dtype
    w = tl.load(w_ptr + at, mask=mask, other=0)
    if CASTING == "llama":
        x = x.to(tl.float32)
    elif CASTING == "gemma":
        w = w.to(tl.float32)
        x = x.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n + eps)
    tl.store(rstd_ptr + row, rstd)
    x = x * rstd
    if CASTING == "llama":
        x = x.to(kind)
    y = x * (offset + w)
    if CASTING == "gemma":
        y = y.to(kind)
    tl.store(y_ptr + at, y, mask=mask)


@triton.jit
def rms_norm_backward(dy_ptr, dx_ptr, x_ptr, w_ptr, rstd_ptr, dw_ptr, stride, rows, n, per_program, BLOCK: tl.constexpr):  # fmt: skip
    part = tl.program_id(0)
    first = part * per_program
    last = min((part + 1) * per_program, rows)
    at = tl.arange(0, BLOCK)
    mask = at < n
    dw = tl.zeros((BLOCK,), dtype=tl.float32)
    w = tl.load(w_ptr + at, mask=mask, other=0.0)
    dy_ptr += first * stride
    x_ptr += first * stride
    dx_ptr += first * stride
    rstd_ptr += first
    for _ in range(first, last):
        dy = tl.load(dy_ptr + at, mask=mask, other=0.0)
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr)
        m = dy * w
        dx = rstd * m
        dx += rstd * (-(1 / n) * rstd * rstd * tl.sum(m * x, axis=0) * x)
        dw += dy * (x * rstd)
        tl.store(dx_ptr + at, dx, mask=mask)
        dy_ptr += stride
        x_ptr += stride
        dx_ptr += stride
        rstd_ptr += 1
    tl.store(dw_ptr + part * n + at, dw, mask=mask)


@triton.jit
def online_cross_entropy(x_ptr, stride, y_ptr, loss_ptr, lse_ptr, classes, ignored, smoothing, HAS_SMOOTHING: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(y_ptr + row)
    x_ptr += row * stride
    if y == ignored:
        for i in range(0, classes, BLOCK):
            at = i + tl.arange(0, BLOCK)
            tl.store(x_ptr + at, 0.0, mask=at < classes)
        tl.store(loss_ptr + row, 0.0)
        return
    m = float("-inf")
    d = 0.0
    smooth = 0.0
    x_y = tl.load(x_ptr + y).cast(tl.float32)
    eps = smoothing / classes
    for i in range(0, classes, BLOCK):
        at = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < classes, other=float("-inf")).cast(tl.float32)
        top = tl.max(x)
        if HAS_SMOOTHING:
            smooth += tl.sum(tl.where(at < classes, -eps * x, 0.0))
        m_new = tl.maximum(m, top)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new))
        m = m_new
    lse = m + tl.log(d)
    for i in range(0, classes, BLOCK):
        at = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < classes, other=float("-inf")).cast(tl.float32)
        p = tl.exp(x - m) / d
        if HAS_SMOOTHING:
            p += -eps
        p = tl.where(at != y, p, p - (1 - smoothing))
        tl.store(x_ptr + at, p, mask=at < classes)
    tl.debug_barrier()
    loss = lse - x_y
    if HAS_SMOOTHING:
        loss = loss * (1 - smoothing) + smooth + smoothing * lse
    tl.store(loss_ptr + row, loss)
    if lse_ptr is not None:
        tl.store(lse_ptr + row, lse)


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu(a_ptr, b_ptr, c_ptr, stride, n: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    a_ptr += row * stride
    b_ptr += row * stride
    c_ptr += row * stride
    at = tl.arange(0, BLOCK)
    mask = at < n
    a = tl.load(a_ptr + at, mask=mask, other=0).to(tl.float32)
    b = tl.load(b_ptr + at, mask=mask, other=0)
    tl.store(c_ptr + at, silu(a).cast(b.dtype) * b, mask=mask)


@triton.jit
def geglu_backward(dc_ptr, a_ptr, b_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    dc = tl.load(dc_ptr + at, mask=mask, other=0)
    a = tl.load(a_ptr + at, mask=mask, other=0).to(tl.float32)
    b = tl.load(b_ptr + at, mask=mask, other=0)
    f = 0.5 * (tl.math.erf(tl.math.rsqrt(2.0) * a) + 1.0)
    h = f * a
    dh = f + 0.3989422804014327 * a * tl.exp(-0.5 * a * a)
    tl.store(dc_ptr + at, h * b, mask=mask)
    tl.store(a_ptr + at, dc * h, mask=mask)
    tl.store(b_ptr + at, dc * b * dh, mask=mask)


@triton.jit
def rope(q_ptr, q_row, k_ptr, k_row, cos_ptr, cos_row, sin_ptr, sin_row, length, QH: tl.constexpr, KH: tl.constexpr, HEAD: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr, PH: tl.constexpr, BACKWARD: tl.constexpr = False):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    q_ptr = q_ptr + pid * q_row
    k_ptr = k_ptr + pid * k_row
    place = pid % length
    half = tl.arange(0, PH // 2)
    half_mask = half < HEAD // 2
    cos = tl.load(cos_ptr + place * cos_row + half, mask=half_mask, other=0)
    sin = tl.load(sin_ptr + place * sin_row + half, mask=half_mask, other=0)
    q_at = tl.arange(0, PQ)[:, None] * HEAD + tl.arange(0, PH // 2)[None, :]
    k_at = tl.arange(0, PK)[:, None] * HEAD + tl.arange(0, PH // 2)[None, :]
    q_mask = (tl.arange(0, PQ)[:, None] < QH) & (tl.arange(0, PH // 2)[None, :] < HEAD // 2)
    k_mask = (tl.arange(0, PK)[:, None] < KH) & (tl.arange(0, PH // 2)[None, :] < HEAD // 2)
    q1 = tl.load(q_ptr + q_at, mask=q_mask, other=0).to(sin.dtype)
    k1 = tl.load(k_ptr + k_at, mask=k_mask, other=0).to(sin.dtype)
    q_at2 = q_at + (HEAD // 2)
    k_at2 = k_at + (HEAD // 2)
    q2 = tl.load(q_ptr + q_at2, mask=q_mask, other=0).to(sin.dtype)
    k2 = tl.load(k_ptr + k_at2, mask=k_mask, other=0).to(sin.dtype)
    if not BACKWARD:
        tl.store(q_ptr + q_at, q1 * cos - q2 * sin, mask=q_mask)
        tl.store(q_ptr + q_at2, q2 * cos + q1 * sin, mask=q_mask)
        tl.store(k_ptr + k_at, k1 * cos - k2 * sin, mask=k_mask)
        tl.store(k_ptr + k_at2, k2 * cos + k1 * sin, mask=k_mask)
    else:
        tl.store(q_ptr + q_at, q1 * cos + q2 * sin, mask=q_mask)
        tl.store(q_ptr + q_at2, q2 * cos - q1 * sin, mask=q_mask)
        tl.store(k_ptr + k_at, k1 * cos + k2 * sin, mask=k_mask)
        tl.store(k_ptr + k_at2, k2 * cos - k1 * sin, mask=k_mask)


@triton.jit
def attention_pass(acc, l_i, m_i, q, k_ptrs, v_ptrs, k_step, v_step, low, high, limit, scale, rows, BN: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    columns = tl.arange(0, BN)
    for start in range(low, high, BN):
        start = tl.multiple_of(start, BN)
        k = tl.load(k_ptrs + start * k_step, mask=(start + columns)[None, :] < limit, other=0.0)
        s = tl.dot(q, k) * (scale * LOG2E)
        if MASKED:
            s = tl.where(
                (rows[:, None] >= (start + columns)[None, :]) & ((start + columns)[None, :] < limit), s, NEGATIVE
            )
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.math.exp2(s - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptrs + start * v_step, mask=(start + columns)[:, None] < limit, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def varlen_attention(q_ptr, k_ptr, v_ptr, o_ptr, starts_ptr, scale, q_row, q_head, k_row, k_head, GROUP: tl.constexpr, HEAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    block, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = tl.load(starts_ptr + sequence)
    length = tl.load(starts_ptr + sequence + 1) - first
    if block * BM >= length:
        return
    kv_head = head // GROUP
    rows, d, columns = block * BM + tl.arange(0, BM), tl.arange(0, HEAD), tl.arange(0, BN)
    q = tl.load(
        q_ptr + (first + rows)[:, None] * q_row + head * q_head + d[None, :], mask=rows[:, None] < length, other=0.0
    )
    k_ptrs = k_ptr + (first + columns)[None, :] * k_row + kv_head * k_head + d[:, None]
    v_ptrs = v_ptr + (first + columns)[:, None] * k_row + kv_head * k_head + d[None, :]
    m_i = tl.full([BM], float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, HEAD], dtype=tl.float32)
    whole = block * BM // BN * BN
    acc, l_i, m_i = attention_pass(
        acc, l_i, m_i, q, k_ptrs, v_ptrs, k_row, k_row, 0, whole, length, scale, rows, BN, False
    )
    end = tl.minimum((block + 1) * BM, length)
    acc, l_i, m_i = attention_pass(
        acc, l_i, m_i, q, k_ptrs, v_ptrs, k_row, k_row, whole, end, length, scale, rows, BN, True
    )
    acc = acc / l_i[:, None]
    tl.store(
        o_ptr + (first + rows)[:, None] * q_row + head * q_head + d[None, :],
        acc.to(o_ptr.dtype.element_ty),
        mask=rows[:, None] < length,
    )


@triton.jit
def paged_attention(out_ptr, q_ptr, k_cache, v_cache, tables_ptr, lens_ptr, scale, table_stride, block_stride, token_stride, head_stride, QPKV: tl.constexpr, PQ: tl.constexpr, PAGE: tl.constexpr, HEAD: tl.constexpr, KV_HEADS: tl.constexpr, SOFTCAP: tl.constexpr):  # fmt: skip
    sequence, kv_head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lens_ptr + sequence)
    if length == 0:
        return
    heads = kv_head * QPKV + tl.arange(0, PQ)
    head_mask = tl.arange(0, PQ) < QPKV
    d = tl.arange(0, HEAD)
    q_at = sequence * (KV_HEADS * QPKV * HEAD) + heads[:, None] * HEAD + d[None, :]
    q = tl.load(q_ptr + q_at, mask=head_mask[:, None], other=0.0)
    m = tl.full([PQ], float("-inf"), dtype=tl.float32)
    denominator = tl.full([PQ], 1.0, dtype=tl.float32)
    acc = tl.zeros([PQ, HEAD], dtype=tl.float32)
    for j in range(0, tl.cdiv(length, PAGE)):
        page = tl.load(tables_ptr + sequence * table_stride + j).to(tl.int64)
        tokens = tl.arange(0, PAGE)
        at = page * block_stride + tokens[:, None] * token_stride + kv_head * head_stride + d[None, :]
        valid = j * PAGE + tokens < length
        k = tl.load(k_cache + at, mask=valid[:, None], other=0.0, eviction_policy="evict_first")
        v = tl.load(v_cache + at, mask=valid[:, None], other=0.0, eviction_policy="evict_first")
        s = scale * tl.sum(q[:, None, :].to(tl.float32) * k[None, :, :].to(tl.float32), axis=2)
        if SOFTCAP > 0:
            e = tl.exp(2 * (s / SOFTCAP))
            s = SOFTCAP * (e - 1) / (e + 1)
        s = tl.where(head_mask[:, None] & valid[None, :], s, float("-inf"))
        m_j = tl.maximum(m, tl.max(s, axis=1))
        m_j = tl.where(m_j > float("-inf"), m_j, 0.0)
        p = tl.exp(s - m_j[:, None])
        alpha = tl.exp(m - m_j)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        denominator = denominator * alpha + tl.sum(p, axis=1)
        m = m_j
    acc = acc / denominator[:, None]
    tl.store(out_ptr + q_at, acc, mask=head_mask[:, None])


@triton.jit
def reshape_and_cache(key_ptr, value_ptr, k_cache, v_cache, slots_ptr, n, PAGE: tl.constexpr, WIDTH: tl.constexpr):
    token = tl.program_id(axis=0)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot < 0:
        return
    page, inside = slot // PAGE, slot % PAGE
    at = tl.arange(0, WIDTH)
    target = page * PAGE * n + inside * n + at
    tl.store(k_cache + target, tl.load(key_ptr + token * n + at, mask=at < n), mask=at < n)
    tl.store(v_cache + target, tl.load(value_ptr + token * n + at, mask=at < n), mask=at < n)


@triton.jit
def fused_moe(a_ptr, b_ptr, c_ptr, weights_ptr, sorted_ptr, experts_ptr, padded_ptr, N, K, EM, valid, am, ak, be, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, WEIGHTED: tl.constexpr, top_k: tl.constexpr, compute_type: tl.constexpr):  # fmt: skip
    pid = tl.program_id(axis=0)
    pids_m = tl.cdiv(EM, BM)
    pids_n = tl.cdiv(N, BN)
    in_group = GROUP_M * pids_n
    group = pid // in_group
    first = group * GROUP_M
    size = min(pids_m - first, GROUP_M)
    pid_m = first + ((pid % in_group) % size)
    pid_n = (pid % in_group) // size
    padded = tl.load(padded_ptr)
    if pid_m * BM >= padded:
        return
    token_at = pid_m * BM + tl.arange(0, BM).to(tl.int64)
    token = tl.load(sorted_ptr + token_at)
    token_mask = token < valid
    expert = tl.load(experts_ptr + pid_m).to(tl.int64)
    if expert == -1:
        tl.store(
            c_ptr + cm * token[:, None] + cn * (pid_n * BN + tl.arange(0, BN))[None, :],
            tl.zeros((BM, BN), dtype=compute_type),
            mask=token_mask[:, None] & ((pid_n * BN + tl.arange(0, BN))[None, :] < N),
        )
        return
    columns = (pid_n * BN + tl.arange(0, BN).to(tl.int64)) % N
    inner = tl.arange(0, BK)
    a_ptrs = a_ptr + (token[:, None] // top_k * am + inner[None, :] * ak)
    b_ptrs = b_ptr + expert * be + (inner[:, None] * bk + columns[None, :] * bn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=token_mask[:, None] & (inner[None, :] < K - k * BK), other=0.0)
        b = tl.load(b_ptrs, mask=inner[:, None] < K - k * BK, other=0.0)
        acc += tl.dot(a, b)
        a_ptrs += BK * ak
        b_ptrs += BK * bk
    if WEIGHTED:
        w = tl.load(weights_ptr + token, mask=token_mask, other=0)
        acc = acc * w[:, None]
    acc = acc.to(compute_type)
    c_at = pid_n * BN + tl.arange(0, BN)
    tl.store(c_ptr + cm * token[:, None] + cn * c_at[None, :], acc, mask=token_mask[:, None] & (c_at[None, :] < N))


@triton.jit
def gptq_matmul(a_ptr, q_ptr, c_ptr, scales_ptr, zeros_ptr, g_ptr, M, N, K, bits, maxq, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """Four bits a weight, eight weights along K in an integer; the group of each row of the weights is looked up."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    per = 32 // bits
    rows = pid_m * BM + tl.arange(0, BM)
    columns = pid_n * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_ptrs = a_ptr + (rows[:, None] * K + inner[None, :])
    a_mask = rows[:, None] < M
    b_ptrs = q_ptr + ((inner[:, None] // per) * N + columns[None, :])
    g_ptrs = g_ptr + inner
    shifter = (inner % per) * bits
    zero_shifter = (columns % per) * bits
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        g = tl.load(g_ptrs)
        scales = tl.load(scales_ptr + g[:, None] * N + columns[None, :])
        zeros = tl.load(zeros_ptr + g[:, None] * (N // per) + columns[None, :] // per)
        zeros = (zeros >> zero_shifter[None, :]) & maxq
        zeros = zeros + 1
        a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        b = tl.load(b_ptrs)
        b = (b >> shifter[:, None]) & maxq
        b = (b - zeros) * scales
        acc += tl.dot(a, b.to(a.dtype))
        a_ptrs += BK
        b_ptrs += (BK // per) * N
        g_ptrs += BK
    tl.store(
        c_ptr + rows[:, None] * N + columns[None, :],
        acc.to(c_ptr.dtype.element_ty),
        mask=a_mask & (columns[None, :] < N),
    )


@triton.jit
def awq_dequantize(q_ptr, scales_ptr, zeros_ptr, out_ptr, packed, rows, GROUP: tl.constexpr, BX: tl.constexpr, BY: tl.constexpr):  # fmt: skip
    pid_x, pid_y = tl.program_id(0), tl.program_id(1)
    y, x = pid_y * BY + tl.arange(0, BY), pid_x * BX + tl.arange(0, BX)
    mask = (y < rows)[:, None] & (x < packed)[None, :]
    out_x = pid_x * BX * 8 + tl.arange(0, BX * 8)
    out_mask = (y < rows)[:, None] & (out_x < packed * 8)[None, :]
    q = tl.load(q_ptr + packed * y[:, None] + x[None, :], mask, 0.0)
    q = tl.interleave(q, q)
    q = tl.interleave(q, q)
    q = tl.interleave(q, q)
    order = ((tl.arange(0, 2) * 4)[None, :] + tl.arange(0, 4)[:, None]).reshape(8)
    shifts = order * 4
    shifts = tl.broadcast_to(shifts[None, :], (BY * BX, 8))
    shifts = tl.reshape(shifts, (BY, BX * 8))
    q = (q >> shifts) & 0xF
    zero_y = pid_y * BY // GROUP + tl.arange(0, 1)
    zeros = tl.load(zeros_ptr + packed * zero_y[:, None] + x[None, :], mask=(x < packed)[None, :], other=0)
    zeros = tl.interleave(zeros, zeros)
    zeros = tl.interleave(zeros, zeros)
    zeros = tl.interleave(zeros, zeros)
    zeros = tl.broadcast_to(zeros, (BY, BX * 8))
    zeros = (zeros >> shifts) & 0xF
    scales = tl.load(
        scales_ptr + packed * 8 * zero_y[:, None] + out_x[None, :], mask=(out_x < packed * 8)[None, :], other=0.0
    )
    scales = tl.broadcast_to(scales, (BY, BX * 8))
    q = (q - zeros) * scales
    q = q.to(out_ptr.type.element_ty)
    tl.store(out_ptr + packed * 8 * y[:, None] + out_x[None, :], q, out_mask)


@triton.jit
def split_k_matmul(a_ptr, b_ptr, c_ptr, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, EVEN_K: tl.constexpr):  # fmt: skip
    pid, pid_z = tl.program_id(0), tl.program_id(1)
    grid_n = tl.cdiv(N, BN)
    pid_m, pid_n = pid // grid_n, pid % grid_n
    rm, rn = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    ram = tl.max_contiguous(tl.multiple_of(rm % M, BM), BM)
    rbn = tl.max_contiguous(tl.multiple_of(rn % N, BN), BN)
    rk = pid_z * BK + tl.arange(0, BK)
    A = a_ptr + (ram[:, None] * am + rk[None, :] * ak)
    B = b_ptr + (rk[:, None] * bk + rbn[None, :] * bn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK * SPLIT)):
        if EVEN_K:
            a = tl.load(A)
            b = tl.load(B)
        else:
            left = K - k * (BK * SPLIT)
            _0 = tl.zeros((1, 1), dtype=c_ptr.dtype.element_ty)
            a = tl.load(A, mask=rk[None, :] < left, other=_0)
            b = tl.load(B, mask=rk[:, None] < left, other=_0)
        acc = tl.dot(a, b, acc, out_dtype=tl.float32, input_precision="ieee")
        A += BK * SPLIT * ak
        B += BK * SPLIT * bk
    acc = acc.to(c_ptr.dtype.element_ty)
    rm, rn = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    C = c_ptr + (rm[:, None] * cm + rn[None, :] * cn)
    mask = (rm < M)[:, None] & (rn < N)[None, :]
    if SPLIT == 1:
        tl.store(C, acc, mask=mask)
    else:
        tl.atomic_add(C, acc, mask=mask, sem="relaxed")


@triton.jit
def quantize_rows(x_ptr, q_ptr, scale_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + row * n + at, mask=mask, other=0.0).to(tl.float32)
    top = tl.max(tl.abs(x), 0)
    scale = tl.maximum(top / 127.0, 1e-10)
    q = x / scale
    q = q + tl.where(q >= 0, 0.5, -0.5)
    tl.store(q_ptr + row * n + at, q.to(tl.int8), mask=mask)
    tl.store(scale_ptr + row, scale)


@triton.jit
def int8_matmul(a_ptr, b_ptr, c_ptr, sa_ptr, sb_ptr, bias_ptr, M, N, K, HAS_BIAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    pid_m, pid_n = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 2)
    rm, rn, rk = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k in tl.range(0, K, BK, num_stages=3):
        a = tl.load(
            a_ptr + rm[:, None] * K + (k + rk)[None, :], mask=(rm[:, None] < M) & ((k + rk)[None, :] < K), other=0
        )
        b = tl.load(
            b_ptr + rn[None, :] * K + (k + rk)[:, None], mask=(rn[None, :] < N) & ((k + rk)[:, None] < K), other=0
        )
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    sa = tl.load(sa_ptr + rm, mask=rm < M, other=0.0)
    sb = tl.load(sb_ptr + rn, mask=rn < N, other=0.0)
    c = acc.to(tl.float32) * sa[:, None] * sb[None, :]
    if HAS_BIAS:
        c += tl.load(bias_ptr + rn, mask=rn < N, other=0.0)[None, :]
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], c, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def welford_combine(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight


@triton.jit
def welford_norm(x_ptr, out_ptr, mean_ptr, var_ptr, rows, n, eps, XB: tl.constexpr, RB: tl.constexpr):
    """In the form of TorchInductor's code: a reduction over chunks, the combination of tuples at its end."""
    x_index = tl.program_id(0) * XB + tl.arange(0, XB)[:, None]
    x_mask = x_index < rows
    base = tl.arange(0, RB)[None, :]
    mean = tl.zeros([XB, RB], tl.float32)
    m2 = tl.zeros([XB, RB], tl.float32)
    weight = tl.zeros([XB, RB], tl.float32)
    for offset in range(0, n, RB):
        r = offset + base
        mask = (r < n) & x_mask
        x = tl.load(x_ptr + (r + n * x_index), mask, eviction_policy="evict_last", other=0.0)
        new_weight = weight + 1
        delta = x - mean
        new_mean = mean + delta / new_weight
        new_m2 = m2 + delta * (x - new_mean)
        mean = tl.where(mask, new_mean, mean)
        m2 = tl.where(mask, new_m2, m2)
        weight = tl.where(mask, new_weight, weight)
    mean_1, m2_1, weight_1 = tl.reduce((mean, m2, weight), 1, welford_combine)
    mean_2 = mean_1[:, None]
    var = m2_1[:, None] / weight_1[:, None]
    tl.store(mean_ptr + x_index, mean_2, x_mask)
    tl.store(var_ptr + x_index, var, x_mask)
    for offset in range(0, n, RB):
        r = offset + base
        mask = (r < n) & x_mask
        x = tl.load(x_ptr + (r + n * x_index), mask, eviction_policy="evict_first", other=0.0)
        tl.store(out_ptr + (r + n * x_index), (x - mean_2) * tl.math.rsqrt(var + eps), mask)


@triton.jit
def first_order(a_left, x_left, a_right, x_right):
    return a_right * a_left, a_right * x_left + x_right


@triton.jit
def recurrence(a_ptr, x_ptr, y_ptr, last_ptr, length, channels, BLOCK: tl.constexpr, BC: tl.constexpr):
    """Chunks of a linear recurrence: a scan of pairs in each, the state carried from one to the next."""
    batch, c = tl.program_id(0), tl.program_id(1) * BC + tl.arange(0, BC)
    t = tl.arange(0, BLOCK)
    state = tl.zeros([BC], dtype=tl.float32)
    base = batch * length * channels
    for start in range(0, length, BLOCK):
        at = base + (start + t)[:, None] * channels + c[None, :]
        mask = ((start + t)[:, None] < length) & (c[None, :] < channels)
        a = tl.load(a_ptr + at, mask=mask, other=1.0)
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        decay, h = tl.associative_scan((a, x), 0, first_order)
        h = h + decay * state[None, :]
        tl.store(y_ptr + at, h, mask=mask)
        state = tl.sum(tl.where((t == BLOCK - 1)[:, None], h, 0.0), 0)
    tl.store(last_ptr + batch * channels + c, state, mask=c < channels)


@triton.jit
def chunk_cumsum(s_ptr, o_ptr, T, H: tl.constexpr, BT: tl.constexpr, REVERSE: tl.constexpr, HEAD_FIRST: tl.constexpr):
    i_t, i_h = tl.program_id(0), tl.program_id(1)
    o_t = i_t * BT + tl.arange(0, BT)
    if HEAD_FIRST:
        at = i_h * T + o_t
    else:
        at = o_t * H + i_h
    s = tl.load(s_ptr + at, mask=o_t < T, other=0).to(tl.float32)
    o = tl.cumsum(s, axis=0)
    if REVERSE:
        o = -o + tl.sum(s, axis=0)[None] + s
    tl.store(o_ptr + at, o.to(o_ptr.dtype.element_ty), mask=o_t < T)


@triton.jit
def retention_chunk(q_ptr, k_ptr, v_ptr, h_ptr, o_ptr, scale, T, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr):
    """Linear attention in chunks: within a chunk by masked products, between chunks by the state."""
    i_h = tl.program_id(0)
    decay = tl.math.log2(1 - tl.math.exp2(-5 - i_h * 1.0))
    t, d, e = tl.arange(0, BT), tl.arange(0, K), tl.arange(0, V)
    within = tl.where(t[:, None] >= t[None, :], tl.math.exp2((t[:, None] - t[None, :]) * decay), 0)
    h = tl.zeros([K, V], dtype=tl.float32)
    for i_t in range(tl.cdiv(T, BT)):
        rows = i_t * BT + t
        q = tl.load(q_ptr + (i_h * T + rows)[:, None] * K + d[None, :], mask=rows[:, None] < T, other=0.0)
        k = tl.load(k_ptr + (i_h * T + rows)[:, None] * K + d[None, :], mask=rows[:, None] < T, other=0.0)
        v = tl.load(v_ptr + (i_h * T + rows)[:, None] * V + e[None, :], mask=rows[:, None] < T, other=0.0)
        length = min(BT, T - i_t * BT)
        s = tl.dot(q * scale, tl.trans(k)) * within
        o = tl.dot(s.to(v.dtype), v)
        o += tl.dot(q * scale, h.to(q.dtype)) * tl.math.exp2((t + 1) * decay)[:, None]
        tl.store(o_ptr + (i_h * T + rows)[:, None] * V + e[None, :], o, mask=rows[:, None] < T)
        h *= tl.math.exp2(length * decay)
        h += tl.dot(tl.trans(k * tl.math.exp2((length - t - 1) * decay)[:, None]), v)
    tl.store(h_ptr + i_h * K * V + d[:, None] * V + e[None, :], h)


@triton.jit
def causal_conv1d(x_ptr, w_ptr, b_ptr, o_ptr, dim, length, WIDTH: tl.constexpr, HAS_BIAS: tl.constexpr, SILU: tl.constexpr, BL: tl.constexpr, BD: tl.constexpr):  # fmt: skip
    batch = tl.program_id(2)
    t, c = tl.program_id(0) * BL + tl.arange(0, BL), tl.program_id(1) * BD + tl.arange(0, BD)
    acc = tl.zeros((BL, BD), dtype=tl.float32)
    if HAS_BIAS:
        acc += tl.load(b_ptr + c, mask=c < dim, other=0.0)[None, :]
    for j in tl.static_range(WIDTH):
        at = t - (WIDTH - 1) + j
        mask = (at >= 0)[:, None] & (at < length)[:, None] & (c < dim)[None, :]
        x = tl.load(x_ptr + (batch * length + at)[:, None] * dim + c[None, :], mask=mask, other=0.0)
        acc += x * tl.load(w_ptr + c * WIDTH + j, mask=c < dim, other=0.0)[None, :]
    if SILU:
        acc = acc * tl.sigmoid(acc)
    tl.store(
        o_ptr + (batch * length + t)[:, None] * dim + c[None, :], acc, mask=(t < length)[:, None] & (c < dim)[None, :]
    )


@triton.jit
def adamw(p_ptr, g_ptr, m_ptr, v_ptr, n, lr, beta1, beta2, eps, decay, correction1, correction2, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    p, g = tl.load(p_ptr + at, mask), tl.load(g_ptr + at, mask)
    m = tl.load(m_ptr + at, mask)
    v = tl.load(v_ptr + at, mask)
    p *= 1 - lr * decay
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    p -= lr * (m / correction1) / (tl.sqrt(v / correction2) + eps)
    tl.store(p_ptr + at, p, mask)
    tl.store(m_ptr + at, m, mask)
    tl.store(v_ptr + at, v, mask)


@triton.jit
def embedding_backward(g_ptr, index_ptr, d_ptr, n, dim, BN: tl.constexpr, BD: tl.constexpr):
    rows, columns = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BD + tl.arange(0, BD)
    index = tl.load(index_ptr + rows, mask=rows < n, other=0)
    mask = (rows < n)[:, None] & (columns < dim)[None, :]
    g = tl.load(g_ptr + rows[:, None] * dim + columns[None, :], mask=mask, other=0.0)
    tl.atomic_add(d_ptr + index[:, None] * dim + columns[None, :], g, mask=mask)


@triton.jit
def top_k_gating(x_ptr, w_ptr, i_ptr, experts, K: tl.constexpr, BLOCK: tl.constexpr, RENORMALIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * experts + at, mask=at < experts, other=float("-inf")).to(tl.float32)
    p = tl.softmax(x)
    total = 0.0
    for k in tl.static_range(K):
        best, place = tl.max(p, axis=0, return_indices=True)
        tl.store(w_ptr + row * K + k, best)
        tl.store(i_ptr + row * K + k, place)
        total += best
        p = tl.where(at == place, -1.0, p)
    if RENORMALIZE:
        for k in range(K):
            tl.store(w_ptr + row * K + k, tl.load(w_ptr + row * K + k) / total)


@triton.jit
def count_experts(ids_ptr, counts_ptr, starts_ptr, n, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    acc = tl.zeros([EXPERTS], dtype=tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        ids = tl.load(ids_ptr + at, mask=at < n, other=0)
        acc += tl.histogram(ids, EXPERTS, mask=at < n)
    e = tl.arange(0, EXPERTS)
    tl.store(counts_ptr + e, acc)
    tl.store(starts_ptr + e, tl.cumsum(acc, 0) - acc)


@triton.jit
def stochastic_round(x_ptr, o_ptr, seed, n, BLOCK: tl.constexpr):
    """A float32 as the upper half of its bits, after random ones were added to the lower half."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    noise = tl.randint(seed, at).to(tl.uint32, bitcast=True) & 0xFFFF
    bits = x.to(tl.uint32, bitcast=True) + noise
    tl.store(o_ptr + at, (bits & 0xFFFF0000).to(tl.float32, bitcast=True), mask=at < n)


@triton.jit
def apply_penalties(logits_ptr, counts_ptr, temperature_ptr, min_p_ptr, index_ptr, vocabulary, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    state = tl.load(index_ptr + row)
    temperature = tl.load(temperature_ptr + state).to(tl.float32)
    use = temperature != 0.0 and temperature != 1.0
    min_p = tl.load(min_p_ptr + state)
    if not use and min_p <= 0:
        return
    peak = -float("inf")
    for b in range(tl.cdiv(vocabulary, BLOCK)):
        at = b * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * vocabulary + at, mask=at < vocabulary, other=float("-inf"))
        count = tl.load(counts_ptr + row * vocabulary + at, mask=at < vocabulary, other=0)
        x = tl.where(count > 0, tl.where(x > 0, x / 1.3, x * 1.3), x)
        if use:
            x = x / temperature
        tl.store(logits_ptr + row * vocabulary + at, x, mask=at < vocabulary)
        peak = tl.maximum(peak, tl.max(x, 0))
    tl.debug_barrier()
    threshold = peak + tl.log(tl.maximum(min_p, 1e-20))
    b = 0
    while b * BLOCK < vocabulary:
        at = b * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * vocabulary + at, mask=at < vocabulary, other=float("-inf"))
        tl.store(logits_ptr + row * vocabulary + at, tl.where(x < threshold, float("-inf"), x), mask=at < vocabulary)
        b += 1


@triton.jit
def sum_and_square(x):
    return tl.sum(x, 0), tl.sum(x * x, 0)


@triton.jit
def moments_of(x, n, eps: tl.constexpr):
    s, s2 = sum_and_square(x)
    mean = s / n
    return (mean, tl.rsqrt(s2 / n - mean * mean + eps)), s


@triton.jit
def group_norm(x_ptr, y_ptr, w_ptr, b_ptr, sums_ptr, size, channels, per_group, BLOCK: tl.constexpr):
    row, group = tl.program_id(0), tl.program_id(1)
    count = per_group * size
    at = tl.arange(0, BLOCK)
    base = (row * channels + group * per_group) * size
    x = tl.load(x_ptr + base + at, mask=at < count, other=0.0)
    pair, s = moments_of(x, count, 1e-5)
    mean, rstd = pair
    c = group * per_group + at // size
    w = tl.load(w_ptr + c, mask=at < count, other=0.0) if w_ptr is not None else 1.0
    b = tl.load(b_ptr + c, mask=at < count, other=0.0) if b_ptr is not None else 0.0
    y = tl.fma(x - mean, rstd * w, b)
    tl.store(y_ptr + base + at, tl.clamp(y, -2.0, 2.0), mask=at < count)
    tl.store(sums_ptr + row * tl.num_programs(1) + group, s)


@triton.jit
def bit_tricks(x_ptr, y_ptr, f_ptr, o_ptr, p_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=1)
    y = tl.load(y_ptr + at, mask=mask, other=1)
    f = tl.load(f_ptr + at, mask=mask, other=0.0)
    h = x.to(tl.uint32, bitcast=True)
    h ^= h >> 16
    h *= 0x85EBCA6B
    h ^= h >> 13
    h = tl.umulhi(h, y.to(tl.uint32, bitcast=True)) + (h << 5)
    nibbles = (x >> 4) & 0xF
    signed = (x << 28) >> 28
    tl.store(
        o_ptr + at, h.to(tl.int32, bitcast=True) + nibbles * 16 + signed - (~y) + (-x) % 7 + x // (y | 1), mask=mask
    )
    g = tl.div_rn(f, 3.0) + tl.floor(f) - tl.ceil(f * 0.5) + tl.exp2(-tl.abs(f)) * tl.cos(f) + tl.log2(tl.abs(f) + 1)
    g += (f.to(tl.int32, bitcast=True) >> 23 & 0xFF).to(tl.float32)
    tl.store(p_ptr + at, g, mask=mask)


@triton.jit
def bucket_sort(x_ptr, o_ptr, p_ptr, f_ptr, c_ptr, N: tl.constexpr, M: tl.constexpr):
    """Sorts keys with their places packed into the lower bits, as argsort is written."""
    i, j = tl.arange(0, N), tl.arange(0, M)
    at = i[:, None] * M + j[None, :]
    x = tl.load(x_ptr + at)
    packed = (x.to(tl.int64) << 32) | j[None, :].to(tl.int64)
    packed = tl.sort(packed, dim=1, descending=True)
    tl.store(o_ptr + at, (packed >> 32).to(tl.int32))
    tl.store(p_ptr + at, (packed & 0xFFFFFFFF).to(tl.int32))
    tl.store(f_ptr + at, tl.flip(x, 1))
    tl.store(c_ptr + at, tl.cumsum(tl.flip(x, 1), 1, reverse=True))


@triton.jit
def layer_norm_backward_locked(dy_ptr, x_ptr, mean_ptr, rstd_ptr, dw_ptr, locks_ptr, n, GROUPS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < n
    x_hat = (tl.load(x_ptr + row * n + at, mask=mask, other=0) - tl.load(mean_ptr + row)) * tl.load(rstd_ptr + row)
    part = tl.load(dy_ptr + row * n + at, mask=mask, other=0) * x_hat
    lock = locks_ptr + row % GROUPS
    count = lock + GROUPS
    dw = dw_ptr + row % GROUPS * n + at
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    seen = tl.load(count)
    if seen == 0:
        tl.atomic_xchg(count, 1)
    else:
        part += tl.load(dw, mask=mask)
    tl.store(dw, part, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def stream_k_partials(x_ptr, out_ptr, flags_ptr, parts_ptr, n, BLOCK: tl.constexpr):
    """Each program publishes its sum behind a flag; the last one to arrive adds them."""
    pid, programs = tl.program_id(0), tl.num_programs(0)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts_ptr + pid, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0), 0))
    arrived = tl.atomic_add(flags_ptr, 1, sem="acq_rel", scope="gpu")
    if arrived == programs - 1:
        total = 0
        for k in range(programs):
            total += tl.load(parts_ptr + k, volatile=True)
        tl.store(out_ptr, total)


@triton.jit
def combined_by(x, y, KIND: tl.constexpr = "max"):
    if KIND == "max":
        return tl.maximum(x, y)
    elif KIND == "min":
        return tl.minimum(x, y)
    else:
        tl.static_assert(KIND == "sum")
        return x + y


@triton.jit
def sign_of(s):
    if s > 0:
        return 1
    elif s < 0:
        return -1
    return 0


@triton.jit
def many_forms(x_ptr, o_ptr, n, B: tl.constexpr, FLAG: tl.constexpr = True, OPT=None):
    HALF: tl.constexpr = B // 2
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i, i < n, 0.0)
    bias = tl.load(OPT + i) if OPT is not None else None
    if bias is not None:
        x += bias
    acc = tl.zeros_like(x)
    for k in range(n - 1, -1, -3):
        acc += k * (x > 0)
    for k in range(tl.cdiv(n, 4), 0, -1):
        acc = acc * 0.5 + k
    for j in tl.static_range(0, 6, 2):
        if j % 4 == 0:
            acc = combined_by(acc, x, KIND="sum")
        else:
            acc = combined_by(y=acc, x=x, KIND="min")
    s = tl.sum(x)
    g = sign_of(s)
    m = max(g, -3, 0) if FLAG and n > 2 else min(g, 5)
    q = n
    q //= 2
    q <<= 1
    q %= 7
    y = tl.reshape(x, (2, HALF))
    z = y[:, None, :] * y[None, :, :]
    r = tl.sum(z, axis=-1)
    t = tl.sum(tl.max(y, axis=1, keep_dims=True), axis=0)
    w = (x > 0) * x + ((x > 1) & (x < 2) | (x < -1)).to(tl.float32) + (x.to(tl.int32) == 1)
    tl.store(o_ptr + i, acc + m + q + w + tl.sum(r) + tl.sum(t) + x.shape[0] + len(y.shape))
    if n == 13 or s > 1e9:
        tl.store(o_ptr + B, s)
    else:
        if not FLAG:
            pass
        tl.store(o_ptr + B, 1.0)


@triton.jit
def batched_products(a_ptr, b_ptr, o_ptr, G: tl.constexpr, N: tl.constexpr):
    g, i = tl.arange(0, G), tl.arange(0, N)
    at = g[:, None, None] * N * N + i[None, :, None] * N + i[None, None, :]
    tl.store(o_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), allow_tf32=False))


@triton.jit
def scans_back(a_ptr, o_ptr, p_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(a_ptr + i)
    tl.store(o_ptr + i, tl.cumsum(x, 0, reverse=True) + tl.cumprod(x * 0.5, 0))
    tl.store(p_ptr + i, tl.cumsum((x > 0).to(tl.int8), 0))
    tl.store(p_ptr + B + i, tl.sum((x > 0).to(tl.int8), 0) + tl.argmax(x, 0, tie_break_left=False))


@triton.jit
def moving_pointers(x_ptr, o_ptr, n, stride, B: tl.constexpr):
    a, b = x_ptr, x_ptr + n
    i = tl.arange(0, B)
    for _ in range(3):
        a, b = b, a
        tl.store(o_ptr + i, tl.load(o_ptr + i) * 2 + tl.load(a + i * stride))
    p = x_ptr
    k = 0
    while k < n:
        p += stride
        k += 4
        tl.store(o_ptr + i, tl.load(o_ptr + i) + tl.load(p))
    j = tl.load(x_ptr).to(tl.int32) & 3
    if j > 1:
        p = x_ptr + j
    else:
        p = p + 1
    tl.store(o_ptr + i, tl.load(o_ptr + i) + tl.load(p))
