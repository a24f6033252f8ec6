"""Runs ONNX's node tests as a user would: ``f = tw.build(tw.from_onnx(model))``, with all inputs given at the call.

``python -m tilewright.tests.frontends.onnx_plain_door ROWS`` appends a row of JSON for each test to the file ROWS, and goes
on where it stopped. Tests run in a process of their own, which is replaced when one takes more than ``--seconds``. ``--only
TEXT`` runs those whose name contains the text, ``--again`` those that did not pass once more. At the end it prints how many
pass, and the others by what they say; ``--markdown PAGE`` writes the table by operator into the page of operators.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import subprocess
import sys
import threading
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from onnx import SequenceProto, TensorProto, numpy_helper

import tilewright as tw

from .onnx_backend import Outcome, cases, compare, written_page


def data_of(item: Any) -> Any:
    """Returns test data as a call takes it: arrays, lists of them for sequences, None for what is absent."""
    if isinstance(item, TensorProto):
        return numpy_helper.to_array(item)
    if isinstance(item, SequenceProto):
        return numpy_helper.to_list(item)
    return (
        [data_of(one) for one in item]
        if isinstance(item, (list, tuple))
        else item
        if item is None
        else np.asarray(item)
    )


def check(case: Any) -> None:
    """Raise an error unless the built model computes what the test says."""
    built = tw.build(tw.from_onnx(case.model))
    for inputs, outputs in case.data_sets:
        made = built(*[data_of(x) for x in inputs])
        got = [made] if len(outputs) == 1 else list(made)
        assert len(got) == len(outputs), f"{len(got)} outputs, not {len(outputs)}"
        for one, want in zip(got, outputs, strict=True):
            _compare(one, data_of(want), case)


def _compare(got: Any, want: Any, case: Any) -> None:
    if want is None or isinstance(want, list):
        assert type(got) is type(want), f"{type(got).__name__}, not {type(want).__name__}"
        assert want is None or len(got) == len(want), f"{len(got or ())} tensors, not {len(want or ())}"
        for a, b in zip(got or (), want or (), strict=True):
            _compare(a, b, case)
    else:
        compare(np.asarray(got), want, case.rtol, case.atol)


def row_of(case: Any) -> dict[str, str]:
    """Returns name, operator and what went wrong, nothing where the test passes."""
    problem = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(case)
    except Exception as error:  # whatever it is, it is the reason in the row
        problem = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return {"name": case.name, "operator": case.model.graph.node[0].op_type, "problem": problem}


def work() -> None:
    """Read names of tests from the standard input, and write a row for each."""
    known = {case.name: case for case in cases()}
    for line in sys.stdin:
        print(json.dumps(row_of(known[line.strip()])), flush=True)


class _Worker:
    """A process that runs tests, one at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--work"]  # type: ignore[name-defined]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def run(self, name: str, seconds: float) -> str:
        """Returns the row of a test as text; a problem where the process ended or took too long."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        try:
            return self.lines.get(timeout=seconds) or "the process ended"
        except queue.Empty:
            return f"took more than {seconds:g} s"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def summary(rows: dict[str, dict[str, str]]) -> str:
    """Returns how many tests pass, and the others by what they say, the most frequent first."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, row in rows.items():
        if row["problem"]:
            groups[re.sub(r"'[^']*'|\d+", "…", row["problem"])[:110]].append(name)
    lines = [f"{len(n):4} {text} ({', '.join(n[:3])})" for text, n in sorted(groups.items(), key=lambda g: -len(g[1]))]
    return "\n".join([*lines, f"{sum(not r['problem'] for r in rows.values())} of {len(rows)} tests pass"])


def outcome_of(row: dict[str, str]) -> Outcome:
    """Returns the outcome that a row tells, as the page of operators counts it: what is refused has failed."""
    operator = "(expanded bodies)" if "_expanded" in row["name"] else row["operator"]
    return Outcome(row["name"], operator, "failed" if row["problem"] else "ok", row["problem"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tilewright.tests.frontends.onnx_plain_door", description=__doc__)
    parser.add_argument("rows", type=Path, nargs="?", default=Path(os.devnull))
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work()
        return 0
    rows: dict[str, dict[str, str]] = {}
    if given.rows.is_file():
        rows = {row["name"]: row for row in map(json.loads, given.rows.read_text().splitlines())}
    operators = {case.name: case.model.graph.node[0].op_type for case in cases()}
    names = [name for name in operators if given.only in name]
    waiting = [n for n in names if n not in rows or (given.again and rows[n]["problem"])]
    worker, fresh = _Worker(), True
    with given.rows.open("a") as file:
        for name in waiting:
            line = worker.run(name, given.seconds + (120 if fresh else 0))
            fresh = not line.startswith("{")
            if fresh:
                worker.stop()
                worker = _Worker()
                line = json.dumps({"name": name, "operator": operators[name], "problem": line}) + "\n"
            file.write(line)
            file.flush()
            rows[name] = json.loads(line)
    worker.stop()
    print(summary({name: row for name, row in rows.items() if given.only in name}))
    if given.markdown is not None:
        page = written_page(given.markdown.read_text(), "operator", [outcome_of(row) for row in rows.values()])
        given.markdown.write_text(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
