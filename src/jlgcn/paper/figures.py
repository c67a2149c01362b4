"""Figures of the records: accuracies, robustness, learned graphs, learning curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from jlgcn._optional import require
from jlgcn.paper.recipe import METRICS, MISSING, Recipe
from jlgcn.paper.recipes import RECIPES
from jlgcn.paper.records import read_curves, read_kept
from jlgcn.paper.summary import recorded_recipes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]

_COLORS = {"jlgcn": "#1f5fa8", "gcn": "#d97706", "gat": "#2f855a"}
_OTHERS = ("#1f5fa8", "#d97706", "#2f855a", "#7b3fa0")
_GRAY = "#555555"

#: Reproducible files: a fixed salt for ids, and no date.
_STYLE = {"svg.hashsalt": "jlgcn", "font.size": 10, "axes.spines.top": False}
_STYLE |= {"axes.spines.right": False, "legend.frameon": False, "svg.fonttype": "path"}


def draw_all(
    rows: Sequence[Row], results: Path, recipes: Mapping[str, Recipe[Any]] = RECIPES
) -> dict[str, Figure]:
    """Return all figures of recipes with records, by name.

    Args:
        rows: rows of :func:`jlgcn.paper.summary.summarize`.
        results: folder of records, for curves and graphs.
        recipes: recipes by name.
    """
    figures = {}
    with _style():
        for recipe in recorded_recipes(rows, recipes):
            name = recipe.name.replace("/", "-")
            own = [row for row in rows if row["recipe"] == recipe.name]
            kind = recipe.name.split("/")[0]
            if kind != "figures":  # they record graphs, not accuracies
                figures[name] = (robustness if kind == "robustness" else accuracies)(recipe, own)
            is_clouds = recipe.name.startswith("clouds/")
            if is_clouds:
                figures[f"{name}-missing"] = cloud_robustness(recipe, own)
            curves = read_curves(results / f"{recipe.name}.curves.csv")
            shown = {
                v.name: curves[v.name]
                for v in recipe.variants
                if v.name in curves and recipe.name.startswith("citation/")
            }
            if shown:
                figures[f"{name}-curves"] = learning_curves(recipe, shown)
            for kept, draw_kept in _DRAW_KEPT.items():
                for variant, content in read_kept(results / f"{recipe.name}.{kept}.json").items():
                    if variant == "jlgcn" and (is_clouds or kept != "confusion"):
                        figures[f"{name}-{kept}"] = draw_kept(content)
    return figures


def save(figure: Figure, file: IO[bytes], form: str) -> None:
    """Write a figure to an open file as "svg" or "png", with reproducible bytes."""
    with _style():
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(file, format=form, dpi=150, metadata=metadata)


def accuracies(recipe: Recipe[Any], rows: Sequence[Row]) -> Figure:
    """Plot the accuracy of every variant with its interval, by protocol, and the published one."""
    rows = [row for row in rows if row["metric"] in METRICS.values()]
    names = [v.name for v in recipe.variants if any(row["variant"] == v.name for row in rows)]
    figure = _figure(7, 1.3 + 0.55 * len(names))
    axes = figure.subplots()
    for place, name in enumerate(names):
        published = recipe.variant(name).published
        if published is not None:
            axes.plot(published, place, "|", color=_GRAY, ms=18, mew=2)
        for row in rows:
            if row["variant"] == name:
                is_honest = row["protocol"] == "honest"
                _dot(axes, row, place + (0.14 if is_honest else -0.14), is_honest)
    axes.plot([], [], "o", color=_OTHERS[0], label="selected by validation, 95 % interval")
    if any(row["protocol"] == "authors" for row in rows):
        label = "best test epoch, 95 % interval"
        axes.plot([], [], "o", color=_OTHERS[0], mfc="white", label=label)
    if any(recipe.variant(name).published is not None for name in names):
        axes.plot([], [], "|", color=_GRAY, ms=12, mew=2, label="published")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="test accuracy, %", ylim=(len(names) - 0.5, -0.5))
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper left", ncols=3, fontsize=8)
    return figure


def robustness(recipe: Recipe[Any], rows: Sequence[Row]) -> Figure:
    """Plot accuracy against the missing fraction of edges or labels, with confidence bands."""
    figure = _figure(9, 4)
    panels = figure.subplots(1, 2, sharey=True, squeeze=False)
    titles = {"honest": "selected by validation", "authors": "best test epoch, as in the paper"}
    for axes, (protocol, title) in zip(panels[0], titles.items(), strict=True):
        for model, color in _COLORS.items():
            points = sorted(
                (float(row["variant"].split()[1]), row)
                for row in rows
                if row["protocol"] == protocol and row["variant"].split()[0] == model
            )
            _curve(axes, points, color, model.upper())
        if protocol == "authors":
            known = [
                (float(v.name.split()[1]), v.published)
                for v in recipe.variants
                if v.published is not None
            ]
            x, y = [share for share, _ in known], [value for _, value in known]
            axes.plot(x, y, "x", color=_GRAY, ms=8, mew=2, label="JLGCN, published", zorder=3)
        axes.set(title=title, xlabel=f"share of {recipe.name.split('/')[1]} missing")
        axes.grid(color="#dddddd")
        axes.legend(loc="lower left")
    panels[0][0].set_ylabel("test accuracy, %")
    return figure


def cloud_robustness(recipe: Recipe[Any], rows: Sequence[Row]) -> Figure:
    """Plot accuracy on clouds against the missing fraction of points, with confidence bands."""
    figure = _figure(7, 4)
    axes = figure.subplots()
    for variant, color in zip(recipe.variants, (*_OTHERS, "#be185d", "#0f766e"), strict=False):
        points = sorted(
            (float(row["metric"].split()[1]), row)
            for row in rows
            if row["variant"] == variant.name and row["metric"].startswith(MISSING)
        )
        _curve(axes, points, color, variant.name)
    axes.set(xlabel="share of points missing in test clouds", ylabel="test accuracy, %")
    axes.grid(color="#dddddd")
    axes.legend(loc="lower left")
    return figure


def learned_graphs(graphs: dict[str, list[list[float]]]) -> Figure:
    """Plot the weights among the first nodes, given and in every layer, on one log scale."""
    colors = require("matplotlib.colors", "plot", "a figure")
    largest = max(max(max(row) for row in matrix) for matrix in graphs.values())
    smallest = 1e-6
    scale = colors.LogNorm(smallest, largest)
    figure = _figure(3.4 * len(graphs) + 0.6, 3.7)
    panels = figure.subplots(1, len(graphs), squeeze=False)
    for axes, (name, matrix) in zip(panels[0], graphs.items(), strict=True):
        shown = [[max(weight, smallest) for weight in row] for row in matrix]
        image = axes.imshow(shown, norm=scale, cmap="viridis", interpolation="none")
        axes.set(title=f"{name} graph" if name == "given" else name, xlabel="node")
        axes.spines[:].set_visible(True)
    panels[0][0].set_ylabel("node")
    bar = figure.colorbar(image, ax=list(panels[0]), shrink=0.85)
    bar.set_label(f"weight (log scale; {smallest:g} or less is dark)")
    return figure


def learning_curves(recipe: Recipe[Any], curves: dict[str, list[dict[str, float]]]) -> Figure:
    """Plot loss and validation accuracy of seed 0 against the epoch."""
    figure = _figure(9, 3.4)
    panels = figure.subplots(1, 2)
    for (variant, rows), color in zip(curves.items(), _OTHERS, strict=False):
        epochs = [row["epoch"] for row in rows]
        panels[0].plot(epochs, [row["loss"] for row in rows], color=color, label=variant)
        accuracy = [100 * row["val_accuracy"] for row in rows]
        panels[1].plot(epochs, accuracy, color=color, label=variant)
    panels[0].set(xlabel="epoch", ylabel="training loss", yscale="log")
    panels[1].set(xlabel="epoch", ylabel="validation accuracy, %")
    panels[1].legend(loc="lower right")
    for axes in panels:
        axes.grid(color="#dddddd")
    figure.suptitle(f"{recipe.place}, seed 0, every tenth epoch", fontsize=10)
    return figure


def confusion(content: dict[str, Any]) -> Figure:
    """Plot a confusion matrix, normalised over each true class."""
    classes, counts = content["classes"], content["counts"]
    shares = [[count / max(1, sum(row)) for count in row] for row in counts]
    size = min(9.0, 3 + 0.28 * len(classes))
    figure = _figure(size + 0.8, size)
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="none")
    places, fontsize = range(len(classes)), 9 if len(classes) <= 20 else 5
    axes.set_xticks(places, classes, rotation=90, fontsize=fontsize)
    axes.set_yticks(places, classes, fontsize=fontsize)
    axes.set(xlabel="predicted", ylabel="true")
    figure.colorbar(image, ax=axes, shrink=0.8, label="share of the true class")
    return figure


def point_weights(clouds: list[dict[str, Any]]) -> Figure:
    """Plot clouds coloured by edge weights of one point: nearest neighbours, then every layer."""
    num_layers = len(clouds[0]["layers"])
    figure = _figure(2.6 * (num_layers + 1) + 0.8, 2.7 * len(clouds))
    panels = figure.subplots(
        len(clouds), num_layers + 1, squeeze=False, subplot_kw={"projection": "3d"}
    )
    colors = require("matplotlib.colors", "plot", "a figure")
    scale = colors.LogNorm(1e-4, 1.0)
    for row, cloud in zip(panels, clouds, strict=True):
        x, depth, height = zip(*((p[0], p[2], p[1]) for p in cloud["points"]), strict=True)
        chosen = cloud["point"]
        is_near = [1.0 if i in set(cloud["neighbors"]) else 1e-4 for i in range(len(x))]
        for axes, weights, title in zip(
            row,
            [is_near, *cloud["layers"]],
            ["nearest neighbours", *(f"layer {i + 1}" for i in range(num_layers))],
            strict=True,
        ):
            # Relative to the heaviest edge, because layers differ in their degrees.
            top = max(weights)
            shown = [max(weight / top, 1e-4) for weight in weights]
            image = axes.scatter(x, depth, height, c=shown, norm=scale, cmap="viridis", s=6)
            axes.scatter(x[chosen], depth[chosen], height[chosen], c="red", s=40, marker="*")
            axes.set_title(f"{cloud['title']}, {title}", fontsize=9)
            # Equal scales on all axes, and little margin around the unit sphere.
            axes.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1))
            axes.set_box_aspect((1, 1, 1), zoom=1.6)
            axes.set_axis_off()
    figure.colorbar(
        image, ax=list(panels[:, -1]), shrink=0.6, label="weight, relative to the heaviest (log)"
    )
    return figure


_DRAW_KEPT: dict[str, Callable[[Any], Figure]] = {
    "graphs": learned_graphs,
    "confusion": confusion,
    "weights": point_weights,
}


def _curve(axes: Axes, points: list[tuple[float, Row]], color: str, label: str) -> None:
    """Plot means against the missing fraction, with their intervals as a band."""
    if not points:
        return
    x = [share for share, _ in points]
    low, high = (
        [100 * (row["mean"] if row[end] is None else row[end]) for _, row in points]
        for end in ("low", "high")
    )
    axes.plot(x, [100 * row["mean"] for _, row in points], "o-", color=color, label=label, ms=4)
    # The Student-t interval of a few seeds may exceed the range of an accuracy.
    low, high = [max(0.0, value) for value in low], [min(100.0, value) for value in high]
    axes.fill_between(x, low, high, color=color, alpha=0.18, lw=0)


def _dot(axes: Axes, row: Row, place: float, is_honest: bool) -> None:
    color = _OTHERS[0]
    mean = 100 * row["mean"]
    if row["low"] is not None:
        axes.plot([100 * row["low"], 100 * row["high"]], [place, place], color=color, lw=1.5)
    axes.plot(mean, place, "o", color=color, mfc=color if is_honest else "white", ms=6)


def _figure(width: float, height: float) -> Figure:
    module = require("matplotlib.figure", "plot", "a figure")
    figure: Figure = module.Figure(figsize=(width, height), layout="constrained")
    return figure


def _style() -> AbstractContextManager[None]:
    context: AbstractContextManager[None] = require("matplotlib", "plot", "a figure").rc_context(
        _STYLE
    )
    return context
