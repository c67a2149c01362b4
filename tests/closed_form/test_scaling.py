from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA, TruncatedSVD

from jlgcn.closed_form import FeatureScaler
from jlgcn.closed_form.scaling import Kind
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
    with pytest.raises(ValueError, match="one of auto, words, table, embeddings, none, but"):
        FeatureScaler.fit(x, "image")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'cannot be standardised .* use kind="words", "embed'):
        FeatureScaler.fit(SparseFeatures.from_dense(x), "table")
    with pytest.raises(ValueError, match="x has 3 features but the scaler was fitted to 2"):
        FeatureScaler.fit(x)(torch.ones(1, 3))


def encoded(num_rows: int = 200, num_columns: int = 32) -> torch.Tensor:
    """Return rows of length 1, as sentence encoders give them."""
    x = torch.randn(num_rows, num_columns, generator=torch.Generator().manual_seed(0))
    unit: torch.Tensor = x / x.norm(dim=-1, keepdim=True)
    return unit


def test_vectors_of_encoders_svd_and_pca_are_embeddings_and_stay_as_they_are() -> None:
    digits = load_digits().data
    no_text = torch.cat([encoded(), torch.zeros(1, 32)])
    for x in (
        encoded(),
        encoded().half().float(),
        no_text,
        torch.from_numpy(PCA(30).fit_transform(digits)),
        torch.from_numpy(PCA(30).fit(digits[:900]).transform(digits[900:])),
        torch.from_numpy(TruncatedSVD(30, random_state=0).fit_transform(digits)),
    ):
        scaler = FeatureScaler.fit(x)
        assert scaler.kind == "embeddings"
        assert scaler(x) is x


@pytest.mark.parametrize("load", [load_digits, load_wine, load_breast_cancer])
def test_measurements_are_no_embeddings_even_if_they_are_standardised(
    load: Callable[[], Any],
) -> None:
    x = load().data
    standardised = (x - x.mean(0)) / np.maximum(x.std(0), 1e-9)
    for table in (x, standardised, x[:, np.argsort(-(x**2).sum(0))]):
        assert FeatureScaler.fit(torch.from_numpy(table)).kind == "table"


def test_few_columns_and_columns_without_a_negative_number_are_no_embeddings() -> None:
    for x in (encoded(num_columns=7), encoded().abs(), 2 * encoded(), torch.eye(20)):
        assert FeatureScaler.fit(x).kind == "table"


def test_a_scaler_says_what_it_took_features_for() -> None:
    assert repr(FeatureScaler.fit(encoded())) == "FeatureScaler(embeddings, 32 features)"


@pytest.mark.parametrize("kind", ["table", "none", "embeddings"])
@pytest.mark.parametrize(("dtype", "power"), [(torch.float32, 90), (torch.float64, 700)])
def test_powers_of_two_do_not_change_a_bit(kind: Kind, dtype: torch.dtype, power: int) -> None:
    x = torch.rand(40, 3, dtype=dtype, generator=torch.Generator().manual_seed(0)) + 0.5
    x = x / x.max() * 0.75  # what is not ordinary is brought between 1/2 and 1
    for sign in (1, -1):
        extreme = x * torch.tensor(2.0**sign, dtype=dtype) ** power
        scaled = dense(FeatureScaler.fit(extreme, kind)(extreme))
        assert torch.equal(scaled, dense(FeatureScaler.fit(x, kind)(x)))


def test_columns_of_very_different_units_all_count() -> None:
    action = torch.tensor([1.1e-34, 6.6e-34, 3.3e-34, 0.5e-34])  # joule-seconds, in float32
    x = torch.stack([action, torch.tensor([1e30, 2e30, 5e30, 4e30])], 1)
    scaled = dense(FeatureScaler.fit(x, "table")(x))
    assert torch.allclose(scaled.std(0, correction=0), torch.ones(2), atol=1e-5)


def test_a_column_whose_inverse_cannot_be_held_is_named() -> None:
    x = torch.tensor([[1.0, 1e-310], [2.0, 3e-310]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"numbers of column 1 .* largest is 3e-310; multiply"):
        FeatureScaler.fit(x, "table")


@pytest.mark.parametrize("factor", [1e155, 1e307, 1e-160, 1e-310])
def test_weights_of_words_may_have_any_unit(factor: float) -> None:
    x = torch.tensor([[0.3, 0.0, 0.7], [0.0, 0.64, 0.36], [0.1, 0.5, 0.0]], dtype=torch.float64)
    expected = dense(FeatureScaler.fit(x, "words")(x))
    scaler = FeatureScaler.fit(factor * x, "words")
    assert not scaler.is_count
    assert torch.allclose(dense(scaler(factor * x)), expected, rtol=1e-6)


def test_a_row_of_words_that_all_rows_have_is_empty() -> None:
    counts = (torch.arange(60 * 9).view(60, 9) % 4 == 0).float()
    counts[:, 0] = 1
    counts[50:, 1:] = 0
    scaled = FeatureScaler.fit(counts, "words")(counts)
    assert isinstance(scaled, SparseFeatures)
    assert not scaled.crow.diff()[50:].any()
    assert bool(scaled.value.all())
