"""Data of any size whose classes are known to be there: what scale is tried and measured on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from jlgcn._files import replacing
from jlgcn._optional import require
from jlgcn.nn import GraphLearner
from jlgcn.scale.packing import pack
from jlgcn.scale.store import PackedTable
from jlgcn.scale.table import NeighborTable

_CHUNK_ROWS = 1 << 18
_CLUSTERS = 3  # of a class


def write_planted(
    folder: str | os.PathLike[str],
    num_rows: int,
    *,
    num_features: int = 64,
    num_classes: int = 10,
    seed: int = 0,
) -> None:
    """Write Parquet files of rows in clusters, three a class (extra ``table``).

    Clusters lie in four dimensions, whose axes are directions of the features drawn at random;
    neighbouring clusters overlap, so no method is always right, and what is right does not depend
    on the number of rows. Every row has noise in all features, too. A file depends on the seed and
    its number only.

    Args:
        folder: where to; columns ``x0`` … and ``kind``.
        num_rows: rows.
        num_features: features of a row.
        num_classes: classes.
        seed: of everything.

    Cost: 8·num_features FLOP and 4·num_features bytes a row.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> write_planted(folder, 100)
        >>> os.listdir(folder)
        ['part-00000.parquet']
    """
    arrow = require("pyarrow", "table", "writing Parquet")
    parquet = require("pyarrow.parquet", "table", "writing Parquet")
    shared = np.random.default_rng(seed)
    centers = shared.normal(size=(_CLUSTERS * num_classes, 4))
    axes = np.linalg.qr(shared.normal(size=(max(num_features, 4), 4)))[0][:num_features].T
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, num_rows, _CHUNK_ROWS)):
        own = np.random.default_rng((seed, number))
        size = min(_CHUNK_ROWS, num_rows - start)
        cluster = own.integers(0, len(centers), size)
        latent = centers[cluster] + 0.3 * own.standard_normal((size, 4))
        x = (latent @ axes).astype(np.float32)
        x += 0.05 * own.standard_normal((size, num_features), dtype=np.float32)
        columns = {f"x{i}": x[:, i] for i in range(num_features)}
        table = arrow.table(columns | {"kind": (cluster % num_classes).astype(np.int32)})
        path = Path(folder) / f"part-{number:05d}.parquet"
        # Numbers that are all different make a dictionary as large as themselves.
        with replacing(path) as file:
            parquet.write_table(table, file, compression="none", use_dictionary=False)


def planted_table(
    folder: str | os.PathLike[str],
    num_rows: int,
    *,
    num_features: int = 8,
    num_neighbors: int = 5,
) -> tuple[PackedTable, NeighborTable]:
    """Return planted rows and their nearest ones, for examples and tests.

    Args:
        folder: where to write them.
        num_rows: rows.
        num_features: features of a row.
        num_neighbors: nearest rows.

    Cost: as :func:`write_planted` and :meth:`NeighborTable.build`.

    Example:
        >>> import tempfile
        >>> packed, table = planted_table(tempfile.mkdtemp(), 50)
        >>> packed
        PackedTable(50 rows, 8 features)
    """
    path = Path(folder)
    write_planted(path / "parquet", num_rows, num_features=num_features, num_classes=3)
    pack(path / "parquet", path / "packed", label="kind")
    packed = PackedTable(path / "packed")
    euclidean = GraphLearner(num_features, num_features, metric_init="identity")
    return packed, NeighborTable.build(packed, euclidean, num_neighbors, path / "table-0")
