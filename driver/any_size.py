"""Functions of symbolic sizes: tuned at examples of their sizes, and built of a few schedules.

Each example is a workload of its own. The symbolic function is what is compiled and timed, at the example's sizes. The best
schedules of each example are then measured at the others as well, and a build takes those that together lose the least:
the function chooses between them by comparing its sizes with a few numbers, a decision tree in its own code.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from operator import index
from pathlib import Path
from typing import Any

from .. import tuner
from ..codegen import CODEGEN_VERSION, Target
from ..pages import did_you_mean, seconds_text
from ..pages.messages import short_repr
from ..schedule import Schedule, ScheduleError, Trace, TraceError
from ..tir.analysis.known_ranges import evaluate
from ..tir.expr import const
from ..tir.stmt import Block, BlockRealize, IfThenElse, PrimFunc, Stmt
from ..tir.walk import fresh_copy
from ..tuner import TuneResult
from ..tuner.example_sizes import size_conditions, typical_sizes, with_example, without_example
from ..tuner.search.warm_start import parsed_workload, trace_for
from ..tuning_db import Database, TuningRecord, open_database

Sizes = Mapping[str, int]
"""A number for each symbolic size, by name."""

MOST_SCHEDULES = 10
"""The most schedules that one function chooses from."""

_FINALISTS = 3
"""The number of schedules of each example that are measured at all others."""

_RECORDS = 32
"""The number of records of an example that a build looks at."""

_WORTH = 0.01
"""A further schedule is worth its code when the examples gain at least this share of their time, added up."""


def examples_asked(func: PrimFunc, sizes: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[dict[str, int]]:
    """Returns the examples that ``sizes`` gives for the symbolic sizes of ``func``.

    ``sizes`` is a mapping from names to numbers or lists of numbers, which are combined, or a list of mappings to numbers.
    ValueError for a name that is no size, a size without a number, and numbers that do not fit the function.
    """
    names = [v.name for v in typical_sizes(func)]
    if not names:
        raise ValueError(f"sizes for {func.name}, all of whose sizes are numbers")
    given = sizes if isinstance(sizes, Sequence) else _combined(sizes)
    out: list[dict[str, int]] = []
    for one in given:
        for name in one:
            if name not in names:
                raise ValueError(f"{func.name} has no size {name!r}{did_you_mean(name, names, listed=9)}")
        missing = [name for name in names if name not in one]
        if missing:
            raise ValueError(
                f"sizes: no number for {missing[0]} of {func.name}; sizes={{{missing[0]!r}: [16, 256, 1024]}}"
            )
        numbers = {name: index(one[name]) for name in names}
        _require_fitting(func, numbers)
        if numbers not in out:
            out.append(numbers)
    if not out:
        raise ValueError("sizes: no example is given")
    return out


def _combined(sizes: Mapping[str, Any]) -> list[dict[str, int]]:
    lists = [list(s) if isinstance(s, Sequence) else [s] for s in sizes.values()]
    return [dict(zip(sizes, numbers, strict=True)) for numbers in product(*lists)]


def _require_fitting(func: PrimFunc, numbers: Sizes) -> None:
    values = {v: numbers[v.name] for v in typical_sizes(func)}
    small = next((name for name, size in numbers.items() if size < 1), None)
    if small is not None:
        raise ValueError(f"sizes: {small} = {numbers[small]}; an example is at least 1")
    for condition in size_conditions(func):
        if evaluate(condition, values) == 0:
            raise ValueError(f"sizes: {shown(numbers)} does not fit {func.name}, which needs {condition}")


def shown(numbers: Sizes) -> str:
    """Returns sizes as text, ``n = 64, m = 8``."""
    return ", ".join([f"{name} = {size}" for name, size in numbers.items()])


@dataclass(frozen=True)
class SizesTuneResult:
    """What tuning at several sizes has found: a :class:`~tilewright.tuner.TuneResult` for each example, by its sizes.

    ``schedules`` are those that a build takes, and ``choice.seconds(sizes)`` is what the function takes by them at an example.
    """

    func: PrimFunc
    target: Target
    results: Mapping[tuple[tuple[str, int], ...], TuneResult]
    choice: SizeChoice | None
    elapsed_seconds: float

    __repr__ = short_repr("func", "target", "elapsed_seconds")

    @property
    def records(self) -> tuple[TuningRecord, ...]:
        """Returns the records of all examples."""
        return tuple([record for result in self.results.values() for record in result.records])

    @property
    def best(self) -> TuningRecord | None:
        """Returns the fastest record of the last example, None where nothing could be measured."""
        return next((r.best for r in reversed([*self.results.values()]) if r.best is not None), None)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """Returns the schedules between which the function chooses."""
        return () if self.choice is None else tuple(self.choice.schedules)

    def __str__(self) -> str:
        rows = []
        for sizes, result in self.results.items():
            best = result.best.run_seconds if result.best is not None else None
            built = None if self.choice is None else self.choice.seconds(dict(sizes))
            rows.append(f"{shown(dict(sizes))}: best {seconds_text(best)}, as built {seconds_text(built)}")
        return "\n".join([*rows, f"{len(self.schedules)} schedules for all sizes"])


def tune_sizes(
    func: PrimFunc, target: Target, sizes: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, trials: int,
    time_limit: float | None = None, db: Database | str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callable[[Any], None]] = (), **options: Any,
) -> SizesTuneResult:  # fmt: skip
    """Search for schedules of a function of symbolic sizes at each example in ``sizes`` (see :func:`examples_asked`).

    ``trials`` are those of each example, ``time_limit`` (seconds) is for all together; ``options`` are those of
    :class:`~tilewright.tuner.TuneOptions`. The finalists of each example are measured at the others at the end.
    """
    asked = examples_asked(func, sizes)
    start = time.monotonic()
    deadline = start + (math.inf if time_limit is None else time_limit)
    base = without_example(func)
    results: dict[tuple[tuple[str, int], ...], TuneResult] = {}
    with _database(db) as opened:
        for number, one in enumerate(asked):
            limit = None if time_limit is None else max((deadline - time.monotonic()) / (len(asked) - number), 1e-3)
            results[tuple(one.items())] = tuner.tune(
                with_example(base, one),
                target,
                trials=trials,
                db=opened,
                callbacks=callbacks,
                time_limit=limit,
                **options,
            )
        _across(base, target, results, opened, deadline, callbacks, options)
        choice = chosen_on_record(opened, base, target)
    return SizesTuneResult(func, target, results, choice, time.monotonic() - start)


@contextmanager
def _database(db: Database | str | os.PathLike[str] | None) -> Iterator[Database]:
    """Gives the database, or one for this time only."""
    if db is not None:
        with open_database(db) as opened:
            yield opened
        return
    with tempfile.TemporaryDirectory() as folder, open_database(Path(folder) / "sizes.db") as opened:
        yield opened


def _across(
    base: PrimFunc, target: Target, results: Mapping[tuple[tuple[str, int], ...], TuneResult], db: Database,
    deadline: float, callbacks: Sequence[Callable[[Any], None]], options: Mapping[str, Any],
) -> None:  # fmt: skip
    """Measure the finalists of each example at the others."""
    if len(results) < 2:
        return
    finalists: dict[str, None] = {}
    for sizes in results:
        func = with_example(base, dict(sizes))
        for record in db.fastest(func, target, codegen_version=CODEGEN_VERSION, limit=_FINALISTS):
            finalists.setdefault(trace_for(db, record, func).dumps())
    for sizes in results:
        func = with_example(base, dict(sizes))
        known = {trace_for(db, r, func).dumps() for r in db.records(func, target) if r.trace}
        missing = [trace for trace in finalists if trace not in known]
        left = deadline - time.monotonic()
        if missing and left > 0:
            tuner.tune(
                func, target, trials=len(missing), db=db, callbacks=callbacks,
                time_limit=None if math.isinf(left) else left, **{**options, "enqueue": missing, "stop_early": False},
            )  # fmt: skip


@dataclass(frozen=True)
class SizeChoice:
    """Schedules of a function of symbolic sizes, and the tree by which it chooses one of them.

    ``times[s][e]`` are the seconds of schedule ``s`` at example ``e``, infinity where it was not measured.
    """

    func: PrimFunc
    examples: Sequence[Sizes]
    schedules: Sequence[Schedule]
    times: Sequence[Sequence[float]]
    tree: SizeTree

    @property
    def program(self) -> PrimFunc:
        """Returns the function that chooses."""
        return dispatched(self.func, [s.func for s in self.schedules], self.tree)

    def seconds(self, sizes: Sizes) -> float | None:
        """Returns what the chosen schedule took at an example; None for other sizes."""
        place = next((e for e, one in enumerate(self.examples) if dict(one) == dict(sizes)), None)
        return None if place is None else self.times[self.tree.of(sizes)][place]


@dataclass(frozen=True)
class SizeTree:
    """A decision tree: the number of a schedule, or a comparison of one size with two trees below it.

    ``upto`` is the tree where the size ``name`` is at most ``end``, ``above`` that where it is larger.
    """

    schedule: int = 0
    name: str = ""
    end: int = 0
    upto: SizeTree | None = None
    above: SizeTree | None = None

    def of(self, sizes: Sizes) -> int:
        """Returns the number of the schedule for ``sizes``."""
        if self.upto is None or self.above is None:
            return self.schedule
        return (self.upto if sizes[self.name] <= self.end else self.above).of(sizes)

    def leaves(self) -> list[SizeTree]:
        """Returns the trees that are schedules, those of smaller sizes first."""
        return [self] if self.upto is None or self.above is None else [*self.upto.leaves(), *self.above.leaves()]


def chosen_on_record(db: Database, func: PrimFunc, target: Target) -> SizeChoice | None:
    """Returns the schedules on record for a function of symbolic sizes, those that lose the least at all examples.

    None where nothing was measured on ``target`` that applies to ``func``.
    """
    base = without_example(func)
    names = [v.name for v in typical_sizes(base)]
    examples: list[Sizes] = []
    found: dict[str, dict[int, float]] = {}
    for workload in db.at_examples(base):
        stored = parsed_workload(workload)
        sizes = None if stored is None else _in_names(stored, names)
        if sizes is None or sizes in examples:
            continue
        measured = db.fastest(workload.key, target, codegen_version=CODEGEN_VERSION, limit=_RECORDS)
        own = [r for r in measured if r.codegen_version == CODEGEN_VERSION] or measured
        for record in own:
            try:
                trace = trace_for(db, record, base).dumps()
            except (ScheduleError, TraceError):
                continue
            known = found.setdefault(trace, {})
            known[len(examples)] = min(record.run_seconds or math.inf, known.get(len(examples), math.inf))
        if own:
            examples.append(sizes)
    schedules, rows = [], []
    for trace, times in _worth_replaying(found, len(examples)):
        try:
            schedules.append(tuner.replay(base, Trace.from_json(trace)))
        except (ScheduleError, TraceError):
            continue
        rows.append([times.get(e, math.inf) for e in range(len(examples))])
    if not rows or any(math.isinf(min(row[e] for row in rows)) for e in range(len(examples))):
        return None
    return _numbered(base, examples, schedules, rows, decided(examples, rows, MOST_SCHEDULES))


def _in_names(stored: PrimFunc, names: Sequence[str]) -> dict[str, int] | None:
    """Returns the example of a stored function by the names that its sizes have here."""
    sizes = list(typical_sizes(stored).values())
    return dict(zip(names, sizes, strict=True)) if len(sizes) == len(names) else None


def _worth_replaying(found: Mapping[str, Mapping[int, float]], examples: int) -> list[tuple[str, Mapping[int, float]]]:
    """Returns the traces that are among the fastest few of an example, and those that were measured at all."""
    kept: dict[str, None] = {}
    for e in range(examples):
        ranked = sorted((times[e], trace) for trace, times in found.items() if e in times)
        kept.update(dict.fromkeys(trace for _, trace in ranked[: _FINALISTS + 1]))
    kept.update(dict.fromkeys(trace for trace, times in found.items() if len(times) == examples > 1))
    return [(trace, found[trace]) for trace in kept]


def _numbered(
    func: PrimFunc,
    examples: Sequence[Sizes],
    schedules: Sequence[Schedule],
    rows: Sequence[Sequence[float]],
    tree: SizeTree,
) -> SizeChoice:
    """Returns the choice of the schedules that the tree names, numbered anew."""
    used = list(dict.fromkeys(leaf.schedule for leaf in tree.leaves()))

    def renamed(t: SizeTree) -> SizeTree:
        if t.upto is None or t.above is None:
            return SizeTree(used.index(t.schedule))
        return SizeTree(0, t.name, t.end, renamed(t.upto), renamed(t.above))

    return SizeChoice(func, examples, [schedules[s] for s in used], [rows[s] for s in used], renamed(tree))


def decided(examples: Sequence[Sizes], times: Sequence[Sequence[float]], most: int) -> SizeTree:
    """Returns the tree of at most ``most`` schedules that loses the least against the best schedule of each example.

    It grows greedily (Breiman et al., "Classification and Regression Trees", 1984): the split that gains most comes first,
    and one that gains less than a hundredth of the time of its examples is left out. ``times[s][e]`` as in :class:`SizeChoice`.

    >>> decided([{"n": 4}, {"n": 64}], [[1.0, 9.0], [2.0, 3.0]], 10).of({"n": 100})
    1
    """
    best = [min(row[e] for row in times) for e in range(len(examples))]
    losses = [[math.log(row[e] / best[e]) for e in range(len(examples))] for row in times]
    every = list(range(len(examples)))
    leaves: list[tuple[list[int], int, float]] = [(every, *_least(losses, every))]
    splits: dict[int, tuple[str, int, int, int]] = {}  # leaf → name, end, the two leaves that it became
    while sum(n not in splits for n in range(len(leaves))) < most:
        options = [
            (gain, n, name, end, parts)
            for n, (held, _, loss) in enumerate(leaves) if n not in splits
            for gain, name, end, parts in _splits(examples, losses, held, loss)
        ]  # fmt: skip
        if not options:
            break
        gain, n, name, end, parts = max(options, key=lambda option: option[0])
        if gain < _WORTH:
            break
        splits[n] = (name, end, len(leaves), len(leaves) + 1)
        leaves += [(part, *_least(losses, part)) for part in parts]

    def grown(n: int) -> SizeTree:
        if n not in splits:
            return SizeTree(leaves[n][1])
        name, end, a, b = splits[n]
        return SizeTree(0, name, end, grown(a), grown(b))

    return grown(0)


def _least(losses: Sequence[Sequence[float]], held: Sequence[int]) -> tuple[int, float]:
    """Returns the schedule that loses least at some examples, and its loss there."""
    sums = [(sum(row[e] for e in held), s) for s, row in enumerate(losses)]
    loss, schedule = min(sums)
    return schedule, loss


def _splits(
    examples: Sequence[Sizes], losses: Sequence[Sequence[float]], held: Sequence[int], loss: float
) -> Iterator[tuple[float, str, int, tuple[list[int], list[int]]]]:
    """Yields the splits of a leaf: the gain, the size and its end, and the two parts. Ends lie in the middle of two
    examples, as powers."""
    for name in examples[held[0]]:
        values = sorted({examples[e][name] for e in held})
        for low, high in zip(values, values[1:], strict=False):
            end = max(low, min(high - 1, math.isqrt(low * high)))
            parts = [e for e in held if examples[e][name] <= end], [e for e in held if examples[e][name] > end]
            gain = loss - sum(_least(losses, part)[1] for part in parts)
            yield gain if not math.isnan(gain) else 0.0, name, end, parts


def dispatched(func: PrimFunc, programs: Sequence[PrimFunc], tree: SizeTree) -> PrimFunc:
    """Returns the function that computes as the program that ``tree`` names for its sizes; all are ``func``, scheduled."""
    if tree.upto is None or tree.above is None:
        return programs[tree.schedule]
    sizes = {v.name: v for v in typical_sizes(func)}
    number = 0

    def body(t: SizeTree) -> Stmt:
        nonlocal number
        if t.upto is None or t.above is None:
            number += 1
            suffix = f"_{number}"
            return fresh_copy(programs[t.schedule].body, rename=lambda name: name + suffix)  # type: ignore[no-any-return]
        return IfThenElse(sizes[t.name] <= t.end, body(t.upto), body(t.above))

    return func.with_(body=BlockRealize((), const(True), Block((), (), (), "root", body(tree))))
