"""Row-sharded graphs: each process holds a block of rows; a product needs one all-gather."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import FunctionCtx

from jlgcn.graphs.graph import Graph
from jlgcn.graphs.kernel import kernel_weights
from jlgcn.graphs.sparse import SparseGraph
from jlgcn.ops.gaussian import Method, kernel_matmul
from jlgcn.ops.precision import compute_dtype
from jlgcn.ops.sparse_matrix import SparseFeatures


class Shards:
    """The layout of N rows over the processes of a group: contiguous blocks of nearly equal size.

    Args:
        num_rows: N.
        group: the process group; None for the default group.

    Example:
        >>> Shards.of_sizes(7, 3)
        [3, 2, 2]
    """

    def __init__(self, num_rows: int, group: dist.ProcessGroup | None = None) -> None:
        self.num_rows = num_rows
        self.group = group
        self.rank = dist.get_rank(group)
        self.sizes = self.of_sizes(num_rows, dist.get_world_size(group))

    @staticmethod
    def of_sizes(num_rows: int, num_processes: int) -> list[int]:
        """Return the number of rows of each process."""
        least, more = divmod(num_rows, num_processes)
        return [least + (rank < more) for rank in range(num_processes)]

    @property
    def own(self) -> slice:
        """The rows of this process, as a slice of all rows."""
        start = sum(self.sizes[: self.rank])
        return slice(start, start + self.sizes[self.rank])

    def gather(self, x: Tensor) -> Tensor:  # (n, C) to (N, C)
        """Return the rows of all processes (all-gather); gradients are reduce-scattered."""
        gathered: Tensor = _Gather.apply(x, self)  # type: ignore[no-untyped-call]
        return gathered

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes, detached (all-reduce)."""
        total = x.detach().clone()
        dist.all_reduce(total, group=self.group)
        return total


class _Gather(torch.autograd.Function):
    """All-gather of row blocks, with reduce-scatter as its backward.

    Blocks are padded to one size, as a single collective requires.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, shards: Shards) -> Tensor:  # noqa: ANN401
        ctx.shards = shards
        largest = max(shards.sizes)
        padded = x.new_zeros(largest, x.shape[1])
        padded[: x.shape[0]] = x
        gathered = x.new_empty(largest * len(shards.sizes), x.shape[1])
        _collective("all_gather")(gathered, padded, group=shards.group)
        parts = gathered.split(largest)
        return torch.cat([part[:size] for part, size in zip(parts, shards.sizes, strict=True)])

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        shards: Shards = ctx.shards  # type: ignore[attr-defined]
        (grad,) = grads
        largest = max(shards.sizes)
        padded = grad.new_zeros(len(shards.sizes), largest, grad.shape[1])
        for place, part in zip(padded, grad.split(shards.sizes), strict=True):
            place[: part.shape[0]] = part
        own = grad.new_empty(largest, grad.shape[1])
        _collective("reduce_scatter")(own, padded.flatten(0, 1), group=shards.group)
        return own[: shards.sizes[shards.rank]], None


def _collective(name: str) -> Callable[..., Any]:
    """Return a single-tensor collective by its current name, or by its name in older PyTorch."""
    older = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor"}
    found: Callable[..., Any] = getattr(dist, f"{name}_single", None) or getattr(dist, older[name])
    return found


class _ShardedGraph(Graph):
    """Base class of sharded graphs, whose nodes are the rows of this process."""

    shards: Shards

    @property
    def shape(self) -> torch.Size:
        """Shape seen by this process, (n, n) for its n rows."""
        size = self.shards.sizes[self.shards.rank]
        return torch.Size((size, size))

    @abstractmethod
    def _product(self, x: Tensor, rows: Tensor | None) -> Tensor:
        """Return the local rows of the product with a matrix, (n, C)."""

    def matmul(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the local rows of the product; batch dimensions of x become columns."""
        if x.dim() == 2:
            return self._product(x, rows)
        columns = x.movedim(-2, 0)  # (n, *batch, C)
        product: Tensor = self._product(columns.flatten(1), rows).unflatten(1, columns.shape[1:])
        return product.movedim(0, -2)

    def _mean_row(self, f: Tensor) -> Tensor:
        # The mean over all processes: a different origin in each would change differences.
        return self.shards.sum(f.sum(-2, keepdim=True)) / self.shards.num_rows


class ShardedKernelGraph(_ShardedGraph):
    r"""The row-sharded exact Gaussian kernel graph.

    As :class:`jlgcn.KernelGraph`, but points, right-hand sides, products and degrees are the local
    rows, and :meth:`dirichlet` is the local share of the sum. All processes must make the same
    calls in the same order. Gradients equal those of a single process if the loss is the sum over
    processes and gradients of shared parameters are summed, as
    :func:`jlgcn.distributed.distribute` does.

    Args:
        z: local points, (n, S).
        shards: layout of the rows.
        method: see :func:`jlgcn.ops.kernel_matmul`.

    Cost: with P processes, time N²/P·(S + C) each; N·(S + C) numbers are gathered forward and
    scattered backward.

    Example:
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> shards = Shards(3)
        >>> z = torch.tensor([[0.0], [1.0], [50.0]])
        >>> ShardedKernelGraph(z[shards.own], shards).degree()
        tensor([1.3679, 1.3679, 1.0000])
        >>> dist.destroy_process_group()
    """

    def __init__(self, z: Tensor, shards: Shards, *, method: Method = "auto") -> None:
        size = shards.sizes[shards.rank]
        if z.dim() != 2 or z.shape[0] != size:
            raise ValueError(
                f"process {shards.rank} holds {size} of {shards.num_rows} rows, but z has the "
                f"shape {tuple(z.shape)}; pass x[shards.own]"
            )
        self.z = z
        self.shards = shards
        self.method: Method = method

    def _product(self, x: Tensor, rows: Tensor | None) -> Tensor:
        # One all-gather for points and right-hand side together.
        dtype = compute_dtype(self.z, x)
        rank = self.z.shape[1]
        everything = self.shards.gather(torch.cat([self.z.to(dtype), x.to(dtype)], -1))
        points = self.z if rows is None else self.z.index_select(0, rows)
        product, _ = kernel_matmul(
            points.to(dtype), everything[:, :rank], everything[:, rank:], method=self.method
        )
        return product.to(x.dtype)

    def rows(self, index: Tensor) -> Tensor:
        """Return local rows, (M, N), with the weights to all nodes."""
        return kernel_weights(self.z[index], self.shards.gather(self.z))

    def _compute_degree(self) -> Tensor:
        z = self.z.to(compute_dtype(self.z))
        everything = self.shards.gather(z)
        no_columns = everything.new_zeros(everything.shape[0], 0)
        return kernel_matmul(z, everything, no_columns, method=self.method)[1]

    def _map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(function(self.z), self.shards, method=self.method)


class ShardedSparseGraph(_ShardedGraph):
    """A row-sharded given graph with constant weights.

    Args:
        matrix: local rows, (n, N).
        shards: layout of the rows.
        has_no_edges (bool, default False): whether no process has an edge; stored, so that reading
            it needs no communication.

    See :class:`jlgcn.distributed.sharded.ShardedKernelGraph` for the semantics.

    Cost: with P processes, E/P entries each; N·C numbers are gathered forward and scattered
    backward.

    Example:
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> edge = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
        >>> ShardedSparseGraph.from_graph(edge, Shards(2)).degree()
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """

    def __init__(
        self, matrix: SparseFeatures, shards: Shards, *, has_no_edges: bool = False
    ) -> None:
        self.matrix = matrix
        self.shards = shards
        self._has_no_edges = has_no_edges

    @classmethod
    def from_graph(cls, graph: SparseGraph, shards: Shards) -> Self:
        """Return the local rows of a graph that every process holds."""
        import scipy.sparse

        row, col = graph.edge_index.cpu().numpy()
        weight = graph.weight.detach().cpu().numpy()
        whole = scipy.sparse.csr_array((weight, (row, col)), shape=tuple(graph.shape))
        own = SparseFeatures.from_scipy(whole[shards.own]).to(graph.device)
        return cls(own, shards, has_no_edges=graph.has_no_edges)

    @property
    def has_no_edges(self) -> bool:
        """Whether no process has an edge."""
        return self._has_no_edges

    def _product(self, x: Tensor, rows: Tensor | None) -> Tensor:
        dtype = compute_dtype(self.matrix.value, x)
        matrix = replace(self.matrix, value=self.matrix.value.to(dtype))
        product = (matrix @ self.shards.gather(x.to(dtype))).to(x.dtype)
        return product if rows is None else product.index_select(0, rows)

    def rows(self, index: Tensor) -> Tensor:
        """Return local rows, (M, N), with the weights to all nodes."""
        rows = self.matrix.to_scipy()[index.cpu().numpy()].toarray()
        return torch.from_numpy(rows).to(self.device)

    def _map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        fields = {
            name: function(getattr(self.matrix, name)) for name in self.matrix.__dataclass_fields__
        }
        return type(self)(SparseFeatures(**fields), self.shards, has_no_edges=self._has_no_edges)
