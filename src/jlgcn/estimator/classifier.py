"""The scikit-learn estimator: semi-supervised classification with a learned graph."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from jlgcn._saved import damaged, read_model, write_model
from jlgcn.closed_form import (
    ClosedFormModel,
    ClosedFormOptions,
    FeatureScaler,
    NodeExplanation,
)
from jlgcn.closed_form.scaling import Kind
from jlgcn.errors import OneClassWarning
from jlgcn.estimator.audit import Audit, audit
from jlgcn.estimator.class_weights import from_plain
from jlgcn.estimator.document import SCHEMA, TableNames
from jlgcn.estimator.encoding import encode, feature_names, num_columns_of
from jlgcn.estimator.labelling import label_folds, updated, with_unknown
from jlgcn.estimator.labels import Labels, read_labels, read_sample_weight, split_labels
from jlgcn.estimator.network_options import NetworkOptions, Solver
from jlgcn.estimator.saved import restore, to_document
from jlgcn.estimator.solvers import FittedModel, fit_model, names_of_features, resolve_layer
from jlgcn.estimator.table_encoder import TableEncoder
from jlgcn.estimator.validation import (
    as_device,
    as_features,
    as_sparse,
    check_scaled,
    probabilities,
    scaled_like_fit,
    validated,
    warn_of_equal_rows,
)
from jlgcn.graphs import EdgeExplanation, EdgeList, SparseGraph, top_edges
from jlgcn.graphs.convert import as_cross_edges

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, repr=False, eq=False)
class JLGCNClassifier(
    ClassifierMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    ClosedFormOptions,
    NetworkOptions,
):
    r"""Semi-supervised classifier of table rows that learns the graph which joins them.

    With ``solver="closed_form"``, a scikit-learn estimator of
    :func:`jlgcn.closed_form.fit_closed_form`. It learns in turn, by linear algebra, a classifier
    and a kNN graph with the kernel

    .. math:: a_{ij} = \exp(-\|f_i - f_j\|^2 / u - \|R^\top (f_i - f_j)\|^2)

    whose metric R stretches directions that separate the classes. A given graph is added; how far
    to trust its edges is selected by cross-validation. Deterministic.

    With ``solver="gradient"``, the network of `Tang et al. (2019)
    <https://arxiv.org/abs/1909.04931>`_, :class:`jlgcn.nn.JLGCN`, trained by Adam
    (:func:`jlgcn.training.fit_nodes`); held-out labels select the epoch. Both solvers have a
    Gaussian kernel under a low-rank Mahalanobis metric, added to the given graph (A_0 + A*). The
    closed form has no weight matrices W_l, no non-linearity, no graph Laplacian regularizer and no
    joint loss: features are diffused by personalized PageRank and classified by multinomial
    logistic regression, and the metric is self-trained on the predicted classes. Its scores are
    averaged with those of logistic regression on own features, on means over given neighbours and
    on a Nyström RBF kernel, weighted by held-out log-loss, so that a graph that does not help
    counts little. :attr:`evidence_` says in a line what was found.

    Hyperparameters of the closed form are those of :class:`jlgcn.closed_form.ClosedFormOptions`.
    `n_neighbors`, `learned_degree`, `given_decay`, `restart` and `metric_weight` are selected by
    cross-validated log-loss where they are None. The network reads `n_neighbors` (None is 16) and
    the parameters below from `preset` on. A parameter that belongs to the other solver
    has no effect.

    Args:
        solver ({"closed_form", "gradient"}, default "closed_form"): how to learn, see above.
        scaler ({"auto", "words", "table", "embeddings", "none"}, default "auto"): feature scaling.
            "words" is a tf-idf for counts of words, "table" standardises columns of different
            units, "embeddings" and "none" leave features as they are. "auto" tells the first three
            apart, see :meth:`jlgcn.closed_form.FeatureScaler.fit`; `scaler_` says which it chose.
        class_weight (dict, "balanced" or None, default None): weights of the labels of each class
            in training, and in the validation of solver="gradient". "balanced" is inverse to the
            number of labels.
        class_prior (dict, array or None, default None): share of each class among all rows, if it
            is known and differs from that among the labels, as with equally many labels of unequal
            classes. Probabilities of the closed form are shifted to it.
        device (str, default "cpu"): PyTorch device of the computation, such as "cuda:1". It needs
            float64. Inputs and results are arrays on the CPU whatever the device.
        verbose (bool, default False): log selected hyperparameters and losses; on a terminal, show
            the progress of training.
        preset (str, default "authors"): "authors" and "paper" are two readings of the paper's
            network, whose random metric is scaled to the features. "decoupled" is
            :class:`jlgcn.nn.DecoupledJLGCN`, which starts at the kNN graph of the features;
            `network_layers` and `backend` have no effect there.
        hidden_channels (int ≥ 1 or None, default None): features between layers; None is 16, of
            "decoupled" 64.
        network_layers (int ≥ 1, default 2): layers of the network, each of which learns a graph.
        dropout (float in [0, 1), default 0.5): dropout probability of the input of every layer.
        backend ("auto", "exact", "knn" or "dense", default "auto"): representation of learned
            graphs. "auto" is exact to 5,000 rows on a CPU (to 512 rows dense, which is the same
            and faster), and kNN above.
        max_iter (int ≥ 1, default 200): epochs of training, each on all rows.
        learning_rate (float > 0 or None, default None): initial learning rate, halved after each
            fifth of the epochs; None is 0.1. Of "decoupled" it is constant, and None is 0.01.
        validation_fraction (float in (0, 1), default 0.2): share of the labels of each class, at
            least one of two, that training does not see and that select the epoch.
        random_state (int or None, default 0): seed of the network; the same seed gives the same
            network on the same machine. None draws a seed from NumPy's generator.

    Attributes:
        classes_: classes, (n_classes,).
        transduction_: predicted class of every row of `fit`, labelled or not, (n_samples,).
        label_distributions_: its class probabilities, (n_samples, n_classes); of the closed form
            calibrated by temperature scaling on held-out labels.
        novelty_: score of every row of `fit`, high where its class may have no label.
        evidence_: what held-out labels say about the graph, in a line; of the network, "".
        history_: held-out log-loss of each layer; of the network, training loss, validation
            loss and accuracy of each epoch.
        n_iter_: number of entries of `history_`: layers, or epochs.
        best_params_: selected hyperparameters, by name; of the network, the epoch.
        model_: the fitted :class:`jlgcn.closed_form.ClosedFormModel`, or the network (in
            `model_.network`) with its rows.
        scaler_: the fitted :class:`jlgcn.closed_form.FeatureScaler`; `scaler_.kind` is the kind of
            features it was chosen for.
        encoder_: what was learned to encode a data frame of mixed columns, or texts; its `notes_`
            say which columns were dropped or are odd, and ``get_feature_names_out()`` names the
            encoded features. None if X was of numbers.
        n_features_in_: number of columns of X.
        feature_names_in_: their names, if X was a data frame.
        table_: names of the table's rows and columns, if ``jlgcn fit`` read one; else None.

    Cost: see :func:`jlgcn.closed_form.fit_closed_form`; float64 features take twice the memory of
    float32. The network takes `max_iter` epochs in float32: an exact one is quadratic in the rows,
    a kNN one a search for neighbours; its `predict` is a forward pass over all rows of `fit`.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> few = y.copy()
        >>> few[5:] = -1
        >>> few[[60, 70, 80, 140, 150, 160]] = y[[60, 70, 80, 140, 150, 160]]
        >>> model = JLGCNClassifier().fit(X, few)
        >>> bool((model.transduction_ == y).mean() > 0.9)
        True
        >>> network = JLGCNClassifier(solver="gradient", max_iter=50).fit(X, few)
        >>> network.model_.network.num_layers
        2
    """

    solver: Solver = "closed_form"
    scaler: Kind = "auto"
    class_weight: Any = None
    class_prior: Any = None
    device: str = "cpu"
    verbose: bool = False

    def fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        graph: Any = None,  # noqa: ANN401
        *,
        sample_weight: ArrayLike | None = None,
        validation: ArrayLike | None = None,
    ) -> Self:
        """Fit to the features of all rows and the labels of some (transductive).

        Args:
            X: features, (n_samples, n_features): an array, a data frame or a sparse matrix. Columns
                of a data frame may be categories, text, dates and booleans, and have gaps (extra
                ``table``): `encoder_` makes numbers of them. Texts, (n_samples,): counts of words.
            y: classes, (n_samples,): numbers or text, in an array, a list or a column of a data
                frame. An unlabelled row has -1, NaN, None, NA or NaT; as text, "" or "-1".
            graph: known edges among the rows: an edge list (2, E), a matrix, or any other format of
                :func:`jlgcn.as_graph`; None for none.
            sample_weight: number of labels that the label of each row counts as, (n_samples,); an
                unlabelled row's is not read, and 0 makes a row unlabelled. Integers equal repeated
                labels in the classifiers, in held-out losses and in calibration; the graph has one
                node a row. Closed form only. None for 1.
            validation: labelled rows, as numbers or a mask, whose labels select hyperparameters of
                the closed form and calibrate it, and are not learned from; None for
                cross-validation. Worth it with hundreds of labels.
        """
        # A fit that fails leaves no model, rather than the old one with new classes or scales.
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        device = as_device(self.device)
        labels = read_labels(y)
        x, encoder, scaler = encode(X, self.scaler)
        features = validated(self, x, [np.float64, np.float32], labels.values)
        self.encoder_: Any = encoder
        if encoder is not None:
            self.n_features_in_ = num_columns_of(encoder)
        if isinstance(encoder, TableEncoder):
            self.feature_names_in_ = encoder.feature_names_in_
        count = read_sample_weight(sample_weight, labels)
        if count is not None:
            labels = Labels(labels.values, labels.is_known & (count > 0))
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
        self.scaler_ = FeatureScaler.fit(x, scaler)
        scaled = self.scaler_(x)
        check_scaled(scaled, x)
        warn_of_equal_rows(x, scaled)
        given = as_sparse(graph, features.shape[0], x.dtype)
        train, val = split_labels(labels.is_known, validation)
        self.model_: Any = fit_model(
            self.get_params(),
            scaled,
            torch.from_numpy(classes).to(device),
            None if given is None else given.to(device=device),
            torch.from_numpy(train).to(device),
            classes=self.classes_,
            val=None if val is None else torch.from_numpy(val).to(device),
            count=None if count is None else torch.from_numpy(count).to(device),
            progress=self.verbose,
        )
        self.table_: TableNames | None = None
        self._describe()
        if self.verbose:
            logger.info("scaled features by %r", self.scaler_)
            logger.info("selected %s; losses %s", self.best_params_, self.history_)
            logger.info("%s", self.evidence_)
        return self

    def fit_predict(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        graph: Any = None,  # noqa: ANN401
        *,
        sample_weight: ArrayLike | None = None,
        validation: ArrayLike | None = None,
    ) -> NDArray[Any]:
        """Fit, and return the predicted class of every row (transductive): `transduction_`.

        Arguments as in :meth:`fit`.
        """
        self.fit(X, y, graph, sample_weight=sample_weight, validation=validation)
        predicted: NDArray[Any] = self.transduction_
        return predicted

    @property
    def novelty_(self) -> NDArray[np.float64]:
        """Score of every row of `fit`, high where its class may have no label, (n_samples,).

        Probabilities are of the classes that have labels, and may be sure of a row that belongs to
        none of them. This score says how rarely a random walk from the row ends at a label of its
        predicted class, see :func:`jlgcn.closed_form.novelty.novelty`: high
        in a cluster without labels, negative near labels. Closed form only.
        """
        model = self._fitted
        if not isinstance(model, ClosedFormModel):
            raise AttributeError(
                'novelty_ is of the closed form, but the model was fitted with solver="gradient"; '
                'fit with solver="closed_form"'
            )
        scores: NDArray[np.float64] = model.novelty.cpu().numpy()
        return scores

    def _describe(self) -> None:
        """Set the public attributes that follow from the fitted model."""
        self.best_params_ = self._fitted.best_params
        self.history_ = self._fitted.history
        self.n_iter_ = len(self.history_)
        self.evidence_ = str(getattr(self._fitted, "evidence", ""))
        self.label_distributions_ = probabilities(self._fitted.logits)
        self.transduction_ = self.classes_[self.label_distributions_.argmax(-1)]

    def predict_proba(
        self,
        X: ArrayLike,  # noqa: N803
        graph: Any = None,  # noqa: ANN401
    ) -> NDArray[np.floating]:
        """Return class probabilities of new rows (inductive).

        Every new row is attached to the learned graph by itself, so its probabilities do not
        depend on the other new rows.

        Args:
            X: features of new rows, (n_new, n_features).
            graph: known edges from new rows to rows of `fit`, in the formats of `fit`: an edge list
                (2, E), new rows first, alone or in a pair with weights; a dense or sparse matrix,
                (n_new, n_samples); or an object with an `edge_index`. None for none.
        """
        check_is_fitted(self, "model_")
        x = scaled_like_fit(self, X, self.scaler_, self._fitted.x)
        edges = None
        if graph is not None:
            index, weight = as_cross_edges(graph, x.shape[0], len(self.transduction_))
            edges = index.to(x.device), weight.to(x.device)
        return probabilities(self._fitted.predict(x, edges))

    def predict(
        self,
        X: ArrayLike,  # noqa: N803
        graph: Any = None,  # noqa: ANN401
        *,
        reject: float | None = None,
    ) -> NDArray[Any]:
        """Return the classes of new rows, or that a row's is unknown.

        For the rows of `fit` itself, :attr:`transduction_` has the transductive prediction.

        Args:
            X: features of new rows, (n_new, n_features).
            graph: known edges from new rows to rows of `fit`, as in :meth:`predict_proba`.
            reject (float in [0, 1) or None, default None): largest accepted probability of an
                error (Chow's rule). A row whose most probable class has less than ``1 - reject``
                is unknown: -1 among numbers, None among text and booleans. None accepts all.
        """
        probability = self.predict_proba(X, graph)
        return with_unknown(self.classes_, probability, reject)

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:  # noqa: N803
        """Return coordinates of rows under the learned metric, for UMAP, HDBSCAN or FAISS.

        Euclidean distances of the coordinates are the learned ones: of the closed form, principal
        components and a direction for each class, see
        :meth:`jlgcn.closed_form.ClosedFormModel.coordinates`; of the network, the directions of its
        first metric. New rows and rows of `fit` alike; the graph is not used.

        Args:
            X: features, (n_rows, n_features).

        Returns:
            A dense array, (n_rows, n_coordinates); ``set_output(transform="pandas")`` makes it a
            data frame.
        """
        check_is_fitted(self, "model_")
        x = scaled_like_fit(self, X, self.scaler_, self._fitted.x)
        found: NDArray[np.floating] = self._fitted.coordinates(x).cpu().numpy()
        return found

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Return names of the coordinates of :meth:`transform`.

        "component0", … for principal components, and "metric" with the class, or the number, for
        directions of the metric.

        Args:
            input_features: ignored.
        """
        check_is_fitted(self, "model_")
        first = self._fitted.features_of(torch.zeros_like(self._fitted.train[:1]), 0)
        count = self._fitted.coordinates(first).shape[1]
        directions = list(self.classes_) if self.solver == "closed_form" else range(count)
        components = [f"component{k}" for k in range(count - len(directions))]
        return np.array([*components, *(f"metric_{name}" for name in directions)], dtype=object)

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

        `cross_val_score` and `GridSearchCV` call this. Their own splitters put unlabelled rows into
        test parts, too, where named scorers such as ``scoring="accuracy"`` count them as mistakes:
        pass ``cv=JLGCNClassifier.label_folds(y)``.
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
        return float(np.average(labels.values[known] == predicted[known], weights=weight))

    @staticmethod
    def label_folds(
        y: ArrayLike, n_splits: int = 5, *, random_state: int | None = 0
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return folds for cross-validation that keep unlabelled rows in every training part.

        For `cv` of `cross_val_score`, `GridSearchCV` and all that takes pairs of training and test
        rows. Test parts are stratified folds of the labelled rows. A fold's model does not
        see their features, and predicts them as new rows; :func:`jlgcn.compare` keeps all rows in
        the graph, and hides labels alone.

        Args:
            y: classes and unlabelled rows, as in :meth:`fit`.
            n_splits (int ≥ 2, default 5): number of folds, at most that of labelled rows.
            random_state (int or None, default 0): seed of the shuffle; None draws one.

        Example:
            >>> from sklearn.datasets import load_wine
            >>> from sklearn.model_selection import cross_val_score
            >>> X, y = load_wine(return_X_y=True)
            >>> y[::2] = -1
            >>> folds = JLGCNClassifier.label_folds(y)
            >>> bool(cross_val_score(JLGCNClassifier(), X, y, cv=folds).mean() > 0.9)
            True
        """
        return label_folds(y, n_splits, random_state)

    def learned_graph(self, layer: int | None = None) -> SparseGraph:
        """Return the learned graph of a layer, without given edges, on the CPU.

        Args:
            layer (int or None, default None): layer, from 0; -1 is the last. None is the last one
                whose metric is of the table's columns: the last of the closed form, the first of
                the network, whose other layers see hidden features. Of a network, the heaviest
                edges: those of each row to its `n_neighbors` nearest.
        """
        number = resolve_layer(self._fitted, layer)
        graph: SparseGraph = self._fitted.learned_graph(number).to(device="cpu")
        return graph

    def edges(
        self,
        layer: int | None = None,
        *,
        top_k: int | None = None,
        threshold: float | None = None,
    ) -> EdgeList:
        """Return learned edges, the heaviest first; see :func:`jlgcn.graphs.top_edges`.

        `layer` is as in :meth:`learned_graph`.
        """
        return top_edges(self.learned_graph(layer), top_k=top_k, threshold=threshold)

    def explain_edge(self, i: int, j: int, layer: int | None = None) -> EdgeExplanation:
        """Return the learned squared distance of two rows of `fit`, by direction and by feature.

        Directions of the closed form: the Euclidean distance, then one for each of
        :attr:`classes_`, see :meth:`jlgcn.closed_form.ClosedFormModel.explain_edge`. Of the
        network: those of the metric, see :meth:`jlgcn.nn.GraphLearner.explain_edge`; after its
        first layer, features are hidden ones. `layer` is as in :meth:`learned_graph`.
        """
        number = resolve_layer(self._fitted, layer)
        rows = [self._number(row) for row in (i, j)]
        index = torch.tensor(rows, device=self._fitted.logits.device)
        first, second = self._fitted.features_of(index, number)
        return self._fitted.explain_edge(first, second, number)

    def explain_node(self, i: int) -> NodeExplanation:
        """Return the contributions of own features and of each edge to a prediction of `fit`.

        Scores are in the order of :attr:`classes_`. See
        :meth:`jlgcn.closed_form.ClosedFormModel.explain_node`. A network has no exact attribution:
        ``solver="gradient"`` raises ValueError.
        """
        return self._fitted.explain_node(self._number(i))

    def audit(
        self,
        ids: Sequence[Any] | None = None,
        *,
        num_missing: int | None = None,
    ) -> Audit:
        """Return which given edges look wrong, and which missing ones look likely.

        A logistic regression on learned distance, PageRank similarity and common neighbours tells
        given edges from random pairs; an edge is scored with itself taken out of the graph. See
        :func:`jlgcn.closed_form.audit.audit_graph`.

        Args:
            ids: names of the rows; None for those of the table that ``jlgcn fit`` read, or else
                their numbers.
            num_missing (int ≥ 0 or None, default None): number of missing edges; None for as many
                as there are given edges.

        Example:
            >>> rng = np.random.default_rng(0)
            >>> X = np.concatenate([rng.normal(size=(30, 3)), rng.normal(size=(30, 3)) + 4])
            >>> y = np.full(60, -1)
            >>> y[[0, 1, 30, 31]] = 0, 0, 1, 1
            >>> edges = [[i, (i + step) % 30] for i in range(30) for step in (1, 2, 3)]
            >>> edges += [[i + 30, j + 30] for i, j in edges] + [[5, 45]]
            >>> edges += [[j, i] for i, j in edges]
            >>> model = JLGCNClassifier().fit(X, y, np.transpose(edges))
            >>> found = model.audit().suspicious
            >>> found.source[0].item(), found.target[0].item()
            (5, 45)
        """
        table = getattr(self, "table_", None)
        ids = table.ids if ids is None and table is not None else ids
        return audit(self._fitted, ids, num_missing)

    def cleaned_graph(
        self,
        *,
        num_removed: int | None = None,
        num_added: int | None = None,
    ) -> EdgeList:
        """Return the given graph without suspicious edges and with missing ones, by row number.

        :func:`jlgcn.io.to_scipy`, :func:`jlgcn.io.to_pyg` and :func:`jlgcn.io.to_networkx` convert
        it. An :class:`Audit` at hand gives the same by ``audit.cleaned()``, without another search.

        Args:
            num_removed (int ≥ 0 or None, default None): most suspicious edges to leave out; None
                for the estimated number of wrong ones.
            num_added (int ≥ 0 or None, default None): likeliest missing edges to add; None for as
                many as are left out.
        """
        found = audit(self._fitted, None, num_added)
        return found.cleaned(num_removed, num_added)

    def held_out_labels(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.floating]]:
        """Return rows, their labels and out-of-fold probabilities, in the form cleanlab takes.

        Each label is predicted by classifiers, a metric and a graph that were learned without it;
        hyperparameters, weights of the classifiers and the temperature were selected with it.
        ``cleanlab.filter.find_label_issues(labels, probabilities)`` finds doubtful labels. Closed
        form only.

        Returns:
            Rows of `fit`, (M,); their labels as indices into :attr:`classes_`, (M,); probabilities,
            (M, n_classes). Labels that no fit held out, and those of `validation`, are not there.
        """
        evidence = getattr(self._fitted, "evidence", None)
        if evidence is None:
            raise ValueError(
                "out-of-fold probabilities are of the closed form, but the model was fitted with "
                'solver="gradient"; fit with solver="closed_form"'
            )
        train, labels = self._fitted.train, self._fitted.labels
        is_held_out = evidence.is_held_out[: len(train)]
        found = evidence.held_out[: len(train)][is_held_out]
        rows, codes = (part[is_held_out].cpu().numpy() for part in (train, labels))
        return rows, codes, probabilities(found)

    def suggest_labels(self, n: int = 10) -> NDArray[np.int64]:
        """Return the n rows of `fit` to label next (active learning), the most informative first.

        Sequential V-optimal design on the classifier's inputs, see
        :meth:`jlgcn.closed_form.ClosedFormModel.suggest_labels`; of the network, on the input of
        its last layer. Rows of `validation` may be among them: their labels were not kept.
        """
        rows: NDArray[np.int64] = self._fitted.suggest_labels(n).cpu().numpy()
        return rows

    def update(self, labels: Mapping[int, Any], *, relearn: bool = False) -> Self:
        """Learn from more labels of the rows of `fit`, without another fit.

        The classifiers are fitted again on the kept diffusion: metric, graph and hyperparameters
        stay, which takes below a second for a hundred labels of 18,821 rows. `suggest_labels` names
        rows worth labelling next. Labels of `validation` were not kept; those given here are
        cross-validated.

        Args:
            labels (dict): class by row number, of new labels and of old ones that were wrong; None
                or -1 takes a label away. Classes may be new.
            relearn (bool, default False): learn hyperparameters, metric and graph again, too: a
                `fit` with all labels. A network needs it.

        Example:
            >>> from sklearn.datasets import load_wine
            >>> X, y = load_wine(return_X_y=True)
            >>> few = np.full(len(y), -1)
            >>> few[[0, 1, 60, 61, 140, 141]] = y[[0, 1, 60, 61, 140, 141]]
            >>> model = JLGCNClassifier().fit(X, few)
            >>> asked = model.suggest_labels(6)
            >>> model = model.update({int(row): y[row] for row in asked})
            >>> len(model.model_.train)
            12
        """
        self.classes_, self.model_ = updated(
            self._fitted, self.classes_, labels, self.get_params(), relearn=relearn
        )
        self._describe()
        return self

    def important_features(self, layer: int | None = None) -> list[tuple[str, float]]:
        """Return each feature's mean contribution to the learned squared distance, largest first.

        Means over all pairs of rows of ‖Rᵀ(f_i - f_j)‖², without the Euclidean part of the closed
        form's distance, which says nothing of the classes; of a layer without a metric, that part.
        `layer` is as in :meth:`learned_graph`; after the first, features of a network are
        "hidden0", "hidden1", ….
        """
        number = resolve_layer(self._fitted, layer)
        importance = self._fitted.feature_importance(number).cpu()
        names = names_of_features(self._fitted, number, feature_names(self))
        order = importance.argsort(descending=True, stable=True).tolist()
        return [(str(names[k]), float(importance[k])) for k in order]

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator to a folder: tensors as safetensors, all else as JSON.

        The folder contains the features of all rows of `fit`, to which new rows are attached: it is
        as confidential as the data.
        """
        check_is_fitted(self, "model_")
        tensors, document = to_document(self)
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
        parameters = document["parameters"] | {"device": device}
        for name in ("class_weight", "class_prior"):
            parameters[name] = from_plain(parameters[name])
        estimator = cls(**parameters)
        try:
            restore(estimator, {name: t.to(to) for name, t in tensors.items()}, document)
            estimator._describe()
        except ValueError as error:
            raise damaged(path, str(error)) from None
        return estimator

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _fitted(self) -> FittedModel:
        check_is_fitted(self, "model_")
        model: FittedModel = self.model_
        return model

    def _number(self, row: int) -> int:
        last = len(self.transduction_) - 1
        if not 0 <= row <= last:
            raise ValueError(f"a row must be a number from 0 to {last}, but it is {row}")
        return int(row)
