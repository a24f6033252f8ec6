"""Adapters of WebGPU: kernels in launch form become WGSL, which the driver of the adapter compiles, or a browser.

:mod:`.wgsl_text` prints the text, with the functions of :mod:`.wgsl_functions` and the arrays of :mod:`.wgsl_arrays`.
:mod:`.webgpu_device` finds the adapter, and :mod:`.webgpu_module` launches kernels on it.
"""

from .webgpu_device import WebGpuError, webgpu_device
from .webgpu_module import WEBGPU, WGSL_TEXT, WebGpuModule

__all__ = ["WEBGPU", "WGSL_TEXT", "WebGpuError", "WebGpuModule", "webgpu_device"]
