"""Models: their kernels built side by side, the compiled whole, its export, its comparison and its tuning.

:mod:`.model_files` reads files, :mod:`.kernel_building` makes one kernel, and many side by side,
:mod:`.model` is the result.
"""

__all__: list[str] = []
