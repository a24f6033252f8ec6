"""What a target lacks is refused, with the operation named; docs/guides/targets.md has the table."""

from pathlib import Path

import pytest

from .refusals import ROWS, table, words

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "targets.md"


@pytest.mark.parametrize(("target", "what", "ask"), ROWS, ids=[f"{row[0]}: {row[1]}" for row in ROWS])
def test_it_is_refused(target, what, ask):
    assert words(ask), f"{target} takes {what}"


def test_the_page_has_the_table():
    assert table() in PAGE.read_text(), "python -m tests.cross.refusals prints the table"
