"""GPUs of AMD: kernels in launch form become code objects through LLVM, which HIP loads.

:mod:`.kernel_text` writes LLVM IR, :mod:`.code_objects` links objects and reads what they say of their kernels, and
:mod:`.rocm_module` has both for a program. Nothing here launches kernels.
"""

from .code_objects import CodeObjectReport, code_object_reports, find_lld
from .rocm_module import ROCM, RocmModule

__all__ = ["ROCM", "CodeObjectReport", "RocmModule", "code_object_reports", "find_lld"]
