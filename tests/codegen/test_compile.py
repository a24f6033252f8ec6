"""The whole way: functions in, callable modules out, parallel loops and scratch memory included."""

import ctypes
import shutil
import threading

import numpy as np
import pytest

from tilewright.codegen import Module, Target, compile, lower
from tilewright.schedule import Schedule
from tilewright.tir.parser import parse
from tilewright.tir.stmt import IRModule


def scale_by(factor, name="scale", n=13):
    return parse(f"""
@T.prim_func
def {name}(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n},), "float32")):
    for i in range({n}):
        with T.block("B"):
            v = T.axis.spatial({n}, i)
            B[v] = A[v] * T.float32({factor})
""")


def two_stages(rows, columns):
    """Doubles into scratch memory in parallel, then sums rows in parallel."""
    return parse(f"""
@T.prim_func
def rows(A: T.Buffer(({rows}, {columns}), "float64"), S: T.Buffer(({rows},), "float64")):
    P = T.alloc_buffer(({rows}, {columns}), "float64")
    for i in T.parallel({rows}):
        for j in range({columns}):
            with T.block("P"):
                vi, vj = T.axis.remap("SS", [i, j])
                P[vi, vj] = A[vi, vj] * T.float64(2)
    for i in T.parallel({rows}):
        for j in range({columns}):
            with T.block("S"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    S[vi] = T.float64(0)
                S[vi] = S[vi] + P[vi, vj]
""")


def run_scale(f, factor, n=13):
    a = np.arange(n, dtype=np.float32)
    b = np.full(n, np.nan, np.float32)
    f(a, b)
    np.testing.assert_array_equal(b, a * factor)


def test_what_can_be_compiled():
    func = scale_by(2)
    run_scale(compile(func), 2)
    run_scale(compile(lower(func, "native")), 2)
    run_scale(compile(Schedule(func), "native"), 2)
    run_scale(compile(IRModule.from_func(func), Target("native")), 2)
    assert compile(func, name="other").get_source("ll").count("@other(") == 1
    with pytest.raises(TypeError, match="cannot compile int; a PrimFunc, a Schedule or an IRModule is needed"):
        compile(7)
    with pytest.raises(ValueError, match="'two words' is not a C identifier"):
        compile(func, name="two words")


def test_modules_of_several_functions():
    module = compile({"double": scale_by(2, "double"), "triple": scale_by(3, "triple")})
    assert list(module) == ["double", "triple"] and len(module) == 2 and "triple" in module
    run_scale(module["double"], 2)
    run_scale(module["triple"], 3)
    assert module["double"] is module["double"]
    with pytest.raises(ValueError, match="several functions, .'double', 'triple'.: pick one"):
        module(np.zeros(13, np.float32), np.zeros(13, np.float32))
    with pytest.raises(ValueError, match="a name for 2 functions"):
        compile(IRModule({"double": scale_by(2, "double"), "triple": scale_by(3, "triple")}), name="f")
    with pytest.raises(ValueError, match="nothing to compile"):
        compile({})


def test_symbols_in_a_module():
    """The global symbol where it is the only one of its name, else the name in the module, made unique."""

    def symbols(**functions):
        module = compile(functions)
        for n, name in enumerate(functions):
            run_scale(module[name], n + 2)
        return [module[name].name for name in functions]

    assert symbols(a=scale_by(2, "main"), b=scale_by(3, "main")) == ["a", "b"]
    assert symbols(a=scale_by(2, "twice"), b=scale_by(3, "thrice")) == ["twice", "thrice"]
    assert symbols(a=scale_by(2, "b"), b=scale_by(3, "main"), c=scale_by(4, "main")) == ["b", "b_1", "c"]
    assert symbols(f=scale_by(2, "g"), g=scale_by(3, "f")) == ["g", "f"]
    module = compile({"a": scale_by(2, "twice"), "b": scale_by(3, "thrice")})
    assert module["twice"] is module["a"] and "thrice" in module  # a C symbol finds its function as well
    run_scale(compile({"main": scale_by(2, "main"), "other": scale_by(3, "main")}), 2)  # main is what a call means


@pytest.mark.parametrize("functions, symbols", [
    (["main"], ["kernel"]), (["main", "kernel"], ["kernel_1", "kernel"]), (["kernel"], ["kernel"]),
])  # fmt: skip
def test_a_program_can_link_what_is_called_main(functions, symbols, tmp_path):
    module = compile({name: scale_by(2, name) for name in functions})
    assert [module[name].name for name in functions] == symbols
    alone = compile(scale_by(2, functions[0]))
    assert (alone.entry_name, alone.entry.name) == (functions[0], "kernel")
    assert "int32_t kernel(" in alone.export(tmp_path / "k.o")[1].read_text()
    run_scale(alone["kernel"], 2)


def test_modules_are_lowered_function_by_function():
    module = IRModule({"a": scale_by(2, "main"), "b": scale_by(3, "main")})
    lowered = lower(module, "native")
    assert list(lowered) == ["a", "b"]
    run_scale(compile(lowered)["b"], 3)
    assert lower(Schedule(module), "native").keys() == lowered.keys()
    assert lower(IRModule.from_func(scale_by(2)), "native").name == scale_by(2).name
    with pytest.raises(ValueError, match="a name for 2 functions"):
        lower(module, "native", "f")
    with pytest.raises(TypeError, match="cannot lower int; a PrimFunc, a Schedule or an IRModule is needed"):
        lower(7, "native")


def test_words_of_c_name_no_function_there():
    module = compile(scale_by(2), name="double")
    run_scale(module, 2)
    with pytest.raises(ValueError, match="'double' is a word of C or C"):
        module.get_source("c")


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("rows, columns", [(1, 1), (7, 13), (17, 16), (13, 5000)])
def test_parallel_loops_and_scratch(cores, rows, columns):
    module = compile(two_stages(rows, columns), f"native -num-cores={cores}")
    a = np.random.default_rng(0).integers(-9, 9, (rows, columns)).astype(np.float64)
    s = np.full(rows, np.nan)
    for _ in range(3):
        s[:] = np.nan
        module(a, s)
        np.testing.assert_array_equal(s, 2 * a.sum(axis=1))


def test_calls_from_several_threads():
    module = compile(two_stages(13, 5000), "native -num-cores=2")
    rng = np.random.default_rng(0)
    failures = []

    def work(seed):
        a = rng.integers(-9, 9, (13, 5000)).astype(np.float64)
        for _ in range(20):
            s = np.full(13, np.nan)
            module(a, s)
            if not np.array_equal(s, 2 * a.sum(axis=1)):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang", "ld"))), reason="needs a linker")
def test_libraries_bring_their_pool(tmp_path):
    func = two_stages(13, 5000)
    compile(func, "native -num-cores=2").export(tmp_path / "rows.so")
    library = ctypes.CDLL(str(tmp_path / "rows.so"))
    a = np.random.default_rng(0).integers(-9, 9, (13, 5000)).astype(np.float64)
    s = np.full(13, np.nan)
    assert library.rows(ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(s.ctypes.data)) == 0
    np.testing.assert_array_equal(s, 2 * a.sum(axis=1))
    assert not hasattr(library, "tw_parallel_for")  # hidden: two such libraries do not meet


def test_serial_code_needs_no_runtime(tmp_path):
    compile(scale_by(2), "native -num-cores=1").export(tmp_path / "k.s")
    assert "pthread" not in (tmp_path / "k.s").read_text()


@pytest.mark.parametrize(
    "target, words",
    [
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake -mattr=+avx2,+fma -num-cores=1", ["vfmadd", "ymm"]),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -num-cores=1", ["vfmadd", "zmm"]),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -mattr=+neon -num-cores=2", ["fmla", ".4s"]),
    ],
)
def test_other_machines(target, words, tmp_path):
    func = parse("""
@T.prim_func
def axpy(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in T.vectorized(64):
        with T.block("B"):
            v = T.axis.spatial(64, i)
            B[v] = A[v] * B[v] + A[v]
""")
    module = compile(func, target)
    text = module.get_source("asm")
    assert all(word in text for word in words)
    assert module.export(tmp_path / "k.o")[0].read_bytes()[:4] == b"\x7fELF"


def test_sources_of_every_stage():
    module = compile(scale_by(2))
    assert isinstance(module, Module)
    assert "T.block" in module.get_source("scheduled") and "T.block" not in module.get_source("lowered")
    for fmt, word in {"tir": "prim_func", "ir": "define i32 @scale", "ll": "@scale(", "asm": "scale:",
                      "c": "int32_t scale("}.items():  # fmt: skip
        assert word in module.get_source(fmt), fmt


def test_a_dropped_module_leaves_its_functions_alive():
    function = compile(scale_by(2))["scale"]
    run_scale(function, 2)


def test_scratch_that_the_machine_does_not_have():
    func = parse("""
@T.prim_func
def f(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    P = T.alloc_buffer((n * T.int64(1000000000000000),), "float32")
    for i in range(n):
        with T.block("P"):
            v = T.axis.spatial(n, i)
            P[v] = A[v]
    for i in range(n):
        with T.block("B"):
            v = T.axis.spatial(n, i)
            B[v] = P[v]
""")
    a = np.zeros(1000, np.float32)
    with pytest.raises(RuntimeError, match="f: no memory for its scratch buffers"):
        compile(func)(a, np.zeros_like(a))
