"""What is in scope while strict C is written: statements in front of the one that uses a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...tir.expr import DType
from .c_scope import CScope
from .struct_vectors import StructHelpers


class PortableScope(CScope):
    """The state of a writer of strict C99."""

    helpers: StructHelpers

    def before(self, line: str) -> None:
        """Write a line where values are evaluated at present."""
        self.scopes[-1].put(line)

    def each(self, word: str, to: DType, operands: Sequence[tuple[str, DType]], lane: Callable[..., str]) -> str:
        """Return a vector whose lanes ``lane`` writes, from the lanes of vectors given with their types."""
        function = self.helpers.each(word, to, [dtype for _, dtype in operands], lane)
        return f"{function}({', '.join([text for text, _ in operands])})"
