"""Rules on the ready operators at awkward sizes: candidates apply, and compute what the unscheduled function computes."""

import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import ModuleType

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import compile
from tilewright.codegen.machine.target import Target
from tilewright.schedule import Schedule, ScheduleError, Trace
from tilewright.te import ops
from tilewright.tir import Call, Evaluate, For, StringImm, Var, const
from tilewright.tir.interpret import interpret
from tilewright.tuner import (
    Costs,
    Decision,
    Group,
    MachineModel,
    Part,
    ScheduleRule,
    Space,
    default_rules,
    default_schedule,
    register_rule,
)  # fmt: skip
from tilewright.tuner.measure.inputs import compare, make_arguments, tolerance
from tilewright.tuner.rules import schedule_rule

WIDE = Target("llvm -mcpu=x86-64-v4 -num-cores=1")
PARALLEL = Target("llvm -mcpu=x86-64-v3 -num-cores=4")


def p(*shape, name="A", dtype="float32"):
    return te.placeholder(shape, name=name, dtype=dtype)


def func_of(build, *inputs):
    out = build(*inputs)
    return te.create_prim_func([*inputs, *(out if isinstance(out, (tuple, list)) else [out])])


def attention_like(q, k):
    return ops.softmax(ops.batch_matmul(q, k, transpose_b=True))


CASES = {
    "matmul": lambda: func_of(ops.matmul, p(13, 7), p(7, 17, name="B")),
    "matmul_tall": lambda: func_of(ops.matmul, p(33, 16), p(16, 1, name="B")),
    "matmul_int8": lambda: func_of(
        lambda a, b: ops.matmul(a, b, out_dtype="int32"), p(9, 16, dtype="int8"), p(16, 17, name="B", dtype="int8")
    ),
    "dense_bias_relu": lambda: func_of(
        lambda x, w, b: ops.relu(ops.dense(x, w, b)), p(5, 13), p(17, 13, name="W"), p(17, name="bias")
    ),
    "two_layers": lambda: func_of(
        lambda x, w, v: ops.dense(ops.relu(ops.dense(x, w)), v), p(3, 7), p(13, 7, name="W"), p(5, 13, name="V")
    ),
    "batch_matmul": lambda: func_of(ops.batch_matmul, p(3, 7, 5), p(3, 5, 17, name="B")),
    "attention_like": lambda: func_of(attention_like, p(2, 7, 4), p(2, 7, 4, name="K")),
    "conv_nchw": lambda: func_of(lambda x, w: ops.conv2d(x, w, padding=1), p(1, 3, 7, 9), p(5, 3, 3, 3, name="W")),
    "conv_nhwc_stride": lambda: func_of(
        lambda x, w: ops.conv2d(x, w, stride=2, padding=1, layout="NHWC"), p(1, 7, 7, 3), p(3, 3, 3, 17, name="W")
    ),
    "conv_1x1": lambda: func_of(lambda x, w: ops.conv2d(x, w), p(1, 4, 5, 5), p(7, 4, 1, 1, name="W")),
    "depthwise": lambda: func_of(
        lambda x, w: ops.depthwise_conv2d(x, w, padding=1), p(1, 3, 7, 7), p(3, 1, 3, 3, name="W")
    ),
    "max_pool": lambda: func_of(lambda x: ops.max_pool2d(x, 3, 2, 1), p(1, 3, 9, 9)),
    "softmax": lambda: func_of(ops.softmax, p(5, 17)),
    "softmax_long": lambda: func_of(ops.softmax, p(2, 3, 40)),
    "softmax_pairs_of_rows": lambda: func_of(ops.softmax, p(6, 17)),
    "softmax_images": lambda: func_of(lambda x: ops.softmax(x, axis=1), p(3, 40, 4)),
    "layer_norm_rows": lambda: func_of(ops.layer_norm, p(3, 8, 40), p(40, name="g"), p(40, name="b")),
    "sum_pairs_of_rows": lambda: func_of(lambda x: ops.sum(x, axis=1), p(10, 33)),
    "argmax_rows": lambda: func_of(lambda x: ops.argmax(x, axis=1), p(8, 40)),
    "log_softmax": lambda: func_of(ops.log_softmax, p(3, 33)),
    "layer_norm": lambda: func_of(ops.layer_norm, p(3, 17), p(17, name="g"), p(17, name="b")),
    "rms_norm": lambda: func_of(ops.rms_norm, p(3, 33), p(33, name="g")),
    "sum_rows": lambda: func_of(lambda x: ops.sum(x, axis=1), p(7, 33)),
    "sum_columns": lambda: func_of(lambda x: ops.sum(x, axis=0), p(13, 17)),
    "sum_all": lambda: func_of(ops.sum, p(7, 33)),
    "max_middle": lambda: func_of(lambda x: ops.max(x, axis=1), p(3, 7, 5)),
    "mean": lambda: func_of(lambda x: ops.mean(x, axis=-1), p(3, 40)),
    "argmax": lambda: func_of(lambda x: ops.argmax(x, axis=1), p(5, 13)),
    "transpose": lambda: func_of(ops.transpose, p(13, 17)),
    "add_broadcast_relu": lambda: func_of(lambda x, y: ops.relu(ops.add(x, y)), p(7, 17), p(17, name="B")),
    "scalar_output": lambda: func_of(lambda x: te.compute((1,), lambda i: x[i] * 2.0, name="B"), p(1)),
    "gelu_flat": lambda: func_of(ops.gelu, p(3, 5, 7)),
    "two_outputs": lambda: func_of(lambda x: [ops.relu(x), ops.exp(x)], p(7, 9)),
}


def run(func, target_func):
    arguments = make_arguments(func, 0)
    interpret(target_func, *arguments.values)
    assert arguments.damage() is None
    return [r.copy() for r in arguments.results()], [arguments.dtypes[n] for n in arguments.outputs]


def candidates(space, rng, count):
    """The prior's best of each sketch, and some at random."""
    for sketch in space.sketches:
        best = space.best_rows(sketch, 1)
        drawn = sketch.sample(4 * count, rng)
        picked = drawn[rng.permutation(len(drawn))[:count]]
        yield from ((sketch, tuple(map(int, row))) for row in (*best, *picked))


@pytest.mark.parametrize("target", [WIDE, PARALLEL], ids=["wide", "parallel"])
@pytest.mark.parametrize("case", CASES)
def test_candidates_compute_the_same(case, target):
    func = CASES[case]()
    reference, dtypes = run(func, func)
    machine = replace(MachineModel.of(target), fork_join_cycles=0.0)  # threads pay off however small the sizes
    space = Space(func, target, machine=machine)
    applied = 0
    for sketch, row in candidates(space, np.random.default_rng(0), 2):
        try:
            sch = space.schedule(sketch, row)
        except ScheduleError as error:
            raise AssertionError(f"{sketch.name} {sketch.decisions_of(row)}: {error}") from error
        results, _ = run(func, sch.func)
        difference = compare(results, reference, dtypes, tolerance(func))
        assert difference is None, f"{sketch.name} {sketch.decisions_of(row)}: {difference}\n{sch.func.script()}"
        applied += 1
    assert applied


@pytest.mark.parametrize("case", ["matmul", "softmax", "conv_nchw", "transpose", "two_layers"])
def test_a_default_exists_and_its_trace_replays(case):
    func = CASES[case]()
    sch = default_schedule(func, WIDE)
    again = Schedule(func)
    Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
    assert again.func.script() == sch.func.script()
    assert "T.vectorized" in sch.func.script()


def test_scoring_builds_no_schedule(monkeypatch):
    space = Space(CASES["conv_nchw"](), WIDE)
    monkeypatch.setattr(Schedule, "_apply", lambda *a: pytest.fail("a primitive was applied"))
    for sketch in space.sketches:
        features, prior = sketch.score(sketch.sample(500, np.random.default_rng(0)))
        assert features.shape[0] == len(prior) > 0
        assert np.isfinite(features).all() and (prior > 0).all()


def test_matmul_is_packed_tiled_and_kept_in_registers():
    func = func_of(ops.matmul, p(64, 64), p(64, 64, name="B"))
    space = Space(func, WIDE)
    sketch = next(s for s in space.sketches if s.name.endswith("v1_packed"))
    text = space.schedule(sketch, tuple(map(int, space.best_rows(sketch, 1)[0]))).func.script()
    for words in ('scope="local"', "B_global", "T.vectorized", "T.unroll", "_init", "_update"):
        assert words in text, words


@pytest.mark.parametrize(
    ("case", "fixed"),
    [
        (lambda: func_of(ops.matmul, p(29, 40), p(40, 150, name="B")), {"slice": 2}),
        (lambda: func_of(ops.matmul, p(29, 40), p(40, 150, name="B")), {"outer": 1, "slice": 0, "block": 4}),
        (
            lambda: func_of(
                lambda x, w: ops.relu(ops.conv2d(x, w, padding=1, layout="NHWC")),
                p(1, 7, 9, 16),
                p(3, 3, 16, 80, name="W"),
            ),
            {"1.outer": 1, "1.rows": 3},
        ),
    ],
    ids=["rows", "panels", "weights"],
)
def test_what_is_fetched_ahead(case, fixed):
    """Where a small cache makes it worth while: prefetches are there, and the numbers stay what they are, to the bit."""
    func, target = case(), Target("native -num-cores=1")
    space = Space(func, target, machine=replace(MachineModel.of(WIDE), l1_bytes=1 << 10, l2_bytes=3 << 10))
    sketch = next(s for s in space.sketches if s.name.endswith("_packed") and "_v0" not in s.name)
    rows, names = sketch.all_rows(), sketch.column_names
    ahead = names.index(next(n for n in names if n.endswith("ahead")))
    for name, value in {**fixed, names[ahead]: 1}.items():
        rows = rows[rows[:, names.index(name)] == value]
    rng = np.random.default_rng(0)
    for row in rows[rng.permutation(len(rows))[:3]]:
        outputs = []
        for on in (1, 0):
            row[ahead] = on
            sch = space.schedule(sketch, [int(x) for x in row])
            assert ("pragma_prefetch_next" in sch.func.script()) == on
            module = compile(sch, target, "fetching")
            assert ("@llvm.prefetch" in module.get_source("ll")) == on
            arguments = make_arguments(func, 0)
            module(*arguments.values)
            assert arguments.damage() is None
            outputs.append(arguments.results()[0].copy())
        np.testing.assert_array_equal(*outputs)


def test_the_bias_and_the_activation_join_the_tile():
    space = Space(CASES["dense_bias_relu"](), WIDE)
    assert space.inlined == ["dense_bias"]
    ((group, _),) = space.groups
    assert [b.name for b in group.blocks] == ["dense", "T_relu"]


def test_all_stages_of_softmax_share_the_row():
    space = Space(CASES["softmax"](), WIDE)
    ((group, parts),) = space.groups
    assert len(group.blocks) == 5 and len(parts) == 1


def test_masked_rows_fit_the_registers():
    space = Space(func_of(ops.matmul, p(64, 64), p(64, 64, name="B")), WIDE)
    for sketch in space.sketches:
        rows = sketch.all_rows()
        columns = dict(zip((d.name for d in sketch.decisions), rows.T, strict=True))
        assert (columns["rows"] * columns["vectors"] + columns["vectors"] < 32).all()


def test_threads_are_for_work_that_is_worth_them():
    small = Space(func_of(ops.matmul, p(13, 7), p(7, 17, name="B")), PARALLEL)
    large = Space(func_of(ops.matmul, p(256, 256), p(256, 256, name="B")), PARALLEL)
    texts = [s.schedule(s.sketches[0], tuple(map(int, s.best_rows(s.sketches[0], 1)[0]))).func.script()
             for s in (small, large)]  # fmt: skip
    assert ["T.parallel" in text for text in texts] == [False, True]


def test_padding_of_a_window_may_become_masks():
    names = [s.name for s in Space(CASES["depthwise"](), WIDE).sketches]
    assert [n.endswith("_masked") for n in names] == [False, True]
    assert not any(n.endswith("_masked") for n in [s.name for s in Space(conv_with_reuse(), WIDE).sketches])


def conv_with_reuse():
    return func_of(lambda x, w: ops.conv2d(x, w, padding=1), p(1, 8, 7, 9), p(16, 8, 3, 3, name="W"))


class Serial(Part):
    """Leaves the block as it is, its innermost loop unrolled by a factor to be chosen."""

    name = "serial"
    decisions = (Decision("factor", (1, 2, 4)),)

    def __init__(self, block):
        self.block = block

    def apply(self, sch, row):
        loop = sch.get_loops(sch.get_block(self.block.name))[-1]
        if row["factor"] > 1:
            sch.unroll(sch.split(loop, [None, row["factor"]])[1])

    def costs(self, columns, rows):
        return Costs(rows).put(core_cycles=self.block.flops * (1 + 1 / columns["factor"]))


class SerialRule(ScheduleRule):
    """Takes every element-wise block."""

    name = "serial"
    priority = 1

    def match(self, program, block, free):
        return None if block.is_reduction else Group(block, (block,))

    def parts(self, program, group, machine):
        return [Serial(group.anchor)]


def test_a_rule_of_ones_own():
    func = func_of(ops.exp, p(16))
    space = Space(func, WIDE, rules=[SerialRule(), *default_rules()])
    (sketch,) = space.sketches
    assert sketch.name == "serial"
    best = space.best_rows(sketch, 3)
    assert best.ravel().tolist() == [4, 2, 1]
    assert "T.unroll(4)" in space.schedule(sketch, best[0]).func.script()


def test_registered_rules_are_asked_and_replaced_by_name():
    before = default_rules()
    try:
        register_rule(SerialRule())
        register_rule(SerialRule())
        assert [r.name for r in default_rules()].count("serial") == 1
        assert Space(func_of(ops.exp, p(16)), WIDE).sketches[0].name == "serial"
    finally:
        schedule_rule._registered[:] = before


def test_a_broken_plugin_is_reported_and_left_out(monkeypatch):
    entries = [
        EntryPoint("good", "test_rules_plugin:SerialRule", "tilewright.rules"),
        EntryPoint("bad", "no_such_module:Rule", "tilewright.rules"),
    ]
    plugin = ModuleType("test_rules_plugin")
    plugin.SerialRule = SerialRule
    monkeypatch.setitem(sys.modules, "test_rules_plugin", plugin)
    monkeypatch.setattr(schedule_rule, "entry_points", lambda group: entries)
    before = default_rules()
    schedule_rule._load_plugins.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="'bad' of no_such_module:Rule is left out: ModuleNotFoundError"):
            assert "serial" in [r.name for r in default_rules()]
    finally:
        schedule_rule._registered[:] = before


@pytest.mark.parametrize("case", ["softmax_pairs_of_rows", "softmax_images", "layer_norm_rows", "sum_pairs_of_rows"])
def test_several_rows_at_a_time(case):
    func = CASES[case]()
    reference, dtypes = run(func, func)
    space, tried = Space(func, WIDE), {}
    for sketch in space.sketches:
        for row in sketch.sample(200, np.random.default_rng(0)):
            drawn = tuple(map(int, row))
            rows = [v for k, v in sketch.decisions_of(drawn).items() if k.split(".")[-1] == "rows"]
            tried.setdefault(max(rows, default=0), (sketch, drawn))
    assert 2 in tried or 4 in tried
    for sketch, row in tried.values():
        sch = space.schedule(sketch, row)
        assert compare(run(func, sch.func)[0], reference, dtypes, tolerance(func)) is None, sch.func.script()


def test_a_block_that_only_calls_a_function_has_a_default_schedule():
    """Its elements are those of its declared regions: it loads and stores nothing itself."""

    def copied(ins, outs):
        i = Var("i")
        call = Call("tir.call_extern", (StringImm("memcpy"), outs[0].data, ins[0].data, const(64, "int64")), "int32")
        return For(i, const(0), const(2), "serial", Evaluate(call))

    a = p(16)
    func = te.create_prim_func([a, te.extern((16,), [a], copied, name="B", dtype="float32")])
    x, y = np.arange(16, dtype="float32"), np.zeros(16, "float32")
    compile(default_schedule(func, Target("native -num-cores=1")), "native -num-cores=1")(x, y)
    np.testing.assert_array_equal(x, y)


ODD_ROWS = [((), (31, 1)), ((1,), (1, 33, 1)), ((5,), (31, 1)), ((3, 1), (1, 1)), ((1, 8), (17, 3)), ((), (1,))]


@pytest.mark.parametrize("scalar", [None, "constant", "sum"])
@pytest.mark.parametrize(("rows", "reduced"), ODD_ROWS)
def test_sums_along_axes_of_one_element(rows, reduced, scalar):
    """Row sums whose reduction has axes of one element, which read the result of a stage without axes."""
    a, z = p(*rows, *reduced), p(40, name="Z")
    ks = [te.reduce_axis((0, n), name=f"k{i}") for i, n in enumerate(reduced)]
    q = te.reduce_axis((0, 40), name="q")
    stages = {
        "constant": te.compute((), lambda: te.const(2.0), name="T"),
        "sum": te.compute((), lambda: te.sum(te.abs(z[q]), axis=q), name="T"),
    }
    factor = stages[scalar][()] if scalar else te.const(2.0)
    b = te.compute(
        rows,
        lambda *i: te.sum(te.abs(a[(*i, *ks)]) * factor, axis=ks),
        name="B",
    )
    c = te.compute((*rows, *reduced), lambda *i: a[i] - b[i[: len(rows)]], name="C")
    func = te.create_prim_func([a, z, c])
    reference, dtypes = run(func, func)
    space = Space(func, WIDE)
    for sketch, row in candidates(space, np.random.default_rng(0), 2):
        results, _ = run(func, space.schedule(sketch, row).func)
        assert compare(results, reference, dtypes, tolerance(func)) is None


def test_what_is_staged_or_packed_for_one_reader_is_not_for_others():
    """Two stages read the same operand: a transpose that copies a tile of it, and a product that packs a slice of it."""
    a, b = p(32, 48), p(32, 32, name="B")
    k = te.reduce_axis((0, 32), name="k")
    turned = te.compute((48, 32), lambda i, j: te.exp(a[j, i]), name="turned")
    product = te.compute((32, 48), lambda i, j: te.sum(b[i, k] * a[k, j], axis=k), name="product")
    func = te.create_prim_func([a, b, turned, product])
    reference, dtypes = run(func, func)
    space = Space(func, WIDE)
    sketch = next(s for s in space.sketches if "packed" in s.name)
    rows, names = sketch.sample(400, np.random.default_rng(0)), [n.split(".")[-1] for n in sketch.column_names]
    for fixed in ({"staged": 1}, {"staged": 1, "slice": 1}):
        chosen = rows[np.all([rows[:, names.index(n)] == v for n, v in fixed.items()], axis=0)][0]
        results, _ = run(func, space.schedule(sketch, chosen).func)
        assert compare(results, reference, dtypes, tolerance(func)) is None


@pytest.mark.parametrize(("shape", "axis"), [((3, 6, 5, 7), 1), ((3, 6, 5, 7), 0), ((4, 5, 9), 1), ((4, 3, 5, 16), 2)])
def test_axes_that_lie_as_one_are_vectors_of_a_running_sum(shape, axis):
    x = te.placeholder(shape, name="x")
    space = Space(te.create_prim_func([x, ops.cumsum(x, axis=axis)]), WIDE)
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for sketch in space.sketches:
        rows = sketch.all_rows()
        for row in rows[:: max(1, len(rows) // 6)]:
            out = np.zeros(shape, np.float32)
            interpret(space.schedule(sketch, row).func, a, out)
            np.testing.assert_allclose(out, np.cumsum(a, axis=axis), rtol=1e-5, atol=1e-6)
    inner = int(np.prod(shape[axis + 1 :]))
    assert f"T.vectorized({min(inner, 16)})" in space.schedule(sketch, rows[0]).func.script()
