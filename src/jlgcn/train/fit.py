"""Training on one graph: validation selects, the test nodes are looked at once, afterwards."""

from __future__ import annotations

import hashlib
import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from jlgcn.data import NodeData
from jlgcn.graphs import Graph
from jlgcn.nn import JLGCN, JLGCNOutput
from jlgcn.train.checkpoint import load_checkpoint, save_checkpoint
from jlgcn.train.interrupt import deferred_interruption


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


@dataclass(frozen=True)
class Best:
    """The epoch that validation selects: highest accuracy, and lowest loss among equals."""

    epoch: int = -1
    val_accuracy: float = -1.0
    val_loss: float = math.inf

    def is_beaten_by(self, val_accuracy: float, val_loss: float) -> bool:
        """Whether another epoch would be selected instead; the earlier one wins a tie."""
        return (val_accuracy, -val_loss) > (self.val_accuracy, -self.val_loss)


@dataclass(frozen=True)
class FitResult:
    """What came of a training run.

    Attributes:
        best_epoch: the epoch that validation selected, from 0.
        val_accuracy: its accuracy on validation nodes.
        test_accuracy: its accuracy on test nodes, looked at once.
        best_test_accuracy: the best of all epochs where test nodes were traced; None otherwise.
        seconds: time of all epochs, over all resumptions.
        peak_bytes: largest memory of the process.
        parameter_sha256: hash of the selected parameters.
        history: a row an epoch.
    """

    best_epoch: int
    val_accuracy: float
    test_accuracy: float
    best_test_accuracy: float | None
    seconds: float
    peak_bytes: int
    parameter_sha256: str
    history: list[dict[str, float]] = field(repr=False)


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
    run = _Run(model, optimizer)
    if checkpoints is not None:
        identity = {
            "config": asdict(config),
            "trace_test": trace_test,
            "seed": seed,
            "data": data.sha256,
        }
        run.resume(checkpoints, identity)
    started = saved = time.perf_counter()
    before = run.seconds
    bar = tqdm(
        total=config.epochs,
        initial=run.epoch,
        desc=label,
        unit="epoch",
        disable=None if progress else True,
        dynamic_ncols=True,
    )
    with bar, deferred_interruption() as interruption:
        while run.epoch < config.epochs:
            loss = _train_epoch(run, data, x, graph, config)
            row = _validate(run, data, x, graph, trace_test)
            run.history.append({"epoch": run.epoch, "loss": loss, **row})
            run.epoch += 1
            run.seconds = before + time.perf_counter() - started
            bar.set_postfix(loss=f"{loss:.3f}", val=f"{row['val_accuracy']:.3f}", refresh=False)
            bar.update()
            is_due = interruption.signal or time.perf_counter() - saved > checkpoint_seconds
            if checkpoints is not None and is_due:
                run.save(checkpoints)
                saved = time.perf_counter()
            if interruption.signal:
                interruption.raise_it()
    if checkpoints is not None:
        run.save(checkpoints)

    model.load_state_dict(run.best_state)
    _, test_logits = _evaluate(model, data, x, graph)
    best_test = max(row["test_accuracy"] for row in run.history) if trace_test else None
    return model, FitResult(
        best_epoch=run.best.epoch,
        val_accuracy=run.best.val_accuracy,
        test_accuracy=_accuracy(test_logits, data.y[data.test]),
        best_test_accuracy=best_test,
        seconds=run.seconds,
        peak_bytes=_peak_bytes(),
        parameter_sha256=_hash(run.best_state),
        history=run.history,
    )


class _Run:
    """All that changes while a network is trained, and so all that a checkpoint holds."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Adam) -> None:
        self.model = model
        self.optimizer = optimizer
        self.epoch = 0
        self.best = Best()
        self.best_state: dict[str, Tensor] = {}
        self.history: list[dict[str, float]] = []
        self.seconds = 0.0
        self.identity: dict[str, Any] = {}

    def save(self, folder: Path) -> None:
        tensors = {f"model/{name}": t for name, t in self.model.state_dict().items()}
        tensors |= {f"best/{name}": t for name, t in self.best_state.items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam/{index}/{name}": value for name, value in moments.items()}
        tensors["random"] = torch.get_rng_state()
        state = {
            "identity": self.identity,
            "epoch": self.epoch,
            "best": asdict(self.best),
            "history": self.history,
            "seconds": self.seconds,
        }
        save_checkpoint(folder, self.epoch, tensors, state)

    def resume(self, folder: Path, identity: dict[str, Any]) -> None:
        self.identity = identity
        found = load_checkpoint(folder)
        if found is None:
            return
        tensors, state = found
        if state["identity"] != identity:
            raise ValueError(
                f"the checkpoints in {folder} are of another run (other configuration, seed or "
                "data); choose another folder, or delete them to begin anew"
            )
        self.model.load_state_dict(_below(tensors, "model/"))
        self.best_state = _below(tensors, "best/")
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in _below(tensors, "adam/").items():
            index, _, key = name.partition("/")
            moments.setdefault(int(index), {})[key] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        torch.set_rng_state(tensors["random"])
        self.epoch = state["epoch"]
        self.best = Best(**state["best"])
        self.history = state["history"]
        self.seconds = state["seconds"]


def _train_epoch(run: _Run, data: NodeData, x: Tensor, graph: Graph, config: TrainConfig) -> float:
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
    value = float(loss.detach())
    if not math.isfinite(value):
        raise FloatingPointError(
            f"the loss is {value} in epoch {run.epoch}; use a smaller lr or glr_weight"
        )
    return value


def _validate(
    run: _Run, data: NodeData, x: Tensor, graph: Graph, trace_test: bool
) -> dict[str, float]:
    """Measure the epoch on validation nodes and remember it if it is the best so far."""
    logits, test_logits = _evaluate(run.model, data, x, graph)
    accuracy = _accuracy(logits, data.y[data.val])
    loss = float(cross_entropy(logits, data.y[data.val]))
    if run.best.is_beaten_by(accuracy, loss):
        run.best = replace(run.best, epoch=run.epoch, val_accuracy=accuracy, val_loss=loss)
        run.best_state = {name: t.detach().clone() for name, t in run.model.state_dict().items()}
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


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)}


def _hash(state: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes everywhere else
