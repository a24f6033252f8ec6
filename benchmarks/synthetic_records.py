"""Makes databases of invented records, to look at reports and to time the database where there is much in it.

    python -m tilewright.benchmarks.synthetic_records FOLDER

writes fifty.db (fifty workloads), failures.db (nothing worked) and many.db (100,000 records of four workloads), and a report
of each. Programs and traces are real, times are drawn from a distribution that sinks like that of a search.
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

import numpy as np

from tilewright.codegen import Target
from tilewright.driver import parse_spec, plan
from tilewright.driver.report import write_report
from tilewright.tuning_db import Database, TargetRecord, TuningRecord

TARGET = TargetRecord(
    "lab-avx512-8", "native -num-cores=8", cpu="A Processor 9000 @ 3.10GHz", llvm_cpu="znver4", vector_bits=512, num_cores=8
)  # fmt: skip
PEAK, BANDWIDTH = 7.9e11, 4.1e10
SPECS = (
    "matmul:M={0},N={1},K={2}", "softmax:M={0},N={1}", "layer_norm:M={0},N={1}", "gelu:M={0},N={1}", "transpose:M={0},N={1}",
    "conv2d:H={3},W={3},CI={4},CO={4}", "gemv:M={0},K={1}", "matmul_bias_gelu:M={0},N={1},K={2}", "sum:M={0},N={1}",
)  # fmt: skip
FAILURES = (
    ("compile_error", "LLVM ERROR: out of registers while selecting a masked store of <64 x float>"),
    ("timeout", "the run took longer than 10 s"),
    ("wrong_result", "element (17, 3) is 0.25, expected 0.5"),
)


def add_search(
    db: Database,
    spec: str,
    rng: np.random.Generator,
    sessions: int,
    trials: int,
    failing: float = 0.06,
    start: datetime.datetime = datetime.datetime(2026, 3, 1, 9, 0, tzinfo=datetime.timezone.utc),
) -> None:
    """Add invented sessions of a workload, each with as many trials."""
    case = parse_spec(spec)
    made = plan(case, target=Target("llvm -mcpu=skylake-avx512 -num-cores=8"))
    trace = json.dumps(made.trace.as_json()) if made.trace is not None else '{"format": 1, "insts": []}'
    key = db.add_workload(case.func, spec=case.spec, name=spec.split(":")[0])
    bound = max(case.flops / PEAK, case.bytes / BANDWIDTH)
    limits = {"peak_flops": PEAK, "bandwidth": BANDWIDTH, "roofline_seconds": bound,
              "limited_by": "peak" if case.flops / PEAK > case.bytes / BANDWIDTH else "memory"}  # fmt: skip
    best = bound * rng.uniform(1.1, 3.0)
    sketches = ("packed tile", "register tile", "rows by lanes", "flat map")[: int(rng.integers(2, 5))]
    records, done = [], 0
    for number in range(sessions):
        session = db.start_session(
            case.func, TARGET, trials=trials, limits=limits, versions={"tilewright": "0.1.0", "llvm": "22.1.0", "xgboost": "3.2.0"}
        )  # fmt: skip
        begin = start + datetime.timedelta(hours=9 * number)
        for trial in range(trials):
            done += 1
            sketch = str(rng.choice(sketches))
            moment = (begin + datetime.timedelta(seconds=1.7 * trial + 4)).isoformat()
            if rng.random() < failing:
                status, error = FAILURES[int(rng.integers(len(FAILURES)))]
                records.append(TuningRecord(key, TARGET.key, trace, status=status, error=error, sketch=sketch,
                                            session=session, trial=trial, created=moment))  # fmt: skip
                continue
            seconds = best * (1 + float(rng.gamma(1.5, 12.0 / (1 + done / 12))))
            guess = seconds * float(np.exp(rng.normal(0, 0.25)))
            decisions = {
                "rows": int(rng.integers(1, 9)),
                "vectors": int(rng.integers(1, 5)),
                "depth": int(2 ** rng.integers(4, 10)),
            }
            records.append(TuningRecord(key, TARGET.key, trace, (seconds,), decisions=decisions, sketch=sketch, session=session,
                                        trial=trial, predicted_seconds=guess, created=moment))  # fmt: skip
        with db.writing() as tables:
            tables["sessions"].update(session, {"started": begin.isoformat()})
        db.finish_session(session, "done", "all trials were used" if number % 2 == 0 else "interrupted by Ctrl-C")
    db.add_records(records)
    if failing < 1 and rng.random() < 0.8:
        db.add_baseline(case.func, TARGET, "numpy", best * rng.uniform(0.8, 6))


def specs(count: int, rng: np.random.Generator) -> list[str]:
    """Returns different workloads of all kinds."""
    found: dict[str, None] = {}
    while len(found) < count:
        spec = SPECS[len(found) % len(SPECS)]
        sizes = [int(n) for n in rng.choice([64, 128, 256, 512, 768, 1000, 1024], 3)]
        found[spec.format(*sizes, int(rng.choice([14, 28, 56])), int(rng.choice([16, 32, 64])))] = None
    return list(found)


def main(folder: str) -> None:
    """Write the databases and their reports."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(15)
    for name, sessions, trials, chosen, failing in (
        ("fifty", 2, 32, specs(50, rng), 0.06),
        ("failures", 1, 24, specs(2, rng), 1.0),
        ("many", 5, 5000, specs(4, rng), 0.06),
    ):
        path = Path(folder, f"{name}.db")
        path.unlink(missing_ok=True)
        with Database(path) as db:
            for spec in chosen:
                add_search(db, spec, rng, sessions, trials, 1.0 if name == "fifty" and spec == chosen[7] else failing)
        size = write_report(path, path.with_suffix(".html"))
        print(f"{path}: {size / 1000:.0f} KB of report")


if __name__ == "__main__":
    main(sys.argv[1])
