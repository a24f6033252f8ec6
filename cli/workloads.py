"""``tilewright workloads``: what can be named."""

from __future__ import annotations

import click

from .output import CommandError, clear_sign, column, echo_json, echo_table, first_sign, json_option


@click.command("workloads")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the workloads, or with NAME the parameters of one.

    A workload is written name:key=value,key=value; parameters left out take their defaults. A function of your own
    that returns te tensors is file.py:function.
    """
    first_sign("workloads")
    from ..driver.workloads.catalog import all_workloads, find_workload

    if name is not None and "=" in name:
        raise CommandError(f"{name!r} is a spec; name the workload alone", code=2)
    found = [find_workload(name)] if name else list(all_workloads().values())
    rows = [
        {
            "name": w.name,
            "doc": w.doc.split("\n")[0],
            "spec": w.signature,
            "reference": w.reference is not None,
            "parameters": [
                {"name": p.name, "kind": p.kind, "default": p.default, "doc": p.doc, "choices": list(p.choices)}
                for p in w.parameters
            ],
        }
        for w in found
    ]
    if as_json:
        echo_json(workloads=rows)
    elif name:
        clear_sign()
        click.echo(f"{rows[0]['name']}: {rows[0]['doc']}\n{rows[0]['spec']}\n")
        echo_table(
            rows[0]["parameters"],  # type: ignore[arg-type]
            [
                column("parameter", lambda p: p["name"]),
                column("default", lambda p: "–" if p["default"] is None else str(p["default"])),
                column("meaning", lambda p: p["doc"] + (f" ({', '.join(p['choices'])})" if p["choices"] else "")),
            ],
            "no parameters",
        )
    else:
        echo_table(rows, [column("workload", lambda r: r["spec"]), column("computes", lambda r: r["doc"])])
