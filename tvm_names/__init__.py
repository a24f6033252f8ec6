"""This package has the names that programs written for TVM use, as thin modules over the layers.

After ``import tilewright as tvm`` they are ``tvm.nd``, ``tvm.target``, ``tvm.testing``, ``tvm.script``, ``tvm.ir``,
``tvm.runtime``, ``tvm.topi``, ``tvm.meta_schedule``, ``tvm.lower``, ``tvm.cpu`` and ``tvm.device``. ``tir_names`` has the
names that ``tvm.tir`` has besides, ``classic`` the schedules that ``te.create_schedule`` makes, and ``module_finders`` says
what takes the place of the rest.
"""

from . import ir, meta_schedule, nd, runtime, script, target, testing, tir_integration, topi
from .classic import lower
from .nd import cpu, device

__all__ = [
    "cpu", "device", "ir", "lower", "meta_schedule", "nd", "runtime", "script", "target", "testing", "tir_integration", "topi",
]  # fmt: skip
