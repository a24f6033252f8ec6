"""Hardware: a scheduled kernel of integers becomes a synthesizable module of Verilog.

:mod:`.circuit` turns lowered functions into blocks of exact integers, with loops and branches around them; :mod:`.timing`
divides blocks into cycles and checks the interval of pipelines; :mod:`.text` writes modules and test benches, which
:mod:`.simulators` run.
"""

from .circuit.memories import HardwareError
from .simulators import installed_simulators
from .verilog_module import VERILOG

__all__ = ["VERILOG", "HardwareError", "installed_simulators"]
