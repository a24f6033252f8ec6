"""Applies what WebAssembly's code needs to the text of an optimized module: short fills written out, offsets kept."""

from __future__ import annotations

from typing import Any

from ..machine.target import Target
from .wasm_fills import write_out_fills
from .wasm_offsets import keep_offsets


def repair(module: Any, texts: tuple[str, ...], target: Target) -> str | None:
    """Returns the text of a module for WebAssembly after all repairs; None for no change."""
    if not target.is_wasm:
        return None
    before = str(module)
    after = keep_offsets(write_out_fills(before))
    return None if after == before else after
