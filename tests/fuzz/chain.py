"""One chain: draw, apply, check. A chain is a seed and the numbers of its steps, so that leaving steps out keeps the
others as they were."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilewright.codegen import Target, compile
from tilewright.schedule import Schedule, ScheduleError, Trace, retarget
from tilewright.tir.difference import assert_structural_equal
from tilewright.tir.expr import Var
from tilewright.tir.expr.dtype import bfloat16_from_bits
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.stmt import For, PrimFunc
from tilewright.tir.verify import verify
from tilewright.tir.walk import pre_order

from .all_steps import Nothing, draw_step
from .guarded_arrays import at_the_end
from .huge_programs import huge_program, too_much
from .one_name import one_name
from .random_programs import Program, random_program

_LARGE = 1 << 24
"""Arrays of more elements are inputs of which few elements are set; they are not compared."""

_MOST_ROUNDS = 1 << 21
"""Functions that may run a block more often are not interpreted."""

_CPUS = ("native", "native", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2")
"""What compiled chains are compiled for, by turns: the older processors have masks for fewer types, or none."""


@dataclass(frozen=True)
class Chain:
    """The program of ``seed`` and the steps with these numbers, in order; ``only`` restricts what is drawn."""

    seed: int
    steps: tuple[int, ...] = tuple(range(20))
    only: tuple[str, ...] | None = None
    compiled: bool = False
    huge: bool = False
    """Whether the program reads arrays of more than 2**31 elements."""

    def program(self) -> Program:
        """The program that the chain changes."""
        return huge_program(self.seed) if self.huge else random_program(self.seed)

    def without(self, numbers: Sequence[int]) -> Chain:
        """This chain with some steps left out."""
        return replace(self, steps=tuple([n for n in self.steps if n not in set(numbers)]))

    def command(self) -> str:
        """What runs it again."""
        steps = ",".join(map(str, self.steps))
        only = f" --only {','.join(self.only)}" if self.only else ""
        return (
            f"python -m tests.fuzz --seed {self.seed} --steps {steps or 'none'}"
            + only
            + (" --compile 1" if self.compiled else "")
            + (" --huge" if self.huge else "")
        )


class Failure(Exception):
    """Something that must not be: ``kind`` says what, ``detail`` how; ``last`` is the step that was applied last."""

    def __init__(self, chain: Chain, kind: str, detail: str, sch: Schedule | None = None, last: str = "") -> None:
        super().__init__(f"seed {chain.seed}: {kind}: {detail}")
        self.chain, self.kind, self.detail, self.last = chain, kind, detail, last
        self.trace = "" if sch is None else sch.trace.simplified().as_python()
        self.script = "" if sch is None else sch.mod.script()

    def report(self) -> str:
        """All there is to know, for a person."""
        return "\n".join([
            f"{self.kind}: {self.detail}",
            f"last step: {self.last}",
            f"again: {self.chain.command()}",
            "", "# program", self.chain.program().func.script(), "# trace", self.trace,
            "", "# result", self.script,
        ])  # fmt: skip


@dataclass
class Outcome:
    """What a chain that went well did: how often each primitive was accepted and refused, whether it was compiled."""

    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    compiled: bool = False


def run_chain(chain: Chain) -> Outcome:
    """Run and check a chain; :class:`Failure` when something is wrong. In one of seven, all variables have one name."""
    with one_name() if chain.seed % 7 == 3 else nullcontext():
        return _run(chain)


def _run(chain: Chain) -> Outcome:
    program = chain.program()
    expected = program.arrays()
    try:
        verify(program.func)
    except Exception as error:
        raise Failure(chain, "program", str(error)) from error
    interpret(program.func, *expected, check_regions=chain.seed % 4 == 0)
    sch = Schedule(program.func, seed=chain.seed)
    out = Outcome()
    stages: list[tuple[str, Schedule]] = []
    for number in chain.steps:
        rng = np.random.default_rng((chain.seed, 2, number))
        name, apply = draw_step(rng, chain.only)
        before, known = sch.func, len(sch.trace.insts)
        saved = sch.snapshot() if chain.huge else None
        try:
            apply(rng, sch)
        except ScheduleError as error:  # a recipe may have done its first half
            out.refused[error.primitive or name] += 1
        except Nothing:
            pass
        except Exception as error:
            where = traceback.format_exc(limit=-4)
            raise Failure(chain, f"crash: {type(error).__name__}", f"{error}\n{where}", sch, name) from error
        if saved is not None and too_much(sch.func, dict(program.sizes)):
            sch.restore(saved)
            continue
        out.accepted.update(i.name for i in sch.trace.insts[known:] if not i.name.startswith("get_"))
        if sch.func is before:
            continue
        stages.append((name, sch.snapshot()))
    _verified(chain, stages)
    last = stages[-1][0] if stages else ""
    while stages and too_much(stages[-1][1].func, dict(program.sizes), _MOST_ROUNDS):
        stages.pop()  # a split far beyond an extent has loops that do nothing; machine code runs through them
    _numbers(chain, program, expected, stages)
    if not chain.huge:
        _other_sizes(chain, program, sch, last)
    _round_trip(chain, sch, last)
    if chain.seed % 2 == 0:
        _replays(chain, program.func, sch, last)
    if chain.seed % 16 == 5 and not chain.huge:
        _renamed(chain, program.func, sch, last)
    if chain.compiled and not any(isinstance(n, For) and n.thread_binding for n in pre_order(sch.func.body)):
        _compiled(chain, program, expected, sch, last)
        out.compiled = True
    return out


def _verified(chain: Chain, stages: list[tuple[str, Schedule]]) -> None:
    """The last function is well-formed; when it is not, the first that is not is to blame. Of some chains, each is."""
    try:
        for _, sch in stages if chain.seed % 4 == 0 else stages[-1:]:
            verify(sch.func)
    except Exception:
        for name, sch in stages:
            try:
                verify(sch.func)
            except Exception as error:
                raise Failure(chain, "verify", str(error), sch, name) from error


def _numbers(chain: Chain, program: Program, expected: list[Any], stages: list[tuple[str, Schedule]]) -> None:
    """The last function computes the same; when it does not, the first that does not is to blame."""
    if not stages or _difference(program, expected, stages[-1][1].func) is None:
        return
    for name, sch in stages:
        found = _difference(program, expected, sch.func)
        if found is not None:
            raise Failure(chain, found[0], found[1], sch, name)


def _other_sizes(chain: Chain, program: Program, sch: Schedule, last: str) -> None:
    """The last function computes the same for other values of the symbolic sizes, 0 and 1 among them. Values that the
    program itself does not take are left out."""
    dims = {
        e for b in program.func.buffer_map.values() for dim in b.shape for e in pre_order(dim) if isinstance(e, Var)
    }
    if not dims:
        return
    rng = np.random.default_rng((chain.seed, 3))
    drawn = {v: int(rng.choice((0, 1, 2, 5, 17))) for v in sorted(dims, key=lambda v: v.name)}
    for values in (dict.fromkeys(dims, 0), dict.fromkeys(dims, 1), drawn):
        other = replace(program, sizes={**program.sizes, **values})
        try:
            expected = other.arrays()
            interpret(program.func, *expected)
        except Exception:  # a shape that does not fit the others
            continue
        found = _difference(other, expected, sch.func)
        if found is not None:
            text = ", ".join([f"{v.name} = {n}" for v, n in values.items()])
            raise Failure(chain, f"{found[0]} of other sizes", f"{text}: {found[1]}", sch, last)


def _difference(program: Program, expected: list[Any], func: PrimFunc) -> tuple[str, str] | None:
    found = program.arrays()
    try:
        interpret(func, *found, check_regions=True)
    except Exception as error:
        return f"interpreter: {type(error).__name__}", str(error)
    return _compare("numbers", func, expected, found)


def _compare(kind: str, func: PrimFunc, expected: list[Any], found: list[Any]) -> tuple[str, str] | None:
    for number, (p, a, b) in enumerate(zip(func.params, expected, found, strict=True)):
        buffer = func.buffer_map.get(p)
        if buffer is None or a.size >= _LARGE:
            continue
        if buffer.dtype == "bfloat16":
            a, b = bfloat16_from_bits(a), bfloat16_from_bits(b)
        same = (a == b) | ((a != a) & (b != b))  # products over larger sizes may overflow, to the same NaN
        if not same.all():
            wrong = np.argwhere(~same)
            at = tuple(int(x) for x in wrong[0])
            return (
                kind,
                f"argument {number} differs in {len(wrong)} of {a.size} elements, first {at}: {b[at]}, not {a[at]}",
            )
    return None


def _round_trip(chain: Chain, sch: Schedule, last: str) -> None:
    text = sch.func.script()
    try:
        assert_structural_equal(parse(text), sch.func)
    except Exception as error:
        raise Failure(chain, "print and parse", str(error), sch, last) from error


def _replays(chain: Chain, func: PrimFunc, sch: Schedule, last: str) -> None:
    again = Schedule(func)
    try:
        Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
        assert_structural_equal(again.func, sch.func)
        if chain.seed % 8 == 0:
            pasted = Schedule(func)
            exec(sch.trace.as_python(), {"sch": pasted})
            assert_structural_equal(pasted.func, sch.func)
    except Exception as error:
        raise Failure(chain, "replay", f"{type(error).__name__}: {error}", sch, last) from error


def _renamed(chain: Chain, func: PrimFunc, sch: Schedule, last: str) -> None:
    """The trace, in the names of the same program with stages and tensors of other names, makes the same of it."""
    other = random_program(chain.seed, "T", ("X", "Y", "Z")).func
    again = Schedule(other)
    try:
        retarget(sch.trace, func, other).apply_to_schedule(again)
        assert_structural_equal(again.func, sch.func)
    except Exception as error:
        raise Failure(chain, "renamed", f"{type(error).__name__}: {error}", sch, last) from error


def _compiled(chain: Chain, program: Program, expected: list[Any], sch: Schedule, last: str) -> None:
    given = program.arrays()
    plain = [isinstance(a, np.ndarray) and a.size < _LARGE and a.flags.c_contiguous for a in given]
    found = [at_the_end(a) if is_plain else a for a, is_plain in zip(given, plain, strict=True)]
    cpu = _CPUS[chain.seed // 10 % len(_CPUS)]
    try:
        compile(sch.func, Target(f"{cpu} -num-cores=2 -libs=cblas"), cache=False)(*found)
    except Exception as error:
        where = traceback.format_exc(limit=-4)
        raise Failure(chain, f"compile: {type(error).__name__}", f"{error}\n{where}", sch, last) from error
    wrong = _compare("compiled numbers", sch.func, expected, found)
    if wrong is not None:
        raise Failure(chain, *wrong, sch, last)
