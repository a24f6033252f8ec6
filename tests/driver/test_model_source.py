"""Models as one C file: strict C99 on the host, C for a microcontroller with static memory, and what is refused."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

import tilewright as tw
from tilewright.driver import BuildError
from tilewright.graph import Builder, evaluate

STRICT = [
    "-std=c99",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Werror",
    "-fsanitize=undefined",
    "-fno-sanitize-recover",
]
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def whole(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def network(op="relu"):
    """Two layers with different types between them; the first result is an output as well."""
    b = Builder("net")
    x = b.input("x", (7, 16))
    first = b.op(op, b.op("dense", x, b.constant(whole(0, 17, 16), "w")))
    small = b.op("cast", b.op("clip", first, low=-100.0, high=100.0), dtype="int8")
    total = b.op("dense", small, b.constant(whole(1, 13, 17).astype("int8"), "v"), out_dtype="int32")
    return b.graph([total, first])


def loaded(folder, flags=()):
    command = ["gcc", *STRICT, *flags, "-shared", "-fPIC", "-o", "net.so", "net.c", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(folder / "net.so")).net


def passed(*arrays):
    return [a.ctypes.data_as(ctypes.c_void_p) for a in arrays]


@needs_gcc
@pytest.mark.parametrize("target", ["c", "c -mcpu=cortex-m7", "c -openmp -num-cores=2"])
def test_a_model_is_one_file(tmp_path, target):
    model = tw.build(network(), target)
    files = model.export(tmp_path / "net.c")
    assert [f.name for f in files] == ["net.c", "net.h", *([] if "cortex" in target else ["net.hpp"])]
    net = loaded(tmp_path, ["-fopenmp"] if "openmp" in target else [])
    x, total, first = whole(2, 7, 16), np.zeros((7, 13), "int32"), np.zeros((7, 17), "float32")
    memory = [] if "cortex" in target else [None]
    assert net(*passed(x, total, first), *memory) == 0
    for got, want in zip((total, first), evaluate(network(), x), strict=True):
        np.testing.assert_array_equal(got, want)


@needs_gcc
def test_the_caller_may_give_the_memory(tmp_path):
    model = tw.build(network(), "c")
    model.export(tmp_path / "net.c")
    size = int(re.search(r"NET_WORKSPACE_BYTES (\d+)", (tmp_path / "net.h").read_text())[1])
    assert size == max(model.workspace_bytes, 1)
    x, total, first = whole(2, 7, 16), np.zeros((7, 13), "int32"), np.zeros((7, 17), "float32")
    workspace = np.zeros(size, "uint8")
    assert loaded(tmp_path)(*passed(x, total, first, workspace)) == 0
    np.testing.assert_array_equal(total, evaluate(network(), x)[0])


def test_a_microcontroller_states_its_memory(tmp_path):
    model = tw.build(network(), "c -mcpu=cortex-m7")
    model.export(tmp_path / "net.c", "twice")
    text, header = (tmp_path / "net.c").read_text(), (tmp_path / "net.h").read_text()
    assert "workspace" not in re.search(r"int32_t twice\((.*)\);", header)[1]
    stated = int(re.search(r"TWICE_WORKSPACE_BYTES (\d+)", header)[1])
    sizes = {"int8_t": 1, "int32_t": 4, "float": 4, "uint8_t": 1}
    arrays = re.findall(r"static (\w+) tw_workspace_\w+\[(\d+)\]", text)
    own = int(re.search(r"uint8_t bytes\[(\d+)\]; int64_t aligned; } tw_twice_workspace", text)[1])
    assert stated == own + sum(sizes[kind] * int(n) for kind, n in arrays) == model.workspace_bytes
    assert "malloc" not in text and "static const union" in text
    assert re.findall(r"^int32_t (\w+)\(", text, re.MULTILINE) == ["twice", "twice"]  # nothing else is seen outside


def test_what_a_microcontroller_cannot_run_names_kernel_and_operation():
    b = Builder("net")
    x = b.input("x", (7,), "float64")
    with pytest.raises(BuildError, match=r"net cannot be built for c .*: the kernel sqrt: tir.sqrt of float64 is"):
        tw.build(b.graph([b.op("sqrt", x)]), "c -mcpu=cortex-m7")


def test_other_files_are_refused(tmp_path):
    model = tw.build(network(), "c -mcpu=cortex-m7")
    with pytest.raises(tw.codegen.ExportError, match="it becomes a C file"):
        model.export(tmp_path / "net.so")
    with pytest.raises(ValueError, match="has its constants inside"):
        model.export(tmp_path / "net.c", constants="beside")
    with pytest.raises(tw.codegen.JITError, match="which this machine cannot run .it lacks thumbv7em processor"):
        model(whole(2, 7, 16))
