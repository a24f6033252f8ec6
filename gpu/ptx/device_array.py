"""Arrays in the memory of a GPU, which other libraries take through DLPack without a copy."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np

from ...codegen.runtime.array_views import KINDS, ArrayView, Tensor
from .cuda_driver import CudaDriver, cuda_driver

CUDA_DEVICES = (2, 13)
"""DLPack's numbers for memory of a GPU, and memory that it shares with the processor."""


class DeviceArray:
    """An array on device 0, row-major without gaps. Its memory is given back with the last reference to it."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, driver: CudaDriver | None = None) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self._driver = cuda_driver() if driver is None else driver
        self.nbytes = prod(self.shape) * self.dtype.itemsize
        self.pointer = self._driver.allocate(self.nbytes)

    @staticmethod
    def of(array: Any) -> DeviceArray:
        """Return a copy of an array in main memory."""
        found = DeviceArray(np.shape(array), np.asarray(array).dtype)
        found.copy_from(array)
        return found

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} at {self.pointer:#x}>"

    def __del__(self) -> None:
        if getattr(self, "pointer", 0):
            self._driver.free(self.pointer)
            self.pointer = 0

    def copy_from(self, array: Any) -> None:
        """Copy the elements of an array in main memory. ValueError when its shape is another one."""
        source = np.asarray(array, self.dtype, order="C")
        if source.shape != self.shape:
            raise ValueError(f"an array of shape {source.shape} for one of shape {self.shape}")
        self._driver.copy_in(self.pointer, source.ctypes.data, self.nbytes)

    def numpy(self, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """Return the elements in main memory: in ``out``, or in a new array."""
        found = np.empty(self.shape, self.dtype) if out is None else out
        whole = found if found.flags.c_contiguous else np.empty(self.shape, self.dtype)
        self._driver.copy_out(whole.ctypes.data, self.pointer, self.nbytes)
        if whole is not found:
            found[...] = whole
        return found

    def array_view(self) -> ArrayView:
        """Return the array as what the checks of arguments look at."""
        strides = tuple([prod(self.shape[n + 1 :]) for n in range(len(self.shape))])
        name = "bool" if self.dtype.kind == "b" else self.dtype.name
        return ArrayView(self.pointer, name, self.shape, strides, self.dtype.itemsize, True, True, self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA_DEVICES[0], 0

    def __dlpack__(self, **_: Any) -> Any:
        self._driver.wait()
        return dlpack_capsule(self.array_view(), CUDA_DEVICES[0])


def on_device(value: Any) -> bool:
    """Returns whether an array lies in the memory of a GPU."""
    where = getattr(value, "__dlpack_device__", None)
    return where is not None and int(where()[0]) in CUDA_DEVICES


def as_ctypes(value: Any, kind: Any) -> Any:
    """Returns a value as a parameter of a kernel."""
    return ctypes.c_uint64(value) if kind is ctypes.c_void_p else kind(value)


# DLPack capsules of arrays that others are to use without a copy.


class _Managed(ctypes.Structure):
    """The struct DLManagedTensor of dlpack.h before version 1."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_new_capsule.restype = ctypes.py_object
_given: dict[int, Any] = {}
"""What capsules given to others keep alive, by the address of their struct."""


def _forgotten(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


_forget = _Deleter(_forgotten)


def dlpack_capsule(view: ArrayView, device: int) -> Any:
    """Returns a DLPack capsule of an array on ``device``, DLPack's number. Its consumer calls the deleter in the end."""
    rank = len(view.shape)
    shape, strides = (ctypes.c_int64 * rank)(*view.shape), (ctypes.c_int64 * rank)(*view.strides)
    kind = next(code for code, name in KINDS.items() if view.dtype.rstrip("0123456789") == name)
    tensor = Tensor(view.pointer, device, 0, rank, kind, 8 * view.itemsize, 1, shape, strides, 0)
    managed = _Managed(tensor, None, _forget)
    _given[ctypes.addressof(managed)] = (managed, shape, strides, view)
    return _new_capsule(ctypes.addressof(managed), b"dltensor", None)
