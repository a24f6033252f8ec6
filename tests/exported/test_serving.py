"""Exported models in processes that run for long: memory, threads, forks, several libraries, mapped weights."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tilewright as tw

from .model_pairs import TARGET, built, expected, whole

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang", "ld"))), reason="needs a linker"),
]

HEAD = """
import ctypes, os, sys, threading, time
import numpy as np
import tilewright as tw
from tilewright.exported import load_module

def status(word):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(word + ":"))

def whole(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)

def expected(x, seed, columns=17):
    return np.maximum(x @ whole(seed, columns, 16).T, 0)
"""


def in_process(folder, program):
    """Runs a program in a process of its own, which has loaded no compiler; returns what it prints."""
    text = HEAD + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """Two models of n rows, whose products run on two threads, and one whose weights lie beside it."""
    folder = tmp_path_factory.mktemp("serving")
    built("a", 0, symbolic=True, columns=17).export(folder / "a.so")
    built("b", 1, symbolic=True, columns=13).export(folder / "b.so")
    built("c", 2, symbolic=True, columns=19).export(folder / "c.so", constants="beside")
    x = tw.te.placeholder((64, 4096), name="x")
    sch = tw.Schedule(tw.te.create_prim_func([x, tw.te.compute(x.shape, lambda i, j: x[i, j] + 1.0, name="y")]))
    sch.parallel(sch.get_loops("y")[0])
    for name in ("first", "second"):
        tw.build(sch, TARGET, name=name).export(folder / f"{name}.so")
    return folder


def test_memory_is_flat_over_calls_of_random_sizes(libraries):
    grown = in_process(libraries, """
        nets = [load_module(name) for name in ("./a.so", "./b.so")]
        rng = np.random.default_rng(0)
        x = whole(3, 40, 16)
        def calls(number):
            for n in rng.integers(1, 41, number):
                for net in nets:
                    net(x[:n])
        calls(500)
        before = status("VmRSS")
        calls(5000)
        print(status("VmRSS") - before)
        np.testing.assert_array_equal(nets[0](x), expected(x, 0))
    """)  # fmt: skip
    assert int(grown) < 1024  # KiB; a leak of 128 bytes a call would be more


def test_one_pool_for_the_libraries_of_a_process(libraries):
    """Two libraries, loaded so that neither sees the other's symbols: one worker thread runs the loops of both."""
    threads = in_process(libraries, """
        x = np.zeros((64, 4096), np.float32)
        counts = [status("Threads")]
        for name in ("first", "second"):
            assert (load_module(f"./{name}.so")(x) == 1).all()
            counts.append(status("Threads"))
        print(*[n - counts[0] for n in counts])
    """)  # fmt: skip
    assert threads.split() == ["0", "1", "1"]


def test_idle_threads_use_no_processor(libraries):
    used = in_process(libraries, """
        load_module("./first.so")(np.zeros((64, 4096), np.float32))
        assert status("Threads") >= 2
        time.sleep(0.3)
        before = time.process_time()
        time.sleep(1.0)
        print(time.process_time() - before)
    """)  # fmt: skip
    assert float(used) < 0.02


def test_fork_after_use_and_while_used(libraries):
    """Children have a pool of their own, also of a process that a library has used on several threads."""
    told = in_process(libraries, """
        nets = [load_module(f"./{name}.so") for name in ("first", "second")]
        x = np.zeros((64, 4096), np.float32)
        right = lambda: all([(net(x) == 1).all() for net in nets])
        assert right()
        stop = threading.Event()
        busy = threading.Thread(target=lambda: [right() for _ in iter(stop.is_set, True)])
        busy.start()
        codes = []
        for _ in range(5):
            child = os.fork()
            if child == 0:
                fine = right() and right()
                grandchild = os.fork()
                if grandchild == 0:
                    os._exit(0 if right() else 1)
                os._exit(os.waitpid(grandchild, 0)[1] or (0 if fine else 2))
            codes.append(os.waitpid(child, 0)[1])
        stop.set()
        busy.join()
        assert right()
        print(codes)
    """)  # fmt: skip
    assert told.strip() == "[0, 0, 0, 0, 0]"


def test_several_models_and_threads_at_once(libraries):
    told = in_process(libraries, """
        models = [(load_module(f"./{name}.so"), seed, columns) for name, seed, columns in (("a", 0, 17), ("b", 1, 13), ("c", 2, 19))]
        wrong = []
        def serve(k):
            rng = np.random.default_rng(k)
            for _ in range(200):
                net, seed, columns = models[rng.integers(3)]
                x = whole(int(rng.integers(1000)), int(rng.integers(1, 41)), 16)
                if not np.array_equal(net(x), expected(x, seed, columns)):
                    wrong.append(k)
        threads = [threading.Thread(target=serve, args=(k,)) for k in range(6)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(wrong)
    """)  # fmt: skip
    assert told.strip() == "[]"


@pytest.mark.parametrize("name", ["a", "c"])
def test_weights_are_mapped_from_their_file_and_only_read(libraries, name):
    """Pages that are mapped from a file without the right to write are shared by all processes that map it."""
    file = "c.weights" if name == "c" else "a.so"
    told = in_process(libraries, f"""
        net = load_module("./{name}.so")
        net(whole(3, 7, 16))
        print(open("/proc/self/maps").read())
    """)  # fmt: skip
    rights = [line.split()[1] for line in told.splitlines() if line.endswith("/" + file)]
    size = os.path.getsize(libraries / file)
    assert "r--p" in rights and size > 0
    if name == "c":
        assert set(rights) == {"r--p"}
    elif shutil.which("readelf"):
        text = subprocess.run(["readelf", "-SW", libraries / file], capture_output=True, text=True, check=True).stdout
        section = next(line for line in text.splitlines() if ".rodata.tilewright" in line or ".rodata " in line)
        assert " A " in section and " WA " not in section


def test_weights_need_no_relocation(libraries, tmp_path):
    """Loading changes nothing of them: however many weights a library has, its relocations are as many."""
    if shutil.which("readelf") is None:
        pytest.skip("needs readelf")
    counts = []
    for columns in (8, 4096):
        built("net", 0, "native -num-cores=1", columns=columns).export(tmp_path / f"net{columns}.so")
        text = subprocess.run(
            ["readelf", "-rW", f"net{columns}.so"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        counts.append(text.count("R_"))
    assert counts[0] > 0 and abs(counts[0] - counts[1]) < 20
    x = whole(3, 7, 16)
    np.testing.assert_array_equal(tw.load_module(tmp_path / "net4096.so")(x), expected(x, 0, 4096))


def test_weights_and_scratch_memory_are_spread_over_nodes(tmp_path, monkeypatch):
    """The kernel tells where pages of which addresses go (numa_maps), also on a machine of one node."""
    if not os.path.exists("/proc/self/numa_maps"):
        pytest.skip("this kernel tells nothing about nodes")
    monkeypatch.delenv("TILEWRIGHT_NUMA", raising=False)
    model = built("net", 3, symbolic=False, columns=70000)  # 4.5 MB of weights
    model.export(tmp_path / "inside.so")
    model.export(tmp_path / "beside.so", constants="beside")
    x = tw.te.placeholder((700000,), name="x")
    twice = tw.te.compute(x.shape, lambda i: x[i] * 2.0, name="twice")
    sch = tw.Schedule(tw.te.create_prim_func([x, tw.te.compute(x.shape, lambda i: twice[699999 - i] + 1.0, name="y")]))
    tw.build(sch, TARGET, name="scratch").export(tmp_path / "scratch.so")
    program = """
        def interleaved():
            with open("/proc/self/numa_maps") as file:
                return [line for line in file if "interleave" in line]
        print(len(interleaved()))
        nets = [load_module("./inside.so"), load_module("./beside.so")]
        x = whole(0, 7, 16)
        for net in nets:
            np.testing.assert_array_equal(net(x), expected(x, 3, 70000))
        spread = interleaved()
        print(sum("inside.so" in line for line in spread), sum("beside.weights" in line for line in spread))
        y = load_module("./scratch.so")(np.arange(700000, dtype=np.float32))
        assert y[0] == 2 * 699999 + 1
        print(len(interleaved()) - len(spread))
    """
    assert in_process(tmp_path, program).split() == ["0", "0", "0", "0"]
    monkeypatch.setenv("TILEWRIGHT_NUMA", "interleave")
    assert in_process(tmp_path, program).split() == ["0", "1", "1", "1"]


def test_weights_of_models_in_python_are_spread_over_nodes(monkeypatch):
    libc = ctypes.CDLL(None)
    number = {"x86_64": 239, "aarch64": 236}.get(platform.machine())
    mode = ctypes.c_int(-1)

    def policy(array):
        """Returns what get_mempolicy says of the middle of an array."""
        middle = ctypes.c_void_p(array.ctypes.data + array.nbytes // 2)
        return libc.syscall(
            ctypes.c_long(number), ctypes.byref(mode), None, ctypes.c_ulong(0), middle, ctypes.c_ulong(2)
        )

    if number is None or policy(np.zeros(1 << 20, np.uint8)) != 0:
        pytest.skip("this system tells nothing about nodes")
    monkeypatch.setenv("TILEWRIGHT_NUMA", "interleave")
    model = built("spread", 3, symbolic=False, columns=70000)
    assert policy(model._parts.constants) == 0 and mode.value == 3  # MPOL_INTERLEAVE
    monkeypatch.setenv("TILEWRIGHT_NUMA", "everywhere")
    with pytest.raises(ValueError, match="TILEWRIGHT_NUMA='everywhere': it is interleave, or not set"):
        built("refused", 3, symbolic=False, columns=17)
    monkeypatch.delenv("TILEWRIGHT_NUMA")
    model = built("plain", 3, symbolic=False, columns=70000)
    assert policy(model._parts.constants) == 0 and mode.value == 0
