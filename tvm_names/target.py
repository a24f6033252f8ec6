"""``tvm.target``: the target of code generation."""

from __future__ import annotations

from ..codegen import Target as Target
