"""``python -m tests.fuzz``: run chains, shrink what fails, say what was accepted."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from .all_steps import STEPS
from .chain import Chain, Failure, Outcome, run_chain
from .chain_workers import Found, run_chains


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 1 when something failed."""
    options = _options().parse_args(arguments)
    only = tuple(options.only.split(",")) if options.only else None
    unknown = [name for name in only or () if name not in STEPS]
    if unknown:
        print(f"there is no step {unknown[0]!r}; there are {', '.join(sorted(STEPS))}", file=sys.stderr)
        return 2
    if options.steps is not None:
        steps = () if options.steps == "none" else tuple(int(n) for n in options.steps.split(","))
        try:
            run_chain(Chain(options.seed, steps, only, options.compile > 0, options.huge))
        except Failure as failure:
            print(failure.report())
            return 1
        print("this chain is fine")
        return 0
    chains = [
        Chain(seed, tuple(range(options.length)), only, _chosen(seed, options.compile), options.huge)
        for seed in range(options.seed, options.seed + options.chains)
    ]
    return _run(chains, options)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the schedule primitives.")
    parser.add_argument("--chains", type=int, default=300, help="how many (300)")
    parser.add_argument("--seed", type=int, default=0, help="of the first chain; each has the next one (0)")
    parser.add_argument("--length", type=int, default=20, help="steps per chain (20)")
    parser.add_argument("--compile", type=float, default=0.1, help="the share that is compiled and run as well (0.1)")
    parser.add_argument("--only", help="steps to draw, e.g. split,compute_at")
    parser.add_argument("--steps", help="run one chain with the steps of these numbers: 3,7,11, or none")
    parser.add_argument("--huge", action="store_true", help="programs that read arrays of more than 2**31 elements")
    parser.add_argument("--stats", action="store_true", help="how often each primitive was accepted")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--failures", type=int, default=5, help="stop after so many (5)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    return parser


def _chosen(seed: int, share: float) -> bool:
    return (seed * 2654435761 % 4294967296) / 4294967296 < share


def _run(chains: list[Chain], options: argparse.Namespace) -> int:
    accepted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    found: list[Found] = []
    done = compiled = 0
    start = time.monotonic()
    for result in run_chains(chains, options.jobs):
        done += 1
        if isinstance(result, Outcome):
            accepted += result.accepted
            refused += result.refused
            compiled += result.compiled
        else:
            found.append(result)
            print(f"{'=' * 100}\n{result[2]}", flush=True)
        if done % 1000 == 0:
            print(f"{done} chains after {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        if len(found) >= options.failures or time.monotonic() - start > options.seconds:
            break
    total = sum(accepted.values())
    print(
        f"{done} chains, {compiled} compiled, {len(found)} failures; {total} primitives accepted, "
        f"{sum(refused.values())} refused"
    )
    if options.stats:
        for name in sorted({*accepted, *refused}):
            share = accepted[name] / (accepted[name] + refused[name])
            print(f"  {name:24} {accepted[name]:7} accepted {refused[name]:7} refused {share:7.1%}")
    for kind, last, _ in found:
        print(f"FAILED after {last}: {kind}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
