"""What notebooks show of an exception: IPython asks it for ``_render_traceback_``."""

from __future__ import annotations

import traceback
from pathlib import Path

_LIBRARY = str(Path(__file__).parent.parent)


def user_traceback(error: BaseException, kind: str) -> list[str]:
    """Returns the lines of a traceback without the frames of this library, and the message under the name ``kind``.

    IPython asks an exception for it by the method ``_render_traceback_``.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(_LIBRARY) and "IPython" not in Path(f.filename).parts]
    lines = "".join(["Traceback (most recent call last):\n", *traceback.format_list(own)]) if own else ""
    return [*lines.splitlines(), f"{kind}: {error}"]
