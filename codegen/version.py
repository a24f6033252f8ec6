"""The version of the code generator, a number of its own."""

from __future__ import annotations

CODEGEN_VERSION = 11
"""A number that changes when generated code becomes faster or slower, or when wrong code is mended. Times measured and
files cached before the change do not compare with those after it. Every tuning record carries it."""
