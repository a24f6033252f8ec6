"""Choices of constants: configurations are measured once for each value of the key, and kept on record."""

import numpy as np
import pytest

import tilewright.triton as triton
import tilewright.triton.language as tl
from tilewright.tuning_db import Database

torch = pytest.importorskip("torch")


@triton.jit
def accumulate(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    tl.static_assert(BLOCK < 256)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + at, tl.load(out_ptr + at) + tl.load(x_ptr + at))
    else:
        mask = at < n
        tl.store(out_ptr + at, tl.load(out_ptr + at, mask=mask) + tl.load(x_ptr + at, mask=mask), mask=mask)


EVEN = triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})(accumulate)
CONFIGS = [triton.Config({"BLOCK": n}, num_warps=w) for n, w in ((16, 1), (64, 4), (512, 8), (128, 4))]


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


class Bench:
    """Measures nothing: the time is that of a table, after running the function as often as asked."""

    def __init__(self, times):
        self.times, self.calls = times, 0

    def __call__(self, fn, quantiles):
        assert quantiles == (0.5, 0.2, 0.8)
        fn()
        fn()
        self.calls += 1
        return [self.times[(self.calls - 1) % len(self.times)]] * 3


def test_fastest_configuration_is_taken_for_each_key_and_arrays_are_restored():
    bench = Bench([3.0, 1.0, 2.0])  # the third one cannot be compiled, and so is not measured to its end
    hooks = []
    kernel = triton.autotune(
        CONFIGS,
        key=["n"],
        restore_value=["out_ptr"],
        do_bench=bench,
        post_hook=lambda args, exception: hooks.append(exception),
    )(EVEN)
    x = np.arange(100, dtype=np.float32)
    out = np.ones(100, np.float32)
    for times in (1, 2):
        kernel[grid](x, out, 100)
        np.testing.assert_array_equal(out, 1 + times * x)
        assert bench.calls == 3
    assert kernel.best_config is CONFIGS[1]
    assert sum(e is not None for e in hooks) == 1 and len(hooks) == 7
    assert kernel.timings[CONFIGS[2]][0] == float("inf")
    kernel[grid](x[:96], out[:96], 96)
    assert bench.calls == 6
    t = torch.zeros(96, dtype=torch.float64)
    kernel[grid](torch.ones(96, dtype=torch.float64), t, 96)  # other types, measured anew
    assert bench.calls == 9 and t.tolist() == [1.0] * 96


def test_arrays_are_set_to_zero_before_each_run():
    kernel = triton.autotune(CONFIGS[:2], key=["n"], reset_to_zero=["out_ptr"], do_bench=Bench([1.0, 2.0]))(EVEN)
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    kernel[grid](x, out, 64)
    assert out.tolist() == [1.0] * 64


def test_configurations_are_pruned():
    seen = []

    def early(configs, arguments, **named):
        seen.append(sorted(arguments))
        return [c for c in configs if c.kwargs["BLOCK"] < 256]

    bench = Bench([1.0, 2.0])
    by = {"early_config_prune": early, "perf_model": lambda BLOCK, **rest: -BLOCK, "top_k": 2}
    kernel = triton.autotune(CONFIGS, key=["n"], prune_configs_by=by, do_bench=bench)(EVEN)
    kernel[grid](np.ones(64, np.float32), np.zeros(64, np.float32), 64)
    assert bench.calls == 2 and seen == [["n", "out_ptr", "x_ptr"]]
    assert kernel.best_config.kwargs == {"BLOCK": 128}


def test_measurements_are_records(tmp_path):
    x, out = np.ones(100, np.float32), np.zeros(100, np.float32)
    path = tmp_path / "records.db"
    first, second = Bench([3.0, 1.0, 2.0]), Bench([1.0])
    for bench in (first, second):
        kernel = triton.autotune(CONFIGS, key=["n"], do_bench=bench, db=path)(EVEN)
        kernel[grid](x, out, 100)
        assert kernel.best_config is CONFIGS[1]
    assert (first.calls, second.calls) == (3, 0)
    with Database(path) as db:
        records = db.records()
        assert [r.status for r in records] == ["ok", "ok", "compile_error", "ok"]
        assert records[1].decisions["BLOCK"] == 64 and records[1].run_seconds == pytest.approx(1e-3)
        (workload,) = db.workloads()
        assert workload.spec == "n=100" and workload.name == "accumulate"
    kernel = triton.autotune(CONFIGS, key=["n"], do_bench=second, db=path)(EVEN)
    kernel[grid](x[:64], out[:64], 64)  # another value of the key
    assert second.calls == 3


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="key names N, which"):
        triton.autotune(CONFIGS, key=["N"])(EVEN)
    with pytest.raises(ValueError, match="did you mean BLOCK"):
        triton.autotune([triton.Config({"BLOK": 1})], key=[])(EVEN)
    with pytest.raises(ValueError, match="heuristics names even"):
        triton.heuristics({"even": lambda args: True})(accumulate)
    with pytest.raises(ValueError, match="prune_configs_by has no model"):
        triton.autotune(CONFIGS, key=["n"], prune_configs_by={"model": None})(EVEN)
    with pytest.raises(ValueError, match="BLOCK is chosen by autotune"):
        triton.autotune(CONFIGS[:1], key=["n"])(EVEN)[grid](np.ones(4, np.float32), np.ones(4, np.float32), 4, BLOCK=4)


def test_measured_for_real():
    kernel = triton.autotune(
        CONFIGS, key=["n"], do_bench=lambda fn, quantiles: triton.testing.do_bench(fn, 1, 3, quantiles=quantiles)
    )(EVEN)
    x, out = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    kernel[grid](x, out, 1000)
    assert kernel.best_config in CONFIGS and len(kernel.timings) == 4


def test_do_bench():
    calls = []
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.ones(2)
    every = triton.testing.do_bench(lambda: calls.append(x.grad), warmup=1, rep=2, return_mode="all", grad_to_none=[x])
    assert len(calls) > len(every) > 1 and set(calls) == {None} and min(every) >= 0
    low, middle, high = triton.testing.do_bench(lambda: None, 1, 2, quantiles=[0, 0.5, 1])
    assert low <= middle <= high
    assert isinstance(triton.testing.do_bench(lambda: None, 1, 2, quantiles=[0.5]), float)
    with pytest.raises(ValueError, match="median"):
        triton.testing.do_bench(lambda: None, return_mode="mode")


def test_perf_report(tmp_path, capsys):
    mark = triton.testing.Benchmark(
        x_names=["M", "N"], x_vals=[1, (2, 3)], line_arg="by", line_vals=["a", "b"], line_names=["A", "B"], plot_name="lines",
        args={"extra": 10}, styles=[("blue", "-"), ("red", "-")],
    )  # fmt: skip

    @triton.testing.perf_report(mark)
    def bench(M, N, by, extra):
        y = M * N + extra * (by == "b")
        return (y, y - 1, y + 1) if by == "a" else y

    bench.run(print_data=True, save_path=str(tmp_path))
    assert (tmp_path / "lines.csv").read_text().split() == ["M,N,A,B", "1,1,1,11", "2,3,6,16"]
    assert capsys.readouterr().out.startswith("lines:\nM  N  A   B\n1  1  1  11")
    assert bench.rows(mark, {})[1] == [2, 3, 6, 16, 5, 7, None, None]
    pytest.importorskip("pandas")
    table = bench.run(return_df=True)
    assert table.columns.tolist() == ["M", "N", "A", "B"]
    assert table.values.tolist() == [[1, 1, 1, 11], [2, 3, 6, 16]]
