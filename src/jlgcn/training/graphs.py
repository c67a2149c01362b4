"""Training for graph classification: point clouds, molecules, small graphs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from jlgcn.distributed.collectives import (
    is_distributed,
    mean_over_processes,
    process_group,
    share_random_state,
    shared_seed,
)
from jlgcn.nn import GraphLevelJLGCN
from jlgcn.nn.calibration import calibrate_learners
from jlgcn.ops.precision import Precision, compute_dtype, mixed_precision
from jlgcn.training.deterministic import bits_identity, deterministic_algorithms
from jlgcn.training.graph_batches import Batching, CloudSource, GraphBatch, GraphSource
from jlgcn.training.graph_inputs import as_source
from jlgcn.training.inputs import as_module
from jlgcn.training.loop import FitResult, Run, RunOptions, run_epochs


@dataclass(frozen=True)
class GraphTrainConfig:
    """Hyperparameters of training on graphs, by Adam with a step-wise learning rate.

    Attributes:
        epochs (int ≥ 1, default 400): passes over the training graphs.
        num_points (int ≥ 1 or None, default None): points that are drawn of each cloud of a tensor
            (B, N, C), resampled in every epoch of training, fixed in evaluation; None for all.
        batch_size (int ≥ 2, default 32): graphs of a step; loaders have their own.
        lr (float > 0, default 1e-3): initial learning rate of Adam.
        lr_step (int ≥ 1, default 40): epochs between two decays of the learning rate.
        lr_decay (float in (0, 1], default 0.5): factor of a decay.
        weight_decay (float ≥ 0, default 1e-4): L2 penalty of Adam.
        regularizer_weight (float ≥ 0, default 0): weight of the network's `regularizer`, a mean
            over graphs: λ of the paper for JLGCN, whose regularizer is also divided by the number
            of pairs of nodes, and the orthogonality penalty of PointNet. 0 disables it.
        augments (bool, default False): scale and shift training clouds, (B, N, 3), at random.
        precision ("float32" or "bfloat16", default "float32"): precision of products with weights,
            by `torch.autocast`; distances, degrees and products with graphs stay in float32.

    Example:
        >>> GraphTrainConfig().rate(40)
        0.0005
    """

    epochs: int = 400
    num_points: int | None = None
    batch_size: int = 32
    lr: float = 1e-3
    lr_step: int = 40
    lr_decay: float = 0.5
    weight_decay: float = 1e-4
    regularizer_weight: float = 0.0
    augments: bool = False
    precision: Precision = "float32"

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, from 0."""
        return self.lr * self.lr_decay ** (epoch // self.lr_step)


def fit_graphs(
    model: nn.Module,
    x: Any = None,  # noqa: ANN401
    y: Any = None,  # noqa: ANN401
    *,
    train: Any = None,  # noqa: ANN401
    val: Any = None,  # noqa: ANN401
    test: Any = None,  # noqa: ANN401
    config: GraphTrainConfig | None = None,
    seed: int | None = None,
    points_missing: Sequence[float] = (),
    device: torch.device | str | None = None,
    options: RunOptions | None = None,
) -> FitResult:
    """Train a network for graph classification in place, and select the epoch by validation.

    The network ends in evaluation mode, with the parameters of the epoch of highest validation
    accuracy. Under `torchrun`, training is data-parallel: the processes share every batch, and all
    end with the parameters of a single process, up to rounding (and up to dropout, which each
    process draws for its own graphs). The first process writes the checkpoints.

    Args:
        model (nn.Module): a :class:`jlgcn.nn.GraphLevelJLGCN`, or a module that returns logits. It
            is called with clouds (B, N, C), or with (x, edge_index, batch) as in PyTorch Geometric.
        x (Tensor, array, list, Dataset, Batch or None): clouds of one size, (B, N, C); or graphs of
            different sizes: a list of features (N, C), or PyTorch Geometric's `Data` in a list, a
            `Dataset` or a `Batch`, with or without edges. Their features are `x`, else `pos`, and
            `edge_weight` weighs edges; other attributes are not read. None if `train`, `val` and
            `test` are the data.
        y (Tensor, array or None): class indices, (B,), from 0; -1 if unknown. None for `y` of each
            graph.
        train (Tensor, array, DataLoader, list, Dataset or None, default None): training graphs, as
            indices or a mask; None for all graphs with a label that are neither in `val` nor in
            `test`. Without `x`, a `DataLoader` of PyTorch Geometric or of pairs (clouds, classes),
            or the graphs themselves.
        val (as `train`): validation graphs, which select the epoch.
        test (as `train`, default None): test graphs, evaluated once, after selection.
        config (GraphTrainConfig or None, default None): hyperparameters; None for their defaults.
        seed (int or None, default None): seed of batches, augmentation and dropout, by
            `torch.manual_seed`; None continues PyTorch's generators. The network exists before:
            seed its creation, too.
        points_missing (sequence of float in [0, 1], default ()): fractions of points that are
            removed from test clouds (B, N, C), after selection, to measure robustness.
        device (str, torch.device or None, default None): move network and data there; None trains
            where the network is.
        options (RunOptions or None, default None): checkpoints, determinism, progress bar.

    Returns:
        The result. With test labels, its `measured` has ``mean_class_accuracy``,
        ``accuracy_missing`` by fraction, and the ``confusion`` matrix, rows of which are true
        classes; and always ``model_bytes``.

    Cost: per epoch, a forward and backward pass over the training graphs and a forward pass over
    the validation graphs.

    Example:
        >>> clouds, y = torch.randn(8, 20, 3), torch.arange(8) % 2
        >>> model = GraphLevelJLGCN(3, 2, (4, 8), (4,), options="paper")
        >>> config = GraphTrainConfig(epochs=2, batch_size=4)
        >>> result = fit_graphs(model, clouds, y, val=[6, 7], config=config)
        >>> model(clouds).logits.argmax(-1).shape, len(result.history)
        (torch.Size([8]), 2)
    """
    config = GraphTrainConfig() if config is None else config
    options = RunOptions() if options is None else options
    model = as_module(model, device)
    like = next(model.parameters())
    how = Batching(config.batch_size, config.num_points, config.augments)
    source = as_source(x, y, train=train, val=val, test=test, how=how, like=like)
    _check_outputs(model, source.num_classes)
    if points_missing and not isinstance(source, CloudSource):
        raise ValueError(
            "points_missing needs clouds of one size, (B, N, C), but the data are graphs; pass "
            "test graphs with fewer points instead"
        )
    # Several processes train a copy, since sharing batches changes its normalisation.
    own = copy.deepcopy(model) if is_distributed() else model
    with deterministic_algorithms(options.deterministic):
        if seed is not None:
            torch.manual_seed(seed)
        share_random_state(like.device)
        shared = shared_seed(like.device)
        # Before processes take different parts of a batch, on the same graphs in each.
        first = source.first()
        calibrate_learners(own, lambda: own(*first))
        optimizer = torch.optim.Adam(
            own.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )
        run = Run(own, optimizer)
        if options.checkpoints is not None:
            identity = {"config": asdict(config), "data": source.sha256()}
            run.resume(options.checkpoints, identity | bits_identity(options.deterministic))
        network: nn.Module = own
        if is_distributed():
            from jlgcn.distributed import share_batches

            network = share_batches(own)
        run_epochs(
            run,
            config.epochs,
            lambda: _train_epoch(run, network, source, config, shared),
            lambda: _validate(run, source, config),
            options=options,
        )
        model.load_state_dict(run.best_state)
        measured = _measure(model, source, config, points_missing, shared)
    return run.result(measured.pop("test_accuracy"), measured=measured)


def _check_outputs(model: nn.Module, num_classes: int | None) -> None:
    if not isinstance(model, GraphLevelJLGCN) or num_classes is None:
        return
    if num_classes > model.out_channels:
        raise ValueError(
            f"y has classes from 0 to {num_classes - 1}, but the network has {model.out_channels} "
            f"outputs; make it with out_channels={num_classes}"
        )


def _train_epoch(
    run: Run, network: nn.Module, source: GraphSource, config: GraphTrainConfig, seed: int
) -> float:
    network.train()
    for group in run.optimizer.param_groups:
        group["lr"] = config.rate(run.epoch)
    total, count = torch.zeros((), dtype=torch.float64, device=run.device), 0
    for step, batch in enumerate(source.train()):
        with _own_draws(seed, run.epoch, step, run.device):
            output, logits = _forward(network, batch, config.precision)
        loss = cross_entropy(logits, batch.y, reduction="sum")
        if config.regularizer_weight > 0:
            penalty = _regularizer(run.model, output, batch.num_nodes).sum()
            loss = loss + config.regularizer_weight * penalty
        # Gradients are averaged over processes, so each loss is divided by its share of the batch.
        loss = loss * (process_group()[1] / batch.num_graphs)
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        total += mean_over_processes(loss.detach()).double() * batch.num_graphs
        count += batch.num_graphs
    return float(total) / count


@contextmanager
def _own_draws(seed: int, epoch: int, step: int, device: torch.device) -> Iterator[None]:
    """Let each of several processes draw its own dropout, and keep their random states equal."""
    if not is_distributed():
        yield
        return
    rank, num_processes = process_group()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        place = (seed * 1_000_003 + epoch) * 1_000_003 + step
        torch.manual_seed((place * num_processes + rank) % 2**63)
        yield


def _forward(network: nn.Module, batch: GraphBatch, precision: Precision) -> tuple[Any, Tensor]:
    """Return the output of a network, and its logits."""
    with mixed_precision(batch.y.device, precision):
        output = network(*batch.args)
    logits: Tensor = output if isinstance(output, Tensor) else output.logits
    return output, logits.to(compute_dtype(logits))


@torch.no_grad()
def _evaluate(
    model: nn.Module, batches: Iterator[GraphBatch], precision: Precision
) -> tuple[Tensor, Tensor]:  # (B, classes), (B,)
    """Return the logits and classes of all graphs of the batches."""
    model.eval()
    found = [(_forward(model, batch, precision)[1], batch.y) for batch in batches]
    logits, y = zip(*found, strict=True)
    return torch.cat(logits), torch.cat(y)


def _validate(run: Run, source: GraphSource, config: GraphTrainConfig) -> dict[str, float]:
    logits, y = _evaluate(run.model, source.evaluate("val"), config.precision)
    return {
        "val_accuracy": _accuracy(logits, y),
        "val_loss": float(cross_entropy(logits, y)),
    }


def _measure(
    model: nn.Module,
    source: GraphSource,
    config: GraphTrainConfig,
    points_missing: Sequence[float],
    seed: int,
) -> dict[str, Any]:
    """Return the accuracies of the test graphs, and the size of the network."""
    model.eval()
    num_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    unknown = {"test_accuracy": math.nan, "model_bytes": num_bytes}
    if not source.has_test_labels:
        return unknown
    logits, y = _evaluate(model, source.evaluate("test"), config.precision)
    is_labelled = y >= 0  # known of a loader only once it was read
    logits, y = logits[is_labelled], y[is_labelled]
    if len(y) == 0:
        return unknown
    predicted = logits.argmax(-1)
    confusion = y.new_zeros(logits.shape[1], logits.shape[1])
    confusion.index_put_((y, predicted), torch.ones_like(y), accumulate=True)
    present = confusion.sum(-1) > 0
    by_class = confusion.diagonal()[present] / confusion.sum(-1)[present]
    remaining = {}
    for share in points_missing:
        assert isinstance(source, CloudSource)
        fewer = source.evaluate_missing("test", share, seed)
        remaining[f"{share:g}"] = _accuracy(*_evaluate(model, fewer, config.precision))
    return {
        "test_accuracy": float((predicted == y).double().mean()),
        "mean_class_accuracy": float(by_class.double().mean()),
        "model_bytes": num_bytes,
        "accuracy_missing": remaining,
        "confusion": confusion.tolist(),
    }


def _regularizer(model: nn.Module, output: Any, num_nodes: int | Tensor) -> Tensor:  # noqa: ANN401
    """Return the regularizer of every graph, (B,)."""
    regularizer: Callable[[Any], Tensor] | None = getattr(model, "regularizer", None)
    if regularizer is None:
        raise ValueError(
            f"regularizer_weight needs a network with a regularizer, but {type(model).__name__} "
            "has none; set it to 0"
        )
    # The paper's regularizer is a sum over pairs of points.
    return regularizer(output) / (num_nodes**2 if isinstance(model, GraphLevelJLGCN) else 1)


def _accuracy(logits: Tensor, y: Tensor) -> float:
    return float((logits.argmax(-1) == y).double().mean())
