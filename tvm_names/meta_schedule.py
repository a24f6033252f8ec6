"""``tvm.meta_schedule``: tuning under TVM's names."""

from __future__ import annotations

from . import tir_integration as tir_integration
from .tir_integration import tune_tir as tune_tir


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"meta_schedule has tune_tir and tir_integration here, no {name!r}; tilewright.tune does the rest"
    )
