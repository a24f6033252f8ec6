"""This module has the options that several commands share."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import click

from .exit_codes import CommandError
from .settings import setting

spec_argument = click.argument("spec")
arg_option = click.option(
    "--arg", "args", multiple=True, metavar="NAME=VALUE", help="A parameter of the workload; may be repeated."
)
db_option = click.option("--db", "db_path", metavar="PATH", help="The database of tuning records.")
target_option = click.option(
    "--target", metavar="TEXT", help="What to compile for, e.g. native (default), 'llvm -mcpu=skylake'."
)


class Seconds(click.ParamType[float]):
    """A number of seconds above zero; nan and infinity are refused."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not (math.isfinite(seconds) and seconds > 0):
            self.fail(f"{value!r} is not a number of seconds above zero", param, ctx)
        return seconds


DEFAULT_DB = "tuning.db"


def target_text(flag: str | None, num_cores: int | None = None) -> str:
    """Returns the target in force, with the thread count where one is given."""
    text = setting("target", flag).value or "native"
    return text if num_cores is None else f"{text} -num-cores={num_cores}"


def command_line(command: str, spec: str, args: Sequence[str] = (), **options: Any) -> str:
    """Returns a line to type: the command with each option that has a value, e.g. ``num_cores=2`` as --num-cores 2."""
    words = ["tilewright", command, spec, *[word for arg in args for word in ("--arg", arg)]]
    for name, value in options.items():
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def database_path(flag: str | None, *, create: bool = False, needed: bool = True) -> str | None:
    """Returns the database in force: flag, TILEWRIGHT_DB, tilewright.toml, else ``tuning.db`` here when it is there.

    ``create``: it may be new. ``needed`` False: None when there is none.
    """
    found = setting("db", flag)
    path = found.value
    if path is None:
        path = DEFAULT_DB if create or os.path.exists(DEFAULT_DB) else None
    if path is None:
        if not needed:
            return None
        raise CommandError("no database: there is no tuning.db here", "name one with --db PATH", code=2)
    if not create and not os.path.exists(path):
        if not needed and found.origin == "default":
            return None
        raise CommandError(f"there is no database {path}", "`tilewright tune … --db PATH` makes one", code=2)
    return path


def input_shapes(args: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a model's inputs that ``--arg x=1,3,224,224`` gives."""
    out: dict[str, tuple[int, ...]] = {}
    for text in args:
        name, equals, sizes = text.partition("=")
        if not name or not equals or not all(size.strip().isdigit() for size in sizes.split(",")):
            raise CommandError(f"--arg {text}: a shape is written NAME=1,3,224,224", code=2)
        out[name] = tuple([int(size) for size in sizes.split(",")])
    return out


def apply(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several option decorators as one, first on top in ``--help``."""

    def wrap(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return wrap
