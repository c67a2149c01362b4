"""Pure functions on tensors; nothing here holds parameters or knows of graphs."""

from jlgcn.ops.blocks import block_matmul, kernel_matrix
from jlgcn.ops.csr import Pattern, csr_matmul, edge_dot, edge_squared_distance, symmetric_pattern
from jlgcn.ops.dropout import dropout
from jlgcn.ops.flash import flash_works
from jlgcn.ops.gaussian import kernel_matmul
from jlgcn.ops.knn import nearest_neighbors
from jlgcn.ops.sparse_matrix import SparseFeatures, pair_distances
from jlgcn.ops.svd import principal_directions

__all__ = [
    "Pattern",
    "SparseFeatures",
    "block_matmul",
    "csr_matmul",
    "dropout",
    "edge_dot",
    "edge_squared_distance",
    "flash_works",
    "kernel_matmul",
    "kernel_matrix",
    "nearest_neighbors",
    "pair_distances",
    "principal_directions",
    "symmetric_pattern",
]
