"""Costs of candidates: what the machine can do, features and the analytic prior, and models that learn from measurements.

``machine_model``: figures of the machine. ``cost_features``: costs by cause, the prior's seconds, the feature matrix.
``loop_nest``: cache traffic of a loop nest in closed form. ``tiling_costs``: the costs of register tiles. ``cost_model``:
models that are fitted to measured times.
``gpu_model``: figures and times of GPUs.
"""

from .gpu_model import GpuModel

__all__ = ["GpuModel"]
