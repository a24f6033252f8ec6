"""Chains in processes of their own: compiled code that crashes takes its worker along, not the fuzzer."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from .chain import Chain, Failure, Outcome, run_chain
from .shrinking import shrink

Found = tuple[str, str, str]
"""A failure: its kind, the step to blame, the whole report."""

_SECONDS = 60
"""A chain takes a fraction of one; what takes longer than this (five times as long, with the time to shrink it) hangs."""


def run_chains(chains: Iterable[Chain], jobs: int) -> Iterator[Outcome | Found]:
    """The outcome of each chain, as they are done; failures are shrunk."""
    left = iter(chains)
    busy: dict[Connection, tuple[Any, Chain]] = {}
    started: dict[Connection, float] = {}
    try:
        while True:
            while len(busy) < jobs:
                chain = next(left, None)
                if chain is None:
                    break
                process, line = _start()
                line.send(chain)
                busy[line], started[line] = (process, chain), time.monotonic()
            if not busy:
                return
            for line in [line for line in busy if started[line] < time.monotonic() - 5 * _SECONDS and not line.poll()]:
                process, chain = busy.pop(line)
                process.kill()
                yield _killed(chain, 0)
            for ready in wait(list(busy), _SECONDS):
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
                    busy[ready], started[ready] = (process, another), time.monotonic()
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
    """None when the chain ends, well or not; else what killed its process, or 0 when nothing did in :data:`_SECONDS`."""
    process, line = _start()
    line.send(chain)
    try:
        done = line.poll(_SECONDS)
        if done:
            line.recv()
    except EOFError:
        process.join()
        return int(process.exitcode)
    process.terminate()
    return None if done else 0


def _killed(chain: Chain, code: int | None) -> Found:
    """A chain whose process died or did not end, with as few steps as still do that."""
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
    how = f"process died with exit code {code}" if code else f"no end after {_SECONDS} s"
    return "process died" if code else "no end", "", f"{how}\nagain: {chain.command()}"
