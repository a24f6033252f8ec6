"""Hardware: a scheduled kernel of integers becomes a synthesizable module of Verilog.

:mod:`.circuit_emitter` turns lowered functions into :mod:`.blocks` of exact integers (:mod:`.nets`), with loops and
branches around them; :mod:`.stages` divides blocks into cycles and checks the interval of pipelines; :mod:`.module_text`
writes modules, which :mod:`.verilog_module` run with test benches.
"""

from .blocks import HardwareError
from .verilog_module import VERILOG, installed_simulators

__all__ = ["VERILOG", "HardwareError", "installed_simulators"]
