"""Plants mutants in copies of the tree and runs tests on them."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .draw import Mutant
from .plant import copy_tree, environment, planted

__all__ = ["Outcome", "Task", "run_all"]


@dataclass(frozen=True, slots=True)
class Task:
    """A mutant and the tests that it faces: lists of paths or names, one after the other, until something fails."""

    number: int
    mutant: Mutant
    tests: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests said: ``by`` is the first test that failed, "time" when they did not end, "" when all passed."""

    number: int
    mutant: Mutant
    by: str
    seconds: float

    @property
    def caught(self) -> bool:
        """Whether some test failed."""
        return bool(self.by)

    def line(self) -> str:
        """One line of the table."""
        m = self.mutant
        word = self.by if self.caught else "SURVIVED"
        return f"{self.number:3} {m.group:10} {m.file}:{m.line} {m.function}: {m.old} => {m.new} | {word} | {self.seconds:.0f} s"

    def record(self) -> dict[str, object]:
        """The outcome as plain values."""
        return {"number": self.number, **asdict(self.mutant), "caught": self.caught, "by": self.by}


def run_all(root: Path, tasks: Sequence[Task], jobs: int, limit: float) -> Iterator[Outcome]:
    """The outcomes, as they come; each worker has a copy of the tree of its own. ``limit``: seconds for one list of tests."""
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        workers = []
        for number in range(min(jobs, len(tasks))):
            home = Path(folder) / str(number)
            copy_tree(root, home / "tilewright")
            worker = threading.Thread(target=_work, args=(home, waiting, done, limit), daemon=True)
            workers.append(worker)
            worker.start()
        for _ in tasks:
            yield done.get()
        for worker in workers:
            worker.join()


def _work(home: Path, waiting: queue.SimpleQueue[Task], done: queue.SimpleQueue[Outcome], limit: float) -> None:
    while True:
        try:
            task = waiting.get_nowait()
        except queue.Empty:
            return
        start = time.monotonic()
        by = ""
        with planted(home, task.mutant):
            for tests in task.tests:
                by = by or (_first_failure(home, tests, limit) if tests else "")
        done.put(Outcome(task.number, task.mutant, by, time.monotonic() - start))


def _first_failure(home: Path, tests: Sequence[str], limit: float) -> str:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        ran = subprocess.run(
            command, cwd=home / "tilewright", env=environment(home), capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return "time"
    if ran.returncode == 0:
        return ""
    if ran.returncode == 4:  # a test that is not there
        raise ValueError(ran.stdout + ran.stderr)
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", ran.stdout, re.MULTILINE)
    return found[1] if found else f"exit {ran.returncode}"
