"""This script checks that a record is as fast when built again: its time now over its time in the database.

``python benchmarks/record_reuse.py SPEC… [--db benchmarks.db] [--target "native -num-cores=1"]``. Nothing is searched;
the record's trace is replayed, compiled and timed, alternately with a second build of the same record, whose ratio to
the first shows the noise.
"""

import argparse
import statistics
import time

from table import print_table

import tilewright as tw
from tilewright.driver.building import request
from tilewright.tuner.measure.inputs import make_arguments


def main() -> None:
    """Print one row for each spec."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="*", default=["matmul:M=1024,N=1024,K=1024", "softmax:M=1536,N=128"])
    parser.add_argument("--db", default="benchmarks.db")
    parser.add_argument("--target", default="native -num-cores=1")
    options = parser.parse_args()
    lines = []
    for spec in options.specs:
        func = request(spec).func
        with tw.Database(options.db) as db:
            record = db.best(func, tw.Target(options.target))
        if record is None:
            raise SystemExit(
                f"{options.db} has no record of {spec} on {options.target}; run the other benchmarks first"
            )
        start = time.perf_counter()
        modules = [tw.build(spec, target=options.target, db=options.db, require_tuned=True) for _ in range(2)]
        build_seconds = (time.perf_counter() - start) / 2
        values = make_arguments(func, 0).values
        times: list[list[float]] = [[], []]
        for _ in range(15):
            for module, found in zip(modules, times, strict=True):
                found.append(module.time_evaluator(repeat=1, min_repeat_ms=20)(*values).results[0])
        now, again = (statistics.median(sorted(t)[: len(t) // 2 + 1]) for t in times)
        lines.append(
            [
                spec,
                f"{record.run_seconds * 1e6:.1f} µs",
                f"{now * 1e6:.1f} µs",
                f"{now / record.run_seconds:.2f}",
                f"{again / now:.2f}",
                f"{build_seconds * 1e3:.0f} ms",
            ]
        )
    head = ["workload", "recorded", "built again", "ratio", "noise", "build"]
    print_table("records built again", head, lines)


if __name__ == "__main__":
    main()
