"""Training on one graph: validation selects, the test nodes are looked at once, afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from jlgcn.data import NodeData
from jlgcn.graphs import Graph
from jlgcn.nn import JLGCN, JLGCNOutput
from jlgcn.train.loop import FitResult, Run, run_epochs


@dataclass(frozen=True)
class TrainConfig:
    """How a network is trained.

    Attributes:
        epochs: number of steps, each on the whole graph.
        lr: learning rate of Adam at the start.
        lr_step: epochs after which it is multiplied by `lr_decay`, again and again.
        lr_decay: what it is multiplied by; 1 for a constant rate.
        weight_decay: L2 penalty of Adam.
        glr_weight: weight λ of the graph Laplacian regularizer; 0 leaves it out.
        glr_probes: random directions in place of the features it smooths; None for all features.
    """

    epochs: int = 500
    lr: float = 0.1
    lr_step: int = 100
    lr_decay: float = 0.5
    weight_decay: float = 5e-4
    glr_weight: float = 1e-4
    glr_probes: int | None = 16

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        return self.lr * self.lr_decay ** (epoch // self.lr_step)


def fit(
    make_model: Callable[[], nn.Module],
    data: NodeData,
    x: Tensor,  # (N, in_channels)
    graph: Graph,
    config: TrainConfig,
    *,
    seed: int,
    trace_test: bool = False,
    checkpoints: Path | None = None,
    checkpoint_seconds: float = 120.0,
    progress: bool = False,
    label: str = "",
) -> tuple[nn.Module, FitResult]:
    """Train a network on the nodes of one graph and return it as validation selected it.

    Args:
        make_model: returns the network, called after the seed is set. It is called with features
            and a graph and returns logits, or is a :class:`jlgcn.nn.JLGCN`.
        data: labels and split.
        x: features, which may be scaled.
        graph: the given graph, which may be incomplete.
        config: how to train.
        seed: of everything random.
        trace_test: look at the test nodes after every epoch, as the paper's authors do. Only for
            their protocol: the best of these is reported apart, and selection never sees it.
        checkpoints: folder for checkpoints; a run that finds one goes on from it, and ends with the
            same parameters, bit for bit, as if nothing had happened. Ctrl-C and SIGTERM wait for
            the end of the epoch and leave one. None for none.
        checkpoint_seconds: time between two checkpoints.
        progress: show a bar, where there is a terminal.
        label: what the bar is called.

    Cost: a forward and backward pass and one further forward pass an epoch.
    """
    torch.manual_seed(seed)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    run = Run(model, optimizer)
    if checkpoints is not None:
        identity = {
            "config": asdict(config),
            "trace_test": trace_test,
            "seed": seed,
            "data": data.sha256,
        }
        run.resume(checkpoints, identity)
    run_epochs(
        run,
        config.epochs,
        lambda: _train_epoch(run, data, x, graph, config),
        lambda: _validate(run, data, x, graph, trace_test),
        checkpoints=checkpoints,
        checkpoint_seconds=checkpoint_seconds,
        progress=progress,
        label=label,
    )
    model.load_state_dict(run.best_state)
    _, test_logits = _evaluate(model, data, x, graph)
    best_test = max(row["test_accuracy"] for row in run.history) if trace_test else None
    accuracy = _accuracy(test_logits, data.y[data.test])
    return model, run.result(accuracy, best_test_accuracy=best_test)


def _train_epoch(run: Run, data: NodeData, x: Tensor, graph: Graph, config: TrainConfig) -> float:
    run.model.train()
    for group in run.optimizer.param_groups:
        group["lr"] = config.rate(run.epoch)
    logits, output = _logits(run.model, x, graph, data.train)
    loss = cross_entropy(logits, data.y[data.train])
    if config.glr_weight > 0 and output is not None:
        assert isinstance(run.model, JLGCN)
        glr = run.model.regularizer(output, x, probes=config.glr_probes)
        loss = loss + config.glr_weight * glr
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    return float(loss.detach())


def _validate(
    run: Run, data: NodeData, x: Tensor, graph: Graph, trace_test: bool
) -> dict[str, float]:
    """Measure the epoch on validation nodes."""
    logits, test_logits = _evaluate(run.model, data, x, graph)
    accuracy = _accuracy(logits, data.y[data.val])
    loss = float(cross_entropy(logits, data.y[data.val]))
    row = {"val_accuracy": accuracy, "val_loss": loss}
    if trace_test:
        row["test_accuracy"] = _accuracy(test_logits, data.y[data.test])
    return row


@torch.no_grad()
def _evaluate(model: nn.Module, data: NodeData, x: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
    """Return the logits of validation and of test nodes, the latter not always looked at.

    Always of both, because a kernel's last bit depends on how many rows it is asked for, and
    whether test nodes are traced must not change which epoch is selected.
    """
    model.eval()
    logits, _ = _logits(model, x, graph, torch.cat([data.val, data.test]))
    return logits[: data.val.shape[0]], logits[data.val.shape[0] :]


def _logits(
    model: nn.Module, x: Tensor, graph: Graph, nodes: Tensor
) -> tuple[Tensor, JLGCNOutput | None]:
    """Return the logits of some nodes; of a JLGCN, which computes no others, its output too."""
    if isinstance(model, JLGCN):
        output: JLGCNOutput = model(x, graph, nodes)
        return output.logits, output
    logits: Tensor = model(x, graph)
    return logits[nodes], None


def _accuracy(logits: Tensor, y: Tensor) -> float:
    return float((logits.argmax(-1) == y).double().mean())
