"""Systems and builds of PyTorch that lack something: what does not need it must run."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.processes import ROOT

pytestmark = pytest.mark.slow

#: Run first, it takes away what Windows lacks. Other packages are imported before: they look for
#: the name of the system, not for what it has.
AS_ON_WINDOWS = """
import os, pathlib, signal, sys, types
import scipy, sklearn.linear_model, torch

for name in ("resource", "fcntl", "pwd", "grp"):
    sys.modules[name] = None
sys.modules["msvcrt"] = types.SimpleNamespace(locking=lambda *_: None, LK_NBLCK=2)
for module, names in (
    (os, "sysconf O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_NONBLOCK fork getuid sched_getaffinity"),
    (signal, "SIGALRM setitimer ITIMER_REAL"),
):
    for name in names.split():
        delattr(module, name)
exists = pathlib.Path.exists
pathlib.Path.exists = lambda path: path.parts[1:2] not in (("proc",), ("sys",)) and exists(path)
open_descriptor = os.open


def open_file(path, *args, **kwargs):
    if os.path.isdir(path):
        raise PermissionError(f"a folder cannot be opened: {path}")
    return open_descriptor(path, *args, **kwargs)


os.open = open_file
"""

WITHOUT_DISTRIBUTED = """
import sys
import torch
import torch.distributed as dist


def missing(*_, **__):
    raise RuntimeError("this build of PyTorch has no distributed package")


for name in ("init_process_group", "is_initialized", "get_rank", "get_world_size", "all_reduce"):
    setattr(dist, name, missing)
dist.is_available = lambda: False
sys.modules["torch.distributed.nn"] = None
sys.modules["torch.distributed.nn.functional"] = None
"""


def run(*parts: str) -> str:
    """Run code in a process of its own, where warnings are errors, and return what it prints."""
    code = "\n".join(map(textwrap.dedent, parts))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_estimator_fits_without_what_windows_lacks() -> None:
    printed = run(
        AS_ON_WINDOWS,
        """
        from jlgcn import JLGCNClassifier
        from jlgcn._memory import available_bytes

        assert available_bytes() == sys.maxsize
        points = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)).numpy()
        points[20:] += 9
        labels = [0] * 3 + [-1] * 17 + [1] * 3 + [-1] * 17
        print(JLGCNClassifier().fit(points, labels).predict(points).tolist())
        """,
    )
    assert printed.strip() == str([0] * 20 + [1] * 20)


def test_training_with_checkpoints_runs_without_what_windows_lacks(tmp_path: Path) -> None:
    printed = run(
        AS_ON_WINDOWS,
        f"""
        from jlgcn.nn import JLGCN
        from jlgcn.training import RunOptions, TrainConfig
        from tests.training.small import fit_data, small_data

        folder = pathlib.Path({str(tmp_path)!r})
        calls = []


        def interrupt(*_):
            calls.append(None)
            if len(calls) == 4:  # in the second epoch
                signal.raise_signal(signal.SIGINT)


        def train():
            torch.manual_seed(0)
            model = JLGCN(6, 4, 2)
            model.register_forward_pre_hook(interrupt)
            config, options = TrainConfig(epochs=5), RunOptions(checkpoints=folder)
            return fit_data(model, small_data(), config=config, options=options)


        try:
            train()
        except KeyboardInterrupt:
            print("stopped", len(list(folder.glob("step-*"))))
        result = train()
        print(result.peak_bytes)
        """,
    )
    assert printed.split() == ["stopped", "1", "0"]


def test_the_estimator_imports_no_network_and_no_training_code() -> None:
    printed = run("from jlgcn import JLGCNClassifier; import sys; print(*sys.modules)")
    loaded = printed.split()
    assert "jlgcn.estimator" in loaded
    for package in ("training", "distributed", "nn", "paper"):
        assert [name for name in loaded if name.startswith(f"jlgcn.{package}")] == []


def test_graphs_and_networks_run_without_torch_distributed() -> None:
    printed = run(
        WITHOUT_DISTRIBUTED,
        """
        from jlgcn import KernelGraph, SparseGraph
        from jlgcn.nn import JLGCN

        print((KernelGraph(torch.zeros(3, 1)) @ torch.ones(3, 1)).flatten().tolist())
        edge = SparseGraph(torch.tensor([[0, 1], [1, 0]]), num_nodes=5)
        JLGCN(3, 4, 2)(torch.randn(5, 3), edge).logits.sum().backward()
        """,
    )
    assert printed.strip() == "[3.0, 3.0, 3.0]"


def test_training_runs_without_torch_distributed() -> None:
    printed = run(
        WITHOUT_DISTRIBUTED,
        """
        from jlgcn.nn import JLGCN
        from jlgcn.training import TrainConfig
        from tests.training.small import fit_data, small_data

        print(fit_data(JLGCN(6, 4, 2), small_data(), config=TrainConfig(epochs=2)).best_epoch)
        """,
    )
    assert printed.strip() in ("0", "1")


def test_sharded_graphs_say_that_they_need_torch_distributed() -> None:
    printed = run(
        WITHOUT_DISTRIBUTED,
        """
        try:
            from jlgcn.distributed import ShardedSparseGraph
        except ImportError as problem:
            print(problem)
        """,
    )
    assert "ShardedSparseGraph needs torch.distributed, which this build" in printed
