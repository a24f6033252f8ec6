"""Settings come from a flag, else the environment, else ``tilewright.toml``, else the default."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .output import CommandError

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
_COMMANDS = ("tune", "bench", "build", "show", "db", "report", "workloads", "worker", "doctor")


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
