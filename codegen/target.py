"""Targets: which machine the code is for, and what that machine can do.

>>> t = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake -mattr=+avx2,+fma -num-cores=2")
>>> t.vector_bits, t.vector_lanes("float32"), t.num_vector_registers, t.num_cores
(256, 8, 16, 2)
>>> str(t)
'llvm -mtriple=x86_64-linux-gnu -mcpu=skylake -mattr=+avx2,+fma -num-cores=2'
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ..tir.dtype import bits_of, parse_dtype
from .cpu import AARCH64_CPUS, X86_CPUS, Caches, available_cores, generic_caches, host
from .triples import address_bits, arch_of, default_triple, has_runtime, system_of

__all__ = ["Target", "TargetError"]

KINDS = ("native", "llvm", "c")
OPTIONS = ("mtriple", "mcpu", "mattr", "num-cores", "vector-width")

# What a feature brings with it (and what goes when the feature behind it is taken away).
_IMPLIES = {
    "sse3": ("sse2",), "ssse3": ("sse3",), "sse4.1": ("ssse3",), "sse4.2": ("sse4.1", "popcnt"), "avx": ("sse4.2",),
    "f16c": ("avx",), "fma": ("avx",), "avx2": ("avx",), "avxvnni": ("avx2",), "avxvnniint8": ("avx2",),
    "avxvnniint16": ("avx2",), "avxifma": ("avx2",), "avxneconvert": ("avx2",), "avx512f": ("avx2", "fma", "f16c"),
    "avx512cd": ("avx512f",), "avx512bw": ("avx512f",), "avx512dq": ("avx512f",), "avx512vl": ("avx512f",),
    "avx512vnni": ("avx512f",), "avx512ifma": ("avx512f",), "avx512vpopcntdq": ("avx512f",), "avx512bf16": ("avx512bw",),
    "avx512vbmi": ("avx512bw",), "avx512vbmi2": ("avx512bw",), "avx512bitalg": ("avx512bw",),
    "avx512fp16": ("avx512bw", "avx512dq", "avx512vl"), "amx-int8": ("amx-tile",), "amx-bf16": ("amx-tile",),
    "amx-fp16": ("amx-tile",), "amx-complex": ("amx-tile",), "amx-fp8": ("amx-tile",), "amx-tf32": ("amx-tile",),
    "amx-avx512": ("amx-tile",), "amx-movrs": ("amx-tile",), "avx512vp2intersect": ("avx512f",),
    "avx10.1": ("avx512f",), "avx10.2": ("avx10.1",), "sve2": ("sve",), "bmi2": (), "bmi": (), "lzcnt": (), "movbe": (), "neon": (),
    "fp-armv8": (), "dotprod": ("neon",), "fullfp16": (), "bf16": (), "i8mm": (), "lse": (), "amx-tile": (), "sse2": (),
    "popcnt": (), "sve": ("fullfp16",), "aes": (), "sha": (), "crc": (), "crc32": (), "mmx": (), "sse": (),
}  # fmt: skip
_WIDTHS = {"x86_64": (128, 256, 512), "aarch64": (128,)}


class TargetError(ValueError):
    """The text does not describe a target, or the target cannot do what was asked."""


class Target:
    """A machine to generate code for. Immutable; equal when the canonical texts are.

    ``Target("native")`` is this machine; ``Target("llvm -mcpu=skylake -mattr=+avx2,+fma -num-cores=2")`` any other;
    ``Target("native -mattr=-amx-tile")`` is this machine without a feature;
    a mapping or keywords do as well: ``Target(kind="llvm", mcpu="skylake", num_cores=2)``. Options: ``-mtriple``,
    ``-mcpu``, ``-mattr=+a,-b``, ``-num-cores=N``, ``-vector-width=BITS`` (narrower vectors than the machine's widest).

    The thread count is ``-num-cores``, else the environment's ``TILEWRIGHT_NUM_THREADS``, else what this process may
    use; 1 for another machine: a processor or a system that is not this one, or ``-mcpu`` of one particular other CPU.
    Raises :class:`TargetError` for anything else, naming the nearest option, and for processors without code.
    """

    __slots__ = ("_attrs", "_enabled", "caches", "features", "kind", "mcpu", "model", "num_cores", "triple",
                 "vector_bits")  # fmt: skip
    kind: str
    triple: str
    mcpu: str
    features: tuple[str, ...]
    model: str
    num_cores: int
    vector_bits: int
    caches: Caches
    _attrs: tuple[str, ...]
    _enabled: frozenset[str]

    def __init__(self, target: str | Mapping[str, Any] | Target | None = None, /, **options: Any) -> None:
        kind, given = _options_of(target, options)
        unknown = [name for name in given if name not in OPTIONS]
        if unknown:
            raise TargetError(f"target {target!r}: no option -{unknown[0]}{_nearest(unknown[0], OPTIONS, '-')}")
        attrs = _parse_attrs(given.get("mattr", ()))
        if kind == "native":
            wrong = [name for name in ("mtriple", "mcpu") if given.get(name)]
            if wrong:
                raise TargetError(f"target native takes no -{wrong[0]}: it is this machine; write llvm -{wrong[0]}=…")
            here = host()
            triple, mcpu, model, caches = here.triple, here.cpu, here.model, here.caches
            enabled = _without(arch_of(triple), here.features, attrs)
            names = sorted({f[1:] for f in here.features} | {a[1:] for a in attrs})
            features = tuple([f"{'+' if name in enabled else '-'}{name}" for name in names])
        else:
            triple = str(given.get("mtriple") or default_triple())
            mcpu = str(given.get("mcpu") or "generic")
            if kind == "llvm" and address_bits(triple) is None:
                raise TargetError(
                    f"-mtriple={triple}: no machine code is generated for {arch_of(triple)}; there are x86_64, aarch64, "
                    "riscv64, ppc64le, loongarch64 and, without threads and scratch memory, i686, arm, thumb, riscv32, wasm32"
                )
            enabled = _enabled(arch_of(triple), mcpu, attrs)
            features, model = attrs, mcpu
            caches = generic_caches(arch_of(triple), "avx512f" in enabled)
        widest = 512 if "avx512f" in enabled else 256 if "avx" in enabled else 128
        width = _positive(given["vector-width"], "vector-width") if "vector-width" in given else widest
        allowed = [w for w in _WIDTHS.get(arch_of(triple), (128,)) if w <= widest]
        if width not in allowed:
            raise TargetError(f"-vector-width={width}: this target has {', '.join(map(str, allowed))}")
        if "num-cores" in given:
            cores = _positive(given["num-cores"], "num-cores")
        else:
            cores = _default_cores(foreign=kind != "native" and _is_foreign(triple, mcpu))
        values = (attrs, enabled, caches, features, kind, mcpu, model, cores, triple, width)
        for name, value in zip(Target.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Target is immutable; target.with_({name}=…) makes another one")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Target, (str(self),))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        """The canonical text: it parses back to an equal target, the thread count spelled out."""
        parts = [self.kind]
        if self.kind != "native":
            parts.append(f"-mtriple={self.triple}")
            parts.append(f"-mcpu={self.mcpu}")
        if self._attrs:
            parts.append(f"-mattr={','.join(self._attrs)}")
        if self.vector_bits != self._widest():
            parts.append(f"-vector-width={self.vector_bits}")
        parts.append(f"-num-cores={self.num_cores}")
        return " ".join(parts)

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def with_(self, **options: Any) -> Target:
        """This target with options changed, e.g. ``target.with_(num_cores=1)``."""
        return Target(_split(str(self)) | {"kind": self.kind} | _spelled(options))

    # What the machine can do

    @property
    def arch(self) -> str:
        """``x86_64``, ``aarch64``, or the triple's own word for another architecture."""
        return arch_of(self.triple)

    def has(self, feature: str) -> bool:
        """Whether the machine has an LLVM feature, by its name without sign: ``target.has("avx512vnni")``."""
        return feature in self._enabled

    def vector_lanes(self, dtype: str) -> int:
        """Elements of ``dtype`` (its lanes ignored) in one vector register; at least 1. A bool takes a byte."""
        return max(1, self.vector_bits // max(8, bits_of(dtype)))

    @property
    def num_vector_registers(self) -> int:
        """Architectural vector registers: 32 with AVX-512 (VL for narrower vectors) and on AArch64, else 16."""
        if self.arch == "aarch64" or self.has("avx512vl"):
            return 32
        return 32 if self.has("avx512f") and self.vector_bits == 512 else 16

    @property
    def has_fma(self) -> bool:
        """Whether a * b + c is one instruction."""
        return self.has("fma") or self.arch == "aarch64"

    def masked_memory(self, dtype: str) -> bool:
        """Whether loads and stores of vectors of ``dtype`` take a mask at (nearly) full speed: AVX-512 for every
        width, AVX2 for 32 and 64 bits."""
        bits = max(8, parse_dtype(dtype).bits)
        if self.has("avx512f") and (self.vector_bits == 512 or self.has("avx512vl")):
            return bits >= 32 or self.has("avx512bw")
        return bits >= 32 and self.has("avx2")

    @property
    def has_masked_memory(self) -> bool:
        """:meth:`masked_memory` of float32."""
        return self.masked_memory("float32")

    @property
    def has_vnni(self) -> bool:
        """Whether AVX-512 VNNI multiplies and adds four int8 pairs per lane (512-bit vpdpbusd)."""
        return self.has("avx512vnni")

    @property
    def has_avx_vnni(self) -> bool:
        """Whether 256-bit vpdpbusd is there without AVX-512."""
        return self.has("avxvnni")

    @property
    def has_bf16(self) -> bool:
        """Whether dot products of bfloat16 pairs are instructions."""
        return self.has("avx512bf16") or (self.arch == "aarch64" and self.has("bf16"))

    @property
    def has_amx(self) -> bool:
        """Whether there are tile registers that a program may ask for: AMX, under Linux."""
        return self.has("amx-tile") and self.arch == "x86_64" and "linux" in self.triple

    @property
    def has_amx_int8(self) -> bool:
        """Whether tiles of int8 are multiplied by instruction."""
        return self.has_amx and self.has("amx-int8")

    @property
    def has_amx_bf16(self) -> bool:
        """Whether tiles of bfloat16 are multiplied by instruction."""
        return self.has_amx and self.has("amx-bf16")

    @property
    def has_f16c(self) -> bool:
        """Whether float16 converts to and from float32 by instruction."""
        return self.has("f16c") or self.arch == "aarch64"

    @property
    def has_dotprod(self) -> bool:
        """Whether AArch64's sdot/udot are there."""
        return self.arch == "aarch64" and self.has("dotprod")

    @property
    def l1_bytes(self) -> int:
        """Level-1 data cache of one core, bytes; associativity and the line are in ``caches``."""
        return self.caches.l1

    @property
    def l2_bytes(self) -> int:
        """Level-2 cache, bytes."""
        return self.caches.l2

    @property
    def l3_bytes(self) -> int:
        """Level-3 cache, bytes; shared by cores as a rule."""
        return self.caches.l3

    @property
    def has_runtime(self) -> bool:
        """Whether threads and scratch memory are there: on POSIX systems with 64 bits of address."""
        return self.kind == "native" or has_runtime(self.triple)

    # What LLVM is told, and what the database is told

    @property
    def llvm_cpu(self) -> str:
        """The CPU's name for LLVM; empty for the usual one of a processor that has none called ``generic``."""
        return "" if self.mcpu == "generic" and self.arch not in ("x86_64", "aarch64") else self.mcpu

    @property
    def llvm_features(self) -> str:
        """The ``target-features`` text: for native the full list with signs, since the CPU's name may promise more
        than a virtual machine lets through."""
        return ",".join(self.features)

    @property
    def llvm_attributes(self) -> str:
        """Function attributes in LLVM IR text: CPU, features, and the preferred vector width."""
        out = [f'"target-cpu"="{self.llvm_cpu}"'] if self.llvm_cpu else []
        if self.features:
            out.append(f'"target-features"="{self.llvm_features}"')
        if self.arch == "x86_64":
            out.append(f'"prefer-vector-width"="{self.vector_bits}"')
        return " ".join(out)

    def missing_here(self) -> list[str]:
        """What this machine lacks to run the code: features, the architecture or the system; empty when it can."""
        here = host()
        if self.arch != arch_of(here.triple):
            return [f"{self.arch} processor"]
        if system_of(self.triple) not in ("unknown", system_of(here.triple)):
            return [f"{system_of(self.triple)} system"]
        if address_bits(self.triple) != address_bits(here.triple):
            return [f"{address_bits(self.triple)} bits of address"]
        have = frozenset(f[1:] for f in here.features if f[0] == "+")
        return sorted(f for f in self._enabled - have if f in _IMPLIES) if self.kind != "native" else []

    @property
    def key(self) -> str:
        """A fingerprint for the database: SHA-256 (32 hex digits) over CPU model, features, vector width and cores.
        Two machines share records when it is equal."""
        facts = [self.arch, self.model, sorted(self._enabled), self.vector_bits, self.num_cores]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def describe(self) -> dict[str, Any]:
        """Everything above as plain values, for display and records."""
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

    def _widest(self) -> int:
        return 512 if self.has("avx512f") else 256 if self.has("avx") else 128


def _options_of(target: Any, keywords: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(target, Target):
        options: dict[str, Any] = {"kind": target.kind, **_split(str(target))}
    elif isinstance(target, Mapping):
        options = _spelled(target)
    elif isinstance(target, str):
        options = _split(target)
    elif target is None:
        options = {}
    else:
        raise TargetError(f"a target is text such as 'native' or 'llvm -mcpu=skylake', not {target!r}")
    options |= _spelled(keywords)
    kind = str(options.pop("kind", "native"))
    if kind not in KINDS:
        raise TargetError(f"target {kind!r}: no such kind{_nearest(kind, KINDS)}")
    return kind, options


def _spelled(options: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name).lstrip("-").replace("_", "-"): value for name, value in options.items()}


def _split(text: str) -> dict[str, Any]:
    """The kind and options of a target's text."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise TargetError(f"target {text!r}: {e}") from None
    if not words:
        raise TargetError("an empty target; write 'native' or 'llvm -mcpu=…'")
    out: dict[str, Any] = {"kind": words.pop(0)}
    while words:
        word = words.pop(0)
        match = re.fullmatch(r"--?([A-Za-z][\w-]*)(?:=(.*))?", word)
        if match is None:
            raise TargetError(f"target {text!r}: {word!r} is no option; options look like -mcpu=skylake")
        name, value = match[1].replace("_", "-"), match[2]
        if value is None and words and not words[0].startswith("-"):
            value = words.pop(0)
        if not value:
            raise TargetError(f"target {text!r}: option -{name} has no value{_nearest(name, OPTIONS, '-')}")
        out[name] = value
    return out


def _nearest(word: str, known: Any, prefix: str = "") -> str:
    close = difflib.get_close_matches(word, list(known), 1, 0.5)
    if close:
        return f"; did you mean {prefix}{close[0]}?"
    names = sorted(known)
    return f"; there are {', '.join(prefix + n for n in names)}" if len(names) <= 12 else ""


def _parse_attrs(attrs: Any) -> tuple[str, ...]:
    items = attrs.split(",") if isinstance(attrs, str) else list(attrs)
    out = [str(item).strip() for item in items if str(item).strip()]
    for item in out:
        if not re.fullmatch(r"[+-][\w.-]+", item):
            raise TargetError(f"-mattr: {item!r} needs a sign: +{item.lstrip('+-')} or -{item.lstrip('+-')}")
    return tuple(out)


def _enabled(arch: str, cpu: str, attrs: tuple[str, ...]) -> frozenset[str]:
    known = {"x86_64": X86_CPUS, "aarch64": AARCH64_CPUS}.get(arch)
    if known is not None and cpu not in known:
        raise TargetError(f"-mcpu={cpu}: not a CPU of {arch} that is known here{_nearest(cpu, known)}")
    on = set(known[cpu]) if known is not None else set()
    for item in attrs:
        name = item[1:]
        if known is not None and name not in _IMPLIES and name not in _host_feature_names(arch):
            raise TargetError(f"-mattr={item}: not a feature of {arch} that is known here{_nearest(name, _IMPLIES)}")
        if item[0] == "+":
            pending = [name]
            while pending:
                top = pending.pop()
                on.add(top)
                pending.extend(_IMPLIES.get(top, ()))
        else:
            on -= _resting_on(name, on)
    return frozenset(on)


def _resting_on(name: str, on: set[str]) -> set[str]:
    """A feature and those of ``on`` that cannot be without it."""
    off = {name}
    while True:
        more = {f for f in on if off & set(_IMPLIES.get(f, ()))} - off
        if not more:
            return off
        off |= more


def _without(arch: str, features: tuple[str, ...], attrs: tuple[str, ...]) -> frozenset[str]:
    """This machine's features, less those that ``-mattr`` takes away."""
    on = {f[1:] for f in features if f[0] == "+"}
    for item in attrs:
        name = item[1:]
        if item[0] == "+":
            raise TargetError(
                f"target native takes no -mattr={item}: it has what this machine has; -mattr=-{name} would take it away"
            )
        if name not in _IMPLIES and name not in _host_feature_names(arch):
            raise TargetError(f"-mattr={item}: not a feature of {arch} that is known here{_nearest(name, _IMPLIES)}")
        on -= _resting_on(name, on)
    return frozenset(on)


def _host_feature_names(arch: str) -> frozenset[str]:
    here = host()
    return frozenset(f[1:] for f in here.features) if arch_of(here.triple) == arch else frozenset()


def _positive(value: Any, name: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise TargetError(f"-{name}={value}: a whole number of at least 1 is needed")
    return number


def _is_foreign(triple: str, mcpu: str) -> bool:
    """Whether the target is certainly not this machine. Names of levels (``x86-64-v3``) stand for many machines."""
    here = default_triple()
    if arch_of(triple) != arch_of(here) or system_of(triple) not in ("unknown", system_of(here)):
        return True
    return not (mcpu == "generic" or mcpu.startswith("x86-64")) and mcpu != host().cpu


def _default_cores(foreign: bool) -> int:
    text = os.environ.get("TILEWRIGHT_NUM_THREADS", "").strip()
    if not text:
        return 1 if foreign else available_cores()
    try:
        return _positive(text, "num-cores")
    except TargetError:
        raise TargetError(f"TILEWRIGHT_NUM_THREADS={text}: a whole number of at least 1 is needed") from None
