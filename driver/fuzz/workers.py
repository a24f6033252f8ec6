"""Chains in processes of their own: compiled code that crashes takes its worker along, not the fuzzer."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from .chain import Chain, Failure, Outcome, run_chain
from .shrink import shrink

__all__ = ["Found", "run_chains"]

Found = tuple[str, str, str]
"""A failure: its kind, the step to blame, the whole report."""


def run_chains(chains: Iterable[Chain], jobs: int) -> Iterator[Outcome | Found]:
    """The outcome of each chain, as they are done; failures are shrunk."""
    left = iter(chains)
    busy: dict[Connection, tuple[Any, Chain]] = {}
    try:
        while True:
            while len(busy) < jobs:
                chain = next(left, None)
                if chain is None:
                    break
                process, line = _start()
                line.send(chain)
                busy[line] = (process, chain)
            if not busy:
                return
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                process, chain = busy[ready]
                try:
                    result: Any = ready.recv()
                except EOFError:
                    del busy[ready]
                    process.join()
                    yield _killed(chain, process.exitcode)
                    continue
                yield result
                another = next(left, None)
                if another is None:
                    del busy[ready]
                    ready.send(None)
                    process.join()
                else:
                    ready.send(another)
                    busy[ready] = (process, another)
    finally:
        for process, _ in busy.values():
            process.terminate()


def _start() -> tuple[Any, Connection]:
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_work, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return process, mine


def _work(line: Connection) -> None:
    while True:
        chain = line.recv()
        if chain is None:
            return
        try:
            result: Outcome | Found = run_chain(chain)
        except Failure as failure:
            small = shrink(failure)
            result = (small.kind, small.last, small.report())
        line.send(result)


def _alive(chain: Chain) -> int | None:
    """None when the chain ends, well or not; else what killed its process."""
    process, line = _start()
    line.send(chain)
    try:
        line.recv()
    except EOFError:
        process.join()
        return int(process.exitcode)
    process.terminate()
    return None


def _killed(chain: Chain, code: int | None) -> Found:
    """A chain whose process died, with as few steps as still do that."""
    size = max(1, len(chain.steps) // 2)
    while size:
        start = 0
        while start < len(chain.steps):
            smaller = chain.without(chain.steps[start : start + size])
            if _alive(smaller) is None:
                start += size
            else:
                chain = smaller
        size //= 2
    return "process died", "", f"process died with exit code {code}\nagain: {chain.command()}"
