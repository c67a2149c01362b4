"""Pure functions on tensors: Gaussian kernel products, sparse products, nearest neighbours."""

from jlgcn.ops.gaussian import kernel_matmul
from jlgcn.ops.knn import nearest_neighbors
from jlgcn.ops.sparse_matrix import SparseFeatures

__all__ = [
    "SparseFeatures",
    "kernel_matmul",
    "nearest_neighbors",
]
