"""What GPUs' libraries have beside ``tl``: :mod:`.libdevice`. Its names hold on all targets."""

from . import cuda, hip, libdevice

__all__ = ["cuda", "hip", "libdevice"]
