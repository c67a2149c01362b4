"""Calibration of all graph learners of a network in one forward pass."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from jlgcn.nn.learner import GraphLearner


@torch.no_grad()
def calibrate_learners(model: nn.Module, forward: Callable[[], object]) -> None:
    """Calibrate every graph learner of a network on its input in one forward pass.

    The pass runs in training mode, with batch statistics: the initial running statistics of batch
    normalisation would leave the features of later layers far too small. Running statistics are
    restored; dropout advances the random state.

    Args:
        model (nn.Module): the network.
        forward (callable): runs the network once.

    Cost: one forward pass.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    before = [deepcopy(norm.state_dict()) for norm in norms]
    was_training = model.training
    hooks = [
        module.register_forward_pre_hook(_calibrate_on_input)
        for module in model.modules()
        if isinstance(module, GraphLearner)
    ]
    try:
        model.train()
        forward()
    finally:
        for hook in hooks:
            hook.remove()
        model.train(was_training)
        for norm, state in zip(norms, before, strict=True):
            norm.load_state_dict(state)


def _calibrate_on_input(learner: nn.Module, args: tuple[Any, ...]) -> None:
    assert isinstance(learner, GraphLearner)
    x, _, valid = args
    learner.calibrate(x, valid)
