"""The command line: draw, record, plant, test, print the table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .draw import Mutant, draw, found_again
from .groups import GROUPS, MORE, SAME, TESTS
from .record import noticing, record
from .run import Outcome, Task, run_all

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Returns 0 when at least nine of ten mutants were caught."""
    given = _arguments()
    chosen = _chosen(given)
    if given.list:
        for n, m in chosen.items():
            print(f"{n:3} {m.file}:{m.line} {m.function}: {m.old}  =>  {m.new}")
        return 0
    if given.record is not None:
        return record(ROOT, chosen, given.tests or _all_tests(chosen), given.record)
    outcomes: list[Outcome] = []
    for outcome in run_all(ROOT, _tasks(given, chosen), given.jobs, given.limit):
        outcomes.append(outcome)
        print(outcome.line(), flush=True)
        if given.json is not None:
            _write(given.json, outcomes)
    caught = sum(o.caught for o in outcomes)
    print(f"{caught} of {len(outcomes)} caught")
    for group in GROUPS | MORE:
        of = [o for o in outcomes if o.mutant.group == group]
        if of:
            print(f"  {group}: {sum(o.caught for o in of)} of {len(of)}")
    return 0 if caught * 10 >= len(outcomes) * 9 else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Plants bugs and runs the tests.")
    parser.add_argument("--count", type=int, default=60, help="how many mutants (those known to be no bugs aside)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--more", action="store_true", help="draw from the further groups")
    parser.add_argument("--again", type=Path, help="plant the mutants of a file that --json wrote; draw none")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=600, help="seconds for the tests of one mutant")
    parser.add_argument("--only", help="numbers of the table, joined by commas")
    parser.add_argument("--list", action="store_true", help="print the mutants; run nothing")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file; those of other numbers stay in it")
    parser.add_argument(
        "--record", type=Path, help="run the tests once; add to this file which of them can notice what"
    )
    parser.add_argument("--recorded", type=Path, help="run the tests of such a file first")
    parser.add_argument("--no-more", action="store_true", help="with --recorded: run no others")
    parser.add_argument("--tests", nargs="*", help="run these tests alone")
    return parser.parse_args()


def _chosen(given: argparse.Namespace) -> dict[int, Mutant]:
    only = None if given.only is None else [int(n) for n in given.only.split(",")]
    if given.again is not None:
        records = json.loads(given.again.read_text())
        return found_again(ROOT, [r for r in records if only is None or r["number"] in only])
    groups, start = (MORE, 100) if given.more else (GROUPS, 0)
    drawn = dict(enumerate(draw(ROOT, groups, given.count, given.seed, without=SAME), start))
    return drawn if only is None else {n: drawn[n] for n in only}


def _all_tests(chosen: dict[int, Mutant]) -> list[str]:
    return list(dict.fromkeys(t for m in chosen.values() for t in TESTS[m.group]))


def _tasks(given: argparse.Namespace, chosen: dict[int, Mutant]) -> list[Task]:
    tasks = []
    for number, mutant in chosen.items():
        all_of_them = TESTS[mutant.group]
        if given.tests:
            tests: list[list[str]] = [given.tests]
        else:
            tests = [] if given.no_more else [list(all_of_them)]
            if given.recorded is not None:
                saw, arrived = noticing(given.recorded, all_of_them).get(number, ([], []))
                tests = [saw[:4], saw[4:120], arrived[:40], *tests]
        tasks.append(Task(number, mutant, tests))
    return tasks


def _write(file: Path, outcomes: list[Outcome]) -> None:
    kept = {r["number"]: r for r in json.loads(file.read_text())} if file.exists() else {}
    kept |= {o.number: o.record() for o in outcomes}
    file.write_text(json.dumps([kept[n] for n in sorted(kept)], indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
