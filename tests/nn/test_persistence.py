"""Networks on disk: the same after loading, refused when the files are wrong."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from jlgcn import JLGCNClassifier, as_graph
from jlgcn.graphs import attach
from jlgcn.nn import JLGCN, DecoupledJLGCN, GraphLevelJLGCN, JLGCNOptions
from jlgcn.nn.persistence import SavedModule
from tests.faults.hostile import make_model, signed

MEDIAN = JLGCNOptions(metric_init="median", bias=False)
NETWORKS: dict[str, Callable[[], SavedModule]] = {
    "authors": lambda: JLGCN(6, 8, 3, rank=4),
    "paper": lambda: JLGCN(6, 8, 3, 3, rank=4, num_learned=2, options="paper"),
    "median": lambda: JLGCN(6, 8, 3, options=MEDIAN, backend="knn", num_neighbors=3),
    "identity": lambda: JLGCN(6, 8, 3, rank=None, options=JLGCNOptions(metric_init="identity")),
    "float64": lambda: JLGCN(6, 8, 3, input_dropout=0.1, negative_slope=0.0).double(),
    "numpy": lambda: JLGCN(np.int64(6), 8, np.int64(3), dropout=np.float64(0.5)),  # type: ignore[arg-type]
    "graph level": lambda: GraphLevelJLGCN(6, 3, (8, 4), (5,), rank=2, pooling="mean"),
    "a rank a layer": lambda: GraphLevelJLGCN(6, 3, (8, 4), (5,), rank=[9, 2], concat=False),
    "no head": lambda: GraphLevelJLGCN(6, 3, [8], (), rank=None, num_learned=0, options=MEDIAN),
}


def features(model: SavedModule) -> Tensor:
    return torch.randn((4, 20, 6) if isinstance(model, GraphLevelJLGCN) else (40, 6))


@pytest.mark.filterwarnings("ignore:the learned graph is (complete|dead)")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_loaded_network_computes_the_same_bits(name: str, tmp_path: Path) -> None:
    model = NETWORKS[name]()
    x = features(model)
    model.calibrate(x)  # type: ignore[operator]
    model.train()(x)  # changes the statistics of batch normalisation
    model.save(tmp_path)
    before = torch.get_rng_state()
    loaded = type(model).load(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert not loaded.training
    assert torch.equal(loaded(x).logits, model.eval()(x).logits)
    assert str(loaded) == str(model)
    assert loaded.options == model.options
    # It can be trained further, and saved again.
    loaded.train()(x).logits.sum().backward()
    loaded.save(tmp_path)


@pytest.mark.parametrize("network", [JLGCN, DecoupledJLGCN, GraphLevelJLGCN])
def test_every_argument_of_the_constructor_is_saved(network: type[SavedModule]) -> None:
    parameters = list(inspect.signature(network.__init__).parameters)
    assert list(network._ARGUMENTS) == parameters[1:]


def test_a_network_that_was_not_calibrated_is_not_calibrated_after_loading(tmp_path: Path) -> None:
    JLGCN(6, 8, 3, options=MEDIAN).save(tmp_path)
    with pytest.raises(RuntimeError, match="calibrate was not called"):
        JLGCN.load(tmp_path)(torch.randn(20, 6))


def test_new_nodes_are_classified_alike_before_and_after_loading(tmp_path: Path) -> None:
    x, x_new = torch.randn(40, 6), torch.randn(3, 6)
    edges, new_edges = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0, 2], [5, 7]])
    model = JLGCN(6, 8, 3).eval()
    model.save(tmp_path)
    graph = attach(as_graph(edges, 40), 3, new_edges)
    logits = [net(torch.cat([x, x_new]), graph).logits for net in (model, JLGCN.load(tmp_path))]
    assert torch.equal(*logits)
    assert torch.allclose(logits[0][:40], model(x, edges).logits, atol=1e-6)


def test_what_is_not_a_saved_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.json is missing; pass a folder that save"):
        JLGCN.load(tmp_path)
    make_model(tmp_path / "estimator")
    JLGCN(6, 8, 3).save(tmp_path / "nodes")
    with pytest.raises(ValueError, match="in schema 9 but this class reads JLGCN 1; use"):
        JLGCN.load(tmp_path / "estimator")
    with pytest.raises(ValueError, match="in schema JLGCN 1 but this class reads GraphLevelJLGCN"):
        GraphLevelJLGCN.load(tmp_path / "nodes")
    with pytest.raises(ValueError, match="in schema JLGCN 1 but this class reads 9; use the class"):
        JLGCNClassifier.load(tmp_path / "nodes")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "model.json").write_text('{"by": "somebody else"}')
    with pytest.raises(ValueError, match=r"is damaged: model\.json is not the document of a model"):
        JLGCN.load(tmp_path / "foreign")
    with pytest.raises(FileExistsError, match="is not a document that jlgcn wrote"):
        JLGCN(6, 8, 3).save(tmp_path / "foreign")


def test_a_network_that_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    model = JLGCN(6, 8, 3)
    model.dropout = 2.0
    with pytest.raises(ValueError, match=r"cannot be saved: arguments.dropout must be a number"):
        model.save(tmp_path)
    model = JLGCN(6, 8, 3)
    model.learners[0].metric.weight.data[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"convs.0.learner.metric.weight must be finite"):
        model.save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_damaged_network_is_refused(tmp_path: Path) -> None:
    GraphLevelJLGCN(3, 2, (4,), (), rank=2).save(tmp_path)
    original = json.loads((tmp_path / "model.json").read_text())
    content = next(tmp_path.glob("*.safetensors")).read_bytes()
    tensors = safetensors.torch.load(content)

    def refuses(match: str, changed: dict[str, Tensor] | None = None, **arguments: Any) -> None:  # noqa: ANN401
        data = content if changed is None else safetensors.torch.save(changed)
        document = original | {"sha256": hashlib.sha256(data).hexdigest()}
        document["arguments"] = original["arguments"] | arguments
        (tmp_path / f"model-{document['sha256'][:16]}.safetensors").write_bytes(data)
        (tmp_path / "model.json").write_text(signed(document))
        with pytest.raises(ValueError, match=f"is damaged: .*{match}.*; save or copy it again"):
            GraphLevelJLGCN.load(tmp_path)

    weight = "convs.0.lin.weight"
    refuses("unknown ones: 'other'", other=1)
    refuses("arguments.in_channels must be a whole number", in_channels=0)
    refuses("arguments.in_channels must be a whole number", in_channels=10**12)
    refuses("arguments.hidden_channels must be a list of 1 to 1,000", hidden_channels=[])
    refuses(r"arguments.hidden_channels\[1\] must be a whole", hidden_channels=[4, "5"])
    refuses("arguments.dropout must be a number", dropout=float("nan"))
    refuses("arguments.options lacks fields", options={})
    refuses("num_learned must be between 0 and 1", num_learned=3)
    # 80 petabytes of weights are refused before they are allocated.
    refuses(r"but needs \(100000000,", in_channels=10**8, hidden_channels=[10**8])
    refuses("unknown ones: convs.1", hidden_channels=[4, 4])
    refuses("unknown ones: more", tensors | {"more": torch.zeros(1)})
    refuses(f"{weight} has the shape", tensors | {weight: torch.zeros(1)})
    refuses(f"{weight} must be finite", tensors | {weight: tensors[weight] / 0})
    refuses("one floating-point dtype", tensors | {weight: tensors[weight].double()})
    refuses(f"{weight} must be torch.float32", tensors | {weight: tensors[weight].long()})
    refuses("running_var is negative", tensors | {"norms.0.running_var": -torch.ones(4)})
    (tmp_path / "model.json").write_text(json.dumps(original))
    GraphLevelJLGCN.load(tmp_path)
    path = tmp_path / f"model-{original['sha256'][:16]}.safetensors"
    path.write_bytes(content[:-1] + b"x")
    with pytest.raises(ValueError, match=r"does not have the hash in model\.json"):
        GraphLevelJLGCN.load(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match=r"safetensors is missing"):
        GraphLevelJLGCN.load(tmp_path)
