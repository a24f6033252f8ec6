"""Reductions over the lanes of a vector: sums, maxima, the largest of those that are numbers."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile, lower
from tilewright.codegen.c import emit_c
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse
from tilewright.tir.interpret import interpret

LARGEST = te.comm_reducer(lambda a, b: te.select(b > a, b, a), lambda d: te.min_value(d), name="largest")
SMALLEST = te.comm_reducer(lambda a, b: te.select(b < a, b, a), lambda d: te.max_value(d), name="smallest")
EITHER = te.comm_reducer(lambda a, b: te.select(a > b, a, b), lambda d: te.min_value(d), name="either")


def declared(reduce, rows: int, columns: int, dtype: str = "float32"):
    x = te.placeholder((rows, columns), dtype, name="x")
    k = te.reduce_axis((0, columns), name="k")
    return te.create_prim_func([x, te.compute((rows,), lambda i: reduce(x[i, k], axis=k), name="y")])


def by_lanes(func, lanes: int) -> Schedule:
    sch = Schedule(func)
    sch.rfactor(sch.split(sch.get_loops("y")[-1], [None, lanes])[1], 1)
    sch.annotate(sch.get_loops("y")[-1], "tir.horizontal_reduce", 1)
    return sch


@pytest.mark.parametrize("target", ["native", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("columns", [16, 33, 61])
@pytest.mark.parametrize(
    ("reduce", "numpy"), [(LARGEST, np.fmax.reduce), (SMALLEST, np.fmin.reduce), (te.max, np.max), (te.sum, np.sum)]
)
def test_lanes(reduce, numpy, columns, target):
    func = declared(reduce, 7, columns)
    sch = by_lanes(func, 16)
    x = np.random.default_rng(0).integers(-9, 9, (7, columns)).astype("float32")
    x[1, 5], x[2, ::2], x[3, :8], x[4, 3] = np.nan, np.nan, -np.inf, np.inf
    want = numpy(x, axis=1).astype("float32")
    for run in (lambda *a: interpret(sch.func, *a), compile(sch.func, Target(f"{target} -num-cores=1"), "kernel")):
        y = np.full(7, np.nan, "float32")
        run(x, y)
        np.testing.assert_array_equal(y, want)


def test_the_numbers_take_one_instruction_a_step():
    func = by_lanes(declared(LARGEST, 7, 64), 16).func
    asm = compile(func, Target("llvm -mcpu=x86-64-v4 -num-cores=1"), "kernel").get_source("asm")
    assert "vmaxps" in asm and "vcmpunord" not in asm


def test_a_maximum_that_depends_on_the_order_is_left_alone():
    with pytest.raises(ScheduleError, match="is not a known reduction"):
        by_lanes(declared(EITHER, 7, 64), 16)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("rows", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("lanes", [4, 16, 64])
def test_rows_at_once(rows, lanes, dtype):
    """A vector loop over rows with a horizontal loop inside: the rows become the lanes of one vector."""
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer(({rows * 3}, {lanes}), "{dtype}"), B: T.Buffer(({rows * 3},), "{dtype}")):
    for i in range(3):
        for r in T.vectorized({rows}):
            for l in T.serial({lanes}, annotations={{"tir.horizontal_reduce": 1}}):
                B[i * {rows} + r] = B[i * {rows} + r] + A[i * {rows} + r, l]
""")
    a = np.random.default_rng(0).integers(-9, 9, (rows * 3, lanes)).astype(dtype)
    targets = [Target(f"{t} -num-cores=1") for t in ("native", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2")]
    lowered = lower(func, targets[0])
    assert "vector_reduce_add" in lowered.func.script() and "for l in" not in lowered.func.script()
    for run in (lambda *x: interpret(lowered.func, *x), *[compile(func, t, "kernel") for t in targets]):
        b = np.ones(rows * 3, dtype)
        run(a, b)
        np.testing.assert_array_equal(b, a.sum(1) + 1)


@pytest.mark.parametrize("rows", [5, 13])
def test_rows_that_are_left_over(rows):
    func = declared(LARGEST, rows, 48)
    sch = by_lanes(func, 16)
    i, lane = sch.get_loops("y")
    _, row = sch.split(i, [None, 4])
    sch.vectorize(row)
    x = np.random.default_rng(0).integers(-9, 9, (rows, 48)).astype("float32")
    x[1, 5], x[2, ::2], x[4, :8] = np.nan, np.nan, -np.inf
    for run in (lambda *a: interpret(sch.func, *a), compile(sch.func, Target("native -num-cores=1"), "kernel")):
        y = np.full(rows, np.nan, "float32")
        run(x, y)
        np.testing.assert_array_equal(y, np.fmax.reduce(x, axis=1))


def test_four_rows_take_six_shuffles_and_two_extracts():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 16)), B: T.Buffer((4,))):
    for r in T.vectorized(4):
        for l in T.serial(16, annotations={"tir.horizontal_reduce": 1}):
            B[r] = B[r] + A[r, l]
""")
    asm = compile(func, Target("llvm -mcpu=x86-64-v4 -num-cores=1"), "kernel").get_source("asm")
    assert asm.count("\tvunpck") == 6 and asm.count("\tvextract") == 2 and asm.count("\tvaddps") == 6
    source = emit_c([lower(func, Target("llvm -mcpu=x86-64-v4 -num-cores=1"))])
    assert "for (int j = 0; j < 4; ++j)" in source


BYTES = {
    "differences": lambda a, b: te.max(a - b, b - a),
    "absolute": lambda a, b: te.abs(a - b),
    "threefold": lambda a, b: a * 3,
    "products": lambda a, b: a * b,
}


@pytest.mark.parametrize("target", ["native", "llvm -mcpu=x86-64-v2", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize("lanes", [8, 16, 32])
@pytest.mark.parametrize("form", BYTES)
def test_all_lanes_of_bytes_are_summed(form, lanes, target):
    """``start`` is loop invariant, so that all passes of LLVM run."""
    x, y = te.placeholder((7, lanes), "uint8", name="x"), te.placeholder((7, lanes), "uint8", name="y")
    start, k = te.placeholder((1,), "int32", name="start"), te.reduce_axis((0, lanes), name="k")
    term = lambda i: BYTES[form](x[i, k].astype("int32"), y[i, k].astype("int32"))  # noqa: E731
    sums = te.compute((7,), lambda i: te.sum(term(i), axis=k), name="y")
    func = te.create_prim_func([x, y, start, te.compute((7,), lambda i: sums[i] + start[0], name="z")])
    sch = by_lanes(func, lanes)
    vector, rest = sch.get_block("y_rf"), sch.get_block("y")
    sch.compute_at(vector, sch.get_loops(rest)[0])
    sch.set_scope(vector, 0, "local")
    sch.vectorize(sch.get_loops(vector)[1])
    r = np.random.default_rng(0)
    a, b = r.integers(0, 256, (7, lanes), "uint8"), r.integers(0, 256, (7, lanes), "uint8")
    want, got = np.zeros(7, "int32"), np.zeros(7, "int32")
    interpret(func, a, b, np.array([5], "int32"), want)
    compile(sch.func, target)(a, b, np.array([5], "int32"), got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "body",
    [
        "for m in range(2):\n            B[0] = B[0] + A[k * 2 + m]",
        "T.evaluate(k)",
        "B[0] = B[0] + A[k]\n        B[1] = B[1] + A[k]",
    ],
)
def test_loops_of_another_shape_stay(body):
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((32,)), B: T.Buffer((2,))):
    B[0] = T.float32(1)
    B[1] = T.float32(2)
    for k in T.serial(16, annotations={{"tir.horizontal_reduce": 1}}):
        {body}
""")
    a, want, got = np.arange(32, dtype="float32"), np.zeros(2, "float32"), np.zeros(2, "float32")
    interpret(func, a, want)
    compile(func, "native -num-cores=1", cache=False)(a, got)
    np.testing.assert_array_equal(got, want)


RUNNING = """
@T.prim_func
def main(X: T.Buffer((5, 40), "{dtype}"), S: T.Buffer((5, 40), "{dtype}")):
    T.func_attr({{"tir.noalias": True}})
    for i, c in T.grid(5, 3):
        for l in T.serial({lanes}, annotations={{"tir.horizontal_reduce": 1}}):
            if c * {lanes} + l < {steps}:
                S[i, {at}] = {step}
"""
FORWARDS = {"at": "c * {lanes} + l + 1", "before": "S[i, c * {lanes} + l]", "term": "X[i, c * {lanes} + l + 1]"}
BACKWARDS = {"at": "38 - c * {lanes} - l", "before": "S[i, 39 - c * {lanes} - l]", "term": "X[i, 38 - c * {lanes} - l]"}


def running(step: str, form: dict[str, str], lanes: int, steps: int, dtype: str) -> str:
    words = {name: text.format(lanes=lanes) for name, text in form.items()}
    return RUNNING.format(dtype=dtype, lanes=lanes, steps=steps, at=words["at"], step=step.format(**words))


@pytest.mark.parametrize("target", ["native", "llvm -mcpu=x86-64-v2", "c -mcpu=x86-64-v3"])
@pytest.mark.parametrize(("lanes", "steps"), [(4, 12), (8, 21), (13, 39), (16, 33)])
@pytest.mark.parametrize("form", [FORWARDS, BACKWARDS], ids=["forwards", "backwards"])
@pytest.mark.parametrize(
    ("step", "dtype"),
    [
        ("{before} + {term}", "int32"),
        ("{term} + {before}", "float32"),
        ("{before} * {term}", "int64"),
        ("T.max({before}, {term})", "float32"),
        ("T.min({term} * T.float64(2), {before})", "float64"),
    ],
)
def test_running_sums_are_prefix_sums_of_vectors(step, dtype, form, lanes, steps, target):
    func = parse(running(step, form, lanes, steps, dtype))
    made = lower(func, f"{target} -num-cores=1")
    if not target.startswith("c"):  # whose loops its compiler turns into vectors
        assert made.script().count("T.Shuffle") >= (lanes - 1).bit_length()
    x = np.random.default_rng(0).integers(-9, 9, (5, 40)).astype(dtype)
    if "*" in step and dtype == "int64":
        x = np.where(x < 0, -1, np.where(x < 6, 1, 2))
    if dtype == "float32" and "max" in step:
        x[1, 20], x[2, 3], x[3, 30] = np.nan, np.inf, -np.inf
    want, got = x.copy(), x.copy()
    interpret(func, x, want)
    compile(func, Target(f"{target} -num-cores=1"), "kernel")(x, got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "step",
    [
        "{before} - {term}",  # in no other order
        "{before} * T.float32(0.5) + {term}",
        "{before} + {term} * S[i, 0]",  # the term reads what is stored
        "{before} + S[i, c * 8 + l]",
        "T.if_then_else(X[i, l] < T.float32(0), {term}, {before} + {term})",
    ],
)
def test_other_steps_stay_in_order(step):
    func = parse(running(step, FORWARDS, 8, 20, "float32"))
    made = lower(func, "llvm -mcpu=x86-64-v4 -num-cores=1")
    assert "T.Shuffle" not in made.script()
    x = np.random.default_rng(0).standard_normal((5, 40)).astype("float32")
    want, got = x.copy(), x.copy()
    interpret(func, x, want)
    compile(func, Target("native -num-cores=1"), "kernel")(x, got)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_the_next_vector_waits_for_one_combination():
    """The last lane is in a register, and is no lane of the vector that was stored."""
    x = te.placeholder((3, 800), name="X")
    sch = Schedule(te.create_prim_func([x, te.ops.cumsum(x, 1, name="S")]))
    sch.annotate(sch.split(sch.get_loops("S_step")[-1], [None, 8])[1], "tir.horizontal_reduce", 1)
    text = lower(sch.func, "llvm -mcpu=x86-64-v4 -num-cores=1").script()
    assert "S_carried[()] = S_carried[()] + T.Shuffle([S_terms[()]], [7])" in text


def test_a_sum_of_negative_zeros_keeps_its_sign():
    func = parse(running("{before} + {term}", FORWARDS, 8, 24, "float32"))
    got = np.full((5, 40), -0.0, "float32")
    compile(func, Target("native -num-cores=1"), "kernel")(got.copy(), got)
    assert np.signbit(got).all()
