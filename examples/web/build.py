"""Builds sharpen.wasm for index.html: an image is blurred or sharpened by the amount that a slider gives.

    python examples/web/build.py            writes examples/web/sharpen.wasm
    python -m http.server -d examples/web   serves the page at http://localhost:8000

It needs a linker for WebAssembly: pip install ziglang, or apt-get install lld.
"""

from __future__ import annotations

from pathlib import Path

import tilewright as tw
from tilewright import te

SIZE = 256
TARGET = "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128,+bulk-memory"


def sharpen() -> tw.PrimFunc:
    """Returns ``out = image + amount * (image - mean of its 3 x 3 neighbours)``. The image has a border of one
    pixel."""
    image = te.placeholder((SIZE + 2, SIZE + 2), "float32", "image")
    amount = te.var("amount", "float32")

    def pixel(y, x):
        around = [image[y + dy, x + dx] for dy in range(3) for dx in range(3)]
        mean = sum(around[1:], around[0]) * te.const(1 / 9, "float32")
        middle = image[y + 1, x + 1]
        return te.max(te.min(middle + amount * (middle - mean), te.const(1, "float32")), te.const(0, "float32"))

    out = te.compute((SIZE, SIZE), pixel, "out")
    return te.create_prim_func([image, amount, out])


def build(folder: Path) -> list[Path]:
    """Writes the module into a folder, and returns the files."""
    sch = tw.Schedule(sharpen())
    _, x = sch.get_loops("out")
    _, lanes = sch.split(x, [None, 16])
    sch.vectorize(lanes)
    return tw.build(sch, TARGET, name="sharpen").export(folder / "sharpen.wasm")


if __name__ == "__main__":
    for file in build(Path(__file__).parent):
        print(f"{file}: {file.stat().st_size} bytes")
