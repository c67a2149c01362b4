"""The loop that all training shares: epochs, selection by validation, checkpoints, a bar."""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from jlgcn._schema import list_of, real, record, text, whole
from jlgcn._validation import check_finite
from jlgcn.distributed.collectives import process_group
from jlgcn.training.checkpoint import load_checkpoint, save_checkpoint
from jlgcn.training.interrupt import GraceExpired, deferred_interruption

# What a checkpoint says beside its tensors; of which run it is, is compared as a whole.
_STATE = record(
    {
        "identity": lambda value, where: value,
        "epoch": whole(0, 10**9),
        "batch": whole(0, 0),
        "best": record(
            {
                "epoch": whole(-1, 10**9),
                "val_accuracy": real(-1, 1),
                "val_loss": real(-math.inf, math.inf),
            }
        ),
        "seconds": real(0, 1e12),
        "history": list_of(text(100), 100),
    }
)


@dataclass(frozen=True)
class RunOptions:
    """How a training run is carried out; none of it changes what is learned, up to rounding.

    Attributes:
        device (str or torch.device, default "cpu"): where to train; data, model and random
            generators follow it.
        checkpoints (Path or None, default None): folder for checkpoints. A run that finds one
            resumes from it, and ends with the same parameters, bit for bit, as if it had not been
            interrupted. Ctrl-C and SIGTERM finish the epoch and write one. None writes none.
        checkpoint_seconds (float ≥ 0, default 120): time between two checkpoints.
        deterministic (bool, default False): use deterministic algorithms only, and resume only from
            checkpoints of the same versions and number of threads; the same machine and seed then
            give the same bits.
        progress (bool, default False): show a progress bar, if there is a terminal.
        label (str, default ""): its description.

    Example:
        >>> RunOptions(progress=True).device
        'cpu'
    """

    device: torch.device | str = "cpu"
    checkpoints: Path | None = None
    checkpoint_seconds: float = 120.0
    deterministic: bool = False
    progress: bool = False
    label: str = ""


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
        test_accuracy: its accuracy on test nodes, looked at once; nan where they are hidden.
        seconds: time of all epochs, over all resumptions.
        peak_bytes: largest memory of the process.
        parameter_sha256: hash of the selected parameters.
        history: a row an epoch.
        best_test_accuracy: the best of all epochs where test nodes were traced; None otherwise.
        measured: what else was measured, by name, for the record.
    """

    best_epoch: int
    val_accuracy: float
    test_accuracy: float
    seconds: float
    peak_bytes: int
    parameter_sha256: str
    history: list[dict[str, float]] = field(repr=False)
    best_test_accuracy: float | None = None
    measured: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """A copy of a run between two epochs.

    Attributes:
        epoch: epochs that are done.
        tensors: parameters, moments of Adam, random state.
        state: what is small, as JSON.
        history: a row an epoch; the run may have appended some since.
    """

    epoch: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    history: list[dict[str, float]]

    def save(self, folder: Path) -> None:
        """Write it as a checkpoint."""
        history = self.history[: self.epoch]
        columns = list(history[0]) if history else []
        rows = [[row[name] for name in columns] for row in history]
        numbers = torch.tensor(rows, dtype=torch.float64, device="cpu").reshape(
            len(rows), len(columns)
        )
        tensors = self.tensors | {"history": numbers}
        save_checkpoint(folder, self.epoch, tensors, self.state | {"history": columns})


class Run:
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

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.model.parameters()).device

    def select(self, val_accuracy: float, val_loss: float) -> None:
        """Keep the parameters as they are if this epoch is the best so far."""
        if self.best.is_beaten_by(val_accuracy, val_loss):
            self.best = Best(self.epoch, val_accuracy, val_loss)
            self.best_state = {
                name: t.detach().clone() for name, t in self.model.state_dict().items()
            }

    def result(self, test_accuracy: float, **others: Any) -> FitResult:  # noqa: ANN401
        """Return what came of it."""
        return FitResult(
            best_epoch=self.best.epoch,
            val_accuracy=self.best.val_accuracy,
            test_accuracy=test_accuracy,
            seconds=self.seconds,
            peak_bytes=peak_bytes(),
            parameter_sha256=state_hash(self.best_state),
            history=self.history,
            **others,
        )

    def snapshot(self) -> Snapshot:
        """Return a copy of everything, as it is at the end of an epoch."""
        tensors = {f"model/{name}": t for name, t in self.model.state_dict().items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam/{index}/{name}": value for name, value in moments.items()}
        tensors = {name: t.detach().clone() for name, t in tensors.items()}
        tensors |= {f"best/{name}": t for name, t in self.best_state.items()}  # copies already
        tensors |= random_state(self.device)
        state = {
            "identity": self.identity,
            "epoch": self.epoch,
            "batch": 0,  # of the sampler: checkpoints are written between epochs
            "best": asdict(self.best),
            "seconds": self.seconds,
        }
        return Snapshot(self.epoch, tensors, state, self.history)

    def resume(self, folder: Path, identity: dict[str, Any]) -> None:
        """Go on from the newest checkpoint, if there is one, and if it is of the same run."""
        self.identity = identity
        found = load_checkpoint(folder)
        if found is None:
            return
        tensors, state = found
        if state.get("identity") != identity:
            raise ValueError(
                f"the checkpoints in {folder} are of another run (other configuration, seed or "
                "data); choose another folder, or delete them to begin anew"
            )
        try:
            _STATE(state, "")
            self._check(tensors, state)
            torch.set_rng_state(tensors["random"])
            if "random/cuda" in tensors:
                torch.cuda.set_rng_state(tensors["random/cuda"], self.device)
        except (ValueError, RuntimeError, TypeError) as error:  # of the random state, the last two
            raise ValueError(
                f"the newest checkpoint in {folder} is not one of this network ({error}); delete "
                "the folder to begin anew"
            ) from None
        self.model.load_state_dict(_below(tensors, "model/"))
        self.best_state = _below(tensors, "best/")
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in _below(tensors, "adam/").items():
            index, _, key = name.partition("/")
            moments.setdefault(int(index), {})[key] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.epoch = state["epoch"]
        self.best = Best(**state["best"])
        columns = state["history"]
        self.history = [
            {name: int(v) if name == "epoch" else v for name, v in zip(columns, row, strict=True)}
            for row in tensors["history"].tolist()
        ]
        self.seconds = state["seconds"]

    def _check(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Raise unless tensors are those of a snapshot, of the shapes that this network has."""
        wanted = {f"model/{name}": t for name, t in self.model.state_dict().items()}
        if state["best"]["epoch"] >= 0:
            wanted |= {f"best/{name}": t for name, t in self.model.state_dict().items()}
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for index, parameter in enumerate(parameters if state["epoch"] > 0 else []):
            if f"adam/{index}/step" in tensors:  # not of one that has had no gradient yet
                wanted |= {f"adam/{index}/{name}": parameter for name in ("exp_avg", "exp_avg_sq")}
                wanted[f"adam/{index}/step"] = torch.empty((), device="meta")
        size = (state["epoch"], len(state["history"]))
        wanted["history"] = torch.empty(size, dtype=torch.float64, device="meta")
        wanted |= random_state(self.device)
        if tensors.keys() != wanted.keys():
            names = ", ".join(sorted(tensors.keys() ^ wanted.keys())[:5])
            raise ValueError(f"tensors are missing, or there are unknown ones: {names[:200]}")
        for name, expected in wanted.items():
            tensor = tensors[name]
            if tensor.shape != expected.shape or tensor.dtype != expected.dtype:
                raise ValueError(
                    f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, not "
                    f"{expected.dtype} of shape {tuple(expected.shape)}"
                )
            if name != "history":  # whose losses may be infinite
                check_finite(tensor, name, "begin anew")
            is_moment = name.startswith("adam/")
            if is_moment and not name.endswith("exp_avg") and bool((tensor < 0).any()):
                raise ValueError(f"{name} is negative")
        if state["epoch"] > 0:
            counted = torch.arange(state["epoch"], dtype=torch.float64, device="cpu")
            columns = {"epoch", "loss", "val_accuracy", "val_loss"}
            columns |= {"test_accuracy"} if self.identity.get("trace_test") else set()
            found = state["history"]
            if found[:1] != ["epoch"] or len(set(found)) < len(found) or not columns <= set(found):
                raise ValueError(f"history lacks one of the columns {', '.join(sorted(columns))}")
            if not torch.equal(tensors["history"][:, 0], counted):
                raise ValueError("history does not count its epochs")


def run_epochs(
    run: Run,
    num_epochs: int,
    train: Callable[[], float],
    validate: Callable[[], dict[str, float]],
    *,
    options: RunOptions,
) -> None:
    """Train until `num_epochs` are done; what validation selects is kept in the run.

    Args:
        run: what is trained; it may have some epochs behind it.
        num_epochs: where to stop.
        train: trains one epoch and returns its loss.
        validate: returns what is to be kept of the epoch, ``val_accuracy`` and ``val_loss`` among
            it.
        options: checkpoints and progress bar.
    """
    checkpoints = options.checkpoints
    is_first = process_group()[0] == 0
    started = saved = time.perf_counter()
    before = run.seconds
    bar = tqdm(
        total=num_epochs,
        initial=run.epoch,
        desc=options.label,
        unit="epoch",
        disable=None if options.progress and is_first else True,
        dynamic_ncols=True,
    )
    writes = checkpoints is not None and is_first
    # At hand at any moment, for a signal in the middle of an epoch that takes too long.
    snapshot = run.snapshot() if writes else None
    with bar, deferred_interruption() as interruption:
        while run.epoch < num_epochs:
            try:
                with interruption.may_leave():
                    loss, row = train(), validate()
            except GraceExpired:
                if checkpoints is not None and snapshot is not None:
                    snapshot.save(checkpoints)
                interruption.raise_it()
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"the loss is {loss} in epoch {run.epoch}; use a smaller lr or glr_weight"
                )
            run.select(row["val_accuracy"], row["val_loss"])
            row = {"epoch": run.epoch, "loss": loss, **row}
            if run.history and run.history[-1].keys() != row.keys():
                raise ValueError(
                    f"the checkpoints in {checkpoints} are of a run with other columns in its "
                    "history; delete the folder to begin anew"
                )
            run.history.append(row)
            run.epoch += 1
            run.seconds = before + time.perf_counter() - started
            bar.set_postfix(loss=f"{loss:.3f}", val=f"{row['val_accuracy']:.3f}", refresh=False)
            bar.update()
            is_due = interruption.signal or time.perf_counter() - saved > options.checkpoint_seconds
            if checkpoints is not None and is_first:
                snapshot = run.snapshot()
                if is_due:
                    snapshot.save(checkpoints)
                    saved = time.perf_counter()
            if interruption.signal:
                interruption.raise_it()
    if checkpoints is not None and snapshot is not None:
        snapshot.save(checkpoints)


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)}


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Return the state of the random generators that a run on this device draws from."""
    state = {"random": torch.get_rng_state()}
    if device.type == "cuda":
        state["random/cuda"] = torch.cuda.get_rng_state(device)
    return state


def state_hash(state: dict[str, Tensor]) -> str:
    """Return a hash over tensors and their names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def peak_bytes() -> int:
    """Return the largest memory this process has had; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes everywhere else
