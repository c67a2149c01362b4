from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from jlgcn.cli.recipes import recipe_commands
from jlgcn.paper.experiment import Experiment, Fitted, Where
from jlgcn.paper.recipe import Recipe, Variant
from jlgcn.training import TrainConfig
from tests.processes import killed_with_workers, say_where


@dataclass(frozen=True)
class Endless(Experiment):
    """Never ends by itself."""

    task: ClassVar[str] = "nodes"
    train: TrainConfig = field(default_factory=TrainConfig)

    def fit(self, seed: int, where: Where, data: Any = None) -> Fitted:  # noqa: ANN401
        assert where.out is not None
        say_where(where.out / f"{seed}")
        time.sleep(600)
        raise AssertionError


RECIPE = Recipe("endless", "", "", (), (Variant("endless", Endless()),))

app = recipe_commands("endless", lambda: {RECIPE.name: RECIPE}, lambda: lambda *_: [], "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_parallel_runs_end_with_their_command(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from tests.cli.test_recipes import app; app()"]
    command += ["run", "endless", "--seeds", "3", "--jobs", "2", "--out", str(tmp_path)]
    killed_with_workers(command, [tmp_path / "0", tmp_path / "1"], number)
