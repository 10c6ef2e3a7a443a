"""How far a surrogate's error moves a posterior, by simulations that no network was trained on.

A bootstrap sees the noise of the data, not the error of the surrogate. The mean gradient g of the loss over held-out
simulations near the posterior, which is zero for a surrogate without error, tells what it adds: to first order it moves
the posterior mean by beta n C g, with C the posterior covariance. The squared shift in units of C, per parameter, is
`seen`, and `noise` what it would be without error, by the noise of so many simulations.

Where there are enough simulations within a few standard deviations of the posterior, g is subtracted from the gradient
of the loss: the posterior is corrected, and `ratio`, how much larger its variance has to be, is what noise leaves.
Elsewhere g is a mean over a wider region, in which the error changes: it can warn, but not correct. Then `ratio` is
what was seen, less the noise, plus one standard deviation of it: what cannot be told from noise is allowed for.
"""

import textwrap
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from nsmbayes.errors import InputError

_WITHIN = 3.0  # posterior standard deviations: width of what is near enough to correct a posterior
_SHARE, _FEWEST, _ENOUGH = 0.1, 200, 2000  # of the held-out simulations that count as near; at least, and at most
_MOST = 0.5  # of them, at most
_NARROWEST, _WIDEST = 1e-3, 1e2  # how much wider, in standard deviations of all of them
_BISECTIONS = 30
_NEGLIGIBLE = 1e-3  # weight of a simulation
_STEPS = 3  # of a correction, each at the posterior mean of the one before
_SHRUNK = 0.5  # of the noise by which a correction is made smaller, as James and Stein's for four parameters
_NOTABLE = 1.0  # ratio from which on a reader should know
_FACTS = 6  # of a check, beside the correction
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
    correction: tuple[float, ...] = ()
    """What was subtracted from the gradient of the loss, per observation; empty, if the posterior is not corrected."""

    @property
    def corrected(self) -> bool:
        """Whether the surrogate's error, as far as it was seen, was subtracted."""
        return any(self.correction)

    @property
    def total(self) -> Float[np.ndarray, " d_theta"] | None:
        """The correction of all observations, if there is one."""
        return self.n * np.asarray(self.correction) if self.corrected else None

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
        return np.array([*self[:_FACTS], *self.correction], dtype=float)

    @classmethod
    def from_numbers(cls, numbers: Float[np.ndarray, " facts"]) -> "SurrogateCheck":
        """What `as_numbers` was made from."""
        if len(numbers) < _FACTS or (numbers[:_FACTS] < 0).any() or numbers[4] < 1:
            raise InputError("The saved check of the surrogate has numbers that none can have: the file is damaged.")
        ratio, seen, noise, near, n, applied, *correction = numbers.tolist()
        return cls(ratio, seen, noise, near, int(n), bool(applied), tuple(correction))

    def describe(self) -> str:
        """One sentence."""
        said = f"Surrogate checked on about {self.near:,.0f} held-out simulations near the posterior: "
        if self.corrected:
            said += f"corrected by them for an error of {np.sqrt(self.seen):.2g} times the posterior's width, of which "
            said += f"{np.sqrt(self.ratio):.2g} may be left"
        else:
            said += f"its error may be {np.sqrt(self.ratio):.2g} times the posterior's width"
        return said + (
            ", for which the learning rate was lowered." if self.applied else "; the learning rate is as given."
        )

    def wrapped(self) -> str:
        """The same in lines for the terminal."""
        return textwrap.fill(self.describe(), 110)


class _MeanGradient(NamedTuple):
    """Of simulations near a posterior, with the shift that it would cause."""

    gradient: Float[np.ndarray, " d_theta"]
    seen: float
    noise: float
    near: float
    within: bool
    """Whether they are near enough to correct the posterior."""


class SurrogateTest(NamedTuple):
    """Held-out simulations by their parameters and the gradients of their losses there; see `losses.held_out`."""

    theta: Float[np.ndarray, "m d_theta"]
    gradients: Float[np.ndarray, "m d_theta"] | Callable[[Int[np.ndarray, " k"]], Float[np.ndarray, "k d_theta"]]
    """Of all of them, or a function of the rows whose gradients are wanted."""
    trust: Float[np.ndarray, " m"] | None = None
    """Their weights relative to the mean weight of the observations. Given these, a posterior can be corrected."""

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
        known = np.full(self.theta.shape, np.nan)
        found = self._mean_gradient(mean, covariance, n, response, known)
        seen, noise = found.seen, found.noise
        ratio = max(seen - noise, 0.0) + float(np.sqrt(2 / len(mean))) * noise
        check, correction = SurrogateCheck(ratio, seen, noise, found.near, n), None
        for _ in range(0 if self.trust is None else _STEPS):
            if correction is not None:
                at = mean + n * response @ correction
                found = self._mean_gradient(at, covariance, n, response, known)
            if not found.within:
                return check
            correction = found.gradient * (max(0.0, 1 - _SHRUNK * found.noise / found.seen) if found.seen else 0.0)
        if correction is None:
            return check
        seen, noise, near = found.seen, found.noise, found.near
        return SurrogateCheck(noise, seen, noise, near, n, correction=tuple(correction.tolist()))

    def _mean_gradient(
        self,
        at: Float[np.ndarray, " d_theta"],
        covariance: Float[np.ndarray, "d_theta d_theta"],
        n: int,
        response: Float[np.ndarray, "d_theta d_theta"],
        known: Float[np.ndarray, "m d_theta"],
    ) -> _MeanGradient:
        """That of the simulations near `at`; `known` keeps gradients once they are computed."""
        weights, within = self._near(at, covariance)
        used = weights > _NEGLIGIBLE
        missing = np.flatnonzero(used & np.isnan(known[:, 0]))
        if len(missing):
            known[missing] = self.gradients(missing) if callable(self.gradients) else self.gradients[missing]
        used &= np.isfinite(known).all(axis=1)
        weights = weights[used] / weights[used].sum()
        share = 1.0 if self.trust is None else min(1.0, 1 / float(weights @ self.trust[used]))
        shifts = n * share * np.linalg.solve(np.linalg.cholesky(covariance), response @ known[used].T).T
        seen, noise = float(((weights @ shifts) ** 2).mean()), float((weights**2) @ (shifts**2).mean(axis=1))
        return _MeanGradient(share * weights @ known[used], seen, noise, float(1 / (weights**2).sum()), within)

    def _near(
        self, mean: Float[np.ndarray, " d_theta"], covariance: Float[np.ndarray, "d_theta d_theta"]
    ) -> tuple[Float[np.ndarray, " m"], bool]:
        """Weights of the simulations, a normal density around the posterior, and whether it is a narrow one.

        If a few posterior standard deviations do not hold enough of them, it is as wide as it has to be.
        """
        m = len(self.theta)
        wanted = min(max(_SHARE * m, _FEWEST), _MOST * m, _ENOUGH)
        # along axes on which covariance and spread are both diagonal, a distance is a sum of squares for every width
        scale = self.theta.std(axis=0)
        variances, axes = np.linalg.eigh(_WITHIN**2 * covariance / np.outer(scale, scale))
        squared = ((self.theta - mean) / scale @ axes) ** 2

        def weigh(width: float) -> tuple[np.ndarray, bool]:
            squares = squared @ (1 / (np.maximum(variances, 0) + width**2))
            weights = np.exp(-0.5 * (squares - squares.min()))
            return weights, bool(weights.sum() ** 2 / (weights**2).sum() >= wanted)

        low, high = _NARROWEST, _WIDEST
        weights, enough = weigh(low)
        if enough:
            return weights, True
        for _ in range(_BISECTIONS):
            middle = np.sqrt(low * high)
            low, high = (low, middle) if weigh(middle)[1] else (middle, high)
        return weigh(high)[0], False
