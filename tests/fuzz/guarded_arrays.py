"""Arrays that end where memory ends, so that an access behind them kills the process."""

import ctypes
import mmap

import numpy as np

_LIBC = ctypes.CDLL(None)
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def at_the_end(array: np.ndarray) -> np.ndarray:
    """A copy that ends just before a page that cannot be read."""
    size = -(-max(array.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert _LIBC.mprotect(address + size, mmap.PAGESIZE, 0) == 0
    copy = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes).reshape(array.shape)
    copy[...] = array
    return copy
