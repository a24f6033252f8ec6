"""The loop IR: the ground that every other layer stands on.

Expressions (:mod:`.expr`), buffers (:mod:`.buffer`), statements (:mod:`.stmt`) and functions (:mod:`.function`) are
immutable nodes; :mod:`.walk` walks and rewrites them; :mod:`.op` names the operations a call may have; :mod:`.printer`
turns them into text.
"""

from . import op, printer
from .buffer import Buffer, BufferRegion, MatchBufferRegion, decl_buffer
from .equal import assert_structural_equal, structural_equal, structural_hash, workload_key
from .expr import *  # noqa: F403
from .function import IRModule, PrimFunc
from .parser import ParseError, parse
from .printer import register_printer
from .stmt import *  # noqa: F403
from .verify import VerifyError, verify
