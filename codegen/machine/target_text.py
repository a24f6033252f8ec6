"""The text of targets: kinds, options with values, and flags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...pages import did_you_mean


class TargetOption(NamedTuple):
    """An option of a target's text. ``kinds`` are the kinds of targets that take it; all of them when it is empty."""

    name: str
    value: str
    """What stands after the equals sign; an empty text for an option without a value."""
    meaning: str
    kinds: tuple[str, ...] = ()

    @property
    def written(self) -> str:
        """Return the option as texts have it: ``-mcpu=NAME``."""
        return f"-{self.name}={self.value}" if self.value else f"-{self.name}"


TARGET_OPTIONS = (
    TargetOption("mtriple", "TRIPLE", "processor and system in LLVM's words: aarch64-linux-gnu (not with native)"),
    TargetOption("mcpu", "NAME", "model of the processor: skylake, cortex-m7, sm_90 (also -arch; not with native)"),
    TargetOption("mattr", "+A,-B", "features of the processor to add and to take away: +avx2,-amx-tile"),
    TargetOption("num-cores", "N", "threads that a kernel may use; without it all cores of this machine, 1 elsewhere"),
    TargetOption("vector-width", "BITS", "width of vectors: 256; without it the widest of the processor"),
    TargetOption("winograd", "TILE", "largest tile of Winograd's convolutions in networks: 4 (default), 2, 0 for none"),
    TargetOption("openmp", "", "parallel loops become those of OpenMP", ("c",)),
    TargetOption("vector-extensions", "", "vectors become the vector types of GCC and Clang", ("c",)),
    TargetOption("hls", "", "C for high-level synthesis, with its pragmas", ("c",)),
)
"""All options of targets. The parser takes them from here, and ``tilewright tune --target help`` prints them."""

FLAGS = tuple([option.name for option in TARGET_OPTIONS if not option.value])
"""The options without a value."""


class TargetError(ValueError):
    """Raised when the text does not describe a target, or the target cannot do what was requested."""


NAMED_TARGETS = {
    "x86-64": "llvm -mtriple=x86_64-linux-gnu",
    "aarch64": "llvm -mtriple=aarch64-linux-gnu",
    "arm64": "llvm -mtriple=aarch64-linux-gnu",
    "riscv64": "llvm -mtriple=riscv64-linux-gnu",
    "wasm": "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128,+bulk-memory",
    "wasm32": "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128,+bulk-memory",
    "raspberry-pi/4b-aarch64": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -num-cores=4",
    "nvidia/nvidia-v100": "cuda -arch=sm_70",
    "nvidia/nvidia-t4": "cuda -arch=sm_75",
    "nvidia/nvidia-a100": "cuda -arch=sm_80",
    "nvidia/nvidia-a10": "cuda -arch=sm_86",
    "nvidia/geforce-rtx-3090": "cuda -arch=sm_86",
    "nvidia/geforce-rtx-4090": "cuda -arch=sm_89",
    "nvidia/nvidia-l4": "cuda -arch=sm_89",
    "nvidia/nvidia-h100": "cuda -arch=sm_90a",
    "nvidia/nvidia-h200": "cuda -arch=sm_90a",
}
"""Names that stand for a whole target; the tags with a maker's name are TVM's. Options behind one are added to it."""


def spelled(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options with the names that texts have."""
    return {str(name).lstrip("-").replace("_", "-"): value for name, value in options.items()}


def split(text: str) -> dict[str, Any]:
    """Returns the kind and options of a target's text."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise TargetError(f"target {text!r}: {e}") from None
    if not words:
        raise TargetError("an empty target; write 'native' or 'llvm -mcpu=…'")
    words = [*shlex.split(NAMED_TARGETS[words[0]]), *words[1:]] if words[0] in NAMED_TARGETS else words
    out: dict[str, Any] = {"kind": words.pop(0)}
    while words:
        word = words.pop(0)
        match = re.fullmatch(r"--?([A-Za-z][\w-]*)(?:=(.*))?", word)
        if match is None:
            raise TargetError(f"target {text!r}: {word!r} is not an option; options look like -mcpu=skylake")
        name, value = match[1].replace("_", "-"), match[2]
        if name in FLAGS and value is None:
            out[name] = True
            continue
        if value is None and words and not words[0].startswith("-"):
            value = words.pop(0)
        if not value:
            known = {option.name: option for option in TARGET_OPTIONS}
            hint = f"; write {known[name].written}" if name in known else did_you_mean(name, known, prefix="-")
            raise TargetError(f"target {text!r}: option -{name} has no value{hint}")
        out[name] = value
    return out


def positive(value: Any, name: str) -> int:
    """Returns a number of at least 1; TargetError names the option."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise TargetError(f"{name}={value}: a whole number of at least 1 is needed")
    return number
