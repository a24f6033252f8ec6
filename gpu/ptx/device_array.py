"""Arrays in the memory of a GPU, and what tells one kind of argument from another without a DLPack capsule."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any

import numpy as np

from ...codegen.runtime.arguments import CUDA_DEVICES, KINDS, ArrayView, DLTensor
from .cuda_driver import CudaDriver, cuda_driver


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


# DLPack capsules of arrays that others are to use without a copy.


class _Managed(ctypes.Structure):
    """The struct DLManagedTensor of dlpack.h before version 1."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]
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
    tensor = DLTensor(view.pointer, device, 0, rank, kind, 8 * view.itemsize, 1, shape, strides, 0)
    managed = _Managed(tensor, None, _forget)
    _given[ctypes.addressof(managed)] = (managed, shape, strides, view)
    return _new_capsule(ctypes.addressof(managed), b"dltensor", None)


# What an argument is, without what differs from call to call: a key, beside an address or a number. A call whose arguments
# have the keys of an earlier one needs no other checks than those of addresses.


def forms_of(args: Sequence[Any]) -> tuple[tuple[Hashable, ...], list[Any]] | None:
    """Returns the form of each argument, and its address or number. None when one is of a class that has to be looked at."""
    forms, values = [], []
    for arg in args:
        kind = arg.__class__
        read = _READERS.get(kind)
        if read is None:
            if kind in _READERS or (read := _reader_of(kind)) is None:
                return None
        found = read(arg)
        if found is None:
            return None
        forms.append(found[0])
        values.append(found[1])
    return tuple(forms), values


_Form = tuple[Hashable, Any]


def _of_device_array(array: DeviceArray) -> _Form:
    return (DeviceArray, array.shape, array.dtype), array.pointer


def _of_whole_number(number: Any) -> _Form:
    """A whole number may be a size, and so tells the shapes of arrays: it is all in the form."""
    return (number.__class__, int(number)), number


def _of_number(number: Any) -> _Form:
    return number.__class__, number


_READERS: dict[type, Callable[[Any], _Form | None] | None] = {
    DeviceArray: _of_device_array, int: _of_whole_number, bool: _of_whole_number, float: _of_number,
}  # fmt: skip
"""How an argument is read, by its class. None stands for classes of which nothing is known."""


def _reader_of(kind: type) -> Callable[[Any], _Form | None] | None:
    """Returns the reader for a class that is met for the first time."""
    torch = sys.modules.get("torch")
    found: Callable[[Any], _Form | None] | None = None
    if issubclass(kind, (np.integer, np.bool_)):
        found = _of_whole_number
    elif issubclass(kind, np.floating):
        found = _of_number
    elif torch is not None and kind is getattr(torch, "Tensor", None):
        found = _of_tensors(torch)
    _READERS[kind] = found
    return found


def _of_tensors(torch: Any) -> Callable[[Any], _Form | None] | None:
    """Returns the reader of PyTorch's tensors on GPUs. The form holds PyTorch's stream: for another stream than that of the
    launches, DLPack makes one wait for the other."""
    stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if stream_of is None:
        return None

    def read(tensor: Any) -> _Form | None:
        if not tensor.is_cuda:
            return None
        device = tensor.device
        form = (
            TorchForm, stream_of(device.index), device, tensor.shape, tensor.dtype, tensor.stride(), tensor.layout,
            tensor.requires_grad, tensor.is_neg(),
        )  # fmt: skip
        try:
            return form, tensor.data_ptr()
        except RuntimeError:  # a tensor without memory of its own, inside of PyTorch's transformations
            return None

    return read


class TorchForm:
    """The mark of the forms of PyTorch's tensors, in whose second place the stream stands."""


def in_streams(forms: Sequence[Hashable], stream: int) -> bool:
    """Returns whether work in ``stream`` needs no waiting for the streams in which these tensors are made."""
    return all(form[1] in (0, stream) for form in forms if isinstance(form, tuple) and form[0] is TorchForm)
