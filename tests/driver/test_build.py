"""Building, tuning and benching from Python: what is asked for, what is on record, and what is compiled."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import CODEGEN_VERSION
from tilewright.driver import BuildError, NoRecordError, TuneError, parse_spec, plan
from tilewright.driver.benching import numpy_threads
from tilewright.driver.building import is_scheduled, request
from tilewright.tir.expr import structural_equal
from tilewright.tuner.measure.inputs import compare, make_arguments, tolerance
from tilewright.tuning_db import TuningRecord

SPEC = "matmul:M=13,N=17,K=7"


def product():
    A = te.placeholder((13, 7), name="A")
    B = te.placeholder((7, 17), name="B")
    k = te.reduce_axis((0, 7), name="k")
    return [A, B, te.compute((13, 17), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


def check(f):
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (13, 7)).astype(np.float32)
    b = rng.integers(-4, 5, (7, 17)).astype(np.float32)
    c = np.full((13, 17), np.nan, np.float32)
    f(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def schedule_of(args):
    sch = tw.Schedule(te.create_prim_func(args))
    sch.parallel(sch.get_loops(sch.get_block("C"))[0])
    return sch


def stage_schedule(args):
    s = te.create_schedule(args[-1].op)
    s[args[-1]].vectorize(s[args[-1]].op.axis[1])
    return s


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda a: (a, None), "default"),
        (lambda a: (te.create_prim_func(a), None), "default"),
        (lambda a: (tw.IRModule({"main": te.create_prim_func(a)}), None), "default"),
        (lambda a: (parse_spec(SPEC), None), "default"),
        (lambda a: (SPEC, None), "default"),
        (lambda a: ("matmul", {"M": 13, "N": 17, "K": 7}), "default"),
        (lambda a: ("matmul:M=13", ["N=17", "K=7"]), "default"),
        (lambda a: (schedule_of(a), None), "given"),
        (lambda a: (schedule_of(a).mod, None), "given"),
        (lambda a: (stage_schedule(a), a), "given"),
    ],
)
def test_whatever_says_what_to_compute_can_be_built(make, kind):
    inputs, args = make(product())
    made = plan(inputs, args=args)
    assert made.kind == kind
    module = tw.build(inputs, args=args, name="kernel")
    assert list(module) == ["kernel"] and module.origin == made.origin
    check(module)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        (42, TypeError, "expected a PrimFunc, a Schedule, te tensors, a workload or a spec .*, not int"),
        ([], TypeError, "expected a PrimFunc"),
        ("matmull", ValueError, "did you mean matmul"),
        ({"f": product(), "g": 42}, TypeError, "expected a PrimFunc"),
        (stage_schedule(product()), TypeError, r"needs its arguments as well: build\(s, \[A, B, C\]\)"),
    ],
)
def test_what_cannot_be_built(inputs, error, message):
    with pytest.raises(error, match=message):
        tw.build(inputs)


OTHER = "llvm -mcpu=x86-64-v2 -num-cores=1"


def test_the_target_comes_second_everywhere():
    args = product()
    s = stage_schedule(args)
    built = [
        tw.build(args, OTHER),
        tw.build(s, args, OTHER),
        tw.build(s, args, target=OTHER),
        tw.build(s, OTHER, args=args),
    ]
    assert [str(module.target) for module in built] == [str(tw.Target(OTHER))] * 4
    assert str(plan(args, OTHER).target) == str(tw.Target(OTHER))
    assert tw.bench(args, OTHER, rounds=1, round_seconds=1e-4, machine=False).target == str(tw.Target(OTHER))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: tw.build(te.create_prim_func(a), a), r"PrimFunc takes none; args are the tensors of a te schedule"),
        (lambda a: tw.build(a, a), "list takes none"),
        (lambda a: tw.build(a, OTHER, target=OTHER), "the target is given twice"),
        (lambda a: tw.build(stage_schedule(a), a, args=a), "args are given twice"),
        (lambda a: tw.build(a, OTHER, "kernel"), "'kernel': after the inputs comes the target"),
        (lambda a: tw.build({"f": a}, args=a), "args for 1 functions, which take none"),
        (lambda a: tw.build(a, 5), "5: after the inputs comes the target"),
        (lambda a: tw.build(a, bounds={}), r"build\(\) takes bounds for models only, not for list"),
        (lambda a: tw.build(a, trials=5), r"build\(\) takes no 'trials'; there are args, db, name, target"),
        (lambda a: tw.build(a, nam="f"), r"build\(\) takes no 'nam'; did you mean name\?"),
        (lambda a: tw.tune(a, trails=5), r"tune\(\) takes no 'trails'; did you mean trials\?"),
        (lambda a: tw.tune(a, [1]), "list takes none"),
        (lambda a: tw.tune(a, args=[1]), "list takes none"),
        (lambda a: tw.bench(a, round=5), r"bench\(\) takes no 'round'; did you mean rounds\?"),
        (lambda a: tw.bench(parse_spec(SPEC), args={"M": 5}), "WorkloadCase takes none"),
    ],
)
def test_arguments_that_nothing_uses_are_refused(call, message):
    with pytest.raises(TypeError, match=message):
        call(product())


def test_modules_of_several_functions_are_built_whole(tmp_path):
    """Two functions of te have one global symbol; each is found by its name, in the header as well."""

    def times(factor):
        A = te.placeholder((17,), name="A")
        return te.create_prim_func([A, te.compute((17,), lambda i: A[i] * factor, name="B")])

    module = tw.IRModule({"twice": times(2.0), "thrice": times(3.0)})
    sch = tw.Schedule(module)
    sch.work_on("thrice")
    sch.vectorize(sch.get_loops("B")[0])
    a = np.arange(17, dtype="float32")
    for inputs, origin in (
        (module, "twice: the analytic model's best schedule.*; thrice: the analytic model's"),
        (sch, "twice: scheduled by the caller; thrice: scheduled by the caller"),
        (sch.mod, "twice: the analytic model's best schedule.*; thrice: scheduled by the caller"),
        ({"twice": times(2.0), "thrice": sch.mod["thrice"]}, "twice: .*; thrice: scheduled by the caller"),
    ):
        built = tw.build(inputs)
        assert list(built) == ["twice", "thrice"] and re.match(origin, built.origin)
        for name, factor in (("twice", 2), ("thrice", 3)):
            b = np.zeros(17, "float32")
            built[name](a, b)
            np.testing.assert_array_equal(b, a * factor)
    built.export(tmp_path / "both.o")
    header = (tmp_path / "both.h").read_text()
    assert "int32_t twice(const float* A, float* B);" in header and "int32_t thrice(" in header
    with pytest.raises(ValueError, match="a name for 2 functions"):
        tw.build(module, name="f")
    for ask in (tw.tune, tw.bench):
        for inputs in (module, sch):
            with pytest.raises(TypeError, match="one function is needed; this one has .'thrice', 'twice'"):
                ask(inputs)


def test_symbolic_shapes_are_scheduled_by_example():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    args = [A, te.compute((n,), lambda i: A[i] * 2.0, name="B")]
    f = tw.build(args)
    assert f.origin.startswith("the analytic model's best schedule for n = 64")
    for size in (1, 7, 13, 16, 17):
        a, b = np.ones(size, np.float32), np.zeros(size, np.float32)
        f(a, b)
        assert b.tolist() == [2.0] * size
    with pytest.raises(TuneError, match=r"buffer A has the symbolic shape \(n\).*; give (numbers|examples)"):
        tw.tune(args)
    with pytest.raises(BuildError, match=r"buffer A has the symbolic shape \(n\).*; give (numbers|examples)"):
        tw.bench(args)


TRIANGLE = """
@T.prim_func
def main(A: T.Buffer((17, 33), "float32"), B: T.Buffer((17, 33), "float32"), C: T.Buffer((17,), "float32")):
    for i in range(17):
        for j in range(i * 2 + 1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    for i in range(17):
        for j in range(i + 1):
            with T.block("C"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vj]
"""

SCAN = """
@T.prim_func
def main(A: T.Buffer((13, 33), "float32"), B: T.Buffer((13, 33), "float32")):
    for t, i in T.grid(13, 33):
        with T.block("B"):
            vt = T.axis.scan(13, t)
            vi = T.axis.spatial(33, i)
            B[vt, vi] = A[vt, vi] + T.if_then_else(vt > 0, B[vt - 1, vi], T.float32(0))
"""


@pytest.mark.parametrize(("text", "vectors"), [(TRIANGLE, 3), (SCAN, 1)], ids=["triangle", "scan"])
def test_loops_that_keep_their_order_are_scheduled(text, vectors):
    func = tw.tir.parse(text)
    made = plan(func, target="native -num-cores=1")
    assert made.kind == "default" and made.origin == "the analytic model's best schedule, not tuned"
    assert made.scheduled.script().count("T.vectorized") == vectors
    arguments = make_arguments(func, 0)
    tw.tir.interpret(func, *arguments.values)
    expected = [r.copy() for r in arguments.results()]
    arguments.reset_outputs()
    made.compile()(*arguments.values)
    assert compare(arguments.results(), expected, ["float32"] * len(expected), tolerance(func)) is None
    result = tw.tune(func, "native -num-cores=1", trials=2)
    assert result.best is not None and not result.failures


@pytest.mark.parametrize(
    ("params", "extent", "unknown", "origin"),
    [
        ("n: T.int32, A: T.Buffer((17,), 'float32')", "n", "the extent n of loop i is symbolic: an argument has it",
         "the analytic model's best schedule for n = 64"),
        ("P: T.Buffer((1,), 'int32'), A: T.Buffer((17,), 'float32')", "P[0]",
         "the extent P[0] of loop i is symbolic: buffer P has it",
         "not scheduled: the extent P[0] of loop i is symbolic: buffer P has it"),
    ],
)  # fmt: skip
def test_extents_that_are_known_at_the_call(params, extent, unknown, origin):
    func = tw.tir.parse(f"""
@T.prim_func
def main({params}):
    for i in range({extent}):
        with T.block("A"):
            vi = T.axis.spatial(17, i)
            A[vi] = T.float32(1)
""")
    assert plan(func).origin.startswith(origin)
    with pytest.raises(TuneError, match=re.escape(f"cannot tune main: {unknown}") + ".*; give (numbers|examples)"):
        tw.tune(func)
    with pytest.raises(ValueError, match=re.escape(f"{unknown}; tuning needs numbers")):
        tw.tuner.tune(func, tw.Target("native"), trials=1)


def test_what_no_rule_takes_is_said():
    func = tw.tir.parse("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16, 7), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, 15 - i)
            B[vi] = A[vi] * T.float32(2)
    for i, j in T.grid(16, 7):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            with T.block("inner"):
                C[vi, vj] = B[vi]
""")
    reasons = (
        "block C, inner: its loops hold more than loops and blocks; block B: its axis vi is 15 - i, not the loop i, so it "
        "runs as plain loops, without vectors, tiles and threads; a stage whose axes are its loops gets them"
    )
    assert plan(func).origin == f"as written, not tuned: {reasons}"
    with pytest.raises(TuneError, match=f"no schedule rule has a candidate; {reasons}"):
        tw.tune(func, "native -num-cores=1")


def test_scheduled_functions_are_known_by_their_loops():
    func = te.create_prim_func(product())
    assert not is_scheduled(func) and is_scheduled(schedule_of(product()).func)
    x = te.placeholder((7, 13), name="X")
    assert not is_scheduled(te.create_prim_func([x, te.ops.softmax(x)]))  # its {"axis": 1} describes the computation
    sch = tw.Schedule(func)
    sch.annotate(sch.get_block("C"), "pragma_auto_unroll_max_step", 16)
    assert is_scheduled(sch.func)
    assert structural_equal(request(func).func, func)
    with pytest.raises(TuneError, match="is scheduled already"):
        tw.tune(schedule_of(product()))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("db") / "tuning.db"
    seen = []
    result = tw.tune(product(), "native -num-cores=1", trials=6, db=path, callbacks=[seen.append])
    assert result.best is not None and len(result.records) == 6 and seen[-1].trials_done == 6
    return path


def test_the_best_record_is_replayed(path, caplog):
    caplog.set_level(logging.INFO, logger="tilewright")
    with tw.Database(path, readonly=True) as db:
        best = db.best(te.create_prim_func(product()), tw.Target("native -num-cores=1"))
        by_path = plan(product(), target="native -num-cores=1", db=path)
        by_db = plan(product(), target="native -num-cores=1", db=db)
    assert best.codegen_version == CODEGEN_VERSION
    assert by_path.kind == "tuned" and by_path.record == best == by_db.record
    assert best.run_seconds == min(r.run_seconds for r in tw.Database(path, readonly=True).records() if r.ok)
    f = tw.build(product(), target="native -num-cores=1", db=path, require_tuned=True)
    assert f.origin == f"record {best.id} of {path}" and f.origin in caplog.text
    check(f)


def test_a_spec_of_the_same_program_finds_the_same_record(path):
    """Names of tensors do not matter: the key is of the program."""
    args = product()
    renamed = plan(SPEC, target="native -num-cores=1", db=path)
    assert renamed.kind in ("tuned", "default")
    other = plan(args, target="native -num-cores=2", db=path)
    assert other.kind == "default" and other.origin.endswith("not tuned (it has records for native -num-cores=1)")


def test_without_a_record(path):
    with pytest.raises(NoRecordError, match="relu:M=7,N=7 on native .* has no record of it; tune it first"):
        tw.build("relu:M=7,N=7", db=path, require_tuned=True)
    with pytest.raises(NoRecordError, match="no database was given"):
        tw.build(SPEC, require_tuned=True)
    assert "not tuned" in tw.build("relu:M=7,N=7", db=path).origin


def test_records_of_another_code_generator_come_last_and_are_said(tmp_path):
    machine, func = tw.Target("native -num-cores=1"), te.create_prim_func(product())
    sch = tw.Schedule(func)
    sch.unroll(sch.get_loops("C")[2])
    with tw.Database(tmp_path / "t.db") as db:
        workload, key = db.add_workload(func), db.add_target(machine)
        old = TuningRecord(workload, key, sch.trace.dumps(), times=(1e-9,), codegen_version=CODEGEN_VERSION - 1)
        (number,) = db.add_records([old])
        made = plan(func, target=machine, db=db, require_tuned=True)
        assert made.origin == (
            f"record {number} of {db.path}, measured with code generator {CODEGEN_VERSION - 1}, "
            f"not {CODEGEN_VERSION}: tune it again"
        )
        result = tw.tune(func, machine, trials=2, db=db)
        assert result.best.codegen_version == CODEGEN_VERSION and result.best.run_seconds > 1e-9
        assert result.records[1].trace == old.trace  # what was best is measured again, after the default
        made = plan(func, target=machine, db=db)
        assert made.record.codegen_version == CODEGEN_VERSION and "code generator" not in made.origin
        assert db.best(func, machine).id == number


@pytest.mark.parametrize(
    "trace",
    ['{"format":1,"insts":[]', "[]", '{"format":99,"insts":[]}', '{"format":1,"insts":[{"name":"os.system"}]}', ""],
)
def test_a_record_that_does_not_apply_is_passed_over(tmp_path, caplog, trace):
    machine = tw.Target("native -num-cores=1")
    func = te.create_prim_func(product())
    with tw.Database(tmp_path / "t.db") as db:
        record = TuningRecord(db.add_workload(func), db.add_target(machine), trace=trace, times=(1e-9,))
        db.add_record(record)
        f = tw.build(func, target=machine, db=db)
        assert f.origin.startswith(f"record 1 of {db.path} does not apply to main: ")
        assert f.origin.endswith("; the analytic model's best schedule, not tuned") and "does not apply" in caplog.text
        check(f)
        with pytest.raises(BuildError, match="does not apply to main"):
            tw.build(func, target=machine, db=db, require_tuned=True)


def test_tuning_again_builds_on_the_records(path):
    again = tw.tune(product(), "native -num-cores=1", trials=2, db=path, seed=1)
    with tw.Database(path, readonly=True) as db:
        assert db.count("sessions") == 2 and db.count("workloads") == 1
        traces = [r.trace for r in db.records()]
        assert len(traces) == 6 + len(again.records) and len(set(traces)) == len(traces)
        assert again.best.run_seconds == min(r.run_seconds for r in db.records() if r.ok)


def test_tuning_for_a_machine_that_is_not_here():
    with pytest.raises(
        TuneError, match="this machine cannot run code for llvm -mtriple=aarch64.* it has no aarch64 processor"
    ):
        tw.tune(SPEC, "llvm -mtriple=aarch64-linux-gnu")


def test_bench_compares_and_checks(path):
    result = tw.bench(product(), "native -num-cores=1", db=path, rounds=2, round_seconds=1e-3, machine=False)
    assert [row.name for row in result.rows] == ["default", "tuned"]
    assert result.flops == 2 * 13 * 17 * 7 and result.roofline_seconds is None
    result = tw.bench("softmax:M=7,N=17", "native -num-cores=1", rounds=2, round_seconds=1e-3)
    assert [row.name for row in result.rows] == ["default", "numpy"]
    assert not any(row.error for row in result.rows) and all(len(row.times) == 2 for row in result.rows)
    figures = result.figures(result.rows[0])
    assert figures["speedup_over_numpy"] > 0 and 0 < figures["share_of_roofline"]
    assert result.as_dict()["rows"][1]["name"] == "numpy"


def test_a_wrong_result_is_said_to_be_wrong():
    def off_by_one(ins, outs, **_):
        np.add(ins[0], 1, out=outs[0])

    @tw.workload(reference=off_by_one)
    def copy(n: int = 7):
        A = te.placeholder((n,), name="A")
        return [A, te.compute((n,), lambda i: A[i] * 1.0, name="B")]

    result = tw.bench(copy.case(), rounds=1, round_seconds=1e-4, machine=False)
    assert "7 of 7 elements are wrong" in result.row("default").error


def test_numpys_threads_are_put_back():
    with numpy_threads(1) as first, numpy_threads(2) as second:
        assert first == second


def named(a, b, c, d, renamed=False):
    """max(a @ b, 0) with these names; ``renamed``: of axes as well."""
    A, B = te.placeholder((13, 7), name=a), te.placeholder((7, 17), name=b)
    k = te.reduce_axis((0, 7), name="p" if renamed else "k")
    if renamed:
        C = te.compute((13, 17), lambda x, y: te.sum(A[x, k] * B[k, y], axis=k), name=c)
        return [A, B, te.compute((13, 17), lambda x, y: te.max(C[x, y], 0.0), name=d)]
    C = te.compute((13, 17), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name=c)
    return [A, B, te.compute((13, 17), lambda i, j: te.max(C[i, j], 0.0), name=d)]


def by_handles(sch):
    block = sch.get_block("C")
    copy = sch.cache_read(block, "B", "local")
    sch.vectorize(sch.get_loops(sch.get_block("D"))[1])
    sch.unroll(sch.get_loops(copy)[0])


def by_names(sch):
    sch.cache_read("C", "B", "local")
    sch.cache_write("C", 0, "local")
    sch.compute_inline("C_local")
    sch.unroll(sch.get_loops("B_local")[0])
    sch.vectorize(sch.get_loops("D")[1])
    sch.set_scope("B_local", 0, "global")


@pytest.mark.parametrize("schedule", [by_handles, by_names])
@pytest.mark.parametrize(
    "names", ["ABCD", "XYZW", ("A", "B", "D", "C"), ("D", "C", "A", "B"), ("q", "C_local", "B_local", "C")], ids=str
)
def test_a_record_is_found_and_replayed_whatever_the_names(tmp_path, schedule, names):
    recorded, func = te.create_prim_func(named(*"ABCD")), te.create_prim_func(named(*names, renamed=True))
    sch = tw.Schedule(recorded)
    schedule(sch)
    target = tw.Target("native -num-cores=1")
    with tw.Database(tmp_path / "tuning.db") as db:
        key, machine = db.add_workload(recorded), db.add_target(target)
        db.add_record(TuningRecord(key, machine, sch.trace.dumps(), times=(1e-3,)))
        made = plan(func, target=target, db=db, require_tuned=True)
    assert made.kind == "tuned"
    assert structural_equal(made.scheduled, sch.func)
    assert [b.name for b in made.scheduled.buffers] == [names[0], names[1], names[3]]
    again = tw.Schedule(func)
    made.trace.apply_to_schedule(again)
    assert structural_equal(again.func, sch.func)


def test_a_record_that_names_its_buffers_is_replayed_on_other_names(tmp_path):
    sch = tw.Schedule(te.create_prim_func(named(*"ABCD")))
    sch.cache_read("C", 1, "local")
    trace = sch.trace.dumps().replace('"read_buffer_index":1', '"read_buffer_index":"B"')
    assert '"B"' in trace  # as traces were recorded at first
    with tw.Database(tmp_path / "tuning.db") as db:
        target = tw.Target("native -num-cores=1")
        key, machine = db.add_workload(te.create_prim_func(named(*"ABCD"))), db.add_target(target)
        db.add_record(TuningRecord(key, machine, trace, times=(1e-3,)))
        made = plan(te.create_prim_func(named(*"BACD")), target=target, db=db, require_tuned=True)
    assert structural_equal(made.scheduled, sch.func)


def test_objects_that_are_no_programs_say_the_way_in():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    with pytest.raises(TypeError, match=r"not Tensor; give a list, inputs first and outputs last: \[A, B\]"):
        tw.build(B)
    with pytest.raises(TypeError, match=r"not function; .* by the decorator tilewright\.workload"):
        tw.build(lambda n: [A, B])


@pytest.mark.parametrize("until", [90, 1.5, 0, -0.5, float("nan"), "0.9", True])
def test_until_is_a_share(until):
    b = tw.graph.Builder("g")
    graph = b.graph([b.op("relu", b.input("x", (7, 13)))])
    for what in ("relu:M=7,N=13", graph):
        with pytest.raises(
            (ValueError, TypeError), match="until is a share of the roofline, a number above 0 and at most"
        ):
            tw.tune(what, "native -num-cores=1", trials=1, until=until)


@pytest.mark.parametrize("option", [{"rounds": 0}, {"rounds": 1.5}, {"round_seconds": float("nan")}, {"seed": -1}])
def test_options_of_bench_out_of_range_are_refused(option):
    b = tw.graph.Builder("g")
    graph = b.graph([b.op("relu", b.input("x", (7, 13)))])
    for what in ("relu:M=7,N=13", graph):
        with pytest.raises((ValueError, TypeError), match=f"^{next(iter(option))} is "):
            tw.bench(what, "native -num-cores=1", **option)
