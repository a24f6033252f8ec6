"""One object of each public class: its repr has no address and is short, except where it is the text of a program."""

from __future__ import annotations

import inspect
from collections import deque

import numpy as np
import pytest

import tilewright as tw
from tilewright import codegen, driver, graph, schedule, te, tir, tuner, tuning_db

LONGEST = 200
TEXTS = {tw.IRModule, tw.PrimFunc, tw.Schedule, schedule.Trace, *(c for c in vars(tir).values() if inspect.isclass(c))}
"""Classes whose repr is the text of a program, as long as that is."""


def walk(node, found):
    """Collects the objects of a program by class."""
    todo, seen = deque([node]), set()
    while todo:
        one = todo.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, (tuple, list)):
            todo.extend(one)
        elif hasattr(type(one), "__dataclass_fields__") and type(one).__module__.startswith("tilewright.tir"):
            found.setdefault(type(one), one)
            todo.extend(getattr(one, name) for name in type(one).__dataclass_fields__)


def declared():
    A, B = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    return A, B, te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


def divided(whole):
    division = graph.fuse(whole)
    return division, division.kernels[0], graph.plan_memory(division)


@pytest.fixture(scope="module")
def objects():
    A, B, C = declared()
    func = te.create_prim_func([A, B, C])
    sch = tw.Schedule(func)
    sch.split(sch.get_loops(sch.get_block("C"))[0], [None, 16])
    module = tw.build(sch)
    arrays = [np.zeros((64, 64), "float32") for _ in range(3)]
    target = tw.Target("native -num-cores=1")
    session = tuner.TuningSession(func, target, stop_early=False)
    sketch = session.space.sketches[0]
    record = tuning_db.TuningRecord("w" * 64, "t", "{}" * 500, times=(1e-3,) * 100)
    event = (1, 64, 0, 1e-3, 1.0, 1.0, 2.0, (record,) * 8)
    net = graph.Builder("net")
    x = net.input("x", (4, 8))
    y = net.op("relu", net.op("multiply", x, net.constant(np.ones((4, 8), "float32"))))
    rows = [driver.BenchRow(n, "default: " + "long words " * 40, [1.23456789e-6] * 15) for n in ("default", "numpy")]
    case = driver.parse_spec("matmul:M=64,N=64,K=64")
    whole = net.graph([y])
    model = tw.build(whole)
    out = [
        func, sch, sch.trace, sch.mod, module, module.bind(*arrays), next(iter(sch.trace.insts)), sch.get_block("C"),
        module[next(iter(module))], codegen.lower(sch, target), codegen.lower(sch, target).params[0], target,
        module.time_evaluator(number=1, repeat=2)(*arrays), codegen.Backend("toy", "toy", lambda f: ""),
        codegen.TargetKind("toy", lambda f, t: None), schedule.TensorIntrin.get("dot_16x4_vnni"),
        A, A[0], C.op, A.op, te.create_schedule(C.op), te.create_schedule(C.op)[C], A[0, 0],
        session, session.space, session.options, session.search, sketch, sketch.decisions[0], sketch.parts[0],
        tuner.Candidate(sketch, (1,) * 8), tuner.RandomSearch(session.space, np.random.default_rng(0)), session.default,
        tuner.MachineModel(64, 32, 2, 1 << 15, 1 << 20, 1 << 25), tuner.PriorModel(), tuner.XGBCostModel(),
        tuner.Costs(100, {name: np.zeros(100) for name in tuner.FEATURE_NAMES}), session.runner,
        tuner.MeasureResult("crash", "words " * 100, (1e-3,) * 100), tuner.ScheduleFunction(declared),
        tuner.Group(None, (None,) * 100), *[getattr(tuner, n)(*event) for n in EVENTS], tuner.Progress(*event),
        tuner.Transferred(sch, record, func, 0.5), record, tuning_db.Database(":memory:"),
        tuner.TuneResult(func, target, record, (record,) * 64, "trials", 1.0, 2.0),
        tuning_db.SessionRecord("s" * 32, config={"a": 1} | {str(n): "x" * 50 for n in range(50)}),
        tuning_db.TargetRecord("t", "llvm"), tuning_db.WorkloadRecord("w" * 64, "text\n" * 1000),
        net, whole, whole.nodes[0], x, *divided(whole), graph.PASSES[0],
        graph.PassTimes({str(n): 1e-3 for n in range(100)}), graph.Services(run=lambda f: None),
        model, rows[0], driver.BenchResult(case.spec, str(target), 1.0, 1.0, rows), driver.GraphOptions(),
        driver.ModelBenchResult("net", str(target), rows, {}), driver.plan(func), model.profile(np.zeros((4, 8), "float32")),
        driver.ModelProgress("net", "k", 1, 2, 1, 10, 1e-3, 1e-3, 1.0), case, case.workload, case.workload.parameters[0],
        driver.ModelTuneResult("net", target, (), "trials", 1.0), driver.QuantizationReport(whole, "int8", (), (), 1), driver.SizesTuneResult(func, target, {}, None, 1.0),
    ]  # fmt: skip
    found = {}
    for one in out:
        found.setdefault(type(one), one)
    walk(func, found)
    return found


EVENTS = ("SearchStarted", "BatchStarted", "CandidateMeasured", "FinalComparison", "SearchEnded")
NOT_BUILT = {
    te.ExternOp: "its base Operation prints it", te.ScanOp: "its base Operation prints it",
    te.ProducerLoad: "an expression, whose repr is its text",
}  # fmt: skip


def test_reprs_are_short_and_have_no_address(objects):
    wrong = {}
    for cls, one in objects.items():
        text = repr(one)
        if " at 0x" in text or (len(text) > LONGEST and cls not in TEXTS):
            wrong[cls.__name__] = text[:300]
    assert not wrong


@pytest.mark.parametrize(
    "package", [tw, te, schedule, codegen, tuner, tuning_db, graph, driver], ids=lambda p: p.__name__
)
def test_every_public_class_is_built(objects, package):
    public = [getattr(package, name) for name in package.__all__]
    classes = {c for c in public if inspect.isclass(c) and not issubclass(c, BaseException)}
    missing = {c for c in classes if not any(issubclass(made, c) for made in objects)} - NOT_BUILT.keys() - TEXTS
    assert not missing
