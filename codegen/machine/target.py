"""Targets: the machine to generate code for, and its abilities; and figures of GPUs, which all layers share.

>>> t = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake -mattr=+avx2,+fma -num-cores=2")
>>> t.vector_bits, t.vector_lanes("float32"), t.num_vector_registers, t.num_cores
(256, 8, 16, 2)
>>> str(t)
'llvm -mtriple=x86_64-linux-gnu -mcpu=skylake -mattr=+avx2,+fma -num-cores=2'
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...tir.expr import DType
from ..late_tables import TARGET_KINDS
from .cpu import Caches
from .named_targets import options_of_mapping, split
from .target_text import TargetError, spelled

if TYPE_CHECKING:
    from .blas import BlasLibrary

WARP = 32
"""The threads that run in step and can exchange values."""
WARP_GROUP = 4 * WARP
"""The threads that run products of ``wgmma`` together."""
GROUP_RATE = 1.6
"""How many times as fast as warps by themselves warp groups multiply: 4096 operations per cycle against 2560 on sm_90."""
SECTOR = 32
"""The bytes that memory and the second-level cache move at once."""
BANKS, BANK_BYTES = 32, 4
"""Banks of shared memory, and the bytes that each gives in a cycle."""
FETCH_CYCLES, SHARED_CYCLES, ARITHMETIC_CYCLES, BARRIER_CYCLES = 500.0, 30.0, 4.0, 30.0
"""Until a load of global memory, one of shared memory, an arithmetic result and a barrier are there."""
BLOCK_SHARED = 1 << 10
"""Bytes of shared memory that each block takes besides its own."""
STATIC_SHARED, OVERLAID_SHARED = 48 << 10, 96 << 10
"""Bytes of shared memory that a kernel may declare, more is given at the launch; and from where on buffers of different times share it."""
SHARED_KIB = {70: 96, 75: 64, 80: 164, 86: 100, 89: 100, 90: 228, 100: 228, 120: 100}
"""KiB of shared memory of a multiprocessor, by the first compute capability that has so many."""
FIRST_COPIES = 80
"""The first compute capability whose threads start copies to shared memory (``cp.async``)."""


def compute_capability(mcpu: str) -> int:
    """Returns the number of an NVIDIA architecture, 90 of ``sm_90a``; 80 for names of other kinds."""
    return int("".join([ch for ch in mcpu if ch.isdigit()]) or 80) if mcpu.startswith("sm_") else 80


def shared_bytes(capability: int) -> int:
    """Returns the bytes of shared memory of a multiprocessor of NVIDIA's architecture of this number."""
    return SHARED_KIB[max([n for n in SHARED_KIB if n <= capability], default=min(SHARED_KIB))] << 10


def block_shared_bytes(capability: int) -> int:
    """Returns the bytes of shared memory that a block may take on NVIDIA's architecture of this number."""
    return shared_bytes(capability) - (BLOCK_SHARED if capability >= FIRST_COPIES else 0)


SCALABLE = ("sve", "v")
"""The features with vector registers of a width that the processor chooses."""

_MULTIPLY_ADD = {"riscv64": ("f",), "armv7": ("vfp4",), "arm": ("vfp4",), "thumbv7em": ("vfp4",)}


_NEON_DOTS = {
    "tir.dot4_u8i8": "i8mm", "tir.dot4_i8i8": "dotprod", "tir.dot4_u8u8": "dotprod", "tir.dot2_bf16": "bf16",
}  # fmt: skip
"""The feature with an instruction for a dot product."""


class Target:
    """A target is a machine to generate code for. Targets are immutable, and equal when their canonical texts are equal.

    ``Target("native")`` is this machine; ``Target("llvm -mcpu=skylake -mattr=+avx2,+fma -num-cores=2")`` any other;
    ``Target("native -mattr=-amx-tile")`` is this machine without a feature;
    a mapping or keywords do as well: ``Target(kind="llvm", mcpu="skylake", num_cores=2)``. Options: ``-mtriple``,
    ``-mcpu``, ``-mattr=+a,-b``, ``-num-cores=N``, ``-vector-width=BITS`` (narrower vectors than the machine's widest),
    ``-winograd=0`` (networks compute no convolution by Winograd's method, which rounds otherwise), or ``2`` or ``4``, its largest
    tile; ``-libs=cblas`` (matrix products may be calls of a BLAS library of this machine, which ``-blas=LIBRARY`` names).

    ``Target("c")`` is any machine with a C99 compiler: its text is strict ISO C, without vector types and threads.
    ``-vector-extensions`` writes GCC's vector types, ``-openmp`` distributes parallel loops, ``-hls`` has HLS pragmas.
    ``Target("c -mcpu=cortex-m7")`` is a microcontroller: its text needs neither a heap nor a mathematical library.

    The thread count is ``-num-cores``, else the environment's ``TILEWRIGHT_NUM_THREADS``, else what this process may
    use; 1 for another machine: a processor or a system that is not this one, or ``-mcpu`` of one particular other CPU.
    Raises :class:`TargetError` for anything else, and for processors without code.
    """

    __slots__ = ("_enabled", "_text", "arch", "blas", "caches", "features", "flags", "full_triple", "has_runtime", "is_freestanding",
                 "kind", "llvm_abi", "mcpu", "model", "num_cores", "num_vector_registers", "triple", "vector_bits", "winograd")  # fmt: skip
    kind: str
    flags: tuple[str, ...]
    triple: str
    full_triple: str
    """The triple with its vendor, which LLVM needs."""
    arch: str
    """``x86_64``, ``aarch64``, or the triple's own word for another architecture."""
    mcpu: str
    features: tuple[str, ...]
    model: str
    num_cores: int
    vector_bits: int
    num_vector_registers: int
    """The number of vector registers: 32 with AVX-512 (VL for narrower vectors), on AArch64 and RISC-V, else 16."""
    caches: Caches
    blas: str
    """The BLAS library that programs may call, by its name or path; empty for none."""
    winograd: int
    """The largest tile of convolutions by Winograd's method in networks; 0 for none."""
    llvm_abi: str
    """The name of the calling convention where LLVM has several for the processor, else an empty text."""
    has_runtime: bool
    """Whether threads and scratch memory are available: on POSIX systems with 64-bit addresses."""
    is_freestanding: bool
    """Whether the machine has no operating system, hence no heap and no C library."""
    _enabled: frozenset[str]
    _text: str

    def __init__(self, target: str | Mapping[str, Any] | Target | None = None, /, **options: Any) -> None:
        from .described_targets import facts_of

        kind, given = _options_of(target, options)
        for name, value in facts_of(target, kind, given).items():
            object.__setattr__(self, name, value)

    @staticmethod
    def of(target: str | Mapping[str, Any] | Target) -> Target:
        """Returns ``target`` itself where it is one, else the target that it describes."""
        return target if isinstance(target, Target) else Target(target)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Target is immutable; target.with_({name}=…) makes another one")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Target, (str(self),))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        """Return the canonical text, which parses back to an equal target, with the thread count included."""
        return self._text

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def _repr_html_(self) -> str:
        from ...pages import card, folded, size_text, table

        facts = self.describe()
        caches = [f"L{n} {size_text(facts[f'l{n}_bytes'])}" for n in (1, 2, 3) if facts[f"l{n}_bytes"]]
        rows = [
            ("CPU", str(facts["model"])),
            ("LLVM's name", str(facts["cpu"])),
            ("triple", str(facts["triple"])),
            ("vectors", f"{facts['vector_registers']} of {facts['vector_bits']} bits"),
            ("threads", str(facts["num_cores"])),
            ("caches", ", ".join(caches)),
        ]
        features = table(("", ""), [("", ", ".join(facts["features"]))])
        return card(
            str(self), table(("", ""), rows), folded(f"{len(facts['features'])} features", features), note="target"
        )

    def with_(self, **options: Any) -> Target:
        """Return this target with options changed, e.g. ``target.with_(num_cores=1)``."""
        return Target(split(str(self)) | {"kind": self.kind} | spelled(options))

    # Abilities of the machine

    @property
    def is_portable_c(self) -> bool:
        """Return whether the text is strict ISO C99, without vector types."""
        return self.kind == "c" and "vector-extensions" not in self.flags

    @property
    def is_c_only(self) -> bool:
        """Return whether programs leave as C alone: for another machine, whose compiler makes the machine code."""
        return self.kind == "c" and bool(self.missing_here())

    @property
    def is_hls(self) -> bool:
        """Return whether the text is C for high-level synthesis."""
        return "hls" in self.flags

    @property
    def is_wasm(self) -> bool:
        """Return whether the code is WebAssembly."""
        return self.arch.startswith("wasm")

    def has(self, feature: str) -> bool:
        """Return whether the machine has an LLVM feature, by its name without sign: ``target.has("avx512vnni")``."""
        return feature in self._enabled

    def vector_lanes(self, dtype: str) -> int:
        """Return the elements of ``dtype`` (its lanes ignored) in a vector register, at least 1; bool takes a byte."""
        return max(1, self.vector_bits // max(8, DType(dtype).bits))

    @property
    def is_scalable(self) -> bool:
        """Return whether vector registers are SVE's or RVV's, whose width the target's text gives."""
        return any(self.has(name) for name in SCALABLE)

    @property
    def blas_library(self) -> BlasLibrary | None:
        """Return the BLAS library that programs may call, or None."""
        if not self.blas:
            return None
        from .blas import blas_library

        return blas_library(self.blas)

    @property
    def has_fma(self) -> bool:
        """Return whether a * b + c is one instruction."""
        if self.is_gpu:
            return TARGET_KINDS[self.kind].fused
        if self.arch == "aarch64":
            return True
        return any(self.has(name) for name in _MULTIPLY_ADD.get(self.arch, ("fma",)))

    @property
    def has_doubles(self) -> bool:
        """Return whether code may compute in float64 where float32 is asked for."""
        return self.kind not in TARGET_KINDS or TARGET_KINDS[self.kind].doubles

    @property
    def has_masks(self) -> bool:
        """Returns whether some lanes of a vector are stored as fast as all of them. AVX2 has such a store, but processors
        take dozens of cycles for it; elsewhere it is a store for each lane."""
        return self.has("avx512f") or self.is_scalable

    @property
    def has_vnni(self) -> bool:
        """Return whether AVX-512 VNNI multiplies and adds four int8 pairs per lane (512-bit vpdpbusd)."""
        return self.has("avx512vnni")

    @property
    def has_bf16(self) -> bool:
        """Return whether dot products of bfloat16 pairs are instructions."""
        return self.has("avx512bf16") or (self.arch == "aarch64" and self.has("bf16"))

    def dot_lanes(self, op: str) -> list[int]:
        """Return the numbers of lanes for which a dot product, such as ``tir.dot4_u8i8``, is an instruction, the largest
        first. ``tir.dot2_i16`` is two of them on x86, a product and a sum, where there is no ``vpdpwssd``."""
        if self.arch == "aarch64":
            return [4] if op in _NEON_DOTS and self.has(_NEON_DOTS[op]) else []
        if self.arch != "x86_64":
            return []
        if op == "tir.dot2_i16":
            found = {16: self.has("avx512bw"), 8: self.has("avx2"), 4: self.has("sse2")}
        else:
            wide, narrow = self.has_vnni, self.has("avxvnni") or (self.has_vnni and self.has("avx512vl"))
            if op == "tir.dot2_bf16":
                wide, narrow = self.has_bf16, self.has_bf16 and self.has("avx512vl")
            elif op != "tir.dot4_u8i8":
                wide, narrow = False, self.has("avxvnniint8")
            found = {16: wide, 8: narrow, 4: narrow}
        return [lanes for lanes, has in found.items() if has and 32 * lanes <= self.vector_bits]

    @property
    def has_amx(self) -> bool:
        """Return whether a program may request tile registers: AMX, under Linux."""
        return self.has("amx-tile") and self.arch == "x86_64" and "linux" in self.triple

    @property
    def has_amx_int8(self) -> bool:
        """Return whether tiles of int8 are multiplied by an instruction."""
        return self.has_amx and self.has("amx-int8")

    @property
    def has_amx_bf16(self) -> bool:
        """Return whether tiles of bfloat16 are multiplied by an instruction."""
        return self.has_amx and self.has("amx-bf16")

    @property
    def has_f16c(self) -> bool:
        """Return whether instructions convert float16 to and from float32."""
        return self.has("f16c") or self.arch in ("aarch64", "amdgcn", "nvptx64")

    @property
    def l1_bytes(self) -> int:
        """Return the size of a core's level-1 data cache in bytes; associativity and the line are in ``caches``."""
        return self.caches.l1

    @property
    def l2_bytes(self) -> int:
        """Return the size of the level-2 cache in bytes."""
        return self.caches.l2

    @property
    def l3_bytes(self) -> int:
        """Return the size of the level-3 cache in bytes; cores usually share it."""
        return self.caches.l3

    @property
    def is_gpu(self) -> bool:
        """Return whether programs for the target run on blocks of threads."""
        return self.kind in TARGET_KINDS and TARGET_KINDS[self.kind].gpu

    @property
    def stays_as_written(self) -> bool:
        """Return whether programs that nobody scheduled get no schedule, as circuits do."""
        return self.kind in TARGET_KINDS and TARGET_KINDS[self.kind].as_written

    # Descriptions for LLVM and for the database

    @property
    def llvm_cpu(self) -> str:
        """Return the CPU's name for LLVM, empty for the default CPU of a processor without one called ``generic``."""
        return "" if self.mcpu == "generic" and self.arch not in ("x86_64", "aarch64") else self.mcpu

    @property
    def llvm_features(self) -> str:
        """Return the ``target-features`` text. For native it is the full list with signs, since the CPU's name may
        imply more than a virtual machine provides. RVV's width is a feature."""
        wide = [f"+zvl{self.vector_bits}b"] if self.arch == "riscv64" and self.has("v") else []
        return ",".join([*self.features, *wide])

    @property
    def llvm_attributes(self) -> str:
        """Return function attributes in LLVM IR text: CPU, features, and the preferred vector width."""
        out = [f'"target-cpu"="{self.llvm_cpu}"'] if self.llvm_cpu else []
        if self.llvm_features:
            out.append(f'"target-features"="{self.llvm_features}"')
        if self.arch == "x86_64":
            out.append(f'"prefer-vector-width"="{self.vector_bits}"')
        if self.is_scalable and self.vector_bits > 128:
            units = self.vector_bits // (64 if self.arch == "riscv64" else 128)
            out.append(f"vscale_range({units},{units})")
        return " ".join(out)

    def missing_here(self) -> list[str]:
        """Return the features, architecture or system that this machine lacks to run the code, or nothing."""
        from .described_targets import missing_of

        return missing_of(self)

    @property
    def key(self) -> str:
        """Return a fingerprint for the database: SHA-256 (32 hex digits) over CPU model, features, vector width and
        cores. Two machines share records when it is equal."""
        facts = [self.arch, self.model, sorted(self._enabled), self.vector_bits, self.num_cores]
        library = self.blas_library
        facts += [] if library is None else [library.identity]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def describe(self) -> dict[str, Any]:
        """Return all of these properties as plain values, for display and records."""
        return {
            "text": str(self),
            "key": self.key,
            "arch": self.arch,
            "triple": self.triple,
            "cpu": self.mcpu,
            "model": self.model,
            "vector_bits": self.vector_bits,
            "vector_registers": self.num_vector_registers,
            "num_cores": self.num_cores,
            "l1_bytes": self.caches.l1,
            "l2_bytes": self.caches.l2,
            "l3_bytes": self.caches.l3,
            "features": sorted(self._enabled),
        }


def _options_of(target: Any, keywords: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the kind of a target, and its options as they are in texts."""
    if isinstance(target, Target):
        options: dict[str, Any] = split(str(target))
    elif isinstance(target, Mapping):
        options = options_of_mapping(spelled(target))
    elif isinstance(target, str):
        options = split(target)
    elif target is None:
        options = {}
    else:
        raise TargetError(f"a target is text such as 'native' or 'llvm -mcpu=skylake', not {target!r}")
    options |= spelled(keywords) if options else options_of_mapping(spelled(keywords))
    return str(options.pop("kind", "native")), options
