"""Products of int8 and bfloat16 by the dot-product instructions of several processors: which are taken, and that they are right."""

import itertools
import re

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.tir.interpret import interpret
from tilewright.tuner import default_schedule
from tilewright.tuner.space import Space

from .test_dots import given_and_wanted, half_operands, halves, operands, product, window_product

X86, ARM = "llvm -mtriple=x86_64-unknown-linux-gnu", "llvm -mtriple=aarch64-linux-gnu"
SIGNS = list(itertools.product(("int8", "uint8"), repeat=2))
PROCESSORS = {
    "avx2": (f"{X86} -mcpu=x86-64-v3 -num-cores=1", ["vpmaddwd ymm"] * 4),
    "avx512bw": (f"{X86} -mcpu=skylake-avx512 -num-cores=2", ["vpmaddwd zmm"] * 4),
    "sse2": (f"{X86} -mcpu=x86-64 -num-cores=1", ["pmaddwd xmm"] * 4),
    "avx-vnni": (f"{X86} -mcpu=alderlake -num-cores=1", ["vpdpbusd ymm"] * 4),
    "narrow": (f"{X86} -mcpu=cascadelake -vector-width=256 -num-cores=2", ["vpdpbusd ymm"] * 4),
    "narrowest": (f"{X86} -mcpu=cascadelake -vector-width=128 -num-cores=1", ["vpdpbusd xmm"] * 4),
    "avx-vnni-int8": (f"{X86} -mcpu=sierraforest -num-cores=1", ["vpdpbssd ymm", "vpdpbusd ymm", "vpdpbusd ymm", "vpdpbuud ymm"]),
    "dotprod": (f"{ARM} -mcpu=cortex-a76 -num-cores=1", ["sdot", "sdot", "udot", "udot"]),
    "i8mm": (f"{ARM} -mcpu=neoverse-v1 -num-cores=1", ["sdot", "usdot", "usdot", "udot"]),
}  # fmt: skip
"""By name: the target, and the instruction for the types in the order of SIGNS."""


def uses(assembly, instruction):
    """Whether the assembly has the instruction; with a kind of register, as its result, in either of x86's syntaxes."""
    word, _, register = instruction.partition(" ")
    return re.search(rf"^\s+({{vex}}\s+)?{word}\s.*{register}", assembly, flags=re.MULTILINE) is not None


def instructions_of_longest_loop(assembly, pattern):
    """The names of the instructions of the basic block with the most of ``pattern``."""
    blocks = re.split(r"^\S+:.*$", assembly, flags=re.MULTILINE)
    longest = max(blocks, key=lambda text: len(re.findall(pattern, text)))
    lines = [line.replace("{vex}", "").split()[0] for line in longest.splitlines() if line.strip()]
    return [word for word in lines if not word.startswith((".", "#", "//"))]


def check(func, target, given, want):
    """Compares candidates with ``want``: interpreted, and compiled where this machine runs the code."""
    space = Space(func, target)
    sketch = next(s for s in space.sketches if "dots" in s.name)
    rows = sketch.all_rows()
    for row in (rows[len(rows) // 2], space.best_rows(sketch, 1)[0]):
        sch = space.schedule(sketch, [int(x) for x in row])
        runs = [lambda *arrays, func=sch.func: interpret(func, *arrays)]
        if not target.missing_here():
            runs.append(compile(sch, target, "dots"))
        for run in runs:
            out = np.full_like(want, 77)
            run(*given, out)
            np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("types", SIGNS, ids="-".join)
def test_products_of_extremes(name, types):
    target = Target(PROCESSORS[name][0])
    for m, n, k in ((5, 20, 7), (4, 32, 8)):
        lows, highs = zip(*[(-128, 127) if t == "int8" else (0, 255) for t in types], strict=True)
        rng = np.random.default_rng(0)
        a = rng.choice([lows[0], highs[0]], (m, k)).astype(types[0])
        b = rng.choice([lows[1], highs[1]], (k, n)).astype(types[1])
        a[0], a[1], b[:, 0], b[:, 1] = lows[0], highs[0], lows[1], highs[1]
        check(product(m, n, k, *types), target, [a, b], a.astype("int32") @ b.astype("int32"))


@pytest.mark.parametrize("name", ["avx2", "avx-vnni", "dotprod", "i8mm"])
@pytest.mark.parametrize("types", SIGNS, ids="-".join)
def test_convolutions(name, types):
    func = window_product((3, 2), 7, 20, 3, 1, *types)
    check(func, Target(PROCESSORS[name][0]), *given_and_wanted(func))


@pytest.mark.parametrize("name", PROCESSORS)
def test_products_and_convolutions_take_the_instruction(name):
    text, instructions = PROCESSORS[name]
    target = Target(text)
    for types, instruction in zip(SIGNS, instructions, strict=True):
        for func in (product(16, 64, 32, *types), window_product((6, 6), 16, 32, 3, 1, *types)):
            assembly = compile(default_schedule(func, target), target, "dots").get_source("asm")
            assert uses(assembly, instruction), (types, instruction)


@pytest.mark.parametrize(("name", "word", "least"), [("dotprod", "sdot", 0.55), ("i8mm", "sdot", 0.55), ("avx2", "vpmaddwd", 0.3),
                                                    ("avx-vnni", "vpdpbusd", 0.6)])  # fmt: skip
def test_the_loop_is_of_products_and_nothing_is_spilled(name, word, least):
    target = Target(PROCESSORS[name][0])
    assembly = compile(default_schedule(product(64, 512, 512), target), target, "dots").get_source("asm")
    words = instructions_of_longest_loop(assembly, rf"\b{word}\b")
    assert words.count(word) > least * len(words)
    assert not {"ushll", "uzp1", "vpmulld", "vpextrb", "vpinsrb"} & set(words)


def test_few_columns_are_left_to_others():
    target = Target(PROCESSORS["avx2"][0])
    names = [[s.name for s in Space(product(16, n, 16), target).sketches] for n in (3, 4)]
    assert ["dots" in each[0] for each in names] == [False, True]


def test_a_window_over_a_computed_image():
    """The stage before writes int8; the left factor is widened after it, and its values stay where others read them."""
    target = Target(PROCESSORS["avx2"][0])
    x = te.placeholder((6, 24), "int8", name="X")
    w = te.placeholder((24, 16), "int8", name="W")
    y = te.compute((6, 24), lambda i, j: te.max(x[i, j], te.const(-100, "int8")), name="Y")
    c = te.ops.matmul(y, w)
    func = te.create_prim_func([x, w, y, c])
    a, b, _ = operands(6, 16, 24, "int8", "int8")
    out, clipped = np.full((6, 16), 77, "int32"), np.zeros((6, 24), "int8")
    sch = default_schedule(func, target)
    assert "dot2_i16" in sch.func.script()
    compile(sch, target, "dots")(a, b, clipped, out)
    np.testing.assert_array_equal(clipped, np.maximum(a, -100))
    np.testing.assert_array_equal(out, np.maximum(a, -100).astype("int32") @ b.astype("int32"))


@pytest.mark.parametrize("turned", [False, True])
def test_products_of_bfloat16_on_aarch64(turned):
    target = Target(PROCESSORS["i8mm"][0])
    func = halves(9, 33, 19, turned)
    assert uses(compile(default_schedule(func, target), target, "dots").get_source("asm"), "bfdot")
    a, b, want, error = half_operands(9, 33, 19, turned)
    out = np.full((9, 33), 77, "float32")
    interpret(default_schedule(func, target).func, a, b, out)
    assert (np.abs(out - want) <= error).all()
    older = Target(PROCESSORS["dotprod"][0])
    assert "bfdot" not in compile(default_schedule(func, older), older, "dots").get_source("asm")
