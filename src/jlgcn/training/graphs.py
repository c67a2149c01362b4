"""Training on clouds in mini-batches; selection and checkpoints as for nodes."""

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

#: Clouds that are evaluated at a time.
_EVALUATED = 64


@dataclass(frozen=True)
class CloudTrainConfig:
    """How a network for clouds is trained.

    Attributes:
        epochs: how often every training cloud is seen.
        num_points: points of a cloud, drawn anew in every epoch; the same ones in evaluation.
        batch_size: clouds a step.
        lr: learning rate of Adam at the start.
        lr_step: epochs after which it is multiplied by `lr_decay`, again and again.
        lr_decay: what it is multiplied by.
        weight_decay: L2 penalty of Adam.
        regularizer_weight: weight of what the network's `regularizer` returns, as a mean over
            clouds: λ of the paper for JLGCN, whose regularizer is divided by the number of pairs
            of points too, and that of PointNet's transforms. 0 leaves it out.
        augments: scale and shift training clouds at random.
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
        """Return the learning rate of an epoch, counted from 0."""
        return self.lr * self.lr_decay ** (epoch // self.lr_step)


def fit_graphs(
    make_model: Callable[[], nn.Module],
    data: CloudData,
    *,
    config: CloudTrainConfig,
    seed: int,
    points_missing: Sequence[float] = (),
    options: RunOptions | None = None,
) -> tuple[nn.Module, FitResult]:
    """Train a network on clouds and return it as validation selected it.

    Under `torchrun`, in a process group, every step's batch is shared among the processes; they
    end with the parameters of one process with the same batch, up to rounding (and up to dropout,
    which each process draws for its own clouds). The first process writes the checkpoints.

    Args:
        make_model: returns the network, called after the seed is set; it is called with points,
            (B, N, 3), and returns :class:`jlgcn.nn.GraphLevelOutput`.
        data: clouds, classes and split.
        config: how to train.
        seed: of everything random.
        points_missing: shares of the points that are dropped from test clouds, after selection,
            to see what remains of the accuracy.
        options: device, checkpoints, determinism, progress bar.

    Returns:
        The network, and the result. Its `measured` has ``mean_class_accuracy``, ``model_bytes``,
        ``accuracy_missing`` and ``confusion``, whose rows are the true classes.

    Cost: a forward and backward pass over the training clouds and a forward pass over the
    validation clouds an epoch.
    """
    options = RunOptions() if options is None else options
    data = data.to(options.device)
    check_shape(data.points.shape, "points")
    check_finite(data.points, "points")
    for name in ("train", "val"):
        check_labels(data.y, getattr(data, name), len(data.points), name=name)
    warn_of_absent_classes(data.y, data.train, data.num_classes)
    with deterministic_algorithms(options.deterministic):
        torch.manual_seed(seed)
        model = make_model().to(options.device)
        # On the same clouds in every process, before they take different parts of a batch.
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
    """Return the logits of clouds, some of them at a time.

    Cost: a forward pass.
    """
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
        # Everybody draws the whole batch, so that random states stay the same, and takes a part.
        own = slice(rank, None, num_processes)
        output: GraphLevelOutput = network(points[own])
        loss = cross_entropy(output.logits, data.y[clouds[own]], reduction="sum")
        if config.regularizer_weight > 0:
            penalty = _regularizer(run.model, output).sum()
            loss = loss + config.regularizer_weight * penalty
        # Processes average their gradients, so each divides by its share of the batch.
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
        raise ValueError(f"{type(model).__name__} has no regularizer; set regularizer_weight to 0")
    # The paper's is a sum over pairs of points.
    num_pairs = output.features[0].shape[-2] ** 2 if isinstance(model, GraphLevelJLGCN) else 1
    return regularizer(output) / num_pairs


def _batches(clouds: Tensor, batch_size: int, at_least: int) -> Iterator[Tensor]:
    order = clouds[torch.randperm(len(clouds), device=clouds.device)]
    for batch in order.split(batch_size):
        # One cloud alone has no variance to be normalised by, and every process needs one.
        if len(batch) >= at_least:
            yield batch


def _evaluation_points(data: CloudData, clouds: Tensor, config: CloudTrainConfig) -> Tensor:
    """Return points that are the same in every epoch and for every seed and network."""
    generator = torch.Generator(data.points.device).manual_seed(0)
    return choose_points(data.points[clouds], config.num_points, generator=generator)


def _accuracy(logits: Tensor, y: Tensor) -> float:
    return float((logits.argmax(-1) == y).double().mean())
