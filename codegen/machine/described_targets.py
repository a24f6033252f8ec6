"""This module determines the facts of a target from its kind and its options. A target is this machine, another one, or
a C compiler."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any, Protocol

from ...pages import did_you_mean
from ..late_tables import TARGET_KINDS, load_installed
from .blas import DEFAULT, blas_library
from .cpu import IMPLIES, Caches, available_cores, enabled_features, features_left, generic_caches, host, parse_attrs
from .named_targets import NAMED_TARGETS
from .target import SCALABLE, Target
from .target_text import (
    FLAGS,
    TARGET_OPTIONS,
    TargetError,
    address_bits,
    arch_of,
    default_triple,
    full_triple,
    has_runtime,
    is_freestanding,
    microcontroller,
    positive,
    system_of,
    usual_features,
)

KINDS = {
    "native": "this machine",
    "llvm": "machine code for the processor that the options name",
    "c": "C99 for any compiler",
}
"""The kinds of targets that are processors, and what each one is."""

_WINOGRAD = (4, 2, 0)
"""The largest tiles of convolutions by Winograd's method that a target may allow, the usual one first; 0 for none."""


def kinds_of_targets() -> dict[str, str]:
    """Returns the kinds of targets with what each one is, those of installed packages included."""
    load_installed()
    return {**KINDS, **{name: kind.summary for name, kind in TARGET_KINDS.items()}}


def facts_of(target: Any, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts of a target. TargetError for options that it does not take."""
    kinds = (*KINDS, *TARGET_KINDS)
    if kind not in kinds:
        kinds = tuple(kinds_of_targets())
    if kind not in kinds:
        raise TargetError(
            f"target {kind!r}: no such kind{did_you_mean(kind, [*kinds, *NAMED_TARGETS], 3) or did_you_mean(kind, sorted(kinds))}"
        )
    if kind in TARGET_KINDS:
        options = {TARGET_KINDS[kind].words.get(name, name): value for name, value in options.items()}
    takers = {option.name: option.kinds or (kind,) for option in TARGET_OPTIONS}
    for name in options:
        if name not in takers:
            known = sorted([other for other, kinds in takers.items() if kind in kinds])
            raise TargetError(f"target {target!r}: no option -{name}{did_you_mean(name, known, prefix='-')}")
        if kind not in takers[name]:
            raise TargetError(f"target {target!r}: -{name} is for targets of kind {' and '.join(takers[name])}")
    flags = tuple([name for name in FLAGS if options.get(name)])
    if flags[1:] and "hls" in flags:
        raise TargetError(f"target {target!r}: -hls is strict C without threads; leave out -{flags[0]}")
    attrs = parse_attrs(options.get("mattr", ()))
    facts = _native(options, attrs) if kind == "native" else _other(kind, options, attrs)
    triple, enabled = facts["triple"], facts["_enabled"]
    width, cores = _width(options, triple, enabled), _cores(target, kind, options, flags, facts)
    tile, blas = _winograd(options), _blas(target, kind, options, facts)
    return facts | {
        "arch": arch_of(triple),
        "blas": blas,
        "flags": flags,
        "full_triple": full_triple(triple),
        "has_runtime": kind == "native" or has_runtime(triple),
        "is_freestanding": is_freestanding(triple),
        "kind": kind,
        "llvm_abi": "lp64d" if arch_of(triple) == "riscv64" and "d" in enabled else "",
        "num_cores": cores,
        "num_vector_registers": _vector_registers(arch_of(triple), enabled, width),
        "vector_bits": width,
        "winograd": tile,
        "_text": _canonical(kind, {**facts, "winograd": tile, "blas": blas}, attrs, width, cores, flags),
    }


def _native(options: Mapping[str, Any], attrs: tuple[str, ...]) -> dict[str, Any]:
    """Returns the processor of this machine, without the features that ``attrs`` remove."""
    wrong = [name for name in ("mtriple", "mcpu") if options.get(name)]
    if wrong:
        raise TargetError(f"target native takes no -{wrong[0]}: it is this machine; write llvm -{wrong[0]}=…")
    here = host()
    enabled = features_left(arch_of(here.triple), here.features, attrs)
    names = sorted({f[1:] for f in (*here.features, *attrs)})
    features = tuple([f"{'+' if name in enabled else '-'}{name}" for name in names])
    return _processor(here.triple, here.cpu, here.model, features, enabled, here.caches)


def _other(kind: str, options: Mapping[str, Any], attrs: tuple[str, ...]) -> dict[str, Any]:
    """Returns the processor that the options name."""
    own = TARGET_KINDS.get(kind)
    usual = own.triple if own else microcontroller(str(options.get("mcpu")))
    triple = str(options.get("mtriple") or usual or default_triple())
    mcpu = str(options.get("mcpu") or (own.cpu if own else "generic"))
    if own and own.cpus and mcpu not in own.cpus:
        raise TargetError(f"-mcpu={mcpu}: {kind} knows no such processor{did_you_mean(mcpu, own.cpus, 3)}")
    if kind == "llvm" and address_bits(triple) is None:
        raise TargetError(
            f"-mtriple={triple}: no machine code is generated for {arch_of(triple)}; there are x86_64, aarch64, "
            "riscv64, ppc64le, loongarch64 and, without threads and scratch memory, i686, arm, thumb, riscv32, wasm32"
        )
    features = (*usual_features(triple), *attrs)
    enabled = enabled_features(arch_of(triple), own.cpu if own and own.gpu else mcpu, features)
    return _processor(triple, mcpu, mcpu, features, enabled, generic_caches(arch_of(triple), "avx512f" in enabled))


def _processor(
    triple: str, mcpu: str, model: str, features: tuple[str, ...], enabled: frozenset[str], caches: Caches
) -> dict[str, Any]:
    return {
        "triple": triple, "mcpu": mcpu, "model": model, "features": features, "_enabled": enabled, "caches": caches
    }  # fmt: skip


def _width(options: Mapping[str, Any], triple: str, enabled: frozenset[str]) -> int:
    """Returns the bits of the vectors to use."""
    widest = widest_bits(triple, enabled)
    width = positive(options["vector-width"], "-vector-width") if "vector-width" in options else widest
    scalable = not enabled.isdisjoint(SCALABLE)  # the register's width is the processor's choice, and given here
    allowed = [w for w in WIDTHS.get(arch_of(triple), (128,)) if w <= widest or scalable]
    if width not in allowed:
        raise TargetError(f"-vector-width={width}: this target has {', '.join(map(str, allowed))}")
    return width


def _winograd(options: Mapping[str, Any]) -> int:
    """Returns the largest tile that is allowed."""
    value = str(options.get("winograd", _WINOGRAD[0]))
    if value not in map(str, _WINOGRAD):
        raise TargetError(f"-winograd={value}: there are {', '.join(map(str, reversed(_WINOGRAD)))}")
    return int(value)


def _blas(target: Any, kind: str, options: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Returns the BLAS library that is asked for, by its name or path, or an empty text. It is opened, so that a wrong one is
    refused here."""
    wanted = [word for word in str(options.get("libs", "")).split(",") if word]
    for word in wanted:
        if word != "cblas":
            raise TargetError(f"target {target!r}: no library -libs={word}; there is cblas, and -blas names which one")
    if not wanted:
        if "blas" in options:
            raise TargetError(
                f"target {target!r}: -blas={options['blas']} needs -libs=cblas, which says that it is called"
            )
        return ""
    if (
        kind != "native"
        and _is_foreign(facts["triple"], facts["mcpu"])
        and arch_of(facts["triple"]) != arch_of(default_triple())
    ):
        raise TargetError(
            f"target {target!r}: -libs=cblas calls a library of this machine, not of {facts['triple']}; a C file made here, "
            "target c, calls any library through a macro"
        )
    name = str(options.get("blas") or os.environ.get("TILEWRIGHT_BLAS", "").strip() or DEFAULT)
    return blas_library(name).name


def _vector_registers(arch: str, enabled: frozenset[str], width: int) -> int:
    if arch in ("aarch64", "riscv64") or "avx512vl" in enabled:
        return 32
    if arch in SCALAR:
        return 12
    return 32 if "avx512f" in enabled and width == 512 else 16


def _cores(target: Any, kind: str, options: Mapping[str, Any], flags: tuple[str, ...], facts: Mapping[str, Any]) -> int:
    """Returns the number of threads."""
    serial = kind == "c" and "openmp" not in flags
    if "num-cores" in options:
        cores = positive(options["num-cores"], "-num-cores")
        if cores > 1 and serial:
            raise TargetError(f"target {target!r}: parallel loops in C need OpenMP; add -openmp, or -num-cores=1")
        return cores
    if serial:
        return 1
    text = os.environ.get("TILEWRIGHT_NUM_THREADS", "").strip()
    if text:
        return positive(text, "TILEWRIGHT_NUM_THREADS")
    return 1 if kind != "native" and _is_foreign(facts["triple"], facts["mcpu"]) else available_cores()


def _is_foreign(triple: str, mcpu: str) -> bool:
    """Returns whether the target is certainly another machine; a level such as ``x86-64-v3`` may be this one."""
    here = default_triple()
    elsewhere = arch_of(triple) != arch_of(here) or system_of(triple) not in ("unknown", system_of(here))
    return elsewhere or not (mcpu == "generic" or mcpu.startswith("x86-64")) and mcpu != host().cpu


def _canonical(
    kind: str, facts: Mapping[str, Any], attrs: tuple[str, ...], width: int, cores: int, flags: tuple[str, ...]
) -> str:
    """Returns the text of a target."""
    parts = [kind]
    if kind != "native":
        parts += [f"-mtriple={facts['triple']}", f"-mcpu={facts['mcpu']}"]
    if attrs:
        parts.append(f"-mattr={','.join(attrs)}")
    if width != widest_bits(facts["triple"], facts["_enabled"]):
        parts.append(f"-vector-width={width}")
    if facts["winograd"] != _WINOGRAD[0]:
        parts.append(f"-winograd={facts['winograd']}")
    if facts["blas"]:
        parts += ["-libs=cblas", f"-blas={shlex.quote(facts['blas'])}"]
    return " ".join([*parts, f"-num-cores={cores}", *[f"-{name}" for name in flags]])


def missing_of(target: Target) -> list[str]:
    """Returns the features, architecture or system that this machine lacks to run code for ``target``."""
    own = TARGET_KINDS.get(target.kind)
    return missing_of_processor(target) if own is None or own.missing is None else own.missing(target)


# Says what this machine lacks to run code for a processor.


class Processor(Protocol):
    """The attributes of a target that the functions of this file read."""

    kind: str
    triple: str

    def describe(self) -> dict[str, Any]: ...


def missing_of_processor(target: Processor) -> list[str]:
    """Returns the features, architecture or system that this machine lacks to run code for ``target``, or nothing."""
    here = host()
    if arch_of(target.triple) != arch_of(here.triple):
        return [f"{arch_of(target.triple)} processor"]
    if system_of(target.triple) not in ("unknown", system_of(here.triple)):
        return [f"{system_of(target.triple)} system"]
    if address_bits(target.triple) != address_bits(here.triple):
        return [f"{address_bits(target.triple)} bits of address"]
    if target.kind == "native":
        return []
    have = frozenset(f[1:] for f in here.features if f[0] == "+")
    return sorted(f for f in set(target.describe()["features"]) - have if f in IMPLIES)


# The widths of vector registers by the processor, in bits.

SCALAR = ("thumbv6m", "thumbv7m", "thumbv7em", "thumbv8m.base", "thumbv8m.main")
"""Processors without vector registers: general ones hold four bytes."""

WIDTHS = {
    **dict.fromkeys(SCALAR, (32,)),
    "x86_64": (128, 256, 512),
    "aarch64": (128, 256, 512, 1024, 2048),
    "riscv64": (128, 256, 512, 1024),
}
"""The widths that a target may choose; 128 for other processors."""


def widest_bits(triple: str, enabled: frozenset[str]) -> int:
    """Returns the width of the widest vector registers; of general ones where there are no others."""
    if arch_of(triple) in SCALAR:
        return 32
    return 512 if "avx512f" in enabled else 256 if "avx" in enabled else 128
