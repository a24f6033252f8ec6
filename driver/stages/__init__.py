"""This package writes a page with the program at each stage of compilation beside its machine code."""

from .stage_page import declared_lines, stage_page

__all__ = ["declared_lines", "stage_page"]
