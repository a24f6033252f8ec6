"""Costs of candidates: what the machine can do, features and the analytic prior, and models that learn from measurements.

``machine_model``: figures of the machine. ``axis_roles``: which axes become rows, columns, steps and vectors, and the stages of a
row. ``cost_features``: costs by cause, the prior's seconds, the feature matrix. ``loop_nest``: cache traffic of a loop nest in closed
form. ``cost_model``: models that are fitted to measured times. ``gpu_model``: figures and times of GPUs, and the roles of axes there.
What a kind of schedule costs stands with its rule, in :mod:`tilewright.tuner.rules`.
"""

from .gpu_model import GpuModel

__all__ = ["GpuModel"]
