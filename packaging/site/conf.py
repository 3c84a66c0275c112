"""Sphinx's settings for "make site": the pages as they are in the repository.

The navigation has the pages in the order of doc/README.md, and then all others.
"""
import re
from pathlib import Path

top = Path(__file__).resolve().parents[2]

project = "zklock"
copyright = "2026, zklock developers"
version = re.search(r"^default_version = '(.*)'", (top / "zklock.control").read_text(), re.M)[1]

extensions = ["myst_parser"]
root_doc = "README"
# of rivals/report.md doc/bench/rivals.md is made
exclude_patterns = [".*", "build", "tmp_check", "rivals/report.md"]
myst_heading_anchors = 4
# the glossary has no headings of level 2; blocks may be parts of programs
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

# messages are as the server writes them
smartquotes = False

html_theme = "furo"
html_title = "zklock " + version
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False


def listed():
    """The pages that doc/README.md lists."""
    links = re.findall(r"\]\(([^):]+)\.md\)", (top / "doc/README.md").read_text())
    pages = [(top / "doc" / link).resolve().relative_to(top).as_posix() for link in links]
    return ["doc/README"] + [page for page in dict.fromkeys(pages) if page != root_doc]


def read(app, page, source):
    """A link to a directory becomes text, and the first page gets the navigation."""
    source[0] = re.sub(r"\[([^\]]+)\]\([^)\s]+/\)", r"\1", source[0])
    if page == root_doc:
        first = listed()
        others = sorted(app.env.found_docs - {root_doc, *first})
        for caption, pages in (("Documentation", first), ("More", others)):
            source[0] += "\n```{toctree}\n:hidden:\n:caption: %s\n\n%s\n```\n" % (
                caption, "\n".join("/" + page for page in pages))


def setup(app):
    app.connect("source-read", read)
