"""Export of edges to SciPy, PyTorch Geometric, NetworkX, GraphML, CSV and Parquet."""

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

# Characters that XML 1.0 cannot contain, escaped or not.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

# Cells that spreadsheets take for formulas, and numbers among them. Leading quotes are matched, so
# that two different cells stay different.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _check_edges(edges: object) -> None:
    if not isinstance(edges, EdgeList):
        raise TypeError(
            f"edges must be an EdgeList, but it is a {type(edges).__name__}; pass "
            "jlgcn.graphs.top_edges(graph, top_k=…)"
        )


def to_scipy(edges: EdgeList) -> scipy.sparse.csr_array:
    """Return the symmetric adjacency matrix, (N, N), in CSR format.

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
    """Return a PyTorch Geometric `Data` with `edge_index` and `edge_weight`, in both directions.

    Example:
        >>> from jlgcn.graphs import SparseGraph, top_edges
        >>> to_pyg(top_edges(SparseGraph(torch.tensor([[0, 1], [1, 0]])), top_k=1))
        Data(edge_index=[2, 2], edge_weight=[2], num_nodes=2)
    """
    _check_edges(edges)
    pyg = require("torch_geometric.data", "pyg", "a Data of PyTorch Geometric")
    one_way = torch.stack([edges.source, edges.target])
    return pyg.Data(
        edge_index=torch.cat([one_way, one_way.flip(0)], -1),
        edge_weight=torch.cat([edges.weight, edges.weight]),
        num_nodes=edges.num_nodes,
    )


def to_networkx(
    edges: EdgeList,
    ids: Sequence[Any] | None = None,
    *,
    attribute: str = "weight",
) -> Any:  # noqa: ANN401
    """Return a `networkx.Graph` with weights as an edge attribute, and nodes named by `ids`.

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
    weighted = (
        (names[i], names[j], weight)
        for (i, j), weight in zip(ends, edges.weight.tolist(), strict=True)
    )
    graph.add_weighted_edges_from(weighted, weight=attribute)
    return graph


def write_edges(
    edges: EdgeList,
    path: str | os.PathLike[str],
    ids: Sequence[Any] | None = None,
    *,
    attribute: str = "weight",
) -> Path:
    """Write edges to a file whose suffix is its format.

    Args:
        edges: edges to write.
        path: file that ends with ``.graphml`` (for Gephi), ``.csv`` or ``.parquet`` (extra
            ``table``). Tables have the columns source, target and `attribute`. Ids in CSV are
            escaped for spreadsheets by :func:`csv_cell`.
        ids: names of the nodes; None for their numbers. GraphML and CSV store text, so ids that are
            equal as text, such as ``1`` and ``"1"``, are refused.
        attribute (str, default "weight"): name of the weights' column, or of the attribute in
            GraphML, such as "score" for the tables of an audit.
    """
    path = Path(path)
    names = _names(edges, ids)
    if ids is not None and path.suffix in (".graphml", ".csv"):
        _check_differ(names, [str(name) for name in names], f" as text, which {path.suffix} stores")
    match path.suffix:
        case ".graphml":
            for name in names:
                if _NOT_XML.search(str(name)):
                    raise ValueError(
                        f"GraphML cannot contain the id {name!r}, which has a control character; "
                        "write a .csv or .parquet file, or pass other ids"
                    )
            import networkx

            with replacing(path) as file:
                networkx.write_graphml(to_networkx(edges, names, attribute=attribute), file)
        case ".csv":
            cells = [csv_cell(name) for name in names]
            text = io.StringIO()
            writer = csv.writer(text)
            writer.writerow(["source", "target", attribute])
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
                    f"ids in Parquet must be of one type, but these are {kinds}; pass them as text"
                ) from None
            table = arrow.table(
                {
                    "source": column.take(arrow.array(_numpy(edges, "source"))),
                    "target": column.take(arrow.array(_numpy(edges, "target"))),
                    attribute: _numpy(edges, "weight"),
                }
            )
            with replacing(path) as file:
                parquet.write_table(table, file)
        case other:
            raise ValueError(
                f"the file must end with .graphml, .csv or .parquet, but {path.name} ends with "
                f"{other!r}; rename it"
            )
    return path


def csv_cell(value: object) -> str:
    """Return a CSV cell that is safe from formula injection.

    Text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end, and is not a number, is
    prefixed with a single quote: a spreadsheet would run it as a formula. Programs that read the
    file must remove the quote.

    Example:
        >>> csv_cell("=1+1"), csv_cell("-1"), csv_cell("a-b")
        ("'=1+1", '-1', 'a-b')
    """
    text = "" if value is None else str(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _numpy(edges: EdgeList, name: str) -> np.ndarray:
    _check_edges(edges)
    array: np.ndarray = getattr(edges, name).cpu().numpy()
    return array


def _names(edges: EdgeList, ids: Sequence[Any] | None) -> Sequence[Any]:
    _check_edges(edges)
    names = range(edges.num_nodes) if ids is None else ids
    if len(names) != edges.num_nodes:
        raise ValueError(
            f"the graph has {edges.num_nodes} nodes but {len(names)} ids were given; pass one each"
        )
    if ids is not None:
        _check_differ(names, names, "")
    return names


def _check_differ(names: Sequence[Any], keys: Sequence[Any], how: str) -> None:
    first: dict[Any, int] = {}
    for node, key in enumerate(keys):
        other = first.setdefault(key, node)
        if other != node:
            raise ValueError(
                f"ids must be unique, but some are equal{how}: {names[other]!r} of node {other} "
                f"and {names[node]!r} of node {node}; rename one"
            )
