"""Candidates that use what a program registered itself: workers measure them like others. References share no passes."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.schedule import ScheduleError, TensorIntrin, tensor_intrin
from tilewright.schedule.primitive import REGISTRY, PrimitiveMethods, primitive
from tilewright.tir.expr import Add, reducers
from tilewright.tir.expr.reducers import register_reducer
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tuner import Costs, Group, Part, ScheduleRule, tune
from tilewright.tuner.measure import measuring_worker as worker
from tilewright.tuner.measure import reference
from tilewright.tuner.measure.inputs import compare, tolerance

TARGET = Target("native -num-cores=1")


def add_one(n=16):
    a = te.placeholder((n,), name="A")
    return te.create_prim_func([a, te.compute((n,), lambda i: a[i] + 1.0, name="B")])


def row_sum():
    a, k = te.placeholder((7, 32), name="A"), te.reduce_axis((0, 32), name="k")
    return te.create_prim_func([a, te.compute((7,), lambda i: te.sum(a[i, k], axis=k), name="B")])


@pytest.fixture
def my_intrin():
    name = "my_add_one_16"
    text = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (16,), "float32", offset_factor=1)
    B = T.match_buffer(b, (16,), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(A[0:16])
        T.writes(B[0:16])
        {body}
"""
    loop = """for i in {kind}(16):
            with T.block("one"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + T.float32(1)"""
    desc, impl = (parse(text.format(body=loop.format(kind=kind))) for kind in ("range", "T.vectorized"))
    TensorIntrin.register(name, desc, impl, override=True)
    yield name
    del tensor_intrin._REGISTERED[name]
    tensor_intrin._ADDED.remove(name)


@pytest.fixture
def my_primitive():
    @primitive
    def spin_my_loop(func, loop):
        """Unrolls it, by another name."""
        if loop.name == "never":
            raise ScheduleError("not this one")
        return REGISTRY["unroll"].function(func, loop)

    yield "spin_my_loop"
    del REGISTRY["spin_my_loop"]
    del PrimitiveMethods.spin_my_loop


@pytest.fixture
def my_reducer():
    before = list(reducers.REDUCERS)
    register_reducer("my sum", 1, lambda x, y: (Add(y[0], x[0]),), lambda start: True)
    yield "my sum"
    reducers.REDUCERS[:] = before


class Uses(Part):
    """One candidate: the steps of ``how``."""

    name, decisions = "uses", ()

    def __init__(self, how):
        self.how = how

    def apply(self, sch, row):
        self.how(sch)

    def costs(self, columns, rows):
        return Costs(rows).put(core_cycles=1.0)


class UsesRule(ScheduleRule):
    """Takes any block."""

    name, priority = "uses", 1

    def __init__(self, how):
        self.how = how

    def match(self, program, block, free):
        return Group(block, (block,))

    def parts(self, program, group, machine):
        return [Uses(self.how)]


def with_intrin(sch):
    sch.tensorize(sch.get_loops("B")[0], "my_add_one_16")


def with_primitive(sch):
    sch.spin_my_loop(sch.get_loops("B")[0])


def with_reducer(sch):
    i, k = sch.get_loops("B")
    sch.rfactor(sch.split(k, [None, 8])[1], 1)


@pytest.mark.parametrize(
    ("added", "func", "how"),
    [
        ("my_intrin", add_one, with_intrin),
        ("my_primitive", add_one, with_primitive),
        ("my_reducer", row_sum, with_reducer),
    ],
)
def test_what_a_program_registered_is_measured(request, added, func, how):
    request.getfixturevalue(added)
    result = tune(func(), TARGET, trials=1, rules=[UsesRule(how)], final_race=0)
    assert [(r.status, r.error) for r in result.records] == [("ok", "")]


def masked():
    lengths, x = te.placeholder((16,), "int32", name="L"), te.placeholder((64, 16), "float32", name="X")
    y = te.compute((64, 16), lambda t, b: te.if_then_else(t < lengths[b], x[t, b], te.const(0, "float32")), name="Y")
    return te.create_prim_func([lengths, x, y])


@pytest.mark.parametrize("steps", [0, 30_000])
@pytest.mark.parametrize("make", [masked, row_sum, add_one])
def test_the_reference_is_the_interpreters(make, steps, monkeypatch):
    """Interpreted where that is little work; else compiled by the few passes that are needed."""
    monkeypatch.setattr(reference, "_INTERPRETED_STEPS", steps)
    func = make()
    one = worker.Worker()
    one.do_open((), func.script(), str(TARGET), 0)
    _, (got,) = one.do_reference(())
    arguments = one.arguments
    arguments.reset_outputs()
    interpret(func, *arguments.values)
    np.testing.assert_allclose(got, arguments.results()[0], rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_sum_next_to_nothing_is_right_within_the_rounding_of_its_terms(shape):
    z, a = te.placeholder((40,), name="Z"), te.placeholder((31,), name="A")
    q, k = te.reduce_axis((0, 40), name="q"), te.reduce_axis((0, 31), name="k")
    total = te.compute((), lambda: te.sum(z[q], axis=q), name="T")
    func = te.create_prim_func([a, z, te.compute(shape, lambda *i: te.sum(a[k] * total[()], axis=k), name="B")])
    one = worker.Worker()
    one.do_open((), func.script(), str(TARGET), 0)
    header, (reference,) = one.do_reference(())
    (scale,) = header["scales"]
    assert 5 * abs(float(reference.reshape(-1)[0])) < scale < 100
    for error, same in ((1e-6, True), (1e-3, False)):
        difference = compare(
            [np.asarray(reference + np.float32(error))], [reference], ["float32"], tolerance(func), [scale]
        )
        assert (difference is None) == same
    again, _ = one.do_reference(())
    assert again["scales"] == header["scales"] and one.arguments.damage() is None
