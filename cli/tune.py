"""``tilewright tune``: search, measure, record; for a model, its kernels in turns."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..pages import counted, seconds_text
from .options import (
    Seconds,
    Share,
    WholeNumber,
    accuracy_option,
    apply,
    arg_option,
    command_line,
    cores_option,
    database_path,
    db_option,
    example_sizes,
    input_shapes,
    require_here,
    spec_argument,
    target_option,
    target_text,
)
from .output import CommandError, ModelSearch, ProgressView, column, echo_json, echo_table, first_sign, json_option

if TYPE_CHECKING:
    from ..codegen import Target
    from ..driver import ModelTuneResult
    from ..driver.machine_report import Bound
    from ..driver.workloads.workload_definition import WorkloadCase
    from ..tuner import Runner, TuneResult


@click.command("tune")
@apply(spec_argument, arg_option, target_option, db_option, json_option)
@click.option(
    "--trials", default=64, show_default=True, type=WholeNumber(1),
    help="Candidates to measure; of a model, of each kernel at most.",
)  # fmt: skip
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=WholeNumber(0),
    help="Seed of all random choices; measured times still vary.",
)
@click.option("--time-limit", type=Seconds(), metavar="SECONDS", help="Stop after this long.")
@click.option(
    "--until", type=Share(), metavar="SHARE",
    help="Stop at this share of the roofline, as 0.9; each kernel of a model.",
)  # fmt: skip
@click.option(
    "--patience", type=WholeNumber(1), metavar="TRIALS", help="Stop when so many trials brought no gain.",
)  # fmt: skip
@click.option("--all-trials", is_flag=True, help="Use all trials, even when no further gain is expected.")
@click.option(
    "--runner",
    metavar="ADDRESS",
    help="Measure on other machines: dask://host:8786, or what an installed package offers.",
)
@click.option(
    "--size", "sizes", multiple=True, metavar="NAME=N,…",
    help="Examples of a symbolic size, as n=16,128,1024; once for each size.",
)  # fmt: skip
@accuracy_option
@cores_option
def command(
    spec: str,
    args: tuple[str, ...],
    target: str | None,
    db_path: str | None,
    as_json: bool,
    trials: int,
    seed: int,
    time_limit: float | None,
    until: float | None,
    patience: int | None,
    all_trials: bool,
    runner: str | None,
    sizes: tuple[str, ...],
    accuracy: float | None,
    num_cores: int | None,
) -> int:
    """Search for the fastest schedule of SPEC, and record every candidate in the database.

    SPEC is a workload such as matmul:M=512,N=512,K=512 (see `tilewright workloads`), file.py:function, or a model such
    as model.onnx, whose kernels share the time: it goes where the model gains most. Earlier records of the same
    workload and target are used: run it again to continue. A function of symbolic sizes is tuned at the examples that
    --size gives, and `build` makes one function of the schedules that are best together; of a model with symbolic sizes,
    `build --bounds` with the same numbers takes the schedule of each.
    """
    first_sign(spec, lasting=True)
    from ..codegen import Target
    from ..driver.models.model_building import is_model

    path = database_path(db_path, create=True)
    machine = Target(target_text(target, num_cores))
    words = {
        "target": target, "num_cores": num_cores, "db": path, "trials": trials, "seed": seed or None,
        "time_limit": time_limit, "until": until, "patience": patience, "all_trials": all_trials, "runner": runner, "size": sizes, "accuracy": accuracy,
    }  # fmt: skip
    assert path is not None
    if runner is None:
        require_here(machine)
    if is_model(spec):
        if runner is not None:
            raise CommandError("--runner is for workloads; the kernels of models are measured here", code=2)
        if patience is not None:
            raise CommandError("--patience is for workloads; a kernel of a model ends when others promise more", code=2)
        return tune_model(spec, args, machine, as_json, words)
    if accuracy is not None:
        raise CommandError("--accuracy is for models", code=2)
    if sizes:
        return _tune_sizes(spec, args, machine, as_json, words)
    return _tune_workload(spec, args, machine, as_json, words)


def _tune_sizes(spec: str, args: tuple[str, ...], machine: Target, as_json: bool, words: Mapping[str, Any]) -> int:
    """Tune a function of symbolic sizes at the examples of ``--size``, and print a table of them."""
    from ..driver import parse_spec, tune
    from ..driver.any_size import examples_asked, shown
    from ..tuner import TuningInterrupted
    from ..tuning_db import Database

    path, trials, sizes = words["db"], words["trials"], example_sizes(words["size"])
    if words["until"] is not None:
        raise CommandError("--until with --size: what the machine allows differs from size to size", code=2)
    case = parse_spec(spec, args)
    try:
        count = len(examples_asked(case.func, sizes))
    except ValueError as error:
        raise CommandError(str(error), code=2) from None
    with Database(path):  # a database that cannot be written shows before anything is measured
        pass
    with _runner(words["runner"]) as runner, ProgressView(case.spec, trials, None) as progress:
        progress.says(f"choosing candidates for {counted(count, 'example')}")
        try:
            result = tune(
                case, machine, sizes=sizes, trials=trials, seed=words["seed"] or 0, db=path, time_limit=words["time_limit"],
                stop_early=not words["all_trials"], runner=runner, callbacks=[progress.on_event], patience=words["patience"],
            )  # fmt: skip
        except TuningInterrupted:
            again = command_line("tune", spec, args, **words)
            click.echo(f"stopped; what was measured is in {path}. Go on with: {again}", err=True)
            raise KeyboardInterrupt from None
    choice = result.choice
    rows = [
        {
            "sizes": shown(dict(at)),
            "trials": len(one.records),
            "best_seconds": None if one.best is None else one.best.run_seconds,
            "built_seconds": None if choice is None else choice.seconds(dict(at)),
        }
        for at, one in result.results.items()
    ]
    if as_json:
        echo_json(spec=case.spec, target=str(machine), db=path, examples=rows, schedules=len(result.schedules))
        return 0
    columns = [
        column("sizes", lambda r: r["sizes"]),
        column("best", lambda r: seconds_text(r["best_seconds"]), True),
        column("as built", lambda r: seconds_text(r["built_seconds"]), True),
        column("trials", lambda r: str(r["trials"]), True),
    ]
    echo_table(rows, columns)
    click.echo(f"{counted(len(result.schedules), 'schedule')} for all sizes -> {path}")
    click.echo(f"build it: {command_line('build', spec, args, **build_words(words, case.name))}")
    return 0


def _tune_workload(spec: str, args: tuple[str, ...], machine: Target, as_json: bool, words: Mapping[str, Any]) -> int:
    from ..driver import parse_spec, tune
    from ..driver.machine_report import bound_for, measure_machine
    from ..tuner import TuningInterrupted
    from ..tuning_db import Database

    path, trials = words["db"], words["trials"]
    case = parse_spec(spec, args)
    flops = case.flops  # a workload that cannot be built shows before anything is measured
    with Database(path):  # a database that cannot be written shows before anything is measured
        pass
    with _runner(words["runner"]) as runner, ProgressView(case.spec, trials, flops) as progress:
        if words["runner"] is None and not machine.is_gpu:
            progress.says("measuring the machine")
            progress.bound = bound_for(measure_machine(machine), case.func, machine)
        progress.says("choosing candidates")
        try:
            result = tune(
                case, machine, trials=trials, seed=words["seed"] or 0, db=path, time_limit=words["time_limit"],
                stop_early=not words["all_trials"], runner=runner, callbacks=[progress.on_event],
                until=words["until"], patience=words["patience"],
            )  # fmt: skip
        except TuningInterrupted as interrupted:
            result = interrupted.result
        progress.settle(result)
    if as_json:
        _print_json(case, result, progress.bound, str(machine), path)
    else:
        if result.best is not None:
            _print_schedule(result)
        _print_text(case, result, progress, path)
        if result.best is not None:
            click.echo(f"build it: {command_line('build', spec, args, **build_words(words, case.name))}")
    if result.stopped == "interrupted":
        again = command_line("tune", spec, args, **words)
        click.echo(f"stopped; what was measured is in {path}. Go on with: {again}", err=True)
        raise KeyboardInterrupt
    if result.best is None:
        raise CommandError(
            f"nothing could be measured: {result.problem}", f"`tilewright db failures --db {path}` shows why", code=4
        )
    return 0


def _runner(address: str | None) -> AbstractContextManager[Runner | None]:
    """Returns the runner of an address, or None for the one that the tuner makes itself. The runner is closed at the
    end."""
    from ..tuner.remote import runner_for

    try:
        return contextlib.nullcontext() if address is None else runner_for(address)
    except ValueError as error:
        raise CommandError(str(error), code=2) from None


def _print_json(case: WorkloadCase, result: TuneResult, bound: Bound | None, machine: str, path: str | None) -> None:
    best = result.best
    echo_json(
        spec=case.spec,
        target=machine,
        db=path,
        session=result.session,
        trials=len(result.records),
        stopped=result.stopped,
        elapsed_seconds=result.elapsed_seconds,
        failures=result.failures,
        best_seconds=best.run_seconds if best else None,
        best_gflops=result.best_gflops if best and case.flops else None,
        share_of_roofline=bound.seconds / result.best_seconds if best and bound and bound.seconds else None,
        limit=bound.limit if bound else None,
        best_record=best.id if best else None,
    )


def _print_text(case: WorkloadCase, result: TuneResult, progress: ProgressView, path: str | None) -> None:
    done, failed = len(result.records), sum(result.failures.values())
    trouble = f", {failed} failed" if failed else ""
    click.echo(f"{case.spec}: {counted(done, 'trial')} in {result.elapsed_seconds:.1f} s{trouble} -> {path}")
    if result.stopped != "trials":
        hint = " (--all-trials turns this off)" if result.stopped == "converged" else ""
        click.echo(f"ended: {result.why}{hint}", err=True)
    if result.late:
        click.echo(f"the time limit was exceeded: {result.late}", err=True)
    if result.best is not None:
        click.echo(progress.figure())
        if result.best.machine.get("clock"):
            click.echo(f"the times are {result.best.machine['clock']}")


def build_words(words: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the options of `tilewright build` that go with those of a search."""
    return {**{key: words[key] for key in ("target", "num_cores", "db")}, "output": f"{name}.so"}


def _print_schedule(result: TuneResult) -> None:
    """Print the best schedule, to paste. It may be long, and comes first: what matters is at the end of the screen."""
    schedule = result.best_schedule
    if schedule is not None:
        click.echo(f"the schedule, sch = Schedule(func):\n{schedule.trace.as_python()}\n")


_SHOWN = 20
"""The most kernels that the table shows."""


def tune_model(spec: str, args: tuple[str, ...], machine: Target, as_json: bool, words: Mapping[str, Any]) -> int:
    """Tune the kernels of the model in the file ``spec``, and print what was found; ``words`` are the options."""
    from ..driver import ModelTuningInterrupted, tune
    from ..driver.machine_report import measure_machine
    from ..driver.models.model_building import load_model

    graph = load_model(spec, **({"shapes": input_shapes(args)} if args else {}))
    path, limit = words["db"], words["time_limit"]
    with ModelSearch(Path(spec).name, 0, limit) as search:
        if not machine.is_gpu:
            search.says("measuring the machine")
            measure_machine(machine)
        try:
            result = tune(
                graph, machine, trials=words["trials"], seed=words["seed"] or 0, db=path, time_limit=limit,
                until=words["until"], stop_early=not words["all_trials"], accuracy=words["accuracy"], callbacks=[search.show],
                sizes=example_sizes(words["size"]) or None,
            )  # fmt: skip
        except ModelTuningInterrupted as interrupted:
            result = interrupted.result
    if as_json:
        echo_json(**result.as_dict(), spec=spec, db=path)
    else:
        _say(Path(spec).name, result, path)
    if result.stopped == "interrupted":
        again = command_line("tune", spec, args, **words)
        click.echo(f"stopped; what was measured is in {path}. Go on with: {again}", err=True)
        raise KeyboardInterrupt
    if result.kernels and not math.isfinite(min(k.seconds for k in result.kernels)):
        why = f"nothing could be measured: {result.kernels[0].why or result.why}"
        raise CommandError(why, f"`tilewright db failures --db {path}` shows why", code=4)
    return 0


def _say(name: str, result: ModelTuneResult, path: str) -> None:
    failed = sum(k.failures for k in result.kernels)
    trouble = f", {failed} failed" if failed else ""
    click.echo(f"{name}: {counted(result.trials, 'trial')} in {result.elapsed_seconds:.1f} s{trouble} -> {path}")
    rows = [vars(k) | {"whole": k.whole_seconds} for k in result.kernels[:_SHOWN]]
    columns = [
        column("kernel", lambda r: r["name"]),
        column("shapes", lambda r: _short(r["shapes"])),
        column("calls", lambda r: str(r["calls"]), True),
        column("default", lambda r: _time(r["default_seconds"]), True),
        column("tuned", lambda r: _time(r["seconds"]), True),
        column("of the model", lambda r: _part(r["whole"] / result.seconds if result.seconds else None), True),
        column("of roofline", lambda r: _part(r["share"]), True),
        column("trials", lambda r: str(r["trials"]), True),
        column("", lambda r: r["why"]),
    ]
    echo_table(rows, columns, "the model has no kernels")
    if len(result.kernels) > _SHOWN:
        rest = result.kernels[_SHOWN:]
        part = sum(k.whole_seconds for k in rest if math.isfinite(k.seconds)) / (result.seconds or 1.0)
        click.echo(f"and {len(rest)} more kernels, {_part(part)} of the model together")
    untuned = [k.name for k in result.kernels if not math.isfinite(k.seconds)]
    if untuned:
        names = ", ".join(untuned[:5]) + (f" and {len(untuned) - 5} more" if len(untuned) > 5 else "")
        click.echo(f"not measured: {names}; they run by default schedules, and their time is not in the sum")
    click.echo(f"all kernels: {seconds_text(result.seconds)}, {seconds_text(result.default_seconds)} by default")
    click.echo(f"ended: {result.why}", err=True)


_WIDE = 44
"""The letters that the shapes of a kernel may take in the table."""


def _short(shapes: str) -> str:
    """Returns the shapes as they fit: the first and the last ones."""
    if len(shapes) <= _WIDE:
        return shapes
    first, *_, last = shapes.split(", ")
    return f"{first}, …, {last}" if len(first) + len(last) + 5 <= _WIDE else f"{shapes[: _WIDE - 1]}…"


def _time(seconds: float) -> str:
    return seconds_text(seconds if math.isfinite(seconds) else None)


def _part(share: float | None) -> str:
    return "–" if share is None or not math.isfinite(share) else f"{share:.1%}"
