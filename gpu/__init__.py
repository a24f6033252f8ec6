"""Functions for GPUs: loops bound to blocks and threads become kernels.

:data:`.launch.LAUNCH_PASSES` brings kernels into launch form, with barriers placed by analysis. ``gpu-sim`` runs that
form on the CPU and checks it (:mod:`.simulation`); :mod:`.ptx` makes code for NVIDIA GPUs of it.
"""

from .gpu_module import GPU_SIM, GpuModule
from .launch.launch_form import GpuError
from .ptx import CUDA
from .simulation.watched_memory import RaceError

__all__ = ["CUDA", "GPU_SIM", "GpuError", "GpuModule", "RaceError"]
