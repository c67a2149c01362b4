"""The memory that stages take, by which they are scheduled, and blocks are made narrow."""

from __future__ import annotations

from jlgcn.closed_form.layer import DIFFUSED_COLUMNS

# Bytes of a diffusion: so many columns of all nodes in float32, six times (the right-hand side,
# three iterates, a product and its scaled operand). A narrower block takes less.
_DIFFUSION_BYTES = 4 * 2**30
_BYTES_OF_ENTRY = 24
_MIN_BLOCKS = 4
_MIN_COLUMNS = 4

#: What a stage takes besides its data: PyTorch and FAISS.
PROCESS_BYTES = 400 * 2**20

#: Memory in which all edges are joined, two thirds by DuckDB before it spills to disk, and sorted.
EDGES_BYTES = 3 * 2**30


def shard_bytes(rows: int, num_features: int, num_candidates: int) -> int:
    """Return the memory of a stage that sees the features of a shard, or its candidates."""
    return PROCESS_BYTES + rows * 16 * (num_features + 3 * num_candidates)


def index_bytes(num_nodes: int, num_features: int) -> int:
    """Return the memory in which an index is merged; FAISS grows lists by doubling them."""
    return PROCESS_BYTES + 8 * num_nodes * (num_features + 2)


def blocks_of_columns(num_nodes: int, count: int) -> list[list[int]]:
    """Return first and last column of every block: few of many nodes, for their memory."""
    width = min(DIFFUSED_COLUMNS, -(-count // _MIN_BLOCKS))
    while width > _MIN_COLUMNS and width * num_nodes * _BYTES_OF_ENTRY > _DIFFUSION_BYTES:
        width = -(-width // 2)
    return [[first, min(first + width, count)] for first in range(0, count, width)]


def diffusion_bytes(num_nodes: int, blocks: list[list[int]]) -> int:
    """Return the memory of the diffusion of a block of columns."""
    first, last = blocks[0]
    return PROCESS_BYTES + num_nodes * ((last - first) * _BYTES_OF_ENTRY + 8)


def edge_bytes(rows: int, num_candidates: int, num_neighbors: int) -> int:
    """Return the memory in which the edges of a shard are ranked, or made symmetric."""
    return PROCESS_BYTES + rows * (40 * num_candidates + 350 * num_neighbors)
