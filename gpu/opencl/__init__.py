"""Devices of OpenCL: kernels in launch form become OpenCL C, which the driver of the device compiles.

:mod:`.opencl_text` prints the text, :mod:`.opencl_device` finds the device, and :mod:`.opencl_module` launches kernels on it.
"""

from .opencl_device import OpenClError, opencl_device
from .opencl_module import OPENCL, OPENCL_TEXT, OpenClModule

__all__ = ["OPENCL", "OPENCL_TEXT", "OpenClError", "OpenClModule", "opencl_device"]
