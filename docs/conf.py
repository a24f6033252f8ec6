"""Sphinx reads its settings here. ``sphinx-build -W docs build/site`` makes the site."""

from __future__ import annotations

import tilewright

project = "Tilewright"
author = "the Tilewright authors"
project_copyright = "the Tilewright authors"
release = version = tilewright.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_click"]
html_theme = "furo"
html_title = "Tilewright"
html_static_path = ["_static"]
html_css_files = ["site.css"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # a test runs the notebook; the site shows the outputs that it holds

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"

default_role = "code"
pygments_style = "friendly"
smartquotes = False
suppress_warnings = ["ref.python"]  # several classes have a member called name
