"""The versions of what makes and chooses code are kept with each tuning session."""

from __future__ import annotations

from functools import lru_cache
from importlib import metadata

from .. import __version__
from ..codegen.llvm.jit import llvm_version


@lru_cache(maxsize=1)
def library_versions() -> dict[str, str]:
    """Returns the versions of Tilewright, LLVM, llvmlite and xgboost (either distribution), as far as installed."""
    found = {"tilewright": __version__, "llvm": llvm_version()}
    for name in ("llvmlite", "xgboost", "xgboost-cpu"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
