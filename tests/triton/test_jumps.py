"""``break``, ``continue`` and ``return`` in kernels: the form that they are brought into, and what is refused."""

import ast

import numpy as np
import pytest

import tilewright.triton as triton
import tilewright.triton.language as tl
from tilewright.triton.jumps import without_jumps

from .block_kernels import left_early


def rewritten(source):
    return ast.unparse(without_jumps(ast.parse(source).body)[0])


def run(body, **names):
    """What Python makes of a function's body, with the list of calls of ``f``."""
    calls = []
    space = {}
    exec("def made(f, a, b, c):\n" + "\n".join("    " + line for line in body.splitlines()), space)
    return space["made"](lambda x: calls.append(x), **names), calls


BODIES = [
    "if a:\n    return 1\nf(1)\nreturn 2",
    "if a:\n    if b:\n        return 1\n    f(1)\nelif c:\n    f(2)\nelse:\n    return 5\nf(3)\nreturn 2",
    "if a:\n    if b:\n        return 1\n    f(1)\nf(3)",
    "for k in range(5):\n    if k == 3 and a:\n        break\n    f(k)\nf(9)",
    "for k in range(5):\n    if b:\n        if k % 2:\n            continue\n        f(7)\n    f(k)\n    if k == 3:\n        return k\nf(9)",
    "k = 0\nwhile k < 7:\n    k += 1\n    for j in range(k):\n        if j == 2 and a:\n            break\n        if j == 3:\n            continue\n"
    "        if j == 5:\n            return j\n        f(j)\n    f(k)\n    if k == 6 and b:\n        break\nif c:\n    return -1\nreturn k",
    "while True:\n    f(0)\n    while a:\n        if b:\n            break\n        return 3\n    if c:\n        return\n    break\nf(1)",
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_rewritten_statements_do_the_same(body):
    made = rewritten(body)
    # Python's loops do not ask the flags, so that each flagged loop gets them back as a break
    tree, _ = without_jumps(ast.parse(body).body)
    for loop in [n for s in tree for n in ast.walk(s) if isinstance(n, (ast.For, ast.While))]:
        if getattr(loop, "flag", None):
            loop.body.append(ast.If(ast.Name(loop.flag, ast.Load()), [ast.Break()], []))
    runs = ast.unparse(ast.fix_missing_locations(ast.Module(tree, [])))
    assert "break" not in made and "continue" not in made and made.count("return ") <= 1
    for n in range(8):
        names = dict(zip("abc", map(bool, (n & 1, n & 2, n & 4)), strict=True))
        assert run(runs, **names) == run(body, **names)


def test_functions_without_jumps_stay_as_they_are():
    tree = ast.parse("x = a\nif x:\n    x = 1\nreturn x").body
    assert without_jumps(tree)[0] == tree


def test_loop_with_break_stops():
    kernel = left_early.warmup(*[np.zeros(64, t) for t in ("f4", "f4", "i4")], 64, 1.0, BLOCK=8, STOP=1, grid=(1,))
    assert "while goes[0]" in kernel.script()


@triton.jit
def found_at(x_ptr, n):
    for k in range(n):
        if tl.load(x_ptr + k) > 3:
            return k
    return -1


@triton.jit
def value_from_a_loop(x_ptr, n):
    tl.store(x_ptr, found_at(x_ptr, n))


@triton.jit
def value_from_an_unrolled_loop(x_ptr, N: tl.constexpr):
    tl.store(x_ptr, largest_power(N))


@triton.jit
def largest_power(N: tl.constexpr):
    for k in tl.static_range(10):
        if 2 << k > N:
            return 1 << k
    return 0


@triton.jit
def sometimes(n):
    if n > 3:
        return 1.0


@triton.jit
def value_missing(x_ptr, n):
    tl.store(x_ptr, sometimes(n))


each = tl.static_range


@triton.jit
def unrolled_by_another_name(x_ptr):
    for k in each(4):
        if tl.load(x_ptr + k) > 3:
            break


@triton.jit
def left_by_a_block(x_ptr, n):
    for _ in range(n):
        if tl.load(x_ptr + tl.arange(0, 4)) > 3:
            break


@pytest.mark.parametrize(
    "kernel, message",
    [
        (value_from_a_loop, r"a return of a value in a loop[^$]*return k\n"),
        (value_missing, "result is 1.0 or None by a condition that is computed"),
        (left_by_a_block, r"if asks a single value, not bool\[4\]"),
    ],
)
def test_what_is_refused(kernel, message):
    with pytest.raises(triton.KernelError, match=message):
        kernel[(1,)](np.zeros(8, np.float32), 4)


def test_unrolled_loops_under_another_name():
    with pytest.raises(triton.KernelError, match="break by a condition that is computed"):
        unrolled_by_another_name[(1,)](np.zeros(8, np.float32))


def test_constant_return_from_an_unrolled_loop():
    x = np.zeros(1, np.float32)
    value_from_an_unrolled_loop[(1,)](x, N=100)
    assert x[0] == 64
