"""The trace: what is recorded, how it travels, and what a foreign one cannot do."""

import json

import numpy as np
import pytest

from tilewright import tir
from tilewright.schedule import Schedule, ScheduleError, Trace, TraceError, retarget
from tilewright.schedule.index_map import IndexMap
from tilewright.schedule.primitive import BLOCK_PARAMETERS, BUFFER_PARAMETERS, REGISTRY
from tilewright.tir import assert_structural_equal, const


def scheduled(func, seed=0):
    sch = Schedule(func, seed=seed)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, sch.sample_perfect_tile(i, n=2, max_innermost_factor=8))
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(i0, j0, k, i1, j1)
    sch.vectorize(j1)
    sch.annotate(block, "note", {"text": "%", "sizes": [1, 2.5, None, True]})
    steps = sch.sample_categorical([0, 16, 64], [0.2, 0.3, 0.5])
    sch.annotate(i0, "unroll", steps)
    return sch


def test_round_trip(matmul, replays):
    for seed in range(5):
        func = matmul(24, 17, 7)
        replays(scheduled(func, seed), func)


def test_text(matmul):
    sch = Schedule(matmul())
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    v0, v1 = sch.sample_perfect_tile(i, n=2, decision=[13, 1])
    i0, i1 = sch.split(i, factors=[v0, v1 * 2 + 1], preserve_unit_iters=False)
    sch.fuse(i0, i1)
    (only,) = sch.split(j, [17])
    sch.reorder(k, only)
    assert sch.trace.as_python().splitlines() == [
        "b0 = sch.get_block(name='C')",
        "l1, l2, l3 = sch.get_loops(block=b0)",
        "v4, v5 = sch.sample_perfect_tile(loop=l1, n=2, decision=[13, 1])",
        "l6, l7 = sch.split(loop=l1, factors=[v4, v5 * 2 + 1], preserve_unit_iters=False)",
        "l8 = sch.fuse(l6, l7)",
        "l9, = sch.split(loop=l2, factors=[17])",
        "sch.reorder(l3, l9)",
    ]
    assert sch.get(v1) == 1 and [sch.get(v) for v in (v0, v1)] == [13, 1]


def test_inputs_attributes_decisions(matmul):
    trace = scheduled(matmul(24, 17, 7)).trace
    split = next(inst for inst in trace if inst.name == "split")
    assert set(split.inputs) == {"loop", "factors"} and split.attrs["preserve_unit_iters"] is True
    assert len(split.output_names) == 2 and split.decision is None
    assert [inst.name for inst in trace.decisions] == ["sample_perfect_tile", "sample_categorical"]


def test_a_new_decision_replays(matmul):
    func = matmul(24, 17, 7)
    trace = scheduled(func).trace
    tile = next(iter(trace.decisions))
    sch = Schedule(func)
    trace.with_decision(tile, [3, 8]).apply_to_schedule(sch)
    i0 = sch.get_loops("C")[0]
    assert sch.get(i0).extent.value == 3
    with pytest.raises(ScheduleError, match="the decision \\[3, 7\\] makes 21 iterations, loop i has 24"):
        trace.with_decision(tile, [3, 7]).apply_to_schedule(Schedule(func))
    with pytest.raises(ValueError, match="get_block decides nothing"):
        trace.with_decision(0, [1])
    with pytest.raises(ValueError, match="not part of this trace"):
        trace.with_decision(scheduled(func).trace.insts[3], [1])


def test_decision_provider(matmul):
    func = matmul(24, 17, 7)
    trace = scheduled(func).trace
    sch = Schedule(func)
    seen = []

    def provide(inst, arguments, decision):
        seen.append((inst.name, decision))
        return [2, 12] if inst.name == "sample_perfect_tile" else 0

    outputs = trace.apply_to_schedule(sch, decision_provider=provide)
    assert len(seen) == 2 and sch.get(sch.get_loops("C")[0]).extent.value == 2
    assert sch.get(outputs[trace.insts[2].output_names[1]]) == 12


def test_replay_that_fails_changes_nothing(matmul):
    trace = scheduled(matmul(24, 17, 7)).trace
    sch = Schedule(matmul(25, 17, 7))
    func = sch.func
    with pytest.raises(ScheduleError):
        trace.apply_to_schedule(sch)
    assert sch.func is func and len(sch.trace) == 0


def test_replay_without_sampling_leaves_the_random_numbers_alone(matmul):
    func = matmul(24, 17, 7)
    trace = scheduled(func).trace
    a, b = Schedule(func, seed=3), Schedule(func, seed=3)
    trace.apply_to_schedule(a)
    with pytest.raises(ScheduleError):
        trace.apply_to_schedule(a)
    assert a.fork_seed() == b.fork_seed()


def test_simplified(matmul):
    func = matmul(24, 17, 7)
    sch = Schedule(func)
    block = sch.get_block("C")
    i, j, _ = sch.get_loops(block)
    sch.get_child_blocks(block)
    sch.sample_categorical([1, 2], [0.5, 0.5])
    sch.sample_perfect_tile(j, n=2)
    sch.parallel(i)
    short = sch.trace.simplified()
    assert [inst.name for inst in short] == ["get_block", "get_loops", "parallel"]
    again = Schedule(func)
    short.apply_to_schedule(again)
    assert_structural_equal(again.func, sch.func)


def test_postprocessing_may_be_left_out(matmul):
    func = matmul()
    sch = Schedule(func)
    i, j, _ = sch.get_loops("C")
    sch.parallel(i)
    sch.enter_postproc()
    sch.vectorize(j)
    again = Schedule(func)
    sch.trace.apply_to_schedule(again, remove_postproc=True)
    assert again.get(again.get_loops("C")[1]).kind == "serial"
    assert [inst.name for inst in sch.trace.simplified(remove_postproc=True)] == ["get_loops", "parallel"]
    assert [inst.name for inst in sch.trace.simplified()] == ["get_loops", "parallel", "enter_postproc", "vectorize"]


def test_append_and_pop(matmul):
    func = matmul(24, 17, 7)
    trace = scheduled(func).trace
    last = trace.pop()
    assert last.name == "annotate" and len(trace) == len(scheduled(func).trace) - 1
    trace.append(last)
    assert trace.insts[-1] is last
    tile = next(iter(trace.decisions))
    assert trace.get_decision(tile) == tile.decision and trace.get_decision(0) is None
    choice = list(trace.decisions)[1]
    trace.append(choice, 2)  # a choice that nobody uses
    assert trace.get_decision(len(trace) - 1) == 2 and trace.get_decision(choice) == choice.decision
    again = Schedule(func)
    Trace.apply_json_to_schedule(trace.as_json(), again)
    assert len(again.trace) == len(trace)
    empty = Trace()
    assert empty.pop() is None and empty.as_python() == ""
    with pytest.raises(ValueError, match="not part of this trace"):
        empty.get_decision(last)


def test_a_schedule_keeps_its_own_trace(matmul):
    sch = scheduled(matmul(24, 17, 7))
    length = len(sch.trace)
    sch.trace.pop()
    assert len(sch.trace) == length


def test_every_new_step_pastes_and_runs(agree, replays):
    """Text, JSON and the function agree for primitives with lists, names, maps and several outputs."""
    from tilewright import te

    A = te.placeholder((13, 8), name="A")
    B = te.compute((17, 8), lambda i, j: te.if_then_else(te.all(i >= 2, i < 15), A[i - 2, j], 0.0), name="B")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((17,), lambda i: te.sum(B[i, k], axis=k), name="C")
    D = te.compute((17,), lambda i: C[i] + A[0, 0], name="D")
    func = te.create_prim_func([A, D])
    sch = Schedule(func, seed=1)
    sch.decompose_padding("B", sch.get_loops("B")[0])
    sch.fuse_reduction_epilogue("C", "D")
    sch.pad_einsum("C", [4, 1])
    (i, _) = sch.get_loops("C")
    v = sch.sample_partitioned_tile(i, 2, partition_pos=1, innerpart_factor=5)
    i0, i1 = sch.split(i, v)
    parts = sch.loop_partition(sch.get_loops("B_pad_const")[0], [None, 1])
    assert len(parts) == 2
    sch.transform_block_layout("B", lambda i, j: (j, i))
    agree(func, sch.func)
    replays(sch, func)


GET = {"name": "get_block", "args": {"name": "C"}, "out": "b0"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{", "the trace is no JSON"),
        ("[1]", "this is not a trace"),
        ({"insts": []}, "this is not a trace"),
        ({"format": 0, "insts": []}, "the trace has format 0; this version reads format 1"),
        ({"format": 2, "insts": []}, "the trace has format 2; this version reads format 1"),
        ([[["GetBlock", [], ["C", "main"], ["b0"]]], []], "this trace is in TVM's JSON form"),
        ({"format": 1, "insts": {}}, "'insts' is a list"),
        ({"format": 1, "insts": [3]}, "instruction 0: an object with 'name'"),
        ({"format": 1, "insts": [{"name": "copy", "args": {}}]}, "'copy' is not a schedule primitive"),
        ({"format": 1, "insts": [{"name": "__init__", "args": {}}]}, "'__init__' is not a schedule primitive"),
        ({"format": 1, "insts": [{"name": "_apply", "args": {"step": 1}}]}, "'_apply' is not a schedule primitive"),
        ({"format": 1, "insts": [GET, {"name": "split", "args": {"rng": 1}}]}, "split has the arguments loop, factors"),
        ({"format": 1, "insts": [{**GET, "extra": 1}]}, "instruction 0: an object"),
        ({"format": 1, "insts": [{**GET, "out": "import os"}]}, "'out' is a name or a list of names"),
        ({"format": 1, "insts": [{**GET, "args": {"name": {"object": 1}}}]}, "is not something a trace may hold"),
        ({"format": 1, "insts": [{**GET, "args": {"name": "%a.b"}}]}, "'a.b' is not a name of an output"),
        (
            {"format": 1, "insts": [{**GET, "args": {"name": {"expr": "__import__('os').system('x')"}}}]},
            "is not part of a formula",
        ),
        ({"format": 1, "insts": [{**GET, "args": {"name": {"expr": "v0 ** 9"}}}]}, "is not part of a formula"),
        ({"format": 1, "insts": [{**GET, "args": {"name": {"expr": "1 //"}}}]}, "is not a formula"),
        ({"format": 1, "insts": [{**GET, "args": {"name": {"expr": "1 // 0"}}}]}, "divides by zero"),
        ({"format": 1, "insts": [{**GET, "args": {"name": {"expr": "9" * 1999}}}]}, "more than 64 bits"),
        (
            {"format": 1, "insts": [{**GET, "args": {"name": {"expr": "9" * 999 + "* -" + "9" * 900}}}]},
            "constant is too large",
        ),
        ({"format": 1, "insts": [{**GET, "args": {"name": {"expr": f"v0 * {2**63}"}}}]}, "is not a formula"),
        (
            {"format": 1, "insts": [{**GET, "args": {"name": {"expr": f"v0 + T.min({2**63 - 1} * 3, 4)"}}}]},
            "is not a formula",
        ),
        (
            {"format": 1, "insts": [{**GET, "args": {"name": {"expr": "(" * 101 + "1" + ")" * 101}}}]},
            "is not a formula",
        ),
        ({"format": 1, "insts": [{**GET, "args": {"name": {"const": ["handle", "0"]}}}]}, "is not a constant"),
        ({"format": 1, "insts": [{**GET, "args": {"name": {"const": ["int32", "x"]}}}]}, "is not a constant"),
        ({"format": 1, "insts": [{**GET, "args": 5}]}, "get_block has the arguments name, func_name, not 5"),
        ({"format": 1, "insts": [{"name": "reorder", "args": {"ordered_loops": 5}}]}, "of reorder are a list"),
    ],
)
def test_foreign_traces_are_refused(data, words):
    with pytest.raises(TraceError) as info:
        Trace.from_json(data)
    assert words in str(info.value)


def test_deeply_nested_json_is_refused():
    deep = "[" * 40 + "]" * 40
    text = json.dumps({"format": 1, "insts": [{**GET, "args": {"name": "@"}}]}).replace('"@"', deep)
    with pytest.raises(TraceError, match="nested too deeply"):
        Trace.from_json(text)


@pytest.mark.parametrize(
    ("insts", "words"),
    [
        ([{"name": "get_loops", "args": {"block": "%b0"}}], "b0 is not an output of an earlier instruction"),
        ([{"name": "get_block", "args": {}}], "the argument 'name' is missing"),
        ([{"name": "get_block", "args": {"name": 3}}], "the argument name must be a name, not 3"),
        ([GET, {"name": "split", "args": {"loop": "%b0", "factors": [1]}}], "instruction 1, split"),
        ([GET, {"name": "split", "args": {"loop": 7, "factors": 9}}], "instruction 1, split"),
        (
            [GET, {"name": "get_loops", "args": {"block": "%b0"}, "out": ["a", "b"]}],
            "instruction 1, get_loops, gives 3 outputs here, 2 when",
        ),
    ],
)
def test_traces_that_make_no_sense_are_refused(matmul, insts, words):
    sch = Schedule(matmul())
    with pytest.raises((TraceError, ScheduleError)) as info:
        Trace.from_json({"format": 1, "insts": insts}).apply_to_schedule(sch)
    assert words in str(info.value) or isinstance(info.value, ScheduleError)
    assert len(sch.trace) == 0


def test_infinite_numbers_travel(matmul, replays):
    func = matmul()
    sch = Schedule(func)
    sch.annotate("C", "limit", [float("inf"), -float("inf")])
    assert "Infinity" not in sch.trace.dumps()
    replays(sch, func)


def test_a_trace_of_instructions_and_decisions(chain):
    sch = Schedule(chain(16, 13))
    i, _ = sch.get_loops("B")
    sch.split(i, sch.sample_perfect_tile(i, n=2, decision=[4, 4]))
    trace = sch.trace
    (sample,) = [inst for inst in trace.insts if inst.kind.name == "sample_perfect_tile"]
    assert Trace(trace.insts, trace.decisions).as_json() == trace.as_json()
    other = Trace(trace.insts, {sample: [2, 8]})
    assert trace.get_decision(sample) == [4, 4]
    again = Schedule(chain(16, 13))
    other.apply_to_schedule(again)
    assert [again.get(lp).extent.value for lp in again.get_loops("B")] == [2, 8, 13]
    with pytest.raises(ValueError, match="sample_perfect_tile is not part of this trace"):
        Trace((), {sample: [2, 8]})


def test_every_parameter_that_takes_a_name_is_known():
    takes_text = {
        (name, p.name)
        for name, step in REGISTRY.items()
        for p in step.signature.parameters.values()
        if "str" in str(p.annotation) or p.name == "buffer"
    }
    words = {"ann_key", "buf_type", "dtype", "func_name", "storage_scope", "tensor_intrin", "thread_axis"}
    known = BLOCK_PARAMETERS | BUFFER_PARAMETERS.keys() | words
    assert {pair for pair in takes_text if pair[1] not in known} == {("get_block", "name"), ("get_symbol", "name")}


def test_a_trace_keeps_buffers_by_number(matmul):
    sch = Schedule(matmul())
    sch.cache_read("C", "B", "local")
    sch.transform_layout("C", "A", lambda i, j: (j, i))
    read, layout = [inst for inst in sch.trace.insts if inst.name != "get_block"]
    assert read.arguments["read_buffer_index"] == 1 and layout.arguments["buffer"] == ["read", 0]


def test_a_trace_of_another_program_is_not_translated(matmul, chain):
    sch = Schedule(matmul())
    sch.parallel(sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="which differs from .* in more than names"):
        retarget(sch.trace, matmul(), chain())
    trace = sch.trace
    assert retarget(trace, matmul(), matmul()) is trace


def steps_with_arguments():
    """Steps on ``chain(16, 16)`` with every kind of argument that a trace may hold."""

    def annotated(value):
        return lambda s: s.annotate(s.get_block("B"), "note", value)

    def sampled(s):
        return s.sample_categorical([2, 4], [0.5, 0.5])

    def tiled(by):
        return lambda i, j: (i // by, j, i % by)

    buffer = {"block": "B", "buffer": ("write", 0)}
    values = [3, 2.5, -3, "%x", "%%l0", "é\n'", True, None, [1, [2.5, "a"]], (1, None), {"a": {"b": []}}, {"expr": "v0"},
              {"const": ["a", "b"]}, np.int8(4), np.float32(1.5), np.bool_(True), const(5, "int64"), const(1.5, "float16"),
              const(True, "bool"), float("inf"), 2**70]  # fmt: skip
    return [
        *map(annotated, values),
        lambda s: s.annotate(s.get_loops("B")[0], "k", [sampled(s), {"a": sampled(s) * 2}]),
        lambda s: s.split(s.get_loops("B")[0], [None, sampled(s) * 2 + 1]),
        lambda s: s.split(s.get_loops("B")[0], [tir.op.min_(sampled(s), 3), None]),
        lambda s: s.split(s.get_loops("B")[0], factor=const(2, "int64")),
        lambda s: s.split(s.get_loops("B")[0], nparts=np.int64(2)),
        lambda s: s.loop_partition(s.get_loops("B")[0], (sampled(s), None)),
        lambda s: s.pad_einsum("C", [sampled(s) + 1, 1]),
        lambda s: s.storage_align("B", 0, -2, sampled(s), np.int32(3)),
        lambda s: s.cache_read(s.get_block("C"), "B", "local", [s.get_block("C")]),
        lambda s: s.cache_read("C", s.get(s.get_block("C")).reads[0].buffer, "local"),
        lambda s: s.cache_write("B", 0, "local", consumer_blocks="C"),
        lambda s: s.transform_layout(**buffer, index_map=tiled(sampled(s))),
        lambda s: s.transform_layout("B", s.get(s.get_block("B")).writes[0].buffer, lambda *i: i[::-1]),
        lambda s: s.transform_layout(**buffer, index_map=IndexMap.from_func(lambda i, j: (i, "AXIS_SEPARATOR", j))),
        lambda s: s.transform_layout(**buffer, index_map="lambda i, j: (i // 3, j, i % 3)", pad_value=float("-inf")),
        lambda s: s.transform_layout(**buffer, index_map=lambda i, j: (i // 3, j, i % 3), pad_value=const(1.5)),
        lambda s: s.set_axis_separator(**buffer, axis_separators=None),
        lambda s: s.set_axis_separator("B", s.func.buffers[0], [1]),
        lambda s: s.annotate_buffer_access("B", "A", "read", lambda i, j: [(i, i + 2), j]),
        lambda s: s.reindex("B", s.func.buffers[0], skip_simplify=True),
        lambda s: s.reorder_block_iter_var("B", (1, 0)),
        lambda s: s.fuse(*s.get_loops("B"), preserve_unit_iters=False),
        lambda s: s.compute_at("B", s.sample_compute_location("B", decision=-2)),
        lambda s: s.compute_at("B", s.sample_compute_location("B", decision=1), index=-2),
        lambda s: [s.compute_at("B", s.get_loops("C")[0]), s.blockize([s.get_block("B"), "C"])],
        lambda s: s.compute_inline(s.get_producers(s.get_child_blocks("root")[1])[0]),
    ]


@pytest.mark.parametrize("number", range(len(steps_with_arguments())))
def test_arguments_of_all_kinds_come_back(chain, replays, number):
    func = chain(16, 16)
    sch = Schedule(func, seed=3)
    steps_with_arguments()[number](sch)
    replays(sch, func)
    again = Schedule(func)
    Trace.from_json(sch.trace.simplified().dumps()).apply_to_schedule(again)
    assert_structural_equal(again.func, sch.func)


def test_a_buffer_is_found_by_identity(chain):
    sch = Schedule(chain(16, 16))
    stale = sch.get(sch.get_block("B")).writes[0].buffer
    sch.set_scope("B", 0, "local")
    with pytest.raises(ScheduleError, match="block 'C' does not access the given buffer B so"):
        sch.cache_read("C", stale, "shared")
