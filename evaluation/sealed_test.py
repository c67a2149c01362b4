"""Test labels of claims: hidden while a method is fitted, and every reading of them counted."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from jlgcn._files import locked, write_file
from jlgcn.paper.node_data import NodeData
from jlgcn.paper.records import read_lines, record

#: Every reading of the test nodes of a claim, and the freeze of the method that it was of.
TEST_READS = "test_reads.jsonl"


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
            folder: where readings are counted; :func:`record_all` gathers them.
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
        >>> from evaluation.tables import load_table
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


def record_all(runs: Path, results: Path) -> list[Path]:
    """Gather finished runs (:func:`jlgcn.paper.records.record`) and all readings of test labels.

    Readings were counted in `runs` when they happened, whatever became of the run. Of runs that
    finished before that was so, the result says that there was one.
    """
    counted = [line for file in sorted(runs.rglob(TEST_READS)) for line in read_lines(file)]
    finished = [json.loads(file.read_text()) for file in sorted(runs.rglob("result.json"))]
    finished = [_reading(line) for line in finished if "freeze" in line]
    if counted or finished:
        results.mkdir(parents=True, exist_ok=True)
        with locked(results):
            path = results / TEST_READS
            known = [*read_lines(path), *counted]
            readings = [_reading(line) for line in known]
            for line in finished:
                if line not in readings:
                    readings.append(line)
                    known.append(line)
            unique = dict.fromkeys(json.dumps(line) for line in known)
            write_file(path, "".join(f"{text}\n" for text in unique))
    return record(runs, results)


def _reading(line: dict[str, Any]) -> dict[str, Any]:
    names = ("recipe", "variant", "seed", "commit", "freeze", "correction")
    return {name: line[name] for name in names if name in line}
