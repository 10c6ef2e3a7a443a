"""The documentation site: `make docs` builds it with Sphinx and MyST. `tools/site.py` adds what only a site needs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import nsmbayes

project = "nsmbayes"
author = copyright = "The nsmbayes developers"
version = release = nsmbayes.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "tools.site"]
exclude_patterns = ["images/**"]
nitpicky = False  # types of JAX and NumPy have their own sites, which are not asked

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
html_math_renderer = "mathml"

default_role = "code"
autodoc_default_options = {
    "members": True,
    "inherited-members": "Distribution,Exception,Module,tuple,object",
    "show-inheritance": True,
}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"nsmbayes {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
