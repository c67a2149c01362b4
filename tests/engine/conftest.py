"""Small data in several cells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jlgcn.closed_form import layer, sharded_prepare
from jlgcn.ops.cells import NUM_PROBES


@pytest.fixture(scope="module", autouse=True)
def cells() -> Iterator[None]:
    """Put rows into several cells, so that they are renumbered; a search looks at all of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharded_prepare, "number_of_cells", lambda _: NUM_PROBES)
        # The statistics of all rows, since memory and shards sample others.
        patch.setattr(layer, "_NUM_SAMPLED", 10**6)
        yield
