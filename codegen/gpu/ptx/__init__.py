"""NVIDIA GPUs: kernels in launch form become PTX through LLVM, and ptxas checks it."""

from .cuda_module import CUDA, CudaModule
from .ptxas import PtxasReport, find_ptxas, run_ptxas

__all__ = ["CUDA", "CudaModule", "PtxasReport", "find_ptxas", "run_ptxas"]
