"""This module has the options that several commands share, and the settings that stand in for them.

Settings come from a flag, else the environment, else ``tilewright.toml``, else the default.
"""

from __future__ import annotations

import logging
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..pages import did_you_mean
from .output import CommandError

if TYPE_CHECKING:
    from ..codegen import Target


if sys.version_info >= (3, 11):
    from tomllib import loads as _parse_toml
else:
    from tomli import loads as _parse_toml

FILE = "tilewright.toml"
_DEFAULTS: dict[str, str | None] = {
    "db": None,
    "target": "native",
    "cache_dir": None,
    "num_threads": None,
    "log": "warning",
}
_COMMANDS = ("tune", "bench", "build", "quantize", "show", "db", "report", "workloads", "worker", "doctor")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting's value and where it came from: ``flag``, ``TILEWRIGHT_…``, ``tilewright.toml`` or ``default``."""

    name: str
    value: str | None
    origin: str


def setting(name: str, flag: str | None = None) -> Setting:
    """Returns the value in force for ``name``, one of db, target, cache_dir, num_threads, log."""
    if flag is not None:
        if not flag.strip():
            raise CommandError(f"--{name.replace('_', '-')} is empty", code=2)
        return Setting(name, flag, "flag")
    variable = f"TILEWRIGHT_{name.upper()}"
    if os.environ.get(variable):
        return Setting(name, os.environ[variable], variable)
    from_file = _read_file(os.getcwd()).get(name)
    if from_file is not None:
        return Setting(name, str(from_file), FILE)
    return Setting(name, _DEFAULTS[name], "default")


def all_settings() -> list[Setting]:
    """Returns every setting, for ``tilewright doctor``."""
    return [setting(name) for name in _DEFAULTS]


def set_options() -> list[Setting]:
    """Returns the options of commands that the environment sets: ``tune --trials`` from ``TILEWRIGHT_TUNE_TRIALS``."""
    found = []
    for variable in sorted(os.environ):
        words = variable.lower().split("_")
        if words[0] == "tilewright" and len(words) > 2 and words[1] in _COMMANDS:
            inner = words[2:3] if words[1] == "db" and len(words) > 3 else []
            option = "-".join(words[2 + len(inner) :])
            found.append(Setting(" ".join([words[1], *inner, f"--{option}"]), os.environ[variable], variable))
    return found


def put_into_force() -> None:
    """Set the environment of this process from the settings, because the layers below read the environment."""
    for name in ("cache_dir", "num_threads"):
        value = setting(name).value
        if value is not None:
            os.environ[f"TILEWRIGHT_{name.upper()}"] = value
    log = setting("log")
    level = (log.value or "warning").upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise CommandError(f"{log.origin}: log is debug, info, warning or error, not {log.value!r}", code=2)
    logging.basicConfig(level="WARNING", format="%(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("tilewright").setLevel(level)


@lru_cache(maxsize=4)
def _read_file(folder: str) -> dict[str, Any]:
    path = Path(folder) / FILE
    if not path.is_file():
        return {}
    try:
        content = _parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: {error}", code=2) from error
    unknown = sorted(content.keys() - _DEFAULTS.keys())
    if unknown:
        raise CommandError(f"{path}: no setting {unknown[0]!r}; there are {', '.join(_DEFAULTS)}", code=2)
    return content


class Choice(click.Choice):  # type: ignore[type-arg]  # generic in newer versions of click
    """One of some words; the error for another word names the nearest one."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            near = did_you_mean(value, self.choices, listed=99).removeprefix("; ")
            self.fail(f"{value!r} is none of its words; {near}", param, ctx)
        return super().convert(value, param, ctx)


spec_argument = click.argument("spec")
arg_option = click.option(
    "--arg", "args", multiple=True, metavar="NAME=VALUE", help="A parameter of the workload; may be repeated."
)
db_option = click.option("--db", "db_path", metavar="PATH", help="The database of tuning records.")


def _target_or_help(context: click.Context, _: click.Parameter, text: str | None) -> str | None:
    """Returns the text of ``--target``; for ``help`` print the kinds of targets and their options, and end the command."""
    if text != "help":
        return text
    from .targets import print_kinds

    print_kinds()
    click.echo("\n`tilewright targets` lists the names of processors and devices that stand for targets.")
    context.exit()


target_option = click.option(
    "--target", metavar="TEXT", callback=_target_or_help, is_eager=True,
    help="What to compile for, e.g. native (default), 'llvm -mcpu=skylake'; help lists the kinds and options, 'tilewright targets' names such as nvidia/geforce-rtx-4090.",
)  # fmt: skip


class WholeNumber(click.IntRange):
    """A whole number in a range; messages and ``--help`` call it an integer."""

    name = "integer"


cores_option = click.option("--num-cores", type=WholeNumber(1, 4096), help="Threads that the kernel may use.")


class Accuracy(click.ParamType[float]):
    """A relative error of 0 or more; nan is refused."""

    name = "error"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            error = float(value)
        except ValueError:
            error = math.nan
        if not error >= 0:
            self.fail(f"{value!r} is not a relative error of 0 or more, as 1e-6", param, ctx)
        return error


accuracy_option = click.option(
    "--accuracy", type=Accuracy(), metavar="ERROR",
    help="Of a model: the largest relative error of a convolution by Winograd's method, as 1e-6; 0 for none.",
)  # fmt: skip


class CommandGroup(click.Group):
    """A group of commands; a command that it does not have is an error with the nearest name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:  # fmt: skip
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}{did_you_mean(args[0], known, listed=99)}")
        return super().resolve_command(ctx, args)


bounds_option = click.option(
    "--bounds",
    metavar="NAME=SIZE,…",
    help="The largest values of a model's symbolic sizes, as n=32,m=512. n=16:64:512 gives sizes up to 16, up to 64 and up to "
    "512 schedules of their own.",
)


def read_environment(command: click.Command, prefix: str) -> click.Command:
    """Give each option of ``command`` a variable of the environment, ``PREFIX_COMMAND_OPTION``, and return the command.
    ``--help`` shows the variables. --db and --target have settings of their own, which hold for all commands."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.envvar and parameter.expose_value:
            longest = max(parameter.opts, key=len).lstrip("-").replace("-", "_").upper()
            shared = longest in ("DB", "TARGET")
            parameter.envvar = f"TILEWRIGHT_{longest}" if shared else f"{prefix}_{longest}"
            parameter.show_envvar = True
    for name, inner in getattr(command, "commands", {}).items():
        read_environment(inner, f"{prefix}_{name.upper()}")
    return command


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


class Share(click.ParamType[float]):
    """A number above 0 and at most 1; nan is refused."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            share = float(value)
        except ValueError:
            share = math.nan
        if not 0 < share <= 1:
            hint = f"; {share:g} % is {share / 100:g}" if 1 < share <= 100 else ""
            self.fail(f"{value!r} is not a share, a number above 0 and at most 1{hint}", param, ctx)
        return share


def require_here(machine: Target) -> None:
    """Raise CommandError (exit code 2) when code for ``machine`` cannot be timed on this one."""
    from ..driver.machine_report import require_few_threads

    missing = machine.missing_here()
    if missing:
        raise CommandError(
            f"this machine cannot run code for {machine}: it has no {missing[0]}",
            "`tilewright build` and `tilewright show` compile for other machines",
            code=2,
        )
    require_few_threads(machine)


DEFAULT_DB = "tuning.db"


def target_text(flag: str | None, num_cores: int | None = None) -> str:
    """Returns the target in force, with the thread count where one is given."""
    text = setting("target", flag).value or "native"
    return text if num_cores is None else f"{text} -num-cores={num_cores}"


def command_line(command: str, spec: str, args: Sequence[str] = (), **options: Any) -> str:
    """Returns a line to type: the command with each option that has a value, e.g. ``num_cores=2`` as --num-cores 2."""
    words = ["tilewright", command, spec, *[word for arg in args for word in ("--arg", arg)]]
    for name, value in options.items():
        if isinstance(value, tuple):
            words += [word for one in value for word in (f"--{name}", one)]
        elif value is not None and value is not False:
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


def output_file(text: str) -> Path:
    """Returns the path of a file to write; CommandError (exit code 2) when no file can be there."""
    path = Path(text)
    if not text.strip():
        raise CommandError("the name of the file to write is empty", code=2)
    if path.is_dir():
        raise CommandError(f"{text} is a folder; name a file", code=2)
    if not path.absolute().parent.is_dir():
        raise CommandError(f"there is no folder {path.absolute().parent}", code=2)
    return path


def output_folder(text: str) -> Path:
    """Returns a folder to write files in, which is made; CommandError (exit code 2) when it cannot be."""
    path = Path(text)
    if not text.strip():
        raise CommandError("the name of the folder to write in is empty", code=2)
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise CommandError(f"{text}: {error.strerror}", code=2) from error
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


def size_bounds(text: str | None) -> dict[str, int | list[int]]:
    """Returns the largest values of symbolic sizes that ``--bounds n=32,m=16:64`` gives, several as a list."""
    out: dict[str, int | list[int]] = {}
    for part in (text or "").split(",") if text else ():
        name, equals, size = (word.strip() for word in part.partition("="))
        ends = size.split(":")
        if not name or not equals or not all(end.isdigit() and int(end) >= 1 for end in ends):
            raise CommandError(f"--bounds {text}: bounds are written n=32,m=512, or n=16:64:512", code=2)
        out[name] = int(size) if len(ends) == 1 else [int(end) for end in ends]
    return out


def example_sizes(texts: Sequence[str]) -> dict[str, list[int]]:
    """Returns the examples of symbolic sizes that ``--size n=16,128,1024`` gives, by name."""
    out: dict[str, list[int]] = {}
    for text in texts:
        name, equals, sizes = (word.strip() for word in text.partition("="))
        numbers = [size.strip() for size in sizes.split(",")]
        if not name or not equals or not all(size.isdigit() and int(size) >= 1 for size in numbers):
            raise CommandError(f"--size {text}: examples of a size are written n=16,128,1024", code=2)
        out[name] = [*out.get(name, []), *map(int, numbers)]
    return out


def apply(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several option decorators as one, first on top in ``--help``."""

    def wrap(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return wrap
