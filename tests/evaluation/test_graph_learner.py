from __future__ import annotations

import torch

from evaluation.studies.graph_learner import LABELS, split


def test_training_and_validation_rows_are_disjoint_and_have_every_class_alike() -> None:
    y = torch.arange(60) % 3
    y[:6] = -1  # nodes that are never labelled
    train, val = split(y, seed=4)
    assert not bool((train & val).any())
    for mask in (train, val):
        assert y[mask].bincount().tolist() == [LABELS] * 3
