"""This script compares the schedule of examples/matmul_by_hand.py with the peak and with NumPy, timed alternately.

``python benchmarks/hand_schedule.py [M N K]``
"""

import sys
from pathlib import Path

from table import print_table

import tilewright as tw

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from matmul_by_hand import declare, schedule  # noqa: E402


def main() -> None:
    """Print one row for each shape."""
    shapes = [tuple(int(x) for x in sys.argv[1:4])] if len(sys.argv) > 3 else [(1024,) * 3, (512,) * 3, (255,) * 3]
    lines = []
    for m, n, k in shapes:
        sch = schedule(declare(m, n, k), tw.Target("native -num-cores=1"))
        result = tw.bench(sch, target="native -num-cores=1")
        rival = tw.bench(f"matmul:M={m},N={n},K={k}", target="native -num-cores=1")
        ours, numpy = result.row("given"), rival.row("numpy")
        figures, other = result.figures(ours), rival.figures(numpy)
        lines.append(
            [
                f"{m}×{n}×{k}",
                f"{figures['gflops']:.0f}",
                f"{figures['share_of_peak']:.2f}",
                f"{numpy.seconds / ours.seconds:.2f}",
                f"{other['share_of_peak']:.2f}",
            ]
        )
    print_table("matmul scheduled by hand", ["M×N×K", "GFLOP/s", "of peak", "vs NumPy", "NumPy of peak"], lines)


if __name__ == "__main__":
    main()
