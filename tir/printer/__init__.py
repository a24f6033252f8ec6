"""This package prints programs in TVMScript; what it prints, :mod:`..parser` reads."""

from .printer import script, script_lines

__all__ = ["script", "script_lines"]
