from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats

from evaluation.paired import ahead


def line(seed: int, right: np.ndarray, *, keeps: bool = True) -> dict[str, Any]:
    bits = {"correct": np.packbits(right).tobytes().hex(), "num_test": len(right)}
    return {"seed": seed, "test_accuracy": float(right.mean())} | (bits if keeps else {})


def draw(seed: int, share: float, size: int = 1003) -> np.ndarray:
    return np.random.default_rng(seed).random(size) < share


def test_other_splits_are_paired_by_seed() -> None:
    ours = [line(seed, draw(seed, 0.8), keeps=False) for seed in range(4)]
    theirs = [line(seed, draw(seed, 0.7), keeps=False) for seed in range(1, 6)]
    found = ahead(ours, theirs, ours_vary=True, theirs_vary=True)
    assert found is not None
    difference = [ours[s]["test_accuracy"] - theirs[s - 1]["test_accuracy"] for s in (1, 2, 3)]
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(difference), scipy.stats.sem(difference))
    assert found["mean"] == pytest.approx(np.mean(difference))
    assert (found["low"], found["high"]) == pytest.approx((low, high))
    assert found["seeds"] == 3


@pytest.mark.parametrize("keeps", [False, True])
def test_runs_without_a_common_seed_are_not_compared(keeps: bool) -> None:
    ours = [line(seed, draw(seed, 0.8), keeps=keeps) for seed in range(2)]
    theirs = [line(seed, draw(seed, 0.7), keeps=keeps) for seed in range(2, 4)]
    assert ahead(ours, theirs, ours_vary=True, theirs_vary=True) is None


def test_methods_without_chance_are_paired_by_node() -> None:
    first, second = draw(0, 0.8), draw(1, 0.7)
    fixed = {"ours_vary": False, "theirs_vary": False}
    found = ahead([line(0, first)], [line(0, second)], **fixed)
    assert found is not None
    difference = first.astype(float) - second
    half = 1.96 * difference.std(ddof=1) / math.sqrt(1003)
    assert found["mean"] == pytest.approx(difference.mean())
    assert found["high"] - found["mean"] == pytest.approx(half)
    assert found["seeds"] == 1
    # The same answers: no difference, whatever seeds there are.
    assert ahead([line(0, first)], [line(s, first) for s in (3, 4)], **fixed) == {
        "mean": 0.0,
        "low": 0.0,
        "high": 0.0,
        "seeds": 1,
    }


def test_a_run_that_does_not_vary_is_paired_with_every_seed_of_one_that_does() -> None:
    ours = [line(0, draw(0, 0.8))]
    theirs = [line(seed, draw(seed, 0.7)) for seed in range(5)]
    found = ahead(ours, theirs, ours_vary=False, theirs_vary=True)
    assert found is not None
    share = np.mean([draw(seed, 0.7) for seed in range(5)], axis=0)
    nodes = 1.96 * scipy.stats.sem(draw(0, 0.8) - share)
    seeds = scipy.stats.t.ppf(0.975, 4) * scipy.stats.sem([r["test_accuracy"] for r in theirs])
    assert found["high"] - found["mean"] == pytest.approx(math.hypot(nodes, seeds))
    assert found["mean"] == pytest.approx((draw(0, 0.8) - share).mean())
    assert found["seeds"] == 5


def test_seeds_that_one_method_lacks_are_left_out() -> None:
    # Our other seeds are far better, which is no merit: the rival was not run on them.
    ours = [line(0, draw(0, 0.7)), *(line(seed, draw(seed, 0.9)) for seed in range(1, 10))]
    theirs = [line(0, draw(100, 0.7))]
    found = ahead(ours, theirs, ours_vary=True, theirs_vary=True)
    assert found is not None
    assert found["mean"] == pytest.approx(float(draw(0, 0.7).mean() - draw(100, 0.7).mean()))
    assert found["seeds"] == 1


@pytest.mark.parametrize(("ours_vary", "theirs_vary"), [(True, True), (False, True), (True, False)])
def test_one_seed_of_a_method_that_varies_has_no_interval(
    ours_vary: bool, theirs_vary: bool
) -> None:
    found = ahead(
        [line(0, draw(0, 0.8))],
        [line(0, draw(1, 0.7))],
        ours_vary=ours_vary,
        theirs_vary=theirs_vary,
    )
    assert found is not None
    assert (found["low"], found["high"], found["seeds"]) == (None, None, 1)
    assert found["mean"] == pytest.approx(float(draw(0, 0.8).mean() - draw(1, 0.7).mean()))
