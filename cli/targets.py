"""``tilewright targets``: what can be compiled for."""

from __future__ import annotations

import click

from .output import CommandError, clear_sign, column, echo_json, echo_table, first_sign, json_option


def print_kinds() -> None:
    """Print the kinds of targets, and their options."""
    from ..codegen.machine.described_targets import kinds_of_targets
    from ..codegen.machine.target_text import TARGET_OPTIONS

    click.echo("A target is a kind and options, such as 'llvm -mcpu=skylake -num-cores=4'.\n")
    kinds = [{"kind": name, "is": summary} for name, summary in kinds_of_targets().items()]
    echo_table(kinds, [column("kind", lambda r: r["kind"]), column("is", lambda r: r["is"])])
    click.echo()
    options = [{"option": o.written, "means": ": ".join([*o.kinds, o.meaning])} for o in TARGET_OPTIONS]
    echo_table(options, [column("option", lambda r: r["option"]), column("means", lambda r: r["means"])])


@click.command("targets")
@click.argument("word", required=False)
@json_option
def command(word: str | None, as_json: bool) -> None:
    """List kinds of targets, options, and names that stand for targets. With WORD list the names that contain it.

    A name may stand wherever a target does, with options behind it: --target 'raspberry-pi/4b-aarch64 -num-cores=2'.
    """
    first_sign("targets")
    from ..codegen.machine.named_targets import NAMED_TARGETS

    rows = [
        {"name": name, "target": text} for name, text in NAMED_TARGETS.items() if (word or "").lower() in name.lower()
    ]
    clear_sign()
    if not rows:
        raise CommandError(f"no target's name contains {word!r}; `tilewright targets` lists all", code=2)
    if as_json:
        echo_json(targets=rows)
        return
    if word is None:
        print_kinds()
        click.echo()
    echo_table(rows, [column("name", lambda r: r["name"]), column("stands for", lambda r: r["target"])])
