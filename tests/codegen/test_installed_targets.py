"""A package adds a target by an entry point, which is called when somebody asks for what is not known yet."""

import subprocess
import sys

import pytest

PACKAGE = """
from tilewright.codegen import Backend, TargetKind, compile, register_backend, register_target


def shout(functions):
    return "\\n".join(one.name.upper() for one in functions) + "\\n"


def targets():
    register_backend(Backend("shout", ".shout", shout))
    register_target(TargetKind("shouting", lambda functions, target: compile(dict(functions), "native")))


def broken():
    raise RuntimeError("no licence")
"""
PROGRAM = """
import sys, tilewright as tw
from tilewright.codegen import Target, TargetError
func = tw.tir.parse('''
@T.prim_func
def hello(A: T.Buffer((4,), "float32")):
    for i in range(4):
        A[i] = T.float32(1)
''')
module = tw.codegen.compile(func, "native")
print(module.get_source("shout").strip(), Target("shouting").kind, *[p.name for p in module.export(sys.argv[1] + "/k.shout")])
try:
    Target("whispering")
except TargetError as error:
    print(error)
"""


def test_an_installed_package_adds_a_target(tmp_path):
    (tmp_path / "shouting.py").write_text(PACKAGE)
    info = tmp_path / "shouting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tilewright.targets]\nshouting = shouting:targets\nbad = shouting:broken\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "HELLO shouting k.shout", done.stderr
    assert "target 'whispering': no such kind" in done.stdout and "shouting" in done.stdout.splitlines()[1]
    assert "bad = shouting:broken of tilewright.targets failed: no licence" in done.stderr
    assert (tmp_path / "k.shout").read_text() == "HELLO\n"


def test_unknown_words_are_errors_as_before():
    from tilewright.codegen import Target, TargetError

    with pytest.raises(TargetError, match="no such kind; did you mean native"):
        Target("natve")
