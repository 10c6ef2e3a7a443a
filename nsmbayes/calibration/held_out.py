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

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.parallel import call_each
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.losses.corrected import Correction

_WITHIN = 3.0  # posterior standard deviations: width of what is near enough to correct a posterior
_SHARE, _FEWEST, _ENOUGH = 0.1, 200, 2000  # of the held-out simulations that count as near; at least, and at most
_MOST = 0.5  # of them, at most
_NARROWEST, _WIDEST = 0.1, 1e2  # width of what counts as near otherwise, in standard deviations of all of them
_BISECTIONS = 20
_NEGLIGIBLE = 1e-3  # weight of a simulation
_STEPS = 3  # of a correction, each at the posterior mean of the one before
_SHRUNK = 0.5  # of the noise by which a correction is made smaller, as James and Stein's for four parameters
_SLIGHT = 0.04  # squared shift, in posterior variances per parameter, that is not worth drawing anew
_LINEAR = 20.0  # posterior standard deviations up to which a correction is about linear
_BEYOND = 1.5  # times as much is added for an error that is larger than the posterior's width: see `wider`
_NOTABLE = 1.0  # ratio from which on a reader should know
_TOGETHER = 16  # posteriors that are checked at once
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
    correction: Correction | None = None
    """What was subtracted from the loss, per observation; None if the posterior is not corrected."""

    @property
    def corrected(self) -> bool:
        """Whether the surrogate's error, as far as it was seen, was subtracted."""
        return self.correction is not None

    @property
    def total(self) -> Correction | None:
        """The correction of all observations, if there is one."""
        return None if self.correction is None else self.correction.times(self.n)

    @property
    def wider(self) -> float:
        """How much larger the variance of a posterior known by its draws is made.

        An error that is larger than the posterior's width moves it to where the loss has other curvatures than around
        the truth, and to first order too little is allowed for; a correction is made where the posterior is.
        """
        return 1 + self.ratio * (1 if self.corrected else 1 + _BEYOND * self.ratio / (1 + self.ratio))

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
        facts = np.array(self[:_FACTS], dtype=float)
        return facts if self.correction is None else np.concatenate([facts, self.correction.as_numbers()])

    @classmethod
    def from_numbers(cls, numbers: Float[np.ndarray, " facts"]) -> "SurrogateCheck":
        """What `as_numbers` was made from."""
        facts, more = numbers[:_FACTS], numbers[_FACTS:]
        correction = Correction.from_numbers(more) if len(more) else None
        if len(facts) < _FACTS or (facts < 0).any() or facts[4] < 1 or (correction is None) != (len(more) == 0):
            raise InputError("The saved check of the surrogate has numbers that none can have: the file is damaged.")
        ratio, seen, noise, near, n, applied = facts.tolist()
        return cls(ratio, seen, noise, near, int(n), bool(applied), correction)

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


class SurrogateTest(NamedTuple):
    """Held-out simulations by their parameters and the gradients of their losses there; see `losses.held_out`."""

    theta: Float[np.ndarray, "m d_theta"]
    gradients: Float[np.ndarray, "m d_theta"] | Callable[[Int[np.ndarray, " k"]], Float[np.ndarray, "k d_theta"]]
    """Of all of them, or a function of the rows whose gradients are wanted."""
    trust: Float[np.ndarray, " m"] | None = None
    """Their weights relative to the mean weight of the observations: those that are ignored need no correction."""

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
        return self.check_many(mean[None], covariance[None], np.array([n]), response[None])[0]

    @double_precision
    def check_many(
        self,
        means: Float[np.ndarray, "k d_theta"],
        covariances: Float[np.ndarray, "k d_theta d_theta"],
        n: Int[np.ndarray, " k"],
        responses: Float[np.ndarray, "k d_theta d_theta"],
    ) -> list[SurrogateCheck]:
        """The same for many posteriors, by one compiled program; gradients must be known, and trust not be asked."""
        assert not callable(self.gradients)
        assert self.trust is None
        scale, d = self.theta.std(axis=0), means.shape[1]
        variances, axes = np.linalg.eigh(covariances / np.outer(scale, scale))
        whitened = np.linalg.solve(np.linalg.cholesky(covariances), responses)
        own = (means / scale, np.maximum(variances, 0), axes, n[:, None, None] * whitened)
        shared = (self.theta / scale, self.gradients, np.asarray(self._wanted))
        full = 1 << (len(means) - 1).bit_length()  # so that few numbers of posteriors are compiled
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
        """The same with a correction; None without enough simulations near the posterior before and after it."""
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
        """That of weighted simulations; `known` keeps gradients once they are computed."""
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
        """Weights of the simulations, a normal density of a few posterior widths, if that holds enough of them."""
        root = _WITHIN * np.linalg.cholesky(covariance)
        squares = (np.linalg.solve(root, (self.theta - mean).T) ** 2).sum(axis=0)
        weights = np.exp(-0.5 * squares)
        weights[weights <= _NEGLIGIBLE] = 0  # squares of smaller ones would vanish one by one
        few = weights.sum() ** 2 < self._wanted * (weights**2).sum() or not weights.any()
        return None if few else weights

    @property
    def _wanted(self) -> float:
        """How many simulations should count as near."""
        m = len(self.theta)
        return min(max(_SHARE * m, _FEWEST), _MOST * m, _ENOUGH)


def _judged(seen: float, noise: float, near: float, n: int, d: int) -> SurrogateCheck:
    ratio = max(seen - noise, 0.0) + float(np.sqrt(2 / d)) * noise
    return SurrogateCheck(ratio, seen, noise, near, n)


def _check_each(means, variances, axes, shifts, theta, gradients, wanted):
    """Of posteriors the squared shift, its noise, and the number of simulations near each.

    Simulations are weighed by a normal density around the posterior, wide enough to hold enough of them. Along axes on
    which covariance and spread are both diagonal, a distance is a sum of squares for every width.
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
