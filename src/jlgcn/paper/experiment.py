"""Experiments: configurations that are run once per seed."""

from __future__ import annotations

import dataclasses
import difflib
import json
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Literal, TypeVar

from torch import Tensor

from jlgcn._files import write_file
from jlgcn.distributed.collectives import process_group
from jlgcn.paper.records import config_hash, read_result, write_result
from jlgcn.training import FitResult, RunOptions

Protocol = Literal["honest", "authors"]

_BOOLS = {"true": True, "false": False}


@dataclass(frozen=True)
class Where:
    """Environment of a run: data, output, execution.

    Attributes:
        root (Path or None): folder of the data; None for the environment variable JLGCN_DATA.
        download (bool): download missing data files.
        sha256 (str or None): hash of a download whose hash this package does not know.
        options (RunOptions): checkpoints, progress bar.
        out (Path or None): folder of runs, where accesses to test labels are counted; None forbids
            access.
        recipe (str): name of the recipe.
        variant (str): name of its variant.
        device (str): device to train on.
    """

    root: Path | None = None
    download: bool = False
    sha256: str | None = None
    options: RunOptions = field(default_factory=RunOptions)
    out: Path | None = None
    recipe: str = ""
    variant: str = ""
    device: str = "cpu"


@dataclass(frozen=True)
class Fitted:
    """Outcome of a run.

    Attributes:
        result (FitResult): accuracies, time, memory.
        data_sha256 (str): hash of the data.
        files (dict): further results by name, each written to a JSON file next to the result.
    """

    result: FitResult
    data_sha256: str
    files: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment(ABC):
    """Configuration of an experiment: with a seed, it determines the result."""

    #: "nodes" or "clouds".
    task: ClassVar[str]

    @abstractmethod
    def fit(self, seed: int, where: Where, data: Any = None) -> Fitted:  # noqa: ANN401
        """Train and evaluate on the data set of the experiment, or on `data`."""

    def configuration(self) -> dict[str, Any]:
        """Return all fields as plain values."""
        return dataclasses.asdict(self)


E = TypeVar("E", bound=Experiment)


def with_settings(experiment: E, settings: dict[str, str]) -> E:
    """Override fields of an experiment, or of its training configuration, by parsed text.

    Example:
        >>> from jlgcn.paper import NodeExperiment
        >>> with_settings(NodeExperiment(), {"epochs": "3"}).train.epochs
        3
    """
    config: Any = experiment.train  # type: ignore[attr-defined]
    own = {f.name for f in dataclasses.fields(experiment)} - {"train"}
    training = {f.name for f in dataclasses.fields(config)}
    for name, text in settings.items():
        if name in own:
            experiment = replace(experiment, **{name: _parse(type(experiment), name, text)})
        elif name in training:
            config = replace(config, **{name: _parse(type(config), name, text)})
            experiment = replace(experiment, train=config)  # type: ignore[call-arg]
        else:
            near = difflib.get_close_matches(name, own | training, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            choices = ", ".join(sorted(own | training))
            raise ValueError(f"there is no setting {name!r}{hint} Settings are: {choices}")
    return experiment


def run_seed(
    experiment: Experiment,
    seed: int,
    *,
    recipe: str,
    variant: str,
    out: Path,
    root: Path | None = None,
    data: Any = None,  # noqa: ANN401
    download: bool = False,
    sha256: str | None = None,
    resume: bool = False,
    device: str = "cpu",
    options: RunOptions | None = None,
) -> dict[str, Any]:
    """Run one seed of an experiment and return its result, or the existing one if it is finished.

    Recipes share experiments, so finished runs of all recipes count. In distributed training, the
    first process writes and returns the result; the others return an empty dict.

    Args:
        experiment (Experiment): configuration to run.
        seed (int): random seed.
        recipe (str): name of its recipe.
        variant (str): name of its variant.
        out (Path): folder of runs; this one is written to ``<recipe>/<configuration>/seed-<n>``.
        root (Path or None, default None): folder of the data; None for JLGCN_DATA.
        data (NodeData, CloudData or None, default None): replaces the experiment's data set.
        download (bool, default False): download missing data files.
        sha256 (str or None, default None): SHA-256 of the archive, to download ModelNet40, of which
            none is published.
        resume (bool, default False): resume an interrupted run from its checkpoint; False raises
            FileExistsError if there is one.
        device (str, default "cpu"): device to train on.
        options (RunOptions or None, default None): checkpoint interval, progress bar; folder and
            label are set here.

    Cost: one training run.
    """
    configuration = experiment.configuration()
    place = Path(config_hash(configuration)) / f"seed-{seed}"
    folder = out / recipe / place
    for other in (folder, *sorted(out.glob(f"*/*/{place}"))):
        finished = read_result(other)
        if finished is not None:
            return finished
    checkpoints = folder / "checkpoints"
    is_first = process_group()[0] == 0
    if checkpoints.exists() and not resume and is_first:
        raise FileExistsError(
            f"{folder} has checkpoints of an interrupted run; add --resume to resume from them, or "
            "delete the folder to start again"
        )
    options = replace(
        RunOptions() if options is None else options,
        checkpoints=checkpoints,
        label=f"{recipe} {variant} seed {seed}",
    )
    where = Where(root, download, sha256, options, out, recipe, variant, device)
    fitted = experiment.fit(seed, where, data)
    if not is_first:
        return {}
    folder.mkdir(parents=True, exist_ok=True)  # absent after a run without checkpoints
    for name, content in fitted.files.items():
        write_file(folder / f"{name}.json", json.dumps(content) + "\n")
    return write_result(
        folder,
        fitted.result,
        recipe=recipe,
        variant=variant,
        protocol=getattr(experiment, "protocol", "honest"),
        configuration=configuration,
        seed=seed,
        data_sha256=fitted.data_sha256,
    )


def round_digits(
    values: Tensor,  # (N,)
) -> list[float]:
    """Return numbers with four significant digits, as records keep them for pictures."""
    return [float(f"{value:.4g}") for value in values.tolist()]


def _parse(owner: type, name: str, text: str) -> Any:  # noqa: ANN401
    """Parse a value of the type of a dataclass field."""
    annotation = typing.get_type_hints(owner)[name]
    kinds = typing.get_args(annotation) if typing.get_origin(annotation) is not Literal else ()
    kinds = kinds or (annotation,)
    if NoneType in kinds and text.lower() == "none":
        return None
    kind = next(k for k in kinds if k is not NoneType)
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if text not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, but it is {text!r}")
        return text
    parsers: dict[Any, Callable[[str], Any]] = {int: int, float: float, bool: _BOOLS.__getitem__}
    try:
        return parsers[kind](text.lower())
    except (ValueError, KeyError):
        none = " or none" if NoneType in kinds else ""
        raise ValueError(f"{name} must be {kind.__name__}{none}, but it is {text!r}") from None
