"""The machine to generate code for: :mod:`.target`, its features, its triple, and this machine's own (:mod:`.cpu`).

Import from the modules; this package imports only those that register themselves.
"""

from . import described_targets as _described_targets  # noqa: F401  (registers itself)
from . import host_details as _host_details  # noqa: F401  (registers itself)

__all__: list[str] = []
