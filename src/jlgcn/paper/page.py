"""The report: one self-contained HTML page with all tables and figures."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup, escape

from jlgcn._files import replacing, write_file
from jlgcn.paper.figures import draw_all, save
from jlgcn.paper.recipe import Recipe
from jlgcn.paper.recipes import RECIPES
from jlgcn.paper.records import read_kept
from jlgcn.paper.summary import recorded_recipes
from jlgcn.paper.tables import filled_columns, recipe_table, recorded_tables, rows_as_csv
from jlgcn.report.render import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEANS = "Means with 95 % intervals."
_BANDS = "Bands are 95 % intervals over seeds."
_GRAPHS = "All panels share one logarithmic scale; rows and columns are the first nodes."
_FORMS: tuple[Literal["svg", "png"], ...] = ("svg", "png")
_WEIGHTS = "The star is the chosen point; the other points are coloured by the weight of its edge."


def write_report(
    rows: Sequence[dict[str, Any]],
    results: Path,
    out: Path,
    *,
    recipes: Mapping[str, Recipe[Any]] = RECIPES,
    tables: Mapping[str, str] | None = None,
) -> Path:
    """Write the HTML page, every table (Markdown, CSV) and figure (SVG, PNG); return the page.

    Args:
        rows (sequence of dict): rows of :func:`jlgcn.paper.summary.summarize`.
        results (Path): folder of records, for curves and graphs.
        out (Path): output folder.
        recipes (mapping, default the paper's): recipes by name.
        tables (mapping or None, default None): Markdown tables by name; None for
            :func:`jlgcn.paper.tables.recorded_tables`.
    """
    out.mkdir(parents=True, exist_ok=True)
    write_file(out / "results.csv", rows_as_csv(rows))
    tables = recorded_tables(rows, recipes) if tables is None else tables
    for name, table in tables.items():
        write_file(out / f"{name.replace('/', '-')}.md", table + "\n")
    figures = draw_all(rows, results, recipes)
    for name, figure in figures.items():
        for form in _FORMS:
            with replacing(out / f"{name}.{form}") as file:
                save(figure, file, form)
    return write_file(out / "index.html", page(rows, figures, results, recipes))


def page(
    rows: Sequence[dict[str, Any]],
    figures: dict[str, Figure],
    results: Path,
    recipes: Mapping[str, Recipe[Any]] = RECIPES,
) -> str:
    """Return a self-contained HTML page.

    Args:
        rows: rows of :func:`jlgcn.paper.summary.summarize`.
        figures: figures of :func:`jlgcn.paper.figures.draw_all`.
        results: folder of records, for interactive clouds.
        recipes: recipes by name.
    """
    return render(
        "records.html",
        styles=["page.css"],
        script="viewer.js",
        title="JLGCN, reproduced",
        sections=[
            _section(recipe, rows, figures, results) for recipe in recorded_recipes(rows, recipes)
        ],
    )


def _section(
    recipe: Recipe[Any],
    rows: Sequence[dict[str, Any]],
    figures: dict[str, Figure],
    results: Path,
) -> dict[str, Any]:
    header, *lines = filled_columns(recipe_table(recipe, rows))
    anchor = recipe.name.replace("/", "-")
    captions = {
        anchor: _BANDS if recipe.name.startswith("robustness/") else _MEANS,
        f"{anchor}-graphs": _GRAPHS,
        f"{anchor}-weights": _WEIGHTS,
        f"{anchor}-confusion": "Which classes JLGCN takes for which, of seed 0.",
        f"{anchor}-missing": _BANDS,
        f"{anchor}-curves": "Learning curves of one seed.",
    }
    return {
        "anchor": anchor,
        "name": recipe.name,
        "place": recipe.place,
        "summary": recipe.summary,
        "clouds": read_kept(results / f"{recipe.name}.weights.json").get("jlgcn"),
        "figures": [
            {
                # Wide figures scroll on a phone.
                "has_panels": len(figures[name].axes) > 1,
                "svg": _inline(figures[name], name),
                "caption": caption,
            }
            for name, caption in captions.items()
            if name in figures
        ],
        "header": header,
        "lines": lines,
        "about": recipe.about,
        "notes": recipe.left_open,
    }


def _inline(figure: Figure, name: str) -> Markup:
    """Return a figure as an SVG element, with ids that are unique on the page."""
    data = io.BytesIO()
    save(figure, data, "svg")
    svg = data.getvalue().decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(name)}" ', 1)
    return Markup(svg)  # noqa: S704, Matplotlib escapes the text in it
