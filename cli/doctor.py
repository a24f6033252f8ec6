"""``tilewright doctor``: the machine, versions and settings."""

from __future__ import annotations

import platform
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

import click

from ..pages import size_text
from .options import all_settings, cores_option, require_here, set_options, target_option, target_text
from .output import ProgressView, column, echo_json, echo_table, first_sign, json_option

if TYPE_CHECKING:
    from ..driver.machine_report import MachineReport

_PACKAGES = (
    "tilewright",
    "numpy",
    "llvmlite",
    "xgboost",
    "sqlite-utils",
    "click",
    "rich",
    "platformdirs",
    "threadpoolctl",
)


@click.command("doctor")
@click.option("--refresh", is_flag=True, help="Measure again, although this machine was measured before.")
@cores_option
@target_option
@json_option
def command(refresh: bool, num_cores: int | None, target: str | None, as_json: bool) -> None:
    """Measure and print this machine: CPU, vector width, cores, caches, and what it reaches. That is the peak of
    multiply-adds and the bandwidth of memory (both by code that Tilewright generates); versions, and where each setting
    came from, follow."""
    first_sign("doctor", lasting=True)
    from ..codegen import Target
    from ..codegen.object_cache import cache_directory
    from ..driver.machine_report import measure_machine

    machine = Target(target_text(target, num_cores))
    require_here(machine)
    with ProgressView("doctor") as progress:
        progress.says("measuring the machine")
        report = measure_machine(machine, refresh=refresh)
    versions = _versions()
    warnings = [*_warnings(), *busy_warnings(report)]
    settings = [{"name": s.name, "value": s.value, "from": s.origin} for s in [*all_settings(), *set_options()]]
    if as_json:
        echo_json(
            machine=report.as_dict(), target=machine.describe(), versions=versions, settings=settings,
            cache_directory=str(cache_directory()), object_cache=_object_cache(), warnings=warnings,
        )  # fmt: skip
        return
    echo_table(_machine_rows(report), [column("machine", lambda r: r["name"]), column("", lambda r: r["value"])])
    click.echo()
    echo_table(
        [{"name": name, "value": version} for name, version in versions.items()],
        [column("version", lambda r: r["name"]), column("", lambda r: r["value"])],
    )
    click.echo()
    echo_table(
        settings,
        [
            column("setting", lambda r: r["name"]),
            column("", lambda r: "–" if r["value"] is None else r["value"]),
            column("from", lambda r: r["from"]),
        ],
    )
    click.echo()
    kept = _object_cache()
    echo_table(
        [
            {"name": "directory", "value": str(cache_directory())},
            {
                "name": "machine code",
                "value": f"{kept['files']} files, {size_text(kept['bytes'])} of at most {size_text(kept['limit_bytes'])}"
                if kept["on"]
                else "not kept",
            },
        ],
        [column("cache", lambda r: r["name"]), column("", lambda r: r["value"])],
    )
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def busy_warnings(report: MachineReport) -> list[str]:
    """Returns what to say where the machine is busy, or was when it was measured."""
    from ..codegen import Target
    from ..driver.machine_report import busy_text, processor_share

    now = busy_text(processor_share(Target(report.target)), report.num_cores)
    then = busy_text(report.processor_share, report.num_cores)
    if now:
        return [now]
    again = "; tilewright doctor --refresh measures it again"
    return (
        [then.replace("the machine is busy", "the machine was busy while it was measured").split(";")[0] + again]
        if then
        else []
    )


def _object_cache() -> dict[str, Any]:
    from ..codegen.object_cache import cache_state

    state = cache_state()
    return {
        "on": state.folder is not None, "files": state.files, "bytes": state.bytes, "limit_bytes": state.limit_bytes
    }  # fmt: skip


def _machine_rows(report: MachineReport) -> list[dict[str, str]]:
    caches = report.caches
    rows = [
        ("CPU", report.model),
        ("LLVM's name", report.cpu),
        ("vector width", f"{report.vector_bits} bits"),
        ("threads", str(report.num_cores)),
        ("clock", f"{report.clock_hz / 1e9:.2f} GHz"),
        (
            "caches",
            ", ".join([f"L{level} {size_text(caches[f'l{level}'])}" for level in (1, 2, 3) if f"l{level}" in caches]),
        ),
    ]
    for dtype, figures in report.peak_flops.items():
        unit = "GOP/s" if dtype.startswith("int") else "GFLOP/s"
        rows.append((f"peak {dtype}", _one_and_all(figures, unit, report.num_cores)))
    for kind, figures in report.bandwidth.items():
        rows.append((f"memory {kind}", _one_and_all(figures, "GB/s", report.num_cores)))
    for level, figure in report.cache_read.items():
        rows.append((f"{level.upper()} read", f"{figure / 1e9:.0f} GB/s on one thread"))
    return [{"name": name, "value": value} for name, value in rows]


def _one_and_all(figures: dict[str, float], unit: str, threads: int) -> str:
    text = f"{figures['one'] / 1e9:.1f} {unit} on one thread"
    return text if threads == 1 else f"{text}, {figures['all'] / 1e9:.1f} on {threads}"


def _versions() -> dict[str, Any]:
    found: dict[str, Any] = {"Python": platform.python_version(), "system": platform.platform()}
    for name in _PACKAGES:
        found[name] = _version(name) or "not installed"
    if _version("xgboost") is None and _version("xgboost-cpu") is not None:
        found["xgboost"] = f"{_version('xgboost-cpu')} (xgboost-cpu)"
    from ..codegen import CODEGEN_VERSION
    from ..codegen.llvm.jit import llvm_version
    from ..tuning_db import SCHEMA_VERSION

    found["LLVM"] = llvm_version()
    found["SQLite"] = sqlite3.sqlite_version
    found["database schema"] = str(SCHEMA_VERSION)
    found["code generator"] = str(CODEGEN_VERSION)
    return found


def _warnings() -> list[str]:
    out = []
    installed = [name for name in ("xgboost", "xgboost-cpu") if _version(name) is not None]
    if not installed:
        out.append("xgboost is not installed, so searches use the analytic model only; pip install xgboost-cpu")
    if len(installed) == 2:
        out.append(
            "both xgboost and xgboost-cpu are installed and overwrite each other; uninstall one, reinstall the other"
        )
    if sqlite3.sqlite_version_info < (3, 31):
        out.append(f"SQLite {sqlite3.sqlite_version} is old: databases of others cannot be opened safely")
    if sys.version_info >= (3, 14):
        out.append(f"Python {platform.python_version()} is newer than what Tilewright is tested with (3.10 to 3.13)")
    return out


def _version(name: str) -> str | None:
    """Returns the version of an installed distribution, None where it is not installed."""
    from importlib import metadata  # it takes as long to load as everything before the first sign

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
