"""DLPack capsules of arrays that others are to use without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

from ...runtime.array_views import KINDS, ArrayView, Tensor


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
