"""The learned graph as a transform of PyTorch Geometric's Data."""

import logging

import numpy as np
import pytest
import scipy.sparse
import torch

from jlgcn.closed_form import LearnGraph
from jlgcn.errors import OneWayEdgesWarning

pyg = pytest.importorskip("torch_geometric", reason="needs the extra pyg")
from torch_geometric.data import Batch, Data, HeteroData  # noqa: E402
from torch_geometric.loader import RandomNodeLoader  # noqa: E402
from torch_geometric.nn import GCNConv  # noqa: E402
from torch_geometric.transforms import Compose, NormalizeFeatures  # noqa: E402


def clusters(num_rows: int = 60, num_noise: int = 0) -> Data:
    """Return two clusters, told apart by feature 0, with three labels each."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(num_rows) % 2
    x = torch.randn(num_rows, 1 + num_noise, generator=generator)
    x[:, 0] = 4.0 * y + 0.3 * x[:, 0]
    data = Data(x=x, y=y)
    data.train_mask = torch.arange(num_rows) < 6
    return data


def within(data: Data) -> float:
    """Return the share of the weight between nodes of one class."""
    row, col = data.edge_index
    same = data.y[row] == data.y[col]
    return float(data.edge_weight[same].sum() / data.edge_weight.sum())


def test_the_learned_graph_joins_nodes_of_one_class_more_than_a_euclidean_one() -> None:
    data = clusters(200, num_noise=20)
    data.train_mask = torch.arange(200) < 30
    learned = LearnGraph(num_neighbors=5)(data)
    fixed = LearnGraph(num_neighbors=5, metric_weight=0)(data)
    assert within(learned) > within(fixed) + 0.05


def test_edges_are_listed_in_both_directions_without_loops() -> None:
    found = LearnGraph(num_neighbors=3)(clusters())
    pairs = set(map(tuple, found.edge_index.T.tolist()))
    assert all((j, i) in pairs and i != j for i, j in pairs)
    assert found.edge_weight.shape == found.edge_index.shape[1:]
    assert float(found.edge_weight.min()) > 0


def test_the_data_that_came_in_is_unchanged() -> None:
    data = clusters()
    data.edge_index = torch.tensor([[0, 2], [2, 0]])
    data.edge_attr = torch.ones(2, 1)
    found = LearnGraph(num_neighbors=3)(data)
    assert data.edge_index.shape == (2, 2)
    assert "edge_weight" not in data
    assert "edge_attr" not in found


def test_given_edges_are_in_the_learned_graph() -> None:
    data = clusters()
    data.edge_index = torch.tensor([[0, 59, 1, 58], [59, 0, 58, 1]])
    found = LearnGraph(num_neighbors=3)(data)
    pairs = set(map(tuple, found.edge_index.T.tolist()))
    assert {(0, 59), (59, 0), (1, 58), (58, 1)} <= pairs


def test_classes_of_other_nodes_are_not_read() -> None:
    data = clusters(num_noise=3)
    expected = LearnGraph(num_neighbors=3)(data)
    data.y = torch.where(data.train_mask, data.y, 1 - data.y)
    found = LearnGraph(num_neighbors=3)(data)
    assert torch.equal(found.edge_index, expected.edge_index)
    assert torch.equal(found.edge_weight, expected.edge_weight)


def test_all_known_classes_train_where_there_is_no_mask() -> None:
    data = clusters()
    expected = LearnGraph(num_neighbors=3)(data)
    data.y = torch.where(data.train_mask, data.y, -1)
    del data.train_mask
    assert torch.equal(LearnGraph(num_neighbors=3)(data).edge_weight, expected.edge_weight)


def test_without_mask_and_unknown_classes_it_warns_that_all_labels_train() -> None:
    data = clusters()
    del data.train_mask
    with pytest.warns(UserWarning, match="so all 60 labels train the graph") as caught:
        LearnGraph(num_neighbors=3)(data)
    assert caught[0].filename == __file__


def test_warnings_of_given_edges_name_the_line_that_called() -> None:
    data = clusters()
    data.edge_index = torch.tensor([[0], [59]])
    for transform in (LearnGraph(num_neighbors=3), Compose([LearnGraph(num_neighbors=3)])):
        with pytest.warns(OneWayEdgesWarning) as caught:
            transform(data)
        assert caught[0].filename == __file__


def test_graphs_of_a_batch_are_not_joined() -> None:
    with pytest.raises(ValueError, match=r"a Batch of 2 graphs.*to each graph before batching"):
        LearnGraph()(Batch.from_data_list([clusters(), clusters()]))


@pytest.mark.parametrize("data", [torch.ones(3, 2), [clusters()], HeteroData()], ids=type)
def test_what_is_no_data_is_refused_by_name(data: object) -> None:
    with pytest.raises(TypeError, match=f"takes a Data, but it is a {type(data).__name__}"):
        LearnGraph()(data)


def test_given_self_loops_are_dropped() -> None:
    data = clusters()
    data.edge_index, data.edge_weight = torch.tensor([[0, 59], [59, 0]]), torch.tensor([0.5, 0.5])
    expected = LearnGraph(num_neighbors=3)(data)
    data.edge_index, data.edge_weight = torch.tensor([[0, 7, 59], [59, 7, 0]]), torch.ones(3) / 2
    found = LearnGraph(num_neighbors=3)(data)
    assert torch.equal(found.edge_index, expected.edge_index)
    assert torch.equal(found.edge_weight, expected.edge_weight)


def test_labels_that_nothing_predicts_leave_the_euclidean_graph(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = clusters(num_noise=30)
    data.x[:, 0] = torch.randn(60, generator=torch.Generator().manual_seed(1))
    with caplog.at_level(logging.INFO, "jlgcn"):
        found = LearnGraph(num_neighbors=3)(data)
    fixed = LearnGraph(num_neighbors=3, metric_weight=0)(data)
    assert "no better than chance" in caplog.text
    assert torch.equal(found.edge_index, fixed.edge_index)


def test_it_stands_in_a_compose_and_before_a_loader_and_a_layer() -> None:
    data = Compose([NormalizeFeatures(), LearnGraph(num_neighbors=3)])(clusters(num_noise=3))
    loader = RandomNodeLoader(data, num_parts=3)
    for batch in loader:
        out = GCNConv(4, 2)(batch.x, batch.edge_index, batch.edge_weight)
        assert out.shape == (batch.num_nodes, 2)


def test_sparse_features_have_the_graph_of_dense_ones() -> None:
    data = clusters(num_noise=120)
    data.x = (data.x > 1).float()
    dense = LearnGraph(num_neighbors=3, scaler="words")(data)
    data.x = scipy.sparse.csr_array(data.x.numpy().astype(np.float32))
    assert torch.equal(LearnGraph(num_neighbors=3)(data).edge_index, dense.edge_index)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, "needs features, but data.x is NoneType"),
        ({"y": None}, "data.y is NoneType"),
        ({"x": torch.full((60, 2), torch.nan)}, r"data.x must be .*; impute or drop such rows$"),
        ({"y": torch.zeros(60, 1).long()}, r"call y.squeeze\(1\)"),
        ({"y": torch.zeros(60, 2).long()}, r"if it is one-hot, call y.argmax\(1\)"),
        ({"train_mask": torch.ones(60, 2, dtype=torch.bool)}, "pass one column"),
        ({"train_mask": torch.ones(50, dtype=torch.bool)}, "give it an entry for each node"),
        ({"train_mask": torch.ones(60)}, r"call data.train_mask.bool\(\)"),
        ({"train_mask": torch.arange(6)}, r"index_to_mask\(train_mask, 60\)"),
        ({"train_mask": torch.zeros(60, dtype=torch.bool)}, "but it is False everywhere"),
    ],
)
def test_what_is_missing_is_named(change: dict[str, torch.Tensor], message: str) -> None:
    data = clusters()
    for name, value in change.items():
        setattr(data, name, value)
    with pytest.raises(ValueError, match=message):
        LearnGraph()(data)


def test_an_unknown_scaler_is_refused() -> None:
    with pytest.raises(ValueError, match="scaler must be one of"):
        LearnGraph(scaler="tfidf")  # type: ignore[arg-type]


def test_a_number_of_neighbors_out_of_range_is_named_as_it_was_passed() -> None:
    with pytest.raises(ValueError, match=r"^num_neighbors must be at least 1, but it is 0"):
        LearnGraph(num_neighbors=0)
