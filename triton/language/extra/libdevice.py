"""Functions of numbers and of bits under the names of CUDA's library: ``libdevice.tanh(x)``."""

from ...device_rows import LIBDEVICE

globals().update(LIBDEVICE)
__all__ = sorted(LIBDEVICE)


def __getattr__(name: str) -> object:
    raise AttributeError(f"libdevice.{name} is not known here; there are {', '.join(__all__)}")
