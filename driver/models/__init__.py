"""Models: their kernels built side by side, the compiled whole, its export, its comparison and its tuning.

:mod:`.model_building` reads files and puts a model together, :mod:`.kernel_building` makes one kernel, and many side by side,
:mod:`.model` is the result.

Each distinct kernel is an object file that stays on the disk; weights are packed ahead into one block of constants. The entry
(``codegen/runtime/export.py``) finds constants and workspace and calls the function that calls the kernels.
"""

__all__: list[str] = []
