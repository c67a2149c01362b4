from __future__ import annotations

import torch

from jlgcn.nn.batch_norm import BatchNorm


def test_it_normalises_by_the_rows_of_all_processes() -> None:
    here, there = torch.randn(2, 6, 3, dtype=torch.float64)
    plain, shared = BatchNorm(3).double(), BatchNorm(3).double()
    expected = plain(torch.cat([here, there]))[:6]
    # What the other process adds to each of the two sums: of rows, and of squared differences.
    sums = iter([there.sum(0), (there - torch.cat([here, there]).mean(0)).square().sum(0)])
    shared.sum_over_processes = lambda x: x + torch.cat([next(sums), x.new_tensor([6.0])])
    assert torch.allclose(shared(here), expected)
    for name, value in plain.state_dict().items():
        assert torch.allclose(shared.state_dict()[name], value), name
    assert torch.allclose(shared.eval()(here), plain.eval()(here))  # without any other process
