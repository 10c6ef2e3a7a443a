"""Effect of the surrogate's error on a posterior, estimated with held-out simulations.

The bootstrap measures the noise of the data, not the error of the surrogate. The mean gradient g of the loss over
held-out simulations near the posterior is zero for a surrogate without error. An error moves the posterior mean by
beta n C g to first order, with C the posterior covariance. `seen` is the squared shift in units of C, per parameter;
`noise` is its expected value for a surrogate without error, due to the finite number of simulations.

With enough simulations within a few standard deviations of the posterior, g is subtracted from the gradient of the
loss. This corrects the posterior, and `ratio`, the relative increase of its variance, is the remaining noise.
Otherwise g is a mean over a wider region, in which the error varies: it can give a warning, but no correction. Then
`ratio` is `seen` minus `noise`, plus one standard deviation of the noise, to allow for errors that are hidden by it.
"""

import textwrap
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.parallel import call_each
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.losses.corrected import Correction

_WITHIN = 3.0  # simulations are near enough for a correction within this many posterior standard deviations
_SHARE, _FEWEST, _ENOUGH = 0.1, 200, 2000  # number of near simulations: fraction of all, minimum, maximum
_MOST = 0.5  # maximum fraction of near simulations
_NARROWEST, _WIDEST = 0.1, 1e2  # width of the region without a correction, in standard deviations of all simulations
_BISECTIONS = 20
_NEGLIGIBLE = 1e-3  # simulations with a smaller weight are ignored
_STEPS = 3  # steps of a correction, each at the posterior mean of the previous step
_SHRUNK = 0.5  # corrections are shrunk by this fraction of the noise, as by James and Stein for four parameters
_SLIGHT = 0.04  # a smaller squared shift, in posterior variances per parameter, does not justify new draws
_LINEAR = 20.0  # posterior standard deviations within which a correction is approximately linear
_BEYOND = 1.5  # additional factor for errors larger than the posterior's width: see `wider`
_NOTABLE = 1.0  # a larger ratio causes a warning
_TOGETHER = 16  # posteriors that are checked at the same time
_FACTS = 6  # numbers of a check, without the correction
UNCHECKED = (
    "Surrogate unchecked: no simulation that it was not trained on has been compared with it, and its error is in none "
    "of these numbers."
)


class SurrogateCheck(NamedTuple):
    """Check of the surrogate near a posterior, on held-out simulations."""

    ratio: float
    """Relative increase of the posterior's variance due to the surrogate's error, including undetectable error."""
    seen: float
    """The squared shift that the mean gradient would cause, in posterior variances per parameter."""
    noise: float
    """Expected value of `seen` for a surrogate without error, due to the finite number of simulations."""
    near: float
    """Effective number of held-out simulations near the posterior."""
    n: int
    """Number of observations of the posterior."""
    applied: bool = False
    """Whether the learning rate was lowered to account for the error."""
    correction: Correction | None = None
    """Correction subtracted from the loss, per observation; None if the posterior is not corrected."""

    @property
    def corrected(self) -> bool:
        """Whether the loss was corrected for the estimated error of the surrogate."""
        return self.correction is not None

    @property
    def total(self) -> Correction | None:
        """The correction for all observations, or None."""
        return None if self.correction is None else self.correction.times(self.n)

    @property
    def wider(self) -> float:
        """Factor by which the variance of a sampled posterior is increased.

        An error larger than the posterior's width moves the posterior to a region where the loss has other curvatures
        than near the truth. The first-order increase is then too small. A correction is estimated at the posterior
        itself and needs no additional factor.
        """
        return 1 + self.ratio * (1 if self.corrected else 1 + _BEYOND * self.ratio / (1 + self.ratio))

    @property
    def worth(self) -> float:
        """The number of observations at which the surrogate's error equals the posterior's width."""
        return self.n / self.ratio

    def for_more(self, n: int) -> "SurrogateCheck":
        """Return the check scaled to n observations."""
        by = n / self.n
        return self._replace(ratio=by * self.ratio, seen=by * self.seen, noise=by * self.noise, n=n)

    @property
    def notable(self) -> bool:
        """Whether the error is at least as large as the posterior's width."""
        return self.ratio >= _NOTABLE

    def as_numbers(self) -> Float[np.ndarray, " facts"]:
        """Convert to an array, for files."""
        facts = np.array(self[:_FACTS], dtype=float)
        return facts if self.correction is None else np.concatenate([facts, self.correction.as_numbers()])

    @classmethod
    def from_numbers(cls, numbers: Float[np.ndarray, " facts"]) -> "SurrogateCheck":
        """Rebuild a check from the array of `as_numbers`."""
        facts, more = numbers[:_FACTS], numbers[_FACTS:]
        correction = Correction.from_numbers(more) if len(more) else None
        if len(facts) < _FACTS or (facts < 0).any() or facts[4] < 1 or (correction is None) != (len(more) == 0):
            raise InputError("The saved check of the surrogate has impossible values: the file is damaged.")
        ratio, seen, noise, near, n, applied = facts.tolist()
        return cls(ratio, seen, noise, near, int(n), bool(applied), correction)

    def describe(self) -> str:
        """Describe the check in one sentence."""
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
        """Wrap the sentence of `describe` into lines for the terminal."""
        return textwrap.fill(self.describe(), 110)


class _MeanGradient(NamedTuple):
    """Mean gradient of simulations near a posterior, with the shift that it would cause."""

    gradient: Float[np.ndarray, " d_theta"]
    seen: float
    noise: float
    near: float


class SurrogateTest(NamedTuple):
    """Parameters of held-out simulations, and gradients of the loss of each simulation there; see `losses.held_out`."""

    theta: Float[np.ndarray, "m d_theta"]
    gradients: Float[np.ndarray, "m d_theta"] | Callable[[Int[np.ndarray, " k"]], Float[np.ndarray, "k d_theta"]]
    """Gradients of all simulations, or a function that computes those of given rows."""
    trust: Float[np.ndarray, " m"] | None = None
    """Weights of the simulations relative to the mean weight of the observations; ignored ones need no correction."""

    def check(
        self,
        mean: Float[np.ndarray, " d_theta"],
        covariance: Float[np.ndarray, "d_theta d_theta"],
        n: int,
        response: Float[np.ndarray, "d_theta d_theta"],
    ) -> SurrogateCheck:
        """Check the surrogate at a posterior of n observations, given by its mean and covariance.

        `response` g is the first-order shift of the mean if g is added to the gradient of the total loss. It is beta
        times the covariance if all directions have the learning rate beta.
        """
        return self.check_many(mean[None], covariance[None], np.array([n]), response[None])[0]

    @double_precision
    def check_many(
        self,
        means: Float[np.ndarray, "k d_theta"],
        covariances: Float[np.ndarray, "k d_theta d_theta"],
        n: Int[np.ndarray, " k"],
        responses: Float[np.ndarray, "k d_theta d_theta"],
    ) -> list[SurrogateCheck]:
        """Check many posteriors with one compiled program; requires an array of gradients, and `trust` None."""
        assert not callable(self.gradients)
        assert self.trust is None
        scale, d = self.theta.std(axis=0), means.shape[1]
        variances, axes = np.linalg.eigh(covariances / np.outer(scale, scale))
        whitened = np.linalg.solve(np.linalg.cholesky(covariances), responses)
        own = (means / scale, np.maximum(variances, 0), axes, n[:, None, None] * whitened)
        shared = (self.theta / scale, self.gradients, np.asarray(self._wanted))
        full = 1 << (len(means) - 1).bit_length()  # padded, so that few sizes are compiled
        filled = [part[np.minimum(np.arange(full), len(means) - 1)] for part in own]
        [found] = call_each(_check_each, [tuple(filled)], *shared)
        seen, noise, near = (part.tolist()[: len(n)] for part in found)
        return [_judged(*each, d) for each in zip(seen, noise, near, n.tolist(), strict=True)]

    def correct(
        self,
        mean: Float[np.ndarray, " d_theta"],
        covariance: Float[np.ndarray, "d_theta d_theta"],
        n: int,
        response: Float[np.ndarray, "d_theta d_theta"],
    ) -> SurrogateCheck | None:
        """Check with a correction; None without enough simulations near the posterior before and after correction."""
        at, found, shrunk, g = mean, None, 0.0, np.zeros(len(mean))
        known = np.full(self.theta.shape, np.nan)
        for _ in range(_STEPS):
            weights = self._within(at, covariance)
            if weights is None:
                return None
            found = self._mean_gradient(weights, covariance, n, response, known)
            shrunk = max(0.0, 1 - _SHRUNK * found.noise / found.seen) if found.seen else 0.0
            g = shrunk * found.gradient
            at = mean + n * response @ g
        assert found is not None
        seen, noise, near = found.seen, found.noise, found.near
        if shrunk**2 * seen < _SLIGHT:
            return SurrogateCheck(max(seen, noise), seen, noise, near, n)
        reach = _LINEAR * float(np.sqrt(g @ covariance @ g))
        return SurrogateCheck(
            noise, seen, noise, near, n, correction=Correction(tuple(g.tolist()), tuple(at.tolist()), reach)
        )

    def _mean_gradient(
        self,
        weights: Float[np.ndarray, " m"],
        covariance: Float[np.ndarray, "d_theta d_theta"],
        n: int,
        response: Float[np.ndarray, "d_theta d_theta"],
        known: Float[np.ndarray, "m d_theta"] | None = None,
    ) -> _MeanGradient:
        """Mean gradient of weighted simulations; `known` caches computed gradients."""
        known = np.full(self.theta.shape, np.nan) if known is None else known
        used = weights > _NEGLIGIBLE
        missing = np.flatnonzero(used & np.isnan(known[:, 0]))
        if len(missing):
            known[missing] = self.gradients(missing) if callable(self.gradients) else self.gradients[missing]
        used &= np.isfinite(known).all(axis=1)
        weights = weights[used] / weights[used].sum()
        share = 1.0 if self.trust is None else min(1.0, 1 / float(weights @ self.trust[used]))
        shifts = n * share * np.linalg.solve(np.linalg.cholesky(covariance), response @ known[used].T).T
        seen, noise = float(((weights @ shifts) ** 2).mean()), float((weights**2) @ (shifts**2).mean(axis=1))
        return _MeanGradient(share * weights @ known[used], seen, noise, float(1 / (weights**2).sum()))

    def _within(
        self, mean: Float[np.ndarray, " d_theta"], covariance: Float[np.ndarray, "d_theta d_theta"]
    ) -> Float[np.ndarray, " m"] | None:
        """Weights of the simulations by a normal density of a few posterior widths; None if too few are near."""
        root = _WITHIN * np.linalg.cholesky(covariance)
        squares = (np.linalg.solve(root, (self.theta - mean).T) ** 2).sum(axis=0)
        weights = np.exp(-0.5 * squares)
        weights[weights <= _NEGLIGIBLE] = 0  # squares of smaller weights would underflow
        few = weights.sum() ** 2 < self._wanted * (weights**2).sum() or not weights.any()
        return None if few else weights

    @property
    def _wanted(self) -> float:
        """Required effective number of near simulations."""
        m = len(self.theta)
        return min(max(_SHARE * m, _FEWEST), _MOST * m, _ENOUGH)


def _judged(seen: float, noise: float, near: float, n: int, d: int) -> SurrogateCheck:
    ratio = max(seen - noise, 0.0) + float(np.sqrt(2 / d)) * noise
    return SurrogateCheck(ratio, seen, noise, near, n)


def _check_each(means, variances, axes, shifts, theta, gradients, wanted):
    """Squared shift, its noise, and number of near simulations, for each posterior.

    Simulations are weighted by a normal density around the posterior, wide enough to contain enough of them. Along axes
    on which covariance and spread are both diagonal, a distance is a sum of squares for every width.
    """

    def one(posterior: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array]:
        mean, variance, axes, shift = posterior
        squared = ((theta - mean) @ axes) ** 2

        def weigh(width):
            squares = squared @ (1 / (variance + width**2))
            return jnp.exp(-0.5 * (squares - squares.min()))

        def step(_, bounds):
            low, high = bounds
            middle = jnp.sqrt(low * high)
            weights = weigh(middle)
            enough = weights.sum() ** 2 / (weights**2).sum() >= wanted
            return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

        _, width = jax.lax.fori_loop(0, _BISECTIONS, step, (jnp.asarray(_NARROWEST), jnp.asarray(_WIDEST)))
        weights = weigh(width)
        weights = jnp.where(weights > _NEGLIGIBLE, weights, 0.0)
        weights /= weights.sum()
        each = gradients @ shift.T
        return ((weights @ each) ** 2).mean(), (weights**2) @ (each**2).mean(axis=1), 1 / (weights**2).sum()

    return jax.lax.map(one, (means, variances, axes, shifts), batch_size=_TOGETHER)
