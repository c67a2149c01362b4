"""The training loop: epochs, model selection on validation data, checkpoints, progress bar."""

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
from jlgcn.nn import JLGCN
from jlgcn.nn.persistence import settings_of
from jlgcn.training.checkpoint import load_checkpoint, save_checkpoint
from jlgcn.training.interrupt import GraceExpired, deferred_interruption

# State of a checkpoint besides its tensors; the identity of its run is compared as a whole.
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
    """Execution of a training run; no option changes the learned parameters, up to rounding.

    Attributes:
        checkpoints (Path or None, default None): folder for checkpoints. A run that finds one
            resumes from it, and ends with the same parameters, bit for bit, as if it had not been
            interrupted. Ctrl-C and SIGTERM finish the epoch and write one. None writes none.
        checkpoint_seconds (float ≥ 0, default 120): time between two checkpoints.
        deterministic (bool, default False): use deterministic algorithms only, and resume only from
            checkpoints of the same versions and number of threads; the same machine and seed then
            give the same bits.
        progress (bool, default False): show a progress bar on a terminal.
        label (str, default ""): description of the progress bar.

    Example:
        >>> RunOptions(progress=True).checkpoint_seconds
        120.0
    """

    checkpoints: Path | None = None
    checkpoint_seconds: float = 120.0
    deterministic: bool = False
    progress: bool = False
    label: str = ""


@dataclass(frozen=True)
class Best:
    """The selected epoch: highest validation accuracy, ties broken by validation loss."""

    epoch: int = -1
    val_accuracy: float = -1.0
    val_loss: float = math.inf

    def is_beaten_by(self, val_accuracy: float, val_loss: float) -> bool:
        """Whether a later epoch is selected instead; on a full tie the earlier one stays."""
        return (val_accuracy, -val_loss) > (self.val_accuracy, -self.val_loss)


@dataclass(frozen=True)
class FitResult:
    """Result of a training run.

    Attributes:
        best_epoch (int): epoch selected by validation, from 0.
        val_accuracy (float): its validation accuracy.
        test_accuracy (float): its test accuracy, evaluated once, after selection; nan without test
            labels.
        seconds (float): wall time of all epochs, interruptions excluded.
        peak_bytes (int): peak resident memory of the process, without an accelerator's.
        parameter_sha256 (str): hash of the selected parameters.
        history (list of dict): loss and validation metrics of every epoch.
        best_test_accuracy (float or None): highest test accuracy of all epochs, with `trace_test`;
            a protocol to compare with the paper, not an estimate of generalisation.
        measured (dict): further measurements, by name.
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
    """Copy of a run between two epochs.

    Attributes:
        epoch: number of finished epochs.
        tensors: parameters, moments of Adam, random state, kept neighbours.
        state: everything else, as JSON.
        history: metrics of every epoch; the run may have appended some since.
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
    """State of a training run, all of which a checkpoint holds."""

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
        """Device of the parameters."""
        return next(self.model.parameters()).device

    def select(self, val_accuracy: float, val_loss: float) -> None:
        """Keep a copy of the parameters if this epoch is the best so far."""
        if self.best.is_beaten_by(val_accuracy, val_loss):
            self.best = Best(self.epoch, val_accuracy, val_loss)
            self.best_state = {
                name: t.detach().clone() for name, t in self.model.state_dict().items()
            }

    def result(self, test_accuracy: float, **others: Any) -> FitResult:  # noqa: ANN401
        """Return the result, with the selected parameters' hash."""
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
        """Return a copy of the state at the end of an epoch."""
        tensors = {f"model/{name}": t for name, t in self.model.state_dict().items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam/{index}/{name}": value for name, value in moments.items()}
        tensors = {name: t.detach().clone() for name, t in tensors.items()}
        tensors |= {f"best/{name}": t for name, t in self.best_state.items()}  # copies already
        tensors |= random_state(self.device)
        if isinstance(self.model, JLGCN):  # whose tensors are replaced, never changed
            kept = self.model.neighbors.state()
            tensors |= {f"neighbors/{name}": t for name, t in kept.items()}
        state = {
            "identity": self.identity,
            "epoch": self.epoch,
            "batch": 0,  # of the sampler: checkpoints are written between epochs
            "best": asdict(self.best),
            "seconds": self.seconds,
        }
        return Snapshot(self.epoch, tensors, state, self.history)

    def resume(self, folder: Path, identity: dict[str, Any]) -> None:
        """Resume from the newest checkpoint, if any; raise if another run wrote it.

        A run is the same if its identity, its network, its initial parameters and its random state
        are.
        """
        self.identity = identity | {
            "network": settings_of(self.model),
            "start": state_hash(self.snapshot().tensors),
        }
        found = load_checkpoint(folder)
        if found is None:
            return
        tensors, state = found
        if state.get("identity") != self.identity:
            raise ValueError(
                f"the checkpoints in {folder} are of another run (other network, configuration, "
                "data, initial parameters or seed), or of an older version of jlgcn; to resume, "
                "create the network as that run did; to start again, choose another folder, or "
                "delete them"
            )
        try:
            _STATE(state, "")
            kept = _below(tensors, "neighbors/") if isinstance(self.model, JLGCN) else {}
            names = tensors.keys() - {f"neighbors/{name}" for name in kept}
            self._check({name: tensors[name] for name in names}, state)
            if isinstance(self.model, JLGCN):
                self.model.neighbors.load_state(kept, self.device)
            torch.set_rng_state(tensors["random"])
            if "random/cuda" in tensors:
                torch.cuda.set_rng_state(tensors["random/cuda"], self.device)
        except (ValueError, RuntimeError, TypeError) as error:  # the latter two by set_rng_state
            raise ValueError(
                f"the newest checkpoint in {folder} is not one of this network ({error}); delete "
                "the folder to start again"
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
        """Raise unless tensors have the names, shapes and ranges of a snapshot of this network."""
        wanted = {f"model/{name}": t for name, t in self.model.state_dict().items()}
        if state["best"]["epoch"] >= 0:
            wanted |= {f"best/{name}": t for name, t in self.model.state_dict().items()}
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for index, parameter in enumerate(parameters if state["epoch"] > 0 else []):
            if f"adam/{index}/step" in tensors:  # absent for a parameter without gradients
                wanted |= {f"adam/{index}/{name}": parameter for name in ("exp_avg", "exp_avg_sq")}
                wanted[f"adam/{index}/step"] = torch.empty((), device="meta")
        size = (state["epoch"], len(state["history"]))
        wanted["history"] = torch.empty(size, dtype=torch.float64, device="meta")
        wanted |= random_state(self.device)
        if tensors.keys() != wanted.keys():
            names = ", ".join(sorted(tensors.keys() ^ wanted.keys())[:5])
            raise ValueError(f"missing or unknown tensors: {names[:200]}")
        for name, expected in wanted.items():
            tensor = tensors[name]
            if tensor.shape != expected.shape or tensor.dtype != expected.dtype:
                raise ValueError(
                    f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, not "
                    f"{expected.dtype} of shape {tuple(expected.shape)}"
                )
            if name != "history":  # whose losses may be infinite
                check_finite(tensor, name, "start again")
            is_moment = name.startswith("adam/")
            if is_moment and not name.endswith("exp_avg") and bool((tensor < 0).any()):
                raise ValueError(f"{name} is negative")
        if state["epoch"] > 0:
            counted = torch.arange(state["epoch"], dtype=torch.float64, device="cpu")
            columns = ["epoch", "loss", "val_accuracy", "val_loss"]
            columns += ["test_accuracy"] if self.identity.get("trace_test") else []
            if state["history"] != columns:
                raise ValueError(f"history must have the columns {', '.join(columns)}")
            if not torch.equal(tensors["history"][:, 0], counted):
                raise ValueError("the epochs of history are not 0, 1, 2, …")


def run_epochs(
    run: Run,
    num_epochs: int,
    train: Callable[[], float],
    validate: Callable[[], dict[str, float]],
    *,
    options: RunOptions,
) -> None:
    """Train up to epoch `num_epochs`, and select the best epoch on validation data.

    Args:
        run: state of the run, new or resumed.
        num_epochs: total number of epochs.
        train: trains one epoch and returns its loss.
        validate: returns metrics of the epoch, ``val_accuracy`` and ``val_loss`` among them.
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
    # To be written if a signal aborts an epoch.
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
            run.history.append({"epoch": run.epoch, "loss": loss, **row})
            run.epoch += 1
            run.seconds = before + time.perf_counter() - started
            bar.set_postfix(loss=f"{loss:.3f}", val=f"{row['val_accuracy']:.3f}", refresh=False)
            bar.update()
            if writes:
                snapshot = run.snapshot()
            # Read once: a signal after this waits for the next epoch, or for the last save.
            is_stopping = interruption.signal is not None
            is_due = is_stopping or time.perf_counter() - saved > options.checkpoint_seconds
            if checkpoints is not None and snapshot is not None and is_due:
                snapshot.save(checkpoints)
                saved = time.perf_counter()
            if is_stopping:
                interruption.raise_it()
        if checkpoints is not None and snapshot is not None:
            snapshot.save(checkpoints)
        if interruption.signal is not None:
            interruption.raise_it()


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)}


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the default generators of the CPU and of this device."""
    state = {"random": torch.get_rng_state()}
    if device.type == "cuda":
        state["random/cuda"] = torch.cuda.get_rng_state(device)
    return state


def state_hash(state: dict[str, Tensor]) -> str:
    """Return the SHA-256 of tensors and their names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def peak_bytes() -> int:
    """Return the peak resident memory of this process; 0 if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes on Linux
