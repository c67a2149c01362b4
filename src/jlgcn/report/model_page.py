"""One page about a fitted model: what it found, how far to trust it, its graph to look at."""

from __future__ import annotations

import base64
import hashlib
import html
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from jlgcn._files import write_file
from jlgcn.comparison import Comparison
from jlgcn.estimator import JLGCNClassifier
from jlgcn.graphs import SparseGraph
from jlgcn.report.graph_view import (
    COLORS,
    GRAPH_HTML,
    OTHER_COLOR,
    class_colors,
    graph_script,
    graph_view,
)
from jlgcn.report.held_out import HeldOut, compare_again, held_out
from jlgcn.report.page import STYLE
from jlgcn.report.viewer import script_json
from jlgcn.train.result import mean_and_interval

_FEATURES = 20
_CLASSES = 50  # that have a line in the table
_KERNEL = {False: "linear", True: "with a kernel"}
_SEEN = {
    "leveled": "spread features",
    "unit": "directions of spread features",
    "unit with own": "directions of spread and own features",
    "unit with own and neighbors": "directions of spread, own and neighbours' features",
}
_SCALED = {"words": "weighted as words", "table": "scaled as a table", "none": "as they came"}


def write_model_page(
    model: JLGCNClassifier,
    path: str | Path,
    *,
    name: str = "model",
    ids: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    folds: int | None = None,
    compares: bool = False,
    progress: bool = False,
) -> HeldOut | None:
    """Write one HTML page about a fitted model, which needs no network, and return its scores.

    Args:
        model: a fitted estimator.
        path: the file; its folder is made if need be.
        name: what the page calls the model.
        ids: names of its rows; their numbers if not given.
        feature_names: names of its features; its own, or x0, x1, … if not given.
        folds: how labels are hidden for the scores, see
            :func:`jlgcn.report.held_out.held_out`.
        compares: also run :func:`jlgcn.compare` on the model's own rows.
        progress: show bars.

    Cost: that of :func:`jlgcn.report.held_out.held_out`, by default five fits, and of
    :func:`jlgcn.report.graph_view.graph_view`; 40 to 60 fits more with `compares`.

    Example:
        >>> import tempfile
        >>> from sklearn.datasets import load_wine
        >>> model = JLGCNClassifier().fit(*load_wine(return_X_y=True))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     scores = write_model_page(model, Path(folder) / "wine.html", folds=0)
        >>> scores.accuracy > 0.9
        True
    """
    check_is_fitted(model, "model_")
    num_rows, num_features = len(model.transduction_), model.n_features_in_
    names = feature_names
    if names is None:
        names = getattr(model, "feature_names_in_", [f"x{k}" for k in range(num_features)])
    ids = [str(i) for i in range(num_rows)] if ids is None else ids
    for what, found, size in (("ids", ids, num_rows), ("feature_names", names, num_features)):
        if len(found) != size:
            raise ValueError(f"{what} must have {size:,} names, but it has {len(found):,}")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    comparison = compare_again(model, progress=progress) if compares else None
    scores = held_out(model, folds=folds, progress=progress)
    view = graph_view(model, ids, names, progress=progress)
    text = _page(model, name, names, scores, view, comparison)
    write_file(path, text)
    return scores


def _page(
    model: JLGCNClassifier,
    name: str,
    feature_names: Sequence[str],
    scores: HeldOut | None,
    view: dict[str, Any],
    comparison: Comparison | None,
) -> str:
    own_style = resources.files("jlgcn.report").joinpath("model_page.css").read_text("utf-8")
    script = f"\n{graph_script()}"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The page may load nothing, and run this one script only.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    title = html.escape(name)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{STYLE}{own_style}</style>
</head>
<body>
<h1>{title}</h1>
{_head(model)}
<h2>How often it is right</h2>
{_scores(model, scores)}
<h2>The graph</h2>
{_graph(model, view)}
<h2>Features that matter</h2>
{_features(model, feature_names)}
<h2>Does the graph help?</h2>
{_comparison(comparison)}
<script>{script}</script>
</body>
</html>
"""


def _head(model: JLGCNClassifier) -> str:
    fitted, choice = model.model_, model.choice_
    given = fitted.candidates.given
    facts = [
        ("rows", f"{len(model.transduction_):,}", ""),
        ("features", f"{model.n_features_in_:,}", _SCALED[model.scaler_.kind]),
        ("classes", f"{len(model.classes_):,}", ""),
        ("labelled rows", f"{len(fitted.train):,}", ""),
        ("learned edges", f"{_num_edges(fitted.layers[-1].learned):,}", ""),
        ("given edges", "none" if given is None else f"{_num_edges(given):,}", ""),
        ("neighbours of a row", f"{choice.num_neighbors}", _chosen(model.n_neighbors)),
        ("restart of the walk", f"{choice.restart:g}", _chosen(model.restart)),
        ("classifier", _KERNEL[choice.kernel_decay > 0], _chosen(None)),
        ("which sees", _SEEN[choice.inputs], _chosen(None)),
    ]
    if given is not None:  # nothing to choose where all edges are learned ones
        degree, decay = f"{choice.learned_degree:g}", f"{choice.given_decay:g}"
        facts.append(("weight of learned edges", degree, _chosen(model.learned_degree)))
        facts.append(("decay of given edges", decay, _chosen(model.given_decay)))
    items = "\n".join(
        f"<div><dt>{label}</dt><dd>{value}<small>{note}</small></dd></div>"
        for label, value, note in facts
    )
    losses = [entry["loss"] for entry in model.history_]
    head = "".join(f'<th class="number">{k + 1}</th>' for k in range(len(losses)))
    body = "".join(f'<td class="number">{loss:.3f}</td>' for loss in losses)
    return f"""<dl class="facts">
{items}
</dl>
<div class="wide"><table><tbody><tr><th>layer</th>{head}</tr>
<tr><td>loss</td>{body}</tr></tbody></table></div>
<p class="soft">The loss is the cross-entropy of each label, predicted by all others. The first
layer joins rows by their features alone; every further one by a metric that it learned from the
classes of the one before. The smaller the restart, the farther a row looks.{_weights(given)}</p>"""


def _weights(given: SparseGraph | None) -> str:
    if given is None:
        return ""
    return (
        " The weight of learned edges is what all of a row come to on average, where a given edge "
        "weighs 1."
    )


def _num_edges(graph: SparseGraph) -> int:
    row, col = graph.edge_index
    return int((row < col).sum())


def _chosen(setting: float | None) -> str:
    return "the labels chose it" if setting is None else "it was set"


def _scores(model: JLGCNClassifier, scores: HeldOut | None) -> str:
    if scores is None:
        return (
            "<p>There is one label only. Label more rows: without a second, none can be hidden.</p>"
        )
    counts = np.bincount(scores.label, minlength=len(model.classes_))
    low, high = _wilson(scores.accuracy, len(scores.label))
    if scores.num_folds:
        how = (
            f"Labels were hidden in {scores.num_folds} parts, one after another, and the model was "
            "fitted again without each part: graph, metric and choices too. The scores are of what "
            "it said of the hidden ones. The model itself learned from all labels, more than any "
            "of these fits."
        )
    else:
        how = (
            "Each label was predicted by all others in the last layer. The graph and the metric of "
            "that layer did see it, so the scores are slightly optimistic. To hide labels from "
            "those too: <code>jlgcn report MODEL --folds 5</code>."
        )
    single = int((counts == 1).sum())
    if single:
        how += (
            f" {single} of the classes {'has' if single == 1 else 'have'} a single label, which "
            "nothing can predict once it is hidden."
        )
    facts = [
        (
            "accuracy",
            f"{100 * scores.accuracy:.1f} %",
            f"95 %: {100 * low:.1f} to {100 * high:.1f}",
        ),
        ("macro-F1", f"{100 * scores.macro_f1:.1f} %", "mean over classes"),
        ("calibration error", f"{100 * scores.calibration_error:.1f} %", "0 is best"),
        ("commonest class", f"{100 * counts.max() / counts.sum():.1f} %", "if always answered"),
    ]
    items = "\n".join(
        f"<div><dt>{label}</dt><dd>{value}<small>{note}</small></dd></div>"
        for label, value, note in facts
    )
    return f"""<p>On the {len(scores.label):,} labels, each predicted by others, not by itself:</p>
<dl class="facts">
{items}
</dl>
<p class="soft">{how}</p>
<h3>Class by class</h3>
{_class_table(model, scores, counts)}
<h3>Can its probabilities be believed?</h3>
<figure class="reliability">{_reliability(scores)}
<figcaption>Predictions by tenths of probability: each dot is a tenth, larger where there are more.
On the diagonal, a probability of 0.8 is right in 80 of 100 cases; above it, the model is right
more often than it says. The expected calibration error is the mean distance from
it.</figcaption></figure>"""


def _class_table(model: JLGCNClassifier, scores: HeldOut, counts: NDArray[np.int64]) -> str:
    codes = np.argsort(-counts, kind="stable")[:_CLASSES]
    codes = np.sort(codes[counts[codes] > 0])
    rows = np.bincount(model.label_distributions_.argmax(-1), minlength=len(counts))
    lines = []
    for code, f1 in zip(codes, scores.f1(codes), strict=True):
        right = int(((scores.predicted == code) & (scores.label == code)).sum())
        cells = (f"{counts[code]:,}", f"{right:,}", f"{100 * f1:.1f} %", f"{rows[code]:,}")
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        lines.append(f"<tr><td>{html.escape(str(model.classes_[code]))}</td>{numbers}</tr>")
    titles = ("labels", "of these right", "F1", "rows taken for it")
    head = "".join(f'<th class="number">{title}</th>' for title in titles)
    rest = len(model.classes_) - len(codes)
    more = f'<p class="soft">{rest:,} classes with fewer labels are not listed.</p>' if rest else ""
    return (
        f'<div class="wide"><table><thead><tr><th>class</th>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + f"\n</tbody></table></div>{more}"
    )


def _reliability(scores: HeldOut) -> str:
    """Return a reliability diagram as SVG, in colours of the page."""
    left, top, size = 46, 10, 270
    line = 'stroke="var(--line)" stroke-width="1"'
    parts = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x, y = left + size * tick, top + size * (1 - tick)
        parts.append(f'<path d="M{left} {y}h{size}M{x} {top}v{size}" {line}/>')
        parts.append(f'<text x="{x}" y="{top + size + 16}" text-anchor="middle">{tick:g}</text>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
    parts.append(
        f'<path d="M{left} {top + size}L{left + size} {top}" stroke="var(--soft)" '
        'stroke-width="1.5" stroke-dasharray="5 4"/>'
    )
    for number, sure, right in scores.bins():
        x, y = left + size * sure, top + size * (1 - right)
        radius = 3 + 9 * math.sqrt(number / len(scores.label))
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="var(--accent)" '
            f'fill-opacity=".8"><title>{number:,} labels: probability {sure:.2f}, right '
            f"{right:.2f}</title></circle>"
        )
    bottom, middle = top + size + 36, top + size / 2
    parts.append(
        f'<text x="{left + size / 2}" y="{bottom}" text-anchor="middle">probability</text>'
        f'<text transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">share that is '
        "right</text>"
    )
    return (
        '<svg role="img" aria-label="reliability diagram" viewBox="0 0 330 322">\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


def _graph(model: JLGCNClassifier, view: dict[str, Any]) -> str:
    num_rows, drawn = len(model.transduction_), len(view["row"]["id"])
    colors = class_colors(model)
    marks = [
        f'<li><span class="mark" style="background:{color}"></span>{html.escape(str(name))}</li>'
        for name, color in zip(model.classes_, colors, strict=True)
        if color != OTHER_COLOR
    ]
    if len(colors) > len(COLORS):
        marks.append(
            f'<li><span class="mark" style="background:{OTHER_COLOR}"></span>'
            f"{len(colors) - len(COLORS)} other classes</li>"
        )
    marks.append('<li><span class="mark ring"></span>labelled</li>')
    part = (
        f"All {num_rows:,} rows are drawn."
        if drawn == num_rows
        else f"Of {num_rows:,} rows {drawn:,} are drawn: labelled ones, and those they are joined "
        "with most."
    )
    given = (
        "." if model.model_.candidates.given is None else ", learned ones gray, given ones orange."
    )
    return f"""<p>{part} Colours are the classes that the model gives them. Rows that are joined lie
near each other; the axes mean nothing. Drawn are the heaviest edges of each row{given} Drag to
move, turn the wheel or pinch to zoom.</p>
<ul class="legend">
{"".join(marks)}
</ul>
{GRAPH_HTML.replace("DATA", script_json(view))}"""


def _features(model: JLGCNClassifier, names: Sequence[str]) -> str:
    added = model.model_.feature_importance()
    order = added.argsort(descending=True, stable=True)[:_FEATURES].tolist()
    mean, most = float(added.sum()), max(float(added.max()), 1e-300)
    bars = "\n".join(
        f'<div class="bar"><span class="name" title="{html.escape(str(names[k]))}">'
        f'{html.escape(str(names[k]))}</span><span class="track"><span class="fill" '
        f'style="width:{100 * max(0.0, float(added[k])) / most:.1f}%"></span></span>'
        f'<span class="value">{float(added[k]):.3g}</span></div>'
        for k in order
    )
    return f"""<p>What each feature adds to the squared distance of two rows, on average over all
pairs; together they come to {mean:.3g}. The {len(order)} largest of {len(added):,}:</p>
{bars}"""


def _comparison(comparison: Comparison | None) -> str:
    if comparison is None:
        return """<p>This page was written without the answer. It takes some fifty fits, with half
of the labels hidden each time: <code>jlgcn report MODEL --compare</code>, or
<code>jlgcn.compare(X, y, graph)</code> in Python.</p>"""
    lines = []
    for way, values in comparison.accuracy.items():
        row = mean_and_interval(values)
        low, high = max(0.0, row["low"]), min(1.0, row["high"])
        cells = (f"{100 * row['mean']:.1f} %", f"{100 * low:.1f} to {100 * high:.1f}")
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        lines.append(f"<tr><td>{html.escape(way)}</td>{numbers}</tr>")
    splits = len(next(iter(comparison.accuracy.values())))
    return f"""<p><b>{html.escape(comparison.advice)}</b></p>
<div class="wide"><table><thead><tr><th>way</th><th class="number">accuracy</th>
<th class="number">95 % interval</th></tr></thead>
<tbody>
{chr(10).join(lines)}
</tbody></table></div>
<p class="soft">Half of the labels were hidden {splits} times. The learned graph whose places went
to other rows, and the one without a metric, show what it is that helps.</p>"""


def _wilson(share: float, number: int) -> tuple[float, float]:
    """Return a 95 % interval of a share, which stays between 0 and 1 (Wilson, 1927)."""
    z = 1.96
    middle = (share + z**2 / (2 * number)) / (1 + z**2 / number)
    spread = z * math.sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    spread /= 1 + z**2 / number
    return max(0.0, middle - spread), min(1.0, middle + spread)
