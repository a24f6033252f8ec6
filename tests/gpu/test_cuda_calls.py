"""Calls of CUDA modules with arguments of a form that was checked before, on a driver that has main memory for a device's."""

import sys
import threading
import types
from typing import NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.runtime.arguments import ArgumentError, Arguments
from tilewright.gpu.ptx import CudaError, DeviceArray

from .test_cuda_driver import doubled, fake, library  # noqa: F401

pytestmark = pytest.mark.usefixtures("fake")


def arrays(*shapes, dtype="float32"):
    return [DeviceArray.of(np.arange(int(np.prod(s)), dtype=dtype).reshape(s)) for s in shapes]


@pytest.fixture
def checks(monkeypatch):
    """How often all of the arguments were checked."""
    found, whole = [], Arguments.prepare
    monkeypatch.setattr(Arguments, "prepare", lambda self, args: (found.append(len(args)), whole(self, args))[1])
    return found


def test_arguments_of_a_known_form_are_not_checked_again_and_run_at_their_addresses(checks):
    module = doubled()
    module(*arrays((64,), (64,)))
    before = len(checks)
    for start in range(3):
        x, y = DeviceArray.of(np.arange(64, dtype="float32") + start), DeviceArray((64,), "float32")
        module(x, y)
        assert (y.numpy() == 2 * np.arange(start, start + 64)).all()
    assert len(checks) == before


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (((32,), "float32"), ((64,), "float32"), "expected 64 in dimension 0, got 32"),
        (((64,), "float64"), ((64,), "float32"), "expected dtype float32, got float64"),
        (((8, 8), "float32"), ((64,), "float32"), "expected 1 dimensions"),
        (((64,), "float32"), ((65,), "float32"), "expected 64 in dimension 0, got 65"),
    ],
)
def test_other_forms_are_refused_behind_a_known_one(x, y, message):
    module = doubled()
    for _ in range(2):
        module(*arrays((64,), (64,)))
    for _ in range(2):
        with pytest.raises(ArgumentError, match=message):
            module(DeviceArray(*x), DeviceArray(*y))
    with pytest.raises(ArgumentError, match="2 arguments, 3 were given"):
        module(*arrays((64,), (64,), (64,)))


def test_addresses_are_checked_each_time():
    module = doubled()
    x, y = arrays((64,), (128,))
    part = DeviceArray((64,), "float32")
    own, part.pointer = part.pointer, y.pointer
    module(x, part)
    part.pointer = x.pointer + 128
    with pytest.raises(ArgumentError, match="shares memory with argument 0"):
        module(x, part)
    part.pointer = y.pointer + 4
    with pytest.raises(CudaError, match="does not begin at a multiple"):
        module(x, part)
    part.pointer = own
    module(x, part)
    assert (part.numpy() == 2 * np.arange(64)).all()


def test_sizes_and_forms_alternate(checks):
    n = te.var("n", "int64")
    x = te.placeholder((n,), name="X")
    s = tw.Schedule(te.create_prim_func([x, te.compute((n,), lambda i: x[i] * 2, name="Y")]))
    b, t = s.split(s.get_loops("Y")[0], [None, 16])
    s.bind(b, "blockIdx.x")
    s.bind(t, "threadIdx.x")
    module = tw.build(s, "cuda")
    for turn in range(3):
        for size in (64, 80, 96):
            given, out = arrays((size,), (size,))
            module(given, out)
            assert (out.numpy()[:64] == 2 * np.arange(64)).all()
        if turn == 0:
            before = len(checks)
    assert len(checks) == before


def test_threads_share_a_module():
    module, wrong = doubled(), []

    def work(start):
        x, y = DeviceArray.of(np.arange(64, dtype="float32") + start), DeviceArray((64,), "float32")
        for _ in range(200):
            y.copy_from(np.zeros(64, "float32"))
            module(x, y)
            if not (y.numpy() == 2 * (np.arange(64) + start)).all():
                wrong.append(start)

    workers = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


class Place(NamedTuple):
    index: int


class Tensor:
    """What the reader of tensors asks of PyTorch's, on memory of the stand-in."""

    is_cuda, layout, requires_grad = True, "strided", False

    def __init__(self, array, index=0, strides=(1,)):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.device, self.strides = Place(index), strides
        self.negated = False

    def stride(self):
        return self.strides

    def is_neg(self):
        return self.negated

    def data_ptr(self):
        return self.array.pointer

    def __dlpack_device__(self):
        return 2, self.device.index

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)


@pytest.fixture
def torch(monkeypatch):
    made = types.SimpleNamespace(current=0)
    made._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda index: made.current)
    made.Tensor = type("Tensor", (Tensor,), {})
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_tensors_of_a_known_form_need_no_capsule(torch, checks):
    module = doubled()
    x, y = [torch.Tensor(a) for a in arrays((64,), (64,))]
    module(x, y)
    before = len(checks)
    module(x, y)
    assert len(checks) == before and (y.array.numpy() == 2 * np.arange(64)).all()
    for change, message in (
        ({"requires_grad": True}, "requires a gradient"),
        ({"device": Place(1)}, "cuda:1, and kernels run on cuda:0"),
        ({"negated": True}, "negated view"),
    ):
        other = torch.Tensor(x.array)
        other.__dict__.update(change)
        with pytest.raises(ArgumentError, match=message):
            module(other, y)


def test_tensors_of_another_stream_go_through_dlpack(torch, checks):
    module = doubled()
    x, y = [torch.Tensor(a) for a in arrays((64,), (64,))]
    torch.current = 24
    for turn in range(1, 4):
        before = len(checks)
        module(x, y)
        assert len(checks) > before, turn
    module.stream = 24
    module(x, y)
    before = len(checks)
    module(x, y)
    assert len(checks) == before
