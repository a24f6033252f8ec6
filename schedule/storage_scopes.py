"""This module knows the names of storage scopes, which say in which memory a buffer lives."""

from __future__ import annotations

import re
from typing import Any

from .errors import bad_argument

_RANKS = {"global": 0, "shared": 1, "warp": 2, "local": 3}
_SCOPE = re.compile(
    r"(global|shared|warp|local|texture|wmma\.(?:matrix_a|matrix_b|accumulator)|wgmma\.accumulator|m16n8k8\.matrix[ABC]|amx\.tmm)"
    r"((?:\.[A-Za-z_][\w-]*)*)"
)


def check_storage_scope(scope: Any) -> str:
    """Return ``scope`` if it is the name of a storage scope; ScheduleError otherwise.

    The names are ``global`` (or an empty text), ``shared``, ``warp``, ``local`` and their like, optionally with the tag
    of a special memory (``global.scratchpad``, ``shared.dyn``).
    """
    if scope == "":
        return "global"
    if not isinstance(scope, str) or _SCOPE.fullmatch(scope) is None:
        raise bad_argument(
            f"{scope!r} is not a storage scope",
            hint="there are 'global', 'shared', 'warp', 'local', each with a tag of your own after a dot if need be "
            "('global.scratchpad')",
        )
    return scope


def rank_of_scope(scope: str) -> int:
    """Return who shares the memory. The numbers are 0 for all threads (global), 1 for a block of threads, 2 for a warp,
    3 for one thread."""
    return _RANKS.get(scope.split(".")[0], 3)


def shared_by_thread(scope: str, thread: str) -> bool:
    """Return whether the threads of the axis ``thread`` (``threadIdx.x``) share one copy of a buffer in ``scope``."""
    rank = rank_of_scope(scope)
    if rank == 0:
        return False  # one copy for all: each iteration of a thread's loop copies its own part
    if rank == 2:
        return thread == "threadIdx.x"
    return rank <= (0 if thread.startswith("blockIdx") else 1)
