"""What notebooks show of an exception: IPython asks it for ``_render_traceback_``."""

from __future__ import annotations

import traceback

_HIDDEN = (__name__.partition(".")[0], "IPython")
"""The packages whose frames are not shown."""


def user_traceback(error: BaseException, kind: str) -> list[str]:
    """Returns the lines of a traceback without the frames of this library, and the message under the name ``kind``.

    IPython asks an exception for it by the method ``_render_traceback_``.
    """
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _HIDDEN
    ]
    summary = traceback.StackSummary.extract(iter(frames))
    lines = "".join(["Traceback (most recent call last):\n", *summary.format()]) if frames else ""
    return [*lines.splitlines(), f"{kind}: {error}"]
