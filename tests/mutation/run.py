"""Plants mutants in copies of the tree and runs the tests of their group on them."""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .draw import Mutant
from .groups import TESTS

__all__ = ["Outcome", "run_all"]


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


def run_all(root: Path, mutants: Mapping[int, Mutant], jobs: int, limit: float) -> Iterator[Outcome]:
    """The outcomes, as they come; each worker has a copy of the tree of its own."""
    waiting: queue.SimpleQueue[tuple[int, Mutant]] = queue.SimpleQueue()
    done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    for item in mutants.items():
        waiting.put(item)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        workers = []
        for number in range(min(jobs, len(mutants))):
            home = Path(folder) / str(number)
            _copy(root, home / "tilewright")
            worker = threading.Thread(target=_work, args=(home, waiting, done, limit), daemon=True)
            workers.append(worker)
            worker.start()
        for _ in mutants:
            yield done.get()
        for worker in workers:
            worker.join()


def _copy(root: Path, to: Path) -> None:
    def ignored(folder: str, names: list[str]) -> set[str]:
        return {n for n in names if n.startswith(".") or n in ("__pycache__", "build", "dist")}

    shutil.copytree(root, to, ignore=ignored)


def _work(
    home: Path, waiting: queue.SimpleQueue[tuple[int, Mutant]], done: queue.SimpleQueue[Outcome], limit: float
) -> None:
    stamp = int(time.time())  # a new second for each change, so that compiled files are made anew
    while True:
        try:
            number, mutant = waiting.get_nowait()
        except queue.Empty:
            return
        path = home / "tilewright" / mutant.file
        source = path.read_bytes()
        start = time.monotonic()
        stamp += 2
        path.write_bytes(mutant.planted(source))
        os.utime(path, (stamp, stamp))
        by = _first_failure(home, mutant, limit)
        stamp += 2
        path.write_bytes(source)
        os.utime(path, (stamp, stamp))
        done.put(Outcome(number, mutant, by, time.monotonic() - start))


def _first_failure(home: Path, mutant: Mutant, limit: float) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "PYTHONPATH": str(home),
        "TILEWRIGHT_CACHE_DIR": str(home / "cache"),
        "TILEWRIGHT_CACHE": "0",
        "PYTHONHASHSEED": "0",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *TESTS[mutant.group]]
    try:
        ran = subprocess.run(
            command, cwd=home / "tilewright", env=environment, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return "time"
    if ran.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return found[1] if found else f"exit {ran.returncode}"
