"""Any primitive called with arguments that make no sense says so: a ScheduleError, and the schedule is as it was."""

import pickle

import numpy as np
import pytest

from tilewright.schedule import Schedule, ScheduleError
from tilewright.schedule.primitive import REGISTRY
from tilewright.tir import Var, parse, verify
from tilewright.tir.expr import const

PROGRAM = parse("""
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32"), D: T.Buffer((16, 16), "float32")):
    B = T.alloc_buffer((16, 16))
    for i, j in T.grid(16, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j, k in T.grid(16, 16, 16):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + B[vi, vk] * A[vk, vj]
    for i, j in T.grid(16, 16):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] + T.float32(1)
""")


class Loop:
    """The loop number ``number`` above a block, to be asked for in each schedule."""

    def __init__(self, block, number):
        self.of = lambda sch: sch.get_loops(block)[number]


L0, L1 = Loop("B", 0), Loop("B", 1)
C0, C2, D0 = Loop("C", 0), Loop("C", 2), Loop("D", 0)


def swap(i, j):
    return j, i


def places(i, j):
    return (i, i + 1), (j, j + 1)


SENSIBLE = {
    "add_unit_loop": ("B",),
    "annotate": ("B", "pragma_x", 1),
    "annotate_buffer_access": ("B", 0, "read", places),
    "bind": (L0, "blockIdx.x"),
    "blockize": (L1, True),
    "cache_index": ("B", "global", 0),
    "cache_inplace": ("B", 0, "local"),
    "cache_read": ("B", 0, "local", ["B"]),
    "cache_write": ("B", 0, "local", ["C"]),
    "call_blas": ("C",),
    "compute_at": ("B", C0, False, -1),
    "compute_inline": ("B",),
    "decompose_padding": ("B", L0),
    "decompose_reduction": ("C", C2),
    "enter_postproc": (),
    "expand_offsets": ("C",),
    "fuse": (L0, L1),
    "fuse_reduction_epilogue": ("C", "D"),
    "get_block": ("B", None),
    "get_child_blocks": ("root",),
    "get_consumers": ("B",),
    "get_loops": ("B",),
    "get_output_blocks": ("root",),
    "get_producers": ("C",),
    "get_symbol": ("n",),
    "loop_partition": (L0, [4, None], True),
    "merge": (L0, D0),
    "pad_before_offset": ("B",),
    "pad_einsum": ("C", [1, 1, 1]),
    "online_softmax": ("D", 2, 128),
    "pad_reduction": ("C",),
    "drop_equal_steps": ("C",),
    "parallel": (L0,),
    "read_at": (C0, "C", 1, "local"),
    "reindex": ("B", ("read", 0), False, 0),
    "reindex_cache_read": ("B", 0, "local", swap),
    "reindex_cache_write": ("B", 0, "local", swap),
    "interchange": (L1, L0),
    "reorder": (L1, L0),
    "reorder_block_iter_var": ("B", [1, 0]),
    "reverse_compute_at": ("D", C0, False, -1),
    "reverse_compute_inline": ("D",),
    "reduce_once": ("C",),
    "reduce_where_copied": ("C",),
    "rfactor": (C2, 0),
    "rolling_buffer": ("B", 0),
    "sample_categorical": ([1, 2], [0.5, 0.5], None),
    "sample_compute_location": ("B", None),
    "sample_partitioned_tile": (L0, 2, 0, 1, None),
    "sample_perfect_tile": (L0, 2, 16, None),
    "sample_tile": (L0, 2, 16, None),
    "set_axis_separator": ("B", ("write", 0), [1]),
    "set_scope": ("B", 0, "local"),
    "shift_operand": ("C", 0),
    "split": (L0, [4, None], True, False),
    "storage_align": ("B", 0, 0, 16, 1),
    "tensorize": (L1, "dot"),
    "transform_block_layout": ("B", swap),
    "transform_layout": ("B", ("write", 0), swap, None),
    "unannotate": ("B", "x"),
    "unroll": (L0,),
    "unsafe_set_dtype": ("B", 0, "float16"),
    "vectorize": (L1,),
    "work_on": ("main",),
    "write_at": (C0, "C", 0, "local"),
}


def fails(*_):
    raise KeyError("x")


SENSELESS = [
    None, -1, 0, 10**9, 3.5, float("nan"), "nope", "", b"x", (), [None], [-1], [0], ["x"], [1.5], {}, {"a": 1}, object(),
    Var("foreign"), const(3, "int64"), const(1.0, "float32"), swap, fails, parse, type, np.array([1, 2]), np.float32(2),
    True, ["B", "B"], [[1]], "A", "read", "float32", 1 + 2j, set(), range(3), [np.int64(4), None], Ellipsis, L0,
]  # fmt: skip


def called(name, at, value):
    """The schedule after the call with the argument number ``at`` replaced."""
    sch = Schedule(PROGRAM, seed=0, error_render_level="fast")
    arguments = list(SENSIBLE[name])
    if at is not None:
        arguments[at] = value
    try:
        getattr(sch, name)(*[a.of(sch) if isinstance(a, Loop) else a for a in arguments])
    except ScheduleError as error:
        assert str(error).startswith(f"{name}: ")
        assert sch.func is PROGRAM
    return sch


def test_the_table_names_all_primitives():
    ours = {n for n, p in REGISTRY.items() if p.function.__module__.startswith("tilewright.schedule.")}
    assert ours == SENSIBLE.keys()


@pytest.mark.parametrize("name", SENSIBLE)
def test_senseless_arguments(name):
    for at in range(len(SENSIBLE[name])):
        for value in SENSELESS:
            sch = called(name, at, value)
            verify(sch.func)
            sch.trace.dumps()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda s: s.get_block("E"), "there is no block 'E'"),
        (lambda s: s.get_symbol("n"), "no size 'n'"),
        (lambda s: s.parallel(Var("x")), "x is neither a loop of this function"),
        (lambda s: s.get_block("B", "other"), "the module has no function 'other'"),
        (lambda s: s.cache_read("B", 1, "local"), "has no read buffer 1"),
        (lambda s: s.remove_rv(Var("x")), "x is not a handle of this schedule"),
        (lambda s: [s.remove_rv(b := s.get_block("B")), s.get_loops(b)], "the handle of block 'B' was removed"),
        (lambda s: [s.fuse(*s.get_loops("D")), s.parallel(s.stale)], "loop i is not in function main"),
    ],
)
def test_what_is_not_there_is_an_index_error_as_well(call, words):
    sch = Schedule(PROGRAM)
    sch.stale = sch.get_loops("D")[0]
    for kind in (ScheduleError, IndexError, KeyError):
        with pytest.raises(kind, match=words):
            call(sch.snapshot())


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda s: s.split(s.get_loops("B")[0], 4), "the argument factors must be a list with .* or None, not 4"),
        (lambda s: s.compute_at("B", "C"), "the argument loop must be a loop, not 'C'"),
        (lambda s: s.compute_at("B", s.get_loops("C")[0], index=7), "index 7 is not a place"),
        (lambda s: s.rfactor(s.get_loops("C")[2], 5), "factor_axis 5 is not a place"),
        (lambda s: s.split(s.get_loops("B")[0], [0, 3]), "factor 0 of loop i is"),
        (lambda s: s.split(s.get_loops("B")[0], [None, None]), "leave more than one None"),
        (lambda s: s.loop_partition(s.get_loops("B")[0], [-4, None]), "is not a positive number"),
        (lambda s: s.reorder(*[s.get_loops("B")[0]] * 2), "loop i is given twice"),
        (lambda s: s.reorder_block_iter_var("B", [0, 0]), "is not a permutation of the 2 axes"),
        (lambda s: s.bind(s.get_loops("B")[0], "threadIdx.w"), "is not a thread axis"),
        (lambda s: s.set_scope("B", 0, "vast"), "'vast' is not a storage scope"),
        (lambda s: s.transform_layout("B", ("write", 0), lambda i: (i,)), "takes 1 indices"),
        (lambda s: s.pad_einsum("C", [0, 1, 1]), "is not a list of 3 positive numbers"),
        (lambda s: s.sample_tile(s.get_loops("B")[0], 0), "at least one loop and at most 1024, not 0"),
        (lambda s: s.annotate("B", "x", object()), "a trace cannot hold"),
        (lambda s: s.transform_layout("B", ("write", 0), fails), "the index map fails fails: 'x' .KeyError."),
    ],
)
def test_a_bad_argument_is_a_value_error_as_well(call, words):
    sch = Schedule(PROGRAM)
    for kind in (ScheduleError, ValueError, TypeError):
        with pytest.raises(kind, match=words):
            call(sch.snapshot())


def test_a_refusal_is_a_schedule_error_alone():
    sch = Schedule(PROGRAM)
    with pytest.raises(ScheduleError) as info:
        sch.compute_inline("C")
    assert not isinstance(info.value, (LookupError, ValueError, TypeError))
    with pytest.raises(ScheduleError) as info:
        sch.get_block("E")
    again = pickle.loads(pickle.dumps(info.value))
    assert isinstance(again, IndexError) and str(again) == str(info.value)
