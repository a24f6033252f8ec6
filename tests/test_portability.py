"""Every module can be imported where Python lacks what only POSIX systems have."""

import subprocess
import sys

PROGRAM = """
import importlib, os, pkgutil, signal, sys, types

OPTIONAL = {"jax", "onnx", "torch", "xdsl", "z3"}
OUTSIDE = {"tests", "benchmarks", "examples", "docs"}


def import_all():
    import tilewright

    for module in pkgutil.walk_packages(tilewright.__path__, "tilewright."):
        if module.name.split(".")[1] in OUTSIDE or module.name.endswith(("__main__", "setup")):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name.partition(".")[0] not in OPTIONAL:
                raise


import_all()  # other packages are imported on the real system
for name in [name for name in sys.modules if name.partition(".")[0] == "tilewright"]:
    del sys.modules[name]
for name in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
for name in ("fork", "getuid", "geteuid", "getloadavg", "sched_getaffinity", "sched_setaffinity", "uname", "setsid"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGALRM", "SIGHUP", "SIGUSR1", "pthread_sigmask"):
    if hasattr(signal, name):
        delattr(signal, name)
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
sys.platform = "win32"
import_all()
assert sys.modules["tilewright.tuning_db.connection"].msvcrt is sys.modules["msvcrt"]
print("done")
"""


def test_imports_as_on_windows():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.endswith("done\n"), done.stderr[-2000:]
