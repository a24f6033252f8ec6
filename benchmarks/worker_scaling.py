"""This script says how the rate of candidates grows with the number of workers, with a stand-in that takes 50 milliseconds.

    python benchmarks/worker_scaling.py                     # 1, 2, 4, 8 workers, in threads of this process
    python benchmarks/worker_scaling.py --candidates 256

It needs Dask.distributed. The stand-in sleeps, so the figures show what the runner and Dask add, and not the machine.
"""

from __future__ import annotations

import argparse
import time

import distributed

from tilewright import Target, te
from tilewright.te import ops
from tilewright.tuner.remote.dask_runner import DaskRunner
from tilewright.tuner.remote.measuring import SECONDS, pretend

CPU = "pretended"


def rate(workers: int, candidates: int) -> tuple[float, float]:
    """Returns the candidates that so many workers measure in a second, and the seconds of this process for each."""
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
    func = te.create_prim_func([a, b, ops.matmul(a, b)])
    options = {"nthreads": 2, "resources": {"build": 1, f"measure:{CPU}": 1}, "memory_limit": 0}
    scheduler = {"cls": distributed.Scheduler, "options": {"port": 0, "dashboard": False, "dashboard_address": ":0"}}
    made = {n: {"cls": distributed.Worker, "options": options} for n in range(workers)}
    with distributed.SpecCluster(made, scheduler, silence_logs=50) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        with DaskRunner(f"{address}?cpu={CPU}", answer=pretend) as runner:
            runner.open(func, Target("native -num-cores=1"))
            runner.measure([f"warm{n}" for n in range(2 * workers)])
            start, busy = time.perf_counter(), time.process_time()
            results = runner.measure([f"candidate{n}" for n in range(candidates)])
            seconds, busy = time.perf_counter() - start, time.process_time() - busy
    assert all(result.ok for result in results)
    return candidates / seconds, busy / candidates


def main() -> None:
    """Print a line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=128)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4, 8])
    chosen = parser.parse_args()
    first = 0.0
    print(f"{'workers':>7} {'candidates/s':>13} {'against one':>12} {'of the ideal':>13} {'CPU per candidate':>18}")
    for count in chosen.workers:
        found, busy = rate(count, chosen.candidates)
        first = first or found / count
        print(
            f"{count:7} {found:13.1f} {found / first:11.2f}x {found * SECONDS / count:12.0%} {busy * 1e3:15.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
