"""Keeps what is known of kernels on machines in a file, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class KeptWords:
    """The word of each kernel on each machine, one line of JSON for each; a later line replaces an earlier one."""

    file: Path
    words: dict[tuple[str, str], str] = field(default_factory=dict)

    @staticmethod
    def of(file: Path, fresh: bool = False) -> KeptWords:
        """Return the words in ``file``; ``fresh``: none, and the file is emptied."""
        file.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            file.unlink(missing_ok=True)
        lines = file.read_text().splitlines() if file.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("]")]  # a run may end while it writes
        return KeptWords(file, {(machine, kernel): word for machine, kernel, word in rows})

    def keep(self, machine: str, kernel: str, word: str) -> None:
        """Note a word, and write it to the file at once."""
        self.words[machine, kernel] = word
        with self.file.open("a") as out:
            out.write(json.dumps([machine, kernel, word]) + "\n")
