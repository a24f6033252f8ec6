"""The command line: draw, plant, test, print the table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .draw import draw
from .groups import GROUPS, SAME
from .run import Outcome, run_all

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Returns 0 when at least nine of ten mutants were caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Plants bugs and runs the tests.")
    parser.add_argument("--count", type=int, default=60, help="how many mutants (those known to be no bugs aside)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=600, help="seconds for the tests of one mutant")
    parser.add_argument("--only", help="numbers of the table, joined by commas")
    parser.add_argument("--list", action="store_true", help="print the mutants; run nothing")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    given = parser.parse_args()

    drawn = draw(ROOT, GROUPS, given.count, given.seed, without=SAME)
    numbers = range(len(drawn)) if given.only is None else [int(n) for n in given.only.split(",")]
    chosen = {n: drawn[n] for n in numbers}
    if given.list:
        for n, m in chosen.items():
            print(f"{n:3} {m.file}:{m.line} {m.function}: {m.old}  =>  {m.new}")
        return 0
    outcomes: list[Outcome] = []
    for outcome in run_all(ROOT, chosen, given.jobs, given.limit):
        outcomes.append(outcome)
        print(outcome.line(), flush=True)
    caught = sum(o.caught for o in outcomes)
    print(f"{caught} of {len(outcomes)} caught")
    for group in GROUPS:
        of = [o for o in outcomes if o.mutant.group == group]
        print(f"  {group}: {sum(o.caught for o in of)} of {len(of)}")
    if given.json is not None:
        given.json.write_text(json.dumps([o.record() for o in outcomes], indent=1) + "\n")
    return 0 if caught * 10 >= len(outcomes) * 9 else 1


if __name__ == "__main__":
    raise SystemExit(main())
