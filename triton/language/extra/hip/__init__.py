"""The place where some kernels look for ``libdevice``."""

from . import libdevice

__all__ = ["libdevice"]
