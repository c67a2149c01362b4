"""Edges for other tools: SciPy, PyTorch Geometric, NetworkX, Gephi, tables."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
import torch

from jlgcn._files import replacing, write_file
from jlgcn._optional import require
from jlgcn.graphs import EdgeList

if TYPE_CHECKING:
    from torch_geometric.data import Data

# What XML 1.0 cannot hold, escaped or not.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

# What spreadsheets take for a formula, and the numbers among it. Quotes may come first, so that no
# two cells become one.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def to_scipy(edges: EdgeList) -> scipy.sparse.csr_array:
    """Return the symmetric N × N matrix of edges, in compressed rows.

    Example:
        >>> from jlgcn.graphs import SparseGraph, top_edges
        >>> edges = top_edges(SparseGraph(torch.tensor([[0, 1], [1, 0]])), top_k=1)
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
        >>> from jlgcn.graphs import SparseGraph, top_edges
        >>> to_pyg(top_edges(SparseGraph(torch.tensor([[0, 1], [1, 0]])), top_k=1))
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
        >>> from jlgcn.graphs import SparseGraph, top_edges
        >>> edges = top_edges(SparseGraph(torch.tensor([[0, 1], [1, 0]])), top_k=1)
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
            and weight (Parquet needs the extra ``table``). For CSV, which people open in
            spreadsheets, ids go through :func:`csv_cell`; Parquet holds them as they are.
        ids: a name for each node; None for its number. GraphML and CSV hold text, so there ``1``
            and ``"1"`` would be one node and are refused.
    """
    path = Path(path)
    names = _names(edges, ids)
    if ids is not None and path.suffix in (".graphml", ".csv"):
        _check_differ(names, [str(name) for name in names], f" as text, which {path.suffix} holds")
    match path.suffix:
        case ".graphml":
            for name in names:
                if _NOT_XML.search(str(name)):
                    raise ValueError(
                        f"GraphML cannot hold the id {name!r}, which has a control character; "
                        "write a .csv or .parquet file, or pass other ids"
                    )
            import networkx

            with replacing(path) as file:
                networkx.write_graphml(to_networkx(edges, names), file)
        case ".csv":
            cells = [csv_cell(name) for name in names]
            text = io.StringIO()
            writer = csv.writer(text)
            writer.writerow(["source", "target", "weight"])
            ends = zip(edges.source.tolist(), edges.target.tolist(), strict=True)
            writer.writerows(
                (cells[i], cells[j], weight)
                for (i, j), weight in zip(ends, edges.weight.tolist(), strict=True)
            )
            write_file(path, text.getvalue())
        case ".parquet":
            arrow = require("pyarrow", "table", "a Parquet file")
            parquet = require("pyarrow.parquet", "table", "a Parquet file")
            try:
                column = arrow.array(list(names))
            except (arrow.ArrowInvalid, arrow.ArrowTypeError):
                kinds = ", ".join(sorted({type(name).__name__ for name in names}))
                raise ValueError(
                    f"Parquet holds ids of one type, but these are {kinds}; pass them all as text"
                ) from None
            table = arrow.table(
                {
                    "source": column.take(arrow.array(_numpy(edges, "source"))),
                    "target": column.take(arrow.array(_numpy(edges, "target"))),
                    "weight": _numpy(edges, "weight"),
                }
            )
            with replacing(path) as file:
                parquet.write_table(table, file)
        case other:
            raise ValueError(
                f"edges are written to .graphml, .csv or .parquet files, but {path.name} ends with "
                f"{other!r}"
            )
    return path


def csv_cell(value: object) -> str:
    """Return the text of a cell of a CSV file that a spreadsheet shows and does not compute.

    Text that begins with ``=``, ``+``, ``-``, ``@``, a tab or the end of a line, and is no number,
    gets a single quote in front (CSV injection: a spreadsheet would run it as a formula). Whoever
    reads the file with a program has to take the quote away.

    Example:
        >>> csv_cell("=1+1"), csv_cell("-1"), csv_cell("a-b")
        ("'=1+1", '-1', 'a-b')
    """
    text = "" if value is None else str(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _numpy(edges: EdgeList, name: str) -> np.ndarray:
    array: np.ndarray = getattr(edges, name).cpu().numpy()
    return array


def _names(edges: EdgeList, ids: Sequence[Any] | None) -> Sequence[Any]:
    names = range(edges.num_nodes) if ids is None else ids
    if len(names) != edges.num_nodes:
        raise ValueError(f"the graph has {edges.num_nodes} nodes but {len(names)} ids were given")
    if ids is not None:
        _check_differ(names, names, "")
    return names


def _check_differ(names: Sequence[Any], keys: Sequence[Any], how: str) -> None:
    first: dict[Any, int] = {}
    for node, key in enumerate(keys):
        other = first.setdefault(key, node)
        if other != node:
            raise ValueError(
                f"ids must name each node differently, but some of them are equal{how}: "
                f"{names[other]!r} of node {other} and {names[node]!r} of node {node}; pass others"
            )
