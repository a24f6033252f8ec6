"""NVIDIA GPUs: kernels in launch form become PTX through LLVM; ptxas checks it, the driver runs it."""

from .cuda_driver import CudaError, cuda_driver
from .cuda_module import CUDA, CudaModule
from .device_array import DeviceArray
from .ptxas import PtxasReport, find_ptxas, run_ptxas

__all__ = ["CUDA", "CudaError", "CudaModule", "DeviceArray", "PtxasReport", "cuda_driver", "find_ptxas", "run_ptxas"]
