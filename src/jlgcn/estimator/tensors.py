"""Validation of the tensors of a saved model: names, dtypes, shapes, graphs, sparse features."""

from __future__ import annotations

from collections.abc import Collection

import scipy.sparse
import torch
from torch import Tensor

from jlgcn._validation import check_finite
from jlgcn.graphs import SparseGraph
from jlgcn.ops import SparseFeatures
from jlgcn.ops.csr import symmetric_pattern

Shapes = dict[str, tuple[str, ...]]


def check_names(tensors: dict[str, Tensor], names: Collection[str]) -> None:
    """Raise unless there are exactly these tensors."""
    if tensors.keys() != set(names):
        wrong = ", ".join(sorted(tensors.keys() ^ set(names))[:5])
        raise ValueError(f"tensors are missing, or there are unknown ones: {wrong[:200]}")


def check_shapes(
    tensors: dict[str, Tensor],
    shapes: Shapes,
    dtype: torch.dtype,
    *,
    integers: Collection[str] = (),
    infinite: Collection[str] = (),
    sizes: dict[str, int] | None = None,
) -> dict[str, int]:
    """Check dtypes, shapes and finiteness of tensors; return the size of each letter.

    Args:
        tensors: tensors by name; others than those of `shapes` are ignored.
        shapes: a letter for each dimension; one letter is the same number everywhere.
        dtype: of all tensors but integers.
        integers: names of int64 tensors, besides those that end with /row, /col and /crow.
        infinite: names of tensors that may be infinite, but not negative.
        sizes: sizes that are known already.
    """
    sizes = {} if sizes is None else sizes
    for name, letters in shapes.items():
        tensor = tensors[name]
        is_integer = name in integers or name.endswith(("/row", "/col", "/crow"))
        wanted = torch.int64 if is_integer else dtype
        if tensor.dtype != wanted:
            raise ValueError(f"{name} must be {wanted}, but it is {tensor.dtype}")
        known = tuple(sizes.setdefault(k, n) for k, n in zip(letters, tensor.shape, strict=False))
        if len(letters) != tensor.dim() or known != tuple(tensor.shape):
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, but needs {known}")
        if name not in infinite:
            check_finite(tensor, name, "save the model again")
        elif not bool((tensor >= 0).all()):
            raise ValueError(f"{name} must not be negative or NaN")
    if "N+1" in sizes and sizes["N+1"] != sizes["N"] + 1:
        raise ValueError(f"x/crow has {sizes['N+1']} entries for {sizes['N']} rows")
    for letter in ("N", "F", "D", "C", "M", "V"):
        if sizes.get(letter, 1) < 1:
            raise ValueError(f"a tensor is empty: {letter} is 0")
    return sizes


def check_floating(tensor: Tensor, name: str) -> torch.dtype:
    """Raise unless a tensor is float32 or float64; return its dtype."""
    if tensor.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be float32 or float64, but it is {tensor.dtype}")
    return tensor.dtype


def check_range(name: str, numbers: Tensor, low: int, end: int) -> None:
    """Raise unless all integers are from `low` to `end` - 1."""
    if numbers.numel() and not low <= int(numbers.min()) <= int(numbers.max()) < end:
        raise ValueError(
            f"{name} must be from {low} to {end - 1}, but it is from {int(numbers.min())} to "
            f"{int(numbers.max())}"
        )


def features_to_tensors(x: Tensor | SparseFeatures) -> dict[str, Tensor]:
    """Return dense or sparse features as tensors."""
    if isinstance(x, SparseFeatures):
        return {"x/crow": x.crow, "x/col": x.col, "x/value": x.value}
    return {"x": x}


def features_shapes(tensors: dict[str, Tensor]) -> Shapes:
    """Return the shapes of :func:`features_to_tensors`."""
    if "x" in tensors:
        return {"x": ("N", "F")}
    return {"x/crow": ("N+1",), "x/col": ("X",), "x/value": ("X",)}


def features_from_tensors(
    tensors: dict[str, Tensor], num_rows: int, num_features: int
) -> Tensor | SparseFeatures:
    """Return features whose shapes were checked, after validating the sparse pattern."""
    if "x" in tensors:
        return tensors["x"]
    value, col, crow = (tensors[f"x/{name}"] for name in ("value", "col", "crow"))
    # SciPy's check_format takes differences, which overflow near 2**63.
    check_range("x/crow", crow, 0, len(value) + 1)
    check_range("x/col", col, 0, num_features)
    if int(crow[0]) != 0 or int(crow[-1]) != len(value) or bool((crow.diff() < 0).any()):
        raise ValueError("x/crow must ascend from 0 to the number of entries")
    parts = tuple(part.cpu().numpy() for part in (value, col, crow))
    matrix = scipy.sparse.csr_array(parts, shape=(num_rows, num_features))
    return SparseFeatures.from_scipy(matrix).to(value.device)


def graph_to_tensors(name: str, graph: SparseGraph) -> dict[str, Tensor]:
    """Return a graph as tensors."""
    row, col = graph.edge_index
    return {f"{name}/row": row, f"{name}/col": col, f"{name}/weight": graph.weight}


def graph_shapes(name: str) -> Shapes:
    """Return the shapes of :func:`graph_to_tensors`."""
    return {f"{name}/{part}": (f"E {name}",) for part in ("row", "col", "weight")}


def graph_from_tensors(tensors: dict[str, Tensor], name: str, num_nodes: int) -> SparseGraph:
    """Return a graph, after validating its pattern and its weights."""
    row, col, weight = (tensors[f"{name}/{part}"] for part in ("row", "col", "weight"))
    check_range(f"{name}/row", row, 0, num_nodes)
    check_range(f"{name}/col", col, 0, num_nodes)
    pattern = symmetric_pattern(row, col, num_nodes)
    if not (torch.equal(pattern.row, row) and torch.equal(pattern.col, col)):
        raise ValueError(f"edges of {name} must be sorted and in both directions")
    if not bool((weight >= 0).all()):
        raise ValueError(f"a weight of {name} is negative")
    if not torch.allclose(weight, weight[pattern.reverse], rtol=1e-4, atol=1e-7):
        raise ValueError(f"weights of {name} differ between the directions of an edge")
    return SparseGraph.from_pattern(pattern, weight)
