"""Exported programs of PyTorch on the command line."""

from __future__ import annotations

import json
import shutil

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")


@pytest.fixture
def program(tmp_path):
    rows = torch.export.Dim("rows", max=64)
    made = torch.export.export(torch.nn.Linear(8, 4).eval(), (torch.randn(3, 8),), dynamic_shapes=({0: rows},))
    torch.export.save(made, tmp_path / "m.pt2")


def test_a_program_is_shown_built_and_timed(run, program):
    shape = ["--arg", "input=3,8", "--num-cores", "1"]
    shown = run("show", "m.pt2", "--stage", "graph", *shape)
    assert shown.code == 0 and "input: float32[3, 8]" in shown.out, shown.err
    if shutil.which("cc") or shutil.which("ld"):
        built = run("build", "m.pt2", *shape, "-o", "m.so", "--json")
        assert built.code == 0 and json.loads(built.out)["origin"] == "1 kernels (1 default)", built.err
    timed = run("bench", "m.pt2", *shape)
    assert timed.code == 0 and "1 kernels (1 default)" in timed.out, timed.err


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ("input=3,9", "the input input has the shape (s"),
        ("wrong=3,8", "names 'wrong', which is no input"),
    ],
)
def test_a_shape_that_does_not_fit_is_explained(run, program, arg, message):
    done = run("show", "m.pt2", "--stage", "graph", "--arg", arg)
    assert done.code == 1 and message in done.err and "bug" not in done.err


def test_a_damaged_file(run, tmp_path):
    (tmp_path / "m.pt2").write_bytes(b"no program")
    done = run("build", "m.pt2", "-o", "m.so")
    assert done.code == 1 and "is not a program that torch.export.save wrote" in done.err and "bug" not in done.err
