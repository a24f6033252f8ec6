"""Knowledge about processors: the features that a CPU name implies, and the machine that this process runs on.

Only features that change the generated code are listed; LLVM knows the rest. Sources: the feature lists that LLVM
gives its CPU names (X86TargetParser.def, AArch64Processors.td), reduced to ours.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Caches:
    """The data caches that one core uses: sizes in bytes, associativity, and the line size in bytes."""

    l1: int
    l2: int
    l3: int
    l1_ways: int = 8
    l2_ways: int = 8
    l3_ways: int = 16
    line: int = 64


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that this process runs on. ``model`` is the CPU's own name, ``features`` LLVM's full list, each
    ``+name`` or ``-name``, as measured (a virtual machine may mask some that the CPU's name implies)."""

    triple: str
    cpu: str
    model: str
    features: tuple[str, ...]
    caches: Caches


@lru_cache(maxsize=1)
def host() -> Host:
    """Return the properties of this machine, which are determined once. LLVM names the CPU and its features."""
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

    triple = llvm.get_process_triple()
    features = dict(llvm.get_host_cpu_features())
    if features.get("amx-tile") and not tiles_allowed():
        features.update((name, False) for name in features if name.startswith("amx-"))
    listed = tuple(sorted((f"+{n}" if on else f"-{n}" for n, on in features.items()), key=lambda f: f[1:]))
    arch = triple.split("-")[0]
    return Host(triple, llvm.get_host_cpu_name(), _model_name(), listed, _read_caches(arch, "+avx512f" in listed))


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


def generic_caches(arch: str, wide: bool) -> Caches:
    """Returns assumed caches of an unknown machine: those of a modest core of the last ten years."""
    if arch == "aarch64":
        return Caches(64 << 10, 512 << 10, 8 << 20, 4, 8, 16)
    return Caches(32 << 10, (1 << 20) if wide else (256 << 10), 8 << 20, 8, 16 if wide else 4, 16)


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
