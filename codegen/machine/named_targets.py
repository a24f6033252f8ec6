"""Names that stand for whole targets: processors, devices, and TVM's tags, which have a maker's name.

A name stands where a target's kind stands. Options behind one are added to it: ``"nvidia/geforce-rtx-4090 -num-cores=2"``.
The architectures of NVIDIA's devices are those of https://developer.nvidia.com/cuda-gpus. Devices older than Maxwell (``sm_50``) are not
among them, as no assembler that is still maintained takes code for them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ...pages import did_you_mean
from .cpu import AARCH64_CPUS, X86_CPUS
from .target_text import MICROCONTROLLERS, TargetError, split_options

_X86, _ARM, _APPLE = "x86_64-linux-gnu", "aarch64-linux-gnu", "arm64-apple-macosx"
_WASM = "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128,+bulk-memory"

_NVIDIA: dict[str, str] = {
    "sm_50": """quadro-k2200 quadro-k1200 quadro-k620 quadro-m1200 quadro-m520 quadro-m5000m quadro-m4000m quadro-m3000m quadro-m2000m
        quadro-m1000m quadro-k620m quadro-m600m quadro-m500m nvidia-nvs-810 geforce-gtx-750-ti geforce-gtx-750 geforce-gtx-960m
        geforce-gtx-950m geforce-940m geforce-930m geforce-gtx-860m-sm-50 geforce-gtx-850m geforce-840m geforce-830m""",
    "sm_52": """tesla-m60 tesla-m40 quadro-m6000-24gb quadro-m6000 quadro-m5000 quadro-m4000 quadro-m2000 quadro-m5500m quadro-m2200
        quadro-m620 geforce-gtx-titan-x geforce-gtx-980-ti geforce-gtx-980 geforce-gtx-970 geforce-gtx-960 geforce-gtx-950
        geforce-gtx-980m geforce-gtx-970m geforce-gtx-965m geforce-910m""",
    "sm_53": "jetson-nano jetson-tx1 tegra-x1",
    "sm_60": "tesla-p100 quadro-gp100",
    "sm_61": """tesla-p40 tesla-p4 quadro-p6000 quadro-p5000 quadro-p4000 quadro-p2200 quadro-p2000 quadro-p1000 quadro-p620 quadro-p600
        quadro-p400 p620 p520 quadro-p5200 quadro-p4200 quadro-p3200 quadro-p3000 quadro-p500 nvidia-titan-xp nvidia-titan-x
        geforce-gtx-1080-ti geforce-gtx-1080 geforce-gtx-1070-ti geforce-gtx-1070 geforce-gtx-1060 geforce-gtx-1050""",
    "sm_62": "jetson-tx2",
    "sm_70": "nvidia-v100 quadro-gv100 nvidia-titan-v",
    "sm_72": "jetson-agx-xavier",
    "sm_75": """nvidia-t4 quadro-rtx-8000 quadro-rtx-6000 quadro-rtx-5000 quadro-rtx-4000 rtx-5000 rtx-4000 rtx-3000 t2000 t1000
        nvidia-titan-rtx geforce-rtx-2080-ti geforce-rtx-2080 geforce-rtx-2070 geforce-rtx-2060""",
    "sm_80": "nvidia-a100 nvidia-a30",
    "sm_86": """nvidia-a40 nvidia-a10 nvidia-a10g nvidia-a16 nvidia-a2 rtx-a6000 geforce-rtx-3090-ti geforce-rtx-3090 geforce-rtx-3080-ti
        geforce-rtx-3080 geforce-rtx-3070-ti geforce-rtx-3070 geforce-rtx-3060""",
    "sm_87": "jetson-orin-nano jetson-agx-orin-32gb jetson-agx-orin-64gb",
    "sm_89": "nvidia-l4 nvidia-l40 nvidia-l40s geforce-rtx-4090 geforce-rtx-4080 geforce-rtx-4070-ti geforce-rtx-4070 geforce-rtx-4060",
    "sm_90a": "nvidia-h100 nvidia-h200",
    "sm_100": "nvidia-b200",
    "sm_120": "geforce-rtx-5090 geforce-rtx-5080 geforce-rtx-5070-ti geforce-rtx-5070",
}
"""The devices of an architecture of NVIDIA."""
_AMD = {
    "gfx900": "radeon-rx-vega-64", "gfx906": "radeon-vii instinct-mi50 instinct-mi60", "gfx908": "instinct-mi100",
    "gfx90a": "instinct-mi210 instinct-mi250 instinct-mi250x", "gfx942": "instinct-mi300a instinct-mi300x instinct-mi325x",
    "gfx950": "instinct-mi350x instinct-mi355x", "gfx1010": "radeon-rx-5700-xt radeon-rx-5700",
    "gfx1030": "radeon-rx-6950-xt radeon-rx-6900-xt radeon-rx-6800-xt radeon-rx-6800", "gfx1031": "radeon-rx-6700-xt",
    "gfx1032": "radeon-rx-6600-xt radeon-rx-6600", "gfx1100": "radeon-rx-7900-xtx radeon-rx-7900-xt",
    "gfx1101": "radeon-rx-7800-xt radeon-rx-7700-xt", "gfx1102": "radeon-rx-7600", "gfx1200": "radeon-rx-9060-xt",
    "gfx1201": "radeon-rx-9070-xt radeon-rx-9070",
}  # fmt: skip
"""The devices of an architecture of AMD."""
_APPLE_CORES = {"m1": 8, "m2": 8, "m3": 8, "m4": 10}
_RASPBERRY = {"3b": "cortex-a53", "4b": "cortex-a72", "5": "cortex-a76"}
_AWS_C5 = {
    "large": 1,
    "xlarge": 2,
    "2xlarge": 4,
    "4xlarge": 8,
    "9xlarge": 18,
    "12xlarge": 24,
    "18xlarge": 36,
    "24xlarge": 48,
}
_CASCADE_LAKE = ("12xlarge", "24xlarge")


def _of_cpus() -> dict[str, str]:
    """Returns the processors that LLVM and we know by name, with the system that they usually run."""
    found = {name: f"llvm -mtriple={_X86} -mcpu={name}" for name in X86_CPUS if name not in ("generic", "x86-64")}
    for name in AARCH64_CPUS:
        if name != "generic":
            found[name] = f"llvm -mtriple={_APPLE if name.startswith('apple-') else _ARM} -mcpu={name}"
    return found | {name: f"c -mcpu={name}" for name in MICROCONTROLLERS}


NAMED_TARGETS: dict[str, str] = {
    "x86-64": f"llvm -mtriple={_X86}",
    "aarch64": f"llvm -mtriple={_ARM}",
    "arm64": f"llvm -mtriple={_ARM}",
    "armv7": "llvm -mtriple=armv7-linux-gnueabihf -mattr=+neon,+vfp4",
    "riscv64": "llvm -mtriple=riscv64-linux-gnu",
    "wasm": _WASM,
    "wasm32": _WASM,
    **_of_cpus(),
    **{
        f"raspberry-pi/{model}-aarch64": f"llvm -mtriple={_ARM} -mcpu={cpu} -num-cores=4"
        for model, cpu in _RASPBERRY.items()
    },
    **{
        f"apple/{chip}": f"llvm -mtriple={_APPLE} -mcpu=apple-{chip} -num-cores={cores}"
        for chip, cores in _APPLE_CORES.items()
    },
    **{
        f"aws/cpu/c5.{size}": f"llvm -mtriple={_X86} -mcpu={'cascadelake' if size in _CASCADE_LAKE else 'skylake-avx512'} "
        f"-num-cores={cores}"
        for size, cores in _AWS_C5.items()
    },
    **{f"nvidia/{device}": f"cuda -arch={arch}" for arch, devices in _NVIDIA.items() for device in devices.split()},
    **{f"amd/{device}": f"rocm -mcpu={arch}" for arch, devices in _AMD.items() for device in devices.split()},
}
"""The names with the targets that they stand for."""


def split(text: str) -> dict[str, Any]:
    """Returns the kind and options of a target's text."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise TargetError(f"target {text!r}: {e}") from None
    if not words:
        raise TargetError("an empty target; write 'native' or 'llvm -mcpu=…'")
    first = shlex.split(NAMED_TARGETS[words[0]]) if words[0] in NAMED_TARGETS else words[:1]
    return {"kind": first[0], **split_options(text, [*first[1:], *words[1:]])}


def options_of_mapping(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options in which a target's name is replaced. It is the kind, or TVM's ``tag``."""
    rest = dict(options)
    name = rest.pop("tag", None)
    if name is not None:
        if "kind" in rest or name not in NAMED_TARGETS:
            known = did_you_mean(str(name), NAMED_TARGETS, 3)
            raise TargetError(
                f"target tag {name!r}: {'leave out the kind' if 'kind' in rest else f'no such name{known}'}"
            )
    elif rest.get("kind") in NAMED_TARGETS:
        name = rest.pop("kind")
    return rest if name is None else split(name) | rest
