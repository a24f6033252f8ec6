"""This script measures what bounds a matrix product: its inner loop, or the memory that its operands come from.

    python benchmarks/kernel_bounds.py

First the inner loops of the tiles: their instructions, counted in the machine code. Then such loops on operands that
lie in the first-level cache, in the second, and beyond, with rows of A that fall into the same sets of the first, and
with B packed in the call, as a share of the multiply-add peak measured before and after each run. Then the bandwidth of
sweeps over as many bytes as the products read. Last, for each product of ``examples/kernels/matmul.py``, the least time
that follows: all multiply-adds at the peak, and packing B, where that is done in the call, at the rate of a copy within
the second-level cache.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from interleaved_timing import native, share, take_turns
from kernels import come_first
from table import print_table

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "kernels"))

TILES = [(13, 2), (12, 2), (9, 3), (8, 3), (6, 4)]
PLACES = [
    ("A and B in the first-level cache", (13, 32, 128), (13, 2, 1), "ahead"),
    ("B 512 KiB, in the second-level cache", (130, 512, 256), (13, 2, 16), "ahead"),
    ("A 512 KiB and B 512 KiB, in the second-level cache", (512, 512, 256), (13, 2, 16), "ahead"),
    ("13 rows of A, 4032 bytes apart", (104, 128, 1008), (13, 2, 4), "ahead"),
    ("13 rows of A, 4096 bytes apart", (104, 128, 1024), (13, 2, 4), "ahead"),
    ("12 rows of A, 4096 bytes apart", (96, 128, 1024), (12, 2, 4), "ahead"),
    ("6 rows of A, 4096 bytes apart", (96, 128, 1024), (6, 4, 2), "ahead"),
    ("A 384 KiB, B 576 KiB, packed ahead", (128, 192, 768), (11, 2, 6), "ahead"),
    ("the same, packed in the call", (128, 192, 768), (11, 2, 6), ""),
    ("A 4 MiB beyond the second-level cache", (1024, 128, 1024), (6, 4, 2), "ahead"),
    ("B 9 MiB beyond it", (128, 3072, 768), (8, 3, 1), "ahead"),
    ("B 9 MiB beyond it, the next panel asked for", (128, 3072, 768), (8, 3, 1), "ahead, B"),
]
SIZES = [256, 1024, 4096, 9216]


def main() -> None:
    """Print the four tables."""
    come_first()
    import numpy as np
    from kernel import Kernel
    from matmul import KERNELS, declare, tiled

    import tilewright as tw
    from tilewright.driver.machine_report import BandwidthProbe, PeakProbe

    target = tw.Target("native -num-cores=1")
    peak = PeakProbe(target, "float32")

    lines = []
    for rows, vectors in TILES:
        func = declare(10 * rows, 32 * vectors, 64)
        inner = inner_loop(tw.build(tiled(rows, vectors, 1)(func, target), target=target).get_source("asm"))
        lines.append([f"{rows}×{vectors}", *(str(n) for _, n in inner)])
    print_table("the innermost loops, eight steps of k", ["tile", *(kind for kind, _ in inner)], lines)

    lines = []
    for label, (m, n, k), tile, how in PLACES:
        ahead = "ahead" in how
        schedule = tiled(*tile, ahead=ahead, fetch="B" if "B" in how else "")
        kernel = Kernel(label, declare(m, n, k, constant=ahead), schedule, np.matmul)
        module, arrays = kernel.build(target), kernel.arrays()
        share = _share(peak, module, kernel.call_arrays(module, arrays), kernel.flops)
        lines.append([label, f"{m}×{n}×{k}", f"{tile[0]}×{tile[1]}", f"{share:.2f}"])
    print()
    print_table("tiles", ["where the operands are", "M×N×K", "tile", "of peak"], lines)

    speed = {}
    lines = []
    for size in SIZES:
        for kind in ("read", "copy"):
            probe = BandwidthProbe(target, kind, size << 10)
            number = max(1, (1 << 26) // probe.bytes_per_call)
            speed[kind, size] = probe.bytes_per_call / min(probe.seconds(number) for _ in range(9))
        lines.append([f"{size} KiB", *(f"{speed[kind, size] * 1e-9:.0f} GB/s" for kind in ("read", "copy"))])
    print()
    print_table("sweeping again and again", ["bytes", "read", "copied (read and written)"], lines)

    lines = []
    most = peak.flops_per_call / min(peak.seconds(50) for _ in range(9))
    for kernel in [kernel for kernel in KERNELS if kernel.name.startswith("matmul ")]:
        b = kernel.func.buffer_map[kernel.func.params[1]]
        packed = 0 if "ahead" in kernel.name or "64³" in kernel.name else 4 * int(b.shape[0]) * int(b.shape[1])
        copying = 2 * packed / speed["copy", 1024]
        ideal = kernel.flops / most
        lines.append(
            [kernel.name, f"{ideal * 1e6:.0f} µs", f"{copying * 1e6:.0f} µs", f"{ideal / (ideal + copying):.2f}"]
        )
    print()
    print_table("products", ["product", "multiply-adds", "packing B", "share at most"], lines)


def inner_loop(asm: str) -> list[tuple[str, int]]:
    """Returns the instructions of the loop with most multiply-adds, by kind."""
    best: list[str] = []
    body: list[str] = []
    label = ""
    for line in asm.splitlines():
        found = re.match(r"^(\.L\w+):", line)
        if found:
            label, body = found[1], []
        elif line.startswith("\t") and not line.startswith("\t."):
            body.append(line.strip())
            if re.match(rf"\tj\w+\t{re.escape(label)}$", line) and _count(body, "vfmadd") > _count(best, "vfmadd"):
                best = list(body)
    spills = sum("(%rsp" in line or "(%rbp" in line for line in best)
    loads = _count(best, "vmovup", "vmovap", "vbroadcast")
    kinds = [("multiply-adds", _count(best, "vfmadd")), ("loads and broadcasts", loads)]
    rest = len(best) - sum(n for _, n in kinds)
    return [*kinds, ("all others", rest), ("that touch the stack", spills)]


def _count(lines: list[str], *starts: str) -> int:
    return sum(line.startswith(starts) for line in lines)


def _share(peak: Any, module: Any, given: list[Any], work: float) -> float:
    times = take_turns([("limit", peak.seconds), ("ours", native(module, given))], 15, 0.01)
    return share(times)[0] * work / peak.flops_per_call


if __name__ == "__main__":
    main()
