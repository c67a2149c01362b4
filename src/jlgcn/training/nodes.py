"""Training for node classification, full batch; test labels are read once, after selection."""

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
    """Hyperparameters of training on nodes, by Adam with a step-wise learning rate.

    Attributes:
        epochs (int ≥ 1, default 500): full-batch steps.
        lr (float > 0, default 0.1): initial learning rate of Adam.
        lr_step (int ≥ 1, default 100): epochs between two decays of the learning rate.
        lr_decay (float in (0, 1], default 0.5): factor of a decay; 1 for a constant rate.
        weight_decay (float ≥ 0, default 5e-4): L2 penalty of Adam.
        glr_weight (float ≥ 0, default 1e-4): weight λ of the graph Laplacian regularizer; 0
            disables it.
        glr_probes (int ≥ 1 or None, default 16): Hutchinson probes of the regularizer, see
            :func:`jlgcn.nn.laplacian_regularizer`; None for its exact value.

    Example:
        >>> TrainConfig().rate(100)
        0.05
    """

    epochs: int = 500
    lr: float = 0.1
    lr_step: int = 100
    lr_decay: float = 0.5
    weight_decay: float = 5e-4
    glr_weight: float = 1e-4
    glr_probes: int | None = 16

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, from 0."""
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
    """Train a network for node classification, and return it at the epoch validation selects.

    Under `torchrun`, the rows of exact learned graphs are sharded over the processes
    (:func:`jlgcn.distributed.distribute`); all end with the parameters of a single process, up to
    rounding (and up to dropout, which each process draws for its own rows).

    Args:
        make_model (callable): returns the network, called after the seed is set: a
            :class:`jlgcn.nn.JLGCN`, or a module that maps features and a graph to logits.
        data (NodeData): features, given graph, labels and split.
        config (TrainConfig): optimisation hyperparameters.
        seed (int): random seed.
        x (Tensor, SparseFeatures or None, default None): features in place of `data.x`; sparse ones
            for baselines only.
        graph (Graph or None, default None): graph in place of the given one.
        trace_test (bool, default False): evaluate the test nodes after every epoch, as the paper's
            authors do. The best test epoch is reported separately; selection never uses it.
        options (RunOptions or None, default None): device, checkpoints, determinism, progress bar.

    Returns:
        The network with the selected parameters, and the result.

    Cost: per epoch, a forward and backward pass and a forward pass for validation.

    Example:
        >>> data = NodeData("path", torch.eye(3), torch.tensor([0, 0, 1]),
        ...     torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([0, 2]),
        ...     torch.tensor([1]), torch.tensor([1]), sha256="")
        >>> config = TrainConfig(epochs=2)
        >>> model, result = fit_nodes(lambda: JLGCN(3, 4, 2), data, config=config, seed=0)
        >>> len(result.history)
        2
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
                "JLGCN needs features as a dense tensor, but x is sparse; pass "
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
    """The shard of rows of this process; all rows in a single process.

    Attributes:
        x: features, (n, in_channels).
        graph: given graph, of n rows.
        y: classes, (n,).
        train: training nodes of the shard.
        val: its validation nodes.
        test: its test nodes.
        counts: numbers of training, validation and test nodes over all processes.
        seed: seed of the run; None in a single process.
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
        """Return the shard of this process; with several, distribute the network."""
        nodes = {name: getattr(data, name) for name in ("train", "val", "test")}
        counts = {name: len(index) for name, index in nodes.items()}
        if process_group()[1] == 1:
            return cls(x, graph, data.y, **nodes, counts=counts)
        from jlgcn.distributed import ShardedSparseGraph, distribute

        assert isinstance(graph, SparseGraph)
        assert isinstance(x, Tensor)  # sparse features are for baselines, which are not distributed
        shards = distribute(model, data.num_nodes)
        own = shards.own
        nodes = {
            name: index[(index >= own.start) & (index < own.stop)] - own.start
            for name, index in nodes.items()
        }
        given = ShardedSparseGraph.from_graph(graph, shards)
        return cls(x[own], given, data.y[own], **nodes, counts=counts, seed=seed)

    def draw(self, epoch: int) -> torch.Generator | None:
        """Seed an epoch, and return the generator of its Hutchinson probes.

        None, the default generator, in a single process. Several processes need the same probes but
        different dropout; both are functions of the epoch, so that all can resume from the
        checkpoint of the first.
        """
        if self.seed is None:
            return None
        rank, num_processes = process_group()
        torch.manual_seed((self.seed * 1_000_003 + epoch) * num_processes + rank)
        return torch.Generator(self.y.device).manual_seed(self.seed * 1_000_003 + epoch)

    def mean(self, terms: Tensor, name: str) -> Tensor:
        """Return the contribution of this process to the mean over all processes."""
        return terms.sum() / self.counts[name]

    def accuracy(self, logits: Tensor, nodes: Tensor) -> float:
        """Return the accuracy over all processes."""
        name = "val" if nodes is self.val else "test"
        correct = (logits.argmax(-1) == self.y[nodes]).double()
        return float(sum_over_processes(self.mean(correct, name)))


def _calibrate(model: nn.Module, part: _Part) -> None:
    """Calibrate median metrics under the dropout mask of the first epoch."""
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
    """Return the validation metrics of an epoch."""
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
    """Return the logits of validation and test nodes.

    Always both: the last bit of a product depends on its number of rows, and `trace_test` must not
    change which epoch is selected.
    """
    model.eval()
    logits, _ = _logits(model, part, torch.cat([part.val, part.test]))
    return logits[: len(part.val)], logits[len(part.val) :]


def _logits(model: nn.Module, part: _Part, nodes: Tensor) -> tuple[Tensor, JLGCNOutput | None]:
    """Return the logits of some nodes, and the output of a JLGCN, which computes these only."""
    if isinstance(model, JLGCN):
        output: JLGCNOutput = model(part.x, part.graph, nodes)
        return output.logits, output
    logits: Tensor = model(part.x, part.graph)
    return logits[nodes], None
