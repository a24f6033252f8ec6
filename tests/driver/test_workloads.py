"""Workloads: parameters, specs, files of one's own, and the built-in ones against their NumPy counterparts."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.driver.workloads.catalog import BUILTIN, all_workloads, parse_spec
from tilewright.driver.workloads.workload_definition import Workload, WorkloadError, workload
from tilewright.tir.expr import structural_equal
from tilewright.tir.interpret import interpret
from tilewright.tuner.measure.inputs import compare, make_arguments, tolerance

SMALL = {
    "matmul": [
        "M=7,N=13,K=17",
        "M=1,N=16,K=7,transpose_a=1",
        "M=13,N=7,K=1,transpose_b=yes",
        "M=7,N=7,K=13,dtype=int8",
    ],
    "dense": ["M=7,N=13,K=17", "M=1,N=7,K=16,bias=0"],
    "batch_matmul": ["B=2,M=7,N=13,K=5"],
    "matmul_bias_gelu": ["M=7,N=13,K=17"],
    "gemv": ["M=13,K=17", "M=7,K=16,dtype=int8"],
    "conv2d": [
        "batch=2,H=7,W=9,CI=3,CO=5",
        "H=9,W=7,CI=4,CO=6,groups=2,stride=2,padding=0",
        "H=7,W=7,CI=3,CO=2,layout=NHWC,dilation=2,padding=2",
    ],
    "depthwise_conv2d": ["H=7,W=9,C=3", "H=8,W=7,C=5,stride=2,layout=NHWC"],
    "max_pool2d": ["H=7,W=9,C=3", "H=7,W=7,C=2,kernel=3,padding=1,layout=NHWC"],
    "avg_pool2d": ["H=7,W=9,C=3", "H=7,W=7,C=2,kernel=3,padding=1,layout=NHWC"],
    "softmax": ["M=7,N=17", "M=1,N=1"],
    "layer_norm": ["M=7,N=17"],
    "rms_norm": ["M=7,N=17,eps=0.001"],
    "attention": ["heads=2,seq=7,dim=5"],
    "mul_add_relu": ["n=17"],
    "blur": ["H=7,W=13"],
    "sum": ["M=7,N=13", "M=7,N=13,axis=0"],
    "max": ["M=7,N=13", "M=7,N=13,axis=0"],
    "mean": ["M=7,N=13", "M=7,N=13,axis=0"],
}
CASES = [f"{name}:{values}" for name in BUILTIN for values in SMALL.get(name, ["M=7,N=13"])]


@pytest.mark.parametrize("spec", CASES)
def test_builtin_workloads_compute_what_numpy_computes(spec):
    case = parse_spec(spec)
    arguments = make_arguments(case.func, seed=1)
    ins = [v for i, v in enumerate(arguments.values) if i not in arguments.outputs]
    expected = [np.empty_like(out) for out in arguments.results()]
    assert case.run_reference(ins, expected)
    interpret(case.func, *arguments.values)
    dtypes = [arguments.dtypes[i] for i in arguments.outputs]
    assert compare(arguments.results(), expected, dtypes, tolerance(case.func)) is None


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_builtin_workloads_are_documented_and_have_defaults(name):
    found = BUILTIN[name]
    assert found.doc and all(p.doc for p in found.parameters)
    case = found.case()
    assert case.func.name == name and case.bytes > 0
    assert structural_equal(parse_spec(case.spec).func, case.func)


@pytest.mark.parametrize(
    ("spec", "flops"),
    [
        ("matmul:M=7,N=13,K=17", 2 * 7 * 13 * 17),
        ("conv2d:H=7,W=7,CI=3,CO=5", 2 * 49 * 3 * 5 * 9),
        ("relu:M=7,N=13", 7 * 13),
        ("transpose:M=7,N=13", 0),
    ],
)
def test_operations_are_counted_on_the_unscheduled_program(spec, flops):
    assert parse_spec(spec).flops == flops


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("matmu:M=7", r"no workload is called 'matmu'; did you mean matmul"),
        ("", "an empty workload"),
        ("matmul:m=7", r"matmul has no parameter 'm'; did you mean M\? \(it takes: M, N, K, dtype"),
        ("matmul:M=0", "matmul: M=0: a dimension is at least 1"),
        ("matmul:M=seven", "matmul: M=seven: it is not a whole number"),
        ("matmul:M=7.5", "matmul: M=7.5: it is not a whole number"),
        ("matmul:M", "'M' is not name=value"),
        ("matmul:M=7,M=8", "M is given twice"),
        ("matmul:dtype=float31", r"matmul: dtype=float31: 'float31': float has the widths"),
        ("softmax:dtype=int8", "it is one of float32, float64, float16, bfloat16"),
        ("conv2d:layout=CHWN", "it is one of NCHW, NHWC"),
        ("conv2d:H=2,padding=0", "H=2 with padding=0 is smaller than the kernel's reach of 3"),
        ("conv2d:CI=6,groups=4", "CI=6 is not divisible by groups=4"),
        ("max_pool2d:padding=2", "padding=2 is not smaller than kernel=2"),
        ("matmul:M=1000000,K=1000000", r"A has 1000000×1000000 = 1000000000000 elements"),
        ("nowhere.py:f", "there is no file nowhere.py"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said(spec, message):
    with pytest.raises(WorkloadError, match=message):
        _ = parse_spec(spec).tensors


def test_arguments_beside_the_spec():
    assert parse_spec("matmul:M=7", ["N=13", "K=5"]).values["N"] == 13
    assert parse_spec("matmul", {"M": 7, "dtype": "int8"}).values["dtype"] == "int8"


KERNELS = '''
import tilewright as tw
from tilewright import te

@tw.workload
def double(n: int = 16, dtype: str = "float32"):
    """Twice a vector."""
    A = te.placeholder((n,), name="A", dtype=dtype)
    return [A, te.compute((n,), lambda i: A[i] + A[i], name="B")]

def triple(n=7):
    A = te.placeholder((n,), name="A")
    return [A, te.compute((n,), lambda i: A[i] * 3.0, name="B")]

def wrong():
    return 42
'''


@pytest.fixture
def kernels(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


def test_a_function_in_a_file(kernels):
    case = parse_spec(f"{kernels}:double", ["n=13"])
    assert case.spec == f"{kernels}:double:n=13" and case.flops == 13
    assert structural_equal(parse_spec(case.spec).func, case.func)
    assert parse_spec(f"{kernels}:triple:n=5").values == {"n": 5}
    assert parse_spec(str(kernels)).name == "double"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("doubel", "has no function 'doubel'; did you mean double"),
        ("wrong", "wrong must return a list of te tensors"),
        ("tw", "tw in .* is not a function"),
        ("double:m=3", "double has no parameter 'm'"),
    ],
)
def test_functions_in_a_file_that_will_not_do(kernels, function, message):
    with pytest.raises(WorkloadError, match=message):
        _ = parse_spec(f"{kernels}:{function}").tensors


def test_a_file_that_fails(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("1 / 0\n")
    with pytest.raises(WorkloadError, match="broken.py cannot be run: ZeroDivisionError: division by zero"):
        parse_spec(f"{path}:f")


def test_the_decorator_reads_the_signature():
    @workload(name="scale", reference=lambda ins, outs, **_: np.multiply(ins[0], 2, out=outs[0]))
    def f(n: int = 8, pad: int = 0, alpha: float = 2.0, flag: bool = False, out_dtype: str = "float32"):
        """Scaled."""
        A = te.placeholder((n,), name="A")
        return [A, te.compute((n,), lambda i: A[i] * alpha, name="B")]

    assert isinstance(f, Workload) and f.name == "scale" and f.doc == "Scaled."
    assert [(p.name, p.kind) for p in f.parameters] == [
        ("n", "size"), ("pad", "count"), ("alpha", "float"), ("flag", "bool"), ("out_dtype", "dtype"),
    ]  # fmt: skip
    assert len(f(n=3)) == 2  # it still is the function
    case = f.case(n="5", alpha="3")
    assert case.values["n"] == 5 and case.values["alpha"] == 3.0
    out = np.empty(5, np.float32)
    assert case.run_reference([np.ones(5, np.float32)], [out]) and out.tolist() == [2] * 5


def test_a_parameter_without_default_has_to_be_given():
    @workload
    def f(n: int):
        return []

    with pytest.raises(WorkloadError, match="f: n has no default; write n="):
        f.case()


def test_star_arguments_are_refused():
    with pytest.raises(WorkloadError, match="parameter sizes must be an ordinary one"):

        @workload
        def f(*sizes: int):
            return []


def test_a_broken_plugin_warns_with_its_package(monkeypatch):
    from tilewright.driver.workloads import catalog

    class Entry:
        name = "fancy"
        dist = type("Dist", (), {"name": "fancy-kernels"})

        def load(self):
            raise ImportError("no module named fancy")

    monkeypatch.setattr(catalog, "entry_points", lambda group: [Entry()])
    monkeypatch.setattr(catalog, "_plugins_read", [])
    with pytest.warns(UserWarning, match="'fancy' of the package 'fancy-kernels' is broken: no module named fancy"):
        assert "matmul" in all_workloads()


def test_a_plugin_is_found_by_the_name_that_is_listed(monkeypatch):
    from tilewright.driver.workloads import catalog

    class Entry:
        name = "wfx"
        dist = None

        def load(self):
            @workload
            def gelu2(n: int = 64):
                x = te.placeholder((n,), name="x")
                return [x, te.compute((n,), lambda i: x[i] * te.sigmoid(x[i] * 1.702), name="g")]

            return gelu2

    monkeypatch.setattr(catalog, "entry_points", lambda group: [Entry()])
    monkeypatch.setattr(catalog, "_plugins_read", [])
    monkeypatch.setattr(catalog, "_plugins", {})
    listed = [w.name for w in all_workloads().values()]
    assert "wfx" in listed and "gelu2" not in listed
    assert parse_spec("wfx:n=7").spec == "wfx:n=7" and parse_spec("wfx:n=7").func.name == "wfx"
