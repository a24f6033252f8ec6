"""From scheduled functions to kernels in launch form: what all GPUs share.

:data:`.gpu_passes.LAUNCH_PASSES` are the passes; :mod:`.launch_form` describes the form.
"""

from .gpu_passes import LAUNCH_PASSES, THREAD_PASSES
from .launch_form import GpuError

__all__ = ["LAUNCH_PASSES", "THREAD_PASSES", "GpuError"]
