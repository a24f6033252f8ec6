"""Compiles IR text to machine code with LLVM, and loads machine code into this process.

All of llvmlite's compiling and loading happens here. Each build has an LLVM context of its own, because a shared one
only grows. Each module is verified before anything else uses it, since LLVM aborts the process on invalid IR. Code is
loaded through ORC, whose libraries are unloaded when their :class:`Loaded` is dropped.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import object_cache
from ..machine.target import Target
from ..machine.target_text import TargetError
from ..object_cache import CODEGEN_VERSION
from . import llvm_repairs

LINKS_PER_JIT = 300
"""The number of loads after which a new ORC instance is made, since each load leaves some kilobytes in its instance."""


NO_LOOP_INVARIANTS = "; loops: settled"
"""The line at the head of an emitted module whose innermost loops contain no loop-invariant accesses."""
CLEANING = ("simplify_cfg", "sroa", "instruction_combine", "aggressive_dce", "simplify_cfg")
"""The passes for such modules."""
HEAD = 200
"""The emitter's remarks are within this number of characters from the start."""


REPAIRS: tuple[Callable[[Any, tuple[str, ...], Target], str | None], ...] = (
    llvm_repairs.repair_single_lane_stores,
    llvm_repairs.repair_byte_divisions,
    llvm_repairs.repair_scalarized_accesses,
    llvm_repairs.repair,
)
"""What replaces instructions of which LLVM's back end would make wrong or slow code. Each takes the optimized module, the texts that
it was made of, and the target; it returns the module's new text, or None for no change."""


class JITError(RuntimeError):
    """Raised when the IR does not parse or verify, or when the code needs a symbol that is not available."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of LLVM's pipeline. The emitter vectorizes and unrolls by the schedule, so LLVM's own vectorizer and
    unroller are off unless requested."""

    opt_level: int = 3
    loop_vectorize: bool = False
    slp_vectorize: bool = False
    loop_unroll: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CompiledCode:
    """An object file in memory, position independent, and the IR from which it was made."""

    object: bytes
    ir: str
    target: Target
    options: Options = field(default_factory=Options)
    link: tuple[str, ...] = ()

    def optimized_ll(self) -> str:
        """Return the IR after LLVM's passes, as text (they run again for it)."""
        with _Build((self.ir, *self.link), self.target, self.options) as build:
            return str(build.module)

    def asm(self) -> str:
        """Return the assembly text (the passes run again for it)."""
        with _Build((self.ir, *self.link), self.target, self.options) as build:
            return str(build.machine.emit_assembly(build.module))


def optimize_and_compile(
    ir_text: str, target: Target, opt_level: int = 3, *, link: tuple[str, ...] = (), cache: bool = True, **toggles: bool
) -> CompiledCode:
    """Return machine code for ``target`` from LLVM IR text.

    ``link``: further modules to link with it; ``toggles``: the other fields of :class:`Options`. With ``cache``,
    machine code made before is taken from the disk (:mod:`..object_cache`), and new code is kept there.

    Raises :class:`JITError` when the text is not a valid module.
    """
    options = Options(opt_level, **toggles)
    key = object_cache.object_key(_key_parts((ir_text, *link), target, options)) if cache else ""
    kept = object_cache.find_object(key) if cache else None
    if kept is not None:
        return CompiledCode(kept, ir_text, target, options, link)
    with _Build((ir_text, *link), target, options) as build:
        made = bytes(build.machine.emit_object(build.module))
    if cache:
        object_cache.keep_object(key, made)
    return CompiledCode(made, ir_text, target, options, link)


def _key_parts(texts: tuple[str, ...], target: Target, options: Options) -> list[str]:
    """Returns everything that an object file depends on."""
    features = target.llvm_features
    return [str(CODEGEN_VERSION), llvm_version(), target.triple, target.mcpu, features, repr(options), *texts]


class Loaded:
    """Machine code loaded into this process. The addresses are valid as long as this object lives."""

    __slots__ = ("_addresses", "_jit", "_tracker")

    def __init__(self, tracker: Any, jit: Any, addresses: dict[str, int]) -> None:
        self._tracker, self._jit, self._addresses = tracker, jit, addresses

    def address(self, symbol: str) -> int:
        """Return the address of ``symbol``. KeyError when it was not requested in :func:`load`."""
        return self._addresses[symbol]

    def keep_forever(self) -> None:
        """Prevent unloading, for code that threads run until the process ends."""
        self._tracker.detach()
        self._jit.detach()
        _jits.retire(self._jit)


def load(
    object_code: bytes | Sequence[bytes], exports: Iterable[str], imports: Mapping[str, int] | None = None
) -> Loaded:
    """Load the code of one object file, or of several that call each other, into this process.

    ``exports``: the symbols whose addresses are wanted, and those by which the objects call each other; ``imports``:
    addresses for symbols that the code needs; the others must be in the process (libc, libm).

    Raises :class:`JITError` naming the missing symbols; LLVM itself would abort.
    """
    llvm = _llvm()
    objects = [object_code] if isinstance(object_code, bytes) else list(object_code)
    names = list(exports)
    own = set(names) if len(objects) > 1 else set()
    given = dict(imports or {})
    missing = []
    for symbol in dict.fromkeys(name for code in objects for name in undefined_symbols(code)):
        if symbol in given or symbol in own:
            continue
        address = _process_symbol(symbol)
        if address is None:
            missing.append(symbol)
        else:
            given[symbol] = address
    if missing:
        raise JITError(f"the code calls {', '.join(missing)}, which is neither in this process nor imported")
    builder = llvm.JITLibraryBuilder()
    for code in objects:
        builder.add_object_img(code)
    for name in names:
        builder.export_symbol(name)
    for name, address in given.items():
        builder.import_symbol(name, address)
    jit, library = _jits.take(llvm)
    try:
        tracker = builder.link(jit, library)
    except RuntimeError as e:
        raise JITError(f"loading failed: {e}") from None
    return Loaded(tracker, jit, {name: tracker[name] for name in names})


def _process_symbol(name: str) -> int | None:
    """Returns the address of ``name`` in this process (libc, libm and every other loaded library)."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    except (AttributeError, TypeError):  # TypeError: CDLL(None) on Windows
        return None


class _Build:
    """A module, parsed, verified and optimized, with its context and target machine."""

    def __init__(self, texts: tuple[str, ...], target: Target, options: Options) -> None:
        llvm = _llvm()
        self.context = llvm.create_context()
        self.module = _parse(llvm, texts[0], self.context)
        for text in texts[1:]:
            self.module.link_in(_parse(llvm, text, self.context))
        self.machine = _machine(target, options.opt_level)
        self.module.triple = target.full_triple
        self.module.data_layout = str(self.machine.target_data)
        tuning = llvm.create_pipeline_tuning_options(speed_level=options.opt_level)
        tuning.loop_vectorization = options.loop_vectorize
        tuning.slp_vectorization = options.slp_vectorize
        tuning.loop_unrolling = options.loop_unroll
        tuning.loop_interleaving = options.loop_vectorize
        builder = llvm.create_pass_builder(self.machine, tuning)
        if options == Options() and all(NO_LOOP_INVARIANTS in text[:HEAD] for text in texts):
            passes = llvm.create_new_module_pass_manager()
            for name in CLEANING:
                getattr(passes, f"add_{name}_pass")()
        else:
            passes = builder.getModulePassManager()
        if (
            options.opt_level == 0
        ):  # LLVM 22 aborts on a conversion to unsigned whose minimum with a folded 0 it selects
            passes.add_instruction_combine_pass()
        passes.run(self.module, builder)
        for repair in REPAIRS:
            after = repair(self.module, texts, target)
            if after is not None:
                self.module.close()
                self.module = _parse(llvm, after, self.context)

    def __enter__(self) -> _Build:
        return self

    def __exit__(self, *_: object) -> None:
        self.module.close()


def _parse(llvm: Any, text: str, context: Any) -> Any:
    try:
        module = llvm.parse_assembly(text, context)
    except RuntimeError as e:
        raise JITError(f"{str(e).strip()}\n{_excerpt(text, str(e))}") from None
    try:
        module.verify()
    except RuntimeError as e:
        raise JITError(f"the IR does not verify: {str(e).strip()}") from None
    return module


class _Jits:
    """The ORC instance in use, and a new library name for each load."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.jit: Any = None
        self.links = 0

    def take(self, llvm: Any) -> tuple[Any, str]:
        with self.lock:
            if self.jit is None or self.links % LINKS_PER_JIT == LINKS_PER_JIT - 1:
                self.jit = llvm.create_lljit_compiler(use_jit_link=True)
            self.links += 1
            return self.jit, f"tilewright{self.links}"

    def retire(self, jit: Any) -> None:
        with self.lock:
            if self.jit is jit:
                self.jit = None


_jits = _Jits()
_ready: list[Any] = []
_ready_lock = threading.Lock()


def _llvm() -> Any:
    """Returns llvmlite.binding, loaded and initialized once for this machine."""
    if not _ready:
        import llvmlite.binding as llvm  # type: ignore[import-untyped]

        with _ready_lock:
            if not _ready:
                llvm.initialize_native_target()
                llvm.initialize_native_asmprinter()
                llvm.initialize_native_asmparser()
                _ready.append(llvm)
    return _ready[0]


def llvm_version() -> str:
    """Returns the version of LLVM inside llvmlite, e.g. ``22.1.0``."""
    return ".".join(map(str, _llvm().llvm_version_info))


def _machine(target: Target, opt_level: int) -> Any:
    llvm = _llvm()
    try:
        found = llvm.Target.from_triple(target.full_triple)
    except RuntimeError:
        found = _of_all_targets(llvm, target)
    return found.create_target_machine(
        cpu=target.llvm_cpu,
        features=target.llvm_features,
        opt=opt_level,
        reloc="static"
        if target.is_wasm or target.is_freestanding
        else "pic",  # these are linked once, at fixed addresses
        codemodel="small",
        abiname=target.llvm_abi,
    )


def _of_all_targets(llvm: Any, target: Target) -> Any:
    """Returns LLVM's back end for another machine. All of them take ten megabytes, so they wait until one is asked for."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        return llvm.Target.from_triple(target.full_triple)
    except RuntimeError as e:
        raise TargetError(f"LLVM has no back end for {target.triple}: {str(e).strip()}") from None


def _excerpt(text: str, message: str) -> str:
    """Returns the lines around the one that LLVM's parser rejects."""
    words = message.replace(":", " ").split()
    number = next((int(w) for w in words if w.isdigit()), 0)
    lines = text.splitlines()
    first = max(0, number - 3)
    return "\n".join(f"{first + i + 1:5}: {line}" for i, line in enumerate(lines[first : number + 2])) if number else ""


# Reads the undefined symbols of an ELF object file (the ELF-64 symbol table, little endian).
#
# LLVM may call library functions that the IR never names (memset, conversions of float16), and an unresolved symbol would
# abort the process. The object's symbols are therefore checked before it is loaded.

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2


def undefined_symbols(data: bytes) -> list[str]:
    """Returns the names of the undefined symbols in table order, or nothing for data that is not 64-bit little-endian
    ELF."""
    if data[:6] != b"\x7fELF\x02\x01":
        return []
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [_SECTION.unpack_from(data, table + size * i) for i in range(count)]
    names: dict[str, None] = {}
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != _SYMTAB:
            continue
        strings = sections[link][4]
        for at in range(offset + entry, offset + length, entry):  # the first entry is the null symbol
            name, _, _, section, _, _ = _SYMBOL.unpack_from(data, at)
            if section == 0 and name:
                start = strings + name
                names.setdefault(data[start : data.index(b"\0", start)].decode())
    names.pop("_GLOBAL_OFFSET_TABLE_", None)
    return list(names)
