"""The names of :mod:`...libdevice`, at the place where some kernels look for them."""

from ....device_rows import LIBDEVICE

globals().update(LIBDEVICE)
__all__ = sorted(LIBDEVICE)
