"""This module reads what the system tells of this machine: the model, the caches, the permission to use tile registers."""

from __future__ import annotations

import ctypes
import dataclasses
import platform
import re
import sys
from pathlib import Path

from .cpu import HOST_DETAILS, Caches, Host
from .cpu_names import generic_caches

_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA = 158, 0x1023, 18


def tiles_allowed() -> bool:
    """Returns whether Linux lets this process use AMX's tile registers.

    The only way to know is to request them, as kernels do before they use them. The request costs nothing where they
    are not used, and some sandboxes refuse it.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA) == 0
    except (AttributeError, OSError):
        return False


def detailed(known: Host) -> Host:
    """Returns a description of this machine with its model and its caches, without tile registers that must not be used."""
    features = known.features
    if "+amx-tile" in features and not tiles_allowed():
        features = tuple([f.replace("+", "-", 1) if f.startswith("+amx-") else f for f in features])
    caches = _read_caches(known.triple.split("-")[0], "+avx512f" in features)
    return dataclasses.replace(known, model=_model_name(), features=features, caches=caches)


def _model_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    for key in ("model name", "Hardware", "CPU part"):
        match = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
        if match:
            return match[1].strip()
    return platform.machine()


def _read_caches(arch: str, wide: bool) -> Caches:
    found: dict[str, int] = {}
    base = Path("/sys/devices/system/cpu/cpu0/cache")
    for index in sorted(base.glob("index*")) if base.is_dir() else ():
        try:
            level = (index / "level").read_text().strip()
            if (index / "type").read_text().strip() == "Instruction" or level not in "123":
                continue
            found[f"l{level}"] = _parse_size((index / "size").read_text().strip())
            ways = int((index / "ways_of_associativity").read_text() or 0)
            if ways > 0:
                found[f"l{level}_ways"] = ways
            found["line"] = int((index / "coherency_line_size").read_text())
        except (OSError, ValueError):
            continue
    guess = generic_caches(arch, wide)
    return Caches(**{name: found.get(name, getattr(guess, name)) for name in Caches.__slots__})


def _parse_size(text: str) -> int:
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit


HOST_DETAILS.set(detailed)
