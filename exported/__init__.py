"""Libraries that were exported, called from Python: :func:`load_module`.

It needs NumPy alone and imports nothing else of this package, so that a program that serves a finished model
starts without the compiler.
"""

from .library import ArrayError as ArrayError
from .library import LoadedFunction as LoadedFunction
from .library import LoadedModule as LoadedModule
from .library import LoadError as LoadError
from .library import load_module as load_module

__all__ = ["ArrayError", "LoadError", "LoadedFunction", "LoadedModule", "load_module"]
