"""``tvm.target``: the target of code generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import codegen


class Kind(str):
    """The kind of a target, a text that is its own ``name``."""

    @property
    def name(self) -> str:
        """Returns the kind as plain text."""
        return str(self)


class Target(codegen.Target):
    """A target made in the ways of programs for TVM: ``Target(target="llvm", host="llvm")``, ``target.kind.name``."""

    def __init__(
        self,
        target: str | Mapping[str, Any] | codegen.Target | None = None,
        host: str | codegen.Target | None = None,
        **options: Any,
    ) -> None:
        """``host`` says where the calls are made; that is always this machine's processor."""
        super().__init__(target, **options)
        object.__setattr__(self, "kind", Kind(self.kind))

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """Returns None: there is no target in force, each call names its own. ValueError unless ``allow_none``."""
        if not allow_none:
            raise ValueError("no target is in force; pass target= to build, tune or tune_tir")
        return None

    def __enter__(self) -> Target:
        raise NotImplementedError("with Target(…): no target is put in force; pass target= to build, tune or tune_tir")

    def __exit__(self, *reason: object) -> None:
        """End nothing; a target is never put in force."""
