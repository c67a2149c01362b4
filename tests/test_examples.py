"""Examples run as a user would run them, if for fewer epochs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_data import DATA, needs_data

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        env=os.environ | {"JLGCN_DATA": str(DATA)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_data
def test_cora() -> None:
    output = run("cora.py", "--epochs", "3")
    assert "2,708 nodes, 5,278 edges" in output
    assert output.count("paper ") == 5


def test_before_gcnconv() -> None:
    output = run("before_gcnconv.py", "--epochs", "3")
    assert [line.split()[0] for line in output.splitlines()] == [
        "GCNConv",
        "GCN2Conv",
        "TransformerConv",
    ]


def test_no_graph() -> None:
    assert "JLGCN without a graph" in run("no_graph.py", "--epochs", "3")


@pytest.mark.nightly
def test_the_readmes_picture_is_a_good_draw_and_seed_2_is_not(tmp_path: Path) -> None:
    good = run("idea.py", str(tmp_path / "good.png"))
    worse = run("idea.py", str(tmp_path / "worse.png"), "--seed", "2")
    assert int(good.split()[0]) > int(worse.split()[0]) + 10
    assert (tmp_path / "good.png").stat().st_size > 10_000


@needs_data
def test_clouds() -> None:
    arguments = ("--epochs", "1", "--points", "32", "--clouds", "64")
    output = run("clouds.py", "modelnet10_voxel_hdf5_1024", *arguments)
    assert "4,815 clouds of 1,024 points, 10 classes" in output
    assert "with 90% of the points missing" in output


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60
