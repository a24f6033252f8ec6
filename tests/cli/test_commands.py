"""Tuning, benching, building, showing and keeping records, from the command line."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.cli import bench as bench_command
from tilewright.cli import doctor, output
from tilewright.codegen.machine.target_text import TARGET_OPTIONS
from tilewright.driver.benching import BenchResult, BenchRow

SPEC = "matmul:M=17,N=32,K=16"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A database with a few records of SPEC."""
    from tilewright.driver import tune

    path = tmp_path_factory.mktemp("tuned") / "tuning.db"
    assert tune(SPEC, "native -num-cores=1", trials=4, db=path).best is not None
    return path


@pytest.fixture
def db(tuned, tmp_path):
    return shutil.copy(tuned, tmp_path / "copy.db")


def test_tune_bench_build_from_nothing(run, tmp_path):
    done = run("tune", SPEC, "--trials", "3", "--num-cores", "1", "--db", "new.db", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["schema"] == 1 and told["trials"] == 3 and told["best_seconds"] > 0 and told["stopped"] == "trials"
    assert f"{SPEC}: 3/3 trials, best" in done.err
    done = run("bench", SPEC, "--num-cores", "1", "--db", "new.db", "--rounds", "2", "--json")
    assert done.code == 0, done.err
    rows = {row["name"]: row for row in json.loads(done.out)["rows"]}
    assert list(rows) == ["default", "tuned", "numpy"] and all(row["seconds"] > 0 for row in rows.values())
    assert rows["numpy"]["speedup_over_numpy"] == 1.0 and rows["tuned"]["share_of_peak"] > 0
    assert rows["tuned"]["origin"].startswith("record ")
    done = run("build", SPEC, "--num-cores", "1", "--db", "new.db", "--require-tuned", "-o", "mm.ll")
    assert done.code == 0 and "record " in done.out and (tmp_path / "mm.ll").exists()


def test_times_of_a_simulated_gpu_are_called_so(run):
    done = run("tune", "matmul:M=7,N=7,K=7", "--trials", "1", "--target", "gpu-sim", "--db", "new.db")
    assert done.code == 0, done.err
    assert "the times are simulated: " in done.out and "of peak" not in done.out


def test_names_of_targets(run):
    done = run("targets", "jetson-agx-orin", "--json")
    assert [row["name"] for row in json.loads(done.out)["targets"]] == [
        f"nvidia/jetson-agx-orin-{n}gb" for n in (32, 64)
    ]
    everything = run("targets").out
    assert all(word in everything for word in ("cortex-m7", "gpu-sim", "-mcpu=NAME", "nvidia/geforce-rtx-4090"))
    refused = run("targets", "atari")
    assert refused.code == 2 and "no target's name contains 'atari'" in refused.err


@pytest.mark.parametrize("command", ["tune", "bench", "build", "show", "doctor"])
def test_help_of_targets_lists_what_the_parser_takes(run, command):
    done = run(command, "--target", "help")
    assert done.code == 0 and done.err == ""
    words = {line.split(" ")[0] for line in done.out.splitlines() if line}
    assert {
        *[option.written for option in TARGET_OPTIONS],
        "native",
        "llvm",
        "c",
        "cuda",
        "gpu-sim",
        "verilog",
    } <= words


def test_the_page_of_targets_lists_the_options():
    page = (Path(__file__).parents[2] / "docs/guides/targets.md").read_text(encoding="utf-8")
    for option in TARGET_OPTIONS:
        kinds = ", ".join([f"`{kind}`" for kind in option.kinds]) or "all"
        assert f"| `{option.written}` | {kinds} | {option.meaning} |\n" in page


def test_bench_prints_a_table(run, db):
    done = run("bench", SPEC, "--num-cores", "1", "--db", db, "--rounds", "1")
    assert done.code == 0, done.err
    assert "of peak" in done.out and "vs NumPy" in done.out and "NumPy on 1 thread" in done.out
    with sqlite3.connect(db) as conn:
        assert [name for (name,) in conn.execute("SELECT name FROM baselines WHERE seconds > 0")] == ["NumPy"]
    done = run("bench", "transpose:M=17,N=13", "--num-cores", "1", "--rounds", "1")
    assert done.code == 0 and "GFLOP/s  " not in done.out and "not tuned yet: tilewright tune" in done.err


def test_without_a_record_tuned_is_an_error(run, db):
    for command in (["bench"], ["build", "-o", "x.ll"]):
        done = run(*command, "matmul:M=5,N=5,K=5", "--require-tuned", "--db", db)
        assert done.code == 3 and "has no record of it" in done.err and "tilewright tune matmul:M=5" in done.err
    assert run("db", "best", "matmul:M=5,N=5,K=5", "--db", db).code == 3


def test_nothing_measured_is_exit_code_4(run, monkeypatch):
    from tilewright.tuner.measure import LocalRunner, MeasureResult

    monkeypatch.setattr(LocalRunner, "open", lambda *a, **k: None)
    monkeypatch.setattr(
        LocalRunner, "measure", lambda self, traces, **k: [MeasureResult("crash", "signal 11") for _ in traces]
    )
    done = run("tune", SPEC, "--trials", "2", "--db", "t.db")
    assert done.code == 4 and "nothing could be measured: 2 crash" in done.err
    done = run("db", "failures", "--db", "t.db")
    assert "crash" in done.out and "signal 11" in done.out


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("te", "A: float32[17, 16]"),
        ("tir", "def matmul(A: T.Buffer((17, 16)"),
        ("scheduled", "def matmul("),
        ("trace", "sch.get_block"),
        ("lowered", "def matmul("),
        ("ll", "define "),
        ("asm", "matmul:"),
    ],
)
def test_show(run, db, stage, text):
    done = run("show", SPEC, "--stage", stage, "--db", db, "--num-cores", "1")
    assert done.code == 0 and text in done.out
    assert ("record " in done.err) == (stage not in ("te", "tir"))
    told = json.loads(run("show", SPEC, "--stage", stage, "--json").out)
    assert told["schema"] == 1 and told["stage"] == stage and text in told["text"]


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("ld")), reason="needs a linker")
def test_a_library_needs_no_python(run, db, tmp_path):
    done = run("build", SPEC, "--db", db, "--num-cores", "1", "-o", "mm.so", "--name", "tuned_matmul", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["symbols"] == ["tuned_matmul"] and os.path.exists("mm.h")
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (17, 16)).astype(np.float32)
    b = rng.integers(-4, 5, (16, 32)).astype(np.float32)
    c = np.full((17, 32), np.nan, np.float32)
    function = ctypes.CDLL(str(tmp_path / "mm.so")).tuned_matmul
    assert function(*[ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)]) == 0
    np.testing.assert_array_equal(c, a @ b)


def test_db_tells_what_it_holds(run, db):
    done = run("db", "ls", "--db", db)
    assert SPEC in done.out and "native -num-cores=1" in done.out
    (row,) = json.loads(run("db", "ls", "--db", db, "--json").out)["workloads"]
    assert row["records"] == 4 and row["best_seconds"] > 0
    assert "done" in run("db", "ls", "--sessions", "--db", db).out
    done = run("db", "best", SPEC, "--db", db, "--num-cores", "1")
    assert done.code == 0 and "sch.get_block" in done.out
    best = json.loads(run("db", "best", SPEC, "--db", db, "--num-cores", "1", "--json").out)
    assert best["status"] == "ok" and json.loads(best["trace"])["insts"]
    assert "record 1:" in run("db", "show", 1, "--db", db).out
    assert run("db", "show", 99, "--db", db).code == 1


def test_db_exchange_and_upkeep(run, db):
    assert run("db", "export", "all.jsonl", "--db", db).out == "4 records -> all.jsonl\n"
    assert run("db", "import", "all.jsonl", "--db", "other.db").out == "4 new records -> other.db\n"
    assert run("db", "merge", db, "--db", "other.db").out.startswith(f"{db}: 0 new records")
    done = run("db", "prune", "--keep", "1", "--dry-run", "--db", "other.db")
    assert re.search(rf"{SPEC} +native -num-cores=1 +3 +0 +1\n3 records would be dropped", done.out)
    done = run("db", "prune", "--keep", "1", "--db", "other.db")
    assert done.code == 2 and "3 records would be dropped, and nobody can be asked" in done.err
    assert run("db", "prune", "--before", "yesterday", "--db", "other.db").err.startswith(
        "tilewright: --before 'yesterday' is not a date such as 2026-01-31"
    )
    assert run("db", "prune", "--keep", "1", "--before", "2001-01-01", "--db", "other.db").out == "nothing to drop\n"
    assert run("db", "prune", "--keep", "1", "--db", "other.db", "--yes").out.endswith(
        "3 records dropped from other.db\n"
    )
    done = run("db", "check", "--db", "other.db")
    assert done.code == 0 and done.out == "other.db: 1 records, no problems\n"
    with sqlite3.connect("other.db") as conn:
        conn.execute("UPDATE records SET run_seconds = 1e-9, trace = 'x'")
    done = run("db", "check", "--db", "other.db")
    assert done.code == 1 and "trace: no JSON" in done.out


def test_a_damaged_database_is_named_and_left_alone(run, db):
    with open(db, "r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 3000)
    before = open(db, "rb").read()
    for words in (["tune", SPEC], ["bench", SPEC], ["build", SPEC, "-o", "x.ll"], ["db", "ls"], ["report"]):
        done = run(*words, "--db", db)
        assert done.code == 1 and "is damaged" in done.err and "nothing was changed" in done.err
    assert open(db, "rb").read() == before


def test_report(run, db, tmp_path):
    done = run("report", "--db", db, "-o", "r.html")
    assert done.code == 0
    text = (tmp_path / "r.html").read_text()
    assert SPEC in text and "<svg" in text and "<script" not in text and "http" not in text
    assert len(text) < 300_000 and "prefers-color-scheme:dark" in text


def test_doctor_takes_xgboost_cpu_for_xgboost(monkeypatch):
    def version(name):
        if name == "xgboost":
            raise metadata.PackageNotFoundError(name)
        return "3.2.0"

    monkeypatch.setattr(metadata, "version", version)
    assert doctor._versions()["xgboost"] == "3.2.0 (xgboost-cpu)"
    assert not [text for text in doctor._warnings() if "xgboost" in text]


def test_doctor(run):
    told = json.loads(run("doctor", "--json").out)
    assert told["machine"]["peak_flops"]["float32"]["one"] > 0 and told["machine"]["bandwidth"]["copy"]["one"] > 0
    assert {"numpy", "llvmlite", "SQLite", "LLVM"} <= told["versions"].keys()
    assert {s["name"]: s["from"] for s in told["settings"]}["target"] == "default"
    assert told["object_cache"]["on"] and told["object_cache"]["limit_bytes"] == 256 << 20
    out = run("doctor").out
    assert "machine code" in out and "of at most 256 M" in out
    assert "peak float32" in out and "GFLOP/s on one thread" in out and "vector width" in out


def test_a_workload_of_ones_own(run, tmp_path):
    (tmp_path / "kernels.py").write_text(
        "import tilewright as tw\nfrom tilewright import te\n\n@tw.workload\ndef double(n: int = 16):\n"
        "    A = te.placeholder((n,), name='A')\n    return [A, te.compute((n,), lambda i: A[i] + A[i], name='B')]\n"
    )
    done = run("tune", "kernels.py:double", "--arg", "n=100", "--trials", "2", "--db", "t.db", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["spec"] == "kernels.py:double:n=100"
    done = run("bench", "kernels.py:double:n=100", "--db", "t.db", "--rounds", "1", "--json")
    assert [row["name"] for row in json.loads(done.out)["rows"]] == ["default", "tuned"]


def test_a_page_of_stages_and_line_tables(run, tmp_path):
    done = run("show", "relu:M=7,N=13", "--html", "relu.html", "--num-cores", "1")
    assert done.code == 0 and done.out.startswith("relu.html: ")
    assert "machine code" in (tmp_path / "relu.html").read_text(encoding="utf-8")
    assert run("build", "relu:M=7,N=13", "-g", "-o", "relu.o").out.startswith("relu.o, relu.h, relu.hpp, relu.tir: ")


def test_bench_says_when_the_limits_cannot_be_right(capsys):
    """A share above 100 % means that the machine was measured while it was busy."""
    rows = [BenchRow("default", "", [2e-3]), BenchRow("numpy", "", [1e-4])]
    bench_command._say(BenchResult("matmul", "native", 2e6, 1e3, rows, peak_flops=4e9), "again")
    shown = capsys.readouterr()
    assert "25.0%" in shown.out and "over 100 %" in shown.out and "500" not in shown.out
    assert "which were measured while it was busy" in shown.err and "doctor --refresh" in shown.err


SIGNS = [
    ("tune", "matmul:M=7,N=7,K=7 --trials 1"), ("bench", "nosuch"), ("build", "nosuch -o x.o"), ("show", "nosuch"),
    ("report", "--db nosuch.db"), ("workloads", "nosuch"), ("doctor", ""),
]  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs terminals of POSIX")
@pytest.mark.parametrize("command, words", SIGNS, ids=[command for command, _ in SIGNS])
def test_a_terminal_shows_a_sign_before_the_compiler_is_loaded(command, words, tmp_path):
    """The first bytes come while NumPy is not there yet; an import of it ends the process."""
    (tmp_path / "numpy.py").write_text("import os\nos._exit(7)\n")
    main_side, terminal = os.openpty()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(tilewright.__file__).parents[1]}", "TERM": "xterm"}
    process = subprocess.run(
        [sys.executable, "-m", "tilewright", command, *words.split()], stderr=terminal, stdout=terminal, cwd=tmp_path,
        env=environment, timeout=60,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # a closed terminal is an error on Linux
        shown = os.read(main_side, 1000)
    os.close(main_side)
    assert b": loading the compiler\r" in shown and process.returncode == 7


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs terminals of POSIX")
@pytest.mark.parametrize("columns", [24, 40, 80])
def test_the_sign_stays_in_one_line_of_the_terminal(columns, monkeypatch):
    """A sign that wrapped would leave its first line behind when it is taken away."""
    import fcntl
    import struct
    import termios

    main_side, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(terminal, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        output.first_sign("matmul:M=64,N=64,K=64")
        shown = os.read(main_side, 1000).decode()
        output.clear_sign()
        monkeypatch.undo()
    os.close(main_side)
    sign = shown.rstrip("\r")
    assert len(sign) < columns and sign.startswith("matmul:M=64,N=64,K=64"[: columns - 2])
    assert sign.endswith("…") if columns < 44 else sign.endswith(": loading the compiler")


@pytest.mark.parametrize("command, words", [one for one in SIGNS if one[0] in ("tune", "bench", "doctor")])
def test_commands_with_progress_say_a_line_before_the_compiler_is_loaded(command, words, tmp_path):
    """Without a terminal the line goes to stderr; commands without progress say nothing there."""
    (tmp_path / "numpy.py").write_text("import os\nos._exit(7)\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(tilewright.__file__).parents[1]}", "TERM": "dumb"}
    process = subprocess.run(
        [sys.executable, "-m", "tilewright", command, *words.split()], capture_output=True, cwd=tmp_path, env=environment,
        timeout=60,
    )  # fmt: skip
    subject = "doctor" if command == "doctor" else words.split()[0]
    assert process.stderr == f"{subject}: loading the compiler\n".encode() and process.stdout == b""
    assert process.returncode == 7


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux alone")
def test_names_of_files_that_are_no_text(run, tmp_path):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    place = os.fsdecode(folder)
    Path(place, "mine.py").write_text(
        "from tilewright import te\ndef twice(n: int = 8):\n    a = te.placeholder((n,), name='a')\n"
        "    return [a, te.compute((n,), lambda i: a[i] + a[i], name='b')]\n"
    )
    spec, db = f"{place}/mine.py:twice", f"{place}/x.db"
    for words in (
        ("tune", spec, "--trials", "1", "--num-cores", "1", "--db", db),
        ("show", spec, "--html", f"{place}/page.html"),
        ("db", "ls", "--db", db),
        ("report", "--db", db, "-o", f"{place}/report.html"),
    ):
        done = run(*words)
        assert done.code == 0, done.err
    for page in ("page.html", "report.html"):
        assert "caf\ufffd" in Path(place, page).read_text(encoding="utf-8")


def test_tune_takes_examples_of_symbolic_sizes(run, tmp_path):
    (tmp_path / "own.py").write_text(
        "import tilewright as tw\nfrom tilewright import te\n@tw.workload\ndef rows(width=40):\n"
        "    n = te.size_var('n')\n    x = te.placeholder((n, width), name='x')\n    return [x, te.ops.exp(x)]\n"
    )
    words = ("--target", "native -num-cores=1", "--trials", 2)
    done = run("tune", "own.py:rows", "--size", "n=3,64", *words)
    assert done.code == 0 and "n = 3" in done.out and "n = 64" in done.out and "for all sizes" in done.out
    found = run("build", "own.py:rows", "--target", "native -num-cores=1", "-o", "rows.so")
    assert found.code == 0 and "at n = 3; n = 64" in found.out
    rows = json.loads(run("tune", "own.py:rows", "--size", "n=3", "--json", *words).out)["examples"]
    assert [row["sizes"] for row in rows] == ["n = 3"] and rows[0]["best_seconds"] > 0
    for size, said in (("m=3", "no size 'm'"), ("n=", "examples of a size"), ("n=x", "examples of a size")):
        failed = run("tune", "own.py:rows", "--size", size, *words)
        assert failed.code == 2 and said in failed.err
    assert run("tune", "matmul:M=4,N=4,K=4", "--size", "n=3", *words).code == 2
