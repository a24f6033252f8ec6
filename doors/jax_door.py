"""This module has the doors between JAX and Tilewright; ``tilewright.jax`` is another name of it.

:func:`call` makes one kernel a function of JAX; :func:`from_stablehlo` reads an exported function; :func:`op` registers
a converter for an operation of StableHLO.
"""

from ..frontends.stablehlo import StableHloError as StableHloError
from ..frontends.stablehlo import UnsupportedStableHloOperators as UnsupportedStableHloOperators
from ..frontends.stablehlo import from_stablehlo as from_stablehlo
from ..frontends.stablehlo import op as op
from .jax_call import call as call
