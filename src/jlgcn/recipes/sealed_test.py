"""Test labels of claims: hidden while a method is fitted, and every reading of them counted."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from jlgcn._files import locked, write_file
from jlgcn.data import NodeData
from jlgcn.train.result import TEST_READS


@dataclass(frozen=True, eq=False)
class SealedTest:
    """The labels of the test nodes, which :meth:`open` alone returns, once the reading is recorded.

    Attributes:
        nodes: the test nodes, (T,), int64.
    """

    nodes: Tensor
    _labels: Tensor = field(repr=False)

    def open(self, folder: Path | None, reading: dict[str, Any]) -> Tensor:  # (T,), int64
        """Record a reading of the test labels in ``<folder>/test_reads.jsonl``, and return them.

        Every call is a reading, and has its line: a run that is repeated reads them again.

        Args:
            folder: where readings are counted; :func:`jlgcn.train.result.record` gathers them.
            reading: what reads them: recipe, variant, seed, commit, freeze.

        Raises:
            ValueError: there is no folder, so that the reading would not be counted.
            OSError: the line cannot be written. Then the labels stay unread.
        """
        if folder is None:
            raise ValueError(
                f"{len(self.nodes)} test labels are to be read, but nothing would count it; run "
                "the experiment by run_seed, or with Where(out=...), or with develops=True"
            )
        line = reading | {"opened": datetime.now(UTC).isoformat(timespec="microseconds")}
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / TEST_READS
        with locked(folder):
            before = path.read_text() if path.exists() else ""
            write_file(path, before + json.dumps(line) + "\n")
        return self._labels.clone()


def seal(data: NodeData) -> tuple[NodeData, SealedTest]:
    """Return the data with the classes of their test nodes hidden (-1), and these classes, sealed.

    Example:
        >>> import torch
        >>> from jlgcn.data import load_table
        >>> data, sealed = seal(load_table("wine", seed=0))
        >>> int(data.y[data.test].max()), len(sealed.nodes)
        (-1, 148)
    """
    labels = data.y[data.test]
    if bool((labels < 0).any()):
        raise ValueError(
            f"{int((labels < 0).sum())} of {len(labels)} test nodes of {data.name} have no class, "
            "or it is hidden already; pass data as they were loaded"
        )
    y = data.y.clone()
    y[data.test] = -1
    return replace(data, y=y), SealedTest(data.test, labels)
