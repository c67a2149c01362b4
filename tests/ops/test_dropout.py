from __future__ import annotations

import pytest
import torch

from jlgcn.ops.dropout import dropout


@pytest.mark.parametrize("density", [0.0, 0.01, 0.9])
@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_the_distribution_is_that_of_dropout(density: float, p: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(2000, 300, generator=generator) < density) * 3.0
    torch.manual_seed(0)
    dropped = dropout(x, p)
    assert dropped.shape == x.shape
    assert dropped[x == 0].eq(0).all()
    kept = dropped[x != 0]
    assert torch.isin(kept, torch.tensor([0.0, 3.0]) / (1 - p)).all()
    if density > 0:
        error = 4 * (p * (1 - p) / kept.numel()) ** 0.5
        assert abs(float(kept.eq(0).float().mean()) - p) < error


def test_each_call_draws_anew_and_a_seed_repeats_it() -> None:
    x = torch.eye(200)
    torch.manual_seed(3)
    first, second = dropout(x, 0.5), dropout(x, 0.5)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5), first)
    assert x.sum() == 200


def test_nothing_is_dropped_in_evaluation_or_at_probability_0() -> None:
    x = torch.eye(5)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0) is x
    assert dropout(x, 1.0).eq(0).all()


def test_gradients_are_those_of_dropout() -> None:
    x = torch.eye(50).requires_grad_()
    dropped = dropout(x, 0.5)
    dropped.sum().backward()
    assert x.grad is not None
    kept = dropped.detach() != 0
    assert x.grad[kept].eq(2).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1001,), (7, 11, 13), (0, 4)])
def test_entries_that_share_a_random_number_are_independent(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x = torch.ones(shape, dtype=dtype).requires_grad_()
    dropped = torch.stack([dropout(x, 0.3) for _ in range(400)])
    assert dropped.dtype == dtype
    assert dropped.shape == (400, *shape)
    kept = (dropped.detach() != 0).double().flatten(1)
    if kept.shape[1] == 0:
        return
    error = (0.3 * 0.7 / kept.numel()) ** 0.5
    assert abs(float(kept.mean()) - 0.7) < 5 * error
    for lag in (1, 2, 3, 4):
        together = ((kept[:, lag:] - 0.7) * (kept[:, :-lag] - 0.7)).mean()
        assert abs(float(together)) < 5 * 0.3 * 0.7 / kept[:, lag:].numel() ** 0.5


def test_probabilities_finer_than_the_bits_are_not_rounded() -> None:
    torch.manual_seed(0)
    x = torch.ones(1 << 22).requires_grad_()
    rare = 2.0**-18  # 16 entries of these, less than half of what 16 bits tell apart
    assert 1 <= int((dropout(x, rare) == 0).sum()) <= 40
    assert 1 <= int((dropout(x, 1 - rare) != 0).sum()) <= 40


def test_what_is_not_a_number_stays_so() -> None:
    x = torch.zeros(100, 10)
    x[:, 0] = float("nan")
    dropped = dropout(x, 0.5)
    assert dropped[:, 0].isnan().any()
    assert not dropped[:, 1:].isnan().any()


@pytest.mark.slow
def test_it_compiles_without_graph_breaks() -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda x: dropout(x, 0.5), fullgraph=True, backend="aot_eager")
    assert compiled(torch.eye(10)).shape == (10, 10)
