"""Fitted models on disk: the same after loading, whole at every moment, refused when wrong."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import scipy.sparse
import torch
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError

from jlgcn import JLGCNClassifier, SparseGraph
from jlgcn._files import LOCK, read_file
from jlgcn.closed_form import ClosedFormModel, fit_closed_form
from jlgcn.estimator.document import (
    TableNames,
    classes_from_document,
    classes_to_document,
    model_from_tensors,
    model_to_tensors,
)
from tests.faults.figures import record
from tests.faults.hostile import attempt, signed

FORK = multiprocessing.get_context("fork")


def wine() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return wines, their classes, and five labels of each."""
    x, y = load_wine(return_X_y=True)
    few = np.full(len(y), -1)
    for label in range(3):
        rows = np.flatnonzero(y == label)[:5]
        few[rows] = label
    return x, y, few


def small(seed: int = 0) -> JLGCNClassifier:
    """Return a model of twelve rows, which is saved and read in milliseconds."""
    return copy.deepcopy(_fitted(seed))


@functools.cache
def _fitted(seed: int) -> JLGCNClassifier:
    x = np.random.default_rng(seed).normal(size=(12, 3)) + 3 * (np.arange(12) % 2)[:, None]
    y = np.where(np.arange(12) < 4, np.arange(12) % 2, -1)
    return JLGCNClassifier(n_layers=1, n_neighbors=2, restart=0.2).fit(x, y)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_saved_estimator_is_the_same(tmp_path: Path, is_sparse: bool) -> None:
    import pandas as pd  # type: ignore[import-untyped]

    x, y, few = wine()
    names = np.array(["barolo", "grignolino", "barbera"])[y].astype(object)
    names[few == -1] = ""
    row = np.arange(100)
    graph = np.stack([np.concatenate([row, row + 1]), np.concatenate([row + 1, row])])
    table: Any = pd.DataFrame(x, columns=[f"f{k}" for k in range(13)])
    if is_sparse:
        table = scipy.sparse.csr_matrix(x > np.median(x, 0), dtype=np.float32)
    model = JLGCNClassifier(n_neighbors=7).fit(table, names, graph)
    model.save(tmp_path / "wine")
    loaded = JLGCNClassifier.load(tmp_path / "wine")
    assert loaded.get_params() == model.get_params()
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.classes_.dtype == model.classes_.dtype
    assert np.array_equal(loaded.transduction_, model.transduction_)
    edges = np.array([[0, 1], [5, 6]])
    assert np.array_equal(loaded.predict_proba(table, edges), model.predict_proba(table, edges))
    assert loaded.explain_edge(3, 4).weight == model.explain_edge(3, 4).weight
    assert np.array_equal(loaded.suggest_labels(5), model.suggest_labels(5))
    scores = (loaded.explain_node(3).scores, model.explain_node(3).scores)
    assert torch.allclose(*scores, rtol=1e-5)  # products of other memory layouts round otherwise
    assert loaded.history_ == model.history_
    assert hasattr(loaded, "feature_names_in_") != is_sparse


@functools.cache
def _fitted_network(*, is_sparse: bool = False) -> JLGCNClassifier:
    x = np.random.default_rng(0).normal(size=(12, 3)) + 3 * (np.arange(12) % 2)[:, None]
    y = np.where(np.arange(12) < 6, np.arange(12) % 2, -1)
    graph = np.array([[0, 2, 3, 5], [2, 0, 5, 3]])
    model = JLGCNClassifier(solver="gradient", max_iter=5, hidden_channels=4)
    return model.fit(scipy.sparse.csr_matrix(x > 1.5) if is_sparse else x, y, graph)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_saved_network_is_the_same_bit_for_bit(tmp_path: Path, is_sparse: bool) -> None:
    model = _fitted_network(is_sparse=is_sparse)
    model.save(tmp_path)
    loaded = JLGCNClassifier.load(tmp_path)
    assert loaded.get_params() == model.get_params()
    assert np.array_equal(loaded.label_distributions_, model.label_distributions_)
    assert loaded.history_ == model.history_
    assert loaded.best_params_ == model.best_params_
    x = np.random.default_rng(1).normal(size=(5, 3)).clip(0)
    edges = np.array([[0, 1], [5, 6]])
    assert np.array_equal(loaded.predict_proba(x, edges), model.predict_proba(x, edges))
    for layer in (0, 1):
        first, second = (each.learned_graph(layer) for each in (loaded, model))
        assert torch.equal(first.edge_index, second.edge_index)
        assert torch.equal(first.weight, second.weight)
    assert loaded.explain_edge(3, 4).weight == model.explain_edge(3, 4).weight
    assert np.array_equal(loaded.suggest_labels(3), model.suggest_labels(3))
    assert torch.equal(loaded.model_.validation, model.model_.validation)


def test_a_damaged_network_is_refused(tmp_path: Path) -> None:
    _fitted_network().save(tmp_path)
    document = json.loads((tmp_path / "model.json").read_text())
    (path,) = tmp_path.glob("*.safetensors")
    tensors: dict[str, torch.Tensor] = safetensors.torch.load(path.read_bytes())

    def refuses(match: str, tensors: dict[str, torch.Tensor], **changes: object) -> None:
        content = safetensors.torch.save({n: t.clone().contiguous() for n, t in tensors.items()})
        sha256 = hashlib.sha256(content).hexdigest()
        (tmp_path / f"model-{sha256[:16]}.safetensors").write_bytes(content)
        new = document | {"sha256": sha256, "model": document["model"] | changes}
        (tmp_path / "model.json").write_text(signed(new))
        with pytest.raises(ValueError, match=match):
            JLGCNClassifier.load(tmp_path)

    def arguments(**changes: object) -> dict[str, Any]:
        known: dict[str, object] = document["model"]["network"]["arguments"]
        return {"network": {"class": "JLGCN", "arguments": known | changes}}

    def changed(name: str, value: torch.Tensor) -> dict[str, torch.Tensor]:
        return tensors | {name: value}

    weight = "network/convs.0.lin.weight"
    refuses("model.network.arguments.dropout must be a number", tensors, **arguments(dropout=2))
    refuses("model.network.arguments.options lacks fields", tensors, **arguments(options={}))
    refuses(
        r"the network has 7 where its tensors have 3 \(F\)", tensors, **arguments(in_channels=7)
    )
    refuses("missing, or there are unknown ones", tensors, **arguments(num_layers=3))
    refuses("every layer of the network must learn", tensors, **arguments(num_learned=1))
    refuses("convs.0.learner.metric.weight has the shape", tensors, **arguments(rank=10**8))
    refuses("best_epoch must be below 5", tensors, best_epoch=5)
    refuses("model.unit must be a number above 0", tensors, unit=0)
    others = {name: tensor for name, tensor in tensors.items() if name != weight}
    refuses("tensors are missing, or there are unknown ones: convs.0.lin.weight", others)
    refuses("unknown ones: more", changed("more", tensors["x"]))
    refuses("convs.0.lin.weight must be finite", changed(weight, tensors[weight] / 0))
    floating = [name for name, t in tensors.items() if t.dtype == torch.float32]
    doubled = {name: tensors[name].double() for name in floating if name.startswith("network/")}
    refuses("parameters of the network must be torch.float32", tensors | doubled)
    scaled = "network/convs.1.learner.is_scaled"
    refuses("is not calibrated", changed(scaled, torch.tensor(False)))
    refuses(r"tensors have 1 \(C\)", changed("logits", tensors["logits"][:, :1]))
    refuses("hidden/0 has the shape", changed("hidden/0", tensors["hidden/0"][:9]))
    refuses("train must be from 0 to 11", changed("train", tensors["train"] + 9))
    refuses("a row of validation has no label", changed("validation", tensors["validation"] + 7))
    refuses("curve must be finite", changed("curve", tensors["curve"] * torch.nan))
    refuses(r"the network has 3 .* \(curve\)", changed("curve", tensors["curve"][:, :2]))
    refuses("scaler/scale has the shape", changed("scaler/scale", tensors["scaler/scale"][:2]))
    refuses("scaler/scale must be float32 or", changed("scaler/scale", torch.ones(3).half()))
    refuses("a weight of given is negative", changed("given/weight", -tensors["given/weight"]))


@pytest.mark.parametrize(
    "classes",
    [
        np.array([0, 7]),
        np.array([3, 9], dtype=np.uint8),
        np.array([0.0, 2.0]),
        np.array(["a", "längst"]),
        np.array([False, True]),
        np.array(["a", "b"], dtype=object),
    ],
)
def test_classes_keep_their_names_and_their_type(tmp_path: Path, classes: np.ndarray) -> None:
    model = small()
    model.classes_ = classes
    model.save(tmp_path)
    loaded = JLGCNClassifier.load(tmp_path).classes_
    assert loaded.dtype == classes.dtype
    assert loaded.tolist() == classes.tolist()


def test_the_classifier_and_its_evidence_are_kept() -> None:
    x, y, _ = wine()
    features = torch.from_numpy(x).float()
    row = torch.arange(177)
    pairs = torch.stack([row, row + 1])
    graph = SparseGraph(torch.cat([pairs, pairs.flip(0)], -1), num_nodes=178)
    labels, train = torch.from_numpy(y), torch.arange(0, 178, 10)
    model = fit_closed_form(features, labels, graph, train=train)
    tensors, document = model_to_tensors(model)
    tensors |= {"scaler/shift": features[0], "scaler/scale": features[0]}
    loaded = model_from_tensors(tensors, document)
    edges = torch.tensor([[0, 1], [5, 6]]), torch.ones(2)
    assert torch.equal(loaded.predict(features[:9], edges), model.predict(features[:9], edges))
    assert isinstance(loaded, ClosedFormModel)
    assert torch.equal(loaded.logits, model.logits)
    assert loaded.evidence.weights == model.evidence.weights
    assert torch.equal(loaded.evidence.held_out, model.evidence.held_out)
    assert str(loaded.evidence) == str(model.evidence)
    points = tensors["classifier/landmarks"]
    for wrong in (points[1:], points[:, 1:]):
        with pytest.raises(ValueError, match=r"classifier/.* has the shape"):
            model_from_tensors(tensors | {"classifier/landmarks": wrong}, document)
    given = {name: t for name, t in tensors.items() if not name.startswith("given")}
    with pytest.raises(ValueError, match="3 blocks of features do not fit to the given graph"):
        model_from_tensors(given, document)


def test_parameters_of_a_search_over_a_grid_are_saved(tmp_path: Path) -> None:
    model = small().set_params(n_neighbors=np.int64(2), metric_weight=np.float64(0.1), verbose=1)
    model.save(tmp_path)
    loaded = JLGCNClassifier.load(tmp_path).get_params()
    assert (loaded["n_neighbors"], loaded["metric_weight"], loaded["verbose"]) == (2, 0.1, True)


def test_what_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    model = small().set_params(n_layers=0)
    with pytest.raises(ValueError, match=r"cannot be saved: parameters.n_layers must be a whole"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(FileNotFoundError, match=r"holds no model: .*pass a folder that"):
        JLGCNClassifier.load(folder)
    with pytest.raises(NotFittedError):
        JLGCNClassifier().save(folder)
    small().save(folder)
    document = (folder / "model.json").read_text()
    (path,) = folder.glob("*.safetensors")
    content = path.read_bytes()

    def refuses(match: str, text: str = document, tensors: bytes = content) -> None:
        (folder / "model.json").write_text(text)
        new = hashlib.sha256(tensors).hexdigest()
        if tensors == content[:-1]:  # cut off: still under its old name
            new = json.loads(document)["sha256"]
        (folder / f"model-{new[:16]}.safetensors").write_bytes(tensors)
        with pytest.raises(ValueError, match=match):
            JLGCNClassifier.load(folder)

    def edited(**changes: object) -> str:
        return signed(json.loads(document) | changes)

    def within(name: str, **changes: object) -> str:
        return edited(**{name: json.loads(document)[name] | changes})

    refuses("is not JSON", document[:50])
    refuses("is not the document of a model", "[]")
    refuses("is not the document of a model", "{}")
    refuses("does not have its own hash", document.replace('"unit": ', '"unit": 1'))
    refuses("written in schema 99 but this class reads 9; use the class", edited(schema=99))
    refuses("sha256 is not a hash", edited(sha256="../../../etc/passwd"))
    refuses("is missing; save or copy it again", edited(sha256="0" * 64))
    refuses("does not have the hash", tensors=content[:-1])
    refuses("contains a 'Other'; pass a folder of JLGCNClassifier", edited(estimator="Other"))

    def of_model(**changes: object) -> str:
        return within("model", **changes)

    def options(**changes: object) -> str:
        return of_model(options=json.loads(document)["model"]["options"] | changes)

    refuses("lacks fields, or has unknown ones: 'begin'", options(begin=1))
    refuses("options.parts must be one of", options(parts="all"))
    refuses("model.solver must be one of closed_form, gradient", of_model(solver="genetic"))
    refuses("model lacks fields, or has unknown ones: 'best_epoch'", of_model(solver="gradient"))
    refuses("model must be an object", edited(model=3))
    for restart in (0, -1, 2, float("nan"), "0.5", True, None):
        refuses("options.restart must be a number above 0", options(restart=restart))
    refuses("n_neighbors must be a whole number from 1", options(n_neighbors="<b>5"))
    refuses("unit must be a number above 0", of_model(unit=float("inf")))
    refuses(r"losses\[0\] must be a number from 0", of_model(losses=[[1]]))
    refuses("it has no layer", of_model(losses=[]))
    refuses("learned_scale must be a number", of_model(learned_scale=10**400))
    refuses("parameters lacks fields", edited(parameters={"depth": 3}))
    refuses("2 classes have 1 names", within("classes", values=[0]))
    refuses("classes.dtype must be one of", within("classes", dtype="V1000000000"))
    refuses("must fit into int8", within("classes", dtype="int8", values=[0, 1000]))
    refuses(r"values\[0\] must be of int64", within("classes", values=["a", "b"]))
    refuses("scaler.kind must be one of", within("scaler", kind="image"))
    for power in (0, 1e300, "2", None):
        refuses("scaler.power must be a number above 0", within("scaler", power=power))
    refuses("3 features have 1 names", edited(feature_names=["a"]))
    refuses(r"feature_names\[0\] must be text", edited(feature_names=["\ud800", "b", "c"]))
    table = {"ids": ["a"], "id_column": None, "label_column": "", "drop": [], "feature_names": []}
    table |= {"texts": None}
    refuses("12 rows have 1 names", edited(table=table))
    refuses(r"table.ids\[0\] must be text", edited(table=table | {"ids": [3]}))

    tensors = safetensors.torch.load(content)

    def changed(name: str, value: torch.Tensor | None) -> tuple[str, bytes]:
        others = {key: tensor for key, tensor in tensors.items() if key != name}
        new = safetensors.torch.save(
            others | ({} if value is None else {name: value.clone().contiguous()})
        )
        return edited(sha256=hashlib.sha256(new).hexdigest()), new

    refuses("missing, or there are unknown ones: graph/row", *changed("graph/row", None))
    refuses("unknown ones: more", *changed("more", tensors["projection"] + 1))
    refuses(
        "graph/row .* but it is from 500 to 511",
        *changed("graph/row", tensors["graph/row"] + 500),
    )
    refuses("index must be from", *changed("index", tensors["index"] + 500))
    refuses("index must be torch.int64", *changed("index", tensors["index"].float()))
    refuses("x has the shape", *changed("x", tensors["x"][:9]))
    refuses("both directions", *changed("graph/col", tensors["graph/col"].flip(0)))
    refuses("graph/weight has the shape", *changed("graph/weight", tensors["graph/weight"][:9]))
    refuses("a weight of graph is negative", *changed("graph/weight", -tensors["graph/weight"]))
    refuses("has no edge", *changed("graph/weight", 0 * tensors["graph/weight"]))
    one_way = tensors["graph/weight"] * torch.arange(len(tensors["graph/weight"]))
    refuses("differ between the directions", *changed("graph/weight", one_way))
    weight, bias = "classifier/graph", "classifier/bias"
    refuses("classifier/.* has the shape", *changed(weight, tensors[weight][:, :1]))
    refuses("classifier/graph must be finite", *changed(weight, tensors[weight] / 0))
    refuses("classifier/bias must be torch.float64", *changed(bias, tensors[bias].half()))
    refuses("scaler/scale has the shape", *changed("scaler/scale", tensors["scaler/scale"][:2]))
    refuses("distance must not be negative", *changed("distance", tensors["distance"] - 1e9))


def test_starts_of_rows_whose_differences_overflow_are_refused() -> None:
    x = scipy.sparse.random(12, 20, 0.3, "csr", random_state=0)
    model = JLGCNClassifier(n_layers=1, restart=0.2).fit(x, [0, 1] * 6)
    tensors, document = model_to_tensors(model.model_)
    tensors |= {"scaler/shift": model.scaler_.shift, "scaler/scale": model.scaler_.scale}
    assert torch.equal(model_from_tensors(tensors, document).logits, model.model_.logits)
    crow = tensors["x/crow"].clone()
    crow[1:3] = torch.tensor([2**63 - 1, -(2**63)])  # the second is above the first by 1
    with pytest.raises(ValueError, match="x/crow must be from"):
        model_from_tensors(tensors | {"x/crow": crow}, document)
    crow = tensors["x/crow"].flip(0)
    with pytest.raises(ValueError, match="x/crow must ascend from 0"):
        model_from_tensors(tensors | {"x/crow": crow}, document)


def test_exchanged_ids_are_noticed(tmp_path: Path) -> None:
    model = small()
    ids = [f"row {number}" for number in range(12)]
    model.table_ = TableNames(ids, "id", "kind", [], ["a", "b", "c"])
    model.save(tmp_path)
    assert JLGCNClassifier.load(tmp_path).table_ == model.table_
    text = (tmp_path / "model.json").read_text()
    text = text.replace("row 3", "row X").replace("row 4", "row 3").replace("row X", "row 4")
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ValueError, match="does not have its own hash"):
        JLGCNClassifier.load(tmp_path)


def test_saving_again_replaces_the_model_and_leaves_nothing_behind(tmp_path: Path) -> None:
    for seed in (1, 2):
        small(seed).save(tmp_path)
    loaded = JLGCNClassifier.load(tmp_path)
    assert np.array_equal(loaded.label_distributions_, small(2).label_distributions_)
    assert len(list(tmp_path.iterdir())) == 2 + (tmp_path / LOCK).exists()


def test_saving_deletes_no_file_of_others(tmp_path: Path) -> None:
    others = ("model-00001-of-00002.safetensors", "model-0123456789abcdef.safetensors", "notes.tmp")
    for name in others:
        (tmp_path / name).write_text("precious")
    for seed in (1, 2):
        small(seed).save(tmp_path)
    assert all((tmp_path / name).read_text() == "precious" for name in others)


@pytest.mark.parametrize("content", ['{"weights": 3}', "[]", "no JSON", '{"sha256": "x"}'])
def test_a_document_of_others_is_not_overwritten(tmp_path: Path, content: str) -> None:
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(FileExistsError, match="is not a document that jlgcn wrote"):
        small().save(tmp_path)
    assert (tmp_path / "model.json").read_text() == content


def test_links_in_a_folder_are_not_written_through(tmp_path: Path) -> None:
    folder, mine = tmp_path / "model", tmp_path / "mine"
    small().save(folder)
    mine.write_text("precious")
    (tensors,) = folder.glob("*.safetensors")
    for name in (tensors.name, "model.json.tmp", "rows.json"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(mine)
    small().save(folder)
    assert mine.read_text() == "precious"
    assert JLGCNClassifier.load(folder).classes_.tolist() == [0, 1]


def test_a_pipe_is_no_model_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.json")
    with pytest.raises(ValueError, match="no ordinary file"):
        JLGCNClassifier.load(tmp_path)


def test_saving_an_equal_model_does_not_touch_its_tensors(tmp_path: Path) -> None:
    small().save(tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    before = path.stat()
    small().save(tmp_path)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_tensors_that_were_damaged_are_written_again(tmp_path: Path) -> None:
    small().save(tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-8])
    small().save(tmp_path)
    JLGCNClassifier.load(tmp_path)


def _bomb(folder: Path, kind: str) -> None:
    """Write a small model whose document asks for gigabytes."""
    model = small()
    if kind == "sparse":
        x = scipy.sparse.random(12, 50, 0.3, "csr", random_state=0)
        model = JLGCNClassifier(n_layers=1).fit(x, [0, 1] * 6)
    model.save(folder)
    document = json.loads((folder / "model.json").read_text())
    if kind == "dtype":
        document["classes"] = {"dtype": "V9000000000", "values": [0, 1]}
    if kind == "sparse":
        (path,) = folder.glob("*.safetensors")
        tensors = safetensors.torch.load(path.read_bytes())
        tensors["projection"] = torch.zeros(200_000_000, 0)
        content = safetensors.torch.save(tensors)
        document["sha256"] = hashlib.sha256(content).hexdigest()
        (folder / f"model-{document['sha256'][:16]}.safetensors").write_bytes(content)
    (folder / "model.json").write_text(signed(document))


@pytest.mark.parametrize("kind", ["dtype", "sparse"])
def test_a_document_that_asks_for_gigabytes_is_refused_before_they_are_taken(
    tmp_path: Path, kind: str
) -> None:
    _bomb(tmp_path, kind)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    found = attempt(JLGCNClassifier.load, tmp_path)
    assert found["outcome"] == "refused"
    assert found["extra bytes"] < size + 200 * 2**20


def test_long_names_of_classes_are_not_repeated_for_very_many_rows() -> None:
    document = classes_to_document(np.array(["a" * 90_000, "b"]))
    assert classes_from_document(document, 12)[0] == "a" * 90_000
    with pytest.raises(ValueError, match="would take 360,000,000,000 bytes; use shorter ones"):
        classes_from_document(document, 1_000_000)


def _writer(folder: Path, seed: int, number: int) -> Any:  # noqa: ANN401
    """Start a process that saves two models in turn; they are fitted before it is forked."""
    models = [small(seed), small(seed + 1)]

    def save() -> None:
        for index in range(number):
            models[index % 2].save(folder)

    process = FORK.Process(target=save, daemon=True)
    process.start()
    return process


def _two_writers_one_reader(folder: Path, number: int) -> int:
    """Let two processes save into a folder while this one reads; return how often it read."""
    small().save(folder)
    writers = [_writer(folder, seed, number) for seed in (0, 1)]
    num_read = 0
    while any(writer.is_alive() for writer in writers):
        JLGCNClassifier.load(folder)  # never fails
        num_read += 1
    assert [writer.exitcode for writer in writers] == [0, 0]
    JLGCNClassifier.load(folder)
    assert len(list(folder.glob("*.safetensors"))) == 1
    return num_read


def test_two_writers_leave_a_whole_model_and_a_reader_never_fails(tmp_path: Path) -> None:
    assert _two_writers_one_reader(tmp_path, 20) > 0


@pytest.mark.nightly
def test_two_writers_leave_a_whole_model_and_a_reader_never_fails_200_times(
    tmp_path: Path,
) -> None:
    num_read = _two_writers_one_reader(tmp_path, 200)
    record("saves", {"saves": 400, "loads": num_read, "failed": 0})
    assert num_read > 100


def _kill_while_saving(folder: Path, number: int) -> None:
    """Kill a process that saves equal and other models, at random moments; each time one loads."""
    chance = random.Random(0)
    small().save(folder)
    for _ in range(number):
        writer = _writer(folder, 0, 10**6)
        time.sleep(0.02 + chance.uniform(0, 0.1))
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        JLGCNClassifier.load(folder)
    small().save(folder)
    assert not list(folder.glob(".*.tmp"))


def test_a_model_loads_after_its_writer_was_killed(tmp_path: Path) -> None:
    _kill_while_saving(tmp_path, 5)


@pytest.mark.nightly
def test_a_model_loads_after_its_writer_was_killed_50_times(tmp_path: Path) -> None:
    _kill_while_saving(tmp_path, 50)
    record("killed_saves", {"kills": 50, "loadable": 50})


def test_a_reader_starts_again_when_the_document_changes_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(1).save(tmp_path)
    reads = []

    def read_slowly(path: Path, *limits: int) -> bytes:
        content = read_file(path, *limits)
        reads.append(path.name)
        if reads == ["model.json"]:
            small(2).save(tmp_path)
        return content

    monkeypatch.setattr("jlgcn._saved.read_file", read_slowly)
    loaded = JLGCNClassifier.load(tmp_path)
    assert np.array_equal(loaded.label_distributions_, small(2).label_distributions_)


def test_a_model_whose_settings_are_numbers_of_numpy_is_saved(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(12, 3)) + 3 * (np.arange(12) % 2)[:, None]
    y = np.where(np.arange(12) < 4, np.arange(12) % 2, -1)
    settings = {"n_layers": np.int64(1), "n_neighbors": np.int64(2), "restart": np.float64(0.2)}
    model = JLGCNClassifier().set_params(**settings).fit(x, y)
    model.save(tmp_path)
    loaded = JLGCNClassifier.load(tmp_path)
    assert np.array_equal(loaded.predict_proba(x), model.predict_proba(x))
