"""Sphinx: MyST pages, reference from docstrings, pictures of the gallery made while building."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import problm  # noqa: E402

project = "ProBLM"
author = "The ProBLM developers"
copyright = "the ProBLM developers, Apache-2.0"
release = version = problm.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "formulas",
    "gallery_maker",
    "pictures",
    "docstrings",
    "tables",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist", "fieldlist"]
myst_heading_anchors = 3

# A name in single backticks in a docstring is a Python object if there is one, and code otherwise.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 88

# Words such as "points" in a type are not references to one of the attributes of that name.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"ProBLM {version}"
html_static_path = ["static"]
html_css_files, html_js_files = ["style.css"], ["copy.js"]
html_math_renderer = "mathml"  # pages open from disk without a network
html_show_sphinx = False
html_copy_source = False
