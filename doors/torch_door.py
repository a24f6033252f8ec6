"""This module has the doors between PyTorch and Tilewright; ``tilewright.torch`` is another name of it.

:func:`backend` serves ``torch.compile(model, backend="tilewright")``; :func:`from_torch` reads an exported program;
:func:`op` registers a converter for an operator; :func:`custom_op` makes one kernel an operator of PyTorch.
"""

from ..frontends.torch import TorchError as TorchError
from ..frontends.torch import UnsupportedTorchOperators as UnsupportedTorchOperators
from ..frontends.torch import from_torch as from_torch
from ..frontends.torch import op as op
from .compile_backend import backend as backend
from .custom_operator import custom_op as custom_op
