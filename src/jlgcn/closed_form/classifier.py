"""The classifier of the closed form, a sum of linear functions of its inputs, and its evidence."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from jlgcn.closed_form.nystroem import Landmarks


@dataclass(frozen=True, eq=False)
class Classifier:
    r"""An average of classifiers, whose weights are folded into one sum.

    .. math:: z_i = h_i W + \sum_b [P^b X]_i V_b + k(f_i) U + b

    h are diffused features of unit norm, P is the mean over given neighbours
    (:class:`jlgcn.closed_form.local.Hops`), k the kernel values with landmarks.

    Attributes:
        graph: W, (n_components, C).
        blocks: V, (B, in_channels, C): B is 0 without linear classifiers, 1 without a given graph,
            else 3.
        landmarks: points of the kernel, of principal components; none without a kernel.
        kernel: U, (L, C).
        bias: b, (C,).
    """

    graph: Tensor
    blocks: Tensor
    landmarks: Landmarks
    kernel: Tensor
    bias: Tensor

    def own_scores(self, features: Tensor) -> Tensor | float:  # (N, C)
        """Return kernel scores of principal components, (N, D)."""
        return self.landmarks.scores(features, self.kernel) if len(self.kernel) else 0.0


@dataclass(frozen=True, eq=False)
class Evidence:
    """What held-out labels say about a fitted model.

    Attributes:
        weights: weight of each averaged classifier, by name; they sum to 1.
        losses: its held-out log-loss.
        without_graph: held-out log-loss of the average of the classifiers that see no graph, by how
            much the graph lowers it, and the standard error of that; None if nothing is compared.
        held_out: calibrated logits of each label in the fit that held it out, training labels
            before validation labels, (M, C).
        is_held_out: whether such a fit is there for a label, (M,), bool.
    """

    weights: dict[str, float]
    losses: dict[str, float]
    without_graph: tuple[float, float, float] | None
    held_out: Tensor
    is_held_out: Tensor

    def __str__(self) -> str:
        if self.without_graph is None:
            return ", ".join(f"{name} log-loss {loss:.2f}" for name, loss in self.losses.items())
        alone, gain, error = self.without_graph
        found = (
            f"held-out log-loss {alone:.2f} without the graph, {alone - gain:.2f} with it "
            f"(difference {-gain:+.2f} ± {error:.2f})"
        )
        if gain > error:
            return found
        if gain > -error:
            return f"{found}: these labels cannot tell whether the graph helps"
        return f"{found}: the classifiers without the graph count more"
