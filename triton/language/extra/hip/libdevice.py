"""The names of :mod:`...libdevice`, at the place where some kernels look for them."""

from ..libdevice import *  # noqa: F403
from ..libdevice import __all__, __getattr__  # noqa: F401
