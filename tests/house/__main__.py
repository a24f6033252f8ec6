"""The command line: print what the tests of the house measure."""

from __future__ import annotations

from pathlib import Path

from .sources import LAYERS, circle, depth, floors, import_graph, inside, length, library, parameters

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    files = library(ROOT)
    graph = import_graph(files)
    print(f"{'folder':26} {'files':>5} {'lines':>6} {'code':>6} {'floors':>6}")
    for folder in sorted({s.folder for s in files.values()}):
        mine = [s for s in files.values() if s.folder == folder]
        parts = inside(folder, files, graph)
        ring = circle(parts)
        tall = f"circle: {' -> '.join(ring)}" if ring else str(len(floors(parts)))
        print(f"{folder:26} {len(mine):5} {sum(s.lines for s in mine):6} {sum(s.code_lines for s in mine):6} {tall:>6}")
    for layer in LAYERS:
        mine = [s for s in files.values() if s.place.startswith(layer + "/")]
        print(f"{layer:26} {len(mine):5} {sum(s.lines for s in mine):6} {sum(s.code_lines for s in mine):6}")
    print(f"{'all':26} {len(files):5} {sum(s.lines for s in files.values()):6} "
          f"{sum(s.code_lines for s in files.values()):6}")  # fmt: skip
    for s in files.values():
        if s.lines > 450:
            print(f"long file: {s.place} {s.lines}")
        for f in s.functions():
            for many, what in ((length(f) > 60, f"{length(f)} lines"), (depth(f) > 4, f"nested {depth(f)} deep"),
                               (parameters(f) > 7, f"{parameters(f)} parameters")):  # fmt: skip
                if many:
                    print(f"{s.place}:{f.lineno} {f.name}: {what}")


if __name__ == "__main__":
    main()
