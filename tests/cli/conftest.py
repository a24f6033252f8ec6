"""The command line, run in this process: ``run(*words)`` gives exit code, stdout and stderr."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tilewright.cli.main import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("DB", "TARGET", "NUM_THREADS", "LOG", "DEBUG"):
        monkeypatch.delenv(f"TILEWRIGHT_{name}", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*words):
        capfd.readouterr()
        code = main([str(word) for word in words])
        return Done(code, *capfd.readouterr())

    return call
