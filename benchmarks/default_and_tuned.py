"""This script says how good the default schedule is: its speed as a share of the tuned one's, over forty workloads.

    python benchmarks/default_and_tuned.py --rows rows.jsonl                # about twelve minutes on a quiet machine
    python benchmarks/default_and_tuned.py --rows rows.jsonl --trials 64    # longer searches

A row that the file has already (of as many trials) is not measured again, so that the script goes on where it was
interrupted. After the search the default and the best candidate are compiled once more and timed alternately. The goals
are a geometric mean of 0.85, and none below 0.5.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import tilewright as tw
from tilewright.driver import parse_spec
from tilewright.driver.benching import BenchRow, race
from tilewright.driver.building import plan
from tilewright.tuner.measure.inputs import make_arguments

SPECS = (
    "matmul:M=64,N=64,K=64", "matmul:M=255,N=255,K=255", "matmul:M=512,N=512,K=512", "matmul:M=1024,N=1024,K=1024",
    "matmul:M=197,N=768,K=768", "matmul:M=32,N=1024,K=4096", "matmul:M=1,N=4096,K=4096", "matmul:M=128,N=3072,K=768",
    "matmul:M=768,N=17,K=768", "matmul:M=256,N=256,K=256,dtype=int8", "matmul:M=256,N=256,K=256,dtype=float64",
    "matmul_bias_gelu:M=128,N=3072,K=768", "dense:M=16,N=1000,K=2048", "gemv:M=4096,K=4096", "gemv:M=1000,K=300",
    "batch_matmul:B=12,M=128,N=128,K=64", "batch_matmul:B=64,M=17,N=64,K=64",
    "conv2d:CI=3,H=224,W=224,CO=64,kernel=7,stride=2,padding=3", "conv2d:CI=64,H=56,W=56,CO=64",
    "conv2d:CI=128,H=28,W=28,CO=128", "conv2d:CI=256,H=14,W=14,CO=256", "conv2d:CI=512,H=7,W=7,CO=512",
    "conv2d:CI=64,H=56,W=56,CO=128,kernel=1,stride=2,padding=0", "conv2d:CI=64,H=56,W=56,CO=64,layout=NHWC",
    "depthwise_conv2d:C=32,H=112,W=112", "depthwise_conv2d:C=512,H=14,W=14", "max_pool2d:C=64,H=112,W=112",
    "avg_pool2d:C=64,H=56,W=56", "softmax:M=128,N=1024", "softmax:M=1536,N=128", "layer_norm:M=128,N=768",
    "rms_norm:M=128,N=768", "sum:M=4096,N=4096", "sum:M=2048,N=2048,axis=0", "max:M=1000,N=1000",
    "transpose:M=2048,N=2048", "transpose:M=1000,N=777", "blur:H=2048,W=2048", "attention:heads=12,seq=128,dim=64",
    "mul_add_relu:n=1048576",
)  # fmt: skip


def measured(spec: str, target: tw.Target, trials: int) -> dict[str, Any]:
    """Returns the row of a workload: seconds of the default and of the tuned schedule, and those of the search."""
    case, start = parse_spec(spec), time.monotonic()
    result = tw.tune(spec, target=target, trials=trials)
    searched = time.monotonic() - start
    plans = {"default": plan(spec, target=target).scheduled}
    if result.best_schedule is not None:
        plans["tuned"] = result.best_schedule.func
    values = make_arguments(case.func, 0).values
    runs = []
    for name, func in plans.items():
        module = tw.codegen.compile(func, target)
        evaluate = module.time_evaluator
        runs.append((BenchRow(name, ""), lambda n, e=evaluate: e(repeat=1, number=n)(*values).results[0]))
    race(runs, 15, 0.01)
    seconds = {row.name: row.seconds for row, _ in runs}
    return {
        "spec": spec, "trials": trials, "seconds": seconds, "search_seconds": searched,
        "sketch": result.best.sketch if result.best is not None else "", "decisions": dict(result.best.decisions) if result.best else {},
    }  # fmt: skip


def main() -> None:
    """Print a line for each workload, and the geometric mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only workloads whose specs hold one of these")
    parser.add_argument("--rows", type=Path, default=Path("default_and_tuned.jsonl"))
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--target", default="native -num-cores=1")
    chosen = parser.parse_args()
    lines = chosen.rows.read_text().splitlines() if chosen.rows.exists() else []
    kept = {(row["spec"], row["trials"]): row for row in map(json.loads, lines)}
    shares = []
    for spec in SPECS:
        if chosen.words and not any(word in spec for word in chosen.words):
            continue
        row = kept.get((spec, chosen.trials))
        if row is None:
            row = measured(spec, tw.Target(chosen.target), chosen.trials)
            with chosen.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
        seconds = row["seconds"]
        share = min(1.0, seconds["tuned"] / seconds["default"]) if "tuned" in seconds else float("nan")
        shares.append((share, spec))
        print(
            f"{spec:62} {seconds['default'] * 1e6:10.1f} us  {share:5.2f}  {row['search_seconds']:5.1f} s  {row['sketch']}",
            flush=True,
        )
    found = [(s, spec) for s, spec in shares if s == s]
    if found:
        mean = math.exp(statistics.fmean(math.log(s) for s, _ in found))
        print(f"{mean:.3f} in geometric mean over {len(found)}, least {min(found)}")


if __name__ == "__main__":
    main()
