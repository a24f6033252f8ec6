"""Every module can be imported where Python has no modules that only POSIX systems have."""

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys

for name in ("grp", "pty", "pwd", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
import tilewright

OPTIONAL = {"jax", "onnx", "torch", "xdsl", "z3"}
outside = {"tests", "benchmarks", "examples", "docs"}
for module in pkgutil.walk_packages(tilewright.__path__, "tilewright."):
    if module.name.split(".")[1] in outside or module.name.endswith(("__main__", "setup")):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in OPTIONAL:
            raise
print("done")
"""


def test_imports_without_posix_modules():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.endswith("done\n"), done.stderr[-2000:]
