"""Programs that call a BLAS library: which one, with which names and integers, on how many threads, and exported."""

import _ctypes
import ctypes
import itertools
import shutil
import subprocess
import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target, TargetError, compile
from tilewright.codegen.machine import blas
from tilewright.codegen.machine.blas import BlasLibrary, blas_library
from tilewright.codegen.runtime.arguments import ArgumentError
from tilewright.schedule import Schedule


def _found(name):
    try:
        return blas_library(name)
    except TargetError:
        return None


LIBRARIES = [name for name in ("numpy", "scipy", "scipy-openblas64", "scipy-openblas32") if _found(name)]
if not LIBRARIES:
    pytest.skip("no BLAS library beside NumPy", allow_module_level=True)
FIRST = LIBRARIES[0]
HERE = f"native -num-cores=1 -libs=cblas -blas={FIRST}"
needs_linker = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")


def product(m, n, k, ta=False, tb=False, dtype="float32", batch=()):
    a, b = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))
    A, B = te.placeholder((*batch, *a), dtype, name="A"), te.placeholder((*batch, *b), dtype, name="B")
    r = te.reduce_axis((0, k), name="r")

    def element(*at):
        *outer, i, j = at
        left, right = ((r, i) if ta else (i, r)), ((j, r) if tb else (r, j))
        return te.sum(A[(*outer, *left)] * B[(*outer, *right)], axis=r)

    return te.create_prim_func([A, B, te.compute((*batch, m, n), element, name="C")])


def calling(func, block="C"):
    sch = Schedule(func)
    sch.call_blas(block)
    return sch


def numbers(func, seed=0):
    rng = np.random.default_rng(seed)
    a, b = [rng.standard_normal([int(e) for e in x.shape]).astype(str(x.dtype)) for x in func.buffers[:2]]
    return a, b, np.full([int(e) for e in func.buffers[2].shape], np.nan, a.dtype)


@pytest.mark.parametrize("name", LIBRARIES)
def test_products_are_numpys(name):
    for m, n, k, ta, tb in itertools.product((0, 1, 33), (1, 20), (1, 70), (False, True), (False, True)):
        for dtype in ("float32", "float64"):
            func = product(m, n, k, ta, tb, dtype)
            a, b, c = numbers(func)
            compile(calling(func), f"native -num-cores=1 -libs=cblas -blas={name}")(a, b, c)
            want = (a.T if ta else a) @ (b.T if tb else b)
            np.testing.assert_allclose(c, want, rtol=1e-4, atol=1e-4 if dtype == "float32" else 1e-12)


def test_symbolic_sizes_and_no_steps():
    m, k = te.var("m"), te.var("k")
    A, B, r = te.placeholder((m, k), name="A"), te.placeholder((7, k), name="B"), te.reduce_axis((0, k))
    C = te.compute((m, 7), lambda i, j: te.sum(A[i, r] * B[j, r], axis=r), name="C")
    f = compile(calling(te.create_prim_func([A, B, C])), HERE)
    for rows, steps in ((3, 5), (0, 5), (1, 1), (4, 0)):
        a, b, c = (
            np.ones((rows, steps), "float32"),
            np.ones((7, steps), "float32"),
            np.full((rows, 7), np.nan, "float32"),
        )
        f(a, b, c)
        assert (c == steps).all()


def test_an_epilogue_reads_what_the_call_wrote():
    A, B, bias = te.placeholder((9, 8), name="A"), te.placeholder((8, 16), name="B"), te.placeholder((16,), name="bias")
    r = te.reduce_axis((0, 8))
    C = te.compute((9, 16), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    D = te.compute((9, 16), lambda i, j: C[i, j] + bias[j], name="D")
    sch = calling(te.create_prim_func([A, B, bias, D]))
    sch.vectorize(sch.get_loops("D")[-1])
    rng = np.random.default_rng(0)
    a, b, c = [rng.random(shape, dtype="float32") for shape in ((9, 8), (8, 16), 16)]
    np.testing.assert_allclose(compile(sch, HERE)(a, b, c), a @ b + c, rtol=1e-5)


def test_operands_are_only_read_and_must_be_contiguous():
    func = product(4, 6, 5)
    f = compile(calling(func), HERE)
    assert [p.writes for p in f.entry.params] == [False, False, True]
    a, b, c = numbers(func)
    a.flags.writeable = False
    f(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    with pytest.raises(ArgumentError, match="A"):
        f(np.asfortranarray(np.ones((4, 5), "float32")), b, c)


# which library


def test_the_text_of_a_target_names_the_library(monkeypatch):
    assert str(Target(HERE)).endswith(f"-libs=cblas -blas={FIRST} -num-cores=1")
    assert Target(str(Target(HERE))) == Target(HERE) and Target("native").blas == ""
    assert Target(HERE).key != Target("native -num-cores=1").key
    monkeypatch.setenv("TILEWRIGHT_BLAS", blas_library(FIRST).path)
    assert Target("native -libs=cblas").blas == blas_library(FIRST).path
    assert Target(HERE).with_(num_cores=2).blas == FIRST


WRONG = {
    "-libs=mkl": "no library -libs=mkl; there is cblas",
    f"-blas={FIRST}": "needs -libs=cblas",
    "-libs=cblas -blas=nonsense": "-blas=nonsense: no such library; there are numpy, scipy",
    "-libs=cblas -blas=/no/such/lib.so": "there is no file /no/such/lib.so",
    f"-libs=cblas -blas={__file__}": "cannot be loaded",
}


@pytest.mark.parametrize("options", WRONG)
def test_wrong_libraries(options):
    with pytest.raises(TargetError, match=WRONG[options]):
        Target(f"native {options}")


def test_a_library_without_the_routines():
    with pytest.raises(TargetError, match="has no matrix product of float32 and float64; none of scipy_cblas_sgemm64_"):
        blas_library(_ctypes.__file__)


def test_targets_that_call_none():
    with pytest.raises(TargetError, match="-libs is for targets of kind"):
        Target("cuda -libs=cblas")
    other = "aarch64" if Target("native").arch == "x86_64" else "x86_64"
    with pytest.raises(TargetError, match="calls a library of this machine"):
        Target(f"llvm -mtriple={other}-linux-gnu -libs=cblas")
    with pytest.raises(
        TargetError, match="calls sgemm of a BLAS library, and the target .* names none; add -libs=cblas"
    ):
        compile(calling(product(2, 3, 4)), "native -num-cores=1")


def test_sizes_beyond_the_librarys_integers():
    narrow = BlasLibrary("narrow", "", "cblas", {"sgemm": "cblas_sgemm"}, 32, None, "1")
    n = te.var("n", "int64")
    A, B, r = te.placeholder((n, 4), name="A"), te.placeholder((4, 4), name="B"), te.reduce_axis((0, 4))
    C = te.compute((n, 4), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    calls = blas.blas_calls(calling(te.create_prim_func([A, B, C])).func.body)
    machine = type("Machine", (), {"blas_library": narrow})()
    with pytest.raises(TargetError, match="may exceed the 32-bit integers of narrow"):
        blas.called_library(machine, "f", calls)
    small = blas.blas_calls(calling(product(2, 3, 4)).func.body)
    assert blas.called_library(machine, "f", small) is narrow


@needs_linker
@pytest.mark.parametrize("width", [32, 64])
def test_a_library_with_the_fortran_interface_alone(tmp_path, width):
    end, kind = {32: ("_", "int"), 64: ("_64_", "long long")}[width]
    source = "\n".join([
        f"void {letter}gemm{end}(const char *ta, const char *tb, const {kind} *m, const {kind} *n, const {kind} *k, const {real} *alpha,"
        f" const {real} *a, const {kind} *lda, const {real} *b, const {kind} *ldb, const {real} *beta, {real} *c, const {kind} *ldc) {{"
        f" for ({kind} i = 0; i < *m; ++i) for ({kind} j = 0; j < *n; ++j) {{ {real} s = 0; for ({kind} p = 0; p < *k; ++p)"
        " s += (*ta == 'T' ? a[i * *lda + p] : a[p * *lda + i]) * (*tb == 'T' ? b[p * *ldb + j] : b[j * *ldb + p]);"
        " c[j * *ldc + i] = *alpha * s + (*beta ? *beta * c[j * *ldc + i] : 0); } }"
        for letter, real in (("s", "float"), ("d", "double"))
    ])  # fmt: skip
    (tmp_path / "blas.c").write_text(source)
    library = tmp_path / f"libplain{width}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, tmp_path / "blas.c"], check=True)
    target = Target(f"native -num-cores=1 -libs=cblas -blas={library}")
    found = target.blas_library
    assert (found.interface, found.integers, found.threads) == ("fortran", width, None)
    for ta, tb in itertools.product((False, True), repeat=2):
        func = product(3, 4, 5, ta, tb, "float64")
        a, b, c = numbers(func)
        f = compile(calling(func), target)
        f(a, b, c)
        np.testing.assert_allclose(c, (a.T if ta else a) @ (b.T if tb else b), rtol=1e-12)
    f.export(tmp_path / "kernel.c")
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-c", "-o", tmp_path / "kernel.o"]
    subprocess.run(["cc", *flags, tmp_path / "kernel.c"], check=True)


# threads


def _threads():
    library = blas_library(FIRST)
    opened = ctypes.CDLL(library.path)
    tell, put = library.threads
    return getattr(opened, tell), getattr(opened, put)


def test_the_number_of_threads_is_set_for_the_call_and_restored():
    tell, put = _threads()
    before = tell()
    try:
        put(2)
        func = product(300, 300, 300)
        f = compile(calling(func), HERE)
        a, b, c = numbers(func)
        seen, running = set(), threading.Event()

        def look():
            while not running.is_set():
                seen.add(tell())

        watcher = threading.Thread(target=look)
        watcher.start()
        workers = [threading.Thread(target=lambda: [f(a, b, c.copy()) for _ in range(10)]) for _ in range(3)]
        for one in workers:
            one.start()
        for one in workers:
            one.join()
        running.set()
        watcher.join()
        assert 1 in seen and tell() == 2
    finally:
        put(before)


def test_one_thread_inside_parallel_loops():
    func = product(3, 4, 5, batch=(4,))
    sch = calling(func)
    sch.parallel(sch.get_loops("C")[0])
    f = compile(sch, HERE.replace("-num-cores=1", "-num-cores=2"))
    assert 'call_extern("void", "tw_cblas_sgemm", 1,' in f.get_source("lowered")
    a, b, c = numbers(func)
    f(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
    serial = compile(calling(func), HERE)
    assert 'call_extern("void", "tw_cblas_sgemm", 0,' in serial.get_source("lowered")


# files


@needs_linker
def test_an_exported_library_needs_the_blas(tmp_path):
    func = product(4, 6, 5)
    f = compile(calling(func), HERE)
    files = f.export(tmp_path / "libk.so")
    library = blas_library(FIRST)
    assert library.path in (tmp_path / "libk.pc").read_text()
    assert library.identity in (tmp_path / "libk.h").read_text() and tmp_path / "libk.pc" in files
    a, b, c = numbers(func)
    tw.load_module(tmp_path / "libk.so")(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


@needs_linker
@pytest.mark.parametrize("kind", ["c", "native"])
def test_exported_c_calls_through_a_macro(tmp_path, kind):
    func = product(4, 6, 5)
    target = Target(f"{kind} -num-cores=1 -libs=cblas -blas={FIRST}")
    f = compile(calling(func), target)
    f.export(tmp_path / "kernel.c")
    text = (tmp_path / "kernel.c").read_text()
    library = blas_library(FIRST)
    assert f"#define TILEWRIGHT_SGEMM {library.symbols['sgemm']}" in text
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror"] if kind == "c" else []
    made = tmp_path / "libkernel.so"
    command = ["cc", *strict, "-O1", "-shared", "-fPIC", "-o", made, tmp_path / "kernel.c", library.path, "-lm"]
    subprocess.run(command, check=True)
    a, b, c = numbers(func)
    ctypes.CDLL(library.path)
    assert ctypes.CDLL(str(made)).kernel(*[ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)]) == 0
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_the_origin_says_which_library_is_called():
    module = tw.build(calling(product(2, 3, 4)), target=HERE)
    assert module.origin == f"scheduled by the caller; calls cblas_sgemm of {blas_library(FIRST).identity}"
