"""``tilewright bench model.onnx``: default schedules, those on record and ONNX Runtime side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..pages import seconds_text
from .exit_codes import check_results
from .options import input_shapes
from .output import column, echo_json, echo_table

if TYPE_CHECKING:
    from ..codegen import Target
    from ..driver import ModelBenchResult


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
        _say(result, again)
    check_results(result.rows)
    return 0


def _say(result: ModelBenchResult, again: str) -> None:
    from ..codegen import Target
    from ..driver.machine_probes import busy_text

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
