"""Tiles of matrix units: what the operations compute everywhere, the instructions where there are any, and the permission."""

import ctypes
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.codegen.llvm.jit import load, optimize_and_compile
from tilewright.codegen.llvm.llvm_tiles import NO_TILES
from tilewright.codegen.machine import cpu
from tilewright.codegen.machine import cpu as cpu_module
from tilewright.codegen.runtime.runtime_ir import runtime_ir
from tilewright.schedule import Schedule, TensorIntrin
from tilewright.tir import assert_structural_equal, parse, verify
from tilewright.tir.expr import const
from tilewright.tir.expr.intrinsics.matrix_operations import tile_dot2_bf16, tile_dot4, tile_load, tile_store
from tilewright.tir.interpret import interpret

MODERN = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids -num-cores=1"
"""A target with the unit, to look at its code anywhere."""
PLAIN = "llvm -mcpu=x86-64-v3 -num-cores=1"
HAS_UNIT = Target("native").has_amx_int8 and Target("native").has_amx_bf16
unit = pytest.mark.skipif(not HAS_UNIT, reason="this machine has no AMX, or does not let this process use it")
DOTS = {
    "dot_16x16x64_s8s8_amx": ("int8", "tdpbssd"),
    "dot_16x16x64_u8s8_amx": ("uint8", "tdpbusd"),
    "dot_16x16x32_bf16_amx": ("bfloat16", "tdpbf16ps"),
}


def targets():
    out = [pytest.param("native -num-cores=1", marks=unit, id="unit")]
    texts = {
        "vnni": "native -mattr=-amx-tile -num-cores=1",
        "narrow": "native -mattr=-amx-tile -vector-width=256 -num-cores=1",
    }
    for name, text in texts.items():
        no = not Target("native").has("avx512vnni")
        out.append(pytest.param(text, id=name, marks=pytest.mark.skipif(no, reason="this machine has no AVX-512 VNNI")))
    missing = platform.machine() not in ("x86_64", "AMD64") or Target(PLAIN).missing_here()
    out.append(pytest.param(PLAIN, id="plain", marks=pytest.mark.skipif(bool(missing), reason="no AVX2 here")))
    return out


def bits(x):
    """Whole numbers as bfloat16."""
    return (np.asarray(x, "float32").view("uint32") >> 16).astype("uint16")


def numbers(rng, shape, dtype):
    """Values, and what memory holds of them: extremes of integers, small whole bfloat16."""
    if dtype == "bfloat16":
        values = rng.integers(-8, 9, shape)
        return values, bits(values)
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    values = np.where(rng.random(shape) < 0.3, rng.choice([low, high - 1], shape), rng.integers(low, high, shape))
    return values, values.astype(dtype)


def product(m, n, k, dtype, cores=1, pack=False):
    """C = A @ B of multiples of a tile, scheduled for the unit, B packed in the caller's hands."""
    width, result = (2, "float32") if dtype == "bfloat16" else (4, "int32")
    steps, word = 16 * width, "f32" if dtype == "bfloat16" else "i32"
    right = "bfloat16" if dtype == "bfloat16" else "int8"
    A = te.placeholder((m, k), dtype, name="A")
    B = te.placeholder((n // 16, k // width, 16, width), right, name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(A[i, r].astype(result) * B[j // 16, r // width, j % 16, r % width].astype(result), axis=r),
        name="C",
    )
    sch = Schedule(te.create_prim_func([A, B, C]))
    copy = sch.cache_read("C", 0, "global") if pack else None
    out = sch.cache_write("C", 0, "local")
    sch.transform_layout("C", ("write", 0), lambda i, j: (i // 16, j // 16, i % 16, j % 16))
    i, j, q = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 16])
    j0, j1 = sch.split(j, [None, 16])
    q0, q1 = sch.split(q, [None, steps])
    sch.reorder(i0, j0, q0, i1, j1, q1)
    if cores > 1:
        sch.parallel(i0)
    if pack:
        sch.compute_at(copy, i0)
    sch.reverse_compute_at(out, j0, preserve_unit_loops=True)
    init = sch.decompose_reduction("C", q0)
    name = next(n for n, (d, _) in DOTS.items() if d == dtype)
    sch.tensorize(i1, name)
    sch.tensorize(sch.get_loops(init)[-2], f"fill_16x16_{word}_amx")
    sch.tensorize(sch.get_loops(out)[-2], f"store_16x16_{word}_amx")
    return sch


def run_product(sch, target, m, n, k, dtype, seed=0):
    rng = np.random.default_rng(seed)
    width = 2 if dtype == "bfloat16" else 4
    a, a_stored = numbers(rng, (m, k), dtype)
    b, b_stored = numbers(rng, (k, n), "bfloat16" if dtype == "bfloat16" else "int8")
    packed = b_stored.reshape(k // width, width, n // 16, 16).transpose(2, 0, 3, 1).copy()
    out = np.full((m, n), 77, "float32" if dtype == "bfloat16" else "int32")
    runner = compile(sch, target, "product") if target else lambda *x: interpret(sch.func, *x)
    runner(a_stored, packed, out)
    np.testing.assert_array_equal(out, a.astype("int64") @ b.astype("int64"))
    return runner


# -- the operations ------------------------------------------------------------------------------------------------------

MOVES = """
@T.prim_func
def main(A: T.Buffer((20, 40), "{dtype}"), C: T.Buffer((18, 50), "{dtype}")):
    T.evaluate(T.tile_store(T.address_of(C[1, 3]), 50, T.tile_load("{dtype}x{lanes}", T.address_of(A[2, 5]), 40)))
"""


@pytest.mark.parametrize("target", targets())
@pytest.mark.parametrize("dtype, lanes", [("int32", 256), ("float32", 256), ("bfloat16", 512), ("int16", 512)])
def test_moving_a_tile(target, dtype, lanes):
    func = parse(MOVES.format(dtype=dtype, lanes=lanes))
    verify(func)
    assert_structural_equal(parse(func.script()), func)
    stored = "uint16" if dtype == "bfloat16" else dtype
    a = np.random.default_rng(0).integers(0, 100, (20, 40)).astype(stored)
    want = np.full((18, 50), 7, stored)
    want[1:17, 3 : 3 + lanes // 16] = a[2:18, 5 : 5 + lanes // 16]
    for runner in (compile(func, target, "moves"), lambda *x: interpret(func, *x)):
        out = np.full((18, 50), 7, stored)
        runner(a, out)
        np.testing.assert_array_equal(out, want)


def test_a_read_only_array_is_enough_to_load_from():
    func = parse(MOVES.format(dtype="int32", lanes=256))
    module = compile(func, PLAIN if not HAS_UNIT else "native -num-cores=1", "moves")
    a, out = np.arange(800, dtype="int32").reshape(20, 40), np.zeros((18, 50), "int32")
    a.flags.writeable = False
    module(a, out)
    assert out[1, 3] == a[2, 5]


DOT = """
@T.prim_func
def main(A: T.Buffer(({lanes},), "{a}"), B: T.Buffer(({lanes},), "{b}"), C: T.Buffer((256,), "{c}")):
    C[0:256] = T.{op}(C[0:256], A[0:{lanes}], {b_text})
"""


@pytest.mark.parametrize("target", targets())
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(
    ("dtype", "right"), [("bfloat16", "bfloat16"), *[(a, b) for a in ("int8", "uint8") for b in ("int8", "uint8")]]
)
def test_a_product_of_tiles(target, dtype, right, computed):
    """Operands in memory, and one that is a value."""
    half = dtype == "bfloat16"
    lanes, width = (512, 2) if half else (1024, 4)
    b_text = f"B[0:{lanes}]"
    if computed:
        b_text = f"T.Shuffle([{b_text}], {list(reversed(range(lanes)))})"
    op = "tile_dot2_bf16" if half else "tile_dot4"
    words = {"lanes": lanes, "a": dtype, "b": right, "c": "float32" if half else "int32", "op": op, "b_text": b_text}
    func = parse(DOT.format(**words))
    verify(func)
    assert_structural_equal(parse(func.script()), func)
    rng = np.random.default_rng(3)
    (a, a_stored), (b, b_stored) = numbers(rng, lanes, dtype), numbers(rng, lanes, right)
    b = b[::-1] if computed else b
    c = rng.integers(-9, 9, 256) if half else rng.integers(-(1 << 31), 1 << 31, 256)
    folded = b.reshape(16, 16, width).transpose(0, 2, 1).reshape(16 * width, 16)
    want = c.reshape(16, 16) + a.reshape(16, -1).astype("int64") @ folded.astype("int64")
    want = want.reshape(-1).astype("int64").astype("int32")  # wraps
    for runner in (compile(func, target, "dot"), lambda *x: interpret(func, *x)):
        out = c.astype(words["c"])
        runner(a_stored, b_stored, out)
        np.testing.assert_array_equal(out, want)


def test_what_is_no_tile():
    with pytest.raises(TypeError, match=r"tile_dot4 takes int32x256, uint8x1024 or int8x1024, int8x1024 or uint8x1024, not int32x256, int8x1024, int32x256"):  # fmt: skip
        tile_dot4(const(0, "int32x256"), const(0, "int8x1024"), const(0, "int32x256"))
    with pytest.raises(TypeError, match="tile_dot2_bf16 takes float32x256, bfloat16x512, bfloat16x512"):
        tile_dot2_bf16(const(0.0, "float32x256"), const(0.0, "float32x256"), const(0.0, "bfloat16x512"))
    for dtype in ("int8x512", "boolx8192", "int32"):
        with pytest.raises(TypeError, match=f"{dtype} is not a tile of 16 rows of 64 bytes"):
            tile_load(dtype, const(0), 1)
    with pytest.raises(TypeError, match="float32x16 is not a tile"):
        tile_store(const(0), 1, const(0.0, "float32x16"))
    with pytest.raises(TypeError, match=r"tile_load takes T.address_of\(an element\), not 0"):
        tile_load("int8x1024", const(0), 64)


def test_the_interpreter_sees_tiles_that_leave_memory():
    func = parse(MOVES.format(dtype="int32", lanes=256).replace("C[1, 3]), 50", "C[1, 3]), 60"))
    with pytest.raises(IndexError, match="a tile with rows 60 apart reaches 915 elements far; there are 847"):
        interpret(func, np.zeros((20, 40), "int32"), np.zeros((18, 50), "int32"))


# -- the intrinsics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *DOTS,
        "dot_16x16x64_s8u8_amx",
        "dot_16x16x64_u8u8_amx",
        *(f"{w}_16x16_{t}_amx" for w in ("fill", "store") for t in ("i32", "f32")),
    ],
)
def test_intrinsics_are_what_they_say(name):
    TensorIntrin.get(name).check()


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("dtype", [d for d, _ in DOTS.values()])
@pytest.mark.parametrize("m, n, tiles", [(16, 16, 1), (32, 48, 3)])
def test_a_product_in_the_interpreter(m, n, tiles, dtype, pack):
    k = tiles * (32 if dtype == "bfloat16" else 64)
    run_product(product(m, n, k, dtype, pack=pack), None, m, n, k, dtype)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("target", targets())
@pytest.mark.parametrize("dtype, word", DOTS.values())
@pytest.mark.parametrize("m, n, tiles", [(16, 16, 1), (48, 80, 7)])
def test_a_product(target, m, n, tiles, dtype, word, pack):
    k = tiles * (32 if dtype == "bfloat16" else 64)
    module = run_product(product(m, n, k, dtype, pack=pack), target, m, n, k, dtype)
    assert (word in module.get_source("asm")) == Target(target).has_amx


@unit
@pytest.mark.parametrize("dtype, word", DOTS.values())
def test_each_thread_configures_its_own_tiles(dtype, word):
    target, k = "native -num-cores=2", 5 * (32 if dtype == "bfloat16" else 64)
    for seed in range(3):
        module = run_product(product(112, 48, k, dtype, 2, pack=True), target, 112, 48, k, dtype, seed)
    text = module.get_source("asm")
    body = text[text.index("product_region1_body:") :]
    assert word in body and "ldtilecfg" in body and "tilerelease" in body


def test_scratch_that_tiles_are_read_from_is_as_large_as_what_is_in_use():
    lowered = compile(product(64, 32, 192, "int8", pack=True), MODERN, "product").get_source("lowered")
    assert 'A_global = T.decl_buffer((16, 192), "int8")' in lowered
    assert 'T.tile_load("int8x1024", T.address_of(A_global[0, r_0 * 64]), 192)' in lowered


# -- the code ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, word", DOTS.values())
def test_sums_stay_in_tile_registers(dtype, word):
    k = 4 * (32 if dtype == "bfloat16" else 64)
    text = compile(product(32, 32, k, dtype), MODERN, "product").get_source("asm")
    body = text[text.index("product_tiles:") :].splitlines()
    steps = [n for n, line in enumerate(body) if word in line]
    loads = [n for n, line in enumerate(body) if "tileload" in line]
    assert len(steps) == 1 and len(loads) == 2 and sum("tilestore" in line for line in body) == 1
    assert sum("tilezero" in line for line in body) == 1 and sum("ldtilecfg" in line for line in body) == 1
    first = max(n for n in range(steps[0]) if body[n].startswith(".LBB"))
    last = min(n for n in range(steps[0], len(body)) if "\tj" in body[n])
    assert not any("rsp" in line for line in body[first:last])
    configured = next(n for n, line in enumerate(body) if "ldtilecfg" in line)
    assert configured < first and not any("call" in line for line in body[configured:last])


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "icelake-server"])
@pytest.mark.parametrize("dtype", [d for d, _ in DOTS.values()])
def test_no_tiles_below_their_level(level, dtype):
    target = f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={level} -num-cores=1"
    text = compile(product(32, 32, 128, dtype), target, "product").get_source("asm")
    assert not any(word in text for word in ("tileload", "tilestore", "tilezero", "tilecfg", "tdp", "tw_tiles"))


def test_systems_without_the_question_get_no_tiles():
    other = Target(MODERN.replace("linux-gnu", "freebsd"))
    assert other.has("amx-int8") and not other.has_amx and not other.has_amx_int8
    assert "tdp" not in compile(product(32, 32, 128, "int8"), other, "product").get_source("asm")


# -- the permission ------------------------------------------------------------------------------------------------------


def test_the_question_comes_first():
    text = compile(product(32, 32, 64, "int8"), MODERN, "product").get_source("asm")
    entry = text[text.index("\nproduct:") : text.index("\nproduct_tiles:")]
    assert entry.index("tw_tiles") < entry.index("product_tiles") and "cfg" not in entry and f"${NO_TILES}" in entry
    whole = compile(product(32, 32, 64, "int8"), PLAIN.replace("x86-64-v3", "x86-64-v4"), "plain").get_source("ll")
    assert "tw_tiles" not in whole


@unit
def test_a_refusal_is_an_error(monkeypatch):
    sch = product(16, 16, 64, "int8")
    module = compile(sch, "native -num-cores=1", "product")
    refusing = "define i32 @tw_tiles() {\n  ret i32 1\n}\n"
    loaded = load(optimize_and_compile(refusing, Target("native -num-cores=1")).object, ["tw_tiles"])
    from tilewright.codegen.runtime import module as runtime_module

    symbols = runtime_module.runtime_symbols() | {"tw_tiles": loaded.address("tw_tiles")}
    monkeypatch.setattr(runtime_module, "runtime_symbols", lambda *_: symbols)
    arrays = np.zeros((16, 64), "int8"), np.zeros((1, 16, 16, 4), "int8"), np.full((16, 16), 5, "int32")
    with pytest.raises(RuntimeError, match=r"product: .*does not let this process use AMX's tile registers.*-mattr=-amx-tile"):  # fmt: skip
        module(*arrays)
    assert (arrays[2] == 5).all()


def test_a_system_that_refuses_has_no_unit(monkeypatch):
    monkeypatch.setattr(cpu, "tiles_allowed", lambda: False)
    cpu_module.host.cache_clear()
    try:
        here = Target("native")
        assert not here.has_amx and not any(f.startswith("+amx") for f in here.features)
        if platform.machine() in ("x86_64", "AMD64"):
            assert {"amx-tile", "amx-int8"} <= set(Target(MODERN).missing_here())
    finally:
        monkeypatch.undo()
        cpu_module.host.cache_clear()


def test_this_machine_without_a_feature():
    less = Target("native -mattr=-amx-tile -num-cores=1")
    assert not less.has_amx_int8 and not less.has_amx_bf16 and not less.missing_here()
    assert Target(str(less)) == less and "+amx" not in less.llvm_features
    if HAS_UNIT:
        assert less.key != Target("native -num-cores=1").key


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the question is Linux's")
def test_the_runtime_asks_the_system():
    target = Target("native -num-cores=1")
    loaded = load(optimize_and_compile(runtime_ir(target), target).object, ["tw_tiles"])
    ask = ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.address("tw_tiles"))
    assert [ask() == 0, ask() == 0] == [cpu.tiles_allowed()] * 2


CALLER = """
#include <stdio.h>
#include <string.h>
#include "product.h"
int main(void) {
  static int8_t a[48][128], b[2][32][16][4];
  static int32_t c[48][32];
  for (int i = 0; i < 48; ++i) for (int k = 0; k < 128; ++k) a[i][k] = (int8_t)(7 * i + 3 * k);
  for (int j = 0; j < 32; ++j) for (int k = 0; k < 128; ++k) b[j / 16][k / 4][j % 16][k % 4] = (int8_t)(5 * j - 11 * k);
  int code = product(&a[0][0], &b[0][0][0][0], &c[0][0]);
  if (code) return printf("refused %d", code), 0;
  for (int i = 0; i < 48; ++i) for (int j = 0; j < 32; ++j) {
    int32_t sum = 0;
    for (int k = 0; k < 128; ++k) sum += a[i][k] * b[j / 16][k / 4][j % 16][k % 4];
    if (sum != c[i][j]) return printf("wrong at %d %d", i, j), 1;
  }
  return printf("right"), 0;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not here")
@pytest.mark.parametrize("suffix", [".so", ".o", ".c"])
@pytest.mark.parametrize("target", [pytest.param("native -num-cores=2", marks=unit), PLAIN])
def test_called_from_c(tmp_path, target, suffix):
    """Without Python: what is exported asks for the registers by itself."""
    compile(product(48, 32, 128, "int8", 2, pack=True), target, "product").export(tmp_path / f"product{suffix}")
    (tmp_path / "main.c").write_text(CALLER)
    command = ["gcc", "-O1", "-march=native", "-w", "main.c", f"product{suffix}", "-o", "main", "-lm", "-lpthread"]
    subprocess.run([*command, "-Wl,-rpath,."], cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "right")
