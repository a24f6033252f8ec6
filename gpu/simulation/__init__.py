"""The simulated GPU: kernels in launch form run on the CPU, every access checked."""

from .simulator import simulate
from .watched_memory import RaceError

__all__ = ["RaceError", "simulate"]
