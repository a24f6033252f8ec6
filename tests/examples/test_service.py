"""The service of examples/service builds with CMake, or else with the compiler alone, and every result of its threads is right."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SERVICE = Path(__file__).parents[2] / "examples" / "service"
CXX = shutil.which("c++") or shutil.which("g++")
CMAKE = shutil.which("cmake") or shutil.which("cmake", path=str(Path(sys.executable).parent))

pytestmark = pytest.mark.skipif(sys.platform != "linux" or CXX is None, reason="needs a C++ compiler on Linux")


def run(*command, folder=None):
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("way", ["compiler", "cmake"])
def test_threads_call_one_model(tmp_path, way):
    run(sys.executable, SERVICE / "model.py", tmp_path)
    if way == "compiler":
        strict = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
        command = [
            CXX,
            "-std=c++17",
            "-O2",
            *strict,
            SERVICE / "service.cpp",
            f"-I{tmp_path}",
            tmp_path / "libscores.so",
        ]
        run(*command, "-o", tmp_path / "service", "-pthread", f"-Wl,-rpath,{tmp_path}")
        service = tmp_path / "service"
    else:
        if CMAKE is None or not (shutil.which("make") or shutil.which("ninja")):
            pytest.skip("needs cmake and make")
        run(CMAKE, "-S", SERVICE, "-B", tmp_path / "build", f"-Dscores_DIR={tmp_path}")
        run(CMAKE, "--build", tmp_path / "build")
        service = tmp_path / "build" / "service"
    told = run(service, tmp_path, 4, 300, 5)
    figures = re.fullmatch(
        r"4 threads, 1200 calls of 5 rows, 0 wrong: (\d+) calls/s, p50 ([\d.]+) us, p99 ([\d.]+) us, worst ([\d.]+) us\n",
        told,
    )
    assert figures, told
    _, half, most, worst = map(float, figures.groups())
    assert 0 < half <= most <= worst
