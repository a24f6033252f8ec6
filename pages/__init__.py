"""This package writes HTML and SVG: for the report of a database, for listings and for notebooks.

It knows text and numbers only, and imports nothing of Tilewright. :class:`Plot` draws a chart (:mod:`.plot`, which also writes
times and rates), :func:`code_html` colours a program, :func:`table` and :func:`card` lay text out, :func:`side_by_side` shows
programs with linked lines (:mod:`.html_text`). :mod:`.messages` finds the word that was meant, refuses numbers that are
none, and writes an object in one line; :mod:`.written_files` writes a file whole or not at all.
"""

from .html_text import CHART_STYLE, COLOURS, LISTING_STYLE, Listing, card, code_html, folded, side_by_side, table
from .messages import did_you_mean
from .plot import (
    ChartAxis,
    Plot,
    counted,
    duration_text,
    improvements,
    rate_text,
    search_chart,
    seconds_text,
    share_text,
    size_text,
    sparkline,
    thinned,
)

__all__ = [
    "CHART_STYLE",
    "COLOURS",
    "LISTING_STYLE",
    "ChartAxis",
    "Listing",
    "Plot",
    "card",
    "code_html",
    "counted",
    "did_you_mean",
    "duration_text",
    "folded",
    "improvements",
    "rate_text",
    "search_chart",
    "seconds_text",
    "share_text",
    "side_by_side",
    "size_text",
    "sparkline",
    "table",
    "thinned",
]
