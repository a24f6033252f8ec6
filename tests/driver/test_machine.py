"""What the machine can do, measured with little effort: that the figures make sense, not how large they are."""

import json
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target
from tilewright.codegen.llvm.jit import optimize_and_compile
from tilewright.codegen.llvm.microbenchmarks import driver_ir, fma_flops, fma_ir, sweep_block_bytes, sweep_ir
from tilewright.codegen.machine.cpu import available_cores
from tilewright.codegen.object_cache import cache_directory
from tilewright.driver import machine_report
from tilewright.driver.benching import BenchResult, BenchRow, likely_peak
from tilewright.driver.machine_report import (
    MachineReport,
    PeakProbe,
    bandwidth_of,
    bound_for,
    measure_machine,
    model_of,
    peak_for,
    peak_of,
)
from tilewright.tir.expr import DType


@pytest.fixture(scope="module")
def report():
    return measure_machine("native -num-cores=2", refresh=True, effort=0.03)


def test_every_figure_is_there(report):
    target = Target("native -num-cores=2")
    assert (report.key, report.num_cores, report.vector_bits) == (target.key, 2, target.vector_bits)
    assert {"float32", "float64"} <= set(report.peak_flops)
    assert set(report.bandwidth) == {"read", "copy", "triad"} and set(report.cache_read) == {"l1", "l2"}
    figures = [report.clock_hz, *report.cache_read.values()]
    for pair in (*report.peak_flops.values(), *report.bandwidth.values()):
        figures += [pair["one"], pair["all"]]
    assert all(figure > 0 for figure in figures)


def test_figures_fit_together(report):
    cycles = report.peak_flops["float32"]["one"] / report.clock_hz  # operations per cycle
    assert 0.2 < cycles / (report.vector_bits // 32 * 2) < 8  # some pipes, and a clock that may differ under load
    assert report.peak_flops["float64"]["one"] < report.peak_flops["float32"]["one"]
    assert report.cache_read["l1"] > report.bandwidth["read"]["one"] / 2


def made_up(**changes):
    figures = {"one": 10.0, "all": 16.0}
    values = dict(
        target="t", key=Target("native -num-cores=1").key, cpu="c", model="m", vector_bits=256, num_cores=4, caches={},
        clock_hz=1.0, peak_flops={"float32": figures}, bandwidth={"triad": figures}, cache_read={}, array_bytes=1,
        measured_at=0.0, measure_seconds=1.0,
    )  # fmt: skip
    return MachineReport(**{**values, **changes})


def test_shares_for_any_number_of_threads():
    r = made_up()
    assert [peak_of(r, "float32", n) for n in (1, 2, 3, 4, None)] == [10, 16, 16, 16, 16]
    assert peak_of(r, "float16") == peak_of(r, "bfloat16") == 16  # computed as float32
    assert peak_of(r, "float64") is None
    assert bandwidth_of(r, 1) == 10 and bandwidth_of(r, kind="none") is None


def test_measured_figures_reach_the_analytic_model():
    target = Target("native -num-cores=4")
    plain = model_of(None, target)
    fitted = model_of(
        made_up(clock_hz=2e9, cache_read={"l2": 8e10}, bandwidth={"read": {"one": 6e9, "all": 9e9}}), target
    )
    assert (fitted.cycles_per_second, fitted.l2_bytes_per_cycle, fitted.memory_bytes_per_cycle) == (2e9, 40.0, 3.0)
    assert fitted.l1_bytes == plain.l1_bytes and plain.cycles_per_second == 3e9


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machine_report, "_in_process", {})
    return cache_directory()


def test_reports_are_kept_and_read_again(folder, monkeypatch):
    target = Target("native -num-cores=1")
    fast = made_up(peak_flops={"float32": {"one": 1e18, "all": 1e18}})
    machine_report._write(target, fast)
    assert [p.name for p in folder.glob("*.json")] == [f"machine-{target.key}.json"]
    assert measure_machine(target) == fast
    assert json.loads(next(folder.glob("*.json")).read_text())["format"] == machine_report.FORMAT


def test_a_report_of_a_busy_machine_is_made_anew(folder, monkeypatch):
    target = Target("native -num-cores=1")
    machine_report._write(target, made_up())  # ten operations per second
    monkeypatch.setattr(machine_report, "_measure", lambda t, effort: made_up(clock_hz=7.0))
    assert measure_machine(target).clock_hz == 7.0
    assert json.loads(next(folder.glob("*.json")).read_text())["clock_hz"] == 7.0


def test_a_report_that_was_made_while_the_machine_was_busy_is_made_anew_when_it_no_longer_is(folder, monkeypatch):
    target = Target("native -num-cores=1")
    machine_report._write(target, made_up(peak_flops={"float32": {"one": 1e18, "all": 1e18}}, processor_share=0.5))
    monkeypatch.setattr(machine_report, "_measure", lambda t, effort: made_up(clock_hz=7.0))
    monkeypatch.setattr(machine_report, "processor_share", lambda t: 0.6)
    assert measure_machine(target).clock_hz == 1.0
    machine_report._in_process.clear()
    monkeypatch.setattr(machine_report, "processor_share", lambda t: 0.99)
    assert measure_machine(target).clock_hz == 7.0


def test_a_busy_machine_is_noticed():
    """More threads than processors: each thread has one for a part of the time only."""
    target = Target("native -num-cores=1")
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * available_cores())]
    try:
        time.sleep(0.5)
        share = machine_report.processor_share(target, 0.5)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert share < machine_report.BUSY_BELOW
    assert f"{share:.0%} of the time" in machine_report.busy_text(share, 1)
    assert machine_report.busy_text(1.0, 1) == machine_report.busy_text(None, 2) == ""


def test_reads_of_the_first_level_cache_do_not_count_the_call():
    """Half as much memory is read at the same rate, though a call takes as long as for all of it."""
    target = Target("native -num-cores=1")
    block, size = sweep_block_bytes(target), target.caches.l1 * 3 // 4
    room, probe = machine_report.room_of(size), machine_report.sweeps(target, "read")[0]
    rates = []
    for n in (size // block, size // block // 4):
        times = (8 << 20) // (n * block)
        seconds, _ = probe.best([machine_report.address_of(room)] * 3 + [n, 1, 0, times], 1e-3, 0.1)
        rates.append(times * n * block / seconds)
    assert 0.5 < rates[1] / rates[0] < 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1, "key": "x"}'])
def test_damaged_files_do_not_count(folder, monkeypatch, text):
    target = Target("native -num-cores=1")
    machine_report._path(target).write_text(text)
    monkeypatch.setattr(machine_report, "_measure", lambda t, effort: made_up())
    assert measure_machine(target) == made_up()


def test_the_cache_is_private(folder):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="using a temporary directory"):
        assert cache_directory().is_dir()


def test_other_machines_cannot_be_measured():
    other = "aarch64" if Target("native").arch == "x86_64" else "x86_64"
    with pytest.raises(ValueError, match=f"this machine lacks {other} processor"):
        measure_machine(f"llvm -mtriple={other}-linux-gnu")


def test_figures_of_this_machine_are_not_those_of_a_gpu():
    target = Target("gpu-sim")
    assert model_of(made_up(clock_hz=2e9), target) == model_of(None, target)
    with pytest.raises(ValueError, match="the limits of GPUs are not measured"):
        measure_machine(target)


def test_peak_in_turns_with_something_else():
    probe = PeakProbe(Target("native -num-cores=1"))
    assert probe.flops_per_call / probe.seconds(3) > 0


@pytest.mark.parametrize("dtype, word", [("int8", "tdpbusd"), ("bfloat16", "tdpbf16ps")])
def test_the_matrix_unit_sets_the_peak_where_there_is_one(dtype, word):
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -num-cores=1")
    lines = optimize_and_compile(fma_ir(target, DType(dtype)) + driver_ir("fma"), target).asm().splitlines()
    steps = [n for n, line in enumerate(lines) if word in line]
    assert len(steps) == 6 and not any("tileload" in line for line in lines[steps[0] : steps[-1]])
    assert fma_flops(target, dtype) == 6 * 2 * 16 * 16 * (64 if dtype == "int8" else 32)
    less = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -mattr=-amx-tile -num-cores=1")
    assert fma_flops(less, dtype) == 24 * 2 * (64 if dtype == "int8" else 32)
    assert word not in optimize_and_compile(fma_ir(less, DType(dtype)) + driver_ir("fma"), less).asm()


@pytest.mark.skipif(not Target("native").has_amx_int8, reason="this machine has no AMX, or does not let us use it")
def test_probing_the_matrix_unit():
    slow, fast = (PeakProbe(Target(f"native {less}-num-cores=1"), "int8") for less in ("-mattr=-amx-tile ", ""))
    best = {p: min(p.seconds(1) for _ in range(20)) / p.flops_per_call for p in (slow, fast)}
    assert best[fast] < best[slow]


def test_a_peak_that_no_instruction_reaches():
    target = Target("native -num-cores=1 -vector-width=128")
    if target.has_amx or target.arch != "x86_64":
        target = Target("native -mattr=-amx-tile -num-cores=1 -vector-width=128")
    with pytest.raises(ValueError, match="has no multiply-add of int8 to measure; there are float32, float64"):
        PeakProbe(target, "int8")
    assert PeakProbe(target, "bfloat16").flops_per_call == PeakProbe(target, "float32").flops_per_call


@pytest.mark.parametrize("text", ["x86_64-linux-gnu -mcpu=x86-64", "x86_64-linux-gnu -mcpu=haswell",
                                  "x86_64-linux-gnu -mcpu=sapphirerapids -mattr=-amx-tile", "aarch64-linux-gnu"])  # fmt: skip
def test_probes_keep_their_accumulators_in_registers(text):
    target = Target(f"llvm -mtriple={text}")
    for dtype in ["float32", "float64", *(["int8", "bfloat16"] if target.has_vnni else [])]:
        asm = optimize_and_compile(fma_ir(target, DType(dtype)) + driver_ir("fma"), target).asm()
        steps = [line for line in asm.splitlines() if any(op in line for op in ("vfmadd", "vpdpbusd", "vdpbf16ps"))]
        if target.has_fma and target.arch == "x86_64":
            assert len(steps) == (24 if target.num_vector_registers == 32 else 12)
            assert not any("(%rsp)" in line for line in steps)
    for kind in ("read", "copy", "triad", "quad"):
        for apart in (False, True):
            assert optimize_and_compile(sweep_ir(target, kind, apart=apart) + driver_ir(kind), target).asm()
        past = optimize_and_compile(sweep_ir(target, kind, past_caches=True) + driver_ir(kind), target).asm()
        assert target.arch != "x86_64" or kind == "read" or "movntps" in past


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["copy", "triad"])
def test_sweeps_reach_every_element_once(kind, threads):
    target = Target("native -num-cores=2")
    units = 7
    count = units * sweep_block_bytes(target) // 4
    for way in machine_report.sweeps(target, kind):
        room = np.zeros(3 * count + 64, "float32")
        start = -room.ctypes.data // 4 % 16
        a, b, c = (room[start + n * count : start + (n + 1) * count] for n in range(3))
        a[:], b[:] = np.arange(count), np.arange(count) + 7
        given = a.copy(), b.copy()
        way.best([a.ctypes.data, b.ctypes.data, c.ctypes.data, units, threads, c.ctypes.data], 1e-5, 1e-4)
        written = b if kind == "copy" else c
        np.testing.assert_array_equal(written, given[0] if kind == "copy" else given[0] + 3 * given[1])
        np.testing.assert_array_equal(a, given[0])
        assert not room[:start].any() and not room[start + 3 * count :].any()


@pytest.mark.parametrize("known, probed, expected", [
    (4e11, 3e11, 3e11),  # a slower clock now
    (4e11, 5e10, 4e11),  # busy while it was probed: a contender was faster
    (5e10, 6e10, 6e10),
    (None, 5e10, 5e10),
])  # fmt: skip
def test_the_peak_is_not_less_than_what_was_reached(known, probed, expected):
    rows = [BenchRow("tuned", "", [1e-2]), BenchRow("numpy", "", [1e-1])]
    result = BenchResult("matmul", "native", 2e9, 1e6, rows, peak_flops=known)  # 200 GFLOP/s
    assert likely_peak(result, probed) == expected


def test_a_bound_is_what_no_run_can_beat():
    """Of arrays that are larger than the last level, a part may still be there from the run before."""
    target = Target("native -num-cores=1")
    cache = max(target.l3_bytes, target.l2_bytes)
    rates = {"triad": {"one": 1e9, "all": 1e9}, "copy": {"one": 2e9, "all": 2e9}}
    report = made_up(bandwidth=rates, cache_read={"l1": 1e11, "l2": 1e10}, num_cores=1)

    def bound(size):
        a = te.placeholder((size // 8,), name="A")
        return bound_for(report, te.create_prim_func([a, te.compute((size // 8,), lambda i: a[i], name="B")]), target)

    assert bound(cache // 2).seconds == pytest.approx(cache // 2 / 1e10, rel=1e-6)
    just_larger, far_larger = bound(cache + 800), bound(10 * cache)
    assert just_larger.limit == "level-2 cache" and just_larger.seconds == pytest.approx(cache / 1e10, rel=1e-2)
    assert far_larger.limit == "memory" and far_larger.seconds == pytest.approx(9 * cache / 2e9, rel=1e-6)


def test_small_integers_have_no_peak_where_theirs_was_not_measured():
    target, report = Target("native -num-cores=1"), made_up(num_cores=1)
    for dtype, known in (("int8", False), ("uint16", False), ("int32", True), ("float16", True), ("bool", True)):
        a = te.placeholder((17,), dtype, name="A")
        func = te.create_prim_func([a, te.compute((17,), lambda i, a=a: a[i], name="B")])
        assert (peak_for(report, func, target) is not None) == known
