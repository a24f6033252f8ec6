"""The commands of docs/guides/model-to-c.md run one after the other, and the C program prints what the model computes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "model-to-c.md"


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler")
@pytest.mark.parametrize(("package", "file"), [("onnx", "digits.onnx"), ("torch", "digits.pt2")])
def test_the_page_runs_from_model_to_program(package, file, tmp_path, monkeypatch):
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "tilewright").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tilewright "$@"\n')
    (commands / "tilewright").chmod(0o755)
    home = Path(tw.__file__).parents[1]
    environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(home)}
    printed = ""
    for language, text in re.findall(r"^```(python|c|sh)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        if language == "python" and f"import {package}" not in text:
            continue  # the network written in another way
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), {})
        elif language == "c":
            Path("main.c").write_text(text)
        else:
            quick = text.replace("--time-limit 60", "--trials 2").replace("--rounds 3", "--rounds 1")
            quick = quick.replace("digits.onnx", file)
            done = subprocess.run(["sh", "-ec", quick], env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            printed = done.stdout
    assert (
        f"int32_t digits(const float* image, float* {'scores' if package == 'onnx' else ''}"
        in Path("digits.h").read_text()
    )
    image = np.tile(np.arange(28, dtype=np.float32) / 28, (28, 1)).reshape(1, 1, 28, 28)
    want = tw.build(file, "native -num-cores=1")(image)
    np.testing.assert_allclose([float(line) for line in printed.split()], want[0], atol=1e-4)
