"""Mini-batch training for graph classification of point clouds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from jlgcn._validation import check_finite, check_labels, check_shape, warn_of_absent_classes
from jlgcn.distributed.collectives import is_distributed, mean_over_processes, process_group
from jlgcn.nn import GraphLevelJLGCN, GraphLevelOutput
from jlgcn.nn.calibration import calibrate_learners
from jlgcn.training.cloud_data import CloudData, augment, choose_points, drop_points
from jlgcn.training.deterministic import bits_identity, deterministic_algorithms
from jlgcn.training.loop import FitResult, Run, RunOptions, run_epochs

#: Batch size of evaluation.
_EVALUATED = 64


@dataclass(frozen=True)
class CloudTrainConfig:
    """Hyperparameters of training on point clouds, by Adam with a step-wise learning rate.

    Attributes:
        epochs (int ≥ 1, default 400): passes over the training clouds.
        num_points (int ≥ 1, default 1024): points of a cloud, resampled in every epoch of training,
            fixed in evaluation.
        batch_size (int ≥ 2, default 32): clouds of a step.
        lr (float > 0, default 1e-3): initial learning rate of Adam.
        lr_step (int ≥ 1, default 40): epochs between two decays of the learning rate.
        lr_decay (float in (0, 1], default 0.5): factor of a decay.
        weight_decay (float ≥ 0, default 1e-4): L2 penalty of Adam.
        regularizer_weight (float ≥ 0, default 0): weight of the network's `regularizer`, a mean
            over clouds: λ of the paper for JLGCN, whose regularizer is also divided by the number
            of pairs of points, and the orthogonality penalty of PointNet. 0 disables it.
        augments (bool, default True): scale and shift training clouds at random.

    Example:
        >>> CloudTrainConfig().rate(40)
        0.0005
    """

    epochs: int = 400
    num_points: int = 1024
    batch_size: int = 32
    lr: float = 1e-3
    lr_step: int = 40
    lr_decay: float = 0.5
    weight_decay: float = 1e-4
    regularizer_weight: float = 0.0
    augments: bool = True

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, from 0."""
        return self.lr * self.lr_decay ** (epoch // self.lr_step)


def fit_graphs(
    make_model: Callable[[], nn.Module],
    data: CloudData,
    *,
    config: CloudTrainConfig,
    seed: int,
    points_missing: Sequence[float] = (),
    device: torch.device | str = "cpu",
    options: RunOptions | None = None,
) -> tuple[nn.Module, FitResult]:
    """Train a network for graph classification, and return it at the epoch validation selects.

    Under `torchrun`, training is data-parallel: the processes share every batch, and end with the
    parameters of a single process, up to rounding (and up to dropout, which each process draws for
    its own clouds). The first process writes the checkpoints.

    Args:
        make_model (callable): returns the network, called after the seed is set; it maps points,
            (B, N, 3), to :class:`jlgcn.nn.GraphLevelOutput`.
        data (CloudData): clouds, classes and split.
        config (CloudTrainConfig): optimisation hyperparameters.
        seed (int): random seed.
        points_missing (sequence of float in [0, 1], default ()): fractions of points that are
            removed from the test clouds, after selection, to measure robustness.
        device (str or torch.device, default "cpu"): device of the data and the network.
        options (RunOptions or None, default None): checkpoints, determinism, progress bar.

    Returns:
        The network with the selected parameters, and the result. Its `measured` has
        ``mean_class_accuracy``, ``model_bytes``, ``accuracy_missing`` by fraction, and the
        ``confusion`` matrix, rows of which are true classes.

    Cost: per epoch, a forward and backward pass over the training clouds and a forward pass over
    the validation clouds.
    """
    options = RunOptions() if options is None else options
    data = data.to(device)
    check_shape(data.points.shape, "points")
    check_finite(data.points, "points")
    for name in ("train", "val"):
        check_labels(data.y, getattr(data, name), len(data.points), name=name)
    warn_of_absent_classes(data.y, data.train, data.num_classes)
    with deterministic_algorithms(options.deterministic):
        torch.manual_seed(seed)
        model = make_model().to(device)
        # Before processes take different parts of a batch, on the same clouds in each.
        points = _evaluation_points(data, data.train[: config.batch_size], config)
        calibrate_learners(model, lambda: model(points))
        optimizer = torch.optim.Adam(
            model.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )
        run = Run(model, optimizer)
        if options.checkpoints is not None:
            identity = {"config": asdict(config), "seed": seed, "data": data.sha256}
            run.resume(options.checkpoints, identity | bits_identity(options.deterministic))
        network = model
        if is_distributed():
            from jlgcn.distributed import share_batches

            network = share_batches(model)
        run_epochs(
            run,
            config.epochs,
            lambda: _train_epoch(run, network, data, config),
            lambda: _validate(run, data, config),
            options=options,
        )
        model.load_state_dict(run.best_state)
        test, y = _evaluation_points(data, data.test, config), data.y[data.test]
        predicted = predict(model, test).argmax(-1)
        confusion = y.new_zeros(data.num_classes, data.num_classes)
        confusion.index_put_((y, predicted), torch.ones_like(y), accumulate=True)
        present = confusion.sum(-1) > 0
        by_class = confusion.diagonal()[present] / confusion.sum(-1)[present]
        remaining = {
            f"{share:g}": _accuracy(predict(model, drop_points(test, share, seed=seed)), y)
            for share in points_missing
        }
        return model, run.result(
            float((predicted == y).double().mean()),
            measured={
                "mean_class_accuracy": float(by_class.double().mean()),
                "model_bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
                "accuracy_missing": remaining,
                "confusion": confusion.tolist(),
            },
        )


@torch.no_grad()
def predict(
    model: nn.Module,
    points: Tensor,  # (B, N, 3)
) -> Tensor:  # (B, classes)
    """Return the logits of clouds, in mini-batches."""
    model.eval()
    return torch.cat([model(part).logits for part in points.split(_EVALUATED)])


def _train_epoch(run: Run, network: nn.Module, data: CloudData, config: CloudTrainConfig) -> float:
    rank, num_processes = process_group()
    network.train()
    for group in run.optimizer.param_groups:
        group["lr"] = config.rate(run.epoch)
    total, count = torch.zeros((), dtype=torch.float64, device=data.y.device), 0
    for clouds in _batches(data.train, config.batch_size, at_least=max(2, num_processes)):
        points = choose_points(data.points[clouds], config.num_points)
        points = augment(points) if config.augments else points
        # Every process draws the whole batch, to keep random states equal, and takes its part.
        own = slice(rank, None, num_processes)
        output: GraphLevelOutput = network(points[own])
        loss = cross_entropy(output.logits, data.y[clouds[own]], reduction="sum")
        if config.regularizer_weight > 0:
            penalty = _regularizer(run.model, output).sum()
            loss = loss + config.regularizer_weight * penalty
        # Gradients are averaged over processes, so each loss is divided by its share of the batch.
        loss = loss * (num_processes / len(clouds))
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        total += mean_over_processes(loss.detach()).double() * len(clouds)
        count += len(clouds)
    return float(total) / count


def _validate(run: Run, data: CloudData, config: CloudTrainConfig) -> dict[str, float]:
    logits = predict(run.model, _evaluation_points(data, data.val, config))
    y = data.y[data.val]
    return {
        "val_accuracy": _accuracy(logits, y),
        "val_loss": float(cross_entropy(logits, y)),
    }


def _regularizer(model: nn.Module, output: GraphLevelOutput) -> Tensor:  # (B,)
    regularizer: Callable[[GraphLevelOutput], Tensor] | None = getattr(model, "regularizer", None)
    if regularizer is None:
        raise ValueError(
            f"regularizer_weight needs a network with a regularizer, but {type(model).__name__} "
            "has none; set it to 0"
        )
    # The paper's regularizer is a sum over pairs of points.
    num_pairs = output.features[0].shape[-2] ** 2 if isinstance(model, GraphLevelJLGCN) else 1
    return regularizer(output) / num_pairs


def _batches(clouds: Tensor, batch_size: int, at_least: int) -> Iterator[Tensor]:
    order = clouds[torch.randperm(len(clouds), device=clouds.device)]
    for batch in order.split(batch_size):
        # Batch normalisation needs two clouds, and every process at least one.
        if len(batch) >= at_least:
            yield batch


def _evaluation_points(data: CloudData, clouds: Tensor, config: CloudTrainConfig) -> Tensor:
    """Return fixed points of each cloud, the same for all epochs, seeds and networks."""
    generator = torch.Generator(data.points.device).manual_seed(0)
    return choose_points(data.points[clouds], config.num_points, generator=generator)


def _accuracy(logits: Tensor, y: Tensor) -> float:
    return float((logits.argmax(-1) == y).double().mean())
