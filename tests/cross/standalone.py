"""Runs kernels as a program of its own: arrays come from a file, and go back into one."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.codegen.c.c_header import argument_type
from tilewright.codegen.runtime.arguments import Arguments, c_types, completed

from .machines import DEVICE_TEXTS, Machine
from .webassembly import WasmModule

_MAIN = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "kernels.h"
static FILE *in, *out;
static void *fetched(size_t bytes) { /* memory of just that size, for a sanitizer to watch */
  void *p = malloc(bytes ? bytes : 1);
  if (!p || fread(p, 1, bytes, in) != bytes) exit(101);
  return p;
}
static void kept(void *p, size_t bytes) {
  if (fwrite(p, 1, bytes, out) != bytes) exit(105);
  free(p);
}
"""
_END = r"""
int main(int argc, char **argv) {
  if (argc != 3) return 100;
  in = fopen(argv[1], "rb");
  out = fopen(argv[2], "wb");
  if (!in || !out) return 102;
%s  return fclose(in) | fclose(out);
}
"""


def run_module(module: Any, machine: Machine, arrays: Mapping[str, Sequence[Any]]) -> None:
    """Run functions of a module, each once, on a machine; ``arrays``: the arguments by the function's name.

    Written arrays get the results. RuntimeError names what the compiler or the program says.
    """
    if machine.suffix in DEVICE_TEXTS:
        for function, given in arrays.items():
            module[function](*given)
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-cross-") as name:
        folder = Path(name)
        module.export(folder / f"kernels{machine.suffix}")
        if machine.suffix == ".wasm":
            _run_in_wasmtime(folder / "kernels.wasm", module, arrays)
            return
        calls, buffers, alive = [_MAIN], [], []
        for function, given in arrays.items():
            lowered = next(one for one in module._lowered.values() if one.name == function)
            arguments = Arguments(lowered.name, lowered.params)
            complete, _ = completed(arguments, tuple(given), {})
            values, keep = arguments.prepare(complete)
            alive.append(keep)
            calls.append(_call(lowered, complete, values))
            buffers += [a for p, a in zip(lowered.params, complete, strict=False) if p.kind == "buffer"]
        (folder / "main.c").write_text("".join([*calls, _END % "".join(f"  run_{name}();\n" for name in arrays)]))
        inputs = ["main.c", f"kernels{machine.suffix}"]
        _checked([*machine.compiler, "-o", "program", *inputs, "-lm", "-lpthread"], folder)
        (folder / "in").write_bytes(b"".join(np.ascontiguousarray(a).tobytes() for a in buffers))
        _checked([*machine.runner, "./program", "in", "out"], folder)
        _read_back((folder / "out").read_bytes(), buffers)


def _run_in_wasmtime(path: Path, module: Any, arrays: Mapping[str, Sequence[Any]]) -> None:
    instance = WasmModule(path)
    for function, given in arrays.items():
        lowered = next(one for one in module._lowered.values() if one.name == function)
        arguments = Arguments(lowered.name, lowered.params)
        complete, _ = completed(arguments, tuple(given), {})
        values, keep = arguments.prepare(complete)
        instance.run(lowered, values, complete)
        del keep


def _call(lowered: Any, complete: Sequence[Any], values: Sequence[int | float]) -> str:
    """Returns a C function that calls the kernel once."""
    lines, ends, words = [], [], []
    for n, (p, ctype, value) in enumerate(zip(lowered.params, c_types(lowered.params), values, strict=True)):
        exact = float(value).hex() if ctype in (ctypes.c_float, ctypes.c_double) else str(value)
        words.append(f"a{n}" if p.kind == "buffer" else f"({argument_type(p)})({exact})")
        if p.kind == "buffer":
            lines.append(f"  void *a{n} = fetched({complete[n].nbytes});")
            ends.append(f"  kept(a{n}, {complete[n].nbytes});")
    call = f'  if ({lowered.name}({", ".join(words)})) {{ fprintf(stderr, "{lowered.name} failed\\n"); exit(103); }}'
    return "\n".join([f"static void run_{lowered.name}(void) {{", *lines, call, *ends, "}", ""])


def _read_back(raw: bytes, buffers: Sequence[Any]) -> None:
    at = 0
    for a in buffers:
        part = np.frombuffer(raw, a.dtype, a.size, at).reshape(a.shape)
        at += a.nbytes
        if a.flags.writeable:
            a[...] = part


def _checked(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: code {done.returncode}\n{done.stderr[:3000]}")
