"""The widths of vector registers by the processor, in bits."""

from __future__ import annotations

from .triples import arch_of

SCALAR = ("thumbv6m", "thumbv7m", "thumbv7em", "thumbv8m.base", "thumbv8m.main")
"""Processors without vector registers: general ones hold four bytes."""

WIDTHS = {
    **dict.fromkeys(SCALAR, (32,)),
    "x86_64": (128, 256, 512),
    "aarch64": (128, 256, 512, 1024, 2048),
    "riscv64": (128, 256, 512, 1024),
}
"""The widths that a target may choose; 128 for other processors."""


def widest_bits(triple: str, enabled: frozenset[str]) -> int:
    """Returns the width of the widest vector registers; of general ones where there are no others."""
    if arch_of(triple) in SCALAR:
        return 32
    return 512 if "avx512f" in enabled else 256 if "avx" in enabled else 128
