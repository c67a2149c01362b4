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
    """Calibrate every graph learner of a network on the features that reach it in one forward pass.

    In training mode, where batch normalisation uses the statistics of the batch: those of an
    untrained network in evaluation mode would leave the features of later layers far too small.
    Running statistics stay as they are; dropout draws from the random state.

    Args:
        model: the network.
        forward: runs it once.
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
