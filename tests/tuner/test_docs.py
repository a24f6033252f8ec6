"""The examples of the page about the tuner run."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "tuner.md"


def test_the_page_about_the_tuner():
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 10 and result.failed == 0
