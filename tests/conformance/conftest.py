"""Cases as text: programs, the steps of a schedule, and what comes of them.

A file holds parts, each with a head:

    # program elementwise             a function or a module
    # case tiled: elementwise         the steps, as Python on `sch`
    # gives                           the function (or module) after them
    # refused: words                  or: the last step raises ScheduleError with these words in it

A function is written to read like TVM's scripts, in any of their spellings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilewright import te, tir
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import IRModule, assert_structural_equal, parse

HERE = Path(__file__).parent
HEAD = re.compile(r"^# (program|case|gives|refused)\b:?[ ]*(.*)$")


@dataclass
class Case:
    """One case of a file."""

    file: str
    name: str
    program: str
    steps: str
    gives: str | None = None
    refused: str | None = None


def cases_of(path: Path) -> list[Case]:
    """All cases of a file, in order."""
    programs: dict[str, str] = {}
    cases: list[Case] = []
    for kind, words, text in _parts(path.read_text()):
        if kind == "program":
            programs[words] = text
        elif kind == "case":
            name, _, program = words.partition(": ")
            cases.append(Case(path.stem, name, programs[program or name], text))
        elif kind == "gives":
            cases[-1].gives = text
        else:
            cases[-1].refused = words
    return cases


def _parts(text: str) -> list[tuple[str, str, str]]:
    out: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        head = HEAD.match(line)
        if head:
            out.append((head[1], head[2].strip(), []))
        elif out:
            out[-1][2].append(line)
    return [(kind, words, "\n".join(lines).strip("\n") + "\n") for kind, words, lines in out]


def run_steps(case: Case) -> Schedule:
    """The schedule after the steps; whatever they raise goes on."""
    sch = Schedule(parse(case.program), seed=1, debug_mask="all")
    exec(compile(case.steps, f"{case.file}: {case.name}", "exec"), {"sch": sch, "tir": tir, "te": te})  # noqa: S102
    return sch


@pytest.fixture
def steps_of():
    """:func:`run_steps`, for another file of tests."""
    return run_steps


@pytest.fixture
def check():
    """Run a case and hold it against what it says."""

    def run(case: Case) -> None:
        if case.refused is not None:
            with pytest.raises(ScheduleError) as info:
                run_steps(case)
            assert case.refused.lower() in str(info.value).lower()
            return
        sch = run_steps(case)
        expected = parse(case.gives)
        assert_structural_equal(sch.mod if isinstance(expected, IRModule) else sch.func, expected)
        again = Schedule(parse(case.program))
        sch.trace.apply_to_schedule(again)
        assert_structural_equal(again.mod, sch.mod)

    return run


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        cases = [case for path in sorted((HERE / "cases").glob("*.txt")) for case in cases_of(path)]
        metafunc.parametrize("case", cases, ids=[f"{case.file}-{case.name}" for case in cases])
