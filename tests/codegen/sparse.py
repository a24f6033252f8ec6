"""Arrays of many gigabytes of which only the touched pages take memory."""

import math
import mmap

import numpy as np

NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux


def sparse(shape, dtype):
    """An array of zeros; a page that is only read costs nothing, one that is written four kilobytes."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    return np.frombuffer(memory, dtype).reshape(shape)
