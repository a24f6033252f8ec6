"""``tvm.meta_schedule``: tuning under TVM's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import space_generator as space_generator
from . import tir_integration as tir_integration
from .tir_integration import tune_tir as tune_tir

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise AttributeError(
            f"meta_schedule has tune_tir, tir_integration and space_generator here, no {name!r}; "
            "tilewright.tune and tilewright.tuner do the rest"
        )
