"""The processor that this process runs on, and the features of processors.

It knows the syntax of ``-mattr``, the features that a CPU's name implies, and their dependences; of this machine also
caches, and the permission to use tile registers.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import platform
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...pages import did_you_mean
from .target_text import TargetError, arch_of

_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA = 158, 0x1023, 18


@dataclass(frozen=True, slots=True)
class Caches:
    """The data caches that one core uses: sizes, the associativity of the first, and the line size, in bytes."""

    l1: int = 32 << 10
    l2: int = 256 << 10
    l3: int = 8 << 20
    l1_ways: int = 8
    line: int = 64


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that this process runs on. ``model`` is the CPU's own name, ``features`` LLVM's full list, each
    ``+name`` or ``-name``, as measured (a virtual machine may mask some that the CPU's name implies)."""

    triple: str
    cpu: str
    model: str
    features: tuple[str, ...]
    caches: Caches = Caches()


def generic_caches(arch: str, wide: bool) -> Caches:
    """Returns assumed caches of an unknown machine: those of a modest core of the last ten years."""
    if arch == "aarch64":
        return Caches(64 << 10, 512 << 10, 8 << 20, 4)
    return Caches(32 << 10, (1 << 20) if wide else (256 << 10), 8 << 20, 8)


@lru_cache(maxsize=1)
def host() -> Host:
    """Return the properties of this machine, which are determined once. LLVM names the CPU and its features."""
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
    listed = [f"+{name}" if features[name] else f"-{name}" for name in sorted(features)]
    return _detailed(Host(llvm.get_process_triple(), cpu, cpu, tuple(listed)))


def available_cores() -> int:
    """Returns the number of cores that this process may use: the affinity mask, limited by a cgroup's CPU quota."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        if quota != "max":
            cores = min(cores, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass
    return max(1, cores)


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


def _detailed(known: Host) -> Host:
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


IMPLIES = {
    "sse3": ("sse2",), "ssse3": ("sse3",), "sse4.1": ("ssse3",), "sse4.2": ("sse4.1", "popcnt"), "avx": ("sse4.2",),
    "f16c": ("avx",), "fma": ("avx",), "avx2": ("avx",), "avxvnni": ("avx2",), "avxvnniint8": ("avx2",),
    "avxvnniint16": ("avx2",), "avxifma": ("avx2",), "avxneconvert": ("avx2",), "avx512f": ("avx2", "fma", "f16c"),
    "avx512cd": ("avx512f",), "avx512bw": ("avx512f",), "avx512dq": ("avx512f",), "avx512vl": ("avx512f",),
    "avx512vnni": ("avx512f",), "avx512ifma": ("avx512f",), "avx512vpopcntdq": ("avx512f",), "avx512bf16": ("avx512bw",),
    "avx512vbmi": ("avx512bw",), "avx512vbmi2": ("avx512bw",), "avx512bitalg": ("avx512bw",),
    "avx512fp16": ("avx512bw", "avx512dq", "avx512vl"), "amx-int8": ("amx-tile",), "amx-bf16": ("amx-tile",),
    "amx-fp16": ("amx-tile",), "amx-complex": ("amx-tile",), "amx-fp8": ("amx-tile",), "amx-tf32": ("amx-tile",),
    "amx-avx512": ("amx-tile",), "amx-movrs": ("amx-tile",), "avx512vp2intersect": ("avx512f",),
    "avx10.1": ("avx512f",), "avx10.2": ("avx10.1",), "sve2": ("sve",), "bmi2": (), "bmi": (), "lzcnt": (), "movbe": (), "neon": (),
    "fp-armv8": (), "dotprod": ("neon",), "fullfp16": (), "bf16": (), "i8mm": (), "lse": (), "amx-tile": (), "sse2": (),
    "popcnt": (), "sve": ("fullfp16",), "aes": (), "sha": (), "crc": (), "crc32": (), "mmx": (), "sse": (),
}  # fmt: skip
"""The features that a feature implies (it is removed itself when one of these is removed)."""


def parse_attrs(attrs: Any) -> tuple[str, ...]:
    """Returns the signed features of a text ``+a,-b`` or of a list. TargetError for one without a sign."""
    items = attrs.split(",") if isinstance(attrs, str) else list(attrs)
    out = [str(item).strip() for item in items if str(item).strip()]
    for item in out:
        if not re.fullmatch(r"[+-][\w.-]+", item):
            raise TargetError(f"-mattr: {item!r} needs a sign: +{item.lstrip('+-')} or -{item.lstrip('+-')}")
    return tuple(out)


def enabled_features(arch: str, cpu: str, attrs: tuple[str, ...]) -> frozenset[str]:
    """Returns the features of a CPU of that name, with ``attrs`` added and removed. TargetError for an unknown name."""
    known = {"x86_64": X86_CPUS, "aarch64": AARCH64_CPUS}.get(arch)
    if known is not None and cpu not in known:
        raise TargetError(
            f"-mcpu={cpu}: not a CPU of {arch} that is known here{did_you_mean(cpu.replace('zen', 'znver'), known, 3)}"
        )
    on = set(known[cpu]) if known is not None else set()
    for item in attrs:
        name = item[1:]
        if known is not None and name not in IMPLIES and name not in _host_feature_names(arch):
            raise TargetError(f"-mattr={item}: not a feature of {arch} that is known here{did_you_mean(name, IMPLIES)}")
        if item[0] == "+":
            pending = [name]
            while pending:
                top = pending.pop()
                on.add(top)
                pending.extend(IMPLIES.get(top, ()))
        else:
            on -= _dependents_of(name, on)
    return frozenset(on)


def _dependents_of(name: str, on: set[str]) -> set[str]:
    """Returns a feature and those of ``on`` that require it."""
    off = {name}
    while True:
        more = {f for f in on if off & set(IMPLIES.get(f, ()))} - off
        if not more:
            return off
        off |= more


def features_left(arch: str, features: tuple[str, ...], attrs: tuple[str, ...]) -> frozenset[str]:
    """Returns this machine's features without those that ``-mattr`` removes."""
    on = {f[1:] for f in features if f[0] == "+"}
    for item in attrs:
        name = item[1:]
        if item[0] == "+":
            raise TargetError(
                f"target native takes no -mattr={item}: it has what this machine has; -mattr=-{name} would take it away"
            )
        if name not in IMPLIES and name not in _host_feature_names(arch):
            raise TargetError(f"-mattr={item}: not a feature of {arch} that is known here{did_you_mean(name, IMPLIES)}")
        on -= _dependents_of(name, on)
    return frozenset(on)


def _host_feature_names(arch: str) -> frozenset[str]:
    here = host()
    return frozenset(f[1:] for f in here.features) if arch_of(here.triple) == arch else frozenset()


# Lists the features that the name of a CPU implies.
#
# Only features that change the generated code are listed; LLVM knows the rest. Sources: the feature lists that LLVM
# gives its CPU names (X86TargetParser.def, AArch64Processors.td), reduced to ours.

_V2 = frozenset(("sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"))
_AVX = _V2 | {"avx"}
_V3 = _AVX | {"avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}
_SKX = _V3 | {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}
_CLX = _SKX | {"avx512vnni"}
_ICL = _CLX | {"avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq"}
_SPR = _ICL | {"avx512bf16", "avx512fp16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16"}
_ADL = _V3 | {"avxvnni"}

X86_CPUS: dict[str, frozenset[str]] = {
    "generic": frozenset(("sse2",)),
    "x86-64": frozenset(("sse2",)),
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _SKX,
    "nehalem": _V2,
    "westmere": _V2,
    "sandybridge": _AVX,
    "ivybridge": _AVX | {"f16c"},
    "haswell": _V3,
    "core-avx2": _V3,
    "broadwell": _V3,
    "skylake": _V3,
    "skylake-avx512": _SKX,
    "cascadelake": _CLX,
    "cooperlake": _CLX | {"avx512bf16"},
    "cannonlake": _SKX | {"avx512ifma", "avx512vbmi"},
    "icelake-client": _ICL,
    "icelake-server": _ICL,
    "tigerlake": _ICL,
    "rocketlake": _ICL,
    "alderlake": _ADL,
    "raptorlake": _ADL,
    "meteorlake": _ADL,
    "arrowlake": _ADL | {"avxvnniint8", "avxifma", "avxneconvert"},
    "lunarlake": _ADL | {"avxvnniint8", "avxvnniint16", "avxifma", "avxneconvert"},
    "sierraforest": _ADL | {"avxvnniint8", "avxifma", "avxneconvert"},
    "sapphirerapids": _SPR,
    "emeraldrapids": _SPR,
    "graniterapids": _SPR | {"amx-fp16"},
    "znver1": _V3,
    "znver2": _V3,
    "znver3": _V3,
    "znver4": _ICL | {"avx512bf16"},
    "znver5": _ICL | {"avx512bf16", "avxvnni"},
}

_NEON = frozenset(("neon",))
_V82 = _NEON | {"lse", "fullfp16", "dotprod"}
_SVE2 = _V82 | {"sve", "sve2", "bf16", "i8mm"}

AARCH64_CPUS: dict[str, frozenset[str]] = {
    "generic": _NEON,
    "cortex-a53": _NEON,
    "cortex-a57": _NEON,
    "cortex-a72": _NEON,
    "cortex-a55": _V82,
    "cortex-a75": _V82,
    "cortex-a76": _V82,
    "cortex-a78": _V82,
    "cortex-x1": _V82,
    "cortex-x2": _SVE2,
    "cortex-a710": _SVE2,
    "neoverse-n1": _V82,
    "neoverse-n2": _SVE2,
    "neoverse-v1": _V82 | {"sve", "bf16", "i8mm"},
    "neoverse-v2": _SVE2,
    "a64fx": _NEON | {"lse", "fullfp16", "sve"},
    "apple-a14": _V82,
    "apple-m1": _V82,
    "apple-m2": _V82 | {"bf16", "i8mm"},
    "apple-m3": _V82 | {"bf16", "i8mm"},
    "apple-m4": _V82 | {"bf16", "i8mm"},
}
