"""The graph interface: a linear operator with products, degrees and Dirichlet energy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import reduce
from typing import Any, NoReturn, Self

import torch
from torch import Tensor

from jlgcn.ops.precision import compute_dtype
from jlgcn.ops.shapes import common_batch

# The functions by which a product of a graph and a tensor arrives in `__torch_function__`.
_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__)
_GRAPH_ON_THE_RIGHT = (
    "a graph must be the left operand of a product; write graph @ x, or graph.matmul(x) in a "
    "function for torch.compile, which does not distinguish graph @ x from x @ graph"
)


class Graph(ABC):
    r"""A symmetric, non-negative N × N adjacency matrix A, accessed by matrix products.

    Dense, sparse and matrix-free kernel graphs implement this interface. Sums and diagonal scalings
    of graphs are graphs, so the layers of the paper,

    .. math:: A_l = \Lambda^{-1/2} (A_{l-1} + A^*_l) \Lambda^{-1/2}

    never form an N × N matrix. A graph is immutable. Its tensors may require gradients, and all
    results are differentiable in them.

    A subclass implements :attr:`shape`, :meth:`matmul`, :meth:`rows` and :meth:`_map_tensors`, and
    is added to the contract suite in ``tests/graphs/contract.py``.

    Example:
        >>> from jlgcn import KernelGraph
        >>> graph = KernelGraph(torch.tensor([[0.0], [1.0], [50.0]])).normalized()
        >>> graph @ torch.ones(3, 1)
        tensor([[1.],
                [1.],
                [1.]])
    """

    _degree_cache: tuple[tuple[int, ...], Tensor] | None = None

    @property
    @abstractmethod
    def shape(self) -> torch.Size:
        r"""Shape of the matrix, (\*batch, N, N)."""

    @abstractmethod
    def matmul(
        self,
        x: Tensor,  # (*batch, N, C)
        rows: Tensor | None = None,  # (M,), int64
    ) -> Tensor:  # (*batch, N, C), or (*batch, M, C)
        """Return A x, or only the given rows of it, at proportionally lower cost.

        The result has the dtype of x; sums are accumulated in float32 or better.
        """

    @abstractmethod
    def rows(
        self,
        index: Tensor,  # (M,), int64
    ) -> Tensor:  # (*batch, M, N)
        """Return some rows of A as a dense matrix, for plots and export. Memory: M·N entries."""

    @abstractmethod
    def _map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Return this graph with `function` applied to each of its tensors."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return self.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """The promoted dtype of the floating-point tensors of the graph."""
        floating = (t.dtype for t in self._tensors() if t.dtype.is_floating_point)
        return reduce(torch.promote_types, floating)

    @property
    def device(self) -> torch.device:
        """The device of the tensors of the graph."""
        return self._tensors()[0].device

    @property
    def num_new(self) -> int:
        """Number of nodes, the last ones, that were attached after training (:func:`attach`)."""
        return 0

    @property
    def has_no_edges(self) -> bool:
        """Whether the sparsity pattern, without reading weights, shows that there are no edges."""
        return False

    def degree(self) -> Tensor:  # (*batch, N)
        r"""Return the row sums :math:`d_i = \sum_j a_{ij}`, in float32 or better.

        Cached where no gradient is required. While gradients are recorded it is recomputed at each
        call: a cached result would belong to an earlier backward pass, or to weights that an
        optimizer has changed since.
        """
        if torch.compiler.is_compiling():
            return self._compute_degree()
        tensors = self._tensors()
        records = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        # Inference tensors cannot take part in a later backward pass, so they are not cached.
        infers = torch.is_inference_mode_enabled() or any(t.is_inference() for t in tensors)
        if records or infers:
            return self._compute_degree()
        versions = tuple(t._version for t in tensors)
        if self._degree_cache is None or self._degree_cache[0] != versions:
            self._degree_cache = (versions, self._compute_degree())
        return self._degree_cache[1]

    def dirichlet(
        self,
        f: Tensor,  # (*batch, N, C)
    ) -> Tensor:  # (*batch,)
        r"""Return the Dirichlet energy of f, summed over ordered pairs.

        .. math:: \sum_{ij} a_{ij} \|f_i - f_j\|^2 = 2\, \mathrm{tr}(F^\top (D - A) F)

        Twice the quadratic form of the combinatorial Laplacian. Sparse graphs sum differences.
        Others evaluate the quadratic form in float64, whatever the dtypes: in float32 cancellation
        costs a tenth of the value when clusters are a thousand times further apart than wide, which
        is where training drives them.

        Cost: one product of C + 1 columns in float64, or 3·E·C FLOP for E edges.
        """
        self._check_operand(f, "f")
        return self._dirichlet(f, scale=None)

    def scaled(
        self,
        scale: Tensor,  # (*batch, N)
    ) -> Graph:
        """Return diag(s) A diag(s) for a non-negative `scale`. Cost: none until it is used."""
        if scale.shape[-1:] != self.shape[-1:]:
            raise ValueError(
                f"scale must have one entry for each of {self.num_nodes} nodes, but its shape is "
                f"{tuple(scale.shape)}; pass a vector such as graph.degree()"
            )
        return self._scaled(scale)

    def normalized(self, *, degree: Tensor | None = None, min_degree: float = 0.0) -> Graph:
        r"""Return the symmetric normalisation :math:`D^{-1/2} A D^{-1/2}`.

        A node of degree 0 keeps its zero row.

        Args:
            degree: the degrees, (\*batch, N); None computes them.
            min_degree (float ≥ 0, default 0): lower bound to which degrees are clamped.

        Cost: one :meth:`degree`.
        """
        degree = self.degree() if degree is None else degree
        if min_degree > 0:
            return self.scaled(degree.clamp(min=min_degree).rsqrt())
        has_edges = degree > 0
        # The inner `where` avoids an infinite derivative at isolated nodes.
        scale = torch.where(has_edges, degree, 1).rsqrt() * has_edges
        return self.scaled(scale)

    def to(
        self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Self:
        """Return the graph on another device, or with its floating-point tensors in `dtype`."""
        return self._map_tensors(
            lambda t: t.to(device=device, dtype=dtype if t.dtype.is_floating_point else None)
        )

    def detach(self) -> Self:
        """Return the graph with its tensors detached from autograd."""
        return self._map_tensors(Tensor.detach)

    def to_dense(self) -> Tensor:  # (*batch, N, N)
        """Return A as a dense matrix, for small graphs and plots. Memory: N² entries."""
        return self.rows(torch.arange(self.num_nodes, device=self.device))

    def __matmul__(self, x: Tensor) -> Tensor:
        self._check_operand(x, "x")
        return self.matmul(x)

    def __rmatmul__(self, x: object) -> NoReturn:
        raise TypeError(_GRAPH_ON_THE_RIGHT)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., object],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Compute ``torch.matmul(graph, x)``; no other PyTorch function accepts a graph."""
        if function not in _PRODUCTS:
            return NotImplemented
        graph, x = args
        if not isinstance(graph, Graph):
            # torch.compile swaps the operands of `graph @ x` (PyTorch 2.13), which is then
            # indistinguishable from `x @ graph`. Raising makes `graph @ x` run uncompiled.
            raise TypeError(_GRAPH_ON_THE_RIGHT)
        graph._check_operand(x, "x")
        return graph.matmul(x)

    def __add__(self, other: Graph) -> Graph:
        if not isinstance(other, Graph):
            return NotImplemented
        total = SumGraph(self, other)  # checks the sizes
        # A sum with an empty graph keeps the class, and the speed, of the other graph.
        if self.has_no_edges and other.shape == total.shape:
            return other
        if other.has_no_edges and self.shape == total.shape:
            return self
        return total

    def __repr__(self) -> str:
        shape = " × ".join(str(size) for size in self.shape)
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{type(self).__name__}({shape}, {dtype}, {self.device})"

    def __getstate__(self) -> dict[str, Any]:
        # The cache is neither copied nor pickled.
        return {name: value for name, value in vars(self).items() if name != "_degree_cache"}

    def _scaled(self, scale: Tensor) -> Graph:
        return ScaledGraph(self, scale)

    def _compute_degree(self) -> Tensor:
        tensors = self._tensors()
        ones = tensors[0].new_ones((*self.shape[:-1], 1), dtype=compute_dtype(*tensors))
        return self.matmul(ones).squeeze(-1)

    def _dirichlet(self, f: Tensor, scale: Tensor | None) -> Tensor:
        """Return Σ_ij s_i s_j a_ij ‖f_i - f_j‖², the energy on diag(s) A diag(s)."""
        f64 = f.double()
        f64 = f64 - self._mean_row(f64.detach())
        s = torch.ones_like(f64[..., :1]) if scale is None else scale.double().unsqueeze(-1)
        product = self.to(dtype=torch.float64).matmul(torch.cat(_aligned(s, s * f64), -1))
        square = f64.square().sum(-1, keepdim=True)
        energy = square * (s * product[..., :1]) - (f64 * (s * product[..., 1:])).sum(-1, True)
        return (2 * energy.sum((-2, -1))).to(compute_dtype(f))

    def _mean_row(self, f: Tensor) -> Tensor:  # (*batch, N, C) to (*batch, 1, C)
        return f.mean(-2, keepdim=True)

    def _tensors(self) -> list[Tensor]:
        tensors: list[Tensor] = []

        def collect(tensor: Tensor) -> Tensor:
            tensors.append(tensor)
            return tensor

        self._map_tensors(collect)
        return tensors

    def _check_operand(self, x: Tensor, name: str) -> None:
        if not x.dtype.is_floating_point:
            raise ValueError(f"{name} must be floating point, but it is {x.dtype}; call .float()")
        if x.dim() < 2:
            raise ValueError(
                f"{name} must be a matrix, (*batch, nodes, channels), but its shape is "
                f"{tuple(x.shape)}; add a last dimension with {name}.unsqueeze(-1)"
            )
        if x.shape[-2] != self.num_nodes:
            raise ValueError(
                f"the graph has {self.num_nodes} nodes but {name} has {x.shape[-2]} rows; "
                "pass the graph and the features of the same nodes"
            )


class SumGraph(Graph):
    """The sum of two or more graphs on the same nodes; a product is the sum of their products.

    Args:
        parts: graphs; nested sums are flattened. Batch dimensions are broadcast.

    Cost: the sum of the costs of the parts.

    Example:
        >>> from jlgcn import KernelGraph
        >>> graph = KernelGraph(torch.zeros(2, 1))
        >>> (graph + graph).to_dense()
        tensor([[2., 2.],
                [2., 2.]])
    """

    def __init__(self, *parts: Graph) -> None:
        self.parts: tuple[Graph, ...] = tuple(
            flat
            for part in parts
            for flat in (part.parts if isinstance(part, SumGraph) else [part])
        )
        if len({part.num_nodes for part in self.parts}) > 1:
            sizes = " and ".join(str(part.num_nodes) for part in self.parts)
            raise ValueError(
                f"graphs to be added must have the same nodes, but they have {sizes}; pass graphs "
                "of one set of nodes"
            )

    @property
    def shape(self) -> torch.Size:
        """Shape of the matrix, with the batch dimensions of all parts."""
        return common_batch(*(part.shape for part in self.parts))

    @property
    def num_new(self) -> int:
        """Number of attached nodes, the largest of the parts."""
        return max(part.num_new for part in self.parts)

    def matmul(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the sum of the parts' products."""
        wide = x.to(compute_dtype(x))  # half precision would round every term
        return _total([part.matmul(wide, rows) for part in self.parts]).to(x.dtype)

    def rows(self, index: Tensor) -> Tensor:
        """Return the sum of the parts' rows."""
        return _total([part.rows(index) for part in self.parts])

    def _scaled(self, scale: Tensor) -> Graph:
        # Scaling each part keeps a flat sum of leaves at any number of layers.
        return SumGraph(*(part.scaled(scale) for part in self.parts))

    def _compute_degree(self) -> Tensor:
        return _total([part.degree() for part in self.parts]).expand(self.shape[:-1])

    def _dirichlet(self, f: Tensor, scale: Tensor | None) -> Tensor:
        return _total([part._dirichlet(f, scale) for part in self.parts])

    def _map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(*(part._map_tensors(function) for part in self.parts))


class ScaledGraph(Graph):
    r"""A graph between two diagonal matrices, :math:`\mathrm{diag}(s)\, A\, \mathrm{diag}(s)`.

    Args:
        base: the graph A.
        scale: the diagonal, (\*batch, N), not negative.

    Cost: the cost of `base`, plus 2·N·C multiplications per product.

    Example:
        >>> from jlgcn import KernelGraph
        >>> KernelGraph(torch.zeros(2, 1)).scaled(torch.tensor([1.0, 3.0])).to_dense()
        tensor([[1., 3.],
                [3., 9.]])
    """

    def __init__(self, base: Graph, scale: Tensor) -> None:
        self.base = base
        self.scale = scale

    @property
    def shape(self) -> torch.Size:
        """Shape of the matrix, with the batch dimensions of the graph and of the scale."""
        batch = common_batch(self.base.shape[:-2], self.scale.shape[:-1])
        return torch.Size((*batch, *self.base.shape[-2:]))

    @property
    def num_new(self) -> int:
        """Number of attached nodes."""
        return self.base.num_new

    def matmul(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return s ⊙ A (s ⊙ x)."""
        scale = self.scale.unsqueeze(-1)
        row_scale = scale if rows is None else scale.index_select(-2, rows)
        return (row_scale * self.base.matmul(scale * x, rows)).to(x.dtype)

    def rows(self, index: Tensor) -> Tensor:
        """Return s_i a_ij s_j for the rows in `index`."""
        scale = self.scale
        return scale[..., index].unsqueeze(-1) * self.base.rows(index) * scale.unsqueeze(-2)

    def _scaled(self, scale: Tensor) -> Graph:
        return ScaledGraph(self.base, self.scale * scale)

    def _dirichlet(self, f: Tensor, scale: Tensor | None) -> Tensor:
        return self.base._dirichlet(f, self.scale if scale is None else self.scale * scale)

    def _map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(self.base._map_tensors(function), function(self.scale))


def _total(terms: list[Tensor]) -> Tensor:
    return reduce(torch.add, terms)


def _aligned(*tensors: Tensor) -> list[Tensor]:
    """Broadcast all dimensions except the last, along which the tensors are concatenated."""
    batch = common_batch(*(tensor.shape[:-1] for tensor in tensors))
    return [tensor.expand(*batch, tensor.shape[-1]) for tensor in tensors]
