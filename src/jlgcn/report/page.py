"""One page with everything: tables, figures, what the paper leaves open. It needs no network."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jlgcn._files import replacing, write_file
from jlgcn.recipes import Recipe
from jlgcn.report.figures import draw_all, save
from jlgcn.report.summary import recorded_recipes
from jlgcn.report.tables import filled_columns, recipe_table, recorded_tables, rows_as_csv
from jlgcn.report.viewer import SCRIPT, viewer
from jlgcn.train.result import read_kept

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Of every page.
STYLE = """
:root { color-scheme: light; --line: #d8dde3; --ink: #1d2733; --soft: #5b6876; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem 1.2rem 4rem; color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; background: #fff; }
h1 { font-size: 1.7rem; margin: 1rem 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .3rem; border-top: 1px solid var(--line);
  padding-top: 1.4rem; }
p, li { max-width: 46rem; }
.soft { color: var(--soft); }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: 1rem 0; font-size: .95rem; }
a { color: #1f5fa8; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .8rem 0; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { font-weight: 600; }
figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; display: block; }
.viewer canvas { width: 100%; max-width: 45rem; border: 1px solid var(--line); cursor: grab;
  touch-action: none; }
.viewer label { margin-right: 1rem; }
figcaption, details { color: var(--soft); font-size: .92rem; max-width: 46rem; }
summary { cursor: pointer; }
@media (max-width: 40rem) {
  figure.panels { overflow-x: auto; }  /* slides sideways, and its letters can be read */
  figure.panels svg { max-width: none; width: 36rem; }
  th, td { white-space: normal; font-size: .85rem; padding-right: .5rem; }
}
"""

_CAPTIONS = {
    "citation": "Means with 95 % intervals.",
    "robustness": "Bands are 95 % intervals over seeds.",
    "ablation": "Means with 95 % intervals.",
    "clouds": "Means with 95 % intervals.",
    "claims": "Means with 95 % intervals.",
}
_GRAPHS = "All panels share one logarithmic scale; rows and columns are the first nodes."
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
        for form in ("svg", "png"):
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
    recipes = recorded_recipes(rows)
    links = "\n".join(
        f'<a href="#{_anchor(recipe)}">{html.escape(recipe.place)}</a>' for recipe in recipes
    )
    sections = "\n".join(_section(recipe, rows, figures, results) for recipe in recipes)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>JLGCN, reproduced</title>
<style>{STYLE}</style>
</head>
<body>
<h1>JLGCN, reproduced</h1>
<p>The paper's tables and figures on citation networks, from the recorded runs of this package.
<b>Selected by validation</b> is the accuracy on test nodes of the epoch that validation selected,
looked at once. <b>Best test epoch</b> is what the paper's authors report: the best of all epochs on
the test nodes, which nobody can know in advance; it is here to compare with the published figures.
</p>
<nav>
{links}
</nav>
{sections}
{SCRIPT}</body>
</html>
"""


def _section(
    recipe: Recipe[Any],
    rows: Sequence[dict[str, Any]],
    figures: dict[str, Figure],
    results: Path,
) -> str:
    header, *lines = filled_columns(recipe_table(recipe, rows))
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>"
        for line in lines
    )
    pictures = "\n".join(
        f"<figure{_kind(figures[name])}>{_inline(figures[name], name)}"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        for name, caption in (
            (_anchor(recipe), _CAPTIONS.get(recipe.name.split("/")[0], "")),
            (f"{_anchor(recipe)}-graphs", _GRAPHS),
            (f"{_anchor(recipe)}-weights", _WEIGHTS),
            (f"{_anchor(recipe)}-confusion", "Which classes JLGCN takes for which, of seed 0."),
            (f"{_anchor(recipe)}-missing", "Bands are 95 % intervals over seeds."),
            (f"{_anchor(recipe)}-curves", "Learning curves of one seed."),
        )
        if name in figures
    )
    notes = "\n".join(f"<li>{html.escape(note)}</li>" for note in recipe.left_open)
    clouds = read_kept(results / f"{recipe.name}.weights.json").get("jlgcn")
    is_claim = recipe.name.startswith("claims/")
    about = (
        "How it is measured" if is_claim else "What the paper leaves open here, and what was chosen"
    )
    turning = "" if clouds is None else viewer(f"{_anchor(recipe)}-viewer", clouds)
    return f"""<h2 id="{_anchor(recipe)}">{html.escape(recipe.place)}</h2>
<p>{html.escape(recipe.summary)}. <span class="soft">jlgcn run {html.escape(recipe.name)}</span></p>
{turning}
{pictures}
<div class="wide"><table><thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody></table></div>
<details><summary>{about}</summary><ul>
{notes}
</ul></details>"""


def _anchor(recipe: Recipe[Any]) -> str:
    return recipe.name.replace("/", "-")


def _kind(figure: Figure) -> str:
    """Return the class of a figure of several panels, which are too wide for a phone."""
    return ' class="panels"' if len(figure.axes) > 1 else ""


def _inline(figure: Figure, name: str) -> str:
    """Return a figure as an SVG element whose names do not clash with those of the others."""
    data = io.BytesIO()
    save(figure, data, "svg")
    svg = data.getvalue().decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(name)}" ', 1)
