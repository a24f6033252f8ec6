"""Views of arrays as pointer, dtype, shape and strides, without a copy. NumPy's arrays have their own, those of other
libraries come by DLPack.

A DLPack capsule is read in place and not consumed: its owner keeps the memory, the capsule stays alive with the view.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

CPU_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost: memory that this processor reads


class ArrayView(NamedTuple):
    """An array of any library. Strides count elements. ``dtype`` is our name for it, or the library's own when we have
    none."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    writable: bool
    aligned: bool
    owner: Any

    def extent_bytes(self) -> tuple[int, int]:
        """Return the first used byte and the byte after the last one; equal for an array without elements."""
        if 0 in self.shape:
            return self.pointer, self.pointer
        low = sum(min(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        high = sum(max(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        return self.pointer + low * self.itemsize, self.pointer + (high + 1) * self.itemsize

    def is_compact(self) -> bool:
        """Return whether the array is row-major without gaps (dimensions of extent 1 may have any stride)."""
        step = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and s != step and 0 not in self.shape:
                return False
            step *= n
        return True


def view_of(value: Any, devices: tuple[int, ...] = CPU_DEVICES) -> ArrayView | None:
    """Return ``value`` as an :class:`ArrayView`, or None when it is not an array. ValueError when its memory cannot be
    used here: it is on none of ``devices``, DLPack's numbers."""
    return _numpy_view(value) if isinstance(value, np.ndarray) else other_view(value, devices)


def _numpy_view(array: np.ndarray[Any, Any]) -> ArrayView:
    dtype, itemsize = array.dtype, array.dtype.itemsize
    name = "bool" if dtype.kind == "b" else dtype.name
    if not dtype.isnative:
        name = f"{name} of the other byte order"
    whole = itemsize > 0 and all(s % itemsize == 0 for s in array.strides)
    strides = tuple(s // itemsize for s in array.strides) if whole else tuple(0 for _ in array.strides)
    flags = array.flags
    return ArrayView(
        array.__array_interface__["data"][0], name, array.shape, strides, itemsize, bool(flags.writeable),
        bool(flags.aligned) and whole, array,
    )  # fmt: skip


_DEVICES = {1: "cpu", 2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda managed", 14: "oneapi"}
KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}


class DLTensor(ctypes.Structure):
    """The struct DLTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """The struct DLManagedTensorVersioned of dlpack.h, version 1."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p


def other_view(value: Any, devices: tuple[int, ...]) -> ArrayView | None:
    """Returns an array of another library as a view, or None when it is not an array."""
    if hasattr(value, "array_view") and int(value.__dlpack_device__()[0]) in devices:
        found: ArrayView = value.array_view()
        return found
    if hasattr(value, "__dlpack__"):
        return _dlpack_view(value, devices)
    return None


def _refuse_lazy(value: Any) -> None:
    """Raise ValueError for a tensor of PyTorch whose memory does not hold its elements as they are."""
    if (
        getattr(value, "is_sparse", False)
        or getattr(value, "is_sparse_csr", False)
        or getattr(value, "is_mkldnn", False)
    ):
        raise ValueError(f"its layout is {value.layout}; pass .to_dense()")
    for test, what, way in (
        ("is_neg", "a negated view", "resolve_neg"), ("is_conj", "a conjugated view", "resolve_conj")
    ):  # fmt: skip
        found = getattr(value, test, None)
        if callable(found) and found():
            raise ValueError(f"it is {what}, whose memory holds other numbers; pass .{way}()")


def _dlpack_view(value: Any, devices: tuple[int, ...]) -> ArrayView:
    _refuse_lazy(value)
    where = value.__dlpack_device__() if hasattr(value, "__dlpack_device__") else (1, 0)
    if int(where[0]) not in devices:
        device = _DEVICES.get(int(where[0]), f"device type {int(where[0])}")
        raise ValueError(f"its memory is on {device}, not in main memory; move it to the CPU first")
    if getattr(value, "requires_grad", False):
        raise ValueError("it requires a gradient, which is not recorded here; pass .detach()")
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # made before DLPack 1.0
        capsule = value.__dlpack__()
    writable = not type(value).__module__.startswith(
        "jax"
    )  # JAX arrays are immutable, and old versions do not report this
    if _is_capsule(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
        tensor = managed.tensor
        writable = writable and not managed.flags & 1
    elif _is_capsule(capsule, b"dltensor"):
        tensor = DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    else:
        raise ValueError(f"its __dlpack__ returned {type(capsule).__name__}, not a fresh DLPack capsule")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        strides = tuple(int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(tensor.ndim))
    kind, itemsize = KINDS.get(tensor.code), (tensor.bits + 7) // 8
    dtype = "bool" if kind == "bool" else f"{kind or f'DLPack type {tensor.code} of '}{tensor.bits}"
    if tensor.lanes != 1:
        dtype = f"{dtype}x{tensor.lanes}"
    pointer = (tensor.data or 0) + tensor.byte_offset
    return ArrayView(
        pointer, dtype, shape, strides, itemsize, writable, pointer % max(1, itemsize) == 0, (value, capsule)
    )
