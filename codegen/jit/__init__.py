"""What compiling and loading machine code needs beside LLVM: the cache of object files, and its directory.

Import from the modules; this package imports none of them. :mod:`tilewright.codegen.llvm.jit` compiles and loads.
"""

__all__: list[str] = []
