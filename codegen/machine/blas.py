"""BLAS libraries that compiled code may call: where each is, its names, and the width of its integers.

A library has a name (``numpy`` and ``scipy`` bring their own OpenBLAS, ``scipy-openblas64`` and ``scipy-openblas32`` are
packages), or it is the path of a shared library. It is looked up whenever a process first needs it, because an upgrade
of a package changes the file; the records of the tuner keep its version.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...tir.blas_calls import SIZES, blas_calls, called_routines
from ...tir.expr import Call, Cast, DType, IntImm, is_const_int
from ...tir.stmt import PrimFunc
from .target_text import TargetError

if TYPE_CHECKING:
    from .target import Target

DEFAULT = "numpy"
"""The library of ``-libs=cblas`` where neither ``-blas`` nor the environment's ``TILEWRIGHT_BLAS`` names one."""

ROUTINES = ("sgemm", "dgemm")
"""The routines that are called."""

VECTOR_ROUTINES = {"sgemm": "sgemv", "dgemm": "dgemv"}
"""What is called in place of a routine for a product of one row or one column, where a library has C's interface. Products
of matrices take several times as long there in some libraries."""

_SPELLINGS = (
    ("cblas", "scipy_cblas_{}64_"), ("cblas", "scipy_cblas_{}"), ("cblas", "cblas_{}64_"), ("cblas", "cblas_{}_64"), ("cblas", "cblas_{}"),
    ("fortran", "scipy_{}_64_"), ("fortran", "scipy_{}_"), ("fortran", "{}_64_"), ("fortran", "{}64_"), ("fortran", "{}_"),
)  # fmt: skip
"""How libraries spell a routine, by its interface. Of several the first that a library has is called."""

_THREADS = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
)
"""The functions that tell and set the number of threads."""

_CONFIGS = (
    "scipy_openblas_get_config64_",
    "scipy_openblas_get_config",
    "openblas_get_config64_",
    "openblas_get_config",
)
_CORES = (
    "scipy_openblas_get_corename64_",
    "scipy_openblas_get_corename",
    "openblas_get_corename64_",
    "openblas_get_corename",
)


@dataclass(frozen=True)
class BlasLibrary:
    """A BLAS library of this machine.

    ``interface``: ``cblas``, or ``fortran`` where it has that alone; ``symbols``: its functions by the routines' names;
    ``integers``: the bits of sizes; ``threads``: the functions that tell and set the number of threads, or None;
    ``version``: what it says of itself, or the size of the file where it says nothing.
    """

    name: str
    path: str
    interface: str
    symbols: Mapping[str, str]
    integers: int
    threads: tuple[str, str] | None
    version: str

    @property
    def identity(self) -> str:
        """Returns what its results and speed depend on: name, version, width of integers."""
        return f"{self.name} ({self.version}, {self.integers}-bit integers)"

    @property
    def imported(self) -> tuple[str, ...]:
        """Returns the functions that code may call."""
        return (*self.symbols.values(), *(self.threads or ()))

    def addresses(self) -> dict[str, int]:
        """Returns the addresses of these functions in this process."""
        library = ctypes.CDLL(self.path)
        return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in self.imported}


def blas_library(name: str) -> BlasLibrary:
    """Returns the library of a name or a path. :class:`TargetError` where there is none, or it lacks the routines."""
    return _opened(name)


@lru_cache(maxsize=32)
def _opened(name: str) -> BlasLibrary:
    path = _path_of(name)
    name = name if name in _PACKAGES else path
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise TargetError(f"-blas={name}: {path} cannot be loaded: {error}") from None
    interface, symbols = _symbols_of(library, name, path)
    config = _told(library, _CONFIGS)
    integers = 64 if "64" in symbols["sgemm"] or "USE64BITINT" in config or _blis_bits(library) == 64 else 32
    threads = next((pair for pair in _THREADS if all(hasattr(library, one) for one in pair)), None)
    core = _told(library, _CORES)
    version = " ".join([*config.split()[:2], core]).strip() if config else f"{Path(path).name}, {_size(path)} bytes"
    return BlasLibrary(name, path, interface, symbols, integers, threads, version)


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _symbols_of(library: ctypes.CDLL, name: str, path: str) -> tuple[str, dict[str, str]]:
    for interface, spelling in _SPELLINGS:
        symbols = {routine: spelling.format(routine) for routine in ROUTINES}
        if all(hasattr(library, symbol) for symbol in symbols.values()):
            more = {routine: spelling.format(routine) for routine in VECTOR_ROUTINES.values()}
            found = interface == "cblas" and all(hasattr(library, symbol) for symbol in more.values())
            return interface, {**symbols, **(more if found else {})}
    tried = ", ".join([spelling.format("sgemm") for _, spelling in _SPELLINGS])
    raise TargetError(f"-blas={name}: {path} has no matrix product of float32 and float64; none of {tried} is there")


def _told(library: ctypes.CDLL, names: tuple[str, ...]) -> str:
    """Returns the text of the first of these functions that the library has, or an empty text."""
    for name in names:
        function = getattr(library, name, None)
        if function is not None:
            function.restype = ctypes.c_char_p
            return (function() or b"").decode()
    return ""


def _blis_bits(library: ctypes.CDLL) -> int:
    """Returns the width of integers of BLIS's interface of BLAS, or 0 for another library."""
    function = getattr(library, "bli_info_get_blas_int_type_size", None)
    if function is None:
        return 0
    function.restype = ctypes.c_int64
    return int(function())


def _path_of(name: str) -> str:
    if name in _PACKAGES:
        package, folders = _PACKAGES[name]
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            raise TargetError(f"-blas={name}: the package is not installed; pip install {name}")
        beside = Path(found.origin).parent
        for found_library in _openblas_in([beside / folder for folder in folders]):
            return str(found_library.resolve())
        raise TargetError(f"-blas={name}: no OpenBLAS lies beside {beside}; name another library by its path")
    if not os.path.isabs(name) and os.sep not in name:
        known = ", ".join(_PACKAGES)
        raise TargetError(f"-blas={name}: no such library; there are {known}, or the path of a shared library")
    path = os.path.abspath(os.path.expanduser(name))
    if not os.path.isfile(path):
        raise TargetError(f"-blas={name}: there is no file {path}")
    return path


_PACKAGES = {
    "numpy": ("numpy", ("../numpy.libs", ".libs", ".dylibs")),
    "scipy": ("scipy", ("../scipy.libs", ".libs", ".dylibs")),
    "scipy-openblas64": ("scipy_openblas64", ("lib",)),
    "scipy-openblas32": ("scipy_openblas32", ("lib",)),
}
"""The packages with a library by its name, and the folders that may have it."""


def _openblas_in(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        for pattern in ("*openblas*.so*", "*openblas*.dylib", "*openblas*.dll"):
            yield from sorted(folder.glob(pattern))


def called_library(target: Target, function: str, calls: Sequence[Call]) -> BlasLibrary:
    """Returns the library of a target for the calls in a function. :class:`TargetError` where it has none, and where its
    integers are too narrow."""
    library = target.blas_library
    if library is None:
        raise TargetError(
            f"{function} calls {', '.join(called_routines(calls))} of a BLAS library, and the target {target} names none; "
            "add -libs=cblas (and -blas=LIBRARY)"
        )
    for size in [size for call in calls for size in call.args[SIZES] if library.integers == 32]:
        if isinstance(size, IntImm) and size.value < 1 << 31:
            continue
        if not isinstance(size, Cast) or DType(size.value.dtype).bits > 32:
            raise TargetError(
                f"{function} multiplies matrices of the size {size}, which may exceed the 32-bit integers of "
                f"{library.identity}; take a library with 64-bit integers, or sizes of int32"
            )
    return library


def told_calls(func: PrimFunc, target: Target) -> str:
    """Returns a text such as ``; calls cblas_sgemm of numpy (…)`` about a scheduled function; empty without such calls."""
    routines = called_routines(blas_calls(func.body))
    library = target.blas_library if routines else None
    if library is None:
        return ""
    names = sorted({_told_name(library, call) for call in blas_calls(func.body)})
    return f"; calls {', '.join(names)} of {library.identity}"


def _told_name(library: BlasLibrary, call: Call) -> str:
    (routine,) = called_routines([call])
    vector = VECTOR_ROUTINES[routine]
    if vector in library.symbols and any(is_const_int(n, 1) for n in call.args[SIZES][:2]):
        routine = vector
    return f"cblas_{routine}" if library.interface == "cblas" else routine


# The function that programs call, in LLVM IR: it gives the library its own integers and as many threads as the target has.


def product_ir(library: BlasLibrary, routine: str, symbol: str, threads: int) -> tuple[list[str], str]:
    """Returns declarations, and the definition of ``symbol``, which calls ``routine`` of the library.

    Without reduced steps the result is zero, which not every library writes. Products of one row or column are added to zeros,
    because not every library overwrites NaN there.
    """
    real, size = ("float", 4) if routine == "sgemm" else ("double", 8)
    called, whole = library.symbols[routine], f"i{library.integers}"
    declarations = ["declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)", "declare i64 @llvm.smax.i64(i64, i64)"]
    begin = end = ""
    if library.threads is not None:
        tell, put = library.threads
        declarations += [
            f"declare i32 @{tell}()", f"declare void @{put}(i32)", "declare void @tw_limit_threads(ptr, ptr, i32)",
            "declare void @tw_restore_threads(ptr)",
        ]  # fmt: skip
        begin = f"  call void @tw_limit_threads(ptr @{tell}, ptr @{put}, i32 %most)"
        end = f"  call void @tw_restore_threads(ptr @{put})"
    names = ("m", "n", "k", "lda1", "ldb1", "ldc1")

    def narrowed(value: str) -> str:
        return f"trunc i64 {value} to i32" if whole == "i32" else f"add i64 {value}, 0"

    narrow = [f"  %{name}w = {narrowed(f'%{name}')}" for name in names]
    if library.interface == "cblas":
        types = f"i32, i32, i32, {whole}, {whole}, {whole}, {real}, ptr, {whole}, ptr, {whole}, {real}, ptr, {whole}"
        declarations.append(f"declare void @{called}({types})")
        call = [
            "  %transa = select i1 %ta, i32 112, i32 111",
            "  %transb = select i1 %tb, i32 112, i32 111",
            f"  call void @{called}(i32 101, i32 %transa, i32 %transb, {whole} %mw, {whole} %nw, {whole} %kw, {real} 1.0, "
            f"ptr %a, {whole} %lda1w, ptr %b, {whole} %ldb1w, {real} %beta, ptr %c, {whole} %ldc1w)",
        ]
    else:  # column-major: Cᵀ = Bᵀ Aᵀ; all arguments by address, the lengths of texts at the end
        declarations.append(f"declare void @{called}({', '.join(['ptr'] * 13)}, i64, i64)")
        kinds = {"transa": "i8", "transb": "i8", **dict.fromkeys(names, whole), "one": real, "beta": real}
        values = {
            "transa": "%letter_a", "transb": "%letter_b", "one": "1.0", "beta": "%beta",
            **{name: f"%{name}w" for name in names},
        }  # fmt: skip
        call = ["  %letter_a = select i1 %ta, i8 84, i8 78", "  %letter_b = select i1 %tb, i8 84, i8 78"]
        for name, kind in kinds.items():
            call += [
                f"  %at_{name} = alloca {kind}, align 8",
                f"  store {kind} {values[name]}, ptr %at_{name}, align 8",
            ]
        order = ("transb", "transa", "n", "m", "k", "one", "", "ldb1", "-", "lda1", "beta", "+", "ldc1")
        plain = {"": "%b", "-": "%a", "+": "%c"}
        passed = ", ".join([f"ptr {plain.get(name, f'%at_{name}')}" for name in order])
        call.append(f"  call void @{called}({passed}, i64 1, i64 1)")
    vector = library.symbols.get(VECTOR_ROUTINES[routine])
    if vector is None:
        multiply = ["  br label %done"]
    else:
        types = f"i32, i32, {whole}, {whole}, {real}, ptr, {whole}, ptr, {whole}, {real}, ptr, {whole}"
        declarations.append(f"declare void @{vector}({types})")
        multiply = [
            *[f"  %{name}v = {narrowed(f'%{name}')}" for name in ("m", "n", "k", "lda", "ldb", "ldc")],
            "  %va = icmp ne i32 %flag_a, 0",
            "  %vb = icmp ne i32 %flag_b, 0",
            "  %straight_b = xor i1 %vb, true",
            *_choice("turned", "i1", "%one_row", "%straight_b", "%va"),
            *_choice("matrix", "ptr", "%one_row", "%b", "%a"),
            *_choice("vector", "ptr", "%one_row", "%a", "%b"),
            *_choice("length", whole, "%one_row", "%nv", "%mv"),
            *_choice("ld", whole, "%one_row", "%ldbv", "%ldav"),
            f"  %step_a = select i1 %va, {whole} %ldav, {whole} 1",
            f"  %step_b = select i1 %vb, {whole} 1, {whole} %ldbv",
            *_choice("incx", whole, "%one_row", "%step_a", "%step_b"),
            f"  %incy = select i1 %one_row, {whole} 1, {whole} %ldcv",
            "  %trans = select i1 %turned, i32 112, i32 111",
            f"  %height = select i1 %turned, {whole} %kv, {whole} %length",
            f"  %width = select i1 %turned, {whole} %length, {whole} %kv",
            begin,
            f"  call void @{vector}(i32 101, i32 %trans, {whole} %height, {whole} %width, {real} 1.0, ptr %matrix, {whole} %ld, "
            f"ptr %vector, {whole} %incx, {real} 1.0, ptr %c, {whole} %incy)",
            end,
            "  br label %done",
        ]
    text = f"""
define linkonce_odr hidden void @{symbol}(i32 %threads, i32 %flag_a, i32 %flag_b, i64 %m, i64 %n, i64 %k, ptr %a, i64 %lda, ptr %b, i64 %ldb, i32 %more, ptr %c, i64 %ldc) noinline nounwind {{
entry:
  %no_rows = icmp eq i64 %m, 0
  %no_columns = icmp eq i64 %n, 0
  %limited = icmp sgt i32 %threads, 0
  %most = select i1 %limited, i32 %threads, i32 {threads}
  %empty = or i1 %no_rows, %no_columns
  br i1 %empty, label %done, label %some
some:
  %no_steps = icmp eq i64 %k, 0
  %one_row = icmp eq i64 %m, 1
  %one_column = icmp eq i64 %n, 1
  %line = {"or i1 %one_row, %one_column" if vector else "and i1 false, false"}
  %apart = or i1 %no_steps, %line
  br i1 %apart, label %start, label %product
start:
  %adds = icmp ne i32 %more, 0
  %bytes = mul i64 %n, {size}
  br i1 %adds, label %cleared, label %row
row:
  %i = phi i64 [ 0, %start ], [ %next, %row ]
  %offset = mul i64 %i, %ldc
  %at = getelementptr {real}, ptr %c, i64 %offset
  call void @llvm.memset.p0.i64(ptr %at, i8 0, i64 %bytes, i1 false)
  %next = add i64 %i, 1
  %left = icmp ult i64 %next, %m
  br i1 %left, label %row, label %cleared
cleared:
  br i1 %no_steps, label %done, label %multiply
multiply:
{chr(10).join(multiply)}
product:
  %ta = icmp ne i32 %flag_a, 0
  %tb = icmp ne i32 %flag_b, 0
  %beta = sitofp i32 %more to {real}
  %lda1 = call i64 @llvm.smax.i64(i64 %lda, i64 1)
  %ldb1 = call i64 @llvm.smax.i64(i64 %ldb, i64 1)
  %ldc1 = call i64 @llvm.smax.i64(i64 %ldc, i64 1)
{chr(10).join(narrow)}
{begin}
{chr(10).join(call)}
{end}
  br label %done
done:
  ret void
}}
"""
    return declarations, text


def _choice(name: str, kind: str, condition: str, yes: str, no: str) -> list[str]:
    return [f"  %{name} = select i1 {condition}, {kind} {yes}, {kind} {no}"]


# The same function in C, which calls the library through a macro, so that a program may take another one.


def product_c(library: BlasLibrary, routine: str, symbol: str) -> str:
    """Returns the declaration of the library's function, and the definition of ``symbol``, in C99.

    A program in C sets the number of the library's threads by itself.
    """
    real = "float" if routine == "sgemm" else "double"
    whole, macro = f"int{library.integers}_t", f"TILEWRIGHT_{routine.upper()}"
    vector = library.symbols.get(VECTOR_ROUTINES[routine])
    vector_macro = f"TILEWRIGHT_{VECTOR_ROUTINES[routine].upper()}"
    macros = f", or define {macro}{f' and {vector_macro}' if vector else ''} as that of another library"
    head = f"/* {routine} of {library.identity}: link it{macros}. */\n" + (
        f"#ifndef {macro}\n#define {macro} {library.symbols[routine]}\n#endif\n"
    )
    line = "0"
    multiply = ""
    if vector:
        line = "m == 1 || n == 1"
        head += (
            f"#ifndef {vector_macro}\n#define {vector_macro} {vector}\n#endif\n"
            f"extern void {vector_macro}(int, int, {whole}, {whole}, {real}, const {real} *, {whole}, const {real} *, {whole}, {real}, "
            f"{real} *, {whole});\n"
        )
        multiply = (
            f"    {whole} length = ({whole})(m == 1 ? n : m), steps = ({whole})k;\n    int turned = m == 1 ? !tb : ta;\n"
            f"    {vector_macro}(101, turned ? 112 : 111, turned ? steps : length, turned ? length : steps, 1, m == 1 ? b : a, "
            f"({whole})(m == 1 ? ldb : lda), m == 1 ? a : b, ({whole})(m == 1 ? (ta ? lda : 1) : (tb ? 1 : ldb)), 1, c, "
            f"({whole})(m == 1 ? 1 : ldc));\n"
        )
    parameters = (
        "int32_t threads, int32_t ta, int32_t tb, int64_t m, int64_t n, int64_t k, void *a, int64_t lda, void *b, "
        "int64_t ldb, int32_t more, void *c, int64_t ldc"
    )
    start = (
        f"static void {symbol}({parameters}) {{\n  (void)threads;\n  if (m == 0 || n == 0) return;\n  if (k == 0 || {line}) {{\n"
        f"    for (int64_t i = 0; i < m && !more; ++i) memset(({real} *)c + i * ldc, 0, n * sizeof({real}));\n"
        f"    if (k == 0) return;\n{multiply}    return;\n  }}\n"
        "  lda = lda > 0 ? lda : 1;\n  ldb = ldb > 0 ? ldb : 1;\n  ldc = ldc > 0 ? ldc : 1;\n"
    )
    if library.interface == "cblas":
        types = (
            f"int, int, int, {whole}, {whole}, {whole}, {real}, const {real} *, {whole}, const {real} *, {whole}, {real}, "
            f"{real} *, {whole}"
        )
        call = (
            f"  {macro}(101, ta ? 112 : 111, tb ? 112 : 111, ({whole})m, ({whole})n, ({whole})k, 1, a, ({whole})lda, b, "
            f"({whole})ldb, ({real})more, c, ({whole})ldc);\n}}"
        )
        return f"{head}extern void {macro}({types});\n{start}{call}"
    types = (
        f"const char *, const char *, const {whole} *, const {whole} *, const {whole} *, const {real} *, const {real} *, "
        f"const {whole} *, const {real} *, const {whole} *, const {real} *, {real} *, const {whole} *, size_t, size_t"
    )
    call = (
        f"  const {whole} mw = ({whole})m, nw = ({whole})n, kw = ({whole})k, law = ({whole})lda, lbw = ({whole})ldb, "
        f"lcw = ({whole})ldc;\n  const {real} one = 1, beta = ({real})more;\n"
        f'  {macro}(tb ? "T" : "N", ta ? "T" : "N", &nw, &mw, &kw, &one, b, &lbw, a, &law, &beta, c, &lcw, 1, 1);\n}}'
    )
    return f"{head}extern void {macro}({types});\n{start}{call}"
