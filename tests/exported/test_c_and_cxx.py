"""Exported models in C and C++ programs: several in one, classes with views and checks, packages, return values."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import ExportError
from tilewright.exported import load_module
from tilewright.tir import Var

from .model_pairs import TARGET, built, expected, network, whole

CC, CXX = shutil.which("cc") or shutil.which("gcc"), shutil.which("c++") or shutil.which("g++")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="libraries in ELF"),
    pytest.mark.skipif(CC is None, reason="needs a C compiler"),
]
needs_cxx = pytest.mark.skipif(CXX is None, reason="needs a C++ compiler")
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")


def run(folder, *command, **options):
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, **options)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}"
    return done.stdout


TWO = """
#include <stdio.h>
#include "a.h"
#include "b.h"
int main(void) {
  static float x[7 * 16], y[7 * 17], z[7 * 13];
  if (fread(x, sizeof x, 1, stdin) != 1) return 2;
  int32_t one = first(x, y, NULL), other = second(x, z, NULL);
  if (one || other) return fprintf(stderr, "%s, %s\\n", first_error_text(one), second_error_text(other)), 3;
  fwrite(y, sizeof y, 1, stdout);
  fwrite(z, sizeof z, 1, stdout);
  return 0;
}
"""


@pytest.mark.parametrize("names", [("net", "net"), ("one", "other")])
@pytest.mark.parametrize("kinds", [(".so", ".so"), (".a", ".a"), (".so", ".a"), (".c", ".c"), (".c", ".a")])
def test_two_models_in_one_program(tmp_path, kinds, names):
    sources = []
    for stem, kind, name, symbol, seed, columns in zip(
        "ab", kinds, names, ("first", "second"), (0, 1), (17, 13), strict=True
    ):
        target = "c" if kind == ".c" else TARGET
        built(name, seed, target, columns=columns).export(tmp_path / f"{stem}{kind}", symbol)
        sources.append(f"{stem}{kind}")
    (tmp_path / "main.c").write_text(TWO)
    run(tmp_path, CC, "-std=c99", *WARNINGS, "main.c", *sources, "-o", "main", "-lm", "-lpthread", "-Wl,-rpath,$ORIGIN")
    x = whole(3, 7, 16)
    y, z = np.split(np.frombuffer(run(tmp_path, "./main", input=x.tobytes()), np.float32), [7 * 17])
    np.testing.assert_array_equal(y.reshape(7, 17), expected(x, 0))
    np.testing.assert_array_equal(z.reshape(7, 13), expected(x, 1, 13))


def test_static_libraries_share_kernels_and_the_runtime(tmp_path):
    """The same network with other weights: its kernels are the same code, and a program has them once."""
    for stem, seed in (("a", 0), ("b", 1)):
        built(stem, seed, columns=17).export(tmp_path / f"{stem}.a", {"a": "first", "b": "second"}[stem])
    (tmp_path / "main.c").write_text(TWO.replace("z[7 * 13]", "z[7 * 17]"))
    run(tmp_path, CC, "main.c", "a.a", "b.a", "-o", "main", "-lm", "-lpthread")
    x = whole(3, 7, 16)
    both = np.frombuffer(run(tmp_path, "./main", input=x.tobytes()), np.float32).reshape(2, 7, 17)
    np.testing.assert_array_equal(both, [expected(x, 0), expected(x, 1)])
    if shutil.which("nm"):
        names = [line.split()[-1] for line in run(tmp_path, "nm", "main").decode().splitlines()]
        assert names.count("tw_parallel_for") == 1


def test_a_static_library_is_one_that_other_tools_read(tmp_path):
    if shutil.which("ar") is None:
        pytest.skip("needs ar")
    model = built("net", 0)
    first = model.export(tmp_path / "net.a")[0].read_bytes()
    assert "net_0.o" in run(tmp_path, "ar", "t", "net.a").decode().split()
    run(tmp_path, "ar", "x", "net.a")
    assert (tmp_path / "net_0.o").read_bytes()[:4] == b"\x7fELF"
    assert model.export(tmp_path / "net.a")[0].read_bytes() == first
    listed = run(tmp_path, "nm", "--print-armap", "net.a").decode() if shutil.which("nm") else "net in net_"
    assert "net in net_" in listed


@pytest.mark.parametrize("suffix", [".o", ".a"])
def test_what_cannot_be_a_static_library(tmp_path, suffix):
    model = tw.build(network("net", 0), "llvm -mtriple=arm64-apple-darwin -num-cores=1")
    with pytest.raises(ExportError, match="ELF" if suffix == ".a" else "a static one"):
        model.export(tmp_path / f"net{suffix}")
    assert [*tmp_path.iterdir()] == []


# -- the return values of C functions --


def function_of(path, name):
    function = ctypes.CDLL(str(path))[name]
    function.restype = ctypes.c_int32
    return function


def texts_of(folder, stem, name, codes):
    """Returns what the function of the header says of the codes."""
    (folder / "texts.c").write_text(
        f'#include <stdio.h>\n#include "{stem}.h"\nint main(void) {{\n'
        + "".join([f"  puts({name}_error_text({code}));\n" for code in codes])
        + "  return 0;\n}\n"
    )
    library = f"{stem}.so" if (folder / f"{stem}.so").exists() else f"{stem}.c"
    run(folder, CC, "-std=c99", *WARNINGS, "texts.c", library, "-o", "texts", "-lm", "-Wl,-rpath,$ORIGIN")
    return run(folder, "./texts").decode().splitlines()


def called(folder, target):
    """Returns a function that calls the model of n rows on three addresses and a size, for a target."""
    model = built("net", 0, target, symbolic=True)
    if target == TARGET:
        model.export(folder / "net.so")
        function = function_of(folder / "net.so", "net")
    else:
        model.export(folder / "net.c")
        sanitized = ("-fsanitize=undefined", "-fno-sanitize-recover")
        run(folder, CC, "-std=c99", *WARNINGS, *sanitized, "-shared", "-fPIC", "net.c", "-o", "c.so", "-lm")
        function = function_of(folder / "c.so", "net")
    return lambda x, y, n, memory=None: function(
        ctypes.c_void_p(x), ctypes.c_void_p(y), ctypes.c_int64(n), ctypes.c_void_p(memory)
    )


@pytest.mark.parametrize("target", [TARGET, "c"])
def test_wrong_arguments_return_codes(tmp_path, target):
    call = called(tmp_path, target)
    x, y = np.zeros((41, 16), np.float32), np.zeros((41, 17), np.float32)
    x[:7] = whole(3, 7, 16)
    a, b = x.ctypes.data, y.ctypes.data
    assert call(a, b, 7) == 0
    np.testing.assert_array_equal(y[:7], expected(x[:7], 0))
    y[:] = 5
    assert [call(None, b, 7), call(a, None, 7), call(None, None, 7)] == [-3, -3, -3]
    assert [call(a + 1, b, 7), call(a, b + 2, 7), call(a + 4, b, 7)][:2] == [-4, -4]
    y[:] = 5
    assert call(a, b, 7, a + 8 if a % 16 == 0 else a) == -4  # the workspace
    assert [call(a, b, n) for n in (-1, -(2**63), 2**63 - 1, 2**61)] == [-5] * 4
    assert call(a, b, 41) == 1
    assert call(None, None, 0) == 0
    assert (y == 5).all()
    told = texts_of(tmp_path, "net", "net", (0, -3, -4, -5, 1, 99))
    assert told[0] == "success" and "NULL" in told[1] and "aligned" in told[2] and "negative" in told[3]
    assert told[4:] == ["n must be in 0..40", "an unknown code"]


@pytest.mark.parametrize("target", ["native -num-cores=1", "c"])
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_sizes_whose_bytes_no_memory_has(tmp_path, target, kind):
    """Products of sizes that do not fit 64 bits, and sizes that do not fit the program's own type."""
    n, m = Var("n", kind), Var("m", kind)
    a = te.placeholder((n, m), "float64", name="A")
    module = tw.build([a, te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="B")], target, name="plus")
    suffix = ".c" if target == "c" else ".so"
    module.export(tmp_path / f"plus{suffix}")
    if suffix == ".c":
        run(tmp_path, CC, "-std=c99", "-Wall", "-Werror", "-shared", "-fPIC", "plus.c", "-o", "plus.so", "-lm")
    plus = function_of(tmp_path / "plus.so", "plus")
    x = np.arange(6.0)
    y = np.zeros(6)

    def call(rows, columns):
        return plus(*[v.ctypes.data_as(ctypes.c_void_p) for v in (x, y)], *map(ctypes.c_int64, (rows, columns)))

    assert call(2, 3) == 0
    np.testing.assert_array_equal(y, x + 1)
    assert [call(-2, 3), call(2, -3), call(-2, -3), call(2**62, 4), call(2**40, 2**40), call(2**32 + 2, 2**32)] == [
        -5
    ] * 6
    np.testing.assert_array_equal(y, x + 1)
    assert "large" in texts_of(tmp_path, "plus", "plus", [-5])[0]


def test_a_file_of_weights_that_is_not_loaded(tmp_path):
    built("net", 0).export(tmp_path / "net.so", constants="beside")
    net = function_of(tmp_path / "net.so", "net")
    x, y = whole(3, 7, 16), np.zeros((7, 17), np.float32)
    assert net(x.ctypes, y.ctypes, None) == -6
    assert "not loaded" in texts_of(tmp_path, "net", "net", [-6])[0]
    np.testing.assert_array_equal(load_module(tmp_path / "net.so")(x), expected(x, 0))


# -- C++ --

CHECKS = r"""
#include <cassert>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif
#include "net.hpp"

namespace tw = tilewright;
using Net = tw::lib::net;
static_assert(!std::is_constructible_v<tw::view<const float, 2>, std::vector<double>&>, "another dtype");
static_assert(!std::is_constructible_v<tw::view<float, 2>, const std::vector<float>&>, "written, but const");
static_assert(!std::is_copy_constructible_v<Net::workspace_type>, "memory has one owner");

int main() {
  std::vector<float> x(7 * 16), y(7 * 17), again(7 * 17);
  assert(std::fread(x.data(), 4, x.size(), stdin) == x.size());
  Net model;
  model({x.data(), {7, 16}}, {y.data(), {7, 17}});
  Net::workspace_type memory;
  Net::workspace_type moved = std::move(memory);
  assert(memory.get() == nullptr && reinterpret_cast<std::uintptr_t>(moved.get()) % 64 == 0);
  assert(model.run(x, again, &moved) == 0);  // n from the number of elements
  assert(std::memcmp(y.data(), again.data(), y.size() * 4) == 0);
#if __cplusplus >= 202002L
  std::span<const float> seen(x);
  assert(model.run(seen, again) == 0);
#endif
  std::vector<float> small(7 * 17 - 1), many(41 * 17), wide(41 * 16);
  assert(model.run(x, small) == -7);
  assert(model.run({x.data(), {16, 7}}, y) == -7);
  assert(model.run({x.data(), {7, 16}}, {y.data(), {17, 7}}) == -7);
  assert(model.run({x.data(), {-7, 16}}, y) == -7);
  assert(model.run(x, {x.data(), {7, 17}}) == -8);
  assert(model.run(wide, many) == 1);
  assert(model.run({nullptr, {7, 16}}, y) == -3);
  assert(model.run({reinterpret_cast<float*>(reinterpret_cast<char*>(wide.data()) + 1), {7, 16}}, y) == -4);
  try {
    model(x, small);
    return 2;
  } catch (const tw::error& caught) {
    assert(caught.code() == -7 && std::strstr(caught.what(), "net: an array has another shape"));
  }
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> results(4, std::vector<float>(7 * 17));
  for (auto& result : results)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; k++) model(x, result);
    });
  for (auto& thread : threads) thread.join();
  for (auto& result : results) assert(result == y);
  std::fwrite(y.data(), 4, y.size(), stdout);
}
"""


@needs_cxx
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
@pytest.mark.parametrize("suffix", [".so", ".a"])
def test_a_class_checks_what_it_is_given(tmp_path, standard, suffix):
    built("net", 0, symbolic=True).export(tmp_path / f"net{suffix}")
    (tmp_path / "main.cpp").write_text(CHECKS)
    command = [CXX, f"-std={standard}", *WARNINGS, "main.cpp", f"net{suffix}", "-o", "main", "-pthread", "-lm"]
    run(tmp_path, *command, "-Wl,-rpath,$ORIGIN")
    x = whole(3, 7, 16)
    got = np.frombuffer(run(tmp_path, "./main", input=x.tobytes()), np.float32).reshape(7, 17)
    np.testing.assert_array_equal(got, expected(x, 0))


@needs_cxx
def test_two_headers_and_a_program_without_exceptions(tmp_path):
    built("a", 0).export(tmp_path / "a.so", "first", constants="beside")
    built("b", 1, "c", columns=13).export(tmp_path / "b.c", "run")
    (tmp_path / "main.cpp").write_text(
        '#include "a.hpp"\n#include "b.hpp"\n#include <cstdio>\n'
        "static float x[7 * 16], y[7 * 17], z[7 * 13];\n"
        "int main() {\n  tilewright::lib::first one;\n  tilewright::lib::run_ other;\n"
        "  if (std::fread(x, sizeof x, 1, stdin) != 1) return 2;\n"
        '  if (one.run(x, y) != -6 || one.load("absent") != 1 || one.load("main.cpp") != 2 || one.load("a.weights")) return 3;\n'
        "  if (one.run(x, y) || other.run(x, z)) return 4;\n"
        "  std::fwrite(y, sizeof y, 1, stdout);\n  std::fwrite(z, sizeof z, 1, stdout);\n}\n"
    )
    run(tmp_path, CC, "-O1", "-c", "b.c")
    flags = ["-std=c++17", *WARNINGS, "-fno-exceptions", "-fno-rtti"]
    run(tmp_path, CXX, *flags, "main.cpp", "a.so", "b.o", "-o", "main", "-lm", "-Wl,-rpath,$ORIGIN")
    x = whole(3, 7, 16)
    y, z = np.split(np.frombuffer(run(tmp_path, "./main", input=x.tobytes()), np.float32), [7 * 17])
    np.testing.assert_array_equal(y.reshape(7, 17), expected(x, 0))
    np.testing.assert_array_equal(z.reshape(7, 13), expected(x, 1, 13))


@needs_cxx
def test_kernels_of_sizes_that_follow_from_others(tmp_path):
    """A size that no extent is alone, and extents that are computed."""
    n, m = Var("n", "int64"), Var("m", "int64")
    a = te.placeholder((n, m * 2), name="new")
    half = te.compute((n // 2, m), lambda i, j: a[i * 2, j * 2] + 1.0, name="text")
    tw.build([a, half], TARGET, name="halves").export(tmp_path / "halves.so")
    (tmp_path / "main.cpp").write_text(
        '#include "halves.hpp"\n#include <cassert>\n#include <vector>\nint main() {\n'
        "  std::vector<float> x(5 * 6, 1.5f), y(2 * 3);\n  tilewright::lib::halves halves;\n"
        "  halves({x.data(), {5, 6}}, {y.data(), {2, 3}});\n  assert(y[5] == 2.5f);\n"
        "  assert(halves.run({x.data(), {5, 6}}, {y.data(), {3, 3}}) == -7);\n"
        "  assert(halves.run({x.data(), {5, 6}}, {y.data(), {2, 2}}) == -7);\n"
        "  assert(halves.run({x.data(), {5, 6}}, y) == -7);  // m is told by the shape of y alone\n}\n"
    )
    run(tmp_path, CXX, "-std=c++17", *WARNINGS, "main.cpp", "halves.so", "-o", "main", "-Wl,-rpath,$ORIGIN")
    run(tmp_path, "./main")


# -- packages --


def test_pkg_config_tells_the_models_version(tmp_path):
    if shutil.which("pkg-config") is None:
        pytest.skip("needs pkg-config")
    built("net", 0).export(tmp_path / "net.so", version="3.1.4")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(tmp_path)}
    assert run(tmp_path, "pkg-config", "--modversion", "net", env=environment).decode().strip() == "3.1.4"
    run(tmp_path, "pkg-config", "net >= 3.1", env=environment)
    built("net", 0).export(tmp_path / "other.so")
    assert run(tmp_path, "pkg-config", "--modversion", "other", env=environment).decode().strip() == tw.__version__


@pytest.mark.parametrize("version", ["", "one", "1 2", "1.2\nLibs: x", "1..2"])
def test_versions_that_are_none(tmp_path, version):
    with pytest.raises(ValueError, match="numbers with points"):
        built("net", 0).export(tmp_path / "net.so", version=version)
    assert [*tmp_path.iterdir()] == []


def test_files_that_have_no_version(tmp_path):
    with pytest.raises(ExportError, match="cannot give 'net.c' a version"):
        built("net", 0, "c").export(tmp_path / "net.c", version="1.0")
    a = te.placeholder((4,), name="A")
    with pytest.raises(ExportError, match=r"cannot give 'k\.o' a version"):
        tw.build([a, te.compute((4,), lambda i: a[i], name="B")], name="k").export(tmp_path / "k.o", version="1.0")


def cmake_program():
    """Returns CMake, of the system or beside this Python; the test skips without it."""
    found = shutil.which("cmake") or shutil.which("cmake", path=str(Path(sys.executable).parent))
    if found is None or not (shutil.which("make") or shutil.which("ninja")):
        pytest.skip("needs cmake and make")
    return found


@needs_cxx
@pytest.mark.parametrize("suffix", [".so", ".a"])
def test_cmake_finds_the_library(tmp_path, suffix):
    cmake, source, build = cmake_program(), tmp_path / "source", tmp_path / "build"
    folder = tmp_path / "a folder"
    folder.mkdir()
    source.mkdir()
    built("net", 0, symbolic=True).export(folder / f"libnet{suffix}", version="2.5.1")
    (source / "main.cpp").write_text(CHECKS.replace('"net.hpp"', '"libnet.hpp"'))
    text = (
        "cmake_minimum_required(VERSION 3.16)\nproject(service CXX)\nset(CMAKE_CXX_STANDARD 17)\n"
        "find_package(Threads REQUIRED)\nfind_package(net WANTED REQUIRED)\nadd_executable(service main.cpp)\n"
        "target_link_libraries(service PRIVATE net::net Threads::Threads)\n"
    )

    def configured(wanted):
        (source / "CMakeLists.txt").write_text(text.replace("WANTED", wanted))
        shutil.rmtree(build, ignore_errors=True)
        command = [cmake, "-S", source, "-B", build, f"-Dnet_DIR={folder}"]
        return subprocess.run([*map(str, command)], capture_output=True, text=True)

    refused = configured("2.6"), configured("1.0"), configured("2.5.0 EXACT")
    assert all([done.returncode != 0 and "2.5.1" in done.stderr for done in refused])
    done = configured("2.4")
    assert done.returncode == 0, done.stderr
    run(tmp_path, cmake, "--build", build)
    x = whole(3, 7, 16)
    got = np.frombuffer(run(build, "./service", input=x.tobytes()), np.float32).reshape(7, 17)
    np.testing.assert_array_equal(got, expected(x, 0))
