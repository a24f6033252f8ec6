"""Wrong inputs of the command line, each with the exit code and the words that must come back.

``python -m tests.cli.bad_inputs`` runs all of them and prints what each says; ``test_bad_inputs.py`` runs them in groups.
None may be called a bug, print a traceback or write to stdout.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import sys
from pathlib import Path

FILES = {
    "empty.py": "",
    "syntax.py": "def f(:\n",
    "imports.py": "import nosuchmodule\n",
    "exits.py": "import sys\nsys.exit(3)\n",
    "exits_later.py": "import sys\ndef f():\n    sys.exit(3)\n",
    "raises.py": "def f():\n    table = {}\n    return table['oops']\n",
    "kernels.py": """
from tilewright import te
number = 3
def seven():
    return 7
def nothing():
    pass
def needs(n):
    A = te.placeholder((n,), name="A")
    return [A, te.compute((n,), lambda i: A[i] + 1.0, name="B")]
def beyond():
    A = te.placeholder((8, 4), name="A")
    return [A, te.compute((9, 4), lambda i, j: A[i, j] + 1.0, name="B")]
def symbolic():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    return [A, te.compute((n,), lambda i: A[i] + 1.0, name="B")]
""",
    "text.db": "this is no database" * 10,
    "zero.db": "",
    "bad.jsonl": "{no json\n",
    "other.jsonl": '{"kind": "martian"}\n',
}

SMALL = "matmul:M=7,N=7,K=7"
ARM = "'llvm -mtriple=aarch64-linux-gnu'"

INPUTS = {
    "commands": [
        ("--frobnicate", 2, "No such option '--frobnicate'"),
        ("tunne", 2, "No such command 'tunne'; did you mean tune?"),
        ("frobnicate", 2, "No such command 'frobnicate'; there are tune, bench"),
        ("db frob", 2, "No such command 'frob'; there are best, check"),
        ("db fialures", 2, "did you mean failures?"),
        ("db", 2, "Usage: tilewright db"),
        ("tune", 2, "tilewright tune: Missing argument 'SPEC'"),
        ("tune matmul extra", 2, "unexpected extra argument (extra)"),
        ("tune matmul --trial 5", 2, "'--trials'"),
        ("tune matmul --db", 2, "tilewright tune: Option '--db' requires an argument"),
        ("build matmul", 2, "Missing option '-o' / '--output'"),
        ("show matmul --stage", 2, "'--stage' requires an argument"),
        ("db best", 2, "Missing argument 'SPEC'"),
        ("db export --db good.db", 2, "Missing argument 'FILE'"),
        ("db merge --db good.db", 2, "Missing argument 'OTHERS"),
        ("workloads a b", 2, "unexpected extra argument (b)"),
        ("doctor extra", 2, "unexpected extra argument (extra)"),
        ("worker", 2, "Missing argument 'ADDRESS'"),
        ("tune matmul:M=8,N=8,K=8 --runner tapir://host", 2, "no such runner; there are local, dask"),
    ],
    "specs": [
        ("tune ''", 2, "an empty workload; write e.g. matmul:M=512"),
        ("tune ' '", 2, "an empty workload"),
        ("tune :M=4", 2, "no workload is called ''"),
        ("tune matmull", 2, "no workload is called 'matmull'; did you mean matmul"),
        ("tune matmul,M=4", 2, "did you mean matmul"),
        ("bench nosuch", 2, "no workload is called 'nosuch'"),
        ("show nosuch", 2, "`tilewright workloads` lists all"),
        ("db best nosuch --db good.db", 2, "no workload is called 'nosuch'"),
        ("tune matmul:M", 2, "'M' is not name=value"),
        ("tune matmul:M=", 2, "'M=' is not name=value"),
        ("tune matmul:=3", 2, "'=3' is not name=value"),
        ("tune matmul:M=x", 2, "matmul: M=x: it is not a whole number"),
        ("tune matmul:M=1.5", 2, "M=1.5: it is not a whole number"),
        ("tune matmul:M=1e3", 2, "M=1e3: it is not a whole number"),
        ("tune matmul:M=0", 2, "M=0: a dimension is at least 1"),
        ("tune matmul:M=-4", 2, "M=-4: a dimension is at least 1"),
        ("tune matmul:M=4,M=5", 2, "M is given twice"),
        ("tune matmul:Q=4", 2, "matmul has no parameter 'Q' (it takes: M, N, K"),
        ("tune matmul:m=4", 2, "matmul has no parameter 'm'; did you mean M?"),
        ("tune matmul:M=99999999999999999999", 2, "does not fit in 64 bits"),
        ("tune matmul:M=100000000,N=100000000", 2, "more than memory holds"),
        ("tune matmul:dtype=float33", 2, "dtype=float33"),
        ("tune conv2d:layout=NCWH", 2, "layout=NCWH: it is one of NCHW, NHWC"),
        ("tune matmul --arg M", 2, "'M' is not name=value"),
        ("tune matmul --arg Q=4", 2, "no parameter 'Q'"),
        ("tune matmul --arg M=x", 2, "M=x: it is not a whole number"),
        ("workloads conv", 2, "did you mean conv2d"),
        ("workloads matmul:M=3", 2, "is a spec; name the workload alone"),
    ],
    "files of one's own": [
        ("tune nosuch.py:f", 2, "there is no file nosuch.py"),
        ("tune empty.py", 2, "empty.py has no functions; a workload is a function that returns te tensors"),
        ("tune empty.py:f", 2, "empty.py has no function 'f'"),
        ("tune syntax.py:f", 2, "syntax.py cannot be run: SyntaxError"),
        ("tune imports.py:f", 2, "No module named 'nosuchmodule'"),
        ("tune exits.py:f", 2, "exits.py cannot be run: SystemExit: 3"),
        ("tune exits_later.py:f", 2, "exits_later.py:f: SystemExit: 3 (exits_later.py, line 3)"),
        ("tune raises.py:f", 2, "raises.py:f: KeyError: 'oops' (raises.py, line 3)"),
        ("tune kernels.py:sevn", 2, "kernels.py has no function 'sevn'; did you mean seven"),
        ("tune kernels.py:seven", 2, "seven must return a list of te tensors"),
        ("tune kernels.py:nothing", 2, "nothing must return a list of te tensors"),
        ("show kernels.py:nothing", 2, "nothing must return a list of te tensors"),
        ("tune kernels.py:number", 2, "number in kernels.py is not a function"),
        ("tune kernels.py:needs", 2, "needs: n has no default; write n="),
        ("tune kernels.py:needs:n=4,k=3", 2, "needs has no parameter 'k' (it takes: n)"),
        ("tune kernels.py:beyond", 2, "reads A[i, j] of shape (8, 4), dimension 0: the index is 8 at i = 8"),
        (
            "tune kernels.py:symbolic",
            1,
            "the symbolic shape (n); give examples to measure",
        ),
        ("tune folder", 2, "no workload is called 'folder'"),
    ],
    "numbers": [
        ("tune matmul --trials 0", 2, "0 is not in the range"),
        ("tune matmul --trials -3", 2, "-3 is not in the range"),
        ("tune matmul --trials x", 2, "'x' is not a valid integer."),
        ("tune matmul --trials 1.5", 2, "'1.5' is not a valid integer."),
        ("tune matmul --seed x", 2, "'x' is not a valid integer."),
        ("tune matmul --seed -1", 2, "-1 is not in the range"),
        ("tune matmul --time-limit x", 2, "'x' is not a number of seconds above zero"),
        ("tune matmul --time-limit ''", 2, "'' is not a number of seconds above zero"),
        ("tune matmul --time-limit -1", 2, "'-1' is not a number of seconds above zero"),
        ("tune matmul --time-limit 0", 2, "'0' is not a number of seconds above zero"),
        ("tune matmul --time-limit nan", 2, "'nan' is not a number of seconds above zero"),
        ("tune matmul --until 90", 2, "'90' is not a share, a number above 0 and at most 1; 90 % is 0.9"),
        ("tune matmul --until 0", 2, "'0' is not a share"),
        ("tune matmul --until nan", 2, "'nan' is not a share"),
        ("tune matmul --until x", 2, "'x' is not a share"),
        ("tune matmul --time-limit inf", 2, "'inf' is not a number of seconds above zero"),
        ("tune matmul --num-cores 0", 2, "0 is not in the range"),
        ("tune matmul --num-cores two", 2, "'two' is not a valid integer."),
        ("tune matmul --num-cores 100000", 2, "100000 is not in the range"),
        ("tune matmul --num-cores 4096", 2, "threads are measured"),
        ("bench matmul --num-cores 4096", 2, "threads are measured"),
        ("bench matmul --rounds 0", 2, "0 is not in the range"),
        ("doctor --num-cores 0", 2, "0 is not in the range"),
        ("doctor --num-cores 4096", 2, "threads are measured"),
        ("db show x --db good.db", 2, "'x' is not a valid integer."),
        ("db show 7 --db good.db", 1, "good.db has no record 7"),
        ("db prune --keep 0 --db good.db", 2, "0 is not in the range"),
        ("db prune --keep x --db good.db", 2, "'x' is not a valid integer."),
        ("db prune --before yesterday --db good.db", 2, "'yesterday' is not a date such as 2026-01-31"),
        ("db prune --before 31.01.2026 --db good.db", 2, "'31.01.2026' is not a date"),
        ("db prune --before 2026-02-30 --db good.db", 2, "'2026-02-30' is not a date"),
    ],
    "targets": [
        ("tune matmul --target ''", 2, "--target is empty"),
        ("bench matmul --target nativ", 2, "did you mean native?"),
        ("tune matmul --target vulkan", 2, "target 'vulkan': no such kind"),
        ("doctor --target vulkan", 2, "target 'vulkan': no such kind"),
        ("tune matmul --target 'llvm -mcpu=pentium9'", 2, "-mcpu=pentium9: not a CPU"),
        ("tune matmul --target 'llvm -mattr=+avx99'", 2, "-mattr=+avx99: not a feature"),
        ("tune matmul --target 'llvm -mtriple=x'", 2, "-mtriple=x: no machine code is generated for x"),
        ("tune matmul --target 'llvm -num-cores=x'", 2, "a whole number of at least 1 is needed"),
        ("tune matmul --target 'llvm -frob=3'", 2, "no option -frob; there are -blas, -libs, -mattr"),
        ("build matmul -o x.c --target 'llvm -openmp'", 2, "-openmp is for targets of kind c"),
        ("build matmul -o x.c --target 'c -opnmp'", 2, "did you mean -openmp?"),
        ("build matmul -o x.c --target 'llvm -mcpu'", 2, "option -mcpu has no value; write -mcpu=NAME"),
        ("build matmul -o x.o --target 'llvm -vector-width=100'", 2, "-vector-width=100: this target has"),
        ("build matmul -o x.o --target 'native -winograd=3'", 2, "-winograd=3: there are 0, 2, 4"),
        (f"tune {SMALL} --target {ARM}", 2, "it has no aarch64 processor"),
        (f"bench {SMALL} --target {ARM}", 2, "it has no aarch64 processor"),
        ("doctor --target gpu-sim", 2, "the limits of GPUs are not measured"),
        (f"doctor --target {ARM}", 2, "it has no aarch64 processor"),
        (f"TILEWRIGHT_TARGET=nativ bench {SMALL}", 2, "did you mean native?"),
        ("TILEWRIGHT_LOG=loud workloads", 2, "TILEWRIGHT_LOG: log is debug, info, warning or error, not 'loud'"),
        (f"TILEWRIGHT_NUM_THREADS=x bench {SMALL}", 2, "TILEWRIGHT_NUM_THREADS=x: a whole number"),
        (f"TILEWRIGHT_NUM_THREADS=0 bench {SMALL}", 2, "TILEWRIGHT_NUM_THREADS=0: a whole number"),
    ],
    "databases": [
        (f"tune {SMALL} --db ''", 2, "--db is empty"),
        (f"tune {SMALL} --db folder", 1, "cannot read folder: Is a directory"),
        (f"tune {SMALL} --db text.db", 1, "text.db is not a SQLite database"),
        (f"tune {SMALL} --db foreign.db", 1, "not one of Tilewright's; nothing was changed"),
        (f"tune {SMALL} --db nofolder/t.db", 1, "cannot create nofolder/t.db: there is no folder"),
        (f"bench {SMALL} --db text.db", 1, "text.db is not a SQLite database"),
        (f"bench {SMALL} --db nowhere.db", 2, "there is no database nowhere.db"),
        (f"bench {SMALL} --require-tuned --db good.db", 3, f"tilewright tune {SMALL} --db good.db"),
        (f"bench {SMALL} --require-tuned", 2, "no database"),
        ("db ls", 2, "no database: there is no tuning.db here"),
        ("db ls --db nowhere.db", 2, "there is no database nowhere.db"),
        ("TILEWRIGHT_DB=nowhere.db db ls", 2, "there is no database nowhere.db"),
        ("db ls --db zero.db", 1, "zero.db is empty: no database to read"),
        ("db ls --db text.db", 1, "text.db is not a SQLite database"),
        ("db ls --db folder", 1, "cannot read folder"),
        ("db ls --db foreign.db", 1, "not one of Tilewright's"),
        ("db failures --db nowhere.db", 2, "there is no database nowhere.db"),
        ("db check --db text.db", 1, "text.db is not a SQLite database"),
        (f"db best {SMALL} --db good.db", 3, "good.db has no record of matmul:M=7"),
        ("db import nosuch.jsonl --db good.db", 1, "cannot read nosuch.jsonl"),
        ("db import bad.jsonl --db good.db", 1, "bad.jsonl, line 1: "),
        ("db import other.jsonl --db good.db", 1, "does not say 'tilewright-records'"),
        ("db import folder --db good.db", 1, "cannot read folder"),
        ("db merge nosuch.db --db good.db", 2, "there is no database nosuch.db"),
        ("db merge text.db --db good.db", 1, "text.db is not a SQLite database"),
        ("db merge good.db --db good.db", 1, "cannot be merged into itself"),
        ("report --db nowhere.db", 2, "there is no database nowhere.db"),
        ("report --db text.db", 1, "text.db is not a SQLite database"),
    ],
    "files to write": [
        ("build matmul -o x", 2, "the suffix says what to write"),
        ("build matmul -o x.c -g", 2, "-g: C has no line tables"),
        ("show matmul --html nowhere/x.html", 2, "there is no folder"),
        ("build matmul -o x.exe", 2, "the suffix says what to write"),
        ("build matmul -o nowhere/x.so", 2, "there is no folder"),
        ("build matmul -o folder.c", 2, "folder.c is a folder; name a file"),
        (f"build {SMALL} -o /proc/x.ll", 1, "/proc/x.ll: "),
        ("build matmul -o x.c --name main", 2, "--name: 'main'"),
        ("build matmul -o x.c --name ''", 2, "--name: '' is not a C identifier"),
        ("build matmul -o x.c --name 1x", 2, "--name: '1x' is not a C identifier"),
        ("build matmul -o x.c --name 'a b'", 2, "--name: 'a b' is not a C identifier"),
        ("build matmul -o x.c --name double", 2, "--name: 'double' is a word of C"),
        ("build matmul -o x.c --name tw_alloc", 2, "--name: 'tw_alloc' begins with tw_"),
        ("tune nosuch.onnx --db t.db", 1, "nosuch.onnx: there is no such file"),
        ("bench nosuch.onnx", 1, "nosuch.onnx: there is no such file"),
        ("build nosuch.onnx -o m.so", 1, "nosuch.onnx: there is no such file"),
        ("build nosuch.onnx -o m.o", 2, "a model becomes a shared or static library"),
        ("show nosuch.pt2 --stage graph", 1, "nosuch.pt2: there is no such file"),
        ("show matmul --stage assembler", 2, "did you mean asm?"),
        ("bench softmax:M=4 N=5", 2, "separated by commas: softmax:M=4,N=5"),
        ("show matmul --target nvidia/nvidia-b100", 2, "did you mean nvidia/nvidia-v100"),
        ("show matmul --target", 2, "requires an argument"),
        ("show matmul --stage object", 2, "'object' is none of its words"),
        ("show matmul --stage graph", 2, "matmul has the stages te, tir, scheduled"),
        ("show matmul --stage tir --mca", 2, "--mca is about the machine code"),
        ("report --db good.db -o folder", 2, "folder is a folder; name a file"),
        ("show matmul --html x.html --kernel conv", 2, "--kernel is for --html pages of models"),
        ("report --db good.db -o nofolder/r.html", 2, "there is no folder"),
        ("report --db good.db -o ''", 2, "the name of the file to write is empty"),
        ("db export folder --db good.db", 2, "folder is a folder"),
        ("db export nofolder/x.jsonl --db good.db", 2, "there is no folder"),
    ],
}


def prepare(folder: Path) -> None:
    """Write the files that the inputs name."""
    from tilewright.tuning_db import Database

    for name, text in FILES.items():
        (folder / name).write_text(text)
    for name in ("folder", "folder.c"):
        (folder / name).mkdir()
    with sqlite3.connect(folder / "foreign.db") as other:
        other.execute("CREATE TABLE t (a)")
    Database(folder / "good.db").close()


def words_of(line: str) -> tuple[dict[str, str], list[str]]:
    """Returns the environment that a line begins with, and its words."""
    words = shlex.split(line)
    count = sum(word.startswith("TILEWRIGHT_") for word in words)
    return dict(word.split("=", 1) for word in words[:count]), words[count:]


def problem_of(line: str, code: int, words: str, found: int, out: str, err: str) -> str:
    """Returns what is wrong with the outcome of an input; empty when nothing is."""
    if (found, out) != (code, ""):
        return f"{line}: exit code {found}, not {code}; stdout {out[:80]!r}; stderr {err[:200]!r}"
    if words not in err or "Traceback" in err or "bug in" in err:
        return f"{line}: stderr has no {words!r}: {err[:300]!r}"
    return ""


def main() -> None:
    """Run every input in a new folder and print the outcome."""
    import contextlib
    import io
    import tempfile

    from tilewright.cli.main import main as command

    failed = count = 0
    for group, inputs in INPUTS.items():
        print(f"# {group}")
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            prepare(Path(folder))
            for line, code, said in inputs:
                environment, words = words_of(line)
                os.environ.update(environment)
                out, err = io.StringIO(), io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    found = command(words)
                for name in environment:
                    del os.environ[name]
                wrong = problem_of(line, code, said, found, out.getvalue(), err.getvalue())
                failed, count = failed + bool(wrong), count + 1
                print(f"{'WRONG ' if wrong else ''}{found} {line}\n    {err.getvalue().strip()}")
            os.chdir("/")
    print(f"{count} inputs, {failed} wrong")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
