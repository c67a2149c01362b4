"""The closed form and the estimator on other devices; `tests.devices` stands in for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.datasets import load_wine

from jlgcn import JLGCNClassifier, compare
from jlgcn.closed_form.options import Parts
from jlgcn.report.graph_view import graph_view
from jlgcn.report.held_out import held_out
from tests.devices import explicit_devices

NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
EDGES = np.stack([np.arange(100), np.arange(1, 101)])


def data(is_sparse: bool) -> tuple[Any, np.ndarray]:
    x, y = load_wine(return_X_y=True)
    few = y.copy()
    few[np.random.default_rng(0).permutation(len(y))[40:]] = -1
    return scipy.sparse.csr_array(np.maximum(x - x.mean(0), 0)) if is_sparse else x, few


def use(device: str, folder: Path, is_sparse: bool, parts: Parts) -> list[np.ndarray]:
    """Fit, save, load and call all methods; return all numbers, which must be on the CPU."""
    x, y = data(is_sparse)
    model = JLGCNClassifier(device=device, parts=parts, restart=0.2, n_neighbors=5)
    model.set_params(learned_degree=1.0, given_decay=0.5)
    model.fit(x, y, np.concatenate([EDGES, EDGES[::-1]], axis=1))
    model.save(folder)
    found = []
    for each in (model, JLGCNClassifier.load(folder, device=device)):
        assert each.model_.diffused.device == torch.device(device)
        assert each.scaler_.scale.device == torch.device(device)
        assert each.get_params()["device"] == device
        node, edge, top = each.explain_node(3), each.explain_edge(3, 4), each.edges(top_k=3)
        found += [
            each.label_distributions_,
            each.predict_proba(x[:9], np.array([[0, 1], [5, 6]])),
            each.suggest_labels(3),
            np.array([value for _, value in each.important_features()]),
            *(part.numpy() for part in (node.scores, node.learned, edge.features, top.weight)),
            each.learned_graph().weight.numpy(),
        ]
    return found


@pytest.mark.parametrize(
    ("is_sparse", "parts"),
    [(False, "graph"), (False, "linear+kernel+graph"), (True, "linear+kernel+graph")],
)
@pytest.mark.parametrize("package", ["jlgcn.closed_form", "jlgcn.estimator"])
def test_every_tensor_is_created_on_a_named_device(
    tmp_path: Path, package: str, is_sparse: bool, parts: Parts
) -> None:
    with explicit_devices(package):
        use("cpu", tmp_path, is_sparse, parts)


def test_reports_and_comparisons_create_no_tensor_without_a_device() -> None:
    x, y = data(is_sparse=False)
    model = JLGCNClassifier(n_layers=2, restart=0.2, n_neighbors=5)
    with explicit_devices("jlgcn.report"):
        model.fit(x, y)
        graph_view(model, [str(i) for i in range(178)], [str(k) for k in range(13)])
        held_out(model, folds=0)
        held_out(model, folds=2)
        compare(x, y, estimator=model, n_splits=2)


def test_a_device_that_is_not_there_is_refused_with_a_remedy(tmp_path: Path) -> None:
    x, y = data(is_sparse=False)
    for device in ("cuda:99", "gpu"):
        with pytest.raises(ValueError, match=rf"'{device}' is not \(.*; use \"cpu\", or"):
            JLGCNClassifier(device=device).fit(x, y)
        with pytest.raises(ValueError, match=r"device must be one that PyTorch can use here"):
            JLGCNClassifier.load(tmp_path, device=device)


@pytest.mark.gpu
@NEEDS_CUDA
@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_gpu_agrees_with_the_cpu(tmp_path: Path, is_sparse: bool) -> None:
    for ours, theirs in zip(
        use("cuda:0", tmp_path / "gpu", is_sparse, "linear+kernel+graph"),
        use("cpu", tmp_path / "cpu", is_sparse, "linear+kernel+graph"),
        strict=True,
    ):
        assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-5)
