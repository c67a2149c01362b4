"""Tables of the final evaluation: gains over the best rival and peer, all methods, costs."""

from __future__ import annotations

import io
import itertools
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.final.methods import is_random
from evaluation.final.rows import GROUPS, Row, rows
from evaluation.final.run import RESULTS
from evaluation.final.sealed import FREEZE
from evaluation.paired import ahead
from jlgcn._files import write_file
from jlgcn._stats import mean_and_interval
from jlgcn.paper.records import read_lines
from jlgcn.paper.tables import markdown

OURS, VALIDATED = "closed form", "closed form, validation"
NETWORKS = ("JLGCN", "DecoupledJLGCN")
CONTROLS = (
    *("fixed kNN graph", "random metric", "shuffled graph"),
    *("given graph alone", "learned graph alone"),
)

# Splits of a row with more that a method must have to be compared: as many as peers have.
_FEWEST_SPLITS = 3

Line = dict[str, Any]
Lines = dict[str, list[Line]]  # by method


def final_lines(folder: Path = RESULTS) -> dict[str, Lines]:
    """Return the results of the latest freeze by row, then by method."""
    found: dict[str, Lines] = {}
    for name in rows():
        by_method: Lines = defaultdict(list)
        for line in read_lines(folder / f"{name}.jsonl"):
            if "accuracy" in line and line["freeze"] == FREEZE:
                by_method[line["method"]].append(line)
        if by_method:
            found[name] = dict(by_method)
    return found


def final_tables(folder: Path = RESULTS) -> dict[str, str]:
    """Return all tables as Markdown by name; none without results."""
    found = final_lines(folder)
    if not found:
        return {}
    return {
        "final/first": first_table(found),
        "final/gains": gains_table(found),
        "final/groups": groups_table(found),
        "final/controls": controls_table(found),
        "final/methods": methods_table(found),
        "final/cost": cost_table(found),
    }


def main_method(lines: Lines) -> str:
    """Return the mode of the closed form that is compared: with validation, where there is one."""
    return VALIDATED if VALIDATED in lines else OURS


def best_other(lines: Lines) -> str | None:
    """Return the rival or peer of highest mean accuracy, chosen with hindsight.

    Each is compared with ours on the splits that both have: peers have fewer.
    """
    own = (OURS, VALIDATED, *NETWORKS, *CONTROLS)
    others = [name for name in lines if name not in own]
    ours = _by_split(lines[main_method(lines)]) if main_method(lines) in lines else {}

    def behind(name: str) -> float:
        theirs = _by_split(lines[name])
        common = ours.keys() & theirs.keys()
        if not ours:
            return -mean(lines[name])
        if len(common) < min(_FEWEST_SPLITS, len(ours)):
            return float("inf")  # one that was begun
        return float(np.mean([ours[split] - theirs[split] for split in common]))

    return min(others, key=behind) if others else None


def _by_split(lines: Sequence[Line]) -> dict[int, float]:
    found: dict[int, list[float]] = defaultdict(list)
    for line in lines:
        found[line["split"]].append(line["accuracy"])
    return {split: float(np.mean(values)) for split, values in found.items()}


def mean(lines: Sequence[Line]) -> float:
    """Return the mean accuracy of a method's lines, in percent."""
    return 100 * float(np.mean([line["accuracy"] for line in lines]))


def difference(row: Row, lines: Lines, ours: str, theirs: str) -> dict[str, Any] | None:
    """Return by how many points a method is ahead of another, paired, with a 95 % interval.

    Splits are paired with splits. On a single split the interval is over its test nodes, and over
    the seeds of random methods; see :func:`evaluation.paired.ahead`.
    """
    several = row.num_splits > 1
    first, second = (
        [
            line | {"test_accuracy": line["accuracy"], "seed": line["split" if several else "seed"]}
            for line in lines[name]
        ]
        for name in (ours, theirs)
    )
    found = ahead(
        _over_seeds(first),
        _over_seeds(second),
        ours_vary=several or is_random(ours),
        theirs_vary=several or is_random(theirs),
    )
    if found is None:
        return None
    return {
        name: value if name == "seeds" or value is None else 100 * value
        for name, value in found.items()
    }


def _over_seeds(lines: Sequence[Line]) -> list[Line]:
    """Return a line for every split or seed, with the mean accuracy of those that share it."""
    by_seed: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        by_seed[line["seed"]].append(line)
    return [
        own[0] | {"test_accuracy": float(np.mean([line["accuracy"] for line in own]))}
        for own in by_seed.values()
    ]


#: What the README shows, in its words.
_FIRST = {
    "newsgroups, 5 labels a class": "sentence embeddings of 18,821 posts, 5 labels a class",
    "citeseer, no graph": "words of 3,327 articles, no graph (Citeseer)",
    "cora, half of the edges": "words of 2,708 articles, half of their citations (Cora)",
    "cora, all edges": "the same, all of their citations",
}


def first_table(found: dict[str, Lines]) -> str:
    """Return accuracies and gains over the best other method in a few rows, in a reader's words."""
    known, cells = rows(), []
    for name, words in _FIRST.items():
        lines = found.get(name, {})
        ours, other = main_method(lines), best_other(lines)
        if ours in lines and other is not None:
            named = ", ".join(filter(None, [other, _fewer_splits(lines[other], lines[ours])]))
            best = f"{mean(lines[other]):.1f} ({named})"
            gains = [
                f"{mean(lines[each]):.1f}, {_interval(difference(known[name], lines, each, other))}"
                if each in lines
                else ""
                for each in (ours, "DecoupledJLGCN")
            ]
            fixed = difference(known[name], lines, ours, "fixed kNN graph")
            metric = "" if fixed is None else f"{fixed['mean']:+.1f}"
            logistic = _mean(lines, "logistic regression")
            cells.append([words, logistic, best, gains[0], metric, gains[1]])
    head = ["you have", "logistic regression", "best other method", "JLGCNClassifier"]
    return markdown([[*head, "by its metric", "DecoupledJLGCN"], *cells])


# Classifiers were scored on their test nodes before the third freeze.
_SEEN_BEFORE = (
    *("cora, 10 % attacked", "cora, 25 % attacked", "cora, not attacked"),
    *("actor, ten splits", "squirrel_filtered, ten splits"),
)


def gains_table(found: dict[str, Lines]) -> str:
    """Return row by row ours, the best other method, and by how far ours are ahead of it."""
    known, cells = rows(), []
    networks = [each for each in NETWORKS if any(each in lines for lines in found.values())]
    for name, lines in found.items():
        if known[name].group == "tables" or main_method(lines) not in lines:
            continue
        ours, other = main_method(lines), best_other(lines)
        mark = " †" if name in _SEEN_BEFORE else ""
        row = [name + mark, *(_mean(lines, each) for each in (OURS, VALIDATED, *networks))]
        if other is None:
            row += [""] * (2 + len(networks))
        else:
            fewer = _fewer_splits(lines[other], lines[ours])
            row.append(f"{other} {mean(lines[other]):.1f}" + (f" ({fewer})" if fewer else ""))
            row += [
                _interval(difference(known[name], lines, each, other) if each in lines else None)
                for each in (ours, *networks)
            ]
        cells.append([*row, str(len(lines[ours]))])
    header = ["data", "closed form", "with validation", *networks, "best other", "ahead"]
    return markdown([[*header, *(f"{each} ahead" for each in networks), "splits"], *cells])


def groups_table(found: dict[str, Lines]) -> str:
    """Return, group by group, in how many rows the closed form is ahead, level or behind."""
    cells = []
    for group, words in GROUPS.items():
        gaps = [gap for _, gap in group_gaps(found, group)]
        if gaps:
            means = [gap["mean"] for gap in gaps]
            is_ahead = sum((gap["low"] or 0) > 0 for gap in gaps)
            is_behind = sum(gap["high"] is not None and gap["high"] < 0 for gap in gaps)
            level = len(gaps) - is_ahead - is_behind
            counts = [str(count) for count in (is_ahead, level, is_behind)]
            cells.append([words, f"{np.mean(means):+.1f}", *counts])
    return markdown([["you have", "ahead of the best other", "ahead", "level", "behind"], *cells])


def group_gaps(found: dict[str, Lines], group: str) -> list[tuple[str, dict[str, Any]]]:
    """Return by how far the closed form is ahead of the best other method in each row of a group.

    The other method is the best of each row; for tables, the one that is best over all of them.
    """
    known = rows()
    own = {
        name: lines
        for name, lines in found.items()
        if known[name].group == group and main_method(lines) in lines
    }
    single = best_of_tables(own) if group == "tables" else None
    gaps = []
    for name, lines in own.items():
        other = single or best_other(lines)
        gap = None if other is None else difference(known[name], lines, main_method(lines), other)
        if gap is not None:
            gaps.append((name, gap))
    return gaps


def best_of_tables(found: dict[str, Lines]) -> str | None:
    """Return the method of others with the highest mean over the tables that all of them have."""
    if not found:
        return None
    common = set.intersection(*(set(lines) for lines in found.values()))
    together: Lines = {
        name: [line for lines in found.values() for line in lines[name]] for name in common
    }
    return best_other(together)


#: Colours of groups of rows in the picture, which those with colour-blindness can tell apart.
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#000000")


def draw_gains(found: dict[str, Lines], path: Path) -> Path:
    """Draw by how far closed form and DecoupledJLGCN are ahead of the best other method."""
    from matplotlib import pyplot

    shown = {group: group_gaps(found, group) for group in GROUPS}
    if tables := shown.pop("tables"):
        each = mean_and_interval([gap["mean"] for _, gap in tables])
        shown["tables"] = [(f"{len(tables)} tables, mean", each)]
    shown = {group: gaps for group, gaps in shown.items() if gaps}
    count = sum(map(len, shown.values()))
    figure, axes = pyplot.subplots(
        figsize=(7.2, 0.21 * count + 0.1 * len(shown) + 0.8), layout="constrained"
    )
    place, places, names = 0.0, [], []
    for color, (group, gaps) in zip(itertools.cycle(_COLORS), shown.items(), strict=False):
        for number, (name, gap) in enumerate(gaps):
            label = GROUPS[group] if number == 0 else None
            low, high = (gap["mean"] if gap[end] is None else gap[end] for end in ("low", "high"))
            axes.plot([low, high], [place, place], color=color, linewidth=1.5)
            axes.plot([gap["mean"]], [place], "o", color=color, markersize=4, label=label)
            if network := _network_gap(found.get(name, {}), name):
                axes.plot([network["low"], network["high"]], [place + 0.3] * 2, color=color, lw=0.8)
                mean_of = [network["mean"]], [place + 0.3], "D"
                axes.plot(*mean_of, color=color, markerfacecolor="white", markersize=4)
            places.append(place)
            names.append(name)
            place += 1
        place += 0.5
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("points of accuracy ahead of the best other method, 95 % interval")
    axes.plot([], [], "D", color="black", markerfacecolor="white", ms=4, label="DecoupledJLGCN")
    axes.legend(fontsize=8, frameon=False)
    data = io.BytesIO()
    figure.savefig(data, dpi=150, format="png", metadata={"Software": None})
    pyplot.close(figure)
    return write_file(path, data.getvalue())


def _network_gap(lines: Lines, name: str) -> dict[str, Any] | None:
    """Return by how far DecoupledJLGCN is ahead of the best other method of a row."""
    other = best_other(lines) if "DecoupledJLGCN" in lines else None
    gap = None if other is None else difference(rows()[name], lines, "DecoupledJLGCN", other)
    return None if gap is None or gap["low"] is None else gap


def controls_table(found: dict[str, Lines]) -> str:
    """Return by how much the closed form is ahead of itself without one of its parts."""
    known, cells = rows(), []
    for name, lines in found.items():
        if known[name].group != "tables" and main_method(lines) in lines:
            ours = main_method(lines)
            gaps = [
                _interval(
                    difference(known[name], lines, ours, control) if control in lines else None
                )
                for control in CONTROLS
            ]
            cells.append([name, *gaps])
    return markdown([["data", *CONTROLS], *cells])


def methods_table(found: dict[str, Lines]) -> str:
    """Return the mean accuracy of every method in every row; of tables, the mean over all.

    Of a method that was run on fewer splits than others, their number is in brackets.
    """
    known = rows()
    names = list(dict.fromkeys(name for lines in found.values() for name in lines))
    names = [name for name in names if name not in CONTROLS]
    tables = [lines for name, lines in found.items() if known[name].group == "tables"]
    cells = []
    for name, lines in found.items():
        if known[name].group != "tables":
            most = max(len(_by_split(each)) for each in lines.values())
            counts = {each: len(_by_split(own)) for each, own in lines.items()}
            fewer = {each: f" ({count})" for each, count in counts.items() if count < most}
            cells.append([name, *(_mean(lines, each) + fewer.get(each, "") for each in names)])
    if tables:
        own = [
            f"{np.mean([mean(lines[each]) for lines in tables]):.1f}"
            if all(each in lines for lines in tables)
            else ""
            for each in names
        ]
        cells.append([f"{len(tables)} tables, mean", *own])
    return markdown([["data", *names], *cells])


def cost_table(found: dict[str, Lines]) -> str:
    """Return the CPU hours and the number of fits of every method."""
    hours: dict[str, list[float]] = defaultdict(list)
    for lines in found.values():
        for method, own in lines.items():
            hours[method] += [line["cpu_seconds"] / 3600 for line in own]
    cells = [
        [method, str(len(each)), f"{sum(each):.2f}"]
        for method, each in sorted(hours.items(), key=lambda item: -sum(item[1]))
    ]
    total = sum(sum(each) for each in hours.values())
    count = sum(len(each) for each in hours.values())
    return markdown([["method", "fits", "CPU hours"], *cells, ["all", str(count), f"{total:.1f}"]])


def _fewer_splits(theirs: Sequence[Line], ours: Sequence[Line]) -> str:
    """Return how many splits another method has, where these are fewer than ours."""
    count = len(_by_split(theirs))
    return f"{count} splits" if count < len(_by_split(ours)) else ""


def _mean(lines: Lines, name: str) -> str:
    return f"{mean(lines[name]):.1f}" if name in lines else ""


def _interval(gap: dict[str, Any] | None) -> str:
    if gap is None:
        return ""
    if gap["low"] is None:
        return f"{gap['mean']:+.1f}"
    return f"{gap['mean']:+.1f} ({gap['low']:.1f} to {gap['high']:.1f})"
