from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from jlgcn.data import FeatureScaler
from jlgcn.ops import SparseFeatures


def dense(x: torch.Tensor | SparseFeatures) -> torch.Tensor:
    if isinstance(x, SparseFeatures):
        return torch.from_numpy(x.to_scipy().toarray())
    return x


def test_columns_of_a_table_get_mean_0_and_variance_1_and_new_rows_the_same_scale() -> None:
    x = torch.randn(50, 3) * torch.tensor([1.0, 100.0, 0.0]) + 7
    scaler = FeatureScaler.fit(x)
    assert scaler.kind == "table"
    scaled = dense(scaler(x))
    assert scaled.mean(0).abs().max() < 1e-5
    assert torch.allclose(scaled.std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-5)
    assert torch.equal(dense(scaler(x[:4])), scaled[:4])
    assert not dense(scaler(x + 1))[:, 2].any()  # a constant column says nothing, whatever comes


def test_counted_words_are_weighted_by_their_rarity_and_rows_have_length_1() -> None:
    counts = torch.tensor([[1.0, 0, 0, 0], [1, 3, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]])
    for x in (counts, SparseFeatures.from_dense(counts)):
        scaler = FeatureScaler.fit(x, "words")
        weight = [math.sqrt(math.log(4 / (n + 1))) for n in (3, 1, 1)]
        row = torch.tensor([weight[0], 2 * weight[1], 0, 0])  # log2(1 + 3) = 2
        assert torch.allclose(dense(scaler(x))[1], row / row.norm())
        assert dense(scaler(x))[3].tolist() == [0, 0, 0, 0]


def test_words_are_told_from_tables_by_their_number_and_zeros() -> None:
    words = (torch.arange(120 * 150).view(120, 150) % 7 == 0).float()
    for x, kind in (
        (words, "words"),
        (words[:, :99], "table"),  # pictures have as many zeros
        (SparseFeatures.from_dense(words[:, :99]), "words"),
        (1 - words, "table"),
        (-words, "table"),
    ):
        assert FeatureScaler.fit(x).kind == kind


def test_words_that_were_weighted_already_count_by_the_root_of_their_weights() -> None:
    x = torch.tensor([[0.3, 0.0, 0.0], [0.0, 0.64, 0.36]])
    scaler = FeatureScaler.fit(x, "words")
    assert torch.allclose(dense(scaler(x))[1], torch.tensor([0.0, 0.8, 0.6]))
    as_they_are = dense(replace(scaler, power=1.0)(x))[1]
    assert torch.allclose(as_they_are, x[1] / x[1].norm())


def test_dates_in_seconds_are_no_constant() -> None:
    x = torch.tensor([[1.7e9], [1.7e9 + 100], [1.7e9 + 200]], dtype=torch.float64)
    assert dense(FeatureScaler.fit(x)(x)).squeeze().tolist() == pytest.approx(
        [-1.2247, 0, 1.2247], abs=1e-4
    )


def test_negative_counts_are_refused_and_make_no_nan() -> None:
    x = SparseFeatures.from_dense(torch.tensor([[-1.0, 0.0], [2.0, 0.0]]))
    with pytest.raises(ValueError, match=r'negative numbers; use the scaler "none"'):
        FeatureScaler.fit(x)(x)


def test_what_is_asked_for_is_done() -> None:
    x = torch.tensor([[0.0, 5.0], [0.0, 7.0]])
    assert FeatureScaler.fit(x, "none")(x) is x
    assert FeatureScaler.fit(x, "table").kind == "table"
    with pytest.raises(ValueError, match="kind must be one of auto, words, table, none"):
        FeatureScaler.fit(x, "image")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='cannot be shifted; use kind="words" or "none"'):
        FeatureScaler.fit(SparseFeatures.from_dense(x), "table")
    with pytest.raises(ValueError, match="x has 3 features but the scaler was made for 2"):
        FeatureScaler.fit(x)(torch.ones(1, 3))
