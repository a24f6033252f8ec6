"""This module has the exit codes, and the error that ends a command with one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

EXIT_CODES = {
    0: "done",
    1: "a check failed, or the file cannot be used",
    2: "usage: an unknown option, workload or target, a bad value",
    3: "no record in the database under --require-tuned",
    4: "nothing could be measured",
    130: "interrupted (143: terminated); what was measured is saved",
}


class CommandError(Exception):
    """This error ends the command with a message, a hint and an exit code."""

    def __init__(self, message: str, hint: str = "", code: int = 1) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


def check_results(contenders: Iterable[Any]) -> None:
    """Raise CommandError for the first contender of a benchmark whose result is wrong, which its ``error`` says."""
    for row in contenders:
        if row.error:
            raise CommandError(f"{row.name}: {row.error}", "this may be a bug in Tilewright; please report it")
