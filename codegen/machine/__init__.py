"""The machine to generate code for: :mod:`.target`, its features, its triple, and this machine's own (:mod:`.cpu`).

Import from the modules.
"""

__all__: list[str] = []
