from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from typer.testing import CliRunner

import jlgcn
from jlgcn.cli import app
from jlgcn.cli.kernels import KernelReport, available_devices, examine
from jlgcn.cli.paper import paper

runner = CliRunner()


def test_help_names_every_command_and_says_where_to_begin() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "jlgcn doctor" in result.output


COMMANDS = [each.callback for group in (app, paper) for each in group.registered_commands]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_help_of_every_command_has_an_example(command: Callable[..., None]) -> None:
    assert "Example" in str(command.__doc__)


#: The least that prints help in this way.
BARE = """
import typer
app = typer.Typer()
app.command()(lambda: None)
app(["--help"])
"""


def seconds_of(*arguments: str) -> float:
    """Return the processor's time of the fastest of three runs; other tests run meanwhile."""
    found = []
    for _ in range(3):
        before = os.times()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = os.times()
        found.append(sum(after[2:4]) - sum(before[2:4]))  # of children
    return min(found)


def test_help_takes_little_longer_than_that_of_an_empty_command() -> None:
    assert seconds_of("-m", "jlgcn", "--help") < 3 * seconds_of("-c", BARE)


@pytest.mark.parametrize("wanted", ["--help", "fit nowhere.csv --label x", "report nowhere"])
def test_help_and_a_misspelt_path_wait_for_no_large_package(wanted: str) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "jlgcn", *wanted.split()]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == (2 if "nowhere" in wanted else 0)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "jlgcn.cli" in imported
    assert imported.isdisjoint({"torch", "numpy", "scipy", "sklearn", "matplotlib"})


def test_version() -> None:
    assert runner.invoke(app, ["--version"]).output == f"jlgcn {jlgcn.__version__}\n"


def test_doctor_reports_every_device_and_dtype() -> None:
    result = runner.invoke(app, ["doctor", "--nodes", "128"])
    assert result.exit_code == 0, result.output
    assert f"| torch | {torch.__version__.partition('+')[0]}" in result.output
    assert "| threads |" in result.output
    for dtype in ("float32", "float64", "bfloat16"):
        assert f"| cpu | {dtype} | flash |" in result.output


def test_doctor_refuses_a_device_that_is_not_there() -> None:
    result = runner.invoke(app, ["doctor", "--device", "cuda:99"])
    assert result.exit_code == 2
    assert "there is no device 'cuda:99' here; choose from: cpu" in " ".join(
        result.output.replace("│", " ").split()
    )


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float64, 1e-13), (torch.float32, 1e-5), (torch.bfloat16, 1e-2)]
)
def test_doctor_measures_a_small_error(dtype: torch.dtype, bound: float) -> None:
    report = examine(available_devices()[0], dtype, num_nodes=300)
    assert isinstance(report, KernelReport)
    assert 0 < report.error < bound
    assert report.seconds > 0


def test_help_wraps_whole_paragraphs_and_groups_options() -> None:
    shown = runner.invoke(app, ["fit", "--help"], env={"COLUMNS": "200"}).output
    paragraph = "listed at once. The model has what was learned of the columns"
    assert paragraph in " ".join(shown.split())
    assert max(map(len, shown.splitlines()[:8])) > 100
    for panel in ("Known graph", "Network", "Engine"):
        assert f"─ {panel} ─" in shown
