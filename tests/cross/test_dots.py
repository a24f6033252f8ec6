"""Products of int8 and bfloat16 by the dot-product instructions of AArch64, in the emulator."""

import itertools

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.tuner import default_schedule

from .machines import Machine
from .standalone import run_module

SIZES = [(9, 20, 11), (16, 64, 96), (45, 100, 190)]


def machine(features):
    return Machine(
        f"llvm -mtriple=aarch64-linux-gnu -mattr={features}", ("aarch64-linux-gnu-gcc", "-O1", "-static"),
        ("qemu-aarch64", "-cpu", "max"),
    )  # fmt: skip


def product(m, n, k, left, right):
    a, b = te.placeholder((m, k), left, name="A"), te.placeholder((k, n), right, name="B")
    if left != "bfloat16":
        return te.create_prim_func([a, b, te.ops.matmul(a, b)])
    r = te.reduce_axis((0, k), name="r")
    return te.create_prim_func(
        [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), axis=r))]
    )


def operand(rng, shape, dtype):
    """Extremes of integers, and bits of bfloat16."""
    if dtype == "bfloat16":
        return (rng.standard_normal(shape).astype("float32").view("uint32") >> 16).astype("uint16")
    ends = (-128, 127) if dtype == "int8" else (0, 255)
    out = rng.choice([ends[0], ends[1], 1], shape, p=[0.5, 0.4, 0.1]).astype(dtype)
    out[:, 0], out[0] = ends[1], ends[0]
    return out


def wide(x):
    return (x.astype("uint32") << 16).view("float32").astype("float64") if x.dtype == "uint16" else x.astype("int32")


@pytest.mark.parametrize(
    ("features", "words"),
    [("+dotprod", {"sdot", "udot"}), ("+dotprod,+i8mm,+bf16", {"sdot", "udot", "usdot", "bfdot"})],
)
def test_products(features, words):
    here = machine(features)
    if here.missing:
        pytest.skip(f"{here.missing} is not installed")
    target, rng = Target(here.target), np.random.default_rng(0)
    functions, arrays, found = {}, {}, ""
    types = [*itertools.product(("int8", "uint8"), repeat=2), ("bfloat16", "bfloat16")]
    for n, ((left, right), size) in enumerate(itertools.product(types, SIZES)):
        m, columns, k = size
        func = default_schedule(product(*size, left, right), target).func.with_attr("global_symbol", f"kernel{n}")
        found += compile(func, target, f"kernel{n}").get_source("asm")
        a, b = operand(rng, (m, k), left), operand(rng, (k, columns), right)
        functions[f"kernel{n}"] = func
        arrays[f"kernel{n}"] = [a, b, np.full((m, columns), 77, "float32" if left == "bfloat16" else "int32")]
    assert {word for word in ("sdot", "udot", "usdot", "bfdot") if f"\t{word}\t" in found} == words
    run_module(compile(functions, target), here, arrays)
    for a, b, out in arrays.values():
        if out.dtype == "int32":
            np.testing.assert_array_equal(out, wide(a) @ wide(b))
        else:
            assert (np.abs(out - wide(a) @ wide(b)) <= np.abs(wide(a)) @ np.abs(wide(b)) * 2.0**-20).all()
