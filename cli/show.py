"""``tilewright show``: prints a workload at a stage of compilation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..pages import size_text
from .options import (
    Choice,
    apply,
    arg_option,
    bounds_option,
    cores_option,
    database_path,
    db_option,
    input_shapes,
    output_file,
    size_bounds,
    spec_argument,
    target_option,
    target_text,
)
from .output import CommandError, clear_sign, echo_json, first_sign, json_option

if TYPE_CHECKING:
    from ..codegen import Target
    from ..driver import WorkloadCase
    from ..driver.building import Plan
    from ..te import Tensor

STAGES = ("te", "tir", "scheduled", "space", "trace", "linalg", "lowered", "kernels", "mlir", "ll", "asm", "c")
MODEL_STAGES = (
    "graph",
    "fused",
    "kernels",
    "memory",
    "tir",
    "linalg",
    "scheduled",
    "lowered",
    "mlir",
    "ll",
    "asm",
    "c",
)


@click.command("show")
@apply(spec_argument, arg_option, target_option, db_option, json_option)
@click.option(
    "--stage",
    default="scheduled",
    show_default=True,
    type=Choice(list(dict.fromkeys((*STAGES, *MODEL_STAGES)))),
    help="What to show.",
)
@click.option("--mca", is_flag=True, help="Print what llvm-mca says of the innermost loop, where it is installed.")
@click.option(
    "--html",
    metavar="FILE",
    help="Write a page with the program at every stage beside its machine code, lines linked.",
)
@click.option(
    "--kernel",
    metavar="NAME",
    help="The kernel of a model that --html shows; the one with the most arithmetic otherwise.",
)
@cores_option
@bounds_option
def command(
    spec: str,
    args: tuple[str, ...],
    target: str | None,
    db_path: str | None,
    as_json: bool,
    stage: str,
    mca: bool,
    html: str | None,
    kernel: str | None,
    num_cores: int | None,
    bounds: str | None,
) -> int:
    """Print SPEC at a stage, or write a page with all of them (--html). The stages are te (its tensors), tir (loops as
    written), scheduled (the best in the database, else the default), space (what the tuner searches: sketches,
    decisions, sizes), trace (the schedule's steps as Python), linalg (MLIR on tensors), lowered, kernels (of a GPU: what each
    takes, and its occupancy), mlir (the schedule's loops in MLIR), ll (LLVM IR), asm, c.

    A model, such as model.onnx: graph (as read), fused (after the passes), kernels, memory, and of each distinct kernel
    tir, scheduled, lowered, mlir, ll, asm and c; linalg is the whole model. --html shows one kernel of it.
    """
    first_sign(spec)
    from ..codegen import Target
    from ..driver import parse_spec
    from ..driver.models.model_building import is_model, load_model
    from ..driver.stages import kernel_plan, model_text

    known = MODEL_STAGES if is_model(spec) else STAGES
    if stage not in known:
        raise CommandError(f"--stage {stage}: {spec} has the stages {', '.join(known)}", code=2)
    if mca and (is_model(spec) or stage in ("te", "tir", "linalg")):
        raise CommandError(f"--mca is about the machine code of a workload, not {spec} --stage {stage}", code=2)
    if html is not None:
        output_file(html)
    if kernel is not None and (html is None or not is_model(spec)):
        raise CommandError("--kernel is for --html pages of models", code=2)
    machine = Target(target_text(target, num_cores))
    if is_model(spec):
        graph = load_model(spec, **({"shapes": input_shapes(args)} if args else {}))
        path, sizes = database_path(db_path, needed=False), size_bounds(bounds)
        if html is not None:
            _write_plan(kernel_plan(graph, kernel, machine, path, sizes), (), html)
        else:
            _say(spec, stage, "", model_text(graph, stage, machine, path, sizes), as_json)
        return 0
    if bounds is not None:
        raise CommandError("--bounds is for models", code=2)
    if html is not None:
        _write_page(spec, args, machine, db_path, html)
        return 0
    case = parse_spec(spec, args)
    stage = "mca" if mca else stage
    origin, text = _workload_text(case, stage, machine, db_path)
    clear_sign()
    if origin:
        click.echo(f"# {origin}", err=True)
    _say(case.spec, stage, origin, text, as_json)
    return 0


def _workload_text(case: WorkloadCase, stage: str, target: Target, db_path: str | None) -> tuple[str, str]:
    """Returns where the schedule of a stage comes from, empty for stages before scheduling, and the stage's text."""
    from ..driver import plan, to_mlir
    from ..driver.kernel_report import kernel_resources, resources_text
    from ..driver.stages import declared_lines, throughput_report
    from ..schedule import Trace
    from ..tuner import Space

    if stage == "te":
        return "", "\n".join([line for _, line in declared_lines(case.tensors)])
    if stage == "tir":
        return "", case.func.script()
    if stage == "linalg":
        return "", str(to_mlir(case.func))
    if stage == "space":
        return "", Space(case.func, target).describe()
    made = plan(case, target=target, db=database_path(db_path, needed=False))
    if stage == "mca":
        assembly = made.compile().get_source("asm")
        return made.origin, throughput_report(assembly, made.target.llvm_cpu, made.target.triple)
    if stage == "kernels":
        return made.origin, resources_text(kernel_resources(made.compile()))
    if stage == "scheduled":
        return made.origin, made.scheduled.script()
    if stage == "trace":
        return made.origin, made.trace.as_python() if isinstance(made.trace, Trace) else "# no steps"
    return made.origin, made.compile().get_source(stage)


def _write_page(spec: str, args: tuple[str, ...], target: Target, db_path: str | None, file: str) -> None:
    from ..driver import parse_spec, plan

    case = parse_spec(spec, args)
    _write_plan(plan(case, target=target, db=database_path(db_path, needed=False)), case.tensors, file)


def _write_plan(made: Plan, tensors: Sequence[Tensor], file: str) -> None:
    from ..driver.stages import stage_page
    from ..pages.written_files import write_file

    text = stage_page(made, tensors)
    write_file(Path(file), text)
    clear_sign()
    click.echo(f"{file}: {size_text(len(text.encode()))}, {made.origin}")


def _say(spec: str, stage: str, origin: str, text: str, as_json: bool) -> None:
    if as_json:
        echo_json(spec=spec, stage=stage, origin=origin, text=text)
    else:
        clear_sign()
        click.echo(text)
