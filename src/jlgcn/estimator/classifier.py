"""The scikit-learn estimator: semi-supervised classification with a learned graph."""

from __future__ import annotations

import logging
import warnings
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from jlgcn._memory import check_memory
from jlgcn._saved import damaged, read_model, write_model
from jlgcn.closed_form import ClosedFormOptions, FeatureScaler, NodeExplanation, fit_closed_form
from jlgcn.closed_form.options import selected
from jlgcn.closed_form.scaling import Kind
from jlgcn.errors import OneClassWarning
from jlgcn.estimator.document import (
    SCHEMA,
    TableNames,
    classes_from_document,
    classes_to_document,
    model_from_tensors,
    model_to_tensors,
    plain,
)
from jlgcn.estimator.validation import (
    as_device,
    as_features,
    as_sparse,
    check_scaled,
    probabilities,
    read_labels,
    validated,
    warn_of_equal_rows,
)
from jlgcn.graphs import EdgeExplanation, EdgeList, SparseGraph, top_edges
from jlgcn.graphs.convert import as_cross_edges
from jlgcn.ops import SparseFeatures

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, repr=False, eq=False)
class JLGCNClassifier(ClassifierMixin, BaseEstimator, ClosedFormOptions):  # type: ignore[misc]
    r"""Semi-supervised classifier of table rows that learns the graph which joins them.

    A scikit-learn estimator of :func:`jlgcn.closed_form.fit_closed_form`. It learns in turn, by
    linear algebra, a classifier and a kNN graph with the kernel

    .. math:: a_{ij} = \exp(-\|f_i - f_j\|^2 / u - \|R^\top (f_i - f_j)\|^2)

    whose metric R stretches directions that separate the classes. A given graph is added; how far
    to trust its edges is selected by cross-validation. Deterministic.

    This is not the network of Tang et al. (2019), which :class:`jlgcn.nn.JLGCN` is. Both have a
    Gaussian kernel under a low-rank Mahalanobis metric, added to the given graph (A_0 + A*). Here
    there are no weight matrices W_l, no non-linearity, no graph Laplacian regularizer and no joint
    loss: features are diffused by personalized PageRank and classified by ridge (or Nyström kernel
    ridge) regression, and the metric is self-trained on the predicted classes.

    Hyperparameters are those of :class:`jlgcn.closed_form.ClosedFormOptions`. `n_neighbors`,
    `learned_degree`, `given_decay`, `restart`, `inputs` and `kernel_gamma` are selected by
    leave-one-out log-loss where they are None. In addition:

    Args:
        scaler ({"auto", "words", "table", "embeddings", "none"}, default "auto"): feature scaling.
            "words" is a tf-idf for counts of words, "table" standardises columns of different
            units, "embeddings" and "none" leave features as they are. "auto" tells the first three
            apart, see :meth:`jlgcn.closed_form.FeatureScaler.fit`; `scaler_` says which it chose.
        device (str, default "cpu"): PyTorch device of the computation, such as "cuda:1". It needs
            float64. Inputs and results are arrays on the CPU whatever the device.
        verbose (bool, default False): log selected hyperparameters and losses.

    Attributes:
        classes_: classes, (n_classes,).
        transduction_: predicted class of every row of `fit`, labelled or not, (n_samples,).
        label_distributions_: its class probabilities, (n_samples, n_classes), not calibrated.
        history_: leave-one-out log-loss of each layer.
        best_params_: selected hyperparameters, by name.
        model_: the fitted :class:`jlgcn.closed_form.ClosedFormModel`.
        scaler_: the fitted :class:`jlgcn.closed_form.FeatureScaler`; `scaler_.kind` is the kind of
            features it was chosen for.
        n_features_in_: number of features.
        feature_names_in_: their names, if X was a data frame.
        table_: names of the table's rows and columns, if ``jlgcn fit`` read one; else None.

    Cost: see :func:`jlgcn.closed_form.fit_closed_form`; float64 features take twice the memory of
    float32.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> few = y.copy()
        >>> few[5:] = -1
        >>> few[[60, 70, 80, 140, 150, 160]] = y[[60, 70, 80, 140, 150, 160]]
        >>> model = JLGCNClassifier().fit(X, few)
        >>> bool((model.transduction_ == y).mean() > 0.9)
        True
    """

    scaler: Kind = "auto"
    device: str = "cpu"
    verbose: bool = False

    def fit(self, X: ArrayLike, y: ArrayLike, graph: Any = None) -> Self:  # noqa: ANN401, N803
        """Fit to the features of all rows and the labels of some (transductive).

        Args:
            X: features, (n_samples, n_features): an array, a data frame or a sparse matrix.
            y: classes, (n_samples,): numbers or text, in an array, a list or a column of a data
                frame. An unlabelled row has -1, NaN, None, NA or NaT; as text, "" or "-1".
            graph: known edges among the rows: an edge list (2, E), a matrix, or any other format of
                :func:`jlgcn.as_graph`; None for none.
        """
        device = as_device(self.device)
        labels = read_labels(y)
        features = validated(self, X, [np.float64, np.float32], labels.values)
        if not labels.is_known.any():
            raise ValueError("y has no label; label at least one row of each class")
        self.classes_, codes = np.unique(labels.values[labels.is_known], return_inverse=True)
        if len(self.classes_) == 1:
            warnings.warn(
                f"all labels of y are of one class, {self.classes_[0]}, so there is nothing to "
                "learn; label rows of every class",
                OneClassWarning,
                stacklevel=2,
            )
        classes = np.full(len(labels.values), -1)
        classes[labels.is_known] = codes
        x = as_features(features).to(device)
        self.scaler_ = FeatureScaler.fit(x, self.scaler)
        scaled = self.scaler_(x)
        check_scaled(scaled, x)
        warn_of_equal_rows(x, scaled)
        given = as_sparse(graph, features.shape[0], x.dtype)
        self.model_ = fit_closed_form(
            scaled,
            torch.from_numpy(classes).to(device),
            None if given is None else given.to(device=device),
            train=torch.from_numpy(np.flatnonzero(labels.is_known)).to(device),
            options=self.closed_form_options(),
        )
        self.table_: TableNames | None = None
        self._describe()
        if self.verbose:
            logger.info("scaled features by %r", self.scaler_)
            logger.info("selected %s; loss by layer %s", self.best_params_, self.history_)
        return self

    def closed_form_options(self) -> ClosedFormOptions:
        """Return the hyperparameters of :func:`jlgcn.closed_form.fit_closed_form`."""
        names = [field.name for field in fields(ClosedFormOptions)]
        return ClosedFormOptions(**{name: getattr(self, name) for name in names})

    def _describe(self) -> None:
        """Set the public attributes that follow from the fitted model."""
        self.best_params_ = selected(self.model_.options)
        self.history_ = [{"loss": layer.loss} for layer in self.model_.layers]
        self.label_distributions_ = probabilities(self.model_.logits)
        self.transduction_ = self.classes_[self.label_distributions_.argmax(-1)]

    def predict_proba(
        self,
        X: ArrayLike,  # noqa: N803
        graph: Any = None,  # noqa: ANN401
    ) -> NDArray[np.floating]:
        """Return class probabilities of new rows (inductive), not calibrated.

        Every new row is attached to the learned graph by itself, so its probabilities do not
        depend on the other new rows.

        Args:
            X: features of new rows, (n_new, n_features).
            graph: known edges from new rows to rows of `fit`, in the formats of `fit`: an edge list
                (2, E), new rows first, alone or in a pair with weights; a dense or sparse matrix,
                (n_new, n_samples); or an object with an `edge_index`. None for none.
        """
        check_is_fitted(self, "model_")
        x = self._scaled(X)
        edges = None
        if graph is not None:
            index, weight = as_cross_edges(graph, x.shape[0], len(self.transduction_))
            edges = index.to(x.device), weight.to(x.device)
        return probabilities(self.model_.predict(x, edges))

    def predict(
        self,
        X: ArrayLike,  # noqa: N803
        graph: Any = None,  # noqa: ANN401
    ) -> NDArray[Any]:
        """Return the classes of new rows; arguments as in :meth:`predict_proba`.

        For the rows of `fit` itself, :attr:`transduction_` has the transductive prediction.
        """
        probability = self.predict_proba(X, graph)
        predicted: NDArray[Any] = self.classes_[probability.argmax(-1)]
        return predicted

    def score(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the accuracy of :meth:`predict` on labelled rows.

        Args:
            X: features of new rows, (n_new, n_features).
            y: their classes; unlabelled rows, as in :meth:`fit`, do not count.
            sample_weight: weights of the rows, (n_new,); None for 1.

        `cross_val_score` and `GridSearchCV` call this. Their default splitter for classifiers
        refuses NaN, None and NA: pass -1 or "" there, or ``cv=KFold(5, shuffle=True)``. Named
        scorers such as ``scoring="accuracy"`` count unlabelled rows as mistakes.
        """
        labels = read_labels(y, are_learned=False)
        predicted = self.predict(X)
        if len(predicted) != len(labels.values):
            raise ValueError(
                f"X has {len(predicted)} rows but y has {len(labels.values)}; pass a label, or -1, "
                "for each row"
            )
        if not labels.is_known.any():
            raise ValueError(
                "no row has a label, so there is nothing to score; in cross-validation, use fewer "
                "folds"
            )
        known = labels.is_known
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        score = accuracy_score(labels.values[known], predicted[known], sample_weight=weight)
        return float(score)

    def learned_graph(self, layer: int = -1) -> SparseGraph:
        """Return the learned graph of a layer, without given edges, on the CPU."""
        check_is_fitted(self, "model_")
        graph: SparseGraph = self.model_.layers[layer].learned.to(device="cpu")
        return graph

    def edges(
        self, layer: int = -1, *, top_k: int | None = None, threshold: float | None = None
    ) -> EdgeList:
        """Return learned edges, the heaviest first; see :func:`jlgcn.graphs.top_edges`."""
        return top_edges(self.learned_graph(layer), top_k=top_k, threshold=threshold)

    def explain_edge(self, i: int, j: int, layer: int = -1) -> EdgeExplanation:
        """Return the learned squared distance of two rows of `fit`, by direction and by feature.

        The first direction is the Euclidean distance; then comes one for each of :attr:`classes_`.
        See :meth:`jlgcn.closed_form.ClosedFormModel.explain_edge`.
        """
        check_is_fitted(self, "model_")
        rows = [self._number(row) for row in (i, j)]
        index = torch.tensor(rows, device=self.model_.diffused.device)
        first, second = self.model_.candidates.features_of(index)
        return self.model_.explain_edge(first, second, layer)

    def explain_node(self, i: int) -> NodeExplanation:
        """Return the contributions of own features and of each edge to a prediction of `fit`.

        Scores are in the order of :attr:`classes_`. See
        :meth:`jlgcn.closed_form.ClosedFormModel.explain_node`.
        """
        check_is_fitted(self, "model_")
        return self.model_.explain_node(self._number(i))

    def suggest_labels(self, n: int = 10) -> NDArray[np.int64]:
        """Return the n rows of `fit` to label next (active learning), the most informative first.

        See :meth:`jlgcn.closed_form.ClosedFormModel.suggest_labels`.
        """
        check_is_fitted(self, "model_")
        rows: NDArray[np.int64] = self.model_.suggest_labels(n).cpu().numpy()
        return rows

    def important_features(self, layer: int = -1) -> list[tuple[str, float]]:
        """Return each feature's mean contribution to the learned squared distance, largest first.

        Means over all pairs of rows; they sum to the mean squared distance.
        """
        check_is_fitted(self, "model_")
        importance = self.model_.feature_importance(layer).cpu()
        names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(len(importance))])
        order = importance.argsort(descending=True, stable=True).tolist()
        return [(str(names[k]), float(importance[k])) for k in order]

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator to a folder: tensors as safetensors, all else as JSON.

        The folder contains the features of all rows of `fit`, to which new rows are attached: it is
        as confidential as the data.
        """
        check_is_fitted(self, "model_")
        tensors, document = model_to_tensors(self.model_)
        tensors |= {"scaler/shift": self.scaler_.shift, "scaler/scale": self.scaler_.scale}
        names = getattr(self, "feature_names_in_", None)
        parameters = {name: plain(value) for name, value in self.get_params().items()}
        document |= {
            "estimator": type(self).__name__,
            "parameters": parameters | {"verbose": bool(self.verbose)},
            "classes": classes_to_document(self.classes_),
            "scaler": {name: getattr(self.scaler_, name) for name in ("kind", "is_count", "power")},
            "feature_names": None if names is None else names.tolist(),
            "table": None if self.table_ is None else asdict(self.table_),
        }
        write_model(Path(folder), tensors, document, SCHEMA)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """Return the estimator that :meth:`save` wrote; its files cannot run code.

        Args:
            folder: the folder that :meth:`save` wrote.
            device (str, default "cpu"): device to load it to, whatever it was fitted on.
        """
        path, to = Path(folder), as_device(device)
        tensors, document = read_model(path, SCHEMA)
        if document["estimator"] != cls.__name__:
            raise ValueError(
                f"{path} contains a {document['estimator']!r}; pass a folder of {cls.__name__}"
            )
        estimator = cls(**document["parameters"] | {"device": device})
        try:
            estimator._restore({name: t.to(to) for name, t in tensors.items()}, document)
        except ValueError as error:
            raise damaged(path, str(error)) from None
        return estimator

    def _restore(self, tensors: dict[str, Tensor], document: dict[str, Any]) -> None:
        model = model_from_tensors(tensors, document)
        num_rows, num_classes = model.logits.shape
        self.n_features_in_ = model.projection.shape[0]
        names, table = document["feature_names"], document["table"]
        self.table_ = None if table is None else TableNames(**table)
        counts = [("classes", num_classes, document["classes"]["values"])]
        counts += [] if names is None else [("features", self.n_features_in_, names)]
        if self.table_ is not None:
            counts += [("rows", num_rows, self.table_.ids)]
            counts += [("columns", self.n_features_in_, self.table_.feature_names)]
        for what, number, found in counts:
            if len(found) != number:
                raise ValueError(f"{number:,} {what} have {len(found):,} names")
        self.classes_ = classes_from_document(document["classes"], num_rows)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        shift, scale = tensors["scaler/shift"], tensors["scaler/scale"]
        self.scaler_ = FeatureScaler(shift=shift, scale=scale, **document["scaler"])
        self.model_ = model
        self._describe()

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _number(self, row: int) -> int:
        last = len(self.transduction_) - 1
        if not 0 <= row <= last:
            raise ValueError(f"a row must be a number from 0 to {last}, but it is {row}")
        return int(row)

    def _scaled(self, X: ArrayLike) -> Tensor | SparseFeatures:  # noqa: N803
        dtype = np.float64 if self.model_.logits.dtype == torch.float64 else np.float32
        features = validated(self, X, dtype)
        device = self.model_.diffused.device
        # Distances to rows of fit need the same format: both dense, or both sparse.
        must_be_sparse = isinstance(self.model_.candidates.x, SparseFeatures)
        if scipy.sparse.issparse(features) and not must_be_sparse:
            needed = features.shape[0] * features.shape[1] * features.dtype.itemsize
            check_memory(needed, device, "X with its zeros", "predicting some rows at a time")
            features = features.toarray()
        x = as_features(features).to(device)
        scaled = self.scaler_(x)
        check_scaled(scaled, x)
        if isinstance(scaled, Tensor) and must_be_sparse:
            scaled = SparseFeatures.from_dense(scaled)
        return scaled
