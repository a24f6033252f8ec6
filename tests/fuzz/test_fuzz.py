"""The fuzzer on a few hundred chains, and that it finds what it should: bugs planted here for the length of a test."""

import math
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

from tilewright.schedule import Schedule, ScheduleError, trace_renaming
from tilewright.schedule.primitive import REGISTRY
from tilewright.schedule.primitives import compute_at, loops, rfactor
from tilewright.tir import const, stmt, structural_equal, verify
from tilewright.tir.expr import cast
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

from . import STEPS, Chain, Failure, all_steps, chain_workers, data_steps, random_program, run_chain, shrink
from .__main__ import main
from .step_drawing import Nothing


@pytest.mark.parametrize("batch", range(15))
def test_random_chains(batch):
    for seed in range(batch * 20, batch * 20 + 20):
        try:
            run_chain(Chain(seed, compiled=seed % 10 == 0))
        except Failure as failure:
            pytest.fail(shrink(failure).report())


def test_programs_are_valid_and_differ():
    texts = set()
    for seed in range(60):
        program = random_program(seed)
        verify(program.func)
        assert structural_equal(program.func, random_program(seed).func)
        arrays = program.arrays()
        interpret(program.func, *arrays, check_regions=True)
        for array in arrays:
            if isinstance(array, np.ndarray) and array.dtype.kind == "f":
                assert not np.isnan(array).any()
                values = abs(array.astype("float64"))
                assert (values[values < np.finfo(array.dtype).max] < 2**23).all()  # else an extreme of nothing
        texts.add(program.func.script())
    assert len(texts) > 50


def test_no_layout_divides_by_a_number_that_may_be_0():
    """``transform_layout`` trusts who says that it is at least 1, so the fuzzer does not say it; divisions are refused."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16,), "int32"), number: T.int32, C: T.Buffer((16,), "int32")):
    B = T.alloc_buffer((16,), "int32")
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi]
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = B[vi]
""")
    refused = 0
    for seed in range(60):
        sch = Schedule(func)
        try:
            data_steps.transform_layout(np.random.default_rng(seed), sch)
        except ScheduleError as error:
            refused += "scalar parameters may be 0" in str(error)
        except Nothing:
            pass
        assert "// number" not in sch.func.script()
    assert refused > 3


def test_programs_have_what_machines_have():
    """Types, truth values, numbers given with the call, stages without dimensions, divisions and masks are drawn."""
    text = "".join(random_program(seed).func.script() for seed in range(400))
    for word in (
        '"uint8"', '"int16"', '"uint64"', '"bfloat16"', '"bool"', "number: T.int32", "[()]", "T.truncdiv(", " // ", " != 0",
        "T.Select(", "T.if_then_else(", 'T.Cast("int8", ', 'T.Cast("uint32", ', "range(1)", "T.axis.scan(", "in range(i0 + 1)",
        "T.where(", "with T.block(\"s\")",
    ):  # fmt: skip
        assert word in text, word


def test_a_chain_is_its_seed_and_its_steps():
    first, second = run_chain(Chain(11)), run_chain(Chain(11))
    assert first.accepted == second.accepted and first.refused == second.refused
    assert sum(first.accepted.values()) + sum(first.refused.values()) <= 20


def test_most_steps_are_accepted_now_and_then():
    accepted = set()
    for seed in range(1000, 1060):
        accepted.update(run_chain(Chain(seed)).accepted)
    assert len(accepted) > 0.7 * len(STEPS)


def test_every_primitive_that_keeps_results_is_drawn():
    source = "".join(path.read_text() for path in Path(all_steps.__file__).parent.glob("*_steps.py"))
    drawn = set(re.findall(r"sch\.(\w+)\(", source))
    left_out = {name for name, step in REGISTRY.items() if step.kind != "query"} - drawn
    assert left_out == {"work_on", "unsafe_set_dtype"}


def found(chains, only=None):
    for seed in range(chains) if isinstance(chains, int) else chains:
        try:
            run_chain(Chain(seed, only=only))
        except Failure as failure:
            return shrink(failure)
    return None


def test_a_lost_predicate_is_found(monkeypatch):
    """split forgets that the last tile sticks out."""
    monkeypatch.setattr(loops, "_exactly_covers", lambda *_: True)
    failure = found(20)
    assert failure is not None and len(failure.chain.steps) <= 2 and "split" in failure.trace
    with pytest.raises(Failure):
        run_chain(failure.chain)


def test_a_consumer_that_misses_points_is_found(monkeypatch):
    """reverse_compute_at no longer asks whether the block still runs on the whole domain of its axes."""
    monkeypatch.setattr(compute_at, "covers_domain", lambda *_, **__: True)
    failure = found(range(96, 120), ("reverse_compute_at", "split", "reorder"))
    assert failure is not None and failure.kind == "numbers" and failure.last == "reverse_compute_at"
    assert len(failure.chain.steps) <= 3


def test_an_init_inside_the_reduction_is_found(monkeypatch):
    """decompose_reduction no longer asks which loops carry the reduction."""
    monkeypatch.setattr(rfactor, "check_sweep", lambda *_: None)
    failure = found(40, ("decompose_reduction", "reorder", "split"))
    assert failure is not None and failure.kind == "numbers" and failure.last == "decompose_reduction"
    assert len(failure.chain.steps) <= 3


def test_a_reduction_over_nothing_without_init_is_found(monkeypatch):
    """split and fuse no longer ask whether the init of a triangle's empty rows still runs."""
    monkeypatch.setattr(loops, "check_starts_kept", lambda *_: None)
    failure = found([8002441, 8010921, *range(100)], ("split", "fuse"))
    assert failure is not None and failure.kind == "numbers" and len(failure.chain.steps) <= 2


def test_names_of_another_program_are_found(monkeypatch):
    """retarget leaves the names as they were recorded."""
    monkeypatch.setattr(trace_renaming, "_translated", lambda inst, *_: inst)
    failure = found(range(5, 200, 16), ("reorder", "parallel", "cache_write"))
    assert failure is not None and failure.kind == "renamed"


def test_a_failure_says_how_to_run_it_again(monkeypatch, capsys):
    monkeypatch.setattr(loops, "_exactly_covers", lambda *_: True)
    failure = found(20)
    text = failure.report()
    assert failure.chain.command() in text and "# program" in text and "# trace" in text and "def main" in text
    arguments = failure.chain.command().split()[3:]
    assert main(arguments) == 1
    assert failure.kind in capsys.readouterr().out
    monkeypatch.undo()
    assert main(arguments) == 0


def test_the_command(capsys):
    assert main(["--chains", "6", "--seed", "3", "--compile", "0"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("6 chains, 0 compiled, 0 failures;") and "accepted" in out
    assert main(["--only", "splat"]) == 2
    assert "there is no step 'splat'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("what", "kind", "detail"),
    [
        (lambda _: os._exit(3), "process died", "exit code 3"),
        (lambda _: time.sleep(30), "no end", "no end after 0.2 s"),
    ],
)
def test_chains_that_do_not_come_back(monkeypatch, what, kind, detail):
    monkeypatch.setattr(chain_workers, "run_chain", what)
    monkeypatch.setattr(chain_workers, "_SECONDS", 0.2)
    found = list(chain_workers.run_chains([Chain(7), Chain(8)], 1))
    assert [(f[0], f[1]) for f in found] == [(kind, ""), (kind, "")]
    assert detail in found[0][2] and "--seed 7 --steps none" in found[0][2]


@pytest.mark.parametrize("batch", range(4))
def test_random_chains_over_huge_arrays(batch):
    for seed in range(batch * 5, batch * 5 + 5):
        try:
            run_chain(Chain(seed, compiled=seed % 2 == 0, huge=True))
        except Failure as failure:
            pytest.fail(shrink(failure).report())


def test_huge_programs_read_what_was_set():
    seen = set()
    for seed in range(30):
        program = Chain(seed, huge=True).program()
        verify(program.func)
        arrays = program.arrays()
        assert arrays[0].size > 2**31
        interpret(program.func, *arrays, check_regions=True)
        seen.add((arrays[0].ndim, arrays[0].flags.c_contiguous, bool(program.sizes), len(program.func.params)))
    assert len(seen) > 5


def test_strides_that_wrap_are_found(monkeypatch):
    """The stride of a matrix of 3e9 elements, of which there are three, is computed in 32 bits."""
    monkeypatch.setattr(stmt, "product", lambda sizes: math.prod([cast("int32", e) for e in sizes], start=const(1)))
    kinds = set()
    for seed in range(10):
        try:
            run_chain(Chain(seed, (), compiled=True, huge=True))
        except Failure as failure:
            kinds.add(failure.kind)
    assert "compiled numbers" in kinds
