"""The command ``tilewright`` finds the subcommand and turns errors into messages and exit codes."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import click

from .. import __version__
from .options import CommandGroup, put_into_force, read_environment
from .output import EXIT_CODES, CommandError, clear_sign

COMMANDS = {
    "tune": "Search for the fastest schedule of a workload, and record what was tried.",
    "bench": "Time a workload: default schedule, tuned, and NumPy side by side.",
    "build": "Compile a workload to a library, an object file, or source.",
    "quantize": "Quantize a model, and print what that costs in accuracy.",
    "show": "Print a workload at a stage of compilation.",
    "db": "Show and maintain a database of tuning records.",
    "report": "Write a page about the contents of a database.",
    "workloads": "List the named workloads, or the parameters of one.",
    "worker": "Measure candidates for tuners on other machines.",
    "targets": "List what can be compiled for: kinds, options, names.",
    "doctor": "Measure and print this machine, versions and settings.",
}


class _Commands(CommandGroup):
    """Subcommands whose files load when they are called, so that ``--help`` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f".{cmd_name}", __package__), "command")  # noqa: B009
        assert isinstance(command, click.Command)
        return read_environment(command, f"TILEWRIGHT_{cmd_name.upper()}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])
        with formatter.section("Settings"):
            formatter.write_text(
                "A flag wins over the environment (TILEWRIGHT_DB, _TARGET, _CACHE_DIR, _NUM_THREADS, _LOG), which wins "
                "over tilewright.toml in the working directory. Each option of a command has a variable as well, as "
                "TILEWRIGHT_TUNE_TRIALS; the command's --help shows them, `tilewright doctor` what is set."
            )


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tilewright")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Declare a computation, schedule it separately, and let a tuner find the fastest schedule.

    \b
    tilewright tune matmul:M=512,N=512,K=512 --trials 64 --db tuning.db
    tilewright bench matmul:M=512,N=512,K=512 --db tuning.db
    """
    put_into_force()


_terminated: list[bool] = []


def _terminate(*_: Any) -> None:
    """SIGTERM is handled like Ctrl-C, with an exit code of its own."""
    _terminated.append(True)
    raise KeyboardInterrupt


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; see ``tilewright --help`` for the codes."""
    code = _run(list(sys.argv[1:] if args is None else args))
    if args is None and code in (130, 143):
        # Everything is saved and closed. CPython ends a process by SIGINT, whatever code it was given, when the
        # interrupt passed through an exec of text on its way, as it may inside an import.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return code


def _run(words: list[str]) -> int:
    _prepare_streams()
    debug = "--debug" in words or bool(os.environ.get("TILEWRIGHT_DEBUG"))
    words = [word for word in words if word != "--debug"]
    _terminated.clear()
    previous, stdout = _catch_sigterm(), sys.stdout
    try:
        result = cli.main(words, prog_name="tilewright", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (BrokenPipeError, SystemExit) as end:
        # The reader of the output has closed it (`tilewright … | head`), so there is nothing to report. Click puts other
        # streams in place then, and ends the process.
        if isinstance(end, SystemExit) and sys.stdout is stdout:
            raise
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 0
    except (KeyboardInterrupt, click.Abort):
        clear_sign()
        click.echo("tilewright: interrupted", err=True)
        return 143 if _terminated else 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _say(error, debug, words)
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def _prepare_streams() -> None:
    """Make closed outputs usable, characters that a terminal does not have harmless, and warnings one line."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    text = " ".join(str(message).split())
    clear_sign()
    click.echo(f"tilewright: warning: {text}", err=True)


def _catch_sigterm() -> Any:
    try:
        return signal.signal(signal.SIGTERM, _terminate)
    except ValueError:  # not the main thread
        return None


def _say(error: Exception, debug: bool, words: Sequence[str]) -> int:
    """Print the message of an error and return the exit code."""
    hint, code = "", 1
    clear_sign()
    if isinstance(error, click.ClickException) and type(error).__name__ == "NoArgsIsHelpError":
        click.echo(error.format_message(), err=True)
        return error.exit_code
    if isinstance(error, click.ClickException):
        command = " ".join(["tilewright", *words[:1]]) if words and words[0] in COMMANDS else "tilewright"
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else command
        said = error.format_message()
        said += _comma_hint(said, words)
        click.echo(f"{command}: {said}\n  `{command} --help` lists what it takes", err=True)
        return error.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        click.echo(f"tilewright: {error.filename}: {error.strerror}", err=True)
        return code
    if isinstance(error, OSError) and error.errno is not None:
        click.echo(f"tilewright: cannot write the output: {error.strerror}", err=True)
        return code
    missing = _missing_package(error)
    if missing:
        click.echo(f"tilewright: the Python package {missing} is not installed\n  pip install {missing}", err=True)
        return code
    if isinstance(error, CommandError):
        hint, code = error.hint, error.code
    elif _named(error, "WorkloadError", "TargetError"):
        code = 2
    elif _named(error, "ReferenceFailed"):
        code = 4
    elif not _named(
        error,
        "DatabaseError",
        "BuildError",
        "EmitError",
        "ScheduleError",
        "TuneError",
        "ExportError",
        "GraphError",
        "MlirError",
        "JITError",
        "OnnxError",
        "RemoteError",
        "TorchError",
        "TraceError",
        "OSError",
    ):
        hint = (
            "" if debug else "this is a bug in Tilewright; run it again with --debug for the traceback, and report it"
        )
        click.echo(f"tilewright: {type(error).__name__}: {error}", err=True)
        if hint:
            click.echo(f"  {hint}", err=True)
        return code
    click.echo(f"tilewright: {error}", err=True)
    if hint:
        click.echo(f"  {hint}", err=True)
    return code


def _comma_hint(message: str, words: Sequence[str]) -> str:
    """Returns how the parameters of a workload are separated, for a command line that has spaces between them."""
    rest = [word for word in words if "=" in word and not word.startswith("-")]
    if "unexpected extra argument" not in message or len(rest) < 2:
        return ""
    return f"; the parameters of a workload are separated by commas: {','.join([word.rstrip(',') for word in rest])}"


def _missing_package(error: Exception) -> str:
    """Returns the package that an import did not find; empty text for other errors, and for modules of ours."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return "" if name == "tilewright" else name.replace("_", "-")


def _named(error: Exception, *names: str) -> bool:
    """Return whether an error has a type of one of these names; asking by name imports no layer."""
    return any(cls.__name__ in names for cls in type(error).__mro__)
