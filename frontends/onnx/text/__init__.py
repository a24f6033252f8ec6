"""Texts in ONNX models: nodes that work on them are computed by Python, before and after the compiled graph.

:func:`split_text` divides a model; :data:`TEXT_OPERATORS` has a row for each operator. :mod:`.text_operators` compare
and divide texts, :mod:`.label_operators` look them up, :mod:`.moved_texts` move them, :mod:`.tf_idf` counts them.
"""

from . import label_operators, moved_texts, text_operators, tf_idf
from .text_call import TEXT_OPERATORS, TextCall
from .text_split import TextSplit, split_text

__all__ = [
    "TEXT_OPERATORS", "TextCall", "TextSplit", "label_operators", "moved_texts", "split_text", "text_operators", "tf_idf",
]  # fmt: skip
