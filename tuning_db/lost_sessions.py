"""Sessions whose process was killed are found at the start of the next one."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Mapping
from typing import Any

_SILENT_HOURS = 24
"""A session on another host, or without a process number, that has been silent for so long is taken for lost."""


def host_name() -> str:
    """Returns the name of this machine."""
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def is_lost(session: Mapping[str, Any], now: str) -> bool:
    """Returns whether a session that is called running cannot go on. Its process is gone, or it has been silent for a
    day. ``session`` has host, pid, heartbeat and started."""
    if session["pid"] is not None and session["host"] == host_name() and sys.platform != "win32":
        return not _runs(int(session["pid"]))
    moments = [datetime.datetime.fromisoformat(text) for text in (session["heartbeat"] or session["started"], now)]
    return moments[1] - moments[0] > datetime.timedelta(hours=_SILENT_HOURS)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True
