"""The classes of expressions, ranges and axes, and the functions that build expressions."""
