"""The command line: record a corpus into a file, or compare two such files."""

from __future__ import annotations

import argparse
import difflib
import multiprocessing
import sys
import zipfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from .corpus import items, texts_of


def main() -> int:
    """Returns 0, or 1 when two records differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.recorder", description="Records what the library makes.")
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="write the texts of the corpus into a zip file")
    record.add_argument("file", type=Path)
    record.add_argument("--chains", type=int, default=300, help="how many chains of the fuzzer")
    record.add_argument("--only", default="", help="items whose name begins like this")
    record.add_argument("--jobs", type=int, default=2)
    compare = commands.add_parser("compare", help="say what differs between two such files")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.add_argument("--show", type=int, default=10, help="how many differences to print")
    given = parser.parse_args()
    if given.command == "record":
        return _record(given.file, given.chains, given.only, given.jobs)
    return _compare(given.before, given.after, given.show)


def _record(file: Path, chains: int, only: str, jobs: int) -> int:
    names = [name for name in items(chains) if name.startswith(only)]
    counts: Counter[str] = Counter()
    context = multiprocessing.get_context("spawn")
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out,
        ProcessPoolExecutor(jobs, mp_context=context) as pool,
    ):
        for texts in pool.map(texts_of, names, chunksize=4):
            for name, text in texts:
                out.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
                counts[name.partition("/")[0]] += 1
    print(", ".join(f"{section}: {count} texts" for section, count in counts.items()))
    return 0


def _compare(before: Path, after: Path, show: int) -> int:
    with zipfile.ZipFile(before) as old, zipfile.ZipFile(after) as new:
        names = list(dict.fromkeys([*old.namelist(), *new.namelist()]))
        had, has = set(old.namelist()), set(new.namelist())
        differing: Counter[str] = Counter()
        items_seen: set[str] = set()
        for name in names:
            a = old.read(name).decode() if name in had else ""
            b = new.read(name).decode() if name in has else ""
            if a == b and name in had and name in has:
                continue
            differing[name.partition("/")[0]] += 1
            item = name.rpartition("/")[0]
            if item in items_seen:  # what follows the first difference of an item differs because of it
                continue
            items_seen.add(item)
            if len(items_seen) <= show:
                lines = difflib.unified_diff(
                    a.splitlines(), b.splitlines(), f"before/{name}", f"after/{name}", "", "", 2
                )
                sys.stdout.write("\n".join(list(lines)[:60]) + "\n\n")
    if differing:
        print(", ".join(f"{section}: {count} texts differ" for section, count in differing.items()))
        print(f"{len(items_seen)} items, of {len(names)} texts {sum(differing.values())} differ")
        return 1
    print(f"{len(names)} texts, all equal")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
