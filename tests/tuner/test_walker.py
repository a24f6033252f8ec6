"""The walker: what it counts agrees with going through the loops one iteration at a time."""

import itertools

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.tuner.cost.machine_model import MachineModel
from tilewright.tuner.cost.walker import Walk, WalkedLoop, added, chain_factor
from tilewright.tuner.program import ProgramInfo

MACHINE_TARGET = tw.Target("llvm -mcpu=x86-64-v4 -num-cores=1")
MACHINE = MachineModel.of(MACHINE_TARGET)
LANES = 4


def block_of(*tensors):
    """The last block of a function of ``tensors``, and its axes by the names of their variables."""
    block = ProgramInfo(te.create_prim_func(list(tensors))).blocks[-1]
    return block, {axis.name: axis for axis in block.axes}


def product(rows=12, columns=16, depth=10):
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    k = te.reduce_axis((0, depth), "k")
    return block_of(a, b, te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c"))


def walk(block, loops, vector, **more):
    """One candidate; a loop is (axis, trips, whether it is written out)."""
    made = [WalkedLoop(axis, np.array([float(trips)]), written) for axis, trips, written in loops]
    return Walk(block, MACHINE, made, 1, vector=vector, lanes=LANES, **more)


def counted(block, loops, vector):
    """The distinct vectors and scalars that all steps load, by going through the loops."""
    found = counted_by_use(block, loops, vector)
    moving = [vector in use.axes() for use in block.loads]
    return sum(n for n, moves in zip(found, moving, strict=True) if moves), sum(
        n for n, moves in zip(found, moving, strict=True) if not moves
    )


def counted_by_use(block, loops, vector):
    """The distinct places that each step loads, summed over all steps, for each operand."""
    places = {axis: [] for axis in block.axes}
    strides = {}
    for number, (axis, trips, _) in enumerate(loops):
        strides[number] = int(np.prod([t for a, t, _ in loops[:number] if a is axis], initial=1))
        places[axis].append((number, trips))
    serial = [n for n, loop in enumerate(loops) if not loop[2]]
    written = [n for n, loop in enumerate(loops) if loop[2]]
    total = [0] * len(block.loads)
    for outside in itertools.product(*[range(loops[n][1]) for n in serial]):
        found = set()
        for inside in itertools.product(*[range(loops[n][1]) for n in written]):
            at = dict(zip([*serial, *written], [*outside, *inside], strict=True))
            value = {axis: sum(at[n] * strides[n] for n, _ in places[axis]) for axis in block.axes}
            value[vector] -= value[vector] % LANES
            for number, use in enumerate(block.loads):
                index = tuple([sum(value[v] * c for v, c in dim.items()) for dim in use.dims])
                found.add((number, index))
        for number, _ in found:
            total[number] += 1
    return total


@pytest.mark.parametrize(("rows", "vectors"), [(1, 1), (3, 2), (4, 1), (6, 4)])
def test_loads_of_a_register_tile(rows, vectors):
    block, axis = product()
    i, j, k = block.axes
    loops = [
        (j, vectors * LANES, True),
        (i, rows, True),
        (k, 10, False),
        (j, 4 // vectors, False),
        (i, 12 // rows, False),
    ]
    made = walk(block, loops, j)
    assert (made.steps * made.loads[0], made.steps * made.loads[1]) == counted(block, loops, j)
    assert made.sums == rows * vectors and made.within == 10 and made.tiles == 12 // rows * (4 // vectors)
    assert made.revisited == 1


def test_what_does_not_move_in_the_reduction_is_loaded_once():
    a, s = te.placeholder((8, 6), name="a"), te.placeholder((8,), name="s")
    k = te.reduce_axis((0, 6), "k")
    block, _ = block_of(a, s, te.compute((8,), lambda i: te.sum(a[i, k] * s[i], axis=k), name="c"))
    i, k = block.axes
    made = walk(block, [(i, LANES, True), (k, 6, False), (i, 2, False)], i)
    assert made.loads[1] == 0  # the scale stays in a register
    assert made.registers >= 1 + 1 + 1  # a sum, the scale, what is read
    assert made.loads[0] > 1  # the rows of the other operand lie apart


def test_a_window_that_is_written_out_loads_each_place_once():
    x, w = te.placeholder((20, 16), name="x"), te.placeholder((3, 16), name="w")
    r = te.reduce_axis((0, 3), "r")
    block, _ = block_of(x, w, te.compute((18, 16), lambda i, j: te.sum(x[i + r, j] * w[r, j], axis=r), name="c"))
    i, j, r = block.axes
    loops = [(j, LANES, True), (i, 6, True), (r, 3, False), (j, 4, False), (i, 3, False)]
    whole = walk(block, loops, j, unroll=3.0)
    apart = walk(block, loops, j)
    written = sorted([(axis, trips, out or axis is r) for axis, trips, out in loops], key=lambda loop: not loop[2])
    x_once, w_once = counted_by_use(block, written, j)
    assert whole.steps * whole.loads[0] == x_once + w_once
    assert whole.loads[0] < apart.loads[0]


def test_sums_along_the_vector_are_added_up_at_the_end():
    x, k = te.placeholder((6, 64), name="x"), te.reduce_axis((0, 64), "k")
    block, _ = block_of(x, te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="c"))
    i, k = block.axes
    one = walk(block, [(k, LANES, True), (k, 16, False), (i, 6, False)], k)
    together = walk(block, [(k, LANES, True), (i, 3, True), (k, 16, False), (i, 2, False)], k)
    assert (one.sums, together.sums) == (1, 3)
    assert together.latency < one.latency  # the sums of other rows fill the waiting
    assert together.counts()["loop_cycles"] < one.counts()["loop_cycles"]
    assert one.counts()["store_cycles"] == 6 / MACHINE.stores_per_cycle


def test_sums_that_are_taken_up_again_are_loaded_and_stored_in_each_step():
    block, _ = product(1, 16, 8)
    i, j, k = block.axes
    made = walk(block, [(j, LANES, True), (k, 2, True), (j, 4, False), (k, 4, False), (i, 1, False)], j)
    assert made.revisited == 4 and made.within == 1
    assert made.counts()["store_cycles"] >= made.steps * made.sums / MACHINE.stores_per_cycle


def test_an_operand_that_the_innermost_loop_does_not_move_costs_no_load():
    x, b = te.placeholder((8, 64), name="x"), te.placeholder((8,), name="b")
    block, _ = block_of(x, b, te.compute((8, 64), lambda i, j: x[i, j] + b[i], name="c"))
    i, j = block.axes
    made = walk(block, [(j, LANES, True), (j, 16, False), (i, 8, False)], j)
    assert made.loads == (1, 0)
    columns = walk(block, [(j, LANES, True), (i, 8, False), (j, 16, False)], j)
    assert columns.loads[1] == 1


def test_many_sums_hide_the_latency_and_a_short_reduction_shares_it():
    sums = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    far = chain_factor(sums, np.full(5, 1e6), MACHINE)
    assert np.all(np.diff(far) < 0) and far[-1] < 1.01 and far[0] == pytest.approx(8.0, rel=0.01)
    assert chain_factor(sums[:1], np.array([10.0]), MACHINE) < 2


def test_functions_that_follow_one_another_are_a_chain():
    x, y = te.placeholder((64,), name="x"), te.placeholder((64,), name="y")
    one, _ = block_of(x, te.compute((64,), lambda i: te.exp(x[i])))
    beside, _ = block_of(x, y, te.compute((64,), lambda i: te.exp(x[i]) + te.exp(y[i])))
    behind, _ = block_of(x, te.compute((64,), lambda i: te.exp(te.exp(x[i]))))
    assert one.chain == one.operations
    assert beside.operations == 2 * one.operations + 1 and beside.chain == one.chain + 1
    assert behind.chain == behind.operations == 2 * one.operations


def test_vectors_side_by_side_hide_how_long_functions_wait():
    x = te.placeholder((4096,), name="x")
    block, axes = block_of(x, te.compute((4096,), lambda i: te.log1p(te.exp(te.sin(x[i])))))
    width = LANES * np.array([1.0, 2.0, 4.0, 8.0])
    (axis,) = axes.values()
    loops = [WalkedLoop(axis, width, written_out=True), WalkedLoop(axis, 4096 / width)]
    found = Walk(block, MACHINE, loops, 4, vector=axis, lanes=LANES).latency
    assert np.all(np.diff(found) <= 0) and found[0] > 1.5 and found[-1] == 1.0
    short, axes = block_of(x, te.compute((4096,), lambda i: x[i] * 2.0 + 1.0))
    (axis,) = axes.values()
    loops = [WalkedLoop(axis, width, written_out=True), WalkedLoop(axis, 4096 / width)]
    assert np.all(Walk(short, MACHINE, loops, 4, vector=axis, lanes=LANES).latency == 1.0)


@pytest.mark.parametrize("size", [(65536,), (12, 130, 66)])
def test_long_functions_take_several_vectors(size):
    """Also where vectors one by one would leave no part at the end."""
    x = te.placeholder(size, name="x")
    func = te.create_prim_func([x, te.ops.softplus(te.ops.erf(x))])
    space = tw.tuner.Space(func, MACHINE_TARGET)
    (sketch,) = space.sketches
    rows = sketch.all_rows()
    best = rows[sketch.score(rows)[1].argmin()]
    assert best[0] == 4


def test_candidates_are_walked_together_as_they_are_alone():
    block, _ = product()
    i, j, k = block.axes
    rows, vectors = np.array([1.0, 2.0, 6.0]), np.array([1.0, 2.0, 4.0])

    def made(rows, vectors):
        ones = np.ones(len(rows))
        loops = [
            WalkedLoop(j, vectors * LANES, True), WalkedLoop(i, rows, True), WalkedLoop(k, 10 * ones),
            WalkedLoop(j, 4 / vectors), WalkedLoop(i, 12 / rows),
        ]  # fmt: skip
        found = Walk(block, MACHINE, loops, len(rows), vector=j, lanes=LANES)
        return {**found.counts(), **found.traffic()}

    together = made(rows, vectors)
    for n in range(3):
        alone = made(rows[n : n + 1], vectors[n : n + 1])
        assert all(alone[name][0] == pytest.approx(together[name][n]) for name in together), n


def test_counts_of_several_blocks_are_added_by_name():
    total = added([{"core_cycles": np.array([1.0])}, {"core_cycles": np.array([2.0]), "loop_cycles": np.array([3.0])}])
    assert {name: value[0] for name, value in total.items()} == {"core_cycles": 3.0, "loop_cycles": 3.0}


def misses(row_bytes, columns, rows, together):
    """The lanes, in lines of a cache with sets, that are not there: sums of columns, their steps as vectors."""
    lanes = MACHINE.vector_bytes // 4
    a, k = te.placeholder((rows, row_bytes // 4), name="a"), te.reduce_axis((0, rows), "k")
    block, axes = block_of(a, te.compute((columns,), lambda i: te.sum(a[k, i], axis=k), name="c"))
    i, k = axes["v_i"], axes["v_k"]
    loops = [(k, lanes, True), (i, together, True), (k, rows // lanes, False), (i, columns // together, False)]
    made = [WalkedLoop(axis, np.array([float(trips)]), written) for axis, trips, written in loops]
    walked = Walk(block, MACHINE, made, 1, vector=k, lanes=lanes)
    sets, held, seen, found = 4096 // MACHINE.line_bytes, {}, set(), 0
    for outer, steps in itertools.product(range(columns // together), range(rows // lanes)):
        for column, lane in itertools.product(range(together), range(lanes)):
            at = (steps * lanes + lane) * row_bytes + (outer * together + column) * 4
            line = at // MACHINE.line_bytes
            ways = held.setdefault(line % sets, [])
            if line in ways:
                ways.remove(line)
            elif line in seen:
                found += 1
            seen.add(line)
            ways.append(line)
            del ways[: -MACHINE.l1_ways]
    return float(walked.crowded_lanes(block.loads[0])[0]), found


@pytest.mark.parametrize("together", [1, 16])
@pytest.mark.parametrize(("row_bytes", "rows"), [(2048, 128), (2048 + 64, 128), (4096, 64), (512, 512), (2048, 16)])
def test_lanes_whose_lines_share_sets(row_bytes, rows, together):
    """They are those that a cache of so many sets and ways misses, the first time of each line apart."""
    predicted, simulated = misses(row_bytes, 32, rows, together)
    assert predicted == pytest.approx(simulated, abs=0.1 * 32 * rows)
