"""How the documentation is built: ``sphinx-build -W -b html docs DIR``."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

import jlgcn

sys.path.insert(0, str(Path(__file__).parents[1]))  # evaluation
sys.path.insert(0, str(Path(__file__).parent))
from public_names import as_markdown, public_names

project = "jlgcn"
author = "The jlgcn developers"
version = release = jlgcn.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
source_suffix = {".md": "myst-nb"}
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

# Code of the guides runs when they are built, and a failing cell fails the build.
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300  # of a cell, on a machine that is busy with other work
nb_merge_streams = True
nb_execution_in_temp = True  # guides may write files
os.environ["MATPLOTLIBRC"] = str(Path(__file__).parent / "matplotlibrc")

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}  # which is a union of a dozen names
autodoc_default_options = {"members": True, "show-inheritance": True}
autosummary_generate = True
napoleon_use_ivar = True
napoleon_custom_sections = [
    ("Shapes", "notes_style"),
    ("Cost", "notes_style"),
    ("Precision", "notes_style"),
]
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "jlgcn"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"source_repository": "", "navigation_with_keys": True}
html_math_renderer = "mathml"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False


def setup(app: Any) -> None:  # noqa: ANN401
    """Write formulas as MathML: browsers draw it by themselves, with no script and no network."""
    app.add_html_math_renderer("mathml", (_inline, None), (_displayed, None))
    app.connect("missing-reference", _at_home)
    app.connect("source-read", _list_names)
    app.connect("doctree-resolved", _hang_pictures)
    app.connect("autodoc-process-signature", _plain_array_like)
    app.connect("autodoc-skip-member", _skip_aliases)
    app.connect("autodoc-process-docstring", _keep_underscores, priority=900)  # after napoleon


def _list_names(app: Any, docname: str, source: list[str]) -> None:  # noqa: ANN401
    """Put the public names and their tests into their page."""
    if docname == "names":
        lists = as_markdown(public_names(Path(__file__).parent.parent))
        source[0] = source[0].replace(
            "<!-- the lists of docs/public_names.py stand here -->", lists
        )


def _hang_pictures(app: Any, doctree: nodes.document, docname: str) -> None:  # noqa: ANN401
    """Put the first picture of each guide into the gallery, with a link to the guide."""
    if docname != "gallery":
        return
    wall = nodes.container(classes=["cards"])
    guides = [name for name in app.env.toctree_includes["index"] if name.startswith("guides/")]
    for guide in guides:
        picture = next(iter(app.env.get_doctree(guide).findall(nodes.image)), None)
        if picture is None:
            continue
        title = app.env.titles[guide].astext()
        link = nodes.reference(
            "", "", internal=True, refuri=app.builder.get_relative_uri(docname, guide)
        )
        shown = picture.deepcopy()
        shown["alt"] = title
        link += [shown, nodes.strong(text=title)]
        wall += nodes.container("", nodes.paragraph("", "", link), classes=["picture"])
    next(iter(doctree.findall(nodes.section))).append(wall)


def _skip_aliases(*event: Any) -> bool | None:  # noqa: ANN401
    """Leave out "Alias for field number 0": the fields are described with their class."""
    text = getattr(event[3], "__doc__", None) or ""
    return True if text.startswith("Alias for field number") else None


def _plain_array_like(*event: Any) -> tuple[str, str] | None:  # noqa: ANN401
    """Write ArrayLike where a union with it shows how Python holds the name."""
    signature, answer = event[-2:]
    if signature is None or "TypeAliasForwardRef" not in signature:
        return None
    return signature.replace("TypeAliasForwardRef('ArrayLike')", "ArrayLike"), answer


def _keep_underscores(
    app: Any,  # noqa: ANN401
    what: str,
    name: str,
    obj: Any,  # noqa: ANN401
    options: Any,  # noqa: ANN401
    lines: list[str],
) -> None:
    """Escape names such as classes_, whose underscore would be read as a link's."""
    lines[:] = [re.sub(r"^:ivar (\w+)_:", r":ivar \1\\_:", line) for line in lines]


def _at_home(app: Any, env: Any, node: Any, content: Any) -> Any:  # noqa: ANN401
    """Find names that the package exports, such as jlgcn.as_graph, where they are described."""
    target = node["reftarget"].removeprefix("jlgcn.")
    if node.get("refdomain") != "py" or "." in target:
        return None
    return env.domains["py"].resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], f"jlgcn.graphs.{target}", node, content
    )


def _inline(translator: Any, node: nodes.math) -> None:  # noqa: ANN401
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _displayed(translator: Any, node: nodes.math_block) -> None:  # noqa: ANN401
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode
