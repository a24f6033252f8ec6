"""This module lists the features that the name of a CPU implies.

Only features that change the generated code are listed; LLVM knows the rest. Sources: the feature lists that LLVM
gives its CPU names (X86TargetParser.def, AArch64Processors.td), reduced to ours.
"""

from __future__ import annotations

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
