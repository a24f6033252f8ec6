"""All steps: one random primitive, or a short recipe, with random arguments."""

from __future__ import annotations

from . import steps_blocks, steps_data, steps_loops
from .draw import STEPS, Nothing, draw_step

__all__ = ["STEPS", "Nothing", "draw_step", "steps_blocks", "steps_data", "steps_loops"]
