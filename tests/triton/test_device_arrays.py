"""Arrays on a GPU as arguments: their addresses reach the kernel, on a driver that has main memory for a device's."""

import ctypes

import numpy as np
import pytest

import tilewright.triton as triton
from tilewright.codegen.runtime.arguments import ArgumentError
from tilewright.gpu.ptx import DeviceArray
from tilewright.gpu.ptx.cuda_driver import CudaDriver

from ..gpu.test_cuda_driver import doubled, fake, library, words  # noqa: F401
from . import block_kernels as kernels

pytestmark = pytest.mark.usefixtures("fake")


class ByInterface:
    """An array with the CUDA array interface alone, as those of Numba and older libraries."""

    def __init__(self, array, stream=None, read_only=False, **more):
        self.array = array
        self.__cuda_array_interface__ = {
            "data": (array.pointer, read_only), "shape": array.shape, "typestr": array.dtype.str, "version": 3, "stream": stream,
            **more,
        }  # fmt: skip


class ByDlpack:
    """An array with DLPack alone."""

    def __init__(self, array, device=0):
        self.array, self.device = array, device

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return 2, self.device


def vector(n=64, dtype="float32"):
    return DeviceArray.of(np.arange(n, dtype=dtype))


KINDS = pytest.mark.parametrize("kind", [ByInterface, ByDlpack, lambda x: x], ids=["interface", "dlpack", "own"])


@KINDS
def test_blocks_get_the_addresses(kind, fake):  # noqa: F811
    x, y, out = vector(), vector(), DeviceArray((64,), "float32")
    copies = ctypes.c_int.in_dll(fake, "live").value
    kernel = kernels.add[(1,)](kind(x), kind(y), kind(out), 64, BLOCK=64)
    assert kernel.module.target.kind == "cuda"
    assert words(fake, "pointers", ctypes.c_uint64 * 4)[:2] == [x.pointer, y.pointer]
    assert ctypes.c_int.in_dll(fake, "live").value <= copies + 1  # the numbers of wrong accesses alone


@KINDS
def test_built_functions_get_the_addresses(kind, fake):  # noqa: F811
    x, out = vector(), DeviceArray((64,), "float32")
    doubled()(kind(x), kind(out))
    assert words(fake, "pointers", ctypes.c_uint64 * 4)[:2] == [x.pointer, out.pointer]
    assert (out.numpy() == 2 * np.arange(64)).all()


def test_arrays_of_one_launch_lie_in_one_place():
    x, host = vector(), np.zeros(64, "float32")
    with pytest.raises(
        TypeError, match="x_ptr and y_ptr on the GPU, out_ptr in main memory; the arrays of a launch lie in one place"
    ):
        kernels.add[(1,)](x, x, host, 64, BLOCK=64)
    for target in ("gpu-sim", "native"):
        with pytest.raises(TypeError, match=f'on the GPU, and the launch is for {target}; launch with target="cuda"'):
            kernels.add[(1,)](x, vector(), vector(), 64, BLOCK=64, target=target)
    triton.set_target("native")
    try:
        with pytest.raises(TypeError, match="the launch is for native"):
            kernels.add[(1,)](x, vector(), vector(), 64, BLOCK=64)
    finally:
        triton.set_target(None)


def test_other_devices_and_forms_are_refused():
    x, out = vector(), vector()
    with pytest.raises(TypeError, match="y_ptr: its memory is on cuda:1, and kernels run on cuda:0"):
        kernels.add[(1,)](x, ByDlpack(vector(), 1), out, 64, BLOCK=64)
    with pytest.raises(TypeError, match="x_ptr: it has a mask"):
        kernels.add[(1,)](ByInterface(x, mask=x), vector(), out, 64, BLOCK=64)
    with pytest.raises(ValueError, match="negative strides"):
        kernels.add[(1,)](ByInterface(x, strides=(-4,)), vector(), out, 64, BLOCK=64)
    with pytest.raises(ArgumentError, match="read-only|writ"):
        kernels.add[(1,)](x, vector(), ByInterface(out, read_only=True), 64, BLOCK=64)
    with pytest.raises(ArgumentError, match="expected dtype float32, got float64"):
        doubled()(ByInterface(vector(dtype="float64")), out)


def test_arrays_that_share_memory_are_one_parameter(fake):  # noqa: F811
    x, out = vector(), DeviceArray((64,), "float32")
    kernels.add[(1,)](ByInterface(x), ByDlpack(x), out, 64, BLOCK=64)
    assert words(fake, "pointers", ctypes.c_uint64 * 4)[:2] == [x.pointer, out.pointer]


def test_main_memory_is_copied_as_before(fake):  # noqa: F811
    x, y, out = np.ones(64, "float32"), np.ones(64, "float32"), np.zeros(64, "float32")
    kernels.add[(1,)](x, y, out, 64, BLOCK=64, target="cuda")
    assert not {x.ctypes.data, y.ctypes.data} & set(words(fake, "pointers", ctypes.c_uint64 * 4))


def test_a_stream_that_still_writes_is_awaited(fake, monkeypatch):  # noqa: F811
    x, out, awaited = vector(), DeviceArray((64,), "float32"), []
    monkeypatch.setattr(CudaDriver, "wait", lambda self, stream=None: awaited.append(stream))
    module = doubled()
    module(ByInterface(x, stream=77), ByInterface(out, stream=1))
    assert awaited == [77]


def test_views_that_begin_elsewhere_are_read_element_by_element(fake):  # noqa: F811
    """Copies of 16 bytes at once need addresses that they divide."""
    whole = DeviceArray.of(np.zeros(64 * 64 + 8, "float16"))
    b, out = DeviceArray.of(np.zeros((64, 64), "float16")), DeviceArray((64, 64), "float32")
    numbers = (64, 64, 64, 64, 1, 64, 1, 64, 1)
    blocks = {"BM": 64, "BN": 64, "BK": 32, "GROUP": 8, "ACTIVATION": ""}

    def text(offset):
        view = ByInterface(whole)
        view.__cuda_array_interface__["data"] = (whole.pointer + 2 * offset, False)
        view.__cuda_array_interface__["shape"] = (64 * 64,)
        return kernels.matmul[(1,)](view, b, out, *numbers, **blocks).module.get_source("ptx")

    aligned = text(0)
    assert "mma.sync" in aligned
    assert text(8) == aligned
    with pytest.warns(UserWarning, match="do without matrix units"):
        apart = text(1)
    assert "mma.sync" not in apart
    assert not any(f"global.v{n}" in apart for n in (2, 4))
