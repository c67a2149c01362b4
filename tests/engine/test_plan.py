"""What a fit is estimated to take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jlgcn.closed_form import ClosedFormOptions
from jlgcn.engine.plan import (
    DEFAULTS,
    Size,
    advise,
    calibrate,
    load_constants,
    save_constants,
    ways_to_fit,
)

SIZE = Size(num_rows=1_000_000, num_features=64)


def test_time_grows_little_faster_than_the_rows() -> None:
    # Each row is compared with all centroids, whose number grows with the rows.
    ten_times = replace(SIZE, num_rows=10_000_000)
    ratio = ten_times.seconds(DEFAULTS) / SIZE.seconds(DEFAULTS)
    assert 10 < ratio < 10**1.2
    # Beyond 65,536 centroids there is a graph of them.
    many, more = (replace(SIZE, num_rows=rows).seconds(DEFAULTS) for rows in (10**8, 10**9))
    assert 9.9 < more / many < 10.1


def test_edges_layers_and_selection_take_time() -> None:
    with_edges = replace(SIZE, num_edges=5_000_000)
    one_layer = replace(SIZE, options=ClosedFormOptions(n_layers=1))
    chosen = ClosedFormOptions(n_neighbors=20, restart=0.05, metric_weight=1.0)
    assert with_edges.seconds(DEFAULTS) > SIZE.seconds(DEFAULTS)
    assert one_layer.seconds(DEFAULTS) < SIZE.seconds(DEFAULTS)
    assert replace(SIZE, options=chosen).seconds(DEFAULTS) < SIZE.seconds(DEFAULTS)


def test_the_smallest_way_that_has_the_memory_is_advised() -> None:
    for gib, name in ((1000, "memory"), (5, "local")):
        ways = ways_to_fit(SIZE, DEFAULTS, memory=gib * 2**30, cores=2, hours=1)
        assert advise(ways).name == name
        assert all(way.fits == (way.num_bytes <= gib * 2**30) for way in ways)


def test_a_fit_of_days_is_advised_to_take_machines() -> None:
    size = replace(SIZE, num_rows=100_000_000)
    ways = ways_to_fit(size, DEFAULTS, memory=2**37, cores=1, hours=2)
    assert advise(ways).name == "ray"
    assert ways[2].num_machines > 1
    assert ways[2].seconds <= 2 * 3600
    assert ways[2].moved_bytes > ways[2].disk_bytes


def test_nothing_is_advised_without_the_memory() -> None:
    ways = ways_to_fit(SIZE, DEFAULTS, memory=2**28, cores=2, hours=1)
    with pytest.raises(ValueError, match="no way to fit has enough memory: the smallest takes"):
        advise(ways)


def test_constants_are_saved_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "plan.json"
    save_constants(path, DEFAULTS)
    assert load_constants(path) == DEFAULTS
    path.write_text(path.read_text().replace("diffuse", "diffused"))
    with pytest.raises(ValueError, match="lacks fields, or has unknown ones"):
        load_constants(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="holds no JSON; run jlgcn plan --calibrate again"):
        load_constants(path)


@pytest.mark.slow
def test_calibration_measures_every_constant() -> None:
    found = calibrate(4_000)
    assert found.keys() == DEFAULTS.keys()
    assert all(value > 0 for value in found.values())
