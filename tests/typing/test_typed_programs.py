"""A user's typed program passes mypy --strict, which knows its types, and finds wrong calls."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from tests.house import method_signatures

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What mypy says: file name → line number → messages."""
    pytest.importorskip("mypy")
    parent = Path(tilewright.__file__).parents[1]
    if Path(tilewright.__file__).parent.name != "tilewright":
        pytest.skip("the checkout's folder has another name, under which mypy does not find the package")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-incremental",
        "--follow-imports=silent",
        "--no-error-summary",
    ]
    command += [str(HERE / "typed_program.py"), str(HERE / "wrong_program.py")]
    environment = {**os.environ, "MYPYPATH": str(parent)}
    if parent.name == "site-packages":  # mypy finds installed packages, and refuses their folder as a path
        del environment["MYPYPATH"]
    folder = tmp_path_factory.mktemp("mypy")
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    messages: dict[str, dict[int, list[str]]] = {"typed_program.py": {}, "wrong_program.py": {}}
    for line in done.stdout.splitlines():
        match = re.match(r".*?(\w+_program\.py):(\d+): (.*)", line)
        if match:
            messages[match[1]].setdefault(int(match[2]), []).append(match[3])
    assert any(messages.values()), done.stdout + done.stderr
    return messages


def plain(text):
    """Names of types without their modules."""
    return re.sub(r"\b[\w.]+\.(\w+)\b", r"\1", text).replace("builtins.", "")


def test_the_types_are_known(found):
    said = found["typed_program.py"]
    lines = (HERE / "typed_program.py").read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        asked = re.match(r"reveal_type\(.*\)  # (.*)", line)
        messages = [plain(m) for m in said.pop(number, [])]
        assert messages == ([f'note: Revealed type is "{asked[1]}"'] if asked else []), (line, messages)
    assert said == {}


def test_wrong_calls_are_found(found):
    said = found["wrong_program.py"]
    for number, line in enumerate((HERE / "wrong_program.py").read_text().splitlines(), start=1):
        code = re.search(r"  # ([a-z-]+)$", line)
        codes = {m[1] for text in said.get(number, []) if (m := re.search(r"\[([a-z-]+)\]$", text))}
        assert codes == ({code[1]} if code else set()), (line, said.get(number))


def test_the_signatures_are_those_of_the_primitives():
    pytest.importorskip("ruff", reason="the signatures are formatted by ruff")
    assert method_signatures.PLACE.read_text() == method_signatures.text(), "python -m tests.house.method_signatures"
