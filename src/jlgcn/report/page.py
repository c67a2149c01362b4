"""One page with everything: tables, figures, what the paper leaves open. It needs no network."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup, escape

from jlgcn._files import replacing, write_file
from jlgcn.recipes import Recipe
from jlgcn.report.figures import draw_all, save
from jlgcn.report.render import render
from jlgcn.report.summary import recorded_recipes
from jlgcn.report.tables import filled_columns, recipe_table, recorded_tables, rows_as_csv
from jlgcn.train.result import read_kept

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CAPTIONS = {
    "citation": "Means with 95 % intervals.",
    "robustness": "Bands are 95 % intervals over seeds.",
    "ablation": "Means with 95 % intervals.",
    "clouds": "Means with 95 % intervals.",
    "claims": "Means with 95 % intervals.",
}
_GRAPHS = "All panels share one logarithmic scale; rows and columns are the first nodes."
_FORMS: tuple[Literal["svg", "png"], ...] = ("svg", "png")
_WEIGHTS = "The star is the chosen point; the other points are coloured by the weight of its edge."


def write_report(rows: Sequence[dict[str, Any]], results: Path, out: Path) -> Path:
    """Write the page, every table (Markdown, CSV) and every figure (SVG, PNG); return the page.

    Args:
        rows: rows of :func:`jlgcn.report.summarize`.
        results: folder of the records, for curves and graphs.
        out: folder to write into.
    """
    out.mkdir(parents=True, exist_ok=True)
    write_file(out / "results.csv", rows_as_csv(rows))
    for name, table in recorded_tables(rows).items():  # the overview among them
        write_file(out / f"{name.replace('/', '-')}.md", table + "\n")
    figures = draw_all(rows, results)
    for name, figure in figures.items():
        for form in _FORMS:
            with replacing(out / f"{name}.{form}") as file:
                save(figure, file, form)
    return write_file(out / "index.html", page(rows, figures, results))


def page(rows: Sequence[dict[str, Any]], figures: dict[str, Figure], results: Path) -> str:
    """Return a self-contained HTML page.

    Args:
        rows: rows of :func:`jlgcn.report.summarize`.
        figures: figures of :func:`jlgcn.report.figures.draw_all`.
        results: folder of the records, for clouds to turn.
    """
    sections = [_section(recipe, rows, figures, results) for recipe in recorded_recipes(rows)]
    return render(
        "records.html",
        styles=["page.css"],
        script="viewer.js",
        title="JLGCN, reproduced",
        sections=sections,
    )


def _section(
    recipe: Recipe[Any],
    rows: Sequence[dict[str, Any]],
    figures: dict[str, Figure],
    results: Path,
) -> dict[str, Any]:
    header, *lines = filled_columns(recipe_table(recipe, rows))
    anchor, is_claim = _anchor(recipe), recipe.name.startswith("claims/")
    captions = {
        anchor: _CAPTIONS.get(recipe.name.split("/")[0], ""),
        f"{anchor}-graphs": _GRAPHS,
        f"{anchor}-weights": _WEIGHTS,
        f"{anchor}-confusion": "Which classes JLGCN takes for which, of seed 0.",
        f"{anchor}-missing": "Bands are 95 % intervals over seeds.",
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
                # Figures of several panels are too wide for a phone.
                "has_panels": len(figures[name].axes) > 1,
                "svg": _inline(figures[name], name),
                "caption": caption,
            }
            for name, caption in captions.items()
            if name in figures
        ],
        "header": header,
        "lines": lines,
        "about": "How it is measured"
        if is_claim
        else "What the paper leaves open here, and what was chosen",
        "notes": recipe.left_open,
    }


def _anchor(recipe: Recipe[Any]) -> str:
    return recipe.name.replace("/", "-")


def _inline(figure: Figure, name: str) -> Markup:
    """Return a figure as an SVG element whose names do not clash with those of the others."""
    data = io.BytesIO()
    save(figure, data, "svg")
    svg = data.getvalue().decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(name)}" ', 1)
    return Markup(svg)  # noqa: S704, Matplotlib escapes the text in it
