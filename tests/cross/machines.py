"""The machines that kernels are compiled for: the target's text, the compiler that links, what runs the program."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.util import find_spec

from tilewright.codegen import Target
from tilewright.codegen.runtime.wasm_module import wasm_linker

_SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g1")
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
"""What strict C compiles with: no extension, no warning."""

DEVICE_TEXTS = (".cl", ".wgsl")
"""The suffixes of kernels that a device's driver compiles."""


@dataclass(frozen=True)
class Machine:
    """A way to run a kernel as a program of its own.

    ``suffix`` is the file that the kernel is exported to, ``compiler`` the command that makes the program of it and
    of the main function, ``runner`` the command in front of the program. Modules
    that have a suffix of :data:`DEVICE_TEXTS` launch their kernels themselves, on the device that is there.
    """

    target: str
    compiler: tuple[str, ...]
    runner: tuple[str, ...] = ()
    suffix: str = ".o"

    @property
    def missing(self) -> str:
        """The first tool that is not installed, or an empty text."""
        if self.suffix in DEVICE_TEXTS:
            return next(iter(Target(self.target).missing_here()), "")
        if self.suffix == ".wasm":
            return "" if wasm_linker() and find_spec("wasmtime") else "wasmtime or wasm-ld"
        tools = [self.compiler[0], *self.runner[:1]]
        return next((tool for tool in tools if shutil.which(tool) is None), "")


def _cross(target: str, prefix: str, *runner: str) -> Machine:
    return Machine(f"llvm -mtriple={target}", (f"{prefix}-gcc", "-O1", "-static"), runner)


MACHINES: dict[str, Machine] = {
    "aarch64": _cross("aarch64-linux-gnu", "aarch64-linux-gnu", "qemu-aarch64"),
    "aarch64-sve": _cross("aarch64-linux-gnu -mattr=+sve -vector-width=256", "aarch64-linux-gnu", "qemu-aarch64", "-cpu",
                          "max,sve256=on"),
    "armv7": _cross("armv7-linux-gnueabihf -mattr=+neon,+vfp4", "arm-linux-gnueabihf", "qemu-arm", "-cpu", "max"),
    "c": Machine("c", ("gcc", "-O2", *STRICT), (), ".c"),
    "c-sanitized": Machine("c", ("gcc", "-O1", *STRICT, *_SANITIZE), (), ".c"),
    "c-openmp": Machine("c -openmp -num-cores=2", ("gcc", "-O2", "-fopenmp", *STRICT), (), ".c"),
    "c-vectors": Machine("c -vector-extensions", ("gcc", "-O2", "-Wall", "-Werror"), (), ".c"),
    "c-vectors-sanitized": Machine("c -vector-extensions", ("gcc", "-O1", "-Wall", "-Werror", *_SANITIZE), (), ".c"),
    "opencl": Machine("opencl", (), ("OpenCL",), ".cl"),
    "riscv64": _cross("riscv64-linux-gnu", "riscv64-linux-gnu", "qemu-riscv64"),
    "riscv64-rvv": _cross("riscv64-linux-gnu -mattr=+v,+zvl256b -vector-width=256", "riscv64-linux-gnu", "qemu-riscv64", "-cpu",
                          "rv64,v=true,vlen=256,vext_spec=v1.0"),
    "wasm": Machine("llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128,+bulk-memory", (), ("wasmtime",), ".wasm"),
    "webgpu": Machine("webgpu", (), ("WebGPU",), ".wgsl"),
}  # fmt: skip
"""The machines by name; ``qemu-user`` and Debian's cross compilers run and link the foreign ones."""
