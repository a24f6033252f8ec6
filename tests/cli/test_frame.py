"""Help, versions, settings, errors and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import tilewright
from tilewright.cli import output
from tilewright.cli.main import COMMANDS
from tilewright.cli.output import EXIT_CODES


def test_help_lists_commands_exit_codes_and_settings(run):
    done = run("--help")
    assert done.code == 0
    assert all(f"  {name} " in done.out for name in COMMANDS)
    assert all(f"  {code} " in done.out for code in EXIT_CODES)
    assert "TILEWRIGHT_DB" in done.out


@pytest.mark.parametrize("words", [[name] for name in COMMANDS] + [["db", n] for n in
    ("ls", "best", "show", "failures", "export", "import", "merge", "prune", "check")])  # fmt: skip
def test_every_command_explains_itself(run, words):
    done = run(*words, "--help")
    assert done.code == 0 and done.out.startswith(f"Usage: tilewright {' '.join(words)}") and len(done.out) > 120


def test_version(run):
    assert run("--version").out == f"tilewright, version {tilewright.__version__}\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["tunne"], 2, "No such command 'tunne'; did you mean tune?"),
        (["tune", "matmul", "--trial", "5"], 2, "'--trials'"),
        (["tune", "matmul", "--time-limit", "nan"], 2, "'nan' is not a number of seconds above zero"),
        (["tune", "matmul", "--time-limit", "inf"], 2, "'inf' is not a number of seconds above zero"),
        (["tune", "matmul", "--time-limit", "0"], 2, "'0' is not a number of seconds above zero"),
        (["build", "matmul", "-o", "x.c", "--name", "main"], 2, "--name: 'main'"),
        (["build", "matmul", "-o", "x.c", "--name", "double"], 2, "--name: 'double' is a word of C"),
        (["build", "matmul", "-o", "x.c", "--name", "a b"], 2, "--name: 'a b' is not a C identifier"),
        (["tune"], 2, "Missing argument 'SPEC'"),
        (["tune", "matmul", "--trials", "0"], 2, "0 is not in the range"),
        (["tune", "matmull"], 2, "no workload is called 'matmull'; did you mean matmul"),
        (["tune", "matmul:M=0"], 2, "matmul: M=0: a dimension is at least 1"),
        (["tune", "matmul:M=7,N=7,K=7", "--target", "llvm -mtriple=aarch64-linux-gnu"], 2, "cannot run"),
        (["bench", "matmul:M=7,N=7,K=7", "--target", "llvm -mtriple=aarch64-linux-gnu"], 2, "cannot run"),
        (["doctor", "--target", "llvm -mtriple=aarch64-linux-gnu"], 2, "cannot run"),
        (["bench", "matmul", "--target", "nativ"], 2, "target 'nativ': no such kind; did you mean native?"),
        (["bench", "matmul", "--db", "nowhere.db"], 2, "there is no database nowhere.db"),
        (["bench", "matmul:M=7,N=7,K=7", "--require-tuned"], 2, "no database"),
        (["show", "matmul", "--stage", "object"], 2, "'object' is none of its words"),
        (["build", "matmul", "-o", "x.exe"], 2, "the suffix says what to write"),
        (["build", "matmul", "-o", "nowhere/x.so"], 2, "there is no folder"),
        (["db", "ls"], 2, "no database: there is no tuning.db here"),
        (["db", "ls", "--db", "nowhere.db"], 2, "there is no database nowhere.db"),
        (["workloads", "conv"], 2, "no workload is called 'conv'; did you mean conv2d"),
    ],
)
def test_errors_say_what_and_end_with_a_code(run, words, code, message):
    done = run(*words)
    assert done.code == code, done
    assert message in done.err and "Traceback" not in done.err and done.out == ""


def test_debug_shows_the_traceback(run):
    done = run("tune", "matmull", "--debug")
    assert done.code == 2 and "Traceback" in done.err and "WorkloadError" in done.err


def test_a_bug_is_called_a_bug(run, monkeypatch):
    from tilewright.driver.workloads import catalog

    def broken():
        raise KeyError("oops")

    monkeypatch.setattr(catalog, "all_workloads", broken)
    done = run("workloads")
    assert done.code == 1 and "this is a bug in Tilewright; run it again with --debug" in done.err


def test_a_package_that_is_not_installed_is_named(run, monkeypatch):
    from tilewright.driver.workloads import catalog

    def needs_more():
        raise ModuleNotFoundError("No module named 'sqlite_utils'", name="sqlite_utils.db")

    monkeypatch.setattr(catalog, "all_workloads", needs_more)
    done = run("workloads")
    assert (done.code, done.err) == (
        1,
        "tilewright: the Python package sqlite-utils is not installed\n  pip install sqlite-utils\n",
    )


UNUSUAL = """
import tilewright as tw
from tilewright import te

def relu(n):
    A = te.placeholder((n,), name="A")
    return [A, te.compute((n,), lambda i: te.max(A[i], 0.0), name="B")]

@tw.workload
def double(n: int = 7):
    return relu(n)

@tw.workload
def größe(n: int = 7):
    return relu(n)
"""


@pytest.mark.parametrize(("function", "symbol"), [("double", "double_"), ("größe", "gr__e")])
def test_functions_may_have_any_name(run, tmp_path, function, symbol):
    (tmp_path / "unusual.py").write_text(UNUSUAL, encoding="utf-8")
    done = run("build", f"unusual.py:{function}", "-o", "x.c")
    assert done.code == 0 and f"int32_t {symbol}(const float* A, float* B)" in (tmp_path / "x.h").read_text()


def test_outputs_that_are_closed_or_know_few_letters_are_no_error(tmp_path):
    command = f"{sys.executable} -m tilewright workloads"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0", "TERM": "dumb"}
    for redirect in ("", ">&-", "2>&-", ">&- 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f"{command} {redirect}"], capture_output=True, cwd=tmp_path, env=environment
        )
        assert (done.returncode, done.stderr) == (0, b"")
    shown = subprocess.run(
        ["bash", "-c", f"{command} matmull 2>&-"], capture_output=True, cwd=tmp_path, env=environment
    )
    assert shown.returncode == 2


def test_warnings_are_one_line_without_a_source(run, monkeypatch):
    import warnings

    from tilewright.driver.workloads import catalog

    real = catalog.all_workloads
    monkeypatch.setattr(catalog, "all_workloads", lambda: (warnings.warn("two\nlines", stacklevel=1), real())[1])
    assert run("workloads", "conv").err.split("\n")[0] == "tilewright: warning: two lines"


def test_the_progress_needs_no_colours(monkeypatch):
    from tilewright.cli.output import moves, style_ok

    class Terminal:
        def isatty(self):
            return True

    for term, no_color, moving, coloured in (
        ("xterm", "", True, True), ("xterm", "1", True, False), ("dumb", "", False, False),
    ):  # fmt: skip
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("NO_COLOR", no_color)
        assert (moves(Terminal()), style_ok(Terminal())) == (moving, coloured)
    assert not moves(None)


def test_a_full_disk_names_the_file(run, tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    from tilewright.pages.written_files import write_file

    place = tmp_path / f".x.c.{os.getpid()}.partial"
    place.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*/x.c'"):
        write_file(tmp_path / "x.c", "text")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_and_what_is_no_file_is_written_itself(tmp_path):
    from tilewright.pages.written_files import write_file

    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    write_file(tmp_path / "link", "one")
    write_file(tmp_path / "link", "two")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "folder" / "file").read_text() == "two"
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True)
    write_file(tmp_path / "pipe", "three")
    assert reader.communicate()[0] == "three"
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "pipe"] and (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(
    "command", ["workloads --json", "workloads", "show matmul:M=7,N=7,K=7 --stage asm 2>/dev/null"]
)
def test_a_reader_that_goes_away_is_no_error(tmp_path, command):
    code = f"{sys.executable} -m tilewright {command} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.count("\n") == 1 and done.stderr == ""


def test_an_output_on_a_full_disk_is_said(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tilewright", "workloads"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1 and done.stderr == "tilewright: cannot write the output: No space left on device\n"


def test_workloads(run):
    out = run("workloads").out
    assert "matmul:M=1024,N=1024,K=1024" in out and "C[M, N] = A[M, K] @ B[K, N]" in out
    one = run("workloads", "conv2d").out
    assert "layout" in one and "order of the axes (NCHW, NHWC)" in one
    document = json.loads(run("workloads", "--json").out)
    assert document["schema"] == 1
    assert {w["name"] for w in document["workloads"]} >= {"matmul", "conv2d", "softmax", "layer_norm"}


def test_settings_come_from_flag_environment_file_default(run, monkeypatch, tmp_path):
    from tilewright.cli.options import _read_file, setting

    assert (setting("target").value, setting("target").origin) == ("native", "default")
    (tmp_path / "tilewright.toml").write_text('target = "native -num-cores=1"\n')
    _read_file.cache_clear()
    assert setting("target").origin == "tilewright.toml"
    (tmp_path / "tilewright.toml").write_text('colour = "red"\n')
    _read_file.cache_clear()
    done = run("db", "ls")
    assert done.code == 2 and "no setting 'colour'; there are db, target" in done.err
    (tmp_path / "tilewright.toml").unlink()
    _read_file.cache_clear()
    monkeypatch.setenv("TILEWRIGHT_TARGET", "llvm")
    assert (setting("target").value, setting("target").origin) == ("llvm", "TILEWRIGHT_TARGET")
    assert setting("target", "native").origin == "flag"


def test_every_option_has_a_variable(run, monkeypatch):
    shown = " ".join(run("tune", "--help").out.split())
    for name in ("TUNE_TRIALS", "TUNE_ALL_TRIALS", "TUNE_TIME_LIMIT", "TUNE_NUM_CORES", "TUNE_JSON", "DB", "TARGET"):
        assert f"[env var: TILEWRIGHT_{name}" in shown, name
    assert "TILEWRIGHT_DB_PRUNE_KEEP" in run("db", "prune", "--help").out
    monkeypatch.setenv("TILEWRIGHT_TUNE_TRIALS", "0")
    assert "0 is not in the range" in run("tune", "matmul").err
    monkeypatch.setenv("TILEWRIGHT_WORKLOADS_JSON", "1")
    assert json.loads(run("workloads").out)["schema"] == 1
    from tilewright.cli.options import set_options

    assert [(s.name, s.value, s.origin) for s in set_options()] == [
        ("tune --trials", "0", "TILEWRIGHT_TUNE_TRIALS"), ("workloads --json", "1", "TILEWRIGHT_WORKLOADS_JSON"),
    ]  # fmt: skip


def test_the_log_level_is_a_setting(run, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_LOG", "loud")
    done = run("workloads")
    assert done.code == 2 and "log is debug, info, warning or error, not 'loud'" in done.err


@pytest.mark.parametrize("columns", [20, 40, 60, 100])
def test_lines_fit_narrow_terminals(run, monkeypatch, columns):
    whole = run("workloads").out
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run("workloads").out.splitlines()
    assert max(map(len, lines)) <= columns
    shown, told = "".join("".join(lines).split()), whole.splitlines()[-1].split("  ")[-1]
    assert "".join(told.split()) in shown  # a text of the last column is broken, not shortened


ROW = {"name": "a:one=1,two=2,three=3,four=4", "size": "17", "what": "some words here"}


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        ("60", ["name                          size  what", "a:one=1,two=2,three=3,four=4    17  some words here"]),
        ("48", ["name                       size  what", "a:one=1,two=2,th…3,four=4    17  some words here"]),
        ("30", ["a:one=1,two=2,three=3,four=4", "  size 17 ·", "  what some words here"]),
        ("24", ["a:one=1,two=2,three=3,fo", "ur=4", "  size 17 ·", "  what some words here"]),
    ],
)
def test_tables(capsys, monkeypatch, columns, lines):
    monkeypatch.setenv("COLUMNS", columns)
    shown = [output.column(n, lambda r, n=n: r[n], n == "size") for n in ROW]
    output.echo_table([ROW], shown)
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_search_keeps_what_it_measured(tmp_path, number, code):
    from tilewright.tuning_db import Database

    words = [sys.executable, "-m", "tilewright", "tune", "matmul:M=64,N=64,K=64", "--trials", "5000", "--all-trials"]
    words += ["--db", "t.db", "--seed", "3", "--num-cores", "1"]
    child = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells have their background jobs ignore it
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        records = 0
        while records == 0 and time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.2)
            if os.path.exists(tmp_path / "t.db") and os.path.getsize(tmp_path / "t.db"):
                with Database(tmp_path / "t.db", readonly=True) as db:
                    records = db.count()
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == code, err
    again = "tilewright tune matmul:M=64,N=64,K=64 --num-cores 1 --db t.db --trials 5000 --seed 3 --all-trials"
    assert again in err
    with Database(tmp_path / "t.db") as db:
        assert db.count() >= records > 0 and db.check() == []
        assert [s.status for s in db.sessions()] == ["interrupted"]
