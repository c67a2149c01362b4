"""Inputs of the linear classifiers: own features, means over neighbours, and over theirs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import scipy.sparse
import torch
from torch import Tensor

from jlgcn.graphs import SparseGraph
from jlgcn.graphs.candidates import Features
from jlgcn.ops import SparseFeatures


@dataclass(frozen=True, eq=False)
class Hops:
    r"""Feature blocks X, P X and P² X, with P the mean over given neighbours.

    :math:`P = \Lambda^{-1} A_0`, the random walk on the given graph; 0 for a node without edges.
    As inputs of a linear classifier: SIGN (`Frasca et al., 2020
    <https://arxiv.org/abs/2004.11198>`_). The blocks are never formed for all nodes: their scores
    are X W_0 + P (X W_1) + P (P (X W_2)).

    Attributes:
        x: features, (N, F).
        given: the given graph; None for the block X alone.
    """

    x: Features
    given: SparseGraph | None

    @property
    def num_blocks(self) -> int:
        """Number of blocks: 3, or 1 without a given graph."""
        return 1 if self.given is None else 3

    @cached_property
    def mean(self) -> SparseGraph:
        """P, the mean over given neighbours."""
        assert self.given is not None
        pattern = self.given.pattern
        degree = self.given.degree().clamp(min=1e-30)
        return SparseGraph.from_pattern(pattern, self.given.weight / degree[pattern.row])

    def rows(self, index: Tensor) -> list[Tensor]:
        """Return some rows of each block, dense, (K, F).

        Cost: the neighbours of these nodes and their neighbours.
        """
        x = self.x
        if self.given is None and isinstance(x, Tensor):
            return [x[index]]
        features = x.to_scipy() if isinstance(x, SparseFeatures) else x.cpu().numpy()
        rows = index.cpu().numpy()
        blocks = [features[rows]]
        if self.given is not None:
            pattern, weight = self.mean.pattern, self.mean.weight
            entries = (weight.cpu().numpy(), pattern.col.cpu().numpy(), pattern.crow.cpu().numpy())
            mean = scipy.sparse.csr_array(entries, shape=(pattern.num_nodes,) * 2)
            once = mean[rows]
            blocks += [once @ features, (once @ mean) @ features]
        dense = (b.toarray() if scipy.sparse.issparse(b) else b for b in blocks)
        dtype = x.value.dtype if isinstance(x, SparseFeatures) else x.dtype
        return [torch.from_numpy(b).to(device=x.device, dtype=dtype) for b in dense]

    def block_scores(self, weight: Tensor) -> list[Tensor]:  # (N, C) each
        """Return the scores of each block, those of neighbours before the last mean.

        X W_0, X W_1 and P X W_2: a node's score is the first, plus the mean over its neighbours of
        the others.

        Args:
            weight: weights of each block, (num_blocks, F, C).
        """
        found = [self.x @ block for block in weight]
        if len(found) > 1:
            found[2] = self.mean.matmul(found[2])
        return found

    def scores(self, weight: Tensor) -> Tensor:  # (N, C)
        """Return the scores of all nodes under weights of each block, (num_blocks, F, C).

        Cost: a product with the features for each block, and three with the given graph.
        """
        own, *others = self.block_scores(weight)
        return own + self.mean.matmul(others[0] + others[1]) if others else own
