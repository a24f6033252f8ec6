"""This script says whether a kernel takes as long on a worker of Dask as measured without one, on this machine.

    python benchmarks/worker_and_local.py               # three kernels, 20 turns each: about a minute
    python benchmarks/worker_and_local.py --rounds 40

Both measure the default schedule, in turns, each in a measuring process of its own. The goal is a ratio within 1 %. A second
runner without Dask shows how far apart two such processes are. It needs Dask.distributed.
"""

from __future__ import annotations

import argparse
import statistics

import distributed

from tilewright import Target
from tilewright.driver import parse_spec
from tilewright.tuner import LocalRunner, Runner, default_schedule
from tilewright.tuner.remote.dask_runner import DaskRunner

CPU = "this"
SPECS = ("matmul:M=256,N=256,K=256", "softmax:M=128,N=1024", "sum:M=1024,N=1024")
TARGET = Target("native -num-cores=1")


def turns(spec: str, runners: dict[str, Runner], rounds: int) -> dict[str, list[float]]:
    """Returns the seconds that each runner measured, turn by turn."""
    func = parse_spec(spec).func
    program = default_schedule(func, TARGET).func.script()
    times: dict[str, list[float]] = {name: [] for name in runners}
    for runner in runners.values():
        runner.open(func, TARGET)
        runner.measure([program])
    for _ in range(rounds):
        for name, runner in runners.items():
            (result,) = runner.measure([program])
            if result.ok:
                times[name].append(result.run_seconds)
    return times


def main() -> None:
    """Print a line for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", default=SPECS)
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    options = {"nthreads": 2, "resources": {"build": 1, f"measure:{CPU}": 1}, "memory_limit": 0}
    scheduler = {"cls": distributed.Scheduler, "options": {"port": 0, "dashboard": False, "dashboard_address": ":0"}}
    workers = {0: {"cls": distributed.Worker, "options": options}}
    with distributed.SpecCluster(workers, scheduler, silence_logs=50) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        runners = {
            "local": LocalRunner(workers=1), "worker": DaskRunner(f"{address}?cpu={CPU}"), "again": LocalRunner(workers=1),
        }  # fmt: skip
        print(f"{'kernel':28} {'local':>10} {'worker/local':>13} {'local/local':>12}  turn by turn, median")
        for spec in chosen.specs:
            times = turns(spec, runners, chosen.rounds)
            shares = [
                statistics.median(a / b for a, b in zip(times[name], times["local"], strict=False))
                for name in ("worker", "again")
            ]
            middle = statistics.median(times["local"])
            print(f"{spec:28} {middle * 1e6:7.1f} us {shares[0]:13.3f} {shares[1]:12.3f}", flush=True)
        for runner in runners.values():
            runner.close()


if __name__ == "__main__":
    main()
