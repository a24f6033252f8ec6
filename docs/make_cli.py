"""Writes docs/reference/cli.md from the commands' own ``--help``: ``python docs/make_cli.py``; ``--check`` compares."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tilewright.cli.main import cli

HEAD = """# The command line

Written by `python docs/make_cli.py` from the commands' own help. A spec names a workload with its parameters,
`matmul:M=512,N=512,K=512`; those left out take their defaults (`tilewright workloads`). `file.py:function` is a function of
your own. Results go to stdout, progress and remarks to stderr; `--json` prints one document with `"schema": 1`.
"""


def pages(command: click.Command, path: str) -> list[str]:
    """The help of a command and of those below it."""
    context = click.Context(command, info_name=path, max_content_width=100, terminal_width=100)
    out = [f"## {path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                out += pages(below, f"{path} {name}")
    return out


def main() -> int:
    text = "\n".join([HEAD, *pages(cli, "tilewright")])
    file = Path(__file__).parent / "reference" / "cli.md"
    if "--check" in sys.argv:
        return 0 if file.read_text(encoding="utf-8") == text else 1
    file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
