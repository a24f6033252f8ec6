"""Machine code kept on disk: found again by content, never wrong, never larger than allowed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from tilewright.codegen import object_cache
from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.llvm import jit
from tilewright.codegen.machine.target import Target
from tilewright.codegen.object_cache import cache_directory, cache_state, find_object, keep_object, object_key
from tilewright.tir.parser import parse

DOUBLE = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = A[i] * T.float32(2)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_CACHE", raising=False)
    monkeypatch.delenv("TILEWRIGHT_CACHE_MB", raising=False)
    object_cache._written.clear()
    return cache_directory() / "objects"


@pytest.fixture
def builds(monkeypatch):
    """How often LLVM was asked."""
    made = []
    init = jit._Build.__init__

    def counted(self, *args):
        made.append(1)
        init(self, *args)

    monkeypatch.setattr(jit._Build, "__init__", counted)
    return made


def files(folder):
    return sorted(p.name for p in folder.iterdir())


def call(module):
    a, b = np.arange(4, dtype="float32"), np.full(4, np.nan, "float32")
    module(a, b)
    assert b.tolist() == [0, 2, 4, 6]


def test_the_same_program_is_compiled_once(folder, builds):
    first = compile_function(parse(DOUBLE), Target("native"), "kernel")
    second = compile_function(parse(DOUBLE), Target("native"), "kernel")
    assert len(builds) == 1 and first.code.object == second.code.object
    call(second)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert second.get_source("asm") and "fmul" in second.get_source("ll")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"opt_level": 1},
        {"loop_unroll": True},
        {"target": Target("llvm -mcpu=x86-64-v2")},
        {"target": Target("llvm -mcpu=x86-64-v3 -mattr=-fma")},
    ],
)
def test_whatever_matters_is_part_of_the_name(folder, builds, change):
    arguments = {"target": Target("llvm -mcpu=x86-64-v3"), "name": "kernel"}
    compile_function(parse(DOUBLE), **arguments)
    compile_function(parse(DOUBLE), **(arguments | change))
    assert len(builds) == 2 and len(files(folder)) == 2


def test_versions_are_part_of_the_name(folder, builds, monkeypatch):
    compile_function(parse(DOUBLE), "native", "kernel")
    monkeypatch.setattr(jit, "CODEGEN_VERSION", -1)
    compile_function(parse(DOUBLE), "native", "kernel")
    monkeypatch.setattr(jit, "llvm_version", lambda: "0.0.0")
    compile_function(parse(DOUBLE), "native", "kernel")
    assert len(builds) == 3


def test_keys_tell_texts_apart():
    assert len({object_key(t) for t in (["a", "b"], ["ab"], ["ab", ""], ["", "ab"], ["b", "a"])}) == 5


def test_off(folder, builds, monkeypatch):
    compile_function(parse(DOUBLE), "native", "kernel", cache=False)
    assert not folder.exists()
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    for _ in range(2):
        compile_function(parse(DOUBLE), "native", "kernel")
    assert len(builds) == 3 and not folder.exists()
    assert cache_state().folder is None and cache_state().files == 0


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"tilewright object 1\n" + bytes(40)])
def test_damaged_entries_do_not_count(folder, builds, damage):
    compile_function(parse(DOUBLE), "native", "kernel")
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage)
    call(compile_function(parse(DOUBLE), "native", "kernel", cache=True))
    assert entry.read_bytes() == whole
    entry.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # one bit
    assert find_object(entry.name) is None and not entry.exists()


def test_the_unused_go_first(folder, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_MB", "0.01")  # 10485 bytes
    for n in range(8):
        keep_object(f"{n:064}", bytes(1000))
        os.utime(folder / f"{n:064}", (1000 + n, 1000 + n))
    assert find_object(f"{0:064}") == bytes(1000)  # used: it is now the youngest
    for n in range(8, 12):
        keep_object(f"{n:064}", bytes(1000))
    left = {int(name) for name in files(folder)}
    assert {0, 8, 9, 10, 11} <= left and 1 not in left and 2 not in left
    assert cache_state().bytes <= cache_state().limit_bytes == 10485
    keep_object("f" * 64, bytes(9000))  # an entry that would push out all others
    assert {int(name) for name in files(folder)} == left


def test_a_limit_of_nothing_is_off(folder, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_MB", "0")
    keep_object("a" * 64, b"x")
    assert find_object("a" * 64) is None and cache_state().folder is None


def test_a_folder_that_others_may_write_is_not_used(folder, builds):
    folder.mkdir()
    folder.chmod(0o777)
    for _ in range(2):
        compile_function(parse(DOUBLE), "native", "kernel")
    assert len(builds) == 2 and not files(folder)


def test_a_lost_folder_costs_nothing_else(folder, builds):
    compile_function(parse(DOUBLE), "native", "kernel")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    call(compile_function(parse(DOUBLE), "native", "kernel"))
    assert len(builds) == 2 and len(files(folder)) == 1


def test_threads_that_write_the_same(folder):
    content = os.urandom(200_000)
    seen = []

    def work():
        for _ in range(20):
            keep_object("a" * 64, content)
            seen.append(find_object("a" * 64) == content)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(seen) and files(folder) == ["a" * 64]


def test_processes_that_write_and_sweep(folder):
    program = (
        "from tilewright.codegen.object_cache import find_object, keep_object\n"
        "for n in range(60):\n"
        "    k = f'{n % 10:064}'\n"
        "    keep_object(k, bytes([n % 10]) * 20000)\n"
        "    found = find_object(k)\n"
        "    assert found is None or found == bytes([n % 10]) * 20000\n"
    )
    env = os.environ | {"TILEWRIGHT_CACHE_MB": "0.1"}
    running = [subprocess.Popen([sys.executable, "-c", program], env=env, stderr=subprocess.PIPE) for _ in range(3)]
    for process in running:
        assert process.communicate(timeout=120)[1] == b"" and process.returncode == 0
    assert cache_state().files <= 5 and not [n for n in files(folder) if n.startswith("draft")]


def test_calling_leaves_nothing_of_this_process(folder):
    """The glue is code without addresses, which the next process finds as it is."""
    from tilewright.codegen.runtime.native_glue import _load

    _load.cache_clear()
    call(compile_function(parse(DOUBLE), "native", "kernel"))
    before = files(folder)
    _load.cache_clear()
    call(compile_function(parse(DOUBLE), "native", "kernel"))
    assert files(folder) == before
