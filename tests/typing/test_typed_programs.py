"""A user's typed program passes mypy --strict, which knows its types, and finds wrong calls."""

from __future__ import annotations

import json
import os
import re
import shutil
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


@pytest.fixture(scope="module")
def read_by_pyright(tmp_path_factory):
    """What pyright says in the mode that it has by default: file name → line number → (severity, message)."""
    pytest.importorskip("pyright", reason="pip install 'pyright[nodejs]'")
    parent = Path(tilewright.__file__).parents[1]
    if Path(tilewright.__file__).parent.name != "tilewright":
        pytest.skip("the checkout's folder has another name, under which pyright does not find the package")
    folder = tmp_path_factory.mktemp("pyright")
    names = ("typed_program.py", "wrong_program.py")
    for name in names:
        shutil.copy(HERE / name, folder / name)
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(parent)], "include": list(names)}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not run here: {(done.stdout + done.stderr).strip()[-200:]}")
    messages: dict[str, dict[int, list[tuple[str, str]]]] = {name: {} for name in names}
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        line = one["range"]["start"]["line"] + 1
        messages[Path(one["file"]).name].setdefault(line, []).append((one["severity"], one["message"]))
    return messages


def test_pyright_knows_the_types(read_by_pyright):
    said = read_by_pyright["typed_program.py"]
    for number, line in enumerate((HERE / "typed_program.py").read_text().splitlines(), start=1):
        asked = re.match(r"reveal_type\(.*\)  # (.*)", line)
        found = [(severity, re.sub(r'^Type of ".*" is ', "", text)) for severity, text in said.get(number, [])]
        assert found == ([("information", f'"{asked[1]}"')] if asked else []), (line, found)


def test_pyright_finds_wrong_calls(read_by_pyright):
    """All but the use of a result that is None, which it permits."""
    said = read_by_pyright["wrong_program.py"]
    for number, line in enumerate((HERE / "wrong_program.py").read_text().splitlines(), start=1):
        wrong = re.search(r"  # ([a-z-]+)$", line)
        expected = bool(wrong) and wrong[1] != "func-returns-value"
        assert any(severity == "error" for severity, _ in said.get(number, [])) == expected, (line, said.get(number))


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
