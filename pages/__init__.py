"""This package writes HTML and SVG: for the report of a database, for listings and for notebooks.

It knows text and numbers only, and imports nothing of Tilewright. :class:`Plot` draws a chart, :func:`code_html` colours a
program, :func:`table` and :func:`card` lay text out, :func:`side_by_side` shows programs with linked lines, :mod:`.figures` writes times and rates.
:mod:`.written_files` writes a file whole or not at all.
"""

from .figures import counted, duration_text, rate_text, seconds_text, share_text, size_text
from .html_text import CHART_STYLE, COLOURS, card, folded, table
from .listings import LISTING_STYLE, Listing, code_html, side_by_side
from .near_words import did_you_mean
from .plot import Axis, Plot, thinned
from .search_chart import improvements, search_chart, sparkline

__all__ = [
    "CHART_STYLE",
    "COLOURS",
    "LISTING_STYLE",
    "Axis",
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
