"""This example makes a target of a multiply-accumulate unit that a TOML file describes, and tunes for it by simulation.

``tensor_unit.toml`` has the figures: the array's tiles, the copy engine, the memories. Four steps: instructions are
declared with the sizes of the file, a rule offers schedules that tensorize to them, a :class:`~tilewright.tuner.Runner`
measures candidates by the simulator (``tensor_unit_simulator.py``) instead of the clock, and the unit becomes a target, so
that ``build`` replays the best record and runs it in the simulator.

Run it: ``python examples/tensor_unit.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te, tuner
from tilewright.codegen import TargetKind, register_target
from tilewright.schedule import TensorIntrin
from tilewright.tir import interpret
from tilewright.tir import script as T
from tilewright.tuner import Costs, Decision, Group, MeasureResult, Part, Runner, ScheduleRule

sys.path.insert(0, str(Path(__file__).parent))
from tensor_unit_simulator import Machine, TooSmall, Unit, cycles  # noqa: E402

UNIT = Unit.read()
R, C, K = UNIT.rows, UNIT.columns, UNIT.steps

# 1. The instructions, with the sizes of the file: what they do, and how they are called.


def declare(name: str, desc: tw.PrimFunc, impl: tw.PrimFunc) -> None:
    """Make an instruction known to the scheduler."""
    TensorIntrin.register(f"unit.{name}", desc, impl, override=True)


def declare_matmul() -> None:
    @T.prim_func
    def desc(
        A: T.Buffer((R, K), UNIT.dtype, scope="global.a", offset_factor=1),
        B: T.Buffer((K, C), UNIT.dtype, scope="global.b", offset_factor=1),
        S: T.Buffer((R, C), UNIT.sums, scope="global.sums", offset_factor=1),
    ):
        with T.block("root"):
            T.reads(S[0:R, 0:C], A[0:R, 0:K], B[0:K, 0:C])
            T.writes(S[0:R, 0:C])
            for i, j, k in T.grid(R, C, K):
                with T.block("multiply_add"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    S[vi, vj] = S[vi, vj] + T.Cast(UNIT.sums, A[vi, vk]) * T.Cast(UNIT.sums, B[vk, vj])

    @T.prim_func
    def impl(a: T.handle, b: T.handle, s: T.handle):
        A = T.match_buffer(a, (R, K), UNIT.dtype, scope="global.a", strides=(K, 1), offset_factor=R * K)
        B = T.match_buffer(b, (K, C), UNIT.dtype, scope="global.b", strides=(C, 1), offset_factor=K * C)
        S = T.match_buffer(s, (R, C), UNIT.sums, scope="global.sums", strides=(C, 1), offset_factor=R * C)
        with T.block("root"):
            T.reads(S[0:R, 0:C], A[0:R, 0:K], B[0:K, 0:C])
            T.writes(S[0:R, 0:C])
            T.evaluate(T.call_extern("void", "unit_matmul", S.access_ptr("rw"), A.access_ptr("r"), B.access_ptr("r")))

    declare("matmul", desc, impl)


def declare_zero() -> None:
    @T.prim_func
    def desc(S: T.Buffer((R, C), UNIT.sums, scope="global.sums", offset_factor=1)):
        with T.block("root"):
            T.reads()
            T.writes(S[0:R, 0:C])
            for i, j in T.grid(R, C):
                with T.block("zero"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    S[vi, vj] = 0

    @T.prim_func
    def impl(s: T.handle):
        S = T.match_buffer(s, (R, C), UNIT.sums, scope="global.sums", strides=(C, 1), offset_factor=R * C)
        with T.block("root"):
            T.reads()
            T.writes(S[0:R, 0:C])
            T.evaluate(T.call_extern("void", "unit_zero", S.access_ptr("w")))

    declare("zero", desc, impl)


def declare_load(name: str, rows: int, columns: int) -> None:
    """Declare ``load_NAME``, which copies a tile to the memory ``global.NAME``."""
    scope = f"global.{name}"

    @T.prim_func
    def desc(
        X: T.Buffer((rows, columns), UNIT.dtype, offset_factor=1),
        Y: T.Buffer((rows, columns), UNIT.dtype, scope=scope, offset_factor=1),
    ):
        with T.block("root"):
            T.reads(X[0:rows, 0:columns])
            T.writes(Y[0:rows, 0:columns])
            for i, j in T.grid(rows, columns):
                with T.block("copy"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Y[vi, vj] = X[vi, vj]

    @T.prim_func
    def impl(x: T.handle, y: T.handle):
        X = T.match_buffer(x, (rows, columns), UNIT.dtype, offset_factor=1, strides=("pitch", "step"))
        Y = T.match_buffer(
            y, (rows, columns), UNIT.dtype, scope=scope, strides=(columns, 1), offset_factor=rows * columns
        )
        with T.block("root"):
            T.reads(X[0:rows, 0:columns])
            T.writes(Y[0:rows, 0:columns])
            T.evaluate(
                T.call_extern("void", "unit_load", Y.access_ptr("w"), rows, columns, X.access_ptr("r"), X.strides[0])
            )

    declare(f"load_{name}", desc, impl)


STORED = {"none": "S[vi, vj]", "relu": "T.max(S[vi, vj], 0)"}
"""What the activations write for a sum."""

STORE = """
@T.prim_func
def desc(
    S: T.Buffer(({R}, {C}), "{sums}", scope="global.sums", offset_factor=1),
    Y: T.Buffer(({R}, {C}), "{sums}", offset_factor=1),
):
    with T.block("root"):
        T.reads(S[0:{R}, 0:{C}])
        T.writes(Y[0:{R}, 0:{C}])
        for i, j in T.grid({R}, {C}):
            with T.block("store"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = {stored}
"""


def declare_store(activation: str) -> None:
    """Declare ``store_ACTIVATION``, which writes a tile of sums to main memory through an activation."""
    call = f"unit_store_{activation}"
    desc = tw.tir.parse(STORE.format(R=R, C=C, sums=UNIT.sums, stored=STORED[activation]))

    @T.prim_func
    def impl(s: T.handle, y: T.handle):
        S = T.match_buffer(s, (R, C), UNIT.sums, scope="global.sums", strides=(C, 1), offset_factor=R * C)
        Y = T.match_buffer(y, (R, C), UNIT.sums, offset_factor=1, strides=("pitch", "step"))
        with T.block("root"):
            T.reads(S[0:R, 0:C])
            T.writes(Y[0:R, 0:C])
            T.evaluate(T.call_extern("void", call, Y.access_ptr("w"), Y.strides[0], S.access_ptr("r")))

    declare(f"store_{activation}", desc, impl)


def declare_all() -> None:
    """Declare every instruction of the unit."""
    declare_matmul()
    declare_zero()
    declare_load("a", R, K)
    declare_load("b", K, C)
    for activation in UNIT.activations:
        declare_store(activation)


# 2. The schedule, and the rule that offers it. The numbers left open are tiles kept in the unit, and the loops' order.


def product(m: int, n: int, k: int, relu: bool = True) -> tw.PrimFunc:
    """C = A @ B, sums of whole tiles; with ``relu``, negative ones become 0."""
    a, b = te.placeholder((m, k), UNIT.dtype, name="A"), te.placeholder((k, n), UNIT.dtype, name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r].astype(UNIT.sums) * b[r, j].astype(UNIT.sums), axis=r), name="C")
    if not relu:
        return te.create_prim_func([a, b, c])
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.max(c[i, j], 0), name="D")])


def apply(sch: tw.Schedule, rows: int, columns: int, j_outside: int, panel: int) -> None:
    """Schedule :func:`product`: ``rows`` x ``columns`` tiles of sums stay in the unit while k runs. With ``panel``, the
    rows of A are loaded once for all columns; otherwise step by step. ``j_outside``: the loop over columns is outermost."""
    relu = any(sch.get(child).name == "D" for child in sch.get_child_blocks(sch.get_block("root")))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, [None, rows, R])
    j0, j1, j2 = sch.split(j, [None, columns, C])
    k0, k2 = sch.split(k, [None, K])
    outer = (j0, i0) if j_outside else (i0, j0)
    sch.reorder(*outer, k0, i1, j1, i2, j2, k2)
    if relu:
        store = sch.get_block("D")
        sch.set_scope(block, 0, "global.sums")
    else:
        store = sch.cache_write(block, 0, "global.sums")
    sch.reverse_compute_at(store, outer[1])
    load_a = sch.cache_read(block, 0, "global.a")
    load_b = sch.cache_read(block, 1, "global.b")
    sch.compute_at(load_a, outer[0] if panel else k0)
    sch.compute_at(load_b, k0)
    zero = sch.decompose_reduction(block, k0)
    sch.transform_layout(load_a, ("write", 0), lambda i, k: (i // R, k // K, i % R, k % K), leave_padding=True)
    sch.transform_layout(load_b, ("write", 0), lambda k, j: (k // K, j // C, k % K, j % C), leave_padding=True)
    sch.transform_layout(store, ("read", 0), lambda i, j: (i // R, j // C, i % R, j % C), leave_padding=True)
    to_memory = f"store_{'relu' if relu else 'none'}"
    for copy, name, tile in ((load_a, "load_a", (R, K)), (load_b, "load_b", (K, C)), (store, to_memory, (R, C))):
        x, y = sch.get_loops(copy)[-2:]
        (x0, x1), (y0, y1) = sch.split(x, [None, tile[0]]), sch.split(y, [None, tile[1]])
        sch.reorder(x0, y0, x1, y1)
        sch.tensorize(x1, f"unit.{name}")
    sch.tensorize(sch.get_loops(zero)[-2], "unit.zero")
    sch.tensorize(i2, "unit.matmul")


class OnUnit(Part):
    """The tiles of a product on the unit."""

    name = "on_unit"

    decisions = (
        Decision("rows", (1, 2, 4)), Decision("columns", (1, 2, 4)), Decision("j_outside", (0, 1)), Decision("panel", (0, 1)),
    )  # fmt: skip

    def __init__(self, tiles: tuple[int, int]) -> None:
        self.tiles = tiles  # of the result: rows and columns of them

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Blocks of tiles divide the result."""
        return (self.tiles[0] % columns["rows"] == 0) & (self.tiles[1] % columns["columns"] == 0)

    def apply(self, sch: tw.Schedule, row: Mapping[str, int]) -> None:
        apply(sch, row["rows"], row["columns"], row["j_outside"], row["panel"])

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        """Tiles of A are loaded once for each block of columns, those of B once for each block of rows."""
        loads = 1 / columns["rows"] + 1 / columns["columns"]
        return Costs(rows).put(core_cycles=1e4 * loads)


class UnitRule(ScheduleRule):
    """Products go to the unit."""

    name, priority, whole = "on_unit", 1, True

    def match(self, program: Any, block: Any, free: Sequence[Any]) -> Group | None:
        return Group(block, tuple(free)) if block.name == "C" else None

    def parts(self, program: Any, group: Group, machine: Any) -> list[Part]:
        m, n, k = group.anchor.extents.values()
        return [OnUnit((m // R, n // C))] if m % R == n % C == k % K == 0 else []


# 3. Measuring by simulation.


def simulated(func: tw.PrimFunc, arrays: Sequence[np.ndarray]) -> int:
    """Run a program for the unit on arrays, which get its results; return its cycles."""
    machine = Machine(UNIT)
    interpret(func, *arrays, externs=machine.instructions())
    return cycles(machine.trace, UNIT)


class SimulatedRunner(Runner):
    """This runner measures in cycles of the simulator, and compares the results with the interpreter's."""

    def open(self, func: tw.PrimFunc, target: tw.Target, *, seed: int = 0, verify: bool = True, **_: Any) -> None:
        rng = np.random.default_rng(seed)
        self.arrays = [
            rng.integers(-8, 8, [int(n) for n in buffer.shape]).astype(buffer.dtype) for buffer in func.buffers
        ]
        self.wanted = [array.copy() for array in self.arrays]
        interpret(func, *self.wanted)

    def measure(self, programs: Sequence[str], **_: Any) -> list[MeasureResult]:
        return [self.one(text) for text in programs]

    def one(self, text: str) -> MeasureResult:
        got = [array.copy() for array in self.arrays]
        try:
            count = simulated(tw.tir.parse(text), got)
        except TooSmall as error:
            return MeasureResult("run_error", str(error))
        if count == 0:
            return MeasureResult("run_error", "the schedule has no instruction of the unit")
        if not all(np.array_equal(one, two) for one, two in zip(got, self.wanted, strict=True)):
            return MeasureResult("wrong_result", "the simulated results differ from the interpreter's")
        machine = {"simulated": UNIT.name, "cycles": count, "clock_hz": UNIT.clock_hz}
        return MeasureResult("ok", times=(count / UNIT.clock_hz,), machine=machine)

    def close(self) -> None:
        pass


# 4. The unit as a target.


class UnitModule:
    """A program for the unit, which runs in the simulator. ``cycles`` are those of the last call."""

    def __init__(self, func: tw.PrimFunc) -> None:
        self.func, self.cycles, self.origin = func, 0, ""

    def __call__(self, *arrays: np.ndarray) -> None:
        self.cycles = simulated(self.func, arrays)


def register() -> None:
    """Make the unit a target: ``tw.build(func, "tensor-unit", db=…)``."""
    from tilewright.codegen.late_tables import TARGET_KINDS

    declare_all()
    if "tensor-unit" not in TARGET_KINDS:
        register_target(
            TargetKind(
                "tensor-unit",
                lambda functions, _: UnitModule(next(iter(functions.values()))),
                f"{UNIT.name}-unknown-none",
            )
        )


def main(m: int = 32, n: int = 64, k: int = 64, trials: int = 36) -> dict[str, int]:
    """Tune, build from the record, run, compare with NumPy; returns the cycles of the first and of the best schedule."""
    register()
    for name in ("zero", "matmul", "load_a", "load_b", "store_none", "store_relu"):
        TensorIntrin.get(f"unit.{name}").check(externs=Machine(UNIT).instructions())
    func = product(m, n, k)
    plain = tw.Schedule(func)
    apply(plain, 1, 1, 0, 0)
    db = tw.Database(":memory:")
    found = tuner.tune(
        func, tw.Target("tensor-unit"), trials=trials, db=db, runner=SimulatedRunner(), rules=[UnitRule()],
        final_race=0, stop_early=False,
    )  # fmt: skip
    best = found.best
    assert best is not None and best.machine["simulated"] == UNIT.name
    module = tw.build(func, "tensor-unit", db=db)
    rng = np.random.default_rng(1)
    a, b = [rng.integers(-128, 128, shape).astype(UNIT.dtype) for shape in ((m, k), (k, n))]
    d = np.empty((m, n), UNIT.sums)
    module(a, b, d)
    assert np.array_equal(d, np.maximum(a.astype(UNIT.sums) @ b, 0))
    arrays = [a, b, np.empty_like(d)]
    first = simulated(plain.func, arrays)
    least = m * n * k // (R * C)
    right = [record for record in found.records if record.ok]
    print(f"{m}x{n}x{k} on {UNIT.name}: {first} cycles tile by tile, {module.cycles} tuned; the array needs {least}")
    print(
        f"{len(right)} of {len(found.records)} candidates fit; the best: {dict(best.decisions)}, {dict(best.machine)}"
    )
    return {"first": first, "best": module.cycles, "least": least}


if __name__ == "__main__":
    main()
