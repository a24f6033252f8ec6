"""The runtime of compiled code.

The part in LLVM IR (:mod:`.runtime_ir`: the fork-join pool, scratch memory, timing loops) is loaded
once per process or linked into exported files. In the Python part, :mod:`.module` has Module and Function and
measures times, :mod:`.arguments` reads arrays of any library, checks arguments and explains errors, :mod:`.native_glue` has
the fast native path for calls, :mod:`.export` writes files, whole models as shared libraries and as C among them.

Import from the modules; this package imports none of them.
"""

__all__: list[str] = []
