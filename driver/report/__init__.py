"""This package writes the report of a database: one HTML page with inline drawings, without scripts and without network.

:func:`write_report` writes the page (:mod:`.report_page`). :mod:`.search_history` reads what the page shows of a workload on a
target.
"""

from .report_page import report_html, write_report

__all__ = ["report_html", "write_report"]
