"""This module reads specs: the text of a user for a workload with its parameters.

``matmul:M=512,N=512,K=512`` names a built-in workload (or one of a plugin); parameters left out take their defaults.
``kernels.py:attention`` runs a file of the user and takes the function of that name, with ``--arg seq=128`` or
``kernels.py:attention:seq=128``.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from ...pages import did_you_mean
from .catalog import BUILTIN
from .workload_definition import Workload, WorkloadCase, WorkloadError, workload


def parse_spec(text: str, args: Mapping[str, Any] | Sequence[str] = ()) -> WorkloadCase:
    """Returns the case that ``text`` names; ``args`` (a mapping, or texts ``key=value``) are added to it.

    Raises :class:`WorkloadError`: no such workload (with the nearest names), no such parameter, a value that it
    cannot take.
    """
    place, values = _split(text.strip())
    given = _pairs(values.split(",") if values else [], text)
    given.update(args.items() if isinstance(args, Mapping) else _pairs(args, text))
    return find_workload(place).case(**given)


def find_workload(name: str) -> Workload:
    """Returns the workload of a name, or of ``file.py:function``."""
    if ".py:" in name or name.endswith(".py"):
        path, _, function = name.partition(".py:")
        return _from_file(Path(path if path.endswith(".py") else path + ".py"), function)
    found = all_workloads().get(name)
    if found is None:
        raise WorkloadError(
            f"no workload is called {name!r}{did_you_mean(name, all_workloads(), 3, listed=0)} (`tilewright workloads` lists all; "
            "a function of your own is file.py:function)"
        )
    return found


def all_workloads() -> dict[str, Workload]:
    """Returns all workloads by name: the built-in ones and those of installed plugins."""
    if not _plugins_read:
        _plugins_read.append(True)
        for entry in entry_points(group="tilewright.workloads"):
            try:
                found = entry.load()
                whole = found if isinstance(found, Workload) else workload(found)
                _plugins[entry.name] = replace(whole, name=entry.name)  # the name by which users find it
            except Exception as error:  # a plugin that raises any exception is left out
                package = entry.dist.name if entry.dist is not None else "?"
                warnings.warn(f"workload {entry.name!r} of the package {package!r} is broken: {error}", stacklevel=2)
    return {**_plugins, **BUILTIN}


_plugins: dict[str, Workload] = {}
_plugins_read: list[bool] = []


def _split(text: str) -> tuple[str, str]:
    """Returns the name and the ``key=value`` list."""
    if not text:
        raise WorkloadError("an empty workload; write e.g. matmul:M=512,N=512,K=512")
    head, colon, tail = text.rpartition(":")
    if not colon or (".py" in text and "=" not in tail):
        return text, ""
    return head, tail


def _pairs(items: Sequence[str], text: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for item in items:
        name, equals, value = item.partition("=")
        name = name.strip()
        if not equals or not name or not value.strip():
            raise WorkloadError(f"{text}: {item!r} is not name=value")
        if name in given:
            raise WorkloadError(f"{text}: {name} is given twice")
        given[name] = value.strip()
    return given


def _from_file(path: Path, function: str) -> Workload:
    if not path.is_file():
        raise WorkloadError(f"there is no file {path}")
    module = _run(path)
    marked = {name: value for name, value in vars(module).items() if isinstance(value, Workload)}
    own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
    if not function and len(marked) != 1:
        names = list(marked) or own
        if not names:
            raise WorkloadError(f"{path} has no functions; a workload is a function that returns te tensors")
        raise WorkloadError(
            f"{path}: which function is the workload? write {path}:NAME, with one of {', '.join(names)}"
        )
    found = vars(module).get(function) if function else next(iter(marked.values()))
    if found is None:
        raise WorkloadError(
            f"{path} has no function {function!r}{did_you_mean(function, [*marked, *own]) or '; it has no functions'}"
        )
    if not callable(found):
        raise WorkloadError(f"{function} in {path} is not a function that returns te tensors")
    return replace(found if isinstance(found, Workload) else workload(found), origin=str(path))


def _run(path: Path) -> Any:
    """Import a user's file under a name of its own; its folder is importable while it runs."""
    name = f"_tilewright_user_{abs(hash(str(path.resolve())))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"{path} cannot be run as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise WorkloadError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    return module
