"""The learned graph as a transform of PyTorch Geometric's `Data`, before any network."""

from __future__ import annotations

import copy
import logging
import math
import warnings
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from jlgcn._optional import require
from jlgcn._validation import (
    caller_level,
    check_classes,
    check_finite,
    check_labels,
    check_one_graph,
    check_real,
    check_shape,
)
from jlgcn.closed_form.fit import fit_closed_form
from jlgcn.closed_form.options import ClosedFormOptions
from jlgcn.closed_form.scaling import KINDS, FeatureScaler, Kind
from jlgcn.graphs import SparseGraph, as_graph
from jlgcn.ops import SparseFeatures

logger = logging.getLogger(__name__)

DataT = TypeVar("DataT")

# Attributes of a `Data` that describe its old edges one by one, or all of them in another format.
_OF_OLD_EDGES = ("edge_attr", "adj", "adj_t")


class LearnGraph:
    r"""Transform of PyTorch Geometric that replaces the edges of a `Data` by a learned graph.

    The graph of the last layer of :func:`jlgcn.closed_form.fit_closed_form`: the k nearest
    neighbours of each node under the metric learned from the training labels, with weights

    .. math:: a_{ij} = \exp(-\|f_i - f_j\|^2 / u - \|R^\top (f_i - f_j)\|^2),

    plus the given edges, if there are any (A_0 + A*). Any layer that takes `edge_index` can follow;
    those that ignore `edge_weight`, such as `SAGEConv`, still gain from the choice of neighbours.
    If held-out predictions of the training labels are no better than chance, no metric is
    learned (R = 0). Only the classes of training nodes are read. Deterministic.

    Args:
        num_neighbors (int ≥ 1, default 20): k.
        metric_weight (float ≥ 0 or None, default None): variance of the features under R, in units
            of the Euclidean distance to a near neighbour. 0 is a Euclidean kNN graph. None is 0.1
            for words and 1 for other features, or the other of the two if held-out labels are many
            enough and favour it.
        scaler ({"auto", "words", "table", "embeddings", "none"}, default "auto"): feature scaling
            for the distances, see :class:`FeatureScaler`; `data.x` stays as it is.
        options (ClosedFormOptions or None, default None): further hyperparameters. None classifies
            the diffused features alone and, without given edges, sets a restart probability of
            0.05; the rest is selected by cross-validated log-loss on the training labels.

    Shapes:
        - data: `x`, (N, in_channels); `y`, (N,), -1 for unknown classes; optional `train_mask`,
          (N,), without which all nodes with a known class are training nodes, with a warning if
          no class is -1; optional `edge_index` with `edge_weight`. Self-loops are dropped. A single
          graph, no `Batch` of several.
        - returns a shallow copy with `edge_index`, (2, E), in both directions and without
          self-loops, and `edge_weight`, (E,). `edge_attr` and `adj_t` are dropped, since they
          describe the old edges.

    Cost: a search for 100 neighbours of each node, and a diffusion of 256 columns over the graph
    for each of three layers; with given edges, about ten more diffusions to select how far to trust
    them.

    Example:
        >>> from torch_geometric.data import Data
        >>> x = torch.cat([torch.randn(20, 4), torch.randn(20, 4) + 5])
        >>> data = Data(x=x, y=torch.tensor([0] * 20 + [1] * 20))
        >>> data.train_mask = torch.arange(40) % 10 == 0
        >>> LearnGraph(num_neighbors=3)(data)
        Data(x=[40, 4], y=[40], train_mask=[40], edge_index=[2, ...], edge_weight=[...])
    """

    def __init__(
        self,
        *,
        num_neighbors: int = 20,
        metric_weight: float | None = None,
        scaler: Kind = "auto",
        options: ClosedFormOptions | None = None,
    ) -> None:
        if scaler not in KINDS:
            raise ValueError(f"scaler must be one of {', '.join(KINDS)}, but it is {scaler!r}")
        if not num_neighbors >= 1:
            raise ValueError(f"num_neighbors must be at least 1, but it is {num_neighbors}; try 20")
        self.num_neighbors = num_neighbors
        self.metric_weight = metric_weight
        self.scaler: Kind = scaler
        self.options = options

    @torch.no_grad()
    def __call__(self, data: DataT) -> DataT:
        """Return a shallow copy of a `Data` with the learned edges."""
        found: Any = data
        if not isinstance(data, require("torch_geometric.data", "pyg", "LearnGraph").Data):
            raise TypeError(
                f"LearnGraph takes a Data, but it is a {type(data).__name__}; call it on each Data "
                "of a list or dataset, or make a Data(x=x, y=y, edge_index=edge_index)"
            )
        check_one_graph(data, "apply LearnGraph to each graph before batching (as pre_transform)")
        x, y = _features(getattr(found, "x", None)), getattr(found, "y", None)
        if not isinstance(y, Tensor):
            raise ValueError(
                "LearnGraph needs the classes of training nodes, but data.y is "
                f"{type(y).__name__}; set data.y, with -1 for unknown classes"
            )
        check_classes(y, x.shape[0])
        train = _training_nodes(found, y)
        check_labels(y, train, x.shape[0])
        # No other class is read, even by mistake.
        known = torch.full_like(y, -1, dtype=torch.int64)
        known[train] = y[train].long()
        graph = _given(found, x)
        scaler = FeatureScaler.fit(x, self.scaler)
        options = self._options(graph is not None)
        model = fit_closed_form(scaler(x), known, graph, train=train, options=options)
        chance = math.log(int(known.max()) + 1)
        if len(model.layers) > 1 and model.layers[0].loss >= chance:
            logger.info(
                "held-out log-loss %.2f is no better than chance, %.2f: no metric is learned",
                *(model.layers[0].loss, chance),
            )
            selected: Any = replace(model.options, n_layers=1)
            model = fit_closed_form(scaler(x), known, graph, train=train, options=selected)
        row, col = model.graph.edge_index
        is_loop = row == col
        out: Any = copy.copy(data)
        for name in _OF_OLD_EDGES:
            if name in out:
                del out[name]
        out.edge_index = torch.stack([row[~is_loop], col[~is_loop]])
        out.edge_weight = model.graph.weight[~is_loop]
        result: DataT = out
        return result

    def __repr__(self) -> str:
        return f"LearnGraph({self.num_neighbors})"

    def _options(self, has_graph: bool) -> ClosedFormOptions:
        options = self.options
        if options is None:
            restart = None if has_graph else 0.05
            options = ClosedFormOptions(parts="graph", restart=restart)
        return replace(options, n_neighbors=self.num_neighbors, metric_weight=self.metric_weight)


def _features(x: Any) -> Tensor | SparseFeatures:  # noqa: ANN401
    """Return the features of a `Data`; of a sparse matrix, as `SparseFeatures`."""
    if isinstance(x, SparseFeatures):
        return x
    if scipy.sparse.issparse(x):
        return SparseFeatures.from_scipy(x)
    if not isinstance(x, Tensor | np.ndarray):
        raise ValueError(
            f"LearnGraph needs features, but data.x is {type(x).__name__}; set data.x, "
            "(nodes, features)"
        )
    tensor = torch.as_tensor(x)
    check_shape(tensor.shape, "x")
    check_real(tensor.dtype, "x")
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor if tensor.dtype == torch.float64 else tensor.float()
    check_finite(tensor, "data.x", "impute or drop such rows")
    return tensor


def _training_nodes(data: Any, y: Tensor) -> Tensor:  # noqa: ANN401
    mask = getattr(data, "train_mask", None)
    if mask is None:
        if bool((y >= 0).all()):
            warnings.warn(
                f"data has no train_mask, so all {len(y)} labels train the graph, those of test "
                "nodes included; set train_mask, or y = -1 elsewhere",
                UserWarning,
                stacklevel=caller_level(),
            )
        return (y >= 0).nonzero().flatten()
    mask = torch.as_tensor(mask)
    if mask.dtype != torch.bool or mask.shape != y.shape:
        if mask.dim() == 2 and len(mask) == len(y):
            remedy = "of several splits pass one column, data.train_mask[:, 0]"
        elif mask.dtype == torch.bool:
            remedy = "give it an entry for each node, False for those that are not trained on"
        elif mask.shape == y.shape and bool(((mask == 0) | (mask == 1)).all()):
            remedy = "call data.train_mask.bool()"
        else:
            remedy = f"of indices make torch_geometric.utils.index_to_mask(train_mask, {len(y)})"
        raise ValueError(
            f"data.train_mask must be a bool for each of {len(y)} nodes, but it is {mask.dtype} of "
            f"shape {tuple(mask.shape)}; {remedy}"
        )
    if not bool(mask.any()):
        raise ValueError(
            "data.train_mask must be True at some nodes of each class, but it is False everywhere; "
            "set it where y may be read"
        )
    nodes: Tensor = mask.nonzero().flatten()
    return nodes


def _given(data: Any, x: Tensor | SparseFeatures) -> SparseGraph | None:  # noqa: ANN401
    edge_index = data.edge_index
    if edge_index is not None and edge_index.dim() == 2 and edge_index.shape[0] == 2:
        is_edge = edge_index[0] != edge_index[1]  # the learned graph has its own self-loops
        if not bool(is_edge.all()):
            data = data.edge_subgraph(is_edge)
    if data.edge_index is None or data.edge_index.numel() == 0:
        return None
    dtype = x.value.dtype if isinstance(x, SparseFeatures) else x.dtype
    graph = as_graph(data, x.shape[0], dtype=dtype, device=x.device)
    assert isinstance(graph, SparseGraph)
    return graph
