"""Labels that are scored: sealed while a method is fitted, opened once a freeze by one function."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from jlgcn._files import locked, write_file
from jlgcn.paper.records import read_lines

#: How often the method was frozen. A later freeze may read test labels again.
FREEZE = 4

#: What tells one reading from another, beside the row, which has a file of its own.
KEY = ("method", "split", "seed", "freeze")


@dataclass(frozen=True, eq=False)
class SealedTest:
    """Rows that are scored, and their classes, which :meth:`open` alone returns.

    Attributes:
        nodes: the rows, (T,), int64.
    """

    nodes: Tensor
    _labels: Tensor = field(repr=False)

    def open(self, path: Path, reading: dict[str, Any]) -> Tensor:  # (T,), int64
        """Record the reading in a file of lines, and return the classes.

        A reading that has a result is not repeated in the same freeze. One whose result was never
        written, because the run ended in between, may be repeated once; its line then has
        ``"resumed": true``.

        Args:
            path: file of the row, which gets a line for the reading and another for its result.
            reading: the entries of :data:`KEY`, the configuration and the commit.

        Raises:
            ValueError: this was read before.
            OSError: the line cannot be written; then the labels stay sealed.
        """
        key = [reading[name] for name in KEY]
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent):
            lines = read_lines(path)
            own = [line for line in lines if [line[name] for name in KEY] == key]
            if any("accuracy" in line for line in own) or len(own) > 1:
                raise ValueError(
                    f"{reading['method']} has read split {reading['split']} of {path.stem} in "
                    f"freeze {reading['freeze']}; its result stands, and is not computed again"
                )
            line = reading | {"opened": datetime.now(UTC).isoformat(timespec="seconds")}
            if own:
                line["resumed"] = True
            text = "".join(json.dumps(each) + "\n" for each in [*lines, line])
            write_file(path, text)
        return self._labels.clone()
