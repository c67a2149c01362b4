"""Training on one graph: validation selects, the test nodes are looked at once, afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from jlgcn._validation import check_finite, check_labels, check_shape, warn_of_absent_classes
from jlgcn.distributed.collectives import process_group, sum_over_processes
from jlgcn.graphs import Graph, SparseGraph
from jlgcn.nn import JLGCN, JLGCNOutput
from jlgcn.ops import SparseFeatures
from jlgcn.training.deterministic import bits_identity, deterministic_algorithms
from jlgcn.training.loop import FitResult, Run, RunOptions, run_epochs
from jlgcn.training.node_data import NodeData


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


def fit_nodes(
    make_model: Callable[[], nn.Module],
    data: NodeData,
    *,
    config: TrainConfig,
    seed: int,
    x: Tensor | SparseFeatures | None = None,  # (N, in_channels)
    graph: Graph | None = None,
    trace_test: bool = False,
    options: RunOptions | None = None,
) -> tuple[nn.Module, FitResult]:
    """Train a network on the nodes of one graph and return it as validation selected it.

    Under `torchrun`, in a process group, the rows of the exact learned graphs are shared among the
    processes (:func:`jlgcn.distributed.distribute`); they end with the parameters of one process,
    up to rounding (and up to dropout, which each process draws for its own rows).

    Args:
        make_model: returns the network, called after the seed is set. It is called with features
            and a graph and returns logits, or is a :class:`jlgcn.nn.JLGCN`.
        data: given graph, labels and split.
        config: optimisation settings.
        seed: random seed.
        x: scaled features in place of `data.x`; baselines also take sparse ones.
        graph: another graph in place of the given one.
        trace_test: evaluate on the test nodes after every epoch, as the paper's authors do. Only
            for their protocol: the best epoch is reported apart, and selection never sees it.
        options: device, checkpoints, determinism, progress bar.

    Cost: a forward and backward pass and one further forward pass an epoch.
    """
    options = RunOptions() if options is None else options
    data = data.to(options.device)
    x = data.x if x is None else x.to(options.device)
    graph = data.graph() if graph is None else graph.to(device=options.device)
    check_shape(x.shape, "x")
    check_finite(x if isinstance(x, Tensor) else x.value)
    for name in ("train", "val"):
        check_labels(data.y, getattr(data, name), data.num_nodes, name=name)
    if trace_test:
        check_labels(data.y, data.test, data.num_nodes, name="test")
    warn_of_absent_classes(data.y, data.train, data.num_classes)
    with deterministic_algorithms(options.deterministic):
        torch.manual_seed(seed)
        model = make_model().to(options.device)
        if isinstance(model, JLGCN) and not isinstance(x, Tensor):
            raise ValueError(
                "JLGCN takes features as a tensor, but x is sparse; pass it dense: "
                "torch.from_numpy(x.to_scipy().toarray())"
            )
        optimizer = torch.optim.Adam(
            model.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )
        run = Run(model, optimizer)
        if options.checkpoints is not None:
            identity = {
                "config": asdict(config),
                "trace_test": trace_test,
                "seed": seed,
                "data": data.sha256,
            }
            run.resume(options.checkpoints, identity | bits_identity(options.deterministic))
        part = _Part.of(model, data, x, graph, seed)
        _calibrate(model, part)
        run_epochs(
            run,
            config.epochs,
            lambda: _train_epoch(run, part, config),
            lambda: _validate(run, part, trace_test),
            options=options,
        )
        model.load_state_dict(run.best_state)
        _, test_logits = _evaluate(model, part)
        best_test = max(row["test_accuracy"] for row in run.history) if trace_test else None
        is_hidden = not bool((data.y[data.test] >= 0).any())
        accuracy = math.nan if is_hidden else part.accuracy(test_logits, part.test)
        return model, run.result(accuracy, best_test_accuracy=best_test)


@dataclass(frozen=True, eq=False)
class _Part:
    """The rows of this process: all of them, where it is alone.

    Attributes:
        x: features, (n, in_channels).
        graph: given graph, of n rows.
        y: classes, (n,).
        train: training nodes among them.
        val: validation nodes among them.
        test: test nodes among them.
        counts: of training, validation and test nodes, over all processes.
        seed: of the run, where processes share it; None where this one is alone.
    """

    x: Tensor | SparseFeatures
    graph: Graph
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    counts: dict[str, int]
    seed: int | None = None

    @classmethod
    def of(
        cls,
        model: nn.Module,
        data: NodeData,
        x: Tensor | SparseFeatures,
        graph: Graph,
        seed: int,
    ) -> _Part:
        """Return the part of this process, for whose sake the network is changed if need be."""
        nodes = {name: getattr(data, name) for name in ("train", "val", "test")}
        counts = {name: len(index) for name, index in nodes.items()}
        if process_group()[1] == 1:
            return cls(x, graph, data.y, **nodes, counts=counts)
        from jlgcn.distributed import ShardedSparseGraph, distribute

        assert isinstance(graph, SparseGraph)
        assert isinstance(x, Tensor)  # baselines, which take others, are not shared
        shards = distribute(model, data.num_nodes)
        own = shards.own
        nodes = {
            name: index[(index >= own.start) & (index < own.stop)] - own.start
            for name, index in nodes.items()
        }
        given = ShardedSparseGraph.from_graph(graph, shards)
        return cls(x[own], given, data.y[own], **nodes, counts=counts, seed=seed)

    def draw(self, epoch: int) -> torch.Generator | None:
        """Return where an epoch's random directions are drawn from: None for PyTorch's own state.

        Processes need the same directions, and dropout that differs. Both follow from the epoch, so
        that a checkpoint of the first process is enough for all to go on.
        """
        if self.seed is None:
            return None
        rank, num_processes = process_group()
        torch.manual_seed((self.seed * 1_000_003 + epoch) * num_processes + rank)
        return torch.Generator(self.y.device).manual_seed(self.seed * 1_000_003 + epoch)

    def mean(self, terms: Tensor, name: str) -> Tensor:
        """Return the sum of this process's terms, divided by the number of terms of all."""
        return terms.sum() / self.counts[name]

    def accuracy(self, logits: Tensor, nodes: Tensor) -> float:
        """Return the accuracy over all processes."""
        name = "val" if nodes is self.val else "test"
        correct = (logits.argmax(-1) == self.y[nodes]).double()
        return float(sum_over_processes(self.mean(correct, name)))


def _calibrate(model: nn.Module, part: _Part) -> None:
    """Scale metrics that start at the median, by the dropout that the first epoch will draw."""
    if isinstance(model, JLGCN) and not all(learner.is_calibrated for learner in model.learners):
        assert isinstance(part.x, Tensor)
        with torch.random.fork_rng(devices=[part.x.device] if part.x.is_cuda else []):
            part.draw(0)
            model.calibrate(part.x, part.graph)


def _train_epoch(run: Run, part: _Part, config: TrainConfig) -> float:
    run.model.train()
    for group in run.optimizer.param_groups:
        group["lr"] = config.rate(run.epoch)
    generator = part.draw(run.epoch)
    logits, output = _logits(run.model, part, part.train)
    loss = part.mean(cross_entropy(logits, part.y[part.train], reduction="none"), "train")
    if config.glr_weight > 0 and output is not None:
        assert isinstance(run.model, JLGCN)
        assert isinstance(part.x, Tensor)
        glr = run.model.regularizer(output, part.x, probes=config.glr_probes, generator=generator)
        loss = loss + config.glr_weight * glr
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    return float(sum_over_processes(loss.detach()))


def _validate(run: Run, part: _Part, trace_test: bool) -> dict[str, float]:
    """Measure the epoch on validation nodes."""
    logits, test_logits = _evaluate(run.model, part)
    loss = part.mean(cross_entropy(logits, part.y[part.val], reduction="none"), "val")
    row = {
        "val_accuracy": part.accuracy(logits, part.val),
        "val_loss": float(sum_over_processes(loss)),
    }
    if trace_test:
        row["test_accuracy"] = part.accuracy(test_logits, part.test)
    return row


@torch.no_grad()
def _evaluate(model: nn.Module, part: _Part) -> tuple[Tensor, Tensor]:
    """Return the logits of validation and of test nodes, the latter not always looked at.

    Always of both, because a kernel's last bit depends on how many rows it is asked for, and
    whether test nodes are traced must not change which epoch is selected.
    """
    model.eval()
    logits, _ = _logits(model, part, torch.cat([part.val, part.test]))
    return logits[: len(part.val)], logits[len(part.val) :]


def _logits(model: nn.Module, part: _Part, nodes: Tensor) -> tuple[Tensor, JLGCNOutput | None]:
    """Return the logits of some nodes; of a JLGCN, which computes no others, its output too."""
    if isinstance(model, JLGCN):
        output: JLGCNOutput = model(part.x, part.graph, nodes)
        return output.logits, output
    logits: Tensor = model(part.x, part.graph)
    return logits[nodes], None
