"""Texts in ONNX models: nodes that work on them are computed by Python, before and after the compiled graph.

:func:`split_text` divides a model (:mod:`.text_split`); :data:`TEXT_OPERATORS` has a row for each operator
(:mod:`.text_operators`).
"""

from .text_operators import TEXT_OPERATORS, TextCall
from .text_split import TextSplit, split_text

__all__ = ["TEXT_OPERATORS", "TextCall", "TextSplit", "split_text"]
