"""This example schedules a matmul for a made-up accelerator, and runs it.

The accelerator has a unit that multiplies 16x16 tiles, three small memories next to it (one for tiles of each operand,
one for sums), and a DMA engine that moves tiles between them and main memory. A program for it is a sequence of

    zero         sums = 0
    load_a       tile of A  <- main memory
    load_b       tile of B  <- main memory
    matmul       sums += tile of A @ tile of B
    store        main memory <- sums

Run it: ``python examples/accelerator.py``. Four steps: say what each instruction does, say how it is called, schedule a
matmul so that its loops are those of the instructions, and let the interpreter simulate the machine.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.schedule import TensorIntrin
from tilewright.tir import interpret
from tilewright.tir import script as T

N = 16

# 1. What the instructions do, in plain loops. Each is a root block that declares what it reads and writes.


@T.prim_func
def zero_desc(S: T.Buffer((N, N), "float32", scope="global.sums", offset_factor=1)):
    with T.block("root"):
        T.reads()
        T.writes(S[0:N, 0:N])
        for i, j in T.grid(N, N):
            with T.block("zero"):
                vi, vj = T.axis.remap("SS", [i, j])
                S[vi, vj] = T.float32(0)


@T.prim_func
def matmul_desc(
    A: T.Buffer((N, N), "float32", scope="global.a", offset_factor=1),
    B: T.Buffer((N, N), "float32", scope="global.b", offset_factor=1),
    S: T.Buffer((N, N), "float32", scope="global.sums", offset_factor=1),
):
    with T.block("root"):
        T.reads(S[0:N, 0:N], A[0:N, 0:N], B[0:N, 0:N])
        T.writes(S[0:N, 0:N])
        for i, j, k in T.grid(N, N, N):
            with T.block("multiply_add"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                S[vi, vj] = S[vi, vj] + A[vi, vk] * B[vk, vj]


# 2. How they are called. In the small memories a tile is 256 numbers in a row: `strides` says so, and `offset_factor`
#    that it begins at a multiple of 256. The scheduler proves both before it lets an instruction in.


@T.prim_func
def zero_impl(s: T.handle):
    S = T.match_buffer(s, (N, N), "float32", scope="global.sums", strides=(N, 1), offset_factor=N * N)
    with T.block("root"):
        T.reads()
        T.writes(S[0:N, 0:N])
        T.evaluate(T.call_extern("void", "accel_zero", S.access_ptr("w")))


@T.prim_func
def matmul_impl(a: T.handle, b: T.handle, s: T.handle):
    A = T.match_buffer(a, (N, N), "float32", scope="global.a", strides=(N, 1), offset_factor=N * N)
    B = T.match_buffer(b, (N, N), "float32", scope="global.b", strides=(N, 1), offset_factor=N * N)
    S = T.match_buffer(s, (N, N), "float32", scope="global.sums", strides=(N, 1), offset_factor=N * N)
    with T.block("root"):
        T.reads(S[0:N, 0:N], A[0:N, 0:N], B[0:N, 0:N])
        T.writes(S[0:N, 0:N])
        T.evaluate(T.call_extern("void", "accel_matmul", S.access_ptr("rw"), A.access_ptr("r"), B.access_ptr("r")))


def dma(source: str, target: str, call: str) -> tuple[tw.PrimFunc, tw.PrimFunc]:
    """Returns a copy of a tile from memory ``source`` to memory ``target``. It comes as what it does, and as the call
    of the engine.

    In main memory a tile is a part of a larger matrix, so the engine needs the distance of rows on both sides.
    """

    @T.prim_func
    def desc(
        X: T.Buffer((N, N), "float32", scope=source, offset_factor=1),
        Y: T.Buffer((N, N), "float32", scope=target, offset_factor=1),
    ):
        with T.block("root"):
            T.reads(X[0:N, 0:N])
            T.writes(Y[0:N, 0:N])
            for i, j in T.grid(N, N):
                with T.block("copy"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Y[vi, vj] = X[vi, vj]

    @T.prim_func
    def impl(x: T.handle, y: T.handle):
        X = T.match_buffer(x, (N, N), "float32", scope=source, offset_factor=1, strides=("x_row", "x_column"))
        Y = T.match_buffer(y, (N, N), "float32", scope=target, offset_factor=1, strides=("y_row", "y_column"))
        with T.block("root"):
            T.reads(X[0:N, 0:N])
            T.writes(Y[0:N, 0:N])
            T.evaluate(T.call_extern("void", call, Y.access_ptr("w"), Y.strides[0], X.access_ptr("r"), X.strides[0]))

    return desc, impl


def register() -> None:
    """Make the instructions known to the scheduler, by name."""
    TensorIntrin.register("accel.zero", zero_desc, zero_impl, override=True)
    TensorIntrin.register("accel.matmul", matmul_desc, matmul_impl, override=True)
    TensorIntrin.register("accel.load_a", *dma("global", "global.a", "accel_load"), override=True)
    TensorIntrin.register("accel.load_b", *dma("global", "global.b", "accel_load"), override=True)
    TensorIntrin.register("accel.store", *dma("global.sums", "global", "accel_store"), override=True)


# 3. The schedule: tiles first, then memories, then instructions.


def declare(m: int, n: int, k: int) -> tw.PrimFunc:
    """C = A @ B."""
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    kk = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="C")
    return te.create_prim_func([a, b, c])


def schedule(func: tw.PrimFunc) -> tw.Schedule:
    """Returns the matmul as a program for the accelerator; its sizes are multiples of 16."""
    sch = tw.Schedule(func)
    block = sch.get_block("C")

    # Tiles of 16x16x16: the outer loops stay, the inner ones become instructions.
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, N])
    j0, j1 = sch.split(j, [None, N])
    k0, k1 = sch.split(k, [None, N])
    sch.reorder(i0, j0, k0, i1, j1, k1)

    # The sums of a tile stay in their memory while k runs; operands come in just before they are used.
    store = sch.cache_write(block, 0, "global.sums")
    sch.reverse_compute_at(store, j0)
    load_a = sch.cache_read(block, 0, "global.a")
    load_b = sch.cache_read(block, 1, "global.b")
    sch.compute_at(load_a, k0)
    sch.compute_at(load_b, k0)
    zero = sch.decompose_reduction(block, k0)

    # In the small memories tiles lie one after the other, each 16 rows of 16 numbers.
    for copy, side in ((load_a, "write"), (load_b, "write"), (store, "read")):
        sch.transform_layout(copy, (side, 0), lambda i, j: (i // N, j // N, i % N, j % N), leave_padding=True)

    # Every piece is two or three loops that one instruction does at once.
    sch.tensorize(sch.get_loops(zero)[-2], "accel.zero")
    sch.tensorize(sch.get_loops(load_a)[-2], "accel.load_a")
    sch.tensorize(sch.get_loops(load_b)[-2], "accel.load_b")
    sch.tensorize(i1, "accel.matmul")
    sch.tensorize(sch.get_loops(store)[-2], "accel.store")
    return sch


# 4. The machine. A pointer arrives as the memory from that element on.


class Accelerator:
    """This simulator executes the instructions on NumPy arrays and counts them."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def zero(self, sums: np.ndarray) -> None:
        self.count["zero"] += 1
        sums[: N * N] = 0

    def matmul(self, sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        self.count["matmul"] += 1
        sums[: N * N] += (a[: N * N].reshape(N, N) @ b[: N * N].reshape(N, N)).reshape(-1)

    def copy(self, what: str, to: np.ndarray, to_row: int, source: np.ndarray, row: int) -> None:
        self.count[what] += 1
        for i in range(N):
            to[i * to_row : i * to_row + N] = source[i * row : i * row + N]

    def calls(self) -> dict[str, object]:
        """Returns the functions behind the names that implementations call."""
        return {
            "accel_zero": self.zero,
            "accel_matmul": self.matmul,
            "accel_load": lambda *tiles: self.copy("load", *tiles),
            "accel_store": lambda *tiles: self.copy("store", *tiles),
        }


def outline(func: tw.PrimFunc) -> str:
    """Returns the loops of a program and the instructions in them; ``func.show()`` prints all of it."""
    lines = []
    for line in func.script().splitlines():
        text = line.strip()
        if text.startswith("for "):
            lines.append(line[4:])
        elif "call_extern" in text:
            lines.append(line[8:].replace(text, text.split('"')[3]))
    return "\n".join(lines)


def main(m: int = 48, n: int = 64, k: int = 32) -> Counter[str]:
    """Schedule, show, run, compare with NumPy; returns how often each instruction ran."""
    register()
    for name in ("zero", "matmul", "load_a", "load_b", "store"):  # each instruction alone against its description
        TensorIntrin.get(f"accel.{name}").check(externs=Accelerator().calls())

    sch = schedule(declare(m, n, k))
    print(outline(sch.func))

    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (m, k)).astype("float32")
    b = rng.integers(-4, 5, (k, n)).astype("float32")
    c = np.full((m, n), np.nan, "float32")
    machine = Accelerator()
    interpret(sch.func, a, b, c, externs=machine.calls())
    assert np.array_equal(c, a @ b)
    print(f"\n{m}x{n}x{k}: the result is NumPy's. Instructions that ran:", dict(machine.count))
    return machine.count


if __name__ == "__main__":
    main()
