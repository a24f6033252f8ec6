"""Hardware: a scheduled kernel of integers becomes a synthesizable module of Verilog.

:mod:`.circuit_emitter` turns lowered functions into :mod:`.blocks` of exact integers (:mod:`.nets`), with loops and
branches around them; :mod:`.stages` divides blocks into cycles and checks the interval of pipelines; :mod:`.module_text`
writes modules, which :mod:`.simulators` run with test benches.
"""

from .memories import HardwareError
from .simulators import installed_simulators
from .verilog_module import VERILOG

__all__ = ["VERILOG", "HardwareError", "installed_simulators"]
