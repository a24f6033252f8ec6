"""This package prints programs in TVMScript; what it prints, :mod:`..parser` reads."""

from .printer import script

__all__ = ["script"]
