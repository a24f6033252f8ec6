"""The version of the code generator, a number of its own."""

from __future__ import annotations

CODEGEN_VERSION = 4
"""Changes when generated code becomes faster or slower, or when wrong code is mended: times measured and files cached
before then do not compare with those after. Every tuning record carries it."""
