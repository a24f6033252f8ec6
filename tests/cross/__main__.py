"""Runs kernels on other machines, in processes with a time limit, and keeps what came out: a run that stops goes on.

python -m tests.cross --table              ten kernels on all machines, for docs/guides/targets.md
python -m tests.cross --target aarch64     every kernel of te.ops' tests
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tilewright.codegen.object_cache import CODEGEN_VERSION

from .kept_words import KeptWords
from .kernel_on_machine import Kernel, words_of
from .kernels_of_ops import kernels_of_ops
from .machines import MACHINES
from .table import table
from .ten_kernels import ten_kernels

KEPT = Path(tempfile.gettempdir()) / "tilewright-cross"
PREFIX = "words: "
"""What a process writes before its answer."""


def own_process(options: Sequence[str], machine: str, numbers: Sequence[int], limit: float) -> list[str]:
    """Return the words of kernels, by their numbers, from a process of its own; those of a process that fails, halved."""
    chosen = ",".join(map(str, numbers))
    command = [sys.executable, "-m", str(__package__), *options, "--target", machine, "--numbers", chosen]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit * len(numbers))
        lines = [line for line in done.stdout.splitlines() if line.startswith(PREFIX)]
        if lines:
            return [str(word) for word in json.loads(lines[-1].removeprefix(PREFIX))]
        why = f"failed: {done.stderr.strip()[-600:] or f'code {done.returncode}'}"
    except subprocess.TimeoutExpired:
        why = f"too long: more than {limit:.0f} s"
    if len(numbers) == 1:
        return [why]
    middle = len(numbers) // 2
    parts = (numbers[:middle], numbers[middle:])
    return [word for part in parts for word in own_process(options, machine, part, limit)]


def run_rest(kernels: Sequence[Kernel], machine: str, kept: KeptWords, given: argparse.Namespace) -> None:
    """Run the kernels that no word is kept of, and those that failed, and keep their words."""
    options = ["--table"] if given.table else ["--kernels", str(given.kernels)]
    options += ["--plain"] if given.plain else []
    known = [kept.words.get((machine, kernel.key), "").partition(":")[0] for kernel in kernels]
    rest = [n for n, word in enumerate(known) if word not in ("equal", "refused")][:: given.every]
    for first in range(0, len(rest), given.together):
        part = rest[first : first + given.together]
        for n, word in zip(part, own_process(options, machine, part, given.limit), strict=True):
            kept.keep(machine, kernels[n].key, word)
            if word != "equal":
                print(f"{machine}: {kernels[n].test}: {word}", flush=True)
        print(f"{machine}: {first + len(part)} of {len(rest)}", flush=True)


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cross", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", choices=sorted(MACHINES), nargs="+", default=list(MACHINES))
    parser.add_argument("--table", action="store_true", help="ten kernels, and the table at the end")
    parser.add_argument("--plain", action="store_true", help="te's own loops, without the analytic model's schedule")
    parser.add_argument("--every", type=int, default=1, help="one kernel in so many")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a kernel")
    parser.add_argument("--together", type=int, default=0, help="kernels in a process; 1 for the table, else 40")
    parser.add_argument("--kernels", type=Path, default=KEPT / "kernels-of-ops")
    parser.add_argument("--kept", type=Path, help="the file of what is known; by default one for each code generator")
    parser.add_argument("--fresh", action="store_true", help="forget what is known")
    parser.add_argument("--numbers", help="these kernels, in this process")
    given = parser.parse_args()
    given.together = given.together or (1 if given.table else 40)
    loops = "plain" if given.plain else "scheduled"
    given.kept = given.kept or KEPT / f"words-{CODEGEN_VERSION}-{loops}"
    return given


def main() -> int:
    """Return 0 when every kernel that a machine takes computes what it should."""
    given = parsed()
    kernels = list(ten_kernels().values()) if given.table else kernels_of_ops(given.kernels)
    if given.numbers:
        (name,) = given.target
        chosen = [kernels[int(n)] for n in given.numbers.split(",")]
        print(PREFIX + json.dumps(words_of(chosen, MACHINES[name], not given.plain)))
        return 0
    kept = KeptWords.of(given.kept, given.fresh)
    wrong = 0
    for name in given.target:
        if MACHINES[name].missing:
            print(f"{name}: {MACHINES[name].missing} is not installed, so nothing runs")
            continue
        run_rest(kernels, name, kept, given)
        words = [kept.words.get((name, kernel.key), "not run").partition(":")[0] for kernel in kernels]
        wrong += sum(word not in ("equal", "refused", "not run") for word in words)
        print(f"{name}: {', '.join(f'{n} {word}' for word, n in Counter(words).most_common())}", flush=True)
    if given.table:
        print(table(kept.words, {kernel.test: kernel.key for kernel in kernels}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
