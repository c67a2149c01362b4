"""Tables without a graph, which come with scikit-learn: wine, breast cancer, digits."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from jlgcn._files import sha256_of
from jlgcn.paper.node_data import NodeData

Table = Literal["wine", "cancer", "digits"]

#: Labels of each of three parts: to train, to validate, to stop early.
_NUM_LABELS = {"wine": 10, "cancer": 10, "digits": 50}


def load_table(name: Table, *, seed: int) -> NodeData:
    """Return a table as nodes without edges, in the split that graph learners are compared on.

    That of `Learning Discrete Structures for Graph Neural Networks
    <https://arxiv.org/abs/1903.11960>`_: three equal parts of few labels, 10 each (50 for digits),
    drawn by the seed in the proportions of the classes; the first trains, the other two select; all
    other rows are for the test. Features are standardised, those of digits are left as they are.

    Args:
        name: "wine", "cancer" or "digits".
        seed: which rows are labelled.

    Example:
        >>> load_table("wine", seed=0)
        NodeData(wine: 178 nodes, 0 edges, 13 features, 3 classes, 10 / 20 / 148 train / val / test)
    """
    from sklearn import datasets, model_selection, preprocessing

    loaders = {
        "wine": datasets.load_wine,
        "cancer": datasets.load_breast_cancer,
        "digits": datasets.load_digits,
    }
    if name not in loaders:
        raise ValueError(f"name must be one of {', '.join(loaders)}, but it is {name!r}")
    x, y = loaders[name](return_X_y=True)
    content = np.ascontiguousarray(x).tobytes() + np.ascontiguousarray(y).tobytes()
    if name != "digits":
        x = preprocessing.scale(x)
    count = _NUM_LABELS[name]
    rest = np.arange(len(y))
    parts = []
    for size in (3 * count, 2 * count, count):
        kept, dropped = model_selection.train_test_split(
            rest, random_state=seed, train_size=size, stratify=y[rest]
        )
        parts.append(dropped)
        rest = kept
    test, stop, val = (torch.from_numpy(np.sort(part)) for part in parts)
    return NodeData(
        name=name,
        x=torch.from_numpy(x).float(),
        y=torch.from_numpy(y).long(),
        edge_index=torch.empty(2, 0, dtype=torch.int64),
        train=torch.from_numpy(np.sort(rest)),
        val=torch.cat([val, stop]).sort().values,
        test=test,
        sha256=sha256_of(content),
    )
