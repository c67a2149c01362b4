"""Training for node classification, full batch; test labels are read once, after selection."""

from __future__ import annotations

import copy
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from jlgcn._validation import check_labels, check_one_graph, warn_of_absent_classes
from jlgcn.distributed.collectives import (
    is_distributed,
    process_group,
    shared_seed,
    sum_over_processes,
)
from jlgcn.graphs import Graph, SparseGraph
from jlgcn.nn import JLGCN, DecoupledJLGCN, JLGCNOutput
from jlgcn.ops import SparseFeatures
from jlgcn.ops.precision import Precision, compute_dtype, mixed_precision
from jlgcn.training.config import TrainConfig
from jlgcn.training.decoupled import DecoupledConfig, decoupled_loss, parameter_groups
from jlgcn.training.deterministic import bits_identity, deterministic_algorithms
from jlgcn.training.inputs import NodeInputs, as_inputs, as_module
from jlgcn.training.loop import FitResult, Run, RunOptions, run_epochs


def fit_nodes(
    model: nn.Module,
    x: Any,  # noqa: ANN401
    y: Any = None,  # noqa: ANN401
    graph: Any = None,  # noqa: ANN401
    *,
    train: Any = None,  # noqa: ANN401
    val: Any = None,  # noqa: ANN401
    test: Any = None,  # noqa: ANN401
    class_weight: Any = None,  # noqa: ANN401
    config: TrainConfig | None = None,
    seed: int | None = None,
    trace_test: bool = False,
    device: torch.device | str | None = None,
    options: RunOptions | None = None,
) -> FitResult:
    """Train a network for node classification in place, and select the epoch by validation.

    The network ends in evaluation mode, with the parameters of the epoch of highest validation
    accuracy. Under `torchrun`, the rows of exact learned graphs are sharded over the processes
    (:func:`jlgcn.distributed.distribute`); all end with the parameters of a single process, up to
    rounding (and up to dropout, which each process draws for its own rows).

    Args:
        model (nn.Module): a :class:`jlgcn.nn.JLGCN`, or a module that maps features and a
            :class:`jlgcn.Graph` to logits.
        x (Tensor, array, SciPy sparse matrix, SparseFeatures or Data): features, (N, in_channels).
            `Data` of PyTorch Geometric also brings `y`, its edges, and `train_mask`, `val_mask` and
            `test_mask`; an argument that is given here replaces its attribute.
        y (Tensor or array): class indices, (N,), from 0; -1 if unknown.
        graph (any format of :func:`jlgcn.as_graph`, or None, default None): given graph; None for
            no edges.
        train (Tensor, array or None, default None): training nodes, as indices or a mask; None for
            all nodes with a label that are neither in `val` nor in `test`.
        val (Tensor or array): validation nodes, which select the epoch.
        test (Tensor, array or None, default None): test nodes, evaluated once, after selection.
        class_weight (Tensor, array or None, default None): weight of each class in the training
            loss and in validation, (C,); None for 1.
        config (TrainConfig or None, default None): hyperparameters; None for their defaults.
        seed (int or None, default None): seed of dropout and probes, by `torch.manual_seed`; None
            continues PyTorch's generators. The network exists before: seed its creation, too.
        trace_test (bool, default False): evaluate the test nodes after every epoch, as the paper's
            authors do. The best test epoch is reported separately; selection never uses it.
        device (str, torch.device or None, default None): move network and data there; None trains
            where the network is.
        options (RunOptions or None, default None): checkpoints, determinism, progress bar.

    Cost: per epoch, a forward and backward pass and a forward pass for validation. kNN graphs keep
    their neighbour candidates over epochs, for validation too (`min_recall` of
    :class:`jlgcn.nn.JLGCN`); test nodes are evaluated with neighbours that are searched for the
    selected parameters, as the returned network does.

    Example:
        >>> x, y, edges = torch.eye(4), torch.tensor([0, 1, 0, -1]), torch.tensor([[0, 2], [2, 0]])
        >>> model = JLGCN(4, 8, 2)
        >>> result = fit_nodes(model, x, y, edges, val=[2], config=TrainConfig(epochs=3))
        >>> model(x, edges).logits.argmax(-1).shape, len(result.history)
        (torch.Size([4]), 3)
    """
    if config is None:
        config = DecoupledConfig() if isinstance(model, DecoupledJLGCN) else TrainConfig()
    options = RunOptions() if options is None else options
    model = as_module(model, device)
    if isinstance(model, JLGCN | DecoupledJLGCN):
        check_one_graph(x if graph is None else graph)
    inputs = as_inputs(x, y, graph, train=train, val=val, test=test, like=next(model.parameters()))
    if trace_test:
        check_labels(inputs.y, inputs.test, inputs.num_nodes, name="test")
    _check_outputs(model, inputs.num_classes)
    warn_of_absent_classes(inputs.y, inputs.train, inputs.num_classes)
    if class_weight is not None:
        class_weight = _as_class_weight(class_weight, inputs)
    # Several processes train a copy, since sharding adds hooks to it.
    network = copy.deepcopy(model) if is_distributed() else model
    with deterministic_algorithms(options.deterministic):
        if seed is not None:
            torch.manual_seed(seed)
        seed = shared_seed(inputs.y.device)
        optimizer = torch.optim.Adam(
            _parameters(network, config), lr=config.lr, weight_decay=config.weight_decay
        )
        if isinstance(network, JLGCN):
            network.neighbors.forget()  # of an earlier run
        run = Run(network, optimizer)
        if options.checkpoints is not None:
            identity = {
                "config": _plain(config),
                "trace_test": trace_test,
                "data": inputs.sha256(),
            }
            if class_weight is not None:
                identity["class_weight"] = class_weight.tolist()
            run.resume(options.checkpoints, identity | bits_identity(options.deterministic))
        part = replace(_Part.of(network, inputs, seed, class_weight), precision=config.precision)
        _calibrate(network, part)
        run_epochs(
            run,
            config.epochs,
            lambda: _train_epoch(run, part, config),
            lambda: _validate(run, part, trace_test),
            options=options,
        )
        network.load_state_dict(run.best_state)
        if isinstance(network, JLGCN):
            network.neighbors.forget()
        _, test_logits = _evaluate(network, part)
    model.load_state_dict(run.best_state)
    model.eval()
    best_test = max(row["test_accuracy"] for row in run.history) if trace_test else None
    accuracy = part.accuracy(test_logits, part.test) if inputs.has_test_labels else math.nan
    return run.result(accuracy, best_test_accuracy=best_test)


def _parameters(model: nn.Module, config: TrainConfig) -> Any:  # noqa: ANN401
    """Return the parameters as the optimizer takes them; check that the configuration fits."""
    is_decoupled = isinstance(model, DecoupledJLGCN)
    if is_decoupled != isinstance(config, DecoupledConfig):
        raise TypeError(
            "DecoupledJLGCN trains with a DecoupledConfig, and other networks with a TrainConfig, "
            f"but model is a {type(model).__name__} and config a {type(config).__name__}"
        )
    if isinstance(model, DecoupledJLGCN) and isinstance(config, DecoupledConfig):
        if is_distributed():
            raise ValueError("DecoupledJLGCN trains in one process; start it without torchrun")
        if config.precision != "float32":
            raise ValueError(
                f"DecoupledJLGCN trains in float32, but precision is {config.precision!r}; leave "
                "it out"
            )
        return parameter_groups(model, config)
    return model.parameters()


def _plain(config: TrainConfig) -> dict[str, Any]:
    """Return the fields as JSON gives them back."""
    fields = asdict(config)
    return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}


def _as_class_weight(value: Any, inputs: NodeInputs) -> Tensor:  # noqa: ANN401
    weight = torch.as_tensor(value, dtype=torch.float32, device=inputs.y.device)
    is_valid = weight.shape == (inputs.num_classes,) and bool(weight.isfinite().all())
    if not is_valid or not bool((weight > 0).all()):
        raise ValueError(
            f"class_weight must have a finite weight above 0 for each of the {inputs.num_classes} "
            f"classes, but it is {value!r:.80}"
        )
    return weight


def _check_outputs(model: nn.Module, num_classes: int) -> None:
    if isinstance(model, JLGCN | DecoupledJLGCN) and num_classes > model.out_channels:
        raise ValueError(
            f"y has classes from 0 to {num_classes - 1}, but the network has {model.out_channels} "
            f"outputs; make it with out_channels={num_classes}"
        )


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
        counts: numbers of training, validation and test nodes over all processes, or the sums of
            their weights.
        seed: seed of the run; None in a single process.
        class_weight: weight of each class in training and validation, (C,); None for 1.
        precision: precision of products with weights.
    """

    x: Tensor | SparseFeatures
    graph: Graph
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    counts: dict[str, float]
    seed: int | None = None
    class_weight: Tensor | None = None
    precision: Precision = "float32"

    @classmethod
    def of(
        cls,
        model: nn.Module,
        inputs: NodeInputs,
        seed: int,
        class_weight: Tensor | None = None,
    ) -> _Part:
        """Return the shard of this process; with several, distribute the network."""
        nodes = {name: getattr(inputs, name) for name in ("train", "val", "test")}
        counts: dict[str, float] = {name: len(index) for name, index in nodes.items()}
        if class_weight is not None:
            for name in ("train", "val"):
                counts[name] = float(class_weight[inputs.y[nodes[name]]].sum())
        if process_group()[1] == 1:
            parts = (inputs.x, inputs.graph, inputs.y)
            return cls(*parts, **nodes, counts=counts, class_weight=class_weight)
        from jlgcn.distributed import ShardedSparseGraph, distribute

        if not isinstance(inputs.graph, SparseGraph):
            raise ValueError(
                "several processes need a sparse given graph, but it is a "
                f"{type(inputs.graph).__name__}; pass an edge_index"
            )
        if not isinstance(inputs.x, Tensor):
            raise ValueError(
                "several processes need dense features, whose rows they share, but x is sparse; "
                "train in one process, or pass torch.from_numpy(x.toarray())"
            )
        shards = distribute(model, inputs.num_nodes)
        own = shards.own
        nodes = {
            name: index[(index >= own.start) & (index < own.stop)] - own.start
            for name, index in nodes.items()
        }
        given = ShardedSparseGraph.from_graph(inputs.graph, shards)
        parts = (inputs.x[own], given, inputs.y[own])
        return cls(*parts, **nodes, counts=counts, seed=seed, class_weight=class_weight)

    def draw(self, epoch: int) -> torch.Generator | None:
        """Seed an epoch, and return the generator of its Hutchinson probes.

        None, the default generator, in a single process. Several processes need the same probes but
        different dropout; both are functions of the epoch, so that all can resume from the
        checkpoint of the first.
        """
        if self.seed is None:
            return None
        rank, num_processes = process_group()
        own = (self.seed * 1_000_003 + epoch) * num_processes + rank
        torch.manual_seed(own % 2**63)
        shared = (self.seed * 1_000_003 + epoch) % 2**63
        return torch.Generator(self.y.device).manual_seed(shared)

    def mean(self, terms: Tensor, name: str) -> Tensor:
        """Return the contribution of this process to the (weighted) mean over all processes."""
        if self.class_weight is not None and name != "test":
            terms = terms * self.class_weight[self.y[getattr(self, name)]]
        return terms.sum() / self.counts[name]

    def accuracy(self, logits: Tensor, nodes: Tensor) -> float:
        """Return the accuracy over all processes."""
        name = "val" if nodes is self.val else "test"
        correct = (logits.argmax(-1) == self.y[nodes]).double()
        return float(sum_over_processes(self.mean(correct, name)))


def _calibrate(model: nn.Module, part: _Part) -> None:
    """Calibrate median metrics under the dropout mask of the first epoch."""
    if isinstance(model, JLGCN) and not all(learner.is_calibrated for learner in model.learners):
        with torch.random.fork_rng(devices=[part.x.device] if part.x.device.type == "cuda" else []):
            part.draw(0)
            model.calibrate(part.x, part.graph)


def _train_epoch(run: Run, part: _Part, config: TrainConfig) -> float:
    run.model.train()
    for group in run.optimizer.param_groups:
        group["lr"] = config.rate(run.epoch) * group.get("lr_factor", 1.0)
    generator = part.draw(run.epoch)
    if isinstance(config, DecoupledConfig):
        assert isinstance(run.model, DecoupledJLGCN)
        loss = decoupled_loss(
            run.model,
            part.x,
            part.graph,
            part.y,
            part.train,
            run.epoch,
            config,
            class_weight=part.class_weight,
        )
        return _step(run, loss)
    probes = config.glr_probes if config.glr_weight > 0 else None
    logits, output = _logits(run.model, part, part.train, probes, generator)
    loss = part.mean(cross_entropy(logits, part.y[part.train], reduction="none"), "train")
    if config.glr_weight > 0 and output is not None:
        assert isinstance(run.model, JLGCN)
        glr = run.model.regularizer(output, part.x, probes=config.glr_probes, generator=generator)
        loss = loss + config.glr_weight * glr
    return _step(run, loss)


def _step(run: Run, loss: Tensor) -> float:
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    return float(sum_over_processes(loss.detach()))


def _validate(run: Run, part: _Part, trace_test: bool) -> dict[str, float]:
    """Return the validation metrics of an epoch, on the neighbours that training keeps."""
    model = run.model
    context: AbstractContextManager[None] = nullcontext()
    if isinstance(model, JLGCN) and model.min_recall is not None:
        context = model.neighbors.using("kept")
    with context:
        logits, test_logits = _evaluate(model, part)
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


def _logits(
    model: nn.Module,
    part: _Part,
    nodes: Tensor,
    probes: int | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, JLGCNOutput | None]:
    """Return the logits of some nodes, and the output of a JLGCN, which computes these only."""
    with mixed_precision(part.y.device, part.precision):
        if isinstance(model, DecoupledJLGCN):
            return model(part.x, part.graph, nodes).logits, None
        if isinstance(model, JLGCN):
            output: JLGCNOutput = model(
                part.x, part.graph, nodes, probes=probes, generator=generator
            )
            return output.logits.to(compute_dtype(output.logits)), output
        logits: Tensor = model(part.x, part.graph)
    return logits[nodes].to(compute_dtype(logits)), None
