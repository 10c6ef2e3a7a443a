"""How far a surrogate's error may move a posterior, by simulations that no network was trained on.

A bootstrap sees the noise of the data, not the error of the surrogate. The mean gradient of the loss over held-out
simulations near the posterior, which is zero for a surrogate without error, tells what it adds: to first order it moves
the posterior mean by beta n C g, with C the posterior covariance. The squared shift in units of C, per parameter, is
`ratio`: how much larger the variance has to be. There are only so many held-out simulations near a posterior, so that
the mean gradient has noise of its own: it is subtracted, and one standard deviation of what is left is added, so that
an error which cannot be told from noise is allowed for.
"""

import textwrap
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes.errors import InputError

_SHARE, _FEWEST = 0.1, 200  # of the held-out simulations that count as near, and how many at least
_MOST = 0.5  # of them, at most
_NARROWEST, _WIDEST = 0.1, 1e2  # width of what counts as near, in standard deviations of all of them
_BISECTIONS = 20
_NEGLIGIBLE = 1e-3  # weight of a simulation
_NOTABLE = 1.0  # ratio from which on a reader should know
UNCHECKED = (
    "Surrogate unchecked: no simulation that it was not trained on has been compared with it, and its error is in none "
    "of these numbers."
)


class SurrogateCheck(NamedTuple):
    """What held-out simulations say about the surrogate at a posterior."""

    ratio: float
    """What the surrogate's error, or what cannot be told from it, adds to the posterior's variance, relative to it."""
    seen: float
    """The squared shift that the mean gradient would cause, in posterior variances per parameter."""
    noise: float
    """What it would be for a surrogate without error, by the noise of so many simulations."""
    near: float
    """Effective number of held-out simulations near the posterior."""
    n: int
    """Observations of the posterior."""
    applied: bool = False
    """Whether the learning rate was lowered for it."""

    @property
    def worth(self) -> float:
        """The number of observations at which the surrogate's error is as large as the posterior's own width."""
        return self.n / self.ratio

    def for_more(self, n: int) -> "SurrogateCheck":
        """The same for n observations."""
        by = n / self.n
        return self._replace(ratio=by * self.ratio, seen=by * self.seen, noise=by * self.noise, n=n)

    @property
    def notable(self) -> bool:
        """Whether the error is as large as the posterior's own width, or larger."""
        return self.ratio >= _NOTABLE

    def as_numbers(self) -> Float[np.ndarray, " facts"]:
        """For files."""
        return np.array(self, dtype=float)

    @classmethod
    def from_numbers(cls, numbers: Float[np.ndarray, " facts"]) -> "SurrogateCheck":
        """What `as_numbers` was made from."""
        if len(numbers) != len(cls._fields) or (numbers < 0).any() or numbers[-2] < 1:
            raise InputError("The saved check of the surrogate has numbers that none can have: the file is damaged.")
        ratio, seen, noise, near, n, applied = numbers.tolist()
        return cls(ratio, seen, noise, near, int(n), bool(applied))

    def describe(self) -> str:
        """One sentence."""
        said = (
            f"Surrogate checked on about {self.near:,.0f} held-out simulations near the posterior: its error may be "
            f"{np.sqrt(self.ratio):.2g} times the posterior's width"
        )
        return said + (
            ", for which the learning rate was lowered." if self.applied else "; the learning rate is as given."
        )

    def wrapped(self) -> str:
        """The same in lines for the terminal."""
        return textwrap.fill(self.describe(), 110)


class SurrogateTest(NamedTuple):
    """Held-out simulations by their parameters and the gradients of their losses there; see `losses.held_out`."""

    theta: Float[np.ndarray, "m d_theta"]
    gradients: Float[np.ndarray, "m d_theta"]

    def check(
        self,
        mean: Float[np.ndarray, " d_theta"],
        covariance: Float[np.ndarray, "d_theta d_theta"],
        n: int,
        response: Float[np.ndarray, "d_theta d_theta"],
    ) -> SurrogateCheck:
        """What they say about a posterior of n observations, given by its mean and covariance.

        `response` g is how far the mean moves, to first order, if g is added to the gradient of the total loss; beta
        times the covariance, where all directions have the learning rate beta.
        """
        weights = self._near(mean, covariance)
        used = weights > _NEGLIGIBLE
        weights, gradients = weights[used] / weights[used].sum(), self.gradients[used]
        shifts = n * np.linalg.solve(np.linalg.cholesky(covariance), response @ gradients.T).T / np.sqrt(len(mean))
        seen, noise = float(((weights @ shifts) ** 2).sum()), float((weights**2) @ (shifts**2).sum(axis=1))
        ratio = max(seen - noise, 0.0) + float(np.sqrt(2 / len(mean))) * noise
        return SurrogateCheck(ratio, seen, noise, float(1 / (weights**2).sum()), n)

    def _near(self, mean: np.ndarray, covariance: np.ndarray) -> Float[np.ndarray, " m"]:
        """Weights of the simulations: a normal density around the posterior, wide enough to hold enough of them."""
        m = len(self.theta)
        wanted = min(max(_SHARE * m, _FEWEST), _MOST * m)
        # along axes on which covariance and spread are both diagonal, a distance is a sum of squares for every width
        scale = self.theta.std(axis=0)
        variances, axes = np.linalg.eigh(covariance / np.outer(scale, scale))
        squared = ((self.theta - mean) / scale @ axes) ** 2

        def weigh(width: float) -> np.ndarray:
            squares = squared @ (1 / (np.maximum(variances, 0) + width**2))
            return np.exp(-0.5 * (squares - squares.min()))

        low, high = _NARROWEST, _WIDEST
        for _ in range(_BISECTIONS):
            middle = np.sqrt(low * high)
            weights = weigh(middle)
            enough = weights.sum() ** 2 / (weights**2).sum() >= wanted
            low, high = (low, middle) if enough else (middle, high)
        return weigh(high)
