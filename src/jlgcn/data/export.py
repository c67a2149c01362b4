"""Edges for other tools: SciPy, PyTorch Geometric, NetworkX, Gephi, tables."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
import torch

from jlgcn._optional import require
from jlgcn.graphs import EdgeList

if TYPE_CHECKING:
    from torch_geometric.data import Data

# What XML 1.0 cannot hold, escaped or not.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def to_scipy(edges: EdgeList) -> scipy.sparse.csr_array:
    """Return the symmetric N × N matrix of edges, in compressed rows.

    Example:
        >>> from jlgcn.graphs import SparseGraph, strongest_edges
        >>> edges = strongest_edges(SparseGraph(torch.tensor([[0, 1], [1, 0]])), top_k=1)
        >>> to_scipy(edges).toarray()
        array([[0., 1.],
               [1., 0.]], dtype=float32)
    """
    source, target, weight = (_numpy(edges, name) for name in ("source", "target", "weight"))
    ends = np.concatenate([source, target]), np.concatenate([target, source])
    shape = (edges.num_nodes, edges.num_nodes)
    return scipy.sparse.csr_array((np.concatenate([weight, weight]), ends), shape=shape)


def to_pyg(edges: EdgeList) -> Data:
    """Return a `Data` of PyTorch Geometric with `edge_index` and `edge_weight`, both directions.

    Example:
        >>> from jlgcn.graphs import SparseGraph, strongest_edges
        >>> to_pyg(strongest_edges(SparseGraph(torch.tensor([[0, 1], [1, 0]])), top_k=1))
        Data(edge_index=[2, 2], edge_weight=[2], num_nodes=2)
    """
    pyg = require("torch_geometric.data", "pyg", "a Data of PyTorch Geometric")
    one_way = torch.stack([edges.source, edges.target])
    return pyg.Data(
        edge_index=torch.cat([one_way, one_way.flip(0)], -1),
        edge_weight=torch.cat([edges.weight, edges.weight]),
        num_nodes=edges.num_nodes,
    )


def to_networkx(edges: EdgeList, ids: Sequence[Any] | None = None) -> Any:  # noqa: ANN401
    """Return a `networkx.Graph` with edge attribute `weight`; nodes are named by `ids`.

    Example:
        >>> from jlgcn.graphs import SparseGraph, strongest_edges
        >>> edges = strongest_edges(SparseGraph(torch.tensor([[0, 1], [1, 0]])), top_k=1)
        >>> list(to_networkx(edges, ["ann", "bob"]).edges(data=True))
        [('ann', 'bob', {'weight': 1.0})]
    """
    import networkx

    names = _names(edges, ids)
    graph = networkx.Graph()
    graph.add_nodes_from(names)
    ends = zip(edges.source.tolist(), edges.target.tolist(), strict=True)
    graph.add_weighted_edges_from(
        (names[i], names[j], weight)
        for (i, j), weight in zip(ends, edges.weight.tolist(), strict=True)
    )
    return graph


def write_edges(
    edges: EdgeList, path: str | os.PathLike[str], ids: Sequence[Any] | None = None
) -> Path:
    """Write edges to a file, in the format that its name ends with.

    Args:
        edges: what to write.
        path: ``.graphml`` opens in Gephi; ``.csv`` and ``.parquet`` have the columns source, target
            and weight (Parquet needs the extra ``table``).
        ids: a name for each node; None for its number.
    """
    path = Path(path)
    names = _names(edges, ids)
    match path.suffix:
        case ".graphml":
            for name in names:
                if _NOT_XML.search(str(name)):
                    raise ValueError(
                        f"GraphML cannot hold the id {name!r}, which has a control character; "
                        "write a .csv or .parquet file, or pass other ids"
                    )
            import networkx

            networkx.write_graphml(to_networkx(edges, names), path)
        case ".csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["source", "target", "weight"])
                ends = zip(edges.source.tolist(), edges.target.tolist(), strict=True)
                writer.writerows(
                    (names[i], names[j], weight)
                    for (i, j), weight in zip(ends, edges.weight.tolist(), strict=True)
                )
        case ".parquet":
            arrow = require("pyarrow", "table", "a Parquet file")
            parquet = require("pyarrow.parquet", "table", "a Parquet file")
            table = arrow.table(
                {
                    "source": [names[i] for i in edges.source.tolist()],
                    "target": [names[j] for j in edges.target.tolist()],
                    "weight": _numpy(edges, "weight"),
                }
            )
            parquet.write_table(table, path)
        case other:
            raise ValueError(
                f"edges are written to .graphml, .csv or .parquet files, but {path.name} ends with "
                f"{other!r}"
            )
    return path


def _numpy(edges: EdgeList, name: str) -> np.ndarray:
    array: np.ndarray = getattr(edges, name).cpu().numpy()
    return array


def _names(edges: EdgeList, ids: Sequence[Any] | None) -> Sequence[Any]:
    names = range(edges.num_nodes) if ids is None else ids
    if len(names) != edges.num_nodes:
        raise ValueError(f"the graph has {edges.num_nodes} nodes but {len(names)} ids were given")
    if ids is not None and len(set(names)) < len(names):
        raise ValueError("ids must name each node differently, but some of them are equal")
    return names
