"""Where posteriors of many data sets are, roughly: draws of the prior, weighed by the likelihood of some rows."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers.compiled import Start
from nsmbayes.surrogates import Density, MixtureDensity

_DRAWS = 2000
_ROWS = 64  # observations of each data set
_PER_PARAMETER = 5  # effective draws that are left
_BISECTIONS = 14
_AT_ONCE = 64  # data sets whose weights are in memory at once


class Pool(NamedTuple):
    """Draws of the prior that all data sets share."""

    density: MixtureDensity
    u: Float[np.ndarray, "draws d"]
    theta: Float[np.ndarray, "draws d"]

    @classmethod
    @double_precision
    def of(cls, prior: UnconstrainedPrior, density: MixtureDensity, seed: int) -> "Pool":
        """As many as are worth their time."""
        u = np.asarray(prior.sample(seed_key(seed), _DRAWS))
        return cls(density, u, constrain_rows(prior, u))

    @double_precision
    def starts(
        self, x: list[Float[np.ndarray, "_ d_x"]], counts: list[Float[np.ndarray, " _"]], seed: int, size: int
    ) -> list[Start]:
        """Mean and covariance of draws weighed for each data set, of which observations count so much.

        With at most `size` data sets; for fewer nothing is compiled again.
        """
        rows, weights = np.zeros((size, _ROWS, x[0].shape[1])), np.zeros((size, _ROWS))
        for i, (each, count) in enumerate(zip(x, counts, strict=True)):
            some = np.random.default_rng([seed, i]).permutation(len(each))[:_ROWS]
            rows[i, : len(some)], weights[i, : len(some)] = each[some], count[some]
            rows[i, len(some) :] = each[some[0]]
        logs = map_rows(_log_likelihoods, self.theta, self.density, rows, weights)
        of_each = np.ascontiguousarray(logs.T[: len(x)])
        parts = [of_each[first : first + _AT_ONCE] for first in range(0, len(x), _AT_ONCE)]
        return [start for part in parts for start in self._starts(part)]

    def _starts(self, logs: Float[np.ndarray, "sets draws"]) -> list[Start]:
        """Weights are raised to a power that leaves enough of them."""
        logs = np.where(np.isfinite(logs), logs, -1e300)
        logs = logs - logs.max(axis=1, keepdims=True)
        d = self.u.shape[1]
        low, high = np.zeros(len(logs)), np.ones(len(logs))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            weights = np.exp(middle[:, None] * logs)
            enough = weights.sum(axis=1) ** 2 > _PER_PARAMETER * d * np.einsum("ij,ij->i", weights, weights)
            low, high = np.where(enough, middle, low), np.where(enough, high, middle)
        weights = np.exp(low[:, None] * logs)
        weights /= weights.sum(axis=1, keepdims=True)
        centre = self.u.mean(axis=0)
        offsets = self.u - centre
        means = weights @ offsets
        products = (offsets[:, :, None] * offsets[:, None, :]).reshape(len(offsets), -1)
        covariances = (weights @ products).reshape(-1, d, d) - means[:, :, None] * means[:, None, :]
        floor = 1e-9 * np.trace(covariances, axis1=1, axis2=2) / d
        covariances += floor[:, None, None] * np.eye(d)
        return [Start(*each) for each in zip(centre + means, covariances, strict=True)]


def _log_likelihoods(
    theta: Float[Array, " d"], density: Density, x: Float[Array, "k n d_x"], counts: Float[Array, "k n"]
) -> Float[Array, " k"]:
    logs = density.log_probs(theta, x.reshape(-1, x.shape[2])).reshape(counts.shape)
    return jnp.where(counts > 0, counts * logs, 0.0).sum(axis=1)
