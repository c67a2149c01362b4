"""Tables and picture of the suite: means, regret, gains over logistic regression, calibration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.suite.data import AT_WORK, LABELS, SHARE
from evaluation.suite.methods import GRAPH_ALONE, METHODS, WITH_GRAPH
from evaluation.suite.run import CONFIDENCE_BINS, RESULTS
from jlgcn._stats import mean_and_interval
from jlgcn.paper.records import read_lines
from jlgcn.paper.tables import markdown

OURS, BASE = "jlgcn", "logistic regression"
_UNBALANCED = ("abalone19", "ecoli3", "glass6", "new-thyroid1", "winequality-red-4")
_NUM_BINS = 10
_SIMULATIONS = 200

Line = dict[str, Any]
Cell = tuple[str, int | str]  # data set, label budget


class Gain(NamedTuple):
    """Points by which ours is ahead of logistic regression, with a paired 95 % interval."""

    cell: Cell
    mean: float
    low: float | None
    high: float | None


def suite_lines(folder: Path = RESULTS) -> list[Line]:
    """Return the lines of all data sets."""
    return [line for path in sorted(folder.glob("*.jsonl")) for line in read_lines(path)]


def suite_tables(folder: Path = RESULTS) -> dict[str, str]:
    """Return the tables of the suite as Markdown by name; none without lines."""
    lines = suite_lines(folder)
    if not lines:
        return {}
    return {
        "suite/methods": methods_table(lines),
        "suite/graphs": methods_table(lines, with_graph=True),
        "suite/packages": packages_table(lines),
        "suite/texts": texts_table(lines),
        "suite/metric": metric_table(lines),
        "suite/gains": gains_table(lines),
        "suite/calibration": calibration_table(lines),
    }


def score(line: Line) -> float:
    """Return the accuracy of a line in percent; of unbalanced tables the balanced accuracy."""
    return 100 * float(line["balanced" if line["data"] in _UNBALANCED else "accuracy"])


def cells(lines: Iterable[Line]) -> dict[Cell, dict[str, dict[int, float]]]:
    """Return scores by data set and label budget, then by method, then by draw."""
    found: dict[Cell, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        found[line["data"], line["labels"]][line["method"]][line["draw"]] = score(line)
    return found


def methods_table(lines: Sequence[Line], *, with_graph: bool = False) -> str:
    """Return mean score and regret of every method over data sets and label budgets.

    The regret of a method in a cell is how far its mean over draws is behind that of the best
    method of the cell, known with hindsight. Only cells that all methods finished count.
    """
    known = METHODS | WITH_GRAPH
    found = cells(
        line
        for line in lines
        if (line["kind"] == "graph") == with_graph
        and line["method"] in known
        and line["labels"] != AT_WORK
    )
    names = sorted({name for scores in found.values() for name in scores})
    whole = {
        cell: {name: float(np.mean(list(scores[name].values()))) for name in names}
        for cell, scores in found.items()
        if len(scores) == len(names) and len({len(each) for each in scores.values()}) == 1
    }
    budgets = [budget for budget in (*LABELS, SHARE) if any(cell[1] == budget for cell in whole)]
    rows = []
    for name in names:
        means = [own[name] for own in whole.values()]
        regrets = [max(own.values()) - own[name] for own in whole.values()]
        by_budget = (
            np.mean([own[name] for cell, own in whole.items() if cell[1] == budget])
            for budget in budgets
        )
        row = [name, f"{np.mean(means):.1f}", *(f"{mean:.1f}" for mean in by_budget)]
        rows.append([*row, f"{np.mean(regrets):.1f}", f"{np.max(regrets):.1f}"])
    rows.sort(key=lambda row: -float(row[1]))
    heads = (f"{budget} labels a class" if budget != SHARE else "1 % of rows" for budget in budgets)
    return markdown([["method", "mean", *heads, "mean regret", "largest regret"], *rows])


def gains(lines: Sequence[Line]) -> list[Gain]:
    """Return the gain over logistic regression of every cell, paired by draw."""
    found = []
    for cell, scores in cells(lines).items():
        if ahead := _ahead(scores, OURS, BASE):
            own = mean_and_interval(ahead)
            found.append(Gain(cell, own["mean"], own["low"], own["high"]))
    return found


def gains_table(lines: Sequence[Line]) -> str:
    """Return the gain over logistic regression by data set and label budget."""
    found: dict[str, dict[int | str, str]] = defaultdict(dict)
    for (name, budget), scores in cells(lines).items():
        if budget != AT_WORK:
            found[name][budget] = _with_interval(_ahead(scores, OURS, BASE))
    budgets = (*LABELS, SHARE)
    rows = [[name, *(own.get(budget, "") for budget in budgets)] for name, own in found.items()]
    head = ["data set", "2 labels a class", "5 labels a class", "20 labels a class", "1 % of rows"]
    return markdown([head, *rows])


def packages_table(lines: Sequence[Line]) -> str:
    """Return accuracies on all packages, with 500 labels, and how far ahead ours is, paired."""
    found = cells(line for line in lines if line["labels"] == AT_WORK)
    names = sorted({name for scores in found.values() for name in scores})
    rows = []
    for name in names:
        row = [name]
        for scores in found.values():
            row += [_with_interval(list(scores[name].values()), signed=False)]
            row += ["" if name == OURS else _with_interval(_ahead(scores, OURS, name))]
        rows.append(row)
    heads = (head for data, _ in found for head in (data, "jlgcn ahead by"))
    return markdown([["method", *heads], *rows])


def texts_table(lines: Sequence[Line]) -> str:
    """Return accuracies on newsgroups, by embeddings and by words, and how far ours is ahead."""
    names = {"newsgroups": "MiniLM embeddings", "newsgroups, words": "tf-idf"}
    rivals = (BASE, "label spreading", "Poisson learning")
    rows = []
    for (name, budget), scores in cells(lines).items():
        if name in names:
            rows.append([names[name], str(budget), f"{np.mean(list(scores[OURS].values())):.1f}"])
            for rival in rivals:
                mean = np.mean(list(scores[rival].values()))
                rows[-1].append(f"{mean:.1f}: {_with_interval(_ahead(scores, OURS, rival))}")
            rows[-1].append(str(len(scores[OURS])))
    head = ["features", "labels a class", OURS, *(f"{rival}: ahead by" for rival in rivals)]
    return markdown([[*head, "draws"], *rows])


def metric_table(lines: Sequence[Line]) -> str:
    """Return what the learned graph is worth over the fixed kNN graph and over simple rivals."""
    learned, fixed = GRAPH_ALONE
    rows = []
    for (name, budget), scores in cells(lines).items():
        if learned in scores and fixed in scores:
            row = [name, str(budget), f"{np.mean(list(scores[learned].values())):.1f}"]
            row.append(_with_interval(_ahead(scores, learned, fixed)))
            for ours in (learned, OURS):
                row.append(_with_interval(_ahead(scores, ours, "PageRank features")))
            rows.append(row)
    head = ["data set", "labels a class", "learned graph alone", "over the fixed graph"]
    head += ["over PageRank features", "whole estimator over PageRank features"]
    return markdown([head, *rows])


def _ahead(scores: dict[str, dict[int, float]], ours: str, other: str) -> list[float]:
    """Return differences by draw, for the draws that both methods have."""
    common = sorted(scores[ours].keys() & scores[other].keys())
    return [scores[ours][draw] - scores[other][draw] for draw in common]


def _with_interval(values: list[float], *, signed: bool = True) -> str:
    if not values:
        return ""
    own = mean_and_interval(values)
    form = "+.1f" if signed else ".1f"
    interval = "" if own["low"] is None else f" ({own['low']:{form}} to {own['high']:{form}})"
    return f"{own['mean']:{form}}{interval}"


def calibration_table(lines: Sequence[Line]) -> str:
    """Return calibration errors at 5 and 20 labels a class, in excess of a perfect model's."""
    columns = [(method, budget) for method in (OURS, BASE) for budget in (5, 20)]
    excess: dict[str, list[float | None]] = {}
    for name in dict.fromkeys(line["data"] for line in lines):
        excess[name] = []
        for method, budget in columns:
            key = {"data": name, "labels": budget, "method": method}
            own = [line for line in lines if key.items() <= line.items()]
            excess[name].append(excess_error(own) if own else None)
    rows = [
        [name, *("" if value is None else f"{value:.3f}" for value in values)]
        for name, values in excess.items()
    ]
    for title, summary in (("mean", np.mean), ("largest", np.max)):
        by_column = zip(*excess.values(), strict=True)
        found = ([value for value in column if value is not None] for column in by_column)
        rows.append(
            [f"**{title}**", *(f"**{summary(each):.3f}**" if each else "" for each in found)]
        )
    return markdown([["data set", *(f"{method}, {budget}" for method, budget in columns)], *rows])


def excess_error(lines: Sequence[Line]) -> float:
    """Return the expected calibration error pooled over draws, minus that of a perfect model.

    Ten bins of equal mass (merged from finer ones); the perfect model is right as often as it
    says, simulated with the same confidences.
    """
    bins = np.zeros((CONFIDENCE_BINS, 3))
    for line in lines:
        for number, *values in line["confidence"]:
            bins[int(number)] += values
    count, right, confidence = bins[bins[:, 0] > 0].T
    place = np.minimum(_NUM_BINS * (count.cumsum() - count / 2) / count.sum(), _NUM_BINS - 1)
    generator = np.random.default_rng(0)
    perfect = [
        _error(place, count, generator.binomial(count.astype(int), confidence / count), confidence)
        for _ in range(_SIMULATIONS)
    ]
    return _error(place, count, right, confidence) - float(np.mean(perfect))


def _error(
    place: NDArray[np.float64],
    count: NDArray[np.float64],
    right: NDArray[Any],
    confidence: NDArray[np.float64],
) -> float:
    gap = np.bincount(place.astype(int), right - confidence, minlength=_NUM_BINS)
    return float(np.abs(gap).sum() / count.sum())


def draw_gains(lines: Sequence[Line], path: Path) -> Path:
    """Draw the gain over logistic regression, data set by data set, with intervals."""
    from matplotlib import pyplot

    found = gains(lines)
    best = {gain.cell[0]: gain.mean for gain in found if gain.cell[1] == 5}
    names = sorted(best, key=best.__getitem__)
    figure, axes = pyplot.subplots(1, 3, figsize=(10, 0.22 * len(names) + 1.2), sharey=True)
    for axis, budget in zip(axes, LABELS, strict=True):
        own = {gain.cell[0]: gain for gain in found if gain.cell[1] == budget}
        for place, name in enumerate(names):
            if name not in own or own[name].low is None:
                continue
            gain = own[name]
            is_behind = gain.high is not None and gain.high < 0
            color = "tab:red" if is_behind else "tab:blue"
            axis.plot([gain.low, gain.high], [place, place], color=color, linewidth=1.5)
            axis.plot([gain.mean], [place], "o", color=color, markersize=4)
        axis.axvline(0, color="gray", linewidth=0.8)
        axis.set_title(f"{budget} labels a class", fontsize=10)
        axis.set_xlabel("points")
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(names)), names, fontsize=8)
    figure.suptitle("Gain over logistic regression, 95 % intervals over draws", fontsize=11)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
