"""``tilewright show``: prints a workload at a stage of compilation."""

from __future__ import annotations

import click

from .exit_codes import CommandError
from .options import (
    apply,
    arg_option,
    bounds_option,
    cores_option,
    database_path,
    db_option,
    input_shapes,
    size_bounds,
    spec_argument,
    target_option,
    target_text,
)
from .output import echo_json, json_option

STAGES = ("te", "tir", "scheduled", "space", "trace", "lowered", "ll", "asm", "c")
MODEL_STAGES = ("graph", "fused", "kernels", "memory", "tir", "scheduled", "lowered", "ll", "asm", "c")


@click.command("show")
@apply(spec_argument, arg_option, target_option, db_option, json_option)
@click.option(
    "--stage",
    default="scheduled",
    show_default=True,
    type=click.Choice(list(dict.fromkeys((*STAGES, *MODEL_STAGES)))),
    help="What to show.",
)
@click.option("--mca", is_flag=True, help="Print what llvm-mca says of the innermost loop, where it is installed.")
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
    num_cores: int | None,
    bounds: str | None,
) -> int:
    """Print SPEC at a stage: te (its tensors), tir (loops as written), scheduled (the best in the database, else the
    default), space (what the tuner searches: sketches, decisions, sizes), trace (the schedule's steps as Python), lowered,
    ll (LLVM IR), asm, c.

    A model, such as model.onnx: graph (as read), fused (after the passes), kernels, memory, and of each distinct kernel
    tir, scheduled, lowered, ll, asm and c.
    """
    from ..codegen import Target
    from ..driver import parse_spec, plan
    from ..driver.models.model_files import is_model, load_model
    from ..driver.models.model_stages import model_text
    from ..driver.throughput import throughput_report
    from ..schedule import Trace
    from ..tuner import Space

    known = MODEL_STAGES if is_model(spec) else STAGES
    if stage not in known:
        raise CommandError(f"--stage {stage}: {spec} has the stages {', '.join(known)}", code=2)
    if mca and (is_model(spec) or stage in ("te", "tir")):
        raise CommandError(f"--mca is about the machine code of a workload, not {spec} --stage {stage}", code=2)
    if is_model(spec):
        graph = load_model(spec, **({"shapes": input_shapes(args)} if args else {}))
        path = database_path(db_path, needed=False)
        text = model_text(graph, stage, Target(target_text(target, num_cores)), path, size_bounds(bounds))
        _say(spec, stage, "", text, as_json)
        return 0
    if bounds is not None:
        raise CommandError("--bounds is for models", code=2)
    case = parse_spec(spec, args)
    origin = ""
    if stage == "te":
        text = "\n".join([f"{t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]{_body(t)}" for t in case.tensors])
    elif stage == "tir":
        text = case.func.script()
    elif stage == "space":
        text = Space(case.func, Target(target_text(target, num_cores))).describe()
    else:
        made = plan(case, target=Target(target_text(target, num_cores)), db=database_path(db_path, needed=False))
        origin = made.origin
        if mca:
            stage, target_of = "mca", made.target
            text = throughput_report(made.compile().get_source("asm"), target_of.llvm_cpu, target_of.triple)
        elif stage == "scheduled":
            text = made.scheduled.script()
        elif stage == "trace":
            text = made.trace.as_python() if isinstance(made.trace, Trace) else "# no steps"
        else:
            text = made.compile().get_source(stage)
        click.echo(f"# {origin}", err=True)
    _say(case.spec, stage, origin, text, as_json)
    return 0


def _say(spec: str, stage: str, origin: str, text: str, as_json: bool) -> None:
    if as_json:
        echo_json(spec=spec, stage=stage, origin=origin, text=text)
    else:
        click.echo(text)


def _body(tensor: object) -> str:
    body = getattr(getattr(tensor, "op", None), "body", None)
    return f" = {', '.join(map(str, body))}" if body else ""
