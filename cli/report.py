"""``tilewright report``: a page about a database."""

from __future__ import annotations

import click

from ..pages import size_text
from .options import database_path, db_option, output_file
from .output import clear_sign, first_sign


@click.command("report")
@db_option
@click.option("-o", "--output", default="report.html", show_default=True, metavar="FILE", help="Where to write it.")
def command(db_path: str | None, output: str) -> None:
    """Write one static HTML page: the best records, and the progress of each search."""
    first_sign("report")
    from ..driver.report import write_report

    output_file(output)
    path = database_path(db_path)
    assert path is not None
    size = write_report(path, output)
    clear_sign()
    click.echo(f"{output}: {size_text(size)}")
