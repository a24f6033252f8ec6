"""The Schedule itself: handles, errors that change nothing, copies, seeds, modules of several functions."""

import numpy as np
import pytest

from tilewright.schedule import BlockRV, Schedule, ScheduleError, Trace, primitive
from tilewright.schedule.primitive import REGISTRY, PrimitiveMethods
from tilewright.tir import Block, For, IRModule, PrimFunc, parse


def test_what_it_holds(matmul):
    func = matmul()
    sch = Schedule(func)
    assert sch.func is func and sch.mod["main"] is func and len(sch.trace) == 0
    assert repr(sch) == "Schedule(main, 0 steps)"
    with pytest.raises(TypeError, match="takes a PrimFunc or an IRModule, not int"):
        Schedule(3)
    with pytest.raises(ValueError, match="debug_mask 'some'"):
        Schedule(func, debug_mask="some")


def test_handles(matmul):
    sch = Schedule(matmul())
    block = sch.get_block("C")
    assert block == BlockRV("C") and str(block) == "C"
    i, j, k = sch.get_loops(block)
    assert [v.name for v in (i, j, k)] == ["i", "j", "k"]
    assert isinstance(sch.get(block), Block) and isinstance(sch.get(i), For)
    assert sch.get_loops("C") == [i, j, k]
    assert sch.get_child_blocks(sch.get_block("root")) == [block] == sch.get_child_blocks(i)
    sch.reorder(k, i)
    assert sch.get_loops(block) == [k, j, i]  # handles stay valid


def test_unknown_block_names_its_neighbours(matmul):
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError, match="get_block: there is no block 'c' in function main") as info:
        sch.get_block("c")
    assert "hint: did you mean 'C'?" in str(info.value)
    with pytest.raises(ScheduleError, match="there is no block 'D'"):
        sch.get_loops("D")


def test_wrong_arguments_are_type_errors(matmul):
    sch = Schedule(matmul())
    with pytest.raises(TypeError, match="missing a required argument: 'loop'"):
        sch.split()
    with pytest.raises(TypeError, match="unexpected keyword argument 'facors'"):
        sch.split(sch.get_loops("C")[0], facors=[2, 3])
    with pytest.raises(TypeError, match="the argument name must be a name, not 3"):
        sch.get_block(3)


def test_arguments_stay_in_the_order_of_the_signature(matmul):
    sch = Schedule(matmul())
    sch.fuse(*sch.get_loops("C")[:2], preserve_unit_iters=False)
    assert "sch.fuse(l0, l1, preserve_unit_iters=False)" in sch.trace.as_python()


def test_an_error_changes_nothing(matmul):
    sch = Schedule(matmul())
    i, _, k = sch.get_loops("C")
    func, text = sch.func, str(sch.trace)
    for step in (lambda: sch.split(i, [2, 2]), lambda: sch.parallel(k), lambda: sch.reorder(i, i)):
        with pytest.raises(ScheduleError) as info:
            step()
        assert sch.func is func and str(sch.trace) == text
        assert info.value.func is func and info.value.primitive
        assert info.value.render() == str(info.value)


def test_an_error_shows_the_marked_line_of_a_long_program():
    lines = "\n".join(
        f"    for i in range(16):\n        with T.block('B{n}'):\n            vi = T.axis.spatial(16, i)\n"
        f"            B[vi, {n}] = T.float32({n})"
        for n in range(40)
    )
    sch = Schedule(parse(f"@T.prim_func\ndef main(B: T.Buffer((16, 40), 'float32')):\n{lines}"))
    (i,) = sch.get_loops("B20")
    with pytest.raises(ScheduleError) as info:
        sch.split(i, [3, 5])
    text = str(info.value)
    assert 'with T.block("B20")' in text and 'T.block("B3")' not in text
    assert text.count("    ...") == 2 and len(text.splitlines()) < 25


def test_duplicate_blocks_get_numbers():
    sch = Schedule(
        parse("""
@T.prim_func
def main(B: T.Buffer((2, 16), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[0, vi] = T.float32(1)
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[1, vi] = T.float32(2)
""")
    )
    assert [b.name for b in sch.get_child_blocks("root")] == ["B_1", "B_2"]
    with pytest.raises(ScheduleError, match="did you mean 'B_[12]' or 'B_[12]'?"):
        sch.get_block("B")


def test_copy_is_a_schedule_of_its_own(matmul):
    sch = Schedule(matmul(), seed=1)
    block = sch.get_block("C")
    i, _, _ = sch.get_loops(block)
    twin = sch.copy()
    twin.split(i, [None, 4])
    assert sch.get_loops(block)[0] is i and len(twin.get_loops(block)) == 4
    assert sch.func is not twin.func
    assert len(sch.trace) == 3 and len(twin.trace) == 4
    sch.parallel(i)


def test_seeds(matmul):
    def draw(sch):
        return [sch.get(v) for _ in range(4) for v in sch.sample_perfect_tile(sch.get_loops("C")[0], n=3)]

    func = matmul(96, 17, 7)
    assert draw(Schedule(func, seed=5)) == draw(Schedule(func, seed=5))
    assert draw(Schedule(func, seed=5)) != draw(Schedule(func, seed=6))
    sch = Schedule(func, seed=5)
    first = draw(sch)
    sch.seed(5)
    assert draw(sch) == first
    assert draw(sch.copy()) != draw(sch.copy())
    assert sch.fork_seed() != sch.fork_seed()


def test_modules_of_several_functions(matmul, chain):
    mod = IRModule({"mm": matmul(), "ew": chain()})
    sch = Schedule(mod)
    assert sch.func_working_on is None
    with pytest.raises(ScheduleError, match="2 functions \\(mm, ew\\), and it was not said which to work on"):
        sch.get_block("C")
    sch.work_on("mm")
    assert sch.func_working_on == "mm" and sch.func is mod["mm"]
    c = sch.get_block("C")
    other = sch.get_block("C", func_name="ew")
    assert c != other and c.func_name == "mm" and other.func_name == "ew"
    assert len(sch.get_loops(c)) == 3
    i, j = sch.get_loops(other)
    sch.vectorize(j)  # a loop is found in whichever function it is
    sch.parallel(i)
    assert sch.mod["mm"] is mod["mm"] and sch.get(i).kind == "parallel"
    sch.work_on("ew")
    assert sch.get_loops("C") == [i, j]
    with pytest.raises(ScheduleError, match="the module has no function 'wm'"):
        sch.work_on("wm")
    again = Schedule(mod)
    Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
    assert str(again.mod) == str(sch.mod)


def test_removed_handles(matmul):
    sch = Schedule(matmul())
    block = sch.get_block("C")
    i, j, _ = sch.get_loops(block)
    sch.remove_rv(block)
    sch.remove_rv(i)
    with pytest.raises(ScheduleError, match="the handle of block 'C' was removed"):
        sch.get(block)
    with pytest.raises(ScheduleError, match="the handle l1 was removed"):
        sch.split(i, [None, 4])
    assert sch.get(sch.get_sblock("C")).name_hint == "C"  # asked for again
    sch.parallel(j)
    with pytest.raises(ScheduleError, match="is not a handle of this schedule"):
        sch.remove_rv(block.__class__("nobody"))


def test_add_unit_loop(matmul, agree, replays):
    func = matmul(7, 13, 1)
    sch = Schedule(func, debug_mask="all")
    block = sch.get_block("C")
    above = sch.add_unit_loop(block)
    assert sch.get_loops(block)[-1] is above
    outer = sch.add_unit_loop(sch.get_loops(block)[0])
    assert sch.get_loops(block)[0] is outer and sch.get(outer).extent.value == 1
    with pytest.raises(ScheduleError, match="a loop cannot stand around the root block"):
        sch.add_unit_loop("root")
    agree(func, sch.func)
    replays(sch, func)


def test_a_split_without_predicates(matmul, agree):
    func = matmul(13, 16, 7)
    sch = Schedule(func)
    i, j, _ = sch.get_loops("C")
    sch.split(j, [4, 4], disable_predication=True)  # it needs none
    with pytest.raises(ScheduleError, match="disable_predication asks for none"):
        sch.split(i, [None, 4], disable_predication=True)
    agree(func, sch.func)


def test_show(matmul, capsys):
    sch = Schedule(matmul())
    sch.split(sch.get_loops("C")[0], [None, 4])
    sch.show()
    shown = capsys.readouterr().out
    assert "for i_0, i_1, j, k in T.grid(4, 4, 17, 7):" in shown
    assert "sch.split(loop=l0, factors=[None, 4])" in shown


def test_loops_met_outside_the_schedule_are_looked_up(matmul, replays):
    func = matmul()
    sch = Schedule(func)
    loop = func.body.block.body  # not obtained through get_loops
    sch.parallel(loop.loop_var)
    assert [inst.name for inst in sch.trace] == ["get_loops", "parallel"]
    replays(sch, func)
    with pytest.raises(ScheduleError):
        sch.split(func.body.block.body.body.loop_var, [2, 2])
    assert len(sch.trace) == 2


def test_a_primitive_of_ones_own(matmul, replays):
    try:

        @primitive
        def name_it(func: PrimFunc, name: str, times: int = 1) -> PrimFunc:
            """Set the name."""
            if not name:
                raise ScheduleError("no name", hint="give one")
            return func.with_attr("global_symbol", name * times)

        func = matmul()
        sch = Schedule(func)
        sch.name_it("x", times=2)
        assert sch.func.name == "xx" and Schedule.name_it.__doc__ == "Set the name."
        assert str(sch.trace) == "sch.name_it(name='x', times=2)"
        replays(sch, func)
        with pytest.raises(ScheduleError, match=r"name_it: no name\nasked: name_it\(name=''\)\nhint: give one"):
            sch.name_it("")
    finally:
        REGISTRY.pop("name_it", None)
        del PrimitiveMethods.name_it


def test_every_primitive_says_what_it_does():
    for name, step in REGISTRY.items():
        assert step.function.__doc__, name
        assert hasattr(Schedule, name)


def test_numpy_numbers_are_numbers(matmul, replays):
    func = matmul()
    sch = Schedule(func)
    sch.split(sch.get_loops("C")[0], [None, np.int64(4)])
    replays(sch, func)
