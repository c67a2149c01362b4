"""Loss and metric steps of :class:`jlgcn.nn.DecoupledJLGCN`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.graphs import Graph
from jlgcn.nn import DecoupledJLGCN
from jlgcn.nn.features import Features
from jlgcn.training.config import TrainConfig


@dataclass(frozen=True)
class DecoupledConfig(TrainConfig):
    """Hyperparameters of training a :class:`jlgcn.nn.DecoupledJLGCN` on nodes.

    Those of :class:`TrainConfig`, with other defaults, and

    Attributes:
        epochs (int ≥ 1, default 300): full-batch steps.
        lr (float > 0, default 0.01): learning rate of Adam for the MLP.
        lr_decay (float in (0, 1], default 1): factor of a decay.
        glr_weight (float ≥ 0, default 0): weight of the graph Laplacian regularizer of the
            predicted probabilities, a mean over nodes.
        num_passes (int ≥ 1, default 2): forward passes of a step, each with its own dropout masks.
        consistency (float ≥ 0, default 1): weight of the squared distance of each pass's
            probabilities from their sharpened mean, on all nodes; it grows over 50 epochs.
        temperature (float in (0, 1], default 0.5): of the sharpened mean; 1 does not sharpen.
        metric_epochs (tuple of int, default (100, 150, 200)): epochs before which the metric is
            regressed on the predicted classes of all nodes. Validation may still select an earlier
            epoch, whose metric is another, or Euclidean.
        metric_variance (float ≥ 0, default 0.1): variance of the features under the metric, in
            units of the Euclidean distance to a near neighbour; 1 suits embeddings.
        metric_lr (float ≥ 0, default 0): learning rate of the metric between these epochs, such as
            0.001. 0 keeps it: gradients from few labels did not improve it, and take twice as long.
        metric_decay (float ≥ 0, default 0): L2 penalty of the metric.

    Example:
        >>> DecoupledConfig().rate(200)
        0.01
    """

    epochs: int = 300
    lr: float = 0.01
    lr_decay: float = 1.0
    glr_weight: float = 0.0
    num_passes: int = 2
    consistency: float = 1.0
    temperature: float = 0.5
    metric_epochs: tuple[int, ...] = (100, 150, 200)
    metric_variance: float = 0.1
    metric_lr: float = 0.0
    metric_decay: float = 0.0


# Epochs over which the weight of the consistency grows from 0.
_RAMP = 50


def parameter_groups(model: DecoupledJLGCN, config: DecoupledConfig) -> list[dict[str, object]]:
    """Return the parameters for Adam: the metric has a learning rate and a decay of its own."""
    others = [p for name, p in model.named_parameters() if not name.startswith("metric")]
    metric = {"lr_factor": config.metric_lr / config.lr, "weight_decay": config.metric_decay}
    return [{"params": others}, {"params": list(model.metric.parameters()), **metric}]


def decoupled_loss(
    model: DecoupledJLGCN,
    x: Features,
    graph: Graph,
    y: Tensor,  # (N,), int64
    train: Tensor,  # (M,), int64
    epoch: int,
    config: DecoupledConfig,
    *,
    class_weight: Tensor | None = None,  # (C,)
) -> Tensor:  # ()
    """Return the training loss of an epoch; at some epochs, regress the metric before.

    Args:
        model: the network, in training mode.
        x: features.
        graph: given graph.
        y: classes; only those of `train` are read.
        train: training nodes.
        epoch: number of the epoch, from 0.
        config: hyperparameters.
        class_weight: weight of each class; None for 1.
    """
    if epoch in config.metric_epochs and config.metric_variance > 0:
        _regress_metric(model, x, graph, y, train, config)
    _, total = model.learn(x, graph)
    passes = [model.propagate(model.predict(x), total) for _ in range(config.num_passes)]
    probabilities = torch.stack([logits.softmax(-1) for logits in passes])
    losses = [functional.cross_entropy(z[train], y[train], class_weight) for z in passes]
    loss = torch.stack(losses).mean()
    if config.glr_weight > 0:
        glr = torch.stack([model.regularizer(logits, total) for logits in passes]).mean()
        loss = loss + config.glr_weight * glr
    weight = config.consistency * min(1.0, epoch / _RAMP)
    if weight > 0 and config.num_passes > 1:
        with torch.no_grad():
            sharp = probabilities.mean(0) ** (1 / config.temperature)
            sharp = sharp / sharp.sum(-1, keepdim=True)
        loss = loss + weight * (probabilities - sharp).square().sum(-1).mean()
    return loss


@torch.no_grad()
def _regress_metric(
    model: DecoupledJLGCN,
    x: Features,
    graph: Graph,
    y: Tensor,
    train: Tensor,
    config: DecoupledConfig,
) -> None:
    model.eval()
    probability = model(x, graph).logits.softmax(-1)
    model.train()
    labels = functional.one_hot(y[train], probability.shape[1])
    probability[train] = labels.to(probability.dtype)
    model.regress_metric(x, graph, probability, variance=config.metric_variance)
