"""Neighbour candidates that are kept over training steps, until their recall is too low."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from jlgcn.graphs import SparseGraph
from jlgcn.ops import SparseFeatures
from jlgcn.ops.csr import Pattern, edge_squared_distance, symmetric_pattern
from jlgcn.ops.knn import MAX_EXACT_ROWS, nearest_neighbors
from jlgcn.ops.precision import compute_dtype

logger = logging.getLogger(__name__)

#: "fresh": search in every pass. "kept": use the candidates. "checked": check them first.
Mode = Literal["fresh", "kept", "checked"]

#: Rows whose exact neighbours a check computes; its cost is linear in N.
NUM_CHECKED_ROWS = 256

#: Largest number of training steps between two checks.
MAX_INTERVAL = 16

# Entries of the features by which another data set of the same size is noticed.
_NUM_COMPARED = 4096


class KeptNeighbors:
    """Neighbour candidates of one graph learner.

    Attributes:
        mode: what a pass does, see :data:`Mode`.
        min_recall: candidates are searched again if a check finds less than this share of the
            recall right after the search, which is below 1 for an approximate search.
        recall (float): the share of the exact graph's weight that the candidates held at the last
            check (:func:`sampled_recall`); nan before the first search.
        num_searches (int): searches so far.
        num_checks (int): checks so far, without those that follow a search.
    """

    def __init__(self) -> None:
        self.mode: Mode = "fresh"
        self.min_recall = 1.0
        self.forget()

    def forget(self) -> None:
        """Return to the state before the first search."""
        self.recall = float("nan")
        self.num_searches = self.num_checks = 0
        self._found: Tensor | None = None  # (N, k)
        self._reached = 1.0  # recall right after the search
        self._pattern: Pattern | None = None
        self._given: Pattern | None = None

    def graph(
        self,
        z: Tensor,  # (N, S)
        num_neighbors: int,
        given: SparseGraph | None,
    ) -> SparseGraph:
        """Return the kernel graph on the candidates, searched again if there is need.

        Args:
            z: points; the weights are differentiable in them.
            num_neighbors: k of a search.
            given: a graph whose edges are added to the candidates.

        Cost: 3·E·S FLOP; a check takes 512·N·S more.
        """
        pattern = self.candidates(z, num_neighbors, given)
        distance = edge_squared_distance(pattern, z.to(compute_dtype(z)))
        return SparseGraph.from_pattern(pattern, (-distance).exp())

    def candidates(
        self,
        z: Tensor,  # (N, S)
        num_neighbors: int,
        given: SparseGraph | None,
    ) -> Pattern:
        """Return the candidates, searched again if there is need; the same object if they hold."""
        points = z.detach().to(compute_dtype(z))
        found = self._found
        if found is None or found.shape[0] != z.shape[0] or found.device != z.device:
            self._search(points, num_neighbors, given)
        elif self.mode == "checked":
            self.num_checks += 1
            pattern = self._join(found, given)
            self.recall = sampled_recall(points, pattern, num_neighbors, self.num_checks)
            logger.debug("recall of kept neighbours: %.3f", self.recall)
            if self.recall < self.min_recall * self._reached:
                self._search(points, num_neighbors, given)
        assert self._found is not None
        return self._join(self._found, given)

    @torch.no_grad()
    def _search(self, z: Tensor, num_neighbors: int, given: SparseGraph | None) -> None:
        self._found = nearest_neighbors(z, num_neighbors)
        self._pattern = None
        self.num_searches += 1
        self._reached = 1.0
        if z.shape[0] > MAX_EXACT_ROWS:
            pattern = self._join(self._found, given)
            self._reached = sampled_recall(z, pattern, num_neighbors, self.num_checks)
        if self.num_searches == 1:
            self.recall = self._reached
        logger.info("searched for neighbours: recall was %.3f, is %.3f", self.recall, self._reached)

    def _join(self, found: Tensor, given: SparseGraph | None) -> Pattern:
        """Return the symmetric pattern of neighbours, given edges and self-loops."""
        edges = None if given is None else given.pattern
        if self._pattern is None or not _is_same(edges, self._given):
            loops = torch.arange(found.shape[0], device=found.device)
            row, col = loops.repeat_interleave(found.shape[1]), found.flatten()
            is_found = col >= 0
            rows, cols = [row[is_found], loops], [col[is_found], loops]
            if edges is not None:
                rows.append(edges.row)
                cols.append(edges.col)
            self._pattern = symmetric_pattern(torch.cat(rows), torch.cat(cols), found.shape[0])
        self._given = edges
        return self._pattern

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint needs; empty before the first search."""
        if self._found is None:
            return {}
        counts = torch.tensor([self.num_searches, self.num_checks], device="cpu")
        recall = torch.tensor([self.recall, self._reached], dtype=torch.float64, device="cpu")
        return {"found": self._found, "counts": counts, "recall": recall}

    def load_state(self, state: dict[str, Tensor], device: torch.device) -> None:
        """Continue from what :meth:`state` returned; raise ValueError if it is something else."""
        self.forget()
        if not state:
            return
        if state.keys() != {"found", "counts", "recall"}:
            raise ValueError("kept neighbours must have the tensors found, counts and recall")
        found, counts, recall = state["found"], state["counts"], state["recall"]
        for name, tensor, dim in (("found", found, 2), ("counts", counts, 1)):
            if tensor.dtype != torch.int64 or tensor.dim() != dim:
                raise ValueError(f"{name} of kept neighbours must be {dim}-dimensional integers")
        inside = found.numel() > 0 and -1 <= int(found.min()) <= int(found.max()) < len(found)
        if not inside or counts.shape != (2,) or bool((counts < 0).any()):
            raise ValueError("kept neighbours must be nodes, and their counts not negative")
        is_share = recall.dtype == torch.float64 and recall.shape == (2,)
        if not is_share or not bool(((recall >= 0) & (recall <= 1)).all()):
            raise ValueError("the recall of kept neighbours must lie between 0 and 1")
        self._found = found.to(device)
        self.num_searches, self.num_checks = counts.tolist()
        self.recall, self._reached = recall.tolist()


class NeighborSchedule:
    r"""Decides for the learners of a network when neighbour candidates are checked.

    A check compares, for a sample of rows, exact nearest neighbours with the candidates. It runs
    1, 2, 4, 8, and then every 16 training steps after a search. The network runs it on features
    without dropout: under dropout neighbours of one step are no neighbours in the next, whatever
    the parameters (on Cora, 4 % of them), so that no candidates could be kept.

    Args:
        learners: candidates of every learner.
        min_recall (float in [0, 1]): a lower recall is followed by another search.
    """

    def __init__(self, learners: Sequence[KeptNeighbors], min_recall: float) -> None:
        self.learners = learners
        for kept in learners:
            kept.min_recall = min_recall
        self.forget()

    def forget(self) -> None:
        """Return to the state before the first search."""
        for kept in self.learners:
            kept.forget()
        self._interval = 1
        self._remaining = 0
        self._sample: Tensor | None = None

    @property
    def recall(self) -> list[float]:
        """Recall of every learner at its last check."""
        return [kept.recall for kept in self.learners]

    @property
    def num_searches(self) -> int:
        """Searches of all learners so far."""
        return sum(kept.num_searches for kept in self.learners)

    def is_due(
        self,
        x: Tensor | SparseFeatures,  # (N, in_channels)
    ) -> bool:
        """Count a training step on these features, and return whether it begins with a check.

        Candidates of other features are forgotten.
        """
        sample = _sample(x)
        if self._sample is not None and not torch.equal(sample, self._sample):
            self.forget()
        self._sample = sample
        is_due = self._remaining == 0
        self._remaining = max(0, self._remaining - 1)
        return is_due

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Check all candidates in the pass within, and set when the next check is due."""
        before = self.num_searches
        with self.using("checked"):
            yield
        grown = min(2 * self._interval, MAX_INTERVAL)
        self._interval = 1 if self.num_searches > before else grown
        self._remaining = self._interval - 1

    @contextmanager
    def using(self, mode: Mode) -> Iterator[None]:
        """Let learners use their candidates in the passes within."""
        before = [kept.mode for kept in self.learners]
        for kept in self.learners:
            kept.mode = mode
        try:
            yield
        finally:
            for kept, old in zip(self.learners, before, strict=True):
                kept.mode = old

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint needs, by name; empty before the first search."""
        if self.num_searches == 0:
            return {}
        state = {"steps": torch.tensor([self._interval, self._remaining], device="cpu")}
        for index, kept in enumerate(self.learners):
            state |= {f"{index}/{name}": tensor for name, tensor in kept.state().items()}
        return state

    def load_state(self, state: dict[str, Tensor], device: torch.device) -> None:
        """Continue from what :meth:`state` returned; raise ValueError if it is something else."""
        self.forget()
        if not state:
            return
        steps = state.get("steps", torch.zeros(0, device="cpu"))
        known = {str(index) for index in range(len(self.learners))}
        others = {name.partition("/")[0] for name in state} - known - {"steps"}
        if steps.dtype != torch.int64 or steps.shape != (2,) or others:
            raise ValueError("kept neighbours must have two numbers of steps, and known learners")
        interval, remaining = steps.tolist()
        if not 1 <= interval <= MAX_INTERVAL or not 0 <= remaining < interval:
            raise ValueError(f"steps of kept neighbours must lie between 0 and {MAX_INTERVAL}")
        for index, kept in enumerate(self.learners):
            prefix = f"{index}/"
            own = {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}
            kept.load_state(own, device)
        self._interval, self._remaining = interval, remaining


@torch.no_grad()
def sampled_recall(
    z: Tensor,  # (N, S)
    pattern: Pattern,
    num_neighbors: int,
    shift: int = 0,
) -> float:
    r"""Return the share of the exact kNN graph's weight that candidates hold, on a sample of rows.

    .. math:: \frac{1 + \sum_{j \in C_k(i)} a_{ij}}{1 + \sum_{j \in N_k(i)} a_{ij}},
        \qquad a_{ij} = \exp(-\|z_i - z_j\|^2)

    averaged over rows i, with the k nearest rows N_k, the k nearest candidates C_k, and 1 for the
    self-loop. Neighbours count by weight, as in the products of a layer: to miss some does no harm
    where weights are negligible, or where all rows are equally near.

    Args:
        z: points.
        pattern: candidates of every row.
        num_neighbors: k.
        shift: the sample begins at another row for each.

    Cost: 512·N·S FLOP for 256 rows.

    Example:
        >>> z = torch.tensor([[0.0], [0.0], [9.0], [9.0]])
        >>> pattern = symmetric_pattern(torch.tensor([0, 2]), torch.tensor([1, 0]), 4)
        >>> sampled_recall(z, pattern, 1)  # rows 0 and 1 hold all their weight, 2 and 3 half of it
        0.75
    """
    num_nodes = z.shape[0]
    num_neighbors = min(num_neighbors, num_nodes - 1)
    if num_neighbors == 0:
        return 1.0
    count = min(NUM_CHECKED_ROWS, num_nodes)
    rows = torch.arange(count, device=z.device) * num_nodes // count
    rows = (rows + 7919 * shift) % num_nodes  # a prime, so that any row may be looked at
    # A row is its own nearest neighbour: ask for one more.
    exact = nearest_neighbors(z, num_neighbors + 1, queries=z[rows], search="exact").flatten()
    sample = torch.arange(count, device=z.device)
    wanted = _nearest_weights(
        z, rows, sample.repeat_interleave(num_neighbors + 1), exact, num_neighbors
    )
    size = pattern.crow[rows + 1] - pattern.crow[rows]
    sample = torch.repeat_interleave(sample, size)
    place = torch.arange(len(sample), device=z.device) - (size.cumsum(0) - size)[sample]
    kept = pattern.col[pattern.crow[rows][sample] + place]
    held = _nearest_weights(z, rows, sample, kept, num_neighbors)
    return float(((1 + held) / (1 + wanted)).clamp(max=1).mean())


def _nearest_weights(
    z: Tensor,  # (N, S)
    rows: Tensor,  # (M,)
    sample: Tensor,  # (E,), ascending
    other: Tensor,  # (E,)
    num_neighbors: int,
) -> Tensor:  # (M,), float64
    """Return the sum of the k largest weights of each row, without its self-loop."""
    distance = (z[other] - z[rows[sample]]).square().sum(-1).double()
    distance = distance.masked_fill(other == rows[sample], torch.inf)
    by_distance = distance.argsort(stable=True)
    order = by_distance[sample[by_distance].argsort(stable=True)]
    size = torch.bincount(sample, minlength=len(rows))
    rank = torch.arange(len(sample), device=z.device) - (size.cumsum(0) - size)[sample]
    weight = (-distance[order]).exp() * (rank < num_neighbors)
    return weight.new_zeros(len(rows)).index_add(0, sample, weight)


def _is_same(one: Pattern | None, other: Pattern | None) -> bool:
    if one is other or one is None or other is None:
        return one is other
    return torch.equal(one.crow, other.crow) and torch.equal(one.col, other.col)


def _sample(x: Tensor | SparseFeatures) -> Tensor:
    """Return evenly spaced entries of features, and their size."""
    entries = (x if isinstance(x, Tensor) else x.value).detach().flatten()
    step = max(1, len(entries) // _NUM_COMPARED)
    size = entries.new_tensor([x.shape[-2], len(entries)])
    # An odd step visits all columns of most widths.
    return torch.cat([entries[:: step | 1], size])
