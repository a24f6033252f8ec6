"""``tilewright show``: prints a workload at a stage of compilation."""

from __future__ import annotations

import click

from .options import apply, arg_option, database_path, db_option, spec_argument, target_option, target_text
from .output import echo_json, json_option

STAGES = ("te", "tir", "scheduled", "trace", "lowered", "ll", "asm", "c")


@click.command("show")
@apply(spec_argument, arg_option, target_option, db_option, json_option)
@click.option("--stage", default="scheduled", show_default=True, type=click.Choice(STAGES), help="What to show.")
@click.option("--num-cores", type=click.IntRange(1), help="Threads that the kernel may use.")
def command(
    spec: str,
    args: tuple[str, ...],
    target: str | None,
    db_path: str | None,
    as_json: bool,
    stage: str,
    num_cores: int | None,
) -> int:
    """Print SPEC at a stage: te (its tensors), tir (loops as written), scheduled (the best in the database, else the
    default), trace (the schedule's steps as Python), lowered, ll (LLVM IR), asm, c."""
    from ..codegen import Target
    from ..driver import parse_spec, plan
    from ..schedule import Trace

    case = parse_spec(spec, args)
    origin = ""
    if stage == "te":
        text = "\n".join([f"{t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]{_body(t)}" for t in case.tensors])
    elif stage == "tir":
        text = case.func.script()
    else:
        made = plan(case, target=Target(target_text(target, num_cores)), db=database_path(db_path, needed=False))
        origin = made.origin
        if stage == "scheduled":
            text = made.scheduled.script()
        elif stage == "trace":
            text = made.trace.as_python() if isinstance(made.trace, Trace) else "# no steps"
        else:
            text = made.compile().get_source(stage)
        click.echo(f"# {origin}", err=True)
    if as_json:
        echo_json(spec=case.spec, stage=stage, origin=origin, text=text)
    else:
        click.echo(text)
    return 0


def _body(tensor: object) -> str:
    body = getattr(getattr(tensor, "op", None), "body", None)
    return f" = {', '.join(map(str, body))}" if body else ""
