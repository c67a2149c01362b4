"""The Euclidean part of a metric: its unit, and points whose distances are in this unit."""

from __future__ import annotations

import torch
from torch import Tensor

from jlgcn._memory import check_memory
from jlgcn.graphs.candidates import UNIT_NEIGHBORS
from jlgcn.nn.features import Features, is_far_away
from jlgcn.ops import SparseFeatures, nearest_neighbors
from jlgcn.ops.sparse_matrix import pair_distances

# Rows whose neighbours are searched for the unit.
_NUM_SAMPLED_ROWS = 4096


@torch.no_grad()
def near_distance(
    x: Features,  # (N, in_channels)
) -> float:
    """Return the median squared distance to the 20 nearest neighbours; 1 if all rows are equal.

    The unit of the closed form (:class:`jlgcn.graphs.candidates.Candidates`), on a sample of at
    most 4,096 evenly spaced rows. Zero rows of sparse features have no neighbours.

    Args:
        x: features.

    Cost: 2·4096·N·in_channels FLOP.

    Example:
        >>> near_distance(torch.tensor([[0.0], [2.0]]))
        4.0
    """
    num_nodes = x.shape[0]
    if num_nodes <= _NUM_SAMPLED_ROWS:
        rows = torch.arange(num_nodes, device=x.device)
        found = nearest_neighbors(x, UNIT_NEIGHBORS)
    else:
        rows = torch.arange(_NUM_SAMPLED_ROWS, device=x.device) * num_nodes // _NUM_SAMPLED_ROWS
        # A row is its own nearest neighbour: ask for one more.
        found = nearest_neighbors(x, UNIT_NEIGHBORS + 1, queries=_select(x, rows))
    row, col = rows.repeat_interleave(found.shape[1]), found.flatten()
    is_pair = (col >= 0) & (col != row)
    if isinstance(x, SparseFeatures):
        is_pair &= (x.crow.diff() > 0)[row]
    near = pair_distances(x, row[is_pair], col[is_pair])
    unit = float(near.median()) if near.numel() else 0.0
    return unit if unit > 0 else 1.0


def scaled_points(
    x: Features,  # (*batch, N, in_channels)
    unit: Tensor,  # ()
    *,
    may_centre: bool,
) -> Tensor:  # (*batch, N, in_channels)
    """Return f/√u, dense and centred if the points are far from the origin.

    Args:
        x: features; sparse ones become dense if they fit into memory.
        unit: u.
        may_centre: False for a shard of the rows, whose mean is not that of all.

    Example:
        >>> scaled_points(torch.tensor([[0.0], [6.0]]), torch.tensor(4.0), may_centre=True)
        tensor([[0.],
                [3.]])
    """
    if isinstance(x, SparseFeatures):
        num_nodes, num_features = x.shape
        needed = 3 * num_nodes * num_features * x.value.element_size()
        check_memory(
            needed, x.device, 'metric_init="euclidean" of sparse features', 'metric_init="median"'
        )
        row = torch.repeat_interleave(x.crow.diff(), output_size=x.col.shape[0])
        x = x.value.new_zeros(num_nodes, num_features).index_put((row, x.col), x.value)
    if may_centre and (x.device.type != "cpu" or is_far_away(x)):
        x = x - x.mean(-2, keepdim=True)
    return x * unit.rsqrt()


def _select(x: Features, rows: Tensor) -> Features:
    if isinstance(x, Tensor):
        return x[rows]
    return SparseFeatures.from_scipy(x.to_scipy()[rows.cpu().numpy()]).to(x.device)
