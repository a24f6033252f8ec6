"""Run the ```python examples of Markdown files, each file's in order in one namespace and a folder of its own.

A block of ``>>>`` lines is a doctest: its output has to be as printed.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import sys
import tempfile
import time
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(path: Path) -> int:
    """Run the examples of one file and return how many there are."""
    text = path.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "__main__"}
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for match in BLOCK.finditer(text):
            source = match[1]
            line = text.count("\n", 0, match.start(1))
            if ">>> " in source:
                check(source, namespace, f"{path.name}", line)
                count += 1
                continue
            # Functions read their own source (@T.prim_func), so each example is a file, its lines as in the document.
            file = Path(folder) / f"example_{count}.py"
            file.write_text("\n" * line + source, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile("\n" * line + source, str(file), "exec"), namespace)
            count += 1
    return count


def check(source: str, namespace: dict[str, object], name: str, line: int) -> None:
    """Run a block of ``>>>`` lines; what it defines stays in ``namespace``."""
    test = doctest.DocTestParser().get_doctest(source, namespace, name, name, line)
    test.globs = namespace
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    if runner.run(test, clear_globs=False).failed:
        raise SystemExit(f"an example of {name} prints something else")


def main() -> None:
    start = Path.cwd()
    for name in sys.argv[1:]:
        began = time.monotonic()
        try:
            count = run(start / name)
        finally:
            os.chdir(start)
        if count:
            print(f"{name}: {count} examples, {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
