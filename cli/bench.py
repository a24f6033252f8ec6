"""``tilewright bench``: default, tuned and NumPy side by side; for a model, default, recorded and ONNX Runtime."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..pages import seconds_text
from .options import (
    WholeNumber,
    accuracy_option,
    apply,
    arg_option,
    command_line,
    cores_option,
    database_path,
    db_option,
    input_shapes,
    require_here,
    spec_argument,
    target_option,
    target_text,
)
from .output import CommandError, ProgressView, check_results, column, echo_json, echo_table, first_sign, json_option

if TYPE_CHECKING:
    from ..codegen import Target
    from ..driver import BenchResult, ModelBenchResult


@click.command("bench")
@apply(spec_argument, arg_option, target_option, db_option, json_option)
@click.option("--rounds", default=15, show_default=True, type=WholeNumber(1), help="Timed runs of each contender.")
@cores_option
@click.option("--require-tuned", is_flag=True, help="Fail (exit code 3) when the database has no record.")
@accuracy_option
@click.option("--profile", is_flag=True, help="Of a model: a table of its kernels, too.")
def command(
    spec: str,
    args: tuple[str, ...],
    target: str | None,
    db_path: str | None,
    as_json: bool,
    rounds: int,
    num_cores: int | None,
    require_tuned: bool,
    profile: bool,
    accuracy: float | None,
) -> int:
    """Time SPEC with the default schedule, with the best one of the database, and with NumPy, in turns. A model, such
    as model.onnx, is timed with ONNX Runtime where that is installed.

    Shares are of the peak and the roofline that this machine was measured to reach (`tilewright doctor`). Exit code 1
    when a result is wrong.
    """
    first_sign(spec, lasting=True)
    from ..codegen import Target
    from ..driver import NoRecordError, bench, parse_spec
    from ..driver.models.model_building import is_model
    from ..tuning_db import Database, DatabaseError

    again = command_line("tune", spec, args, target=target, num_cores=num_cores, db=db_path)
    machine = Target(target_text(target, num_cores))
    require_here(machine)
    path = database_path(db_path, needed=require_tuned or db_path is not None)
    try:
        if is_model(spec):
            options = {
                "db": path,
                "rounds": rounds,
                "require_tuned": require_tuned,
                "profile": profile,
                "accuracy": accuracy,
            }
            return bench_model(spec, args, machine, again, as_json, **options)
        if profile:
            raise CommandError("--profile is for models", code=2)
        if accuracy is not None:
            raise CommandError("--accuracy is for models", code=2)
        case = parse_spec(spec, args)
        flops = case.flops  # a workload that cannot be built shows first
        with ProgressView(case.spec, flops=flops) as progress:
            progress.says("measuring the machine, then the contenders in turns")
            result = bench(case, machine, db=path, rounds=rounds, require_tuned=require_tuned)
    except NoRecordError as error:
        raise CommandError(str(error), again, code=3) from error
    numpy = result.row("numpy")
    if path is not None and numpy is not None and numpy.seconds and not numpy.error:
        with contextlib.suppress(DatabaseError), Database(path) as db:  # one that cannot be written stays as it is
            db.add_baseline(case.func, machine, "NumPy", numpy.seconds)
    if as_json:
        echo_json(**result.as_dict())
    else:
        _say(result, again)
    check_results(result.rows)
    return 0


def _say(result: BenchResult, again: str) -> None:
    from ..codegen import Target
    from ..driver.machine_report import busy_text

    rows: list[dict[str, Any]] = [
        {"name": row.name, "seconds": row.seconds, "origin": row.origin, **result.figures(row)} for row in result.rows
    ]
    columns = [column("", lambda r: r["name"]), column("time", lambda r: seconds_text(r["seconds"]), True)]
    if result.flops:
        columns.append(column("GFLOP/s", lambda r: _number(r["gflops"]), True))
    if result.bytes:
        columns.append(column("GB/s", lambda r: _number(r["gbytes_per_second"]), True))
    if result.peak_flops and result.flops:
        columns.append(column("of peak", lambda r: _share(r["share_of_peak"]), True))
    if result.roofline_seconds:
        columns.append(column("of roofline", lambda r: _share(r["share_of_roofline"]), True))
    if result.row("numpy"):
        columns.append(column("vs NumPy", lambda r: f"{r['speedup_over_numpy']:.2f}x", True))
    columns.append(column("", lambda r: r["origin"]))
    click.echo(f"{result.spec} on {result.target}")
    echo_table(rows, columns)
    parts = []
    if result.peak_flops:
        parts.append(f"peak {result.peak_flops / 1e9:.0f} GFLOP/s")
    if result.bandwidth:
        parts.append(f"{result.bandwidth_of} {result.bandwidth / 1e9:.1f} GB/s")
    if result.row("numpy"):
        threads = result.numpy_threads
        parts.append(
            f"NumPy on {threads} thread{'s' if threads != 1 else ''}" if threads else "NumPy on its own threads"
        )
    if parts:
        click.echo(", ".join(parts))
    busy = busy_text(result.processor_share, Target(result.target).num_cores)
    if busy:
        click.echo(busy, err=True)
    elif any((row[key] or 0.0) > _TOO_FAST for row in rows for key in ("share_of_peak", "share_of_roofline")):
        click.echo(
            "something here is faster than the machine's limits, which were measured while it was busy; "
            "tilewright doctor --refresh measures them again",
            err=True,
        )
    if result.row("tuned") is None and result.row("given") is None:
        click.echo("not tuned yet: " + again, err=True)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


_TOO_FAST = 1.05
"""A larger share of what the machine can do says that its limits are not what they were measured to be."""


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}" if value <= _TOO_FAST else "over 100 %"


def bench_model(
    spec: str, args: tuple[str, ...], machine: Target, again: str, as_json: bool, **options: Any
) -> int:  # fmt: skip
    """Time the model in the file ``spec``, and print what each contender takes; ``again`` is the line that tunes it."""
    from ..driver import bench
    from ..driver.machine_report import measure_machine

    if options.get("profile") and not machine.is_gpu:
        measure_machine(machine)  # for shares of the roofline
    reading: dict[str, Any] = {"shapes": input_shapes(args)} if args else {}
    result: ModelBenchResult = bench(Path(spec), machine, **{**reading, **options})
    if as_json:
        echo_json(spec=spec, **result.as_dict())
    else:
        _say_model(result, again)
    check_results(result.rows)
    return 0


def _say_model(result: ModelBenchResult, again: str) -> None:
    from ..codegen import Target
    from ..driver.machine_report import busy_text

    rows = [vars(row) | {"seconds": row.seconds, "speedup": result.speedup(row)} for row in result.rows]
    columns = [column("", lambda r: r["name"]), column("time", lambda r: seconds_text(r["seconds"]), True)]
    if result.row("onnxruntime"):
        columns.append(column("vs ONNX Runtime", lambda r: f"{r['speedup']:.2f}x", True))
    columns.append(column("", lambda r: r["origin"]))
    click.echo(f"{result.model} on {result.target}")
    echo_table(rows, columns)
    for name, profile in result.profiles.items():
        click.echo(f"\n{name}:\n{profile}")
    busy = busy_text(result.processor_share, Target(result.target).num_cores)
    if busy:
        click.echo(busy, err=True)
    if result.row("tuned") is None:
        click.echo("not tuned yet: " + again, err=True)
