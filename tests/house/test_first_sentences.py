"""The first sentence of each docstring has at most twenty words."""

from __future__ import annotations

import ast
from pathlib import Path

import tilewright

from .first_sentences import documented, first_sentence, words

ROOT = Path(tilewright.__file__).parent
OUTSIDE = ("tests", "benchmarks", "docs", "build")
MOST_WORDS = 20


def _places():
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT)
        if place.parts[0] not in OUTSIDE and not any(part.startswith(".") for part in place.parts):
            yield place, path.read_text()


def test_first_sentences_are_short():
    long = [
        f"{place}:{line} {name}: {words(sentence)} words: {sentence}"
        for place, text in _places()
        for line, name, docstring in documented(ast.parse(text))
        if words(sentence := first_sentence(docstring)) > MOST_WORDS
    ]
    assert long == []


def test_a_long_sentence_is_found():
    text = f'"""Says {"very " * 19}little."""\n\ndef f():\n    """Returns ``a  b c`` = 1.5, as van Dijk et al. say. More."""\n'
    found = [(name, words(first_sentence(docstring))) for _, name, docstring in documented(ast.parse(text))]
    assert found == [("the module", 21), ("f", 9)]
