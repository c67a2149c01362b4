"""The idea in one picture: a graph with wrong edges, and the graph that was learned.

python examples/idea.py docs/images/idea.png      (extra "plot")
"""

import argparse

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from sklearn.datasets import make_moons

from jlgcn import JLGCNClassifier

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

# Two classes, eight labels, and two edges a point, of which about two in five are wrong on purpose.
X, y = make_moons(160, noise=0.09, random_state=args.seed)
rng = np.random.default_rng(args.seed)
given = np.zeros((len(y), len(y)))
for i in np.repeat(np.arange(len(y)), 2):
    may_join = (y != y[i]) == (rng.random() < 0.4)
    may_join[i] = False
    j = rng.choice(np.flatnonzero(may_join))
    given[i, j] = given[j, i] = 1
labels = np.full(len(y), -1)
for c in range(2):
    labels[rng.choice(np.flatnonzero(y == c), 4, replace=False)] = c
model = JLGCNClassifier().fit(X, labels, given)
learned = model.model_.graph.to_dense().numpy()  # with given edges as far as they are trusted


def draw(axes: Axes, weight: np.ndarray, title: str, classes: np.ndarray) -> None:
    """Draw points and edges; an edge between the classes is red."""
    source, target = np.nonzero(np.triu(weight, 1))
    strength = np.clip(weight / np.quantile(weight[source, target], 0.75), 0, 1)[source, target]
    hues = np.where(y[source] != y[target], "#d62728", "#777777").tolist()
    ends = list(X[np.stack([source, target], axis=1)])
    axes.add_collection(LineCollection(ends, colors=hues, alpha=strength, linewidths=0.8))
    colors = np.array(["#0072B2", "#E69F00", "#BBBBBB"])
    axes.scatter(X[:, 0], X[:, 1], c=colors[classes], s=20, zorder=2)
    few = labels >= 0
    axes.scatter(X[few, 0], X[few, 1], c=colors[y[few]], s=70, edgecolors="black", zorder=3)
    axes.set_title(title, fontsize=14)
    axes.set_axis_off()


right = (model.transduction_ == y)[labels == -1]
result = f"{right.sum()} of {len(right)} points right"
wrong = given[y[:, None] != y].sum() / given.sum()
figure = Figure(figsize=(9, 3.2), layout="constrained")
before, after = figure.subplots(1, 2)
draw(before, given, f"given: eight labels, {wrong:.0%} wrong edges (red)", labels)
draw(after, learned, f"learned: {result}", model.transduction_)
figure.savefig(args.out, dpi=100, facecolor="white")
print(f"{result}; selected {model.best_params_}")
