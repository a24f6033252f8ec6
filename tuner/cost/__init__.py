"""Costs of candidates: what the machine can do, features and the analytic prior, and models that learn from measurements.

``machine_model``: figures of the machine. ``axis_roles``: which axes become rows, columns, steps and vectors, and the stages of a
row. ``walker``: what a block costs in the loops that a candidate makes of it, for every
rule. ``cost_features``: costs by cause, the prior's seconds, the feature matrix. ``loop_nest``: cache traffic of a loop nest in closed
form. ``cost_model``: models that are fitted to measured times. ``gpu_model``: figures and times of GPUs, and the roles of axes there.
Which loops a kind of schedule makes stands with its rule, in :mod:`tilewright.tuner.rules`.
"""

from .gpu_model import GpuModel

__all__ = ["GpuModel"]
