"""Records which tests arrive at the places of mutants, so that a mutant faces those tests first that can notice it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from .draw import Mutant
from .plant import copy_tree, environment
from .probe import RECORD

__all__ = ["noticing", "record"]


def record(root: Path, mutants: Mapping[int, Mutant], tests: Sequence[str], file: Path) -> int:
    """Runs the tests once on a copy in which every place reports who arrives; lines go to ``file``. Returns pytest's code."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        home = Path(folder)
        copy_tree(root, home / "tilewright")
        places: dict[str, list[tuple[int, Mutant]]] = defaultdict(list)
        for number, mutant in mutants.items():
            places[mutant.file].append((number, mutant))
        for name, here in places.items():
            path = home / "tilewright" / name
            source = path.read_bytes()
            for number, mutant in sorted(here, key=lambda item: -item[1].start):
                source = mutant.probed(source, number)
            path.write_bytes(source)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        more = {RECORD: str(file.absolute())}
        return subprocess.run(command, cwd=home / "tilewright", env=environment(home) | more).returncode


def noticing(file: Path, first: Sequence[str]) -> dict[int, tuple[list[str], list[str]]]:
    """The tests that saw another value, and those that only arrived, by the number of the mutant.

    Those in the folders ``first`` come first, test files in turns.
    """
    found: dict[int, tuple[dict[str, None], dict[str, None]]] = defaultdict(lambda: ({}, {}))
    for line in file.read_text().splitlines():
        number, other, test = line.split("\t")
        name = test.rsplit(" (", 1)[0]
        if name:
            found[int(number)][other == "0"][name] = None
    return {
        number: (_in_turns(list(saw), first), _in_turns([t for t in arrived if t not in saw], first))
        for number, (saw, arrived) in found.items()
    }


def _in_turns(tests: list[str], first: Sequence[str]) -> list[str]:
    """One test of each file, then a second one of each, and so on."""
    place: dict[str, int] = defaultdict(int)
    turns = []
    for test in tests:
        name = test.split("::")[0]
        turns.append((place[name], not name.startswith(tuple(first)), test))
        place[name] += 1
    return [test for _, _, test in sorted(turns)]
