"""The way to the driver, with a driver that has main memory for a device's; a GPU is used where there is one."""

import ctypes
import gc
import importlib
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.runtime.arguments import view_of
from tilewright.driver.machine_report import model_of
from tilewright.gpu.ptx import CudaError, DeviceArray, cuda_driver

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
gpu_benchmark = importlib.import_module("gpu")


def doubled(n=64):
    x = te.placeholder((n,), name="X")
    s = tw.Schedule(te.create_prim_func([x, te.compute((n,), lambda i: x[i] * 2, name="Y")]))
    b, t = s.split(s.get_loops("Y")[0], [None, 16])
    s.bind(b, "blockIdx.x")
    s.bind(t, "threadIdx.x")
    return tw.build(s, "cuda")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler makes the stand-in of the driver")
    made = tmp_path_factory.mktemp("cuda") / "libfake.so"
    source = Path(__file__).with_name("fake_cuda.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-w", str(source), "-o", str(made)], check=True)
    return made


@pytest.fixture
def fake(library, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_LIBCUDA", str(library))
    cuda_driver.cache_clear()
    yield ctypes.CDLL(str(library))
    gc.collect()
    cuda_driver.cache_clear()


def words(fake, name, kind):
    return list(kind.in_dll(fake, name))


def test_arrays_in_main_memory_are_copied_there_and_back(fake):
    x, y = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    doubled()(x, y)
    assert (y == 2 * x).all()
    assert words(fake, "last", ctypes.c_uint * 7) == [4, 1, 1, 16, 1, 1, 0]
    gc.collect()
    assert ctypes.c_int.in_dll(fake, "live").value == 0


def test_a_stream_of_its_own(fake):
    module, driver = doubled(), cuda_driver()
    driver.enter()
    x, y = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    module(x, y)
    assert words(fake, "streams", ctypes.c_uint64 * 3) == [0, 0, 0]
    module.stream = driver.new_stream()
    module(x, y)
    assert (y == 2 * x).all() and words(fake, "streams", ctypes.c_uint64 * 3) == [40, 0, 40]
    module.bind(x, y).seconds(2)
    assert words(fake, "streams", ctypes.c_uint64 * 3)[:2] == [40, 40]
    driver.destroy_stream(module.stream)


def test_an_output_is_made(fake):
    assert (doubled()(np.ones(64, "float32")) == 2).all()


def test_arrays_on_the_device_are_not_copied(fake):
    x, y = DeviceArray.of(np.arange(64, dtype="float32")), DeviceArray((64,), "float32")
    doubled()(x, y)
    assert words(fake, "pointers", ctypes.c_uint64 * 4)[:2] == [x.pointer, y.pointer]
    assert (y.numpy() == 2 * np.arange(64)).all()


def test_dlpack_gives_the_same_memory(fake):
    class Other:
        """An array of another library on the device."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **how):
            return self.array.__dlpack__(**how)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x, y = DeviceArray.of(np.ones(64, "float32")), DeviceArray((64,), "float32")
    view = view_of(Other(x), (2,))
    assert (view.pointer, view.shape, view.dtype) == (x.pointer, (64,), "float32")
    doubled()(Other(x), Other(y))
    assert (y.numpy() == 2).all()


def test_times(fake):
    x, y = DeviceArray((64,), "float32"), DeviceArray((64,), "float32")
    found = doubled().time_evaluator(repeat=3, number=2)(x, y)
    assert found.results == (1e-3,) * 3


def test_a_bound_call_brings_results_to_main_memory(fake):
    x, y = np.ones(64, "float32"), np.full(64, np.nan, "float32")
    call = doubled().bind(x, y)
    call()
    assert (y == 2).all()


def test_errors_have_the_driver_s_words(fake):
    with pytest.raises(CudaError, match=r"cuMemAlloc_v2: out of memory \(error 2 of CUDA's driver\)"):
        DeviceArray((1 << 31,), "float32")


def test_a_module_for_a_newer_device(fake):
    module = tw.codegen.compile(doubled()._lowered["main"].scheduled, "cuda -arch=sm_90")
    with pytest.raises(CudaError, match="this module is for sm_90, the device fake is sm_80"):
        module(np.zeros(64, "float32"))


def test_memory_of_a_device_on_the_processor(fake):
    x = DeviceArray((64,), "float32")
    module = tw.build(te.create_prim_func(_plain()), "native -num-cores=1")
    with pytest.raises(tw.codegen.ArgumentError, match="its memory is on cuda, not in main memory"):
        module(x)


def _plain():
    x = te.placeholder((64,), name="X")
    return [x, te.compute((64,), lambda i: x[i] * 2, name="Y")]


def test_a_machine_without_a_driver(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_LIBCUDA", "libnothing.so.1")
    cuda_driver.cache_clear()
    with pytest.raises(CudaError, match="no device for cuda: libnothing.so.1 is not installed; gpu-sim runs the same"):
        doubled()(np.zeros(64, "float32"))
    cuda_driver.cache_clear()


def test_launches_are_prepared_once(fake):
    """Calls with the same arrays on the device launch what the first one prepared."""
    x, y = DeviceArray.of(np.ones(64, "float32")), DeviceArray((64,), "float32")
    module = doubled()
    call = module.bind(x, y)
    before = ctypes.c_int.in_dll(fake, "launches").value
    call()
    assert call.seconds(3) == 2e-3
    assert ctypes.c_int.in_dll(fake, "launches").value == before + 4


def test_tuning_on_a_device(fake, tmp_path, monkeypatch):
    """Workers compile candidates to PTX, load and launch them, compare the results, and time them by events."""
    with tw.Database(tmp_path / "records.db") as db:
        result = tw.tune(_plain(), "cuda", trials=3, db=db, final_race=2)
        assert result.failures == {} and result.best is not None and result.best.run_seconds > 0
        assert tw.build(_plain(), "cuda", db=db, require_tuned=True).origin.startswith("record ")


def test_a_model_of_the_device_that_is_here(fake):
    model = model_of(None, tw.Target("cuda"))
    assert (
        model.cores == 108 and model.matrix_flops == 2048
    )  # the driver says nothing, so the data sheet's figures stay


def test_the_benchmark_runs_to_its_end(fake, capsys):
    assert gpu_benchmark.main(["elementwise", "--small", "--rounds", "2"]) == 0
    assert "us" in capsys.readouterr().out


def test_the_benchmark_refuses_names_that_it_does_not_know(fake, capsys):
    assert gpu_benchmark.main(["nothing", "--small"]) == 2
    assert "no kernel begins with nothing; there are bfloat16 128" in capsys.readouterr().out


def test_kernels_that_were_built_ahead(fake, tmp_path, capsys):
    assert gpu_benchmark.main(["elementwise", "--small", "--build", "--arch", "sm_80", "--code", str(tmp_path)]) == 0
    assert [f.name for f in tmp_path.iterdir()] == ["elementwise.sm_80.pkl"]
    assert (
        gpu_benchmark.main(["elementwise", "--small", "--code", str(tmp_path), "--rows", str(tmp_path / "rows")]) == 0
    )
    assert (tmp_path / "rows").read_text() == capsys.readouterr().out.partition("\n")[2]


def test_a_pickled_module_compiles_nothing(fake, monkeypatch):
    text = pickle.dumps(doubled())
    monkeypatch.setattr("tilewright.gpu.ptx.cuda_module.CompiledCode", None)
    x, y = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    module = pickle.loads(text)
    module(x, y)
    assert (y == 2 * x).all() and ".visible .entry main_kernel0" in module.get_source()
