"""Random affine programs: loops that are accepted as parallel, vectorized or reordered really may be.

The oracle runs every such loop backwards. ``python tests/schedule/test_kinds_random.py 1000 7`` runs a thousand
programs from seed 7.
"""

import sys

import numpy as np
import pytest

from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import For, interpret, parse
from tilewright.tir.analysis import dependence
from tilewright.tir.walk import pre_order, substitute, transform

SIZE = 80


def random_index(rng, names):
    """An index below SIZE over three loops of at most 4 iterations."""
    kind = rng.integers(6)
    a, b, c = (int(x) for x in rng.choice([0, 0, 1, 1, 2, 4, 8], size=3))
    plain = f"{a} * {names[0]} + {b} * {names[1]} + {c} * {names[2]} + {int(rng.integers(0, 6))}"
    if kind < 3:
        return plain
    d = int(rng.choice([2, 3, 4]))
    flat = f"({names[0]} * 4 + {names[1]})"
    return [f"{flat} // {d} * {d} + {names[2]}", f"{flat} % {d} + {names[2]} * 4", f"{plain} // {d}"][kind - 3]


def random_text(rng):
    extents = [int(x) for x in rng.choice([1, 2, 3, 4], size=3)]
    axes = ["vi", "vj", "vk"]
    lines = [
        "@T.prim_func",
        f"def main(X: T.Buffer(({SIZE},), 'float32'), Y: T.Buffer(({SIZE},), 'float32'),"
        f" Z: T.Buffer(({SIZE}, {SIZE}), 'float32')):",
        f"    for i, j, k in T.grid({', '.join(map(str, extents))}):",
    ]
    for number in range(int(rng.integers(1, 3))):

        def element(buffers):
            name = str(rng.choice(buffers))
            if name == "Z":
                return f"Z[{random_index(rng, axes)}, {random_index(rng, axes)}]"
            return f"{name}[{random_index(rng, axes)}]"

        lines += [
            f"        with T.block('S{number}'):",
            "            vi, vj, vk = T.axis.remap('SSS', [i, j, k])",
            f"            {element(['X', 'Z', 'Z'])} = {element(['X', 'Y', 'Z'])} + {element(['Y', 'X'])} * T.float32(3)",
        ]
    return "\n".join(lines)


def backwards(func):
    """``func`` with its parallel and vectorized loops run from the last iteration to the first."""

    def post(n):
        if isinstance(n, For) and n.kind in ("parallel", "vectorized"):
            return n.with_(kind="serial", body=substitute(n.body, {n.loop_var: n.extent - 1 - n.loop_var}))
        return None

    return transform(func, post=post)


def run(func, seed=0):
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-3, 4, size=s).astype("float32") for s in ((SIZE,), (SIZE,), (SIZE, SIZE))]
    interpret(func, *arrays)
    return arrays


def try_one(seed):
    """How many steps were accepted; AssertionError when one of them changed the result."""
    rng = np.random.default_rng(seed)
    func = parse(random_text(rng))
    expected = run(func)
    accepted = 0
    for _ in range(3):
        sch = Schedule(func)
        loops = sch.get_loops("S0")
        for _ in range(int(rng.integers(0, 3))):
            loops = sch.get_loops("S0")
            at = int(rng.integers(len(loops)))
            try:
                if rng.random() < 0.5 and at + 1 < len(loops):
                    sch.fuse(loops[at], loops[at + 1])
                else:
                    sch.split(loops[at], [None, int(rng.choice([2, 3]))])
            except ScheduleError:
                pass
        loops = sch.get_loops("S0")
        step = str(rng.choice(["parallel", "vectorize", "reorder"]))
        try:
            if step == "reorder":
                sch.reorder(*[loops[n] for n in rng.permutation(len(loops))])
            else:
                getattr(sch, step)(loops[int(rng.integers(len(loops)))])
        except ScheduleError:
            continue
        accepted += 1
        for a, b in zip(expected, run(backwards(sch.func)), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}, {step}:\n{sch.func}")
    return accepted


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_accepted_steps_are_right(seed):
    assert sum(try_one(n) for n in range(seed, seed + 20)) > 0


def test_a_planted_bug_is_caught(monkeypatch):
    """With a solver that overlooks what else an index holds, some program goes wrong."""

    def careless(analyzer, v, w, equations, lines):
        return any(n is v for f, _, _, _ in equations for n in pre_order(f))

    monkeypatch.setattr(dependence, "_solves", careless)
    with pytest.raises(AssertionError):
        for seed in range(200):
            try_one(seed)


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2])
    total = sum(try_one(seed) for seed in range(first, first + count))
    print(f"{count} programs, {total} steps accepted, all of them right")
