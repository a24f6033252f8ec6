"""This module finds TVM's modules by their full names. It says what takes the place of those that do not exist here."""

from __future__ import annotations

import importlib
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .absent_modules import ABSENT


class _SameModule(Loader):
    """Gives ``tilewright.testing`` the module ``tilewright.tvm_names.testing``, which is loaded once."""

    def create_module(self, spec: ModuleSpec) -> Any:
        path, _, word = f"tilewright.tvm_names.{spec.name.partition('.')[2]}".rpartition(".")
        inside = getattr(importlib.import_module(path), word, None)  # a module of TVM's may be an attribute here
        module = inside if isinstance(inside, ModuleType) else importlib.import_module(f"{path}.{word}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        """Give the module, which has been loaded under its own name, its own description back."""
        module.__spec__ = module.__spec__.loader_state


def spec_of(name: str) -> ModuleSpec:
    """Returns how a module of TVM is loaded, by its full name here."""
    return ModuleSpec(name, _SameModule(), is_package=True)


def place_of(name: str) -> str | None:
    """Returns what takes the place of a part of TVM that there is not; None for other names."""
    return ABSENT.get(name)


def refuse(word: str) -> None:
    """Raise ImportError for a module of TVM that there is not, and say what takes its place."""
    hint = place_of(word)
    if hint is not None:
        raise ImportError(f"there is no tilewright.{word}: {hint}", name=f"tilewright.{word}")
