"""Tables of studies, from their lines in `results/studies`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jlgcn._stats import mean_and_interval
from jlgcn.paper.records import read_lines
from jlgcn.paper.tables import markdown

RESULTS = Path(__file__).parents[1] / "results" / "studies"

#: What a line of each task of the audit's study has.
AUDIT_MEASURES: dict[str, tuple[str, ...]] = {
    "suspicious": ("auc", "precision"),
    "missing": ("average_precision", "hits_at_10"),
    "cleaned": ("accuracy",),
}

_NETWORKS = ("gcn", "sage", "gcnii")
_TERMS = {"adamic-adar": "Adamic-Adar", "jaccard": "Jaccard", "gae": "GAE"}
_MIXED = {
    "JLGCN": "JLGCN",
    "our encoding": "our encoding, linear",
    "logistic regression": "skrub, linear",
    "gradient boosting": "skrub, boosted",
}
_VARIANTS = ("decoupled", "fixed graph", "gcn")
_SETTINGS = {"given": "all edges", "edges50": "half of the edges", "nograph": "no edges"}


def study_tables(folder: Path = RESULTS) -> dict[str, str]:
    """Return the tables of all studies whose lines are there, as Markdown by name."""
    makers: dict[str, tuple[str, Callable[[list[dict[str, Any]]], str]]] = {
        "learn_graph": ("learn_graph", learn_graph_table),
        "decoupled": ("decoupled", decoupled_table),
        "adaptive_attack": ("adaptive_attack", attack_table),
        "mixed_tables": ("mixed_tables", mixed_table),
        "novelty": ("novelty", novelty_table),
        "label_rounds": ("label_rounds", rounds_table),
        "ingest": ("ingest", ingest_table),
    }
    for task in AUDIT_MEASURES:
        makers[f"graph_audit/{task}"] = ("graph_audit", partial(audit_table, task=task))
    makers["graph_audit/read"] = ("graph_audit_read", read_counts)
    for table, name in itertools.product(("suspicious", "missing"), ("packages", "wordnet")):
        key = f"graph_audit/read/{name}/{table}"
        makers[key] = ("graph_audit_read", partial(read_table, table=table, name=name))
    found = {}
    for name, (file, make) in makers.items():
        path = folder / f"{file}.jsonl"
        if lines := read_lines(path):
            found[f"studies/{name}"] = make(lines)
    return found


def learn_graph_table(lines: list[dict[str, Any]]) -> str:
    """Return the gain of each network, in points, with its standard error, paired by draw."""
    rows = []
    for name, labels in dict.fromkeys((line["data"], line["labels"]) for line in lines):
        cells, counts = [], set()
        for network in _NETWORKS:
            key = {"data": name, "labels": labels, "network": network}
            own = [line for line in lines if key.items() <= line.items()]
            fixed, learned = (
                100 * np.array([line[graph] for line in own]) for graph in ("fixed", "learned")
            )
            counts.add(len(own))
            cells.append(f"{_gain(learned - fixed)} ({fixed.mean():.1f})" if len(own) > 1 else "")
        rows.append([name, str(labels), *cells, _range(counts)])
    return markdown([["data", "labels a class", "GCN", "SAGE", "GCNII", "draws"], *sorted(rows)])


def decoupled_table(lines: list[dict[str, Any]]) -> str:
    """Return the mean test accuracy of every variant with its standard deviation over runs."""
    rows = []
    for dataset, setting in dict.fromkeys((line["data"], line["setting"]) for line in lines):
        cells, counts = [], set()
        for variant in _VARIANTS:
            key = {"data": dataset, "setting": setting, "variant": variant}
            own = 100 * np.array([line["test"] for line in lines if key.items() <= line.items()])
            counts.add(len(own))
            cells.append(f"{own.mean():.1f} ± {own.std():.1f}" if len(own) else "")
        rows.append([dataset, _SETTINGS[setting], *cells, _range(counts)])
    header = ["data", "given", "DecoupledJLGCN", "without a metric", "GCN", "runs"]
    return markdown([header, *sorted(rows)])


def audit_table(lines: list[dict[str, Any]], task: str) -> str:
    """Return means over seeds of a task of the audit's study, see :data:`AUDIT_MEASURES`."""
    lines = [line for line in lines if line["task"] == task]
    methods = list(dict.fromkeys(line["method"] for line in lines))
    rows = []
    for name, share in sorted({(line["data"], line["share"]) for line in lines}):
        cells, counts = [], set()
        for method in methods:
            key = {"data": name, "share": share, "method": method}
            own = [line for line in lines if key.items() <= line.items()]
            means = (
                np.mean([line[field] for line in own]) for field in AUDIT_MEASURES[task] if own
            )
            cells.append("\u00a0/\u00a0".join(f"{100 * mean:.1f}" for mean in means))
            counts |= {len(own)} if own else set()
        rows.append([name, f"{100 * share:g} %", *cells, _range(counts)])
    names = [_TERMS.get(method, method) for method in methods]
    return markdown([["data", "share", *names, "seeds"], *rows])


def attack_table(lines: list[dict[str, Any]]) -> str:
    """Return mean accuracies over seeds, by share of changed edges and what the attack sees."""
    methods = [key for key in lines[0] if key not in ("share", "surrogate", "seed")]
    rows = []
    for share, surrogate in sorted({(line["share"], line["surrogate"]) for line in lines}):
        own = [x for x in lines if (x["share"], x["surrogate"]) == (share, surrogate)]
        means = (f"{100 * np.mean([line[name] for line in own]):.1f}" for name in methods)
        rows.append([f"{100 * share:g} %", surrogate, *means, str(len(own))])
    return markdown([["edges changed", "attack on", *methods, "seeds"], *rows])


def mixed_table(lines: list[dict[str, Any]]) -> str:
    """Return mean accuracy and balanced accuracy of each method on raw tables, and a gain."""
    methods = list(_MIXED)
    rows = []
    for name, labels in dict.fromkeys((line["data"], line["labels"]) for line in lines):
        own = [line for line in lines if (line["data"], line["labels"]) == (name, labels)]
        own = [line for line in own if set(methods) <= line.keys()]
        if len(own) < 2:
            continue
        right, balanced = (
            100 * np.array([[line[method][kind] for method in methods] for line in own])
            for kind in ("accuracy", "balanced")
        )
        means = zip(right.mean(0), balanced.mean(0), strict=True)
        cells = [f"{accuracy:.1f}\u00a0/\u00a0{mean:.1f}" for accuracy, mean in means]
        best = 2 + int(right[:, 2:].mean(0).argmax())  # of skrub's
        gain = _gain(right[:, 0] - right[:, best])
        rows.append([name, f"{own[0]['rows']:,}", str(labels), *cells, gain, str(len(own))])
    order = sorted(rows, key=lambda row: (row[0], int(row[2])))
    header = ["table", "rows", "labels a class", *_MIXED.values()]
    return markdown([[*header, "JLGCN ahead of skrub", "draws"], *order])


def novelty_table(lines: list[dict[str, Any]]) -> str:
    """Return mean AUCs of telling rows of a hidden class, and how often `novelty_` is the best."""
    names = {
        "novelty": "`novelty_`",
        "probability": "1 - largest probability",
        "logistic regression": "the same of logistic regression",
        "distance": "distance to the nearest label",
    }
    rows = []
    for data in dict.fromkeys(line["data"] for line in lines):
        own = [line for line in lines if line["data"] == data]
        values = np.array([[line[name] for name in names] for line in own])
        means = (f"{mean:.3f}" for mean in values.mean(0))
        best = f"{(values.argmax(1) == 0).sum()} of {len(own)}"
        rows.append([data, *means, best, f"{values[:, 0].min():.2f}"])
    return markdown([["data", *names.values(), "`novelty_` is best", "its lowest"], *rows])


def rounds_table(lines: list[dict[str, Any]]) -> str:
    """Return mean accuracies after each batch, and the last one's lead over random rows."""
    rows = []
    for data, way in dict.fromkeys((line["data"], line["way"]) for line in lines):
        own = {line["draw"]: line for line in lines if (line["data"], line["way"]) == (data, way)}
        key = {"data": data, "way": "random"}
        random = {line["draw"]: line for line in lines if key.items() <= line.items()}
        means = 100 * np.mean([line["accuracy"] for line in own.values()], axis=0)
        classes = np.mean([line["classes"][0] for line in own.values()])
        batch = next(iter(own.values()))["batch"]
        ahead = [
            100 * (own[draw]["accuracy"][-1] - random[draw]["accuracy"][-1])
            for draw in own.keys() & random.keys()
        ]
        row = [data, way, *(f"{mean:.1f}" for mean in means), f"{classes:.1f} of {batch}"]
        lead = _mean_with_interval(ahead) if ahead and way != "random" else ""
        rows.append([*row, lead, str(len(own))])
    batches = (f"after batch {number}" for number in range(1, len(means)))
    head = ["data", "rows", "first labels", *batches, "classes in batch 1", "ahead of random"]
    return markdown([[*head, "draws"], *rows])


def ingest_table(lines: list[dict[str, Any]]) -> str:
    """Return mean accuracies on cells without a label, and how far the estimator is ahead."""
    found: dict[str, dict[int, float]] = {}
    for line in lines:
        found.setdefault(line["method"], {})[line["draw"]] = 100 * line["accuracy"]
    rows = []
    for name, own in sorted(found.items(), key=lambda item: -np.mean(list(item[1].values()))):
        ours = found["jlgcn, genes" if "genes" in name else "jlgcn, components"]
        ahead = [ours[draw] - own[draw] for draw in ours.keys() & own.keys()]
        mean = f"{np.mean(list(own.values())):.1f}"
        lead = "" if ours is own else _mean_with_interval(ahead)
        rows.append([name, mean, lead, str(len(own))])
    return markdown([["method", "accuracy", "jlgcn on the same ahead by", "draws"], *rows])


def read_counts(lines: list[dict[str, Any]]) -> str:
    """Return of how many pairs that a person read the claim holds, by data set and table."""
    rows = []
    for name, table in dict.fromkeys((line["data"], line["table"]) for line in lines):
        own = [line for line in lines if (line["data"], line["table"]) == (name, table)]
        counts = [sum(line[field] for line in own) for field in ("holds", "is_error")]
        rows.append([name, table, *(f"{count} of {len(own)}" for count in counts)])
    return markdown([["data", "pairs", "claim holds", "an error of the graph"], *sorted(rows)])


def read_table(lines: list[dict[str, Any]], table: str, name: str) -> str:
    """Return every second pair that a person read, with its explanation."""
    own = [line for line in lines if (line["data"], line["table"]) == (name, table)]
    rows = []
    for line in own[::2]:
        reasons = [f"{word} {value:+.1f}" for word, value in line["words"]]
        neighbors = ", ".join(line["neighbors"][:2])
        number = line["num_neighbors"]
        reasons.append(f"{number} common: {neighbors}" if number else "no common neighbour")
        pair = f"{line['source']}, {line['target']}"
        rows.append([str(line["rank"]), pair, "; ".join(reasons), line["note"]])
    return markdown([["rank", "pair", "explanation", "read"], *rows])


def _gain(values: np.ndarray) -> str:
    return f"{values.mean():+.1f} ± {values.std(ddof=1) / len(values) ** 0.5:.1f}"


def _mean_with_interval(values: list[float]) -> str:
    own = mean_and_interval(values)
    interval = "" if own["low"] is None else f" ({own['low']:+.1f} to {own['high']:+.1f})"
    return f"{own['mean']:+.1f}{interval}"


def _range(counts: set[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
