"""Compiles a function to a :class:`Module`: lowers it, emits LLVM IR, and compiles that.

>>> import numpy as np
>>> from tilewright.tir.parser import parse
>>> double = parse('''
... @T.prim_func
... def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
...     for i in range(4):
...         with T.block("B"):
...             vi = T.axis.spatial(4, i)
...             B[vi] = A[vi] * T.float32(2)
... ''')
>>> f = compile(double, "native")
>>> a, b = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
>>> f(a, b)
>>> b.tolist()
[0.0, 2.0, 4.0, 6.0]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from ..tir.stmt import IRModule, PrimFunc
from .late_tables import TARGET_KINDS
from .llvm.emit import emit
from .llvm.jit import optimize_and_compile
from .lower import lower
from .lowered import LoweredFunc, functions_of
from .machine.target import Target
from .packing import packed_ahead
from .runtime.module import Module


def compile(
    func: PrimFunc | LoweredFunc | IRModule | Mapping[str, PrimFunc] | Any,
    target: str | Target = "native",
    name: str | None = None,
    **toggles: Any,
) -> Module:
    """Compile a PrimFunc, a Schedule, an IRModule (or a mapping of functions by name), or a result of :func:`lower`.

    The result has every function by its name in the module. A function's C symbol is its ``global_symbol``; functions
    with equal symbols (te calls every function ``main``) get their names in the module. The symbol of a function called
    ``main`` is ``kernel``, since no program could link a second ``main``; ``name`` gives another one.

    Parameters that the attribute ``layout_free_buffers`` names are packed ahead where the schedule allows it: see
    :meth:`Module.pack_weights`. ``name`` is the C symbol of a single function (its own name otherwise). ``toggles`` go
    to :func:`tilewright.codegen.llvm.jit.optimize_and_compile`: ``cache=False`` neither reads nor writes the machine
    code kept on disk.
    """
    machine = Target.of(target)
    lowered: dict[str, LoweredFunc] = {}
    packing: dict[str, dict[int, str]] = {}
    functions = _functions(func, name)
    if machine.kind in TARGET_KINDS:
        return TARGET_KINDS[machine.kind].compile(
            {key or _symbol(name or one.name): one for key, one in functions.items()}, machine
        )
    symbols = {"": name or functions[""].name} if "" in functions else _symbols(functions)
    if name is None:
        symbols = _without_main(symbols)
    for key, item in functions.items():
        packs: Mapping[int, PrimFunc] = {}
        free: tuple[int, ...] = ()
        main = item
        if isinstance(item, LoweredFunc):
            one = item
        else:
            main, packs, free = packed_ahead(item)
            one = lower(main, machine)
        symbol = _symbol(name or symbols[key])
        if one.name != symbol:
            one = LoweredFunc(one.func, symbol, one.target, one.params, one.scheduled)
        entry = key or name or item.name
        lowered[entry] = one
        if free:
            packing[entry] = dict.fromkeys(free, "")
        for index, pack in packs.items():
            taken = {*symbols.values(), *lowered, *[f.name for f in lowered.values()]}
            step = lower(pack, machine, _fresh(_symbol(symbol + pack.name[len(main.name) :]), taken))
            lowered[step.name] = step
            packing[entry][index] = step.name
    if not lowered:
        raise ValueError("nothing to compile: the module has no functions")
    machine = next(iter(lowered.values())).target
    return compile_ir([emit(one) for one in lowered.values()], lowered, machine, packing, **toggles)


def compile_ir(
    texts: list[str],
    lowered: Mapping[str, LoweredFunc],
    target: Target,
    packing: Mapping[str, Mapping[int, str]] | None = None,
    **toggles: Any,
) -> Module:
    """Return a module from LLVM IR texts that define the functions ``lowered``. ``packing`` is the one of
    :class:`Module`."""
    return Module(lowered, optimize_and_compile(texts[0], target, link=tuple(texts[1:]), **toggles), packing)


def _functions(func: Any, name: str | None) -> dict[str, Any]:
    """Returns the functions by their names in the module. A single function without one has an empty name."""
    if isinstance(func, (PrimFunc, LoweredFunc)):
        return {"": func}
    functions = functions_of(func)
    if functions is None:
        raise TypeError(f"cannot compile {type(func).__name__}; a PrimFunc, a Schedule or an IRModule is needed")
    if name is not None and len(functions) > 1:
        raise ValueError(f"a name for {len(functions)} functions; they keep their own")
    if len(functions) == 1 and not isinstance(func, (IRModule, Mapping)):
        return {"": next(iter(functions.values()))}
    return {key: one if isinstance(one, (PrimFunc, LoweredFunc)) else one.func for key, one in functions.items()}


def _symbols(functions: Mapping[str, PrimFunc | LoweredFunc]) -> dict[str, str]:
    """Returns the C symbol of each function of a module."""
    count = Counter(one.name for one in functions.values())
    out = {key: one.name for key, one in functions.items() if count[one.name] == 1}
    for key in functions:
        if key not in out:
            out[key] = _fresh(key, set(out.values()))
    return {key: out[key] for key in functions}


def _without_main(symbols: dict[str, str]) -> dict[str, str]:
    """Returns symbols that C programs can link: ``kernel`` in place of ``main``."""
    taken = set(symbols.values())
    return {key: _fresh("kernel", taken) if symbol == "main" else symbol for key, symbol in symbols.items()}


def _fresh(name: str, taken: Collection[str]) -> str:
    """Returns ``name``, with a number when it is taken."""
    out, n = name, 1
    while out in taken:
        out, n = f"{name}_{n}", n + 1
    return out


def _symbol(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise ValueError(f"{name!r} is not a C identifier, so it cannot name a compiled function")
    return name
