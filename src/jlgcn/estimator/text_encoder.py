"""Texts as counts of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from jlgcn.estimator.table_columns import Terms, vectorizer
from jlgcn.io.frames import MAX_LETTERS

# Terms of the vocabulary, the most frequent.
_MAX_TERMS = 100_000
# Texts from which on a term must be in two of them.
_MANY_TEXTS = 100
# Share of the texts that must have a word of the vocabulary, or else terms are runs of letters.
_MIN_SHARE = 0.5


class TextEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Counts the words of texts; :class:`jlgcn.closed_form.FeatureScaler` makes a tf-idf of counts.

    A word is a run of two or more letters and digits, in lower case; from 100 texts on, one that
    two texts have. Of texts without spaces between words, runs of 3 and 4 letters are counted.

    Attributes:
        cut_: "words" or "letters".
        terms_: the vocabulary, in the order of the features.

    Cost: linear in the letters.

    Example:
        >>> encoder = TextEncoder().fit(["a red fox", "a red red rose"])
        >>> encoder.get_feature_names_out().tolist()
        ['fox', 'red', 'rose']
        >>> encoder.transform(["red fox, red!"]).toarray().tolist()
        [[1.0, 2.0, 0.0]]
    """

    def fit(self, X: Sequence[str], y: object = None) -> Self:  # noqa: N803
        """Learn the vocabulary of some texts; `y` is not read."""
        texts = [text[:MAX_LETTERS] for text in X]
        least = 2 if len(texts) >= _MANY_TEXTS else 1
        self.cut_: Terms = "words"
        self.terms_: list[str] = []
        cuts: tuple[tuple[Terms, float], ...] = (("words", _MIN_SHARE), ("letters", 0.0))
        for cut, needed in cuts:
            counter = vectorizer(cut, None, min_df=least, max_features=_MAX_TERMS)
            try:
                counts = counter.fit_transform(texts)
            except ValueError:  # no term is frequent enough
                continue
            if np.mean(counts.getnnz(1) > 0) > needed:
                self.cut_, self.terms_ = cut, counter.get_feature_names_out().tolist()
                return self
        raise ValueError("X has no word that two texts share; pass texts, one a row")

    def transform(self, X: Sequence[str]) -> Any:  # noqa: ANN401, N803
        """Return counts of the vocabulary's terms, a sparse matrix (n_samples, n_terms)."""
        check_is_fitted(self, "terms_")
        counter = vectorizer(self.cut_, self.terms_)
        return counter.transform([text[:MAX_LETTERS] for text in X]).astype(np.float32)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Return the vocabulary."""
        return np.array(self.terms_, dtype=object)
