"""The unit of examples/tensor_unit.toml: its instructions, its simulated cycles, and schedules tuned by them."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.late_tables import TARGET_KINDS

FOLDER = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


simulator = load("tensor_unit_simulator")
example = load("tensor_unit")
Step, Unit = simulator.Step, simulator.Unit


def unit(**changes):
    figures = {"rows": 2, "columns": 2, "steps": 4, "fill_cycles": 2, "bytes_per_cycle": 4, "latency": 10}
    usual = vars(Unit.read()) | figures | {"scratchpad_bytes": 32, "sums_bytes": 16}
    return Unit(**(usual | changes))


PRODUCT = [Step("zero", 9), Step("load", 1, (), 8), Step("load", 2, (), 8), Step("matmul", 9, (9, 1, 2))]
STORE = Step("store", 0, (9,), 16)


@pytest.mark.parametrize(("trace", "timeline"), [
    # requests of 2 cycles overlap with the latency of 10; sums are complete 2 cycles after the last step
    ([*PRODUCT, STORE], [("zero", 0, 1), ("load", 0, 12), ("load", 2, 14), ("matmul", 14, 20), ("store", 20, 34)]),
    # a second product of the same sums begins when the array is free
    ([*PRODUCT, Step("matmul", 9, (9, 1, 2))], [("matmul", 14, 20), ("matmul", 18, 24)]),
    # two tiles more have room beside the first two, the next one waits until the first product has read its tiles
    ([*PRODUCT, Step("load", 3, (), 8), Step("load", 4, (), 8), Step("load", 5, (), 8)],
     [("load", 4, 16), ("load", 6, 18), ("load", 18, 30)]),
])  # fmt: skip
def test_timelines(trace, timeline):
    found = []
    total = simulator.cycles(trace, unit(), found)
    assert found[-len(timeline) :] == timeline and total == max(end for _, _, end in found)


def test_programs_that_do_not_fit():
    with pytest.raises(simulator.TooSmall, match="the scratchpad has 8 bytes, and 16 are in use"):
        simulator.cycles(PRODUCT, unit(scratchpad_bytes=8))
    with pytest.raises(simulator.TooSmall, match="2 tiles of sums have 32 bytes, the unit 16"):
        simulator.cycles([Step("zero", 1), Step("zero", 2)], unit())


@pytest.mark.parametrize(("old", "new", "words"), [
    ("latency = 24", "", "'latency' is missing"),
    ("rows = 8", "rows = 0", "rows is 0"),
])  # fmt: skip
def test_files_with_faults(old, new, words, tmp_path):
    (tmp_path / "unit.toml").write_text((FOLDER / "tensor_unit.toml").read_text().replace(old, new))
    with pytest.raises(ValueError, match=words):
        Unit.read(tmp_path / "unit.toml")


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("decisions", [(1, 1, 0, 0), (2, 1, 1, 0), (1, 4, 0, 1)])
def test_schedules_compute_the_product(decisions, relu):
    example.declare_all()
    m, n, k = 4 * example.R, 4 * example.C, 2 * example.K
    sch = example.tw.Schedule(example.product(m, n, k, relu))
    example.apply(sch, *decisions)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (m, k)).astype("int8"), rng.integers(-128, 128, (k, n)).astype("int8")
    out = np.zeros((m, n), "int32")
    assert example.simulated(sch.func, [a, b, out]) > 0
    wanted = a.astype("int32") @ b
    assert np.array_equal(out, np.maximum(wanted, 0) if relu else wanted)


@pytest.fixture
def kinds_as_before():
    before = dict(TARGET_KINDS)
    yield
    TARGET_KINDS.clear()
    TARGET_KINDS.update(before)


def test_tuned_by_the_simulator(capsys, kinds_as_before):
    found = example.main(16, 32, 64, trials=12)
    assert found["least"] <= found["best"] < found["first"]
    assert "'simulated': 'edge8'" in capsys.readouterr().out


def test_the_simulator_alone():
    assert [kind for kind, _, _ in simulator.main()] == ["load", "load", "zero", "matmul", "store"]
