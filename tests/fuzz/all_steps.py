"""All steps: one random primitive, or a short recipe, with random arguments."""

from __future__ import annotations

from . import block_steps, data_steps, loop_steps
from .step_drawing import STEPS, Nothing, draw_step

__all__ = ["STEPS", "Nothing", "draw_step", "block_steps", "data_steps", "loop_steps"]
