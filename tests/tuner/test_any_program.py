"""Programs that no recipe names: each gets candidates, every candidate is right, and the default beats plain loops."""

import importlib
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import compile
from tilewright.codegen.lower import lower
from tilewright.codegen.machine.target import Target
from tilewright.schedule import ScheduleError
from tilewright.tir import IntImm, interpret
from tilewright.tir.analysis.access import accesses_below
from tilewright.tir.stmt import Block
from tilewright.tir.walk import pre_order
from tilewright.tuner import MachineModel, Space, choose_default
from tilewright.tuner.rules.fused_stages import FusedPart, siblings_of
from tilewright.tuner.space.sketch import RowTable

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
programs = importlib.import_module("affine_programs")
compilers = importlib.import_module("compilers")

WIDE = Target("llvm -mcpu=x86-64-v3 -num-cores=1")
PARALLEL = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
MACHINE = MachineModel(64, 32, 1, 48 << 10, 1 << 20, 32 << 20)


def small(name):
    return programs.PROGRAMS[name](*programs.SIZES[name][0])


def space_of(name, number=0, target=WIDE, **options):
    return Space(programs.PROGRAMS[name](*programs.SIZES[name][number]).func, target, **options)


def check(program, func, target):
    """Runs ``func`` and compares its results with NumPy's."""
    expected = program.expected()
    outputs = [np.full(e.shape, np.nan if e.dtype.kind == "f" else 7, _narrow(e)) for e in expected]
    compile(func, target, "any")(*program.inputs, *outputs)
    for result, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-4)


def _narrow(array):
    return "float32" if array.dtype.kind == "f" else array.dtype


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_candidates_compute_what_numpy_does(name):
    program, rng = small(name), np.random.default_rng(0)
    space = Space(program.func, PARALLEL)
    made = choose_default(space)
    assert made.parts and not made.left
    check(program, made.schedule.func, PARALLEL)
    fused = [s for s in space.sketches if "_fused" in s.name]
    for sketch in (*[s for s in space.sketches if s not in fused][:2], *fused[:2]):
        (row, *_) = sketch.sample(1, rng)
        check(program, space.schedule(sketch, row).func, PARALLEL)


def memory_instructions(func):
    """How many loads and stores run, those of a vector counted once."""
    lowered = lower(func, WIDE, "any").func
    return sum(math.prod(_trips(loop) for loop in a.around.loops) for a in accesses_below(lowered.body).elements)


def _trips(loop):
    return loop.extent.value if isinstance(loop.extent, IntImm) else 1


@pytest.mark.parametrize("name", [n for n in programs.PROGRAMS if n not in ("lu_panel", "triangular_solve")])
def test_the_default_takes_fewer_instructions_than_plain_loops(name):
    """Loads and stores that run, those of a vector counted once."""
    func = small(name).func
    made = choose_default(Space(func, WIDE))
    assert memory_instructions(made.schedule.func) < 0.5 * memory_instructions(func)


@pytest.mark.parametrize("name", ["jacobi_2d", "unsharp", "harris", "masked_attention"])
def test_fused_stages_are_predicted_to_be_faster(name):
    """At sizes beyond the second-level cache; fewer bytes come from behind it."""
    space = space_of(name, 1, machine=MACHINE)

    def bytes_of(sketch):
        rows = sketch.best_rows(1)
        columns = [t.part.costs(t.columns(rows[:, p]), 1) for t, p in sketch._placed()]
        return sum(float(c["l3_bytes"][0]) for c in columns), float(sketch.score(rows)[1][0])

    fused = min(bytes_of(s) for s in space.sketches if s.name.endswith("_fused"))
    apart = min(bytes_of(s) for s in space.sketches if "_fused" not in s.name)
    assert fused[0] < 0.8 * apart[0] and fused[1] < apart[1]


@pytest.mark.parametrize(
    "name, groups",
    [
        ("blur", [["blur_x", "blur_y"]]),
        ("jacobi_3d", [["sweep0", "sweep1"]]),
        ("unsharp", [["gray", "rows", "ratio", "sharp"]]),
        ("three_products", [["right", "both"]]),
        ("masked_attention", [["dots", "scores", "most", "weight", "mixed", "total", "attended"]]),
    ],
)
def test_stages_that_are_fused(name, groups):
    (variant,) = [v for v in space_of(name).variants if v.suffix == "_fused"]
    joined = [[b.name for b in g.blocks] for g, t in variant.groups if t[0].rule == "fused_stages"]
    assert [sorted(g) for g in joined] == [sorted(g) for g in groups]


@pytest.mark.parametrize("name", ["blur", "unsharp", "masked_attention"])
def test_a_part_that_several_rules_offer_costs_once(name, monkeypatch):
    costed = []
    costs = RowTable.seconds.func
    monkeypatch.setattr(RowTable.seconds, "func", lambda table: (costed.append(table.part), costs(table))[1])
    space = space_of(name)
    groups = [tuple(part.group.blocks) for part in costed if isinstance(part, FusedPart)]
    assert groups and len(set(groups)) == len(groups)
    for variant in space.variants:
        for group, tables in variant.groups:
            assert all(table.rule in {rule.name for rule in space.rules} for table in tables), group


def test_circular_buffers_are_predicted_to_save_work_and_traffic():
    """Eight sweeps over 1500 × 1500: 2.5 and 4.0 ms of processor time were measured."""
    ((_, table),) = rolled(space_of("jacobi_2d", 1, machine=MACHINE))[:1]
    part, rows = table.part, table.rows
    costs, kept = part.costs(table.columns(rows), len(rows)), table.columns(rows)["rolled"] > 0
    seconds = table.seconds
    best, apart = (np.flatnonzero(side)[seconds[side].argmin()] for side in (kept, ~kept))
    assert seconds[best] < seconds[apart] and costs["core_cycles"][best] < 0.8 * costs["core_cycles"][apart]
    assert costs["waste"][best] < 1.05 < costs["waste"][apart]


def test_threads_do_not_share_circular_buffers():
    assert not rolled(space_of("jacobi_2d", 1, PARALLEL))


def twice_sharpened(height=17, width=13):
    """The exponentials of second differences, twice."""

    def sharpened(x, name):
        h, w = (extent.value - 2 for extent in x.shape)
        return te.compute((h, w), lambda i, j: te.exp(x[i, j] - x[i + 1, j + 1] * 2.0 + x[i + 2, j + 2]), name=name)

    a = te.placeholder((height, width), name="A")
    func = te.create_prim_func([a, sharpened(sharpened(a, "once"), "twice")])

    def reference(x):
        for _ in range(2):
            x = np.exp(x[:-2, :-2] - 2 * x[1:-1, 1:-1] + x[2:, 2:])
        return x

    return programs.Program(func, (np.random.default_rng(0).random((height, width), "float32"),), reference)


def rolled(space):
    """The tables of parts that may roll, each with its variant."""
    tables = [(v, t) for v in space.variants for _, some in v.groups for t in some]
    return [(v, t) for v, t in tables if any(d.name == "rolled" for d in t.part.decisions)]


CHAINS = {
    "jacobi_2d": ((3, 13, 17), (4, 17, 16)),
    "jacobi_3d": ((3, 13, 7, 5),),
    "unsharp": ((13, 17),),
    "harris": ((13, 16),),
    "twice_sharpened": ((17, 13), (16, 7), (9, 8)),
}


@pytest.mark.parametrize(("name", "sizes"), [(name, sizes) for name, all_ in CHAINS.items() for sizes in all_])
def test_chains_of_stencils_keep_a_few_rows(name, sizes):
    """What the next tile needs again stays in circular buffers. The interpreter runs the schedule."""
    program = (twice_sharpened if name == "twice_sharpened" else programs.PROGRAMS[name])(*sizes)
    space, seen = Space(program.func, WIDE), 0
    for variant, table in rolled(space):
        found = [table.decisions(row) for row in table.rows]
        for tile in {d["tile0"]: d for d in found if d["rolled"]}.values():
            sch = variant.base.copy()
            space.apply(sch, table, tile)
            stages = table.part.stages
            allocated = {b.name: b for n in pre_order(sch.func.body) if isinstance(n, Block) for b in n.alloc_buffers}
            for stage in stages.rolling:
                (span,) = [s for s in stages.regions[stage].values() if stages.tiled[0] in s.factors]
                rows = tile["tile0"] + span.hi - span.lo
                assert rows in [extent.value for extent in allocated[stage.stores[0].buffer.name].shape]
            outputs = [np.full(e.shape, np.nan, "float32") for e in program.expected()]
            interpret(sch.func, *program.inputs, *outputs)
            for result, wanted in zip(outputs, program.expected(), strict=True):
                np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-4)
            seen += 1
    assert seen


def two_products(n=17):
    """``A B`` and ``A C``."""
    a, b, c = (te.placeholder((n, n), name=x) for x in "ABC")
    axes = [te.reduce_axis((0, n), name="k") for _ in "BC"]
    outs = [
        te.compute((n, n), lambda i, j, k=k, o=o: te.sum(a[i, k] * o[k, j], axis=k), name=f"by_{o.op.name}")
        for k, o in zip(axes, (b, c), strict=True)
    ]
    return [a, b, c, *outs], lambda a, b, c: (a @ b, a @ c)


def sums_and_maxima(n=33):
    """Along rows: two kinds of reductions."""
    a = te.placeholder((13, n), name="A")
    k, m = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="m")
    outs = [
        te.compute((13,), lambda i: te.sum(a[i, k], axis=k), name="sums"),
        te.compute((13,), lambda i: te.max(a[i, m], axis=m), name="maxima"),
    ]
    return [a, *outs], lambda a: (a.sum(1), a.max(1))


def wavelet(n=19):
    """The four bands of Haar's wavelet; what two of them share is computed between the others."""
    x = te.placeholder((2 * n, 2 * n), name="x")
    outs = []
    for name, sign in (("low", 1.0), ("high", -1.0)):
        half = te.compute(
            (2 * n, n), lambda i, j, sign=sign: (x[i, 2 * j] + sign * x[i, 2 * j + 1]) * 0.5, name=f"half_{name}"
        )
        outs += [
            te.compute((n, n), lambda i, j, half=half, s=s: half[2 * i, j] + s * half[2 * i + 1, j], name=f"{name}{number}")
            for number, s in enumerate((1.0, -1.0))
        ]  # fmt: skip

    def reference(x):
        halves = [(x[:, ::2] + sign * x[:, 1::2]) * 0.5 for sign in (1.0, -1.0)]
        return [half[::2] + s * half[1::2] for half in halves for s in (1.0, -1.0)]

    return [x, *outs], reference


def butterflies(n=64):
    """A step of Fourier's transform: four results of values that are turned once."""
    a, b = (te.placeholder((9, 2, n), name=x) for x in "AB")
    c, s = (te.placeholder((n,), name=x) for x in "CS")
    real = te.compute((9, n), lambda i, j: a[i, 1, j] * c[j] - b[i, 1, j] * s[j], name="real")
    imaginary = te.compute((9, n), lambda i, j: a[i, 1, j] * s[j] + b[i, 1, j] * c[j], name="imaginary")
    outs = [
        te.compute((9, n), lambda i, j, v=v, t=t, sign=sign: v[i, 0, j] + sign * t[i, j], name=f"out{number}")
        for number, (v, t, sign) in enumerate([(a, real, 1.0), (b, imaginary, 1.0), (a, real, -1.0), (b, imaginary, -1.0)])
    ]  # fmt: skip

    def reference(a, b, c, s):
        turned = (a[:, 1] + 1j * b[:, 1]) * (c + 1j * s)
        first = a[:, 0] + 1j * b[:, 0]
        both = first + turned, first - turned
        return [part for whole in both for part in (whole.real, whole.imag)]

    return [a, b, c, s, *outs], reference


def momentum(n=8, m=48):
    """An optimizer's step: the second result is made of the first one, the third of both."""
    g, v, x = (te.placeholder((n, m), name=name) for name in "gvx")
    speed = te.compute((n, m), lambda i, j: v[i, j] * 0.9 + g[i, j], name="speed")
    place = te.compute((n, m), lambda i, j: x[i, j] - 0.1 * speed[i, j], name="place")
    moved = te.compute((n, m), lambda i, j: place[i, j] * speed[i, j], name="moved")

    def reference(g, v, x):
        speed = v * 0.9 + g
        place = x - 0.1 * speed
        return speed, place, place * speed

    return [g, v, x, speed, place, moved], reference


def gradient(n=37):
    """Two derivatives of a smoothed row, the second of which has a producer of its own."""
    a = te.placeholder((7, n), name="A")
    soft = te.compute((7, n - 2), lambda i, j: (a[i, j] + a[i, j + 1] * 2.0 + a[i, j + 2]) * 0.25, name="soft")
    left = te.compute((7, n - 4), lambda i, j: soft[i, j + 2] - soft[i, j], name="left")
    wide = te.compute((7, n - 3), lambda i, j: te.exp(te.exp(soft[i, j] * soft[i, j + 1])), name="wide")
    right = te.compute((7, n - 4), lambda i, j: wide[i, j + 1] - wide[i, j], name="right")

    def reference(a):
        s = (a[:, :-2] + 2 * a[:, 1:-1] + a[:, 2:]) / 4
        w = np.exp(np.exp(s[:, :-1] * s[:, 1:]))
        return s[:, 2:] - s[:, :-2], w[:, 1:] - w[:, :-1]

    return [a, left, right], reference


@pytest.mark.parametrize(
    ("make", "together"),
    [
        (two_products, ["by_B", "by_C"]),
        (sums_and_maxima, ["maxima", "sums"]),
        (gradient, ["left", "right"]),
        (wavelet, ["low0", "low1", "high0", "high1", "half_high"]),
        (butterflies, ["real", "imaginary", "out0", "out1", "out2", "out3"]),
        (momentum, ["speed", "place", "moved"]),
    ],
)
def test_results_of_the_same_data_share_their_tiles(make, together):
    tensors, reference = make()
    func = te.create_prim_func(tensors)
    inputs = [np.random.default_rng(0).random(t.shape, "float32") for t in tensors if not t.op.input_tensors]
    space, found = Space(func, PARALLEL), 0
    for variant in space.variants:
        for group, tables in variant.groups:
            if tables[0].rule != "fused_siblings":
                continue
            assert set(together) <= {b.name for b in group.blocks}
            for row in tables[0].rows[:: max(1, len(tables[0].rows) // 5)]:
                sch = variant.base.copy()
                try:
                    space.apply(sch, tables[0], tables[0].decisions(row))
                except ScheduleError:
                    continue
                found += 1
                outputs = compile(sch.func, PARALLEL)(*inputs)
                for result, wanted in zip(outputs, reference(*inputs), strict=True):
                    np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-4)
    assert found >= 3


def test_a_result_that_is_read_elsewhere_has_tiles_of_its_own():
    """``shifted`` reads the first result at other places than its own, so the tiles cannot be the same."""
    a = te.placeholder((64, 64), name="A")
    first = te.compute((64, 64), lambda i, j: a[i, j] * 2.0, name="first")
    shifted = te.compute((64, 64), lambda i, j: first[i, 63 - j] + a[i, j], name="shifted")
    program = Space(te.create_prim_func([a, first, shifted]), WIDE).program
    assert siblings_of(program, program.blocks[-1], program.blocks) == []


@pytest.mark.parametrize("make", [butterflies, lambda: wavelet(64)])
def test_values_of_small_tiles_stay_in_registers(make):
    tensors, reference = make()
    target = Target("llvm -mcpu=x86-64-v3 -num-cores=1")
    sch = choose_default(Space(te.create_prim_func(tensors), target)).schedule
    module = compile(sch.func, target)
    assert re.search(r"vmov[a-z]*ps\s+[^,]*\(%rsp", module.code.asm()) is None
    assert "T.unroll" in sch.func.script()


@pytest.mark.parametrize(("rows", "last", "apart"), [(100, te.log, True), (100, te.fabs, False), (8, te.log, False)])
def test_costly_numbers_of_rows_are_computed_in_vectors(rows, last, apart):
    a = te.placeholder((rows, 30), name="A")
    k = te.reduce_axis((0, 30), name="k")
    sums = te.compute((rows,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), name="sums")
    ends = te.compute((rows,), lambda i: last(sums[i] + 1.0), name="ends")
    space = Space(te.create_prim_func([a, ends]), WIDE)
    groups = [
        [b.name for b in group.blocks]
        for group, tables in space.variants[0].groups
        if tables[0].rule == "row_reduction"
    ]
    assert groups == ([["sums"]] if apart else [["sums", "ends"]])
    data = np.random.default_rng(0).random((rows, 30), "float32")
    result = compile(choose_default(space).schedule.func, WIDE)(data)
    wanted = {te.log: np.log, te.fabs: np.abs}[last]((data * data).sum(1) + 1)
    np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_rows_of_another_mode_are_not_shown(tmp_path):
    """Of the rows of a file, those of the same trials, sizes and clock; one that does not say is measured anew."""
    mode = {"trials": 0, "small": False, "busy": True}
    rows = [
        {"program": "blur", **mode},
        {"program": "harris", **mode, "small": True},
        {"program": "camera", **mode, "trials": 32},
        {"program": "gemver", **mode, "busy": False},
        {"program": "viterbi", "trials": 0},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert compilers.kept_rows(path, mode) == {"blur": rows[0]}
    assert compilers.kept_rows(path, compilers.mode_of({**mode, "small": True, "rounds": 3})) == {"harris": rows[1]}
    assert compilers.kept_rows(None, mode) == compilers.kept_rows(tmp_path / "none", mode) == {}
